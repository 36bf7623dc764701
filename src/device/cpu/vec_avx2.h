// vec_avx2.h - the vector type of rows_vec.h for AVX2 with FMA and F16C: 8 floats.
#pragma once
#include <immintrin.h>
#include <stdint.h>
#include <string.h>
#include "device/cpu/cpu.h"

#define SIMD       TARGET("avx2,fma,f16c")
#define VEC(name)  name##_avx2
#define VEC_INLINE static inline __attribute__((always_inline)) SIMD
#define VEC_WIDE   0
#define VEC_BF16   0
enum { VF = 8, VEC_COLUMNS = 4, VEC_PAGES = 1, VEC_SUMS = 8 };

typedef __m256 vf;

VEC_INLINE __m256i vf_mask(uint32_t n)
{
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n > 8 ? 8 : (int)n), lanes);
}
VEC_INLINE vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
VEC_INLINE vf vf_load_n(const float *p, uint32_t n)
{
    return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vf_mask(n));
}
VEC_INLINE void vf_store(float *p, vf v)
{
    _mm256_storeu_ps(p, v);
}
VEC_INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    if (n >= 8)
        _mm256_storeu_ps(p, v);
    else
        _mm256_maskstore_ps(p, vf_mask(n), v);
}
VEC_INLINE vf vf_load_half(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
VEC_INLINE vf vf_load_half_n(const uint16_t *p, uint32_t n)
{
    uint16_t part[8] = { 0 };

    if (n >= 8)
        return vf_load_half(p);
    memcpy(part, p, n * 2);
    return vf_load_half(part);
}
VEC_INLINE void vf_store_half_n(uint16_t *p, vf v, uint32_t n)
{
    uint16_t part[8];

    _mm_storeu_si128((__m128i *)part, _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    memcpy(p, part, n >= 8 ? 16 : n * 2);
}
VEC_INLINE vf vf_set(float x)
{
    return _mm256_set1_ps(x);
}
VEC_INLINE vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
VEC_INLINE vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
VEC_INLINE vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
VEC_INLINE vf vf_max(vf a, vf b) // b where either is NaN
{
    return _mm256_max_ps(a, b);
}
VEC_INLINE vf vf_first(vf v, vf other, uint32_t n)
{
    return _mm256_blendv_ps(other, v, _mm256_castsi256_ps(vf_mask(n)));
}
VEC_INLINE float vf_sum(vf v)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
VEC_INLINE float vf_top(vf v)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
VEC_INLINE vf vf_round(vf v)
{
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
// v * 2^n for whole n in -150..150, as two factors: 2^n itself may be out of range
VEC_INLINE vf vf_scale2(vf v, vf n)
{
    __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1),
            rest = _mm256_sub_epi32(whole, half);
    const __m256i bias = _mm256_set1_epi32(127);
    __m256 a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    __m256 b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(v, a), b);
}
