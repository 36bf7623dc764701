// vec_neon.h - the vector type of rows_vec.h for NEON on AArch64: 4 floats.
#pragma once
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>
#include "device/cpu/cpu.h"

#define SIMD
#define VEC(name)  name##_neon
#define VEC_INLINE static inline __attribute__((always_inline))
#define VEC_WIDE   0
#define VEC_BF16   0
enum { VF = 4, VEC_COLUMNS = 4, VEC_PAGES = 1, VEC_SUMS = 16 };

typedef float32x4_t vf;

VEC_INLINE vf vf_load(const float *p)
{
    return vld1q_f32(p);
}
VEC_INLINE vf vf_load_n(const float *p, uint32_t n) // lanes from n on are 0
{
    float part[4] = { 0 };

    if (n >= 4)
        return vld1q_f32(p);
    memcpy(part, p, n * 4);
    return vld1q_f32(part);
}
VEC_INLINE void vf_store(float *p, vf v)
{
    vst1q_f32(p, v);
}
VEC_INLINE void vf_store_n(float *p, vf v, uint32_t n)
{
    float part[4];

    vst1q_f32(part, v);
    memcpy(p, part, n >= 4 ? 16 : n * 4);
}
VEC_INLINE vf vf_load_half(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}
VEC_INLINE vf vf_load_half_n(const uint16_t *p, uint32_t n)
{
    uint16_t part[4] = { 0 };

    memcpy(part, p, n >= 4 ? 8 : n * 2);
    return vf_load_half(part);
}
VEC_INLINE void vf_store_half_n(uint16_t *p, vf v, uint32_t n)
{
    uint16_t part[4];

    vst1_u16(part, vreinterpret_u16_f16(vcvt_f16_f32(v)));
    memcpy(p, part, n >= 4 ? 8 : n * 2);
}
VEC_INLINE vf vf_set(float x)
{
    return vdupq_n_f32(x);
}
VEC_INLINE vf vf_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}
VEC_INLINE vf vf_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}
VEC_INLINE vf vf_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}
VEC_INLINE vf vf_max(vf a, vf b) // b where either is NaN, as on x86
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}
VEC_INLINE vf vf_first(vf v, vf other, uint32_t n)
{
    static const uint32_t lanes[4] = { 0, 1, 2, 3 };
    return vbslq_f32(vcltq_u32(vld1q_u32(lanes), vdupq_n_u32(n)), v, other);
}
VEC_INLINE float vf_sum(vf v)
{
    float32x2_t s = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    return vget_lane_f32(s, 0) + vget_lane_f32(s, 1);
}
VEC_INLINE float vf_top(vf v)
{
    return vmaxvq_f32(v);
}
VEC_INLINE vf vf_round(vf v)
{
    return vrndnq_f32(v);
}
// v * 2^n for whole n in -150..150, as two factors: 2^n itself may be out of range
VEC_INLINE vf vf_scale2(vf v, vf n)
{
    int32x4_t whole = vcvtq_s32_f32(n), half = vshrq_n_s32(whole, 1), rest = vsubq_s32(whole, half);
    const int32x4_t bias = vdupq_n_s32(127);
    float32x4_t a = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23));
    float32x4_t b = vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23));
    return vmulq_f32(vmulq_f32(v, a), b);
}
