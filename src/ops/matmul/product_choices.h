// product_choices.h - the sets of product kernels, best first, with what each needs; and for an operation built on product.h the list of
// its kernels, one for each set.
#pragma once
#include "ops/matmul/product.h"

#if defined(CPU_X86)
#define PRODUCT_SETS(X, name)                                              \
    X(CPU_AVX512 | CPU_AVX512_VNNI | CPU_AVX512_BF16 | CPU_AMX, amx, name) \
    X(CPU_AVX512 | CPU_AVX512_VNNI | CPU_AVX512_BF16, avx512_bf16, name)   \
    X(CPU_AVX512 | CPU_AVX512_VNNI, avx512, name)                          \
    X(CPU_AVX2 | CPU_AVX_VNNI, avx_vnni, name)                             \
    X(CPU_AVX2, avx2, name)
#elif defined(CPU_ARM)
#define PRODUCT_SETS(X, name) \
    X(CPU_NEON | CPU_DOTPROD | CPU_I8MM, smmla, name) X(CPU_NEON | CPU_DOTPROD, sdot, name) X(CPU_NEON, neon, name)
#else
#define PRODUCT_SETS(X, name)
#endif

// A kernel of an operation for each set: NAME_plan and NAME_run take the set as their last argument.
#define PRODUCT_KERNEL(needs, set, name)                                                                     \
    static void name##_plan_##set(const struct cpu_call *call, struct cpu_plan *plan)                        \
    {                                                                                                        \
        name##_plan(call, plan, &product_##set);                                                             \
    }                                                                                                        \
    static void name##_run_##set(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last) \
    {                                                                                                        \
        name##_run(call, phase, (struct tile_range){ first, last }, &product_##set);                         \
    }
#define PRODUCT_CHOICE(needs, set, name) { needs, { name##_plan_##set, name##_run_##set } },
#define PRODUCT_KERNELS(name)            PRODUCT_SETS(PRODUCT_KERNEL, name)
#define PRODUCT_CHOICES(name)          \
    PRODUCT_SETS(PRODUCT_CHOICE, name) \
    {                                  \
        0,                             \
        {                              \
            0                          \
        }                              \
    }
