// attend_vec.h - attention for one vector type (vec_*.h). Included once by each vec_*.c, after rows_vec.h.
//
// Flash attention (Dao et al., 2022): keys in blocks of 256, counted from position 0; for each block the scores, their maximum, the
// weights, and the old sums scaled down. Columns are (row, query head) pairs that share a KV head: they share every load of K and V.
// A page holds K by dimension, so a score is a lane and no sum across lanes is needed. Which keys a column sees, in which blocks, is
// decided by its position alone; a column reads nothing behind its own end, so what lies there does not matter.
// Pages lie anywhere, so the processor cannot guess the next one: V's page is asked for while K's is read, and the next block's K while
// V is read.
#include "ops/vec/row_kernels.h"

struct columns {
    const struct attend_run *run;
    float *scores;        // [n][ATTEND_KEYS]
    float *out;           // [n][dims], sums over v
    float *q;             // [head_dim][VEC_COLUMNS]
    uint32_t first, n;    // columns of the run, row-major: column = row * heads + head
    uint32_t heads, dims; // query heads of the group; head_dim rounded up to VF
    float top[ATTEND_MAX_COLUMNS], total[ATTEND_MAX_COLUMNS];
    uint32_t from[ATTEND_MAX_COLUMNS], to[ATTEND_MAX_COLUMNS]; // keys of the current block, [from, to)
};

// The columns' q, scaled, by dimension: one pointer serves all columns of a tile.
VEC_INLINE void gather_q(const struct columns *s, uint32_t n)
{
    uint32_t head_dim = s->run->args->pages.head_dim;

    for (uint32_t c = 0; c < n; c++) {
        uint32_t at = s->first + c;
        const float *q = s->run->q + at / s->heads * s->run->stride + at % s->heads * head_dim;
        for (uint32_t d = 0; d < head_dim; d++)
            s->q[d * VEC_COLUMNS + c] = q[d] * s->run->args->scale;
    }
}

// Of a key's page; keys behind the run's last position have none, and nobody looks at their scores.
VEC_INLINE uint64_t page_of(const struct attend_run *run, uint32_t key)
{
    uint32_t last = run->position + run->n_rows - 1;

    key = key < last ? key : last;
    return page_at(&run->args->pages, run->table[key / PAGE_TOKENS], run->kv_head);
}

VEC_INLINE vf load_numbers(const void *pages, uint64_t at, uint32_t format)
{
    return format == KV_F32 ? vf_load((const float *)pages + at) : vf_load_half((const uint16_t *)pages + at);
}

VEC_INLINE vf load_numbers_n(const void *pages, uint64_t at, uint32_t format, uint32_t n)
{
    return format == KV_F32 ? vf_load_n((const float *)pages + at, n) : vf_load_half_n((const uint16_t *)pages + at, n);
}

enum { PAGE_VECTORS = PAGE_TOKENS / VF };

VEC_INLINE void expect(const void *pages, uint64_t at, uint32_t format)
{
    __builtin_prefetch((const char *)pages + at * (format == KV_F32 ? 4 : 2));
}

// Scores of VEC_PAGES pages from `key` on, for C columns.
VEC_INLINE void score_pages(const struct columns *s, uint32_t key, uint32_t at, const uint32_t format, const int C)
{
    const struct attend_run *run = s->run;
    const float *q = s->q, *q_end = q + run->args->pages.head_dim * VEC_COLUMNS;
    uint64_t pages[VEC_PAGES];
    vf sum[VEC_COLUMNS][VEC_PAGES * PAGE_VECTORS];

    for (int p = 0; p < VEC_PAGES; p++)
        pages[p] = page_of(run, key + (uint32_t)p * PAGE_TOKENS);
    _Pragma("GCC unroll 16") for (int c = 0; c < C; c++)
        _Pragma("GCC unroll 16") for (int v = 0; v < VEC_PAGES * PAGE_VECTORS; v++) sum[c][v] = vf_set(0);
    for (uint64_t at_k = 0; q < q_end; q += VEC_COLUMNS, at_k += PAGE_TOKENS) {
        _Pragma("GCC unroll 16") for (int p = 0; p < VEC_PAGES; p++) expect(run->v_pages, pages[p] + at_k, format);
        _Pragma("GCC unroll 16") for (int v = 0; v < VEC_PAGES * PAGE_VECTORS; v++)
        {
            vf x = load_numbers(run->k_pages, pages[v / PAGE_VECTORS] + at_k + v % PAGE_VECTORS * VF, format);
            _Pragma("GCC unroll 16") for (int c = 0; c < C; c++) sum[c][v] = vf_fma(vf_set(q[c]), x, sum[c][v]);
        }
    }
    _Pragma("GCC unroll 16") for (int c = 0; c < C; c++)
        _Pragma("GCC unroll 16") for (int v = 0; v < VEC_PAGES * PAGE_VECTORS; v++)
            vf_store(s->scores + c * ATTEND_KEYS + at + v * VF, sum[c][v]);
}

// Turns the scores of column c into weights. Returns the factor for what was summed before.
VEC_INLINE float weigh_column(struct columns *s, uint32_t c)
{
    float *scores = s->scores + c * ATTEND_KEYS;
    vf top = vf_set(s->top[c]), total = vf_set(0);

    for (uint32_t i = s->from[c] / VF * VF; i < s->to[c]; i += VF) {
        vf x = vf_first(vf_load(scores + i), vf_set(-INFINITY), s->to[c] - i);
        if (i < s->from[c])
            x = vf_first(vf_set(-INFINITY), x, s->from[c] - i);
        top = vf_max(top, x);
        vf_store(scores + i, x);
    }
    float best = vf_top(top), factor = s->top[c] == -INFINITY ? 0 : 1;
    vf shift = vf_set(-best);
    if (s->top[c] != -INFINITY)
        factor = expf(s->top[c] - best);
    for (uint32_t i = s->from[c] / VF * VF; i < s->to[c]; i += VF) {
        vf x = vf_load(scores + i), w = vf_exp(vf_add(x, shift));
        w = vf_first(w, vf_set(0), s->to[c] - i);
        if (i < s->from[c])
            w = vf_first(vf_set(0), w, s->from[c] - i);
        total = vf_add(total, w);
        vf_store(scores + i, w);
    }
    s->total[c] = s->total[c] * factor + vf_sum(total);
    s->top[c] = best;
    return factor;
}

// out[c] += weights * v over the keys [from, to) of the block at `base`, for C columns from c0 and P vectors of dimensions from d.
struct part {
    uint32_t base, from, to, c0, d;
};

VEC_INLINE void add_values(const struct columns *s, const struct part a, const uint32_t format, const int C, const int P)
{
    const struct attend_run *run = s->run;
    uint32_t head_dim = run->args->pages.head_dim;
    vf sum[VEC_COLUMNS][4];

    _Pragma("GCC unroll 16") for (int c = 0; c < C; c++) _Pragma("GCC unroll 16") for (int p = 0; p < P; p++) sum[c][p] =
        vf_load(s->out + (a.c0 + c) * s->dims + a.d + p * VF);
    for (uint32_t i = a.from, end; i < a.to; i = end) {
        uint64_t at = page_of(run, a.base + i) + page_v_element(&run->args->pages, i % PAGE_TOKENS, a.d);
        const float *w = s->scores + (size_t)a.c0 * ATTEND_KEYS + i;
        uint64_t next_k = page_of(run, a.base + i + ATTEND_KEYS) - page_of(run, a.base + i); // from an element of V's page
        end = (i / PAGE_TOKENS + 1) * PAGE_TOKENS;
        end = end < a.to ? end : a.to;
        for (const float *w_end = w + (end - i); w < w_end; w++, at += head_dim)
            _Pragma("GCC unroll 16") for (int p = 0; p < P; p++)
            {
                expect(run->k_pages, at + next_k + p * VF, format);
                vf v = P == 1 ? load_numbers_n(run->v_pages, at, format, head_dim - a.d)
                              : load_numbers(run->v_pages, at + p * VF, format);
                _Pragma("GCC unroll 16") for (int c = 0; c < C; c++) sum[c][p] = vf_fma(vf_set(w[c * ATTEND_KEYS]), v, sum[c][p]);
            }
    }
    _Pragma("GCC unroll 16") for (int c = 0; c < C; c++) _Pragma("GCC unroll 16") for (int p = 0; p < P; p++)
        vf_store(s->out + (a.c0 + c) * s->dims + a.d + p * VF, sum[c][p]);
}

VEC_INLINE void add_values_all_dims(const struct columns *s, struct part a, const uint32_t format, const int C)
{
    uint32_t head_dim = s->run->args->pages.head_dim;

    if (a.from >= a.to)
        return;
    for (a.d = 0; C <= 4 && VEC_COLUMNS > 4 && a.d + 4 * VF <= head_dim; a.d += 4 * VF)
        add_values(s, a, format, C, 4);
    for (; C > 4 && a.d + 2 * VF <= head_dim; a.d += 2 * VF)
        add_values(s, a, format, C, 2);
    for (; a.d < head_dim; a.d += VF)
        add_values(s, a, format, C, 1);
}

// The keys that all columns see together; before and after them, each column alone.
VEC_INLINE void add_block(const struct columns *s, uint32_t base, const uint32_t format, const int C)
{
    uint32_t from = s->from[0], to = s->to[0];

    for (int c = 1; c < C; c++) {
        from = s->from[c] > from ? s->from[c] : from;
        to = s->to[c] < to ? s->to[c] : to;
    }
    to = to > from ? to : from;
    for (uint32_t c = 0; c < (uint32_t)C; c++)
        add_values_all_dims(s, (struct part){ base, s->from[c], from < s->to[c] ? from : s->to[c], c, 0 }, format, 1);
    add_values_all_dims(s, (struct part){ base, from, to, 0, 0 }, format, C);
    for (uint32_t c = 0; c < (uint32_t)C; c++)
        add_values_all_dims(s, (struct part){ base, to > s->from[c] ? to : s->from[c], s->to[c], c, 0 }, format, 1);
}

VEC_INLINE void attend_block(struct columns *s, uint32_t base, const uint32_t format, const int C)
{
    uint32_t from = ATTEND_KEYS, to = 0;

    for (int c = 0; c < C; c++) {
        uint32_t position = s->run->position + (s->first + (uint32_t)c) / s->heads, window = s->run->args->window;
        uint32_t start = window && position >= window ? position - window + 1 : 0, end = position + 1;
        s->from[c] = start > base ? (start - base < ATTEND_KEYS ? start - base : ATTEND_KEYS) : 0;
        s->to[c] = end > base ? (end - base < ATTEND_KEYS ? end - base : ATTEND_KEYS) : 0;
        s->to[c] = s->to[c] > s->from[c] ? s->to[c] : s->from[c];
        from = s->from[c] < from ? s->from[c] : from;
        to = s->to[c] > to && s->to[c] > s->from[c] ? s->to[c] : to;
    }
    for (uint32_t at = from / (VEC_PAGES * PAGE_TOKENS) * (VEC_PAGES * PAGE_TOKENS); at < to; at += VEC_PAGES * PAGE_TOKENS)
        score_pages(s, base + at, at, format, C);
    for (uint32_t c = 0; c < (uint32_t)C; c++) {
        if (s->from[c] == s->to[c])
            continue;
        vf factor = vf_set(weigh_column(s, c));
        for (uint32_t d = 0; d < s->dims; d += VF)
            vf_store(s->out + c * s->dims + d, vf_mul(vf_load(s->out + c * s->dims + d), factor));
    }
    add_block(s, base, format, C);
}

VEC_INLINE void attend_columns(struct columns *s, const uint32_t format, const int C)
{
    const struct attend_args *args = s->run->args;
    uint32_t first = s->run->position + s->first / s->heads, last = s->run->position + (s->first + (uint32_t)C - 1) / s->heads;
    uint32_t start = args->window && first >= args->window ? first - args->window + 1 : 0;

    gather_q(s, (uint32_t)C);
    for (int c = 0; c < C; c++) {
        s->top[c] = -INFINITY;
        s->total[c] = 0;
    }
    for (uint32_t d = 0; d < (uint32_t)C * s->dims; d += VF)
        vf_store(s->out + d, vf_set(0));
    for (uint32_t base = start / ATTEND_KEYS * ATTEND_KEYS; base <= last; base += ATTEND_KEYS)
        attend_block(s, base, format, C);
    for (uint32_t c = 0; c < (uint32_t)C; c++) {
        float *out = s->run->out + (s->first + c) / s->heads * s->run->stride + (s->first + c) % s->heads * args->pages.head_dim;
        for (uint32_t d = 0; d < args->pages.head_dim; d += VF)
            vf_store_n(out + d, vf_div(vf_load(s->out + c * s->dims + d), vf_set(s->total[c])), args->pages.head_dim - d);
    }
}

SIMD static void VEC(attend)(const struct attend_run *run)
{
    const struct page_shape *shape = &run->args->pages;
    struct columns s = { .run = run, .heads = run->args->n_heads / shape->n_kv_heads };
    uint32_t n = s.heads * run->n_rows;

    s.dims = (shape->head_dim + VF - 1) / VF * VF;
    s.scores = run->local;
    s.out = s.scores + ATTEND_MAX_COLUMNS * ATTEND_KEYS;
    s.q = s.out + ATTEND_MAX_COLUMNS * s.dims;
    for (s.first = 0; s.first < n; s.first += s.n) {
        uint32_t left = n - s.first, n_groups = (left + VEC_COLUMNS - 1) / VEC_COLUMNS;
        s.n = (left + n_groups - 1) / n_groups;
        switch (s.n * 2 + (shape->k_format == KV_F16)) {
#define COLUMNS(C)                     \
    case C * 2:                        \
        attend_columns(&s, KV_F32, C); \
        break;                         \
    case C * 2 + 1:                    \
        attend_columns(&s, KV_F16, C); \
        break;
            COLUMNS(1)
            COLUMNS(2)
            COLUMNS(3)
            COLUMNS(4)
#if VEC_WIDE
            COLUMNS(5)
            COLUMNS(6)
            COLUMNS(7)
            COLUMNS(8)
#endif
#undef COLUMNS
        }
    }
}
