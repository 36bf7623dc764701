// product_sets.h - the sets of product kernels, best first: the features each needs, its name, and the vector
// type of its other loops.
#pragma once
#include "device/cpu/cpu.h"

#if defined(CPU_X86)
#define PRODUCT_SETS(X, name)                                                      \
    X(CPU_AVX512 | CPU_AVX512_VNNI | CPU_AVX512_BF16 | CPU_AMX, amx, avx512, name) \
    X(CPU_AVX512 | CPU_AVX512_VNNI | CPU_AVX512_BF16, avx512_bf16, avx512, name)   \
    X(CPU_AVX512 | CPU_AVX512_VNNI, avx512, avx512, name)                          \
    X(CPU_AVX2 | CPU_AVX_VNNI, avx_vnni, avx2, name)                               \
    X(CPU_AVX2, avx2, avx2, name)
#elif defined(CPU_ARM)
#define PRODUCT_SETS(X, name)                               \
    X(CPU_NEON | CPU_DOTPROD | CPU_I8MM, smmla, neon, name) \
    X(CPU_NEON | CPU_DOTPROD, sdot, neon, name)             \
    X(CPU_NEON, neon, neon, name)
#else
#define PRODUCT_SETS(X, name)
#endif
