// tile_wide_avx2.h - tiles on expanded panels for AVX2 without VNNI, included by tile_avx2.c: what prompts
// take.
//
// 16 rows of W and up to 4 of X are computed at a time, as in tile_vec.h, whose chain of fp32 operations
// every output keeps. A core takes up to six instructions a cycle, so that each that is no multiplication or
// addition shows: addresses are a pointer for each row, and what depends on X alone is worked out once for
// 256 columns (wide_x_avx2.h). All rows of a tile use a block of W while it lies in the first cache.
#include "gemm/cpu/wide_x_avx2.h"

enum { WIDE_ROWS = 16 };

// 16 rows of W, the first of up to four rows of X, and their sums.
struct wide_part {
    const unsigned char *w;
    const int8_t *x;
    size_t stride;       // of X
    float *y;            // [rows][32]
    const float *before; // the sums of earlier columns: y, or zeros where there are none
};
static const float wide_zeros[TILE_ROWS * PANEL_ROWS];

// The next 16 rows of W.
VEC_INLINE void next_pass(struct wide_part *p)
{
    p->w += PASS * sizeof(vf);
    p->y += PASS * VF;
    p->before += PASS * VF;
}

// The next four rows of X.
VEC_INLINE void next_rows(struct wide_part *p)
{
    const int n = TILE_ROWS * PANEL_ROWS;

    p->x += TILE_ROWS * p->stride;
    p->before += p->before == p->y ? n : 0;
    p->y += n;
}

// A pass over 16 of a panel's rows: addresses of X, and sums of 16 bits.
struct wide_pass {
    const int8_t *x[TILE_ROWS];
    __m256i sum[PASS][TILE_ROWS];
};

// Addresses that the compiler does not work out again. rows: where the sums of a unit begin; NULL: at 0.
VEC_INLINE void begin_pass(struct wide_pass *at, struct wide_part *p, const struct wide_x *rows,
                           const int unit, const int C)
{
    LOADED_HERE(p->y);
    UNROLL for (int c = 0; c < C; c++)
    {
        at->x[c] = c ? at->x[c - 1] + p->stride : p->x;
        LOADED_HERE(at->x[c]);
        at->sum[0][c] = at->sum[1][c] = rows ? broadcast(rows[c].begin[unit]) : _mm256_setzero_si256();
    }
}

// In memory until it is used: the compiler would keep it in a general register, and shift it there.
VEC_INLINE __m256i broadcast_here(const void *p)
{
    __m256i v = broadcast(p);
    __asm__("" : "+x"(v));
    return v;
}

// sum += W * X over n_groups groups of four columns.
VEC_INLINE void add_products(struct wide_pass *at, const unsigned char *lines, const int n_groups,
                             const int C)
{
    UNROLL for (int g = 0; g < n_groups; g++)
    {
        __m256i w0 = (__m256i)line(lines, g, 0), w1 = (__m256i)line(lines, g, 1);
        UNROLL for (int c = 0; c < C; c++)
        {
            __m256i four = broadcast(at->x[c] + 4 * g);
            at->sum[0][c] = dot_16(at->sum[0][c], w0, four);
            at->sum[1][c] = dot_16(at->sum[1][c], w1, four);
        }
    }
}

// A block of 32 columns of Q4_0. to_scale, to_minus_sum: bytes from its integers of a row of X.
VEC_INLINE void wide_block(struct wide_part p, size_t to_scale, size_t to_minus_sum, const int C)
{
    const __m256i ones = _mm256_set1_epi16(1);

    for (int v = 0; v < VECTORS; v += PASS, next_pass(&p)) {
        struct wide_pass at;
        vf d[PASS]; // read late: before, all registers are taken
        ROLLED(v);
        begin_pass(&at, &p, NULL, 0, C);
        add_products(&at, p.w + PANEL_LINE, 8, C);
        UNROLL for (int i = 0; i < PASS; i++) d[i] = (vf)line(p.w, 0, i);
        UNROLL for (int c = 0; c < C; c++)
        {
            vi begin = (vi)broadcast_here(at.x[c] + to_minus_sum) << panel_shapes[QUANT_Q4_0].offset_bits;
            vf scale = (vf)broadcast(at.x[c] + to_scale);
            UNROLL for (int i = 0; i < PASS; i++)
            {
                const int to = c * PANEL_ROWS + i * VF;
                vi whole = (vi)_mm256_madd_epi16(at.sum[i][c], ones) + begin;
                vf_store(p.y + to, vf_fma(to_float(whole), vf_mul(d[i], scale), vf_load(p.before + to)));
            }
        }
    }
}

// LAST: rows of X beyond whole fours.
VEC_INLINE void wide_blocks(const struct product_tile *t, const int LAST)
{
    const size_t stride = t->x_stride;
    const uint32_t n_rows = t->n_rows, n_cols = t->n_cols;
    const unsigned char *w = t->w;

    for (uint32_t at = 0; at < n_cols; at += PANEL_SUB, w += 9 * PANEL_LINE) {
        struct wide_part p = { w, (const int8_t *)t->x + at, stride, t->y, at ? t->y : wide_zeros };
        size_t to_scale = n_cols - at + at / PANEL_SUB * sizeof(float),
               to_minus_sum = to_scale + n_cols / PANEL_SUB * sizeof(float);
        for (uint32_t r = 0; r + TILE_ROWS <= n_rows; r += TILE_ROWS) {
            wide_block(p, to_scale, to_minus_sum, TILE_ROWS);
            next_rows(&p);
        }
        if (LAST)
            wide_block(p, to_scale, to_minus_sum, LAST);
    }
}

// A unit: its sums go to p.y. p.w: its scales; lines: from there to its lines.
VEC_INLINE void wide_unit(struct wide_part p, size_t lines, const struct wide_x *rows, const int unit,
                          const enum quant Q, const int C)
{
    const bool by16 = panel_by_16(panel_shapes[Q].scales);
    const int sub = by16 ? unit / 2 : unit;

    for (int v = 0; v < VECTORS; v += PASS, next_pass(&p)) {
        struct wide_pass at;
        vf d[PASS]; // read late: before, all registers are taken
        ROLLED(v);
        begin_pass(&at, &p, Q == QUANT_Q4_K ? NULL : rows, unit, C);
        add_products(&at, p.w + lines, by16 ? 4 : 8, C);
        UNROLL for (int i = 0; i < PASS; i++) d[i] = (vf)line(p.w, 0, i);
        UNROLL for (int c = 0; c < C; c++)
        {
            __m256i factors = broadcast(rows[c].factors[sub]);
            UNROLL for (int i = 0; i < PASS; i++)
            {
                const int to = c * PANEL_ROWS + i * VF;
                vi whole = (vi)_mm256_madd_epi16(at.sum[i][c], factors);
                if (Q == QUANT_Q5_K)
                    whole += (vi)broadcast(&rows[c].end[sub]);
                // a pointer more slows Q6_K's short passes
                const float *before = by16 ? p.y : p.before;
                vf_store(p.y + to, vf_fma(to_float(whole), d[i], vf_load(before + to)));
            }
        }
    }
}

// Takes the minimums from the sums of a block of 256, and adds them to y, times the scale of X.
VEC_INLINE void wide_end(struct wide_part p, const float *sums,
                         const struct product_super *const x[TILE_ROWS], const bool mins, const int C)
{
    for (int v = 0; v < VECTORS; v += PASS, next_pass(&p), sums += PASS * VF) {
        acc_t acc;
        ROLLED(v);
        LOADED_HERE(p.y);
        UNROLL for (int i = 0; i < PASS; i++) UNROLL for (int c = 0; c < C; c++) acc[i][c] = (vi){ 0 };
        UNROLL for (int pair = 0; pair < SUPER_SUBS / 2 && mins; pair++) UNROLL for (int c = 0; c < C; c++)
        {
            UNROLL for (int i = 0; i < PASS; i++) acc[i][c] =
                add_pairs(acc[i][c], line(p.w, SUPER_SUBS + pair, i), x[c]->sums_32 + 2 * pair);
            __asm__("" : "+x"(acc[0][c]), "+x"(acc[1][c])); // keeps all in registers, as in dot
        }
        UNROLL for (int c = 0; c < C; c++)
        {
            const vf scale = vf_set(x[c]->scale);
            UNROLL for (int i = 0; i < PASS; i++)
            {
                const int to = c * PANEL_ROWS + i * VF;
                vf sum = vf_load(sums + to);
                if (mins)
                    sum = vf_fma(-(vf)line(p.w, SUPER_SUBS * 3 / 2, i), to_float(acc[i][c]), sum);
                vf_store(p.y + to, vf_fma(sum, scale, vf_load(p.before + to)));
            }
        }
    }
}

VEC_INLINE void wide_super(struct wide_part p, const enum quant Q, const int C)
{
    const struct panel_shape s = panel_wide(Q);
    const bool by16 = panel_by_16(s.scales);
    _Alignas(64) float sums[TILE_ROWS][PANEL_ROWS];
    const struct product_super *x[TILE_ROWS];
    struct wide_x rows[TILE_ROWS];
    struct wide_part unit = { p.w, p.x, p.stride, sums[0], wide_zeros };

    if (by16)
        clear(sums[0], C);
    UNROLL for (int c = 0; c < C; c++)
    {
        x[c] = (const struct product_super *)(const void *)(p.x + (size_t)c * p.stride);
        wide_x_of(rows + c, x[c], Q);
    }
    for (int i = 0; i < (by16 ? 16 : 8); i++) {
        wide_unit(unit, s.header_bytes + (size_t)i * (by16 ? 3 : 7) * PANEL_LINE, rows, i, Q, C);
        unit.w += PANEL_LINE;
        unit.x += by16 ? 16 : 32;
        unit.before = sums[0];
    }
    wide_end(p, sums[0], x, panel_has_mins(s.scales), C);
}

VEC_INLINE void wide_supers(const struct product_tile *t, const enum quant Q, const int LAST)
{
    const struct panel_shape s = panel_wide(Q);
    const unsigned char *w = t->w, *x = t->x;

    for (uint32_t n = t->n_cols / PANEL_SUPER; n; n--) {
        struct wide_part p = { w, (const int8_t *)x, t->x_stride, t->y, w == t->w ? wide_zeros : t->y };
        for (uint32_t r = 0; r + TILE_ROWS <= t->n_rows; r += TILE_ROWS) {
            wide_super(p, Q, TILE_ROWS);
            next_rows(&p);
        }
        if (LAST)
            wide_super(p, Q, LAST);
        w += s.header_bytes + SUPER_SUBS * s.sub_bytes;
        x += sizeof(struct product_super);
    }
}

VEC_INLINE void tile_wide(const struct product_tile *t, const enum quant Q, const int LAST)
{
    if (Q == QUANT_Q4_0)
        wide_blocks(t, LAST % TILE_ROWS);
    else
        wide_supers(t, Q, LAST % TILE_ROWS);
}
