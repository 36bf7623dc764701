// vec_avx512.h - the vector type of rows_vec.h for AVX-512: 16 floats.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include "device/cpu/cpu.h"

// VEC_BF16 defined as 1: for CPUs that multiply pairs of bf16 too.
#if VEC_BF16
#define SIMD      TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#define VEC(name) name##_avx512_bf16
#else
#define SIMD      TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#define VEC(name) name##_avx512
#endif
#define VEC_INLINE static inline __attribute__((always_inline)) SIMD
#define VEC_WIDE   1 // registers for 8 columns of attention
// Lanes; the tile of attention: columns, pages of keys, sums over V.
enum { VF = 16, VEC_COLUMNS = 8, VEC_PAGES = 2, VEC_SUMS = 16 };

typedef __m512 vf;

VEC_INLINE __mmask16 vf_mask(uint32_t n)
{
    return (__mmask16)(n >= 16 ? 0xffff : (1u << n) - 1);
}
VEC_INLINE vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
VEC_INLINE vf vf_load_n(const float *p, uint32_t n) // lanes from n on are 0
{
    return _mm512_maskz_loadu_ps(vf_mask(n), p);
}
VEC_INLINE void vf_store(float *p, vf v)
{
    _mm512_storeu_ps(p, v);
}
VEC_INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    _mm512_mask_storeu_ps(p, vf_mask(n), v);
}
VEC_INLINE vf vf_load_half(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
VEC_INLINE vf vf_load_half_n(const uint16_t *p, uint32_t n)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(vf_mask(n), p));
}
VEC_INLINE void vf_store_half_n(uint16_t *p, vf v, uint32_t n)
{
    _mm256_mask_storeu_epi16(p, vf_mask(n),
                             _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
VEC_INLINE vf vf_set(float x)
{
    return _mm512_set1_ps(x);
}
VEC_INLINE vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
VEC_INLINE vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
VEC_INLINE vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
VEC_INLINE vf vf_fma(vf a, vf b, vf c) // a * b + c
{
    return _mm512_fmadd_ps(a, b, c);
}
VEC_INLINE vf vf_max(vf a, vf b) // b where either is NaN
{
    return _mm512_max_ps(a, b);
}
VEC_INLINE vf vf_first(vf v, vf other, uint32_t n) // lanes below n of v, the rest of other
{
    return _mm512_mask_mov_ps(other, vf_mask(n), v);
}
VEC_INLINE float vf_sum(vf v)
{
    return _mm512_reduce_add_ps(v);
}
VEC_INLINE float vf_top(vf v)
{
    return _mm512_reduce_max_ps(v);
}
VEC_INLINE vf vf_round(vf v)
{
    return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
VEC_INLINE vf vf_scale2(vf v, vf n) // v * 2^n for whole n in -150..150
{
    return _mm512_scalef_ps(v, n);
}
