// product_choices.h - the list of kernels of an operation that is built on product.h: one for each set, with what it needs.
#pragma once
#include "ops/matmul/product.h"

// A kernel of an operation for each set: NAME_plan and NAME_run take the set as their last argument.
#define PRODUCT_KERNEL(set, name)                                                                            \
    static void name##_plan_##set(const struct cpu_call *call, struct cpu_plan *plan)                        \
    {                                                                                                        \
        name##_plan(call, plan, &product_##set);                                                             \
    }                                                                                                        \
    static void name##_run_##set(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last) \
    {                                                                                                        \
        name##_run(call, phase, (struct tile_range){ first, last }, &product_##set);                         \
    }
#define PRODUCT_CHOICE(needs, set, name)        \
    {                                           \
        needs,                                  \
        {                                       \
            name##_plan_##set, name##_run_##set \
        }                                       \
    }
#if defined(CPU_X86)
#define PRODUCT_KERNELS(name)         \
    PRODUCT_KERNEL(avx512_bf16, name) \
    PRODUCT_KERNEL(avx512, name)      \
    PRODUCT_KERNEL(avx_vnni, name)    \
    PRODUCT_KERNEL(avx2, name)
#define PRODUCT_CHOICES(name)                                                                                                \
    PRODUCT_CHOICE(CPU_AVX512 | CPU_AVX512_VNNI | CPU_AVX512_BF16, avx512_bf16, name),                                       \
        PRODUCT_CHOICE(CPU_AVX512 | CPU_AVX512_VNNI, avx512, name), PRODUCT_CHOICE(CPU_AVX2 | CPU_AVX_VNNI, avx_vnni, name), \
        PRODUCT_CHOICE(CPU_AVX2, avx2, name),
#elif defined(CPU_ARM)
#define PRODUCT_KERNELS(name) PRODUCT_KERNEL(sdot, name) PRODUCT_KERNEL(neon, name)
#define PRODUCT_CHOICES(name) PRODUCT_CHOICE(CPU_NEON | CPU_DOTPROD, sdot, name), PRODUCT_CHOICE(CPU_NEON, neon, name),
#else
#define PRODUCT_KERNELS(name)
#define PRODUCT_CHOICES(name) \
    {                         \
        0,                    \
        {                     \
            0                 \
        }                     \
    }
#endif
