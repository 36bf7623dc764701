// attend_vec.h - attention for one vector type (vec_*.h). Included once by each vec_*.c, after rows_vec.h.
//
// Flash attention (Dao et al., 2022): keys in blocks of 256, counted from position 0. For each block: the
// scores, their maximum, the weights, and the old sums rescaled. Every ATTEND_SPLIT keys the sums start again
// and the earlier ones are merged, in ascending order, so that threads may share a long past.
// Columns are (row, query head) pairs that share a KV head: a block is read once for up to ATTEND_MAX_COLUMNS
// of them, in groups that fit the registers. A column's position alone decides which keys it sees, and in
// which blocks. A column uses nothing behind its own end.
// F32 and F16 pages are multiplied in place. Other formats are first converted, a block at a time, to F32;
// with BF16 instructions (attend_bf16.h) BF16 pages are multiplied in place, and Q8_0 becomes BF16. Values
// that are part of the keys (ops/latent) are copied into V's order, a block at a time.
// Pages are scattered, so the CPU cannot predict the next one: the first group prefetches the page ASK_AHEAD
// later, in the order K, V, the next block's K; of a short block, the page of V. Other groups would evict
// lines that they are about to read from L1. Several KV heads of BF16 pages at once have their own loops, in
// attend_stream.h.
#include "ops/vec/row_kernels.h"

enum {
    BLOCK_PAGES = ATTEND_KEYS / PAGE_TOKENS,
    ASK_AHEAD = BLOCK_PAGES / 2,
    PAGE_VECTORS = PAGE_TOKENS / VF
};
#define UNROLL _Pragma("GCC unroll 16")
#define LOG2_E 1.44269504f // scores are in powers of two

struct columns {
    const struct attend_run *run;
    enum kv_format k_format, v_format; // as they are multiplied
    uint32_t first, n;                 // columns of each KV head of the run, row-major: row * heads + head
    uint32_t heads, value_dims, dims;  // query heads of the group; numbers of a value, and rounded up to VF
    uint32_t base, kv;                 // of the current block; which of the run's KV heads is read
    float *q;                 // [groups][head_dim][VEC_COLUMNS], scaled; pairs of bf16 where K is BF16
    float *scores;            // [VEC_COLUMNS][ATTEND_KEYS] of one group, then its weights
    float *out, *merged;      // [n_kv][n][dims], sums over v: of this split, of those before
    unsigned char *converted; // a block of K, then of V
    const unsigned char *pages[3 * BLOCK_PAGES]; // the block's K and V, and K of the block behind it
    const unsigned char **k, **v, **next_k;      // where each begins
    const unsigned char *const *ask_by_k, *const *ask_by_v; // pages to ask for while K, while V is read
    struct attend_column {
        struct attend_sums now, before; // of this split, of those before
        uint32_t position;
        uint32_t from, to; // keys of the current block
    } column[ATTEND_MAX_COLUMNS];
};

struct group { // columns [first, first + n)
    uint32_t index, first;
};

struct attend_part { // keys [from, to) of the block, columns from c0 of the group, which is number `column`
                     // of all
    uint32_t from, to, c0, column, d;
};

// 2^x for x up to 0, with half of the work of vf_exp. Relative error 5e-7; 1 for 0.
VEC_INLINE vf vf_exp2_below(vf x)
{
    x = vf_max(vf_set(-150), x); // a NaN is the second operand and stays
    vf n = vf_round(x), r = vf_fma(n, vf_set(-1), x), p = vf_set(1.1125507e-3f);
    p = vf_fma(p, r, vf_set(9.6662827e-3f));
    p = vf_fma(p, r, vf_set(5.5574004e-2f));
    p = vf_fma(p, r, vf_set(2.4022351e-1f));
    p = vf_fma(p, r, vf_set(6.9314283e-1f));
    return vf_scale2(vf_fma(p, r, vf_set(1)), n);
}

VEC_INLINE vf load_numbers(const unsigned char *p, uint64_t at, uint32_t format)
{
    return format == KV_F32 ? vf_load((const float *)p + at) : vf_load_half((const uint16_t *)p + at);
}

VEC_INLINE vf load_numbers_n(const unsigned char *p, uint64_t at, uint32_t format, uint32_t n)
{
    return format == KV_F32 ? vf_load_n((const float *)p + at, n)
                            : vf_load_half_n((const uint16_t *)p + at, n);
}

VEC_INLINE void expect(const unsigned char *p, uint64_t at, uint32_t format)
{
    __builtin_prefetch(p + at * (format == KV_F32 ? 4 : 2));
}

#if VEC_BF16
#include "ops/vec/attend_bf16.h"
#else
enum { DOT_FORMAT = KV_F32 }; // what odd formats are brought to
VEC_INLINE void convert_page(const struct page_shape *s, uint32_t format, bool is_v,
                             const unsigned char *from, unsigned char *to)
{
    const uint16_t *scales = (const uint16_t *)(from + PAGE_TOKENS * s->head_dim);
    float *out = (float *)to;
    uint32_t group = page_group(format), outer = is_v ? PAGE_TOKENS : s->head_dim,
             inner = is_v ? s->head_dim : PAGE_TOKENS;

    for (uint32_t o = 0; o < outer; o++)
        for (uint32_t i = 0; i < inner; i++) {
            uint32_t at = (o / group * inner + i) * group + o % group, d = is_v ? i : o, token = is_v ? o : i;
            out[o * inner + i] = format == KV_BF16
                                     ? quant_bf16_to_float(((const uint16_t *)from)[at])
                                     : quant_half_to_float(scales[d / KV_Q8_0_BLOCK * PAGE_TOKENS + token]) *
                                           (float)(int8_t)from[at];
        }
}
#endif

// Scores of VEC_PAGES pages from key `at` of the block on, for C columns.
VEC_INLINE void score_pages(const struct columns *s, const struct group *g, uint32_t at,
                            const uint32_t format, const int C)
{
    uint32_t head_dim = s->run->args->pages.head_dim;
    const float *q = s->q + (size_t)g->index * head_dim * VEC_COLUMNS, *q_end = q + head_dim * VEC_COLUMNS;
    const unsigned char *const *k = s->k + at / PAGE_TOKENS, *const *ask = s->ask_by_k + at / PAGE_TOKENS;
    vf sum[VEC_COLUMNS][VEC_PAGES * PAGE_VECTORS];

    UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < VEC_PAGES * PAGE_VECTORS; i++) sum[c][i] =
        vf_set(0);
    for (uint64_t at_k = 0; q < q_end; q += VEC_COLUMNS, at_k += PAGE_TOKENS) {
        UNROLL for (int p = 0; p < VEC_PAGES; p++) expect(ask[p], at_k, format);
        UNROLL for (int i = 0; i < VEC_PAGES * PAGE_VECTORS; i++)
        {
            vf x = load_numbers(k[i / PAGE_VECTORS], at_k + i % PAGE_VECTORS * VF, format);
            UNROLL for (int c = 0; c < C; c++) sum[c][i] = vf_fma(vf_set(q[c]), x, sum[c][i]);
        }
    }
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < VEC_PAGES * PAGE_VECTORS; i++)
        vf_store(s->scores + c * ATTEND_KEYS + at + i * VF, sum[c][i]);
}

VEC_INLINE void store_weights(const struct columns *s, float *scores, uint32_t i, vf w)
{
#if VEC_BF16
    if (s->v_format == KV_BF16) { // over scores that were read before
        _mm256_storeu_si256((__m256i *)((uint16_t *)scores + i), (__m256i)_mm512_cvtneps_pbh(w));
        return;
    }
#endif
    (void)s;
    vf_store(scores + i, w);
}

// Scores of the vector that holds key `edge` of the block: those before the key become -infinity, or with
// `behind` it and those behind it.
VEC_INLINE void hide(float *scores, uint32_t edge, bool behind)
{
    float *at = scores + edge / VF * VF;
    uint32_t n = edge % VF;

    if (n)
        vf_store(at, behind ? vf_first(vf_load(at), vf_set(-INFINITY), n)
                            : vf_first(vf_set(-INFINITY), vf_load(at), n));
}

// What a column has summed is scaled down to a new highest score.
VEC_INLINE void raise_max(struct columns *s, uint32_t at, float best)
{
    struct attend_column *column = &s->column[at];
    float *out = s->out + at * (size_t)s->dims, factor = column->now.row_max == -INFINITY ? 0
                                                         : column->now.row_max == best
                                                             ? 1
                                                             : exp2f(column->now.row_max - best);

    column->now = (struct attend_sums){ best, column->now.row_sum * factor };
    for (uint32_t d = 0; factor != 1 && d < s->dims; d += VF)
        vf_store(out + d, vf_mul(vf_load(out + d), vf_set(factor)));
}

// The highest score of column c of the group, so far.
VEC_INLINE void find_top(struct columns *s, const struct group *g, uint32_t c)
{
    float *scores = s->scores + c * ATTEND_KEYS;
    const struct attend_column *column = &s->column[g->first + c];
    vf row_max = vf_set(column->now.row_max);

    hide(scores, column->from, false);
    hide(scores, column->to, true);
    for (uint32_t i = column->from / VF * VF; i < column->to; i += VF)
        row_max = vf_max(row_max, vf_load(scores + i));
    raise_max(s, g->first + c, vf_top(row_max));
}

// Turns the scores of column c into weights.
VEC_INLINE void weigh_column(struct columns *s, const struct group *g, uint32_t c)
{
    float *scores = s->scores + c * ATTEND_KEYS;
    struct attend_column *column = &s->column[g->first + c];
    vf shift = vf_set(-column->now.row_max), row_sum = vf_set(0);

    for (uint32_t i = column->from / VF * VF; i < column->to; i += VF) {
        vf w = vf_exp2_below(vf_add(vf_load(scores + i), shift));
        row_sum = vf_add(row_sum, w);
        store_weights(s, scores, i, w);
    }
    column->now.row_sum += vf_sum(row_sum);
}

// out[c] += weights * v over a part's keys and columns, and P vectors of dims from d.
VEC_INLINE void add_values(const struct columns *s, const struct attend_part a, const uint32_t format,
                           const int C, const int P)
{
    uint32_t value_dims = s->value_dims;
    float *out = s->out + a.column * (size_t)s->dims + a.d;
    vf sum[VEC_COLUMNS][4];

    UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < P; p++) sum[c][p] =
        vf_load(out + c * s->dims + p * VF);
    for (uint32_t i = a.from, end; i < a.to; i = end) {
        const unsigned char *v = s->v[i / PAGE_TOKENS], *ask = s->ask_by_v[i / PAGE_TOKENS];
        const float *w = s->scores + (size_t)a.c0 * ATTEND_KEYS + i;
        uint64_t at = i % PAGE_TOKENS * value_dims + a.d;
        end = (i / PAGE_TOKENS + 1) * PAGE_TOKENS;
        end = end < a.to ? end : a.to;
        for (const float *w_end = w + (end - i); w < w_end; w++, at += value_dims)
            UNROLL for (int p = 0; p < P; p++)
            {
                expect(ask, at + p * VF, format);
                vf x = P == 1 ? load_numbers_n(v, at, format, value_dims - a.d)
                              : load_numbers(v, at + p * VF, format);
                UNROLL for (int c = 0; c < C; c++) sum[c][p] =
                    vf_fma(vf_set(w[c * ATTEND_KEYS]), x, sum[c][p]);
            }
    }
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < P; p++)
        vf_store(out + c * s->dims + p * VF, sum[c][p]);
}

VEC_INLINE void add_part(struct columns *s, struct attend_part a, const int C)
{
    const int P = C * 4 <= VEC_SUMS ? 4 : 2;
    uint32_t value_dims = s->value_dims;

    if (a.from >= a.to)
        return;
    for (a.d = 0; a.d < value_dims;) {
        const bool whole = a.d + (uint32_t)P * VF <= value_dims;
#if VEC_BF16
        if (s->v_format == KV_BF16 && whole)
            add_values_bf16(s, a, C, P);
        else if (s->v_format == KV_BF16)
            add_values_bf16(s, a, C, 1);
        else
#endif
            if (s->v_format == KV_F32 && whole)
            add_values(s, a, KV_F32, C, P);
        else if (s->v_format == KV_F32)
            add_values(s, a, KV_F32, C, 1);
        else if (whole)
            add_values(s, a, KV_F16, C, P);
        else
            add_values(s, a, KV_F16, C, 1);
        a.d += (whole ? (uint32_t)P : 1) * VF;
    }
}

// The keys that all columns see together, in whole groups of V's format; before and after them, each column
// alone.
VEC_INLINE void add_block(struct columns *s, const struct group *g, const int C)
{
    const struct attend_column *columns = s->column + g->first;
    uint32_t from = 0, to = ATTEND_KEYS, align = page_group(s->v_format);

    for (int c = 0; c < C; c++) {
        from = columns[c].from > from ? columns[c].from : from;
        to = columns[c].to < to ? columns[c].to : to;
    }
    from = (from + align - 1) / align * align;
    to = to / align * align;
    to = to > from ? to : from;
    for (uint32_t c = 0; c < (uint32_t)C; c++)
        add_part(s,
                 (struct attend_part){ columns[c].from, from < columns[c].to ? from : columns[c].to, c,
                                       g->first + c, 0 },
                 1);
    add_part(s, (struct attend_part){ from, to, 0, g->first, 0 }, C);
    for (uint32_t c = 0; c < (uint32_t)C; c++)
        add_part(s,
                 (struct attend_part){ to > columns[c].from ? to : columns[c].from, columns[c].to, c,
                                       g->first + c, 0 },
                 1);
}

VEC_INLINE void score_block(struct columns *s, const struct group *g, struct attend_part a, const int C)
{
    const uint32_t step = VEC_PAGES * PAGE_TOKENS;

    for (uint32_t at = a.from / step * step; at < a.to; at += step)
#if VEC_BF16
        if (s->k_format == KV_BF16)
            score_pages_bf16(s, g, at, C);
        else
#endif
            if (s->k_format == KV_F32)
            score_pages(s, g, at, KV_F32, C);
        else
            score_pages(s, g, at, KV_F16, C);
}

// First key that a row at `position` sees.
VEC_INLINE uint32_t first_key(const struct attend_run *run, uint32_t position)
{
    uint32_t window = run->args->window;
    return window && position >= window ? position - window + 1 : 0;
}

static inline uint32_t within(uint32_t key, uint32_t base)
{
    return key <= base ? 0 : key - base < ATTEND_KEYS ? key - base : ATTEND_KEYS;
}

VEC_INLINE void attend_group(struct columns *s, const struct group *g, const int C)
{
    struct attend_column *columns = s->column + g->first;
    uint32_t from = ATTEND_KEYS, to = 0;

    for (int c = 0; c < C; c++) {
        columns[c].from = within(first_key(s->run, columns[c].position), s->base);
        columns[c].to = within(columns[c].position + 1, s->base);
        from = columns[c].from < from ? columns[c].from : from;
        to = columns[c].to > to ? columns[c].to : to;
    }
    if (from >= to)
        return;
    score_block(s, g, (struct attend_part){ .from = from, .to = to }, C);
    // All columns' maximums first: the weights of one need not wait for the reductions of another.
    for (uint32_t c = 0; c < (uint32_t)C; c++)
        if (columns[c].from < columns[c].to)
            find_top(s, g, c);
    for (uint32_t c = 0; c < (uint32_t)C; c++)
        if (columns[c].from < columns[c].to)
            weigh_column(s, g, c);
    add_block(s, g, C);
}

// The run's row of column `at` of all KV heads.
static inline uint32_t row_of(const struct columns *s, uint32_t at)
{
    return (s->first + at % s->n) / s->heads;
}

// A row's place in an array of rows, for column `at` of all KV heads.
VEC_INLINE float *column_at(const struct columns *s, float *rows, size_t stride, size_t head_stride,
                            uint32_t at)
{
    return rows + row_of(s, at) * stride +
           (at / s->n * s->heads + (s->first + at % s->n) % s->heads) * head_stride;
}

// Columns are dealt to groups evenly, as far as VEC_COLUMNS allows.
VEC_INLINE uint32_t columns_of_group(uint32_t n, uint32_t first)
{
    uint32_t left = n - first, n_groups = (left + VEC_COLUMNS - 1) / VEC_COLUMNS;
    return (left + n_groups - 1) / n_groups;
}

// The columns' q, scaled, by dimension: one pointer serves all columns of a group.
VEC_INLINE void gather_q(const struct columns *s)
{
    uint32_t head_dim = s->run->args->pages.head_dim;
    float *to = s->q, scale = s->run->args->scale * LOG2_E;
    const float *q[VEC_COLUMNS];

    for (uint32_t first = 0, n; first < s->n * s->run->n_kv; first += n, to += head_dim * VEC_COLUMNS) {
        n = columns_of_group(s->n, first % s->n);
        for (uint32_t c = 0; c < n; c++)
            q[c] = column_at(s, (float *)(uintptr_t)s->run->q, s->run->q_stride, head_dim, first + c);
#if VEC_BF16
        if (s->k_format == KV_BF16) {
            pair_q(q, n, head_dim, scale, to);
            continue;
        }
#endif
        for (uint32_t c = 0; c < n; c++)
            for (uint32_t d = 0; d < head_dim; d++)
                to[d * VEC_COLUMNS + c] = q[c][d] * scale;
    }
}

VEC_INLINE void expect_page(const unsigned char *page, uint32_t bytes)
{
    for (uint32_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(page + at, 0, 2);
}

// Tokens of a page of keys, a few dimensions at a time so that both sides stay in L1: lines of tokens become
// lines of dimensions. A unit is a number, of GROUP that lie together.
#define TURN_KEYS(unit, GROUP)                                                                      \
    for (uint32_t first = 0, n; first < s->value_dims; first += n) {                                \
        n = s->value_dims - first < 16 ? s->value_dims - first : 16;                                \
        for (uint32_t t = 0; t < PAGE_TOKENS; t++) {                                                \
            const unit *k = (const unit *)from + (size_t)first * PAGE_TOKENS + t * GROUP;           \
            unit *v = (unit *)to + ((size_t)t / GROUP * s->value_dims + first) * GROUP + t % GROUP; \
            for (uint32_t d = 0; d < n; d++)                                                        \
                v[d * GROUP] = k[d / GROUP * PAGE_TOKENS * GROUP + d % GROUP];                      \
        }                                                                                           \
    }

// A page of values from the keys whose first numbers they are.
VEC_INLINE void values_of_keys(const struct columns *s, const unsigned char *from, unsigned char *to)
{
    if (s->k_format == KV_F32)
        TURN_KEYS(float, 1)
    else if (page_group(s->k_format) == 1)
        TURN_KEYS(uint16_t, 1)
    else
        TURN_KEYS(uint16_t, 2)
}
#undef TURN_KEYS

// Finds the pages of the block and of the next block, converted where the format needs it. Keys behind the
// run's last position have no page: the last page replaces them, and their scores are not used.
VEC_INLINE void find_pages(struct columns *s)
{
    const struct attend_run *run = s->run;
    const struct page_shape *shape = &run->args->pages;
    uint32_t last = (run->position + run->n_rows - 1) / PAGE_TOKENS, first = s->base / PAGE_TOKENS;
    uint32_t k_bytes = page_head_bytes(shape->k_format, shape->head_dim),
             v_bytes = page_head_bytes(shape->v_format, shape->head_dim);
    uint32_t bytes = page_head_bytes(DOT_FORMAT, shape->head_dim),
             n = (last - first + VEC_PAGES) / VEC_PAGES * VEC_PAGES;

    n = n < BLOCK_PAGES ? n : BLOCK_PAGES;
    s->v = s->k + n;
    s->next_k = s->v + n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t here = first + i < last ? first + i : last,
                 then = first + i + BLOCK_PAGES < last ? first + i + BLOCK_PAGES : last;
        uint64_t place = page_place(shape, run->table[here], run->kv_head + s->kv);
        s->k[i] = (const unsigned char *)run->k_pages + place * k_bytes;
        s->v[i] = run->args->latent_dims ? NULL : (const unsigned char *)run->v_pages + place * v_bytes;
        uint64_t next = page_place(shape, run->table[then], run->kv_head + s->kv);
        s->next_k[i] = (const unsigned char *)run->k_pages + next * k_bytes;
        if (first + i > last) { // converted already
            s->k[i] = s->k[i - 1];
            s->v[i] = s->v[i - 1];
            continue;
        }
        if (s->k_format != shape->k_format) {
            convert_page(shape, shape->k_format, false, s->k[i], s->converted + i * bytes);
            expect_page(s->next_k[i], k_bytes);
            s->next_k[i] = s->k[i] = s->converted + i * bytes;
        }
        if (run->args->latent_dims) {
            unsigned char *values =
                s->converted + (BLOCK_PAGES + i) * (size_t)page_head_bytes(KV_F32, shape->head_dim);
            values_of_keys(s, s->k[i], values);
            s->v[i] = values;
        } else if (s->v_format != shape->v_format) {
            convert_page(shape, shape->v_format, true, s->v[i], s->converted + (BLOCK_PAGES + i) * bytes);
            expect_page((const unsigned char *)run->v_pages + next * v_bytes, v_bytes);
            s->v[i] = s->converted + (BLOCK_PAGES + i) * bytes;
        }
    }
}

// The block's keys for the columns of one KV head, whose first group is g.
VEC_INLINE void attend_head(struct columns *s, struct group *g)
{
    find_pages(s);
    const long n_pages = s->v - s->k, ahead = n_pages < ASK_AHEAD ? n_pages : ASK_AHEAD;
    s->ask_by_k = s->k + ahead;
    s->ask_by_v = s->v + ahead;
    for (uint32_t n, end = g->first + s->n; g->first < end; g->first += n, g->index++) {
        n = columns_of_group(end, g->first);
        switch (n) {
#define COLUMNS(C)             \
    case C:                    \
        attend_group(s, g, C); \
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
        s->ask_by_k = s->k;
        s->ask_by_v = s->v;
    }
}

VEC_INLINE void attend_block(struct columns *s)
{
    struct group g = { 0 };

    for (s->kv = 0; s->kv < s->run->n_kv; s->kv++)
        attend_head(s, &g);
}

// Adds a split's sums to those of the splits before it, all scaled to the higher maximum.
VEC_INLINE void merge(float *merged, struct attend_sums *before, const float *out,
                      const struct attend_sums *now, uint32_t n)
{
    float row_max = before->row_max > now->row_max ? before->row_max : now->row_max;

    if (now->row_max == -INFINITY) // nothing of it was seen
        return;
    float rescale = before->row_max == row_max     ? 1
                    : before->row_max == -INFINITY ? 0
                                                   : exp2f(before->row_max - row_max);
    float take = now->row_max == row_max ? 1 : exp2f(now->row_max - row_max);
    for (uint32_t d = 0; d < n; d += VF) {
        vf sum = vf_mul(vf_load_n(out + d, n - d), vf_set(take));
        vf_store_n(merged + d, vf_fma(vf_load_n(merged + d, n - d), vf_set(rescale), sum), n - d);
    }
    *before = (struct attend_sums){ row_max, before->row_sum * rescale + now->row_sum * take };
}

// out = sums / row_sum; sink: one score more for row_sum, or NULL.
VEC_INLINE void divide(float *out, const float *sums, const struct attend_sums *s, const float *sink,
                       uint32_t n)
{
    float row_sum = sink ? s->row_sum + exp2f(*sink * LOG2_E - s->row_max) : s->row_sum;

    for (uint32_t d = 0; d < n; d += VF)
        vf_store_n(out + d, vf_div(vf_load_n(sums + d, n - d), vf_set(row_sum)), n - d);
}

static const struct attend_sums nothing = { -INFINITY, 0 };

VEC_INLINE void start_sums(struct columns *s)
{
    uint32_t n = s->n * s->run->n_kv;

    for (uint32_t c = 0; c < n; c++)
        s->column[c].now = nothing;
    for (uint32_t d = 0; d < n * s->dims; d += VF)
        vf_store(s->out + d, vf_set(0));
}

#if VEC_BF16
#include "ops/vec/attend_stream.h"
#endif

SIMD static void VEC(attend_split)(struct columns *s, uint32_t split)
{
    const struct attend_run *run = s->run;
    uint32_t first = run->position + s->first / s->heads,
             last = run->position + (s->first + s->n - 1) / s->heads;
    uint32_t start = first_key(run, first) / ATTEND_KEYS * ATTEND_KEYS, begin = split * ATTEND_SPLIT;

    start_sums(s);
    for (s->base = start > begin ? start : begin; s->base <= last && s->base < begin + ATTEND_SPLIT;
         s->base += ATTEND_KEYS)
        attend_block(s);
}

// All splits, one after the other, merged.
SIMD static void VEC(attend_whole)(struct columns *s)
{
    const struct attend_run *run = s->run;
    uint32_t value_dims = s->value_dims;
    uint32_t first = run->position + s->first / s->heads,
             last = run->position + (s->first + s->n - 1) / s->heads;

    for (uint32_t c = 0; c < s->n * run->n_kv; c++)
        s->column[c].before = nothing;
    for (uint32_t d = 0; d < s->n * run->n_kv * s->dims; d += VF)
        vf_store(s->merged + d, vf_set(0));
    for (uint32_t split = first_key(run, first) / ATTEND_SPLIT; split <= last / ATTEND_SPLIT; split++) {
        VEC(attend_split)(s, split);
        for (uint32_t c = 0; c < s->n * run->n_kv; c++)
            merge(s->merged + c * s->dims, &s->column[c].before, s->out + c * s->dims, &s->column[c].now,
                  value_dims);
    }
    for (uint32_t c = 0; c < s->n * run->n_kv; c++)
        divide(column_at(s, run->out, run->out_stride, value_dims, c), s->merged + c * s->dims,
               &s->column[c].before,
               run->sinks ? column_at(s, (float *)(uintptr_t)run->sinks, 0, 1, c) : NULL, value_dims);
}

// One split, kept for attend_merge.
SIMD static void VEC(attend_part)(struct columns *s)
{
    const struct attend_run *run = s->run;
    uint32_t value_dims = s->value_dims;

#if VEC_BF16
    if (run->n_kv > 1)
        VEC(attend_stream)(s, run->split);
    else
#endif
        VEC(attend_split)(s, run->split);
    for (uint32_t c = 0; c < s->n * run->n_kv; c++) {
        float *to = column_at(s, run->partial, run->partial_stride, value_dims + ATTEND_SUMS_FLOATS, c);
        memcpy(to, s->out + c * s->dims, value_dims * sizeof(float));
        memcpy(to + value_dims, &s->column[c].now, sizeof(struct attend_sums));
    }
}

SIMD static void VEC(attend)(const struct attend_run *run)
{
    const struct page_shape *shape = &run->args->pages;
    struct columns s = { .run = run, .heads = run->args->n_heads / shape->n_kv_heads };
    uint32_t n = s.heads * run->n_rows, most = ATTEND_MAX_COLUMNS / run->n_kv;

    s.k_format = shape->k_format <= KV_F16 ? (enum kv_format)shape->k_format : (enum kv_format)DOT_FORMAT;
    s.v_format = run->args->latent_dims      ? s.k_format
                 : shape->v_format <= KV_F16 ? (enum kv_format)shape->v_format
                                             : (enum kv_format)DOT_FORMAT;
    s.k = s.pages;
    s.value_dims = run->args->latent_dims ? run->args->latent_dims : shape->head_dim;
    s.dims = (s.value_dims + VF - 1) / VF * VF;
    s.scores = run->local;
    s.out = s.scores + ATTEND_GROUP * ATTEND_KEYS;
    s.merged = s.out + ATTEND_MAX_COLUMNS * s.dims;
    s.q = s.merged + ATTEND_MAX_COLUMNS * s.dims;
    s.converted =
        (unsigned char *)(s.q + (ATTEND_MAX_COLUMNS + ATTEND_GROUP) * ((shape->head_dim + VF - 1) / VF * VF));
    for (s.first = 0; s.first < n; s.first += s.n) {
        s.n = n - s.first < most ? n - s.first : most;
        for (uint32_t c = 0; c < s.n * run->n_kv; c++)
            s.column[c].position = run->position + row_of(&s, c);
        gather_q(&s);
        if (run->partial)
            VEC(attend_part)(&s);
        else
            VEC(attend_whole)(&s);
    }
}

// Merges the splits [first, last] of the query heads of a group.
SIMD static void VEC(attend_merge)(const struct attend_merge *m)
{
    uint32_t each = m->head_dim + ATTEND_SUMS_FLOATS;

    for (uint32_t h = 0; h < m->n_heads; h++) {
        struct attend_sums before = nothing, now;
        float *out = m->out + h * m->head_dim;
        memset(out, 0, m->head_dim * sizeof(float));
        for (uint32_t split = m->first; split <= m->last; split++) {
            const float *part = m->partial + split * m->split_stride + h * each;
            memcpy(&now, part + m->head_dim, sizeof now);
            merge(out, &before, part, &now, m->head_dim);
        }
        divide(out, out, &before, m->sinks ? m->sinks + h : NULL, m->head_dim);
    }
}
