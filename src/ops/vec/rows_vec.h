// rows_vec.h - activation, RoPE and store for one vector type (vec_*.h). Included once by each vec_*.c.
//
// Sums over a row take a fixed tree that depends on its length alone. RoPE is element by element, left to the
// compiler.
#include <float.h>
#include <math.h>
#include "ops/vec/norm_vec.h"
#include "ops/vec/row_kernels.h"
#include "ops/vec/store_vec.h"

// e^x within 2 ulp (Cephes' polynomial): x = n ln 2 + r. Below -103 it is 0; NaN stays NaN.
VEC_INLINE vf vf_exp(vf x)
{
    x = vf_max(vf_set(-104), x); // a NaN is the second operand and stays
    vf n = vf_round(vf_mul(x, vf_set(1.44269504f)));
    n = vf_mul(vf_set(-1), vf_max(vf_set(-130), vf_mul(vf_set(-1), n)));
    vf r = vf_fma(n, vf_set(-0.693359375f), x);
    r = vf_fma(n, vf_set(2.12194440e-4f), r);
    vf p = vf_set(1.9875691500e-4f);
    p = vf_fma(p, r, vf_set(1.3981999507e-3f));
    p = vf_fma(p, r, vf_set(8.3334519073e-3f));
    p = vf_fma(p, r, vf_set(4.1665795894e-2f));
    p = vf_fma(p, r, vf_set(1.6666665459e-1f));
    p = vf_fma(p, r, vf_set(5.0000001201e-1f));
    p = vf_fma(p, vf_mul(r, r), vf_add(r, vf_set(1)));
    return vf_scale2(p, n);
}

// 0 times a number is 0, of infinity and NaN it is NaN; -infinity is made a number first.
SIMD static bool VEC(tops)(const float *x, uint32_t n, float *tops, uint32_t n_tops)
{
    vf wrong = vf_set(0);
    float rest = 0;

    for (uint32_t b = 0; b < n_tops; b += VF) {
        vf top = vf_set(-INFINITY), bad = vf_set(0);
        for (uint32_t i = b; i + VF <= n; i += n_tops) {
            vf v = vf_load(x + i);
            top = vf_max(top, v);
            bad = vf_fma(vf_set(0), vf_max(vf_set(-FLT_MAX), v), bad);
        }
        vf_store(tops + b, top);
        wrong = vf_add(wrong, bad);
    }
    for (uint32_t i = n / VF * VF; i < n; i++) {
        tops[i % n_tops] = x[i] > tops[i % n_tops] ? x[i] : tops[i % n_tops];
        rest += 0 * (x[i] == -INFINITY ? 0 : x[i]);
    }
    return vf_sum(wrong) + rest == 0;
}

// 1 - erf(x) for x >= 0 is e^(-x^2) times a polynomial in 1 / (1 + p x), within 1.5e-7 (Abramowitz and
// Stegun, 7.1.26). GELU of |x| and of -|x| follow: their sum is |x|.
VEC_INLINE vf gelu_erf(vf x)
{
    static const float terms[5] = { 1.061405429f, -1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f };
    vf size = vf_max(x, vf_mul(vf_set(-1), x)), y = vf_mul(vf_set(0.7071067812f), size);
    vf t = vf_div(vf_set(1), vf_fma(vf_set(0.3275911f), y, vf_set(1))), sum = vf_set(terms[0]);

    for (int i = 1; i < 5; i++)
        sum = vf_fma(sum, t, vf_set(terms[i]));
    vf rest = vf_mul(vf_mul(sum, t), vf_exp(vf_mul(vf_mul(vf_set(-1), y), y))); // 1 - erf
    return vf_add(vf_max(x, vf_set(0)), vf_mul(vf_mul(vf_set(-0.5f), size), rest));
}

VEC_INLINE vf activation(enum activation a, vf x)
{
    vf t = x;

    if (a == ACTIVATION_GELU)
        return gelu_erf(x);
    if (a == ACTIVATION_RELU)
        return vf_max(vf_set(0), x);
    if (a == ACTIVATION_GELU_TANH) { // (1 + tanh(u)) / 2 = 1 / (1 + e^-2u)
        vf cube = vf_mul(vf_mul(x, x), x);
        t = vf_mul(vf_set(2 * 0.7978845608f), vf_fma(vf_set(0.044715f), cube, x));
    }
    return vf_div(x, vf_add(vf_set(1), vf_exp(vf_mul(vf_set(-1), t))));
}

// limit * tanh(x / limit), as 1 - 2 / (e^2z + 1)
VEC_INLINE vf capped(float limit, vf x)
{
    vf e = vf_exp(vf_mul(x, vf_set(2 / limit)));
    return vf_mul(vf_set(limit), vf_add(vf_set(1), vf_div(vf_set(-2), vf_add(e, vf_set(1)))));
}

SIMD static void VEC(activate)(const struct activate_args *args, const float *gate, const float *up,
                               float *out)
{
    for (uint32_t c = 0; c < args->n_cols; c += VF) {
        uint32_t n = args->n_cols - c, f = args->activation;
        vf x = vf_load_n(gate + c, n);
        vf a = f == ACTIVATION_CAP ? capped(args->limit, x) : activation((enum activation)f, x);
        vf_store_n(out + c, up ? vf_mul(a, vf_load_n(up + c, n)) : a, n);
    }
}

VEC_INLINE void rotate_pairs(float *restrict a, float *restrict b, const float *restrict angles, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        float cosine = angles[2 * i], sine = angles[2 * i + 1], x = a[i], y = b[i];
        a[i] = x * cosine - y * sine;
        b[i] = y * cosine + x * sine;
    }
}

VEC_INLINE void rotate_neighbours(float *restrict head, const float *restrict angles, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        float cosine = angles[2 * i], sine = angles[2 * i + 1], x = head[2 * i], y = head[2 * i + 1];
        head[2 * i] = x * cosine - y * sine;
        head[2 * i + 1] = y * cosine + x * sine;
    }
}

VEC_INLINE void prepare_head(const struct rope_store_args *args, float *head, const float *norm,
                             const float *angles)
{
    uint32_t half = args->n_dims / 2;

    if (norm)
        VEC(rmsnorm)(head, norm, head, args->pages.head_dim, args->eps);
    if (args->pairs == ROPE_ADJACENT)
        rotate_neighbours(head, angles, half);
    else
        rotate_pairs(head, head + half, angles, half);
}

SIMD static void VEC(rope_store)(const struct rope_store_args *args, const struct rope_row *row,
                                 struct head_range heads)
{
    const struct page_shape *s = &args->pages;
    uint32_t head_dim = s->head_dim, n_q = args->n_heads, n_kv = s->n_kv_heads;
    struct page_token token = {
        s, NULL, row->table[row->position / PAGE_TOKENS], 0, row->position % PAGE_TOKENS, false
    };

    for (uint32_t h = heads.first; h < heads.last; h++) {
        bool is_q = h < n_q, is_v = h >= n_q + n_kv;
        token.head = is_q ? 0 : (h - n_q) % n_kv;
        float *head = is_q ? row->q + h * head_dim : (is_v ? row->v : row->k) + token.head * head_dim;
        if (!is_v)
            prepare_head(args, head, is_q ? row->q_norm : row->k_norm, row->angles);
        token.is_v = is_v;
        token.pages = is_v ? row->v_pages : row->k_pages;
        if (!is_q)
            store_head(&token, head);
    }
}
