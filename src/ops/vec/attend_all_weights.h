// attend_all_weights.h - scores of a row become weights in bf16, for attend_all_bf16.h, which includes it:
// as pairs of keys, by an exponential no better than bf16 needs.
#pragma once

// 2^x for x up to 0 by a cubic. Relative error 1e-4, a twentieth of the rounding to bf16 that follows; 1 for
// 0.
VEC_INLINE vf exp2_for_bf16(vf x)
{
    x = vf_max(vf_set(-126), x); // a NaN is the second operand and stays
    vf n = vf_round(x), r = vf_fma(n, vf_set(-1), x), p = vf_set(5.50089415e-2f);
    p = vf_fma(p, r, vf_set(2.42211042e-1f));
    p = vf_fma(p, r, vf_set(6.93282935e-1f));
    return vf_scale2(vf_fma(p, r, vf_set(1)), n);
}

// The scores of a panel's keys, of which n exist; the others are `none`.
VEC_INLINE void load_panel(const float *scores, uint32_t n, float none, vf *v)
{
    UNROLL for (uint32_t p = 0; p < 2; p++)
    {
        v[p] = vf_load(scores + p * VF);
        if (n < ALL_KEYS)
            v[p] = vf_first(v[p], vf_set(none), n > p * VF ? n - p * VF : 0);
    }
}

VEC_INLINE void raise_tops(const float *scores, uint32_t n, vf *tops)
{
    vf v[2];

    load_panel(scores, n, -INFINITY, v);
    UNROLL for (uint32_t p = 0; p < 2; p++) tops[p] = vf_max(v[p], tops[p]);
}

VEC_INLINE void weigh_panel(const float *scores, uint32_t n, vf minus_top, vf *sums, float *pairs)
{
    vf v[2];

    load_panel(scores, n, -INFINITY, v);
    UNROLL for (uint32_t p = 0; p < 2; p++)
    {
        v[p] = exp2_for_bf16(vf_add(v[p], minus_top));
        if (n < ALL_KEYS)
            v[p] = vf_first(v[p], vf_set(0), n > p * VF ? n - p * VF : 0);
        sums[p] = vf_add(sums[p], v[p]);
    }
    _mm512_storeu_si512(pairs, (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0]));
}

// Turns scores to the base 2 into weights, as pairs of keys at the beginning of their row, 0 behind the last
// key. Returns their sum.
VEC_INLINE float weigh_pairs(float *scores, uint32_t n)
{
    const uint32_t whole = n / ALL_KEYS * ALL_KEYS;
    vf tops[2] = { vf_set(-INFINITY), vf_set(-INFINITY) }, sums[2] = { vf_set(0), vf_set(0) };

    for (uint32_t i = 0; i < whole; i += ALL_KEYS)
        raise_tops(scores + i, ALL_KEYS, tops);
    if (whole < n)
        raise_tops(scores + whole, n - whole, tops);
    vf minus_top = vf_set(-vf_top(vf_max(tops[0], tops[1])));
    for (uint32_t i = 0; i < whole; i += ALL_KEYS)
        weigh_panel(scores + i, ALL_KEYS, minus_top, sums, scores + i / 2);
    if (whole < n)
        weigh_panel(scores + whole, n - whole, minus_top, sums, scores + whole / 2);
    return vf_sum(vf_add(sums[0], sums[1]));
}
