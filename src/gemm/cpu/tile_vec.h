// tile_vec.h - tiles of the product for vectors of 8 or 4 lanes, on the panels of panel.h. Included once by
// tile_avx2.c and tile_neon.c, after a vec_*.h.
//
// Registers are few: a sub-block is computed 16 rows of W at a time for up to 4 rows of X, and sums live in
// y; the stream from memory is still read once. Rows of W are counted in vectors: v is rows from v * VF on.
// Every output takes the same chain of fp32 operations as in tile_avx512.c.
#include "gemm/cpu/product.h"
#include "quant/mxfp4.h"

#define UNROLL _Pragma("GCC unroll 16")
// Keeps a loop over passes a loop: some compilers unroll it for some formats, which is slower.
#define ROLLED(v) __asm__("" : "+r"(v))
// Keeps loads in the loop over passes: gcc would broadcast all of X before it and store the copies.
#define LOADED_HERE(p) __asm__("" : "+r"(p))

#if defined(INGOT_FEW_TILES) // see tile_avx512.c
enum { TILE_ROWS = 2 };
#define UP_TO_ROWS UP_TO_2
#else
enum { TILE_ROWS = 4 };
#define UP_TO_ROWS UP_TO_4
#endif
// How bytes are multiplied: AVX2, AVX-VNNI, three ways of NEON.
enum dot { DOT_MADD, DOT_VNNI, DOT_PLAIN, DOT_SDOT, DOT_SMMLA };
enum { VECTORS = PANEL_ROWS / VF, PASS = 16 / VF, PREFETCH = 8192 };

typedef int32_t vi __attribute__((vector_size(4 * VF)));
typedef int16_t vi_16 __attribute__((vector_size(4 * VF)));
typedef uint8_t vi_8 __attribute__((vector_size(4 * VF)));
typedef uint8_t table __attribute__((vector_size(16)));
typedef uint16_t vi_half __attribute__((vector_size(2 * VF)));
typedef vi acc_t[PASS][TILE_ROWS];

// PASS vectors of rows by groups [first, last) of a sub-block, and the address of the first row's bytes of X.
struct tile_columns {
    const unsigned char *lines;
    const int8_t *x;
    size_t x_stride;
    int v, first, last;
    bool wide; // lines are those of panel_wide: bytes as group() gives them
};

// Defined by the including file. SIGNED_WEIGHTS: integers have their sign; else they are as stored.
// add_groups: acc += W * X.
VEC_INLINE void add_groups(acc_t acc, const struct tile_columns r, const enum quant Q, const int C,
                           const enum dot kind);
// acc + w * x over pairs of 16-bit integers; x is one pair.
VEC_INLINE vi add_pairs(vi acc, vi w, const int16_t *x);
VEC_INLINE vi shift_left(vi v, const int32_t *bits);
VEC_INLINE vi look_up(table levels, vi index); // by bytes
// factor * x, PANEL_SUB of them.
SIMD static void round_block(const float *x, float factor, int8_t *out);
SIMD static void quantise_super(const float *x, uint32_t n, struct product_super *out);

VEC_INLINE vi line(const unsigned char *p, int l, int v)
{
    vi bits;
    memcpy(&bits, p + l * PANEL_LINE + v * (int)sizeof bits, sizeof bits);
    return bits;
}

// bits << left, or >> when negative, then masked: moves a bit field of each byte to its place.
VEC_INLINE vi field(vi bits, const int left, const int mask)
{
    vi_16 moved = left > 0 ? (vi_16)bits << left : (vi_16)bits >> -left;
    return (vi)moved & mask * 0x01010101;
}

// Columns 4g..4g+3 of a sub-block, as unsigned bytes.
VEC_INLINE vi stored(const unsigned char *lines, const enum panel_planes planes, const int g, const int v)
{
    if (planes == PLANES_8)
        return line(lines, g, v);
    if (planes == PLANES_2)
        return field(line(lines, g / 4, v), -2 * (g % 4), 3);
    if (planes == PLANES_3)
        return field(line(lines, g / 4, v), -2 * (g % 4), 3) | field(line(lines, 2, v), 2 - g, 4);
    vi four = field(line(lines, g / 2, v), g % 2 ? -4 : 0, 15);
    if (planes == PLANES_5)
        return four | field(line(lines, 4, v), 4 - g, 16);
    if (planes == PLANES_6)
        return four | field(line(lines, 4 + g / 4, v), 4 - 2 * (g % 4), 48);
    return four;
}

// The same in the form that add_groups takes.
VEC_INLINE vi group(const unsigned char *lines, const enum quant Q, const int g, const int v)
{
    static const table iq4 = PANEL_IQ4_LEVELS, mxfp4 = PANEL_MXFP4_LEVELS;
    const enum panel_planes planes = panel_shapes[Q].planes;
    const uint32_t offset_bits = panel_shapes[Q].offset_bits;
    const uint8_t offset = (uint8_t)(offset_bits ? 1u << offset_bits : 0);
    vi q = stored(lines, planes, g, v);

    if (planes == PLANES_IQ4 || planes == PLANES_MXFP4)
        return look_up((planes == PLANES_IQ4 ? iq4 : mxfp4) + (uint8_t)(SIGNED_WEIGHTS ? 0 : offset), q);
    return SIGNED_WEIGHTS ? (vi)((vi_8)q - offset) : q;
}

VEC_INLINE vf to_float(vi v)
{
    return __builtin_convertvector(v, vf);
}

VEC_INLINE vf halves_to_float(const unsigned char *p, int v)
{
    return vf_load_half((const uint16_t *)(const void *)p + v * VF);
}

VEC_INLINE void prefetch(const unsigned char *w, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(w + PREFETCH + i);
}

VEC_INLINE void clear(float *sums, const int C)
{
    UNROLL for (int i = 0; i < C * VECTORS; i++) vf_store(sums + i * VF, vf_set(0));
}

struct tile_scale {
    vf d, m; // value = d * q + m
};

// Byte number `index` of the lanes of four lines of scales, in the low bits.
VEC_INLINE vi scale_byte(const unsigned char *lines, uint32_t index, int v)
{
    return line(lines, (int)(index / 4), v) >> (int)(index % 4 * 8);
}

VEC_INLINE struct tile_scale scale_with_min(const unsigned char *header, vi s, vi m, int v)
{
    return (struct tile_scale){ vf_mul(halves_to_float(header, v), to_float(s)),
                                vf_fma(-halves_to_float(header + 64, v), to_float(m), vf_set(0)) };
}

VEC_INLINE struct tile_scale scale_6bit(const unsigned char *header, uint32_t sub, int v)
{
    vi bits = scale_byte(header + 128, sub, v),
       top = line(header + 128, 2, v) >> (int)(sub % 4 * 8 + sub / 4 * 2);
    return scale_with_min(header, (bits & 15) | (top << 4 & 48), (bits >> 4 & 15) | (top & 48), v);
}

VEC_INLINE vf signed_byte(const unsigned char *lines, uint32_t index, int v)
{
    return to_float(line(lines, (int)(index / 4), v) << (int)(24 - index % 4 * 8) >> 24);
}

VEC_INLINE vf scale_signed(const unsigned char *header, uint32_t unit, int v)
{
    return vf_mul(halves_to_float(header, v), signed_byte(header + 64, unit, v));
}

// unit: the index in the block of the 32 columns, or 16, that have one scale.
VEC_INLINE struct tile_scale scale_of(const unsigned char *header, const enum panel_scales scales,
                                      uint32_t unit, int v)
{
    const vf zero = vf_set(0);

    if (scales == SCALES_6BIT)
        return scale_6bit(header, unit, v);
    if (scales == SCALES_BYTE32 || scales == SCALES_BYTE16)
        return (struct tile_scale){ scale_signed(header, unit, v), zero };
    if (scales == SCALES_FLOAT16) {
        vf d = vf_load((const float *)(const void *)header + v * VF);
        return (struct tile_scale){ vf_mul(d, signed_byte(header + 128, unit, v)), zero };
    }
    if (scales == SCALES_NIBBLES16) {
        vi bits = scale_byte(header + 128, unit, v);
        return scale_with_min(header, bits & 15, bits >> 4 & 15, v);
    }
    if (scales == SCALES_BF16) {
        vi_half d;
        memcpy(&d, header + v * (int)sizeof d, sizeof d);
        return (struct tile_scale){ (vf)(__builtin_convertvector(d, vi) << 16), zero };
    }
    return (struct tile_scale){ halves_to_float(header, v),
                                scales == SCALES_DM ? halves_to_float(header + 64, v) : zero };
}

// A block of columns, the same for all rows of a tile. wide: of a panel as `expand` lays it out.
struct tile_place {
    const struct product_tile *t;
    const unsigned char *header;
    uint32_t block, sub;
    bool wide;
    float (*sums)[PANEL_ROWS]; // [rows], for a block of 256
};

VEC_INLINE struct product_block block_of(const struct tile_place at, int c)
{
    return product_block(at.t->x + (size_t)c * at.t->x_stride, at.t->n_cols, at.block);
}

VEC_INLINE const struct product_super *super_of(const struct tile_place at, int c)
{
    return (const struct product_super *)(const void *)(at.t->x + (size_t)c * at.t->x_stride) + at.block;
}

// Accumulators start at -offset * sum of the activations, which makes unsigned weights signed at no cost.
VEC_INLINE vi start(int32_t minus_sum, const enum quant Q)
{
    const uint32_t bits = SIGNED_WEIGHTS ? 0 : panel_shapes[Q].offset_bits;
    return bits ? ((vi){ 0 } + minus_sum) << bits : (vi){ 0 };
}

VEC_INLINE void add_block(const struct tile_place at, const enum quant Q, const int C, const enum dot kind)
{
    const struct panel_shape s = panel_shapes[Q];
    const int8_t *q = block_of(at, 0).q;
    acc_t acc;

    for (int v = 0; v < VECTORS; v += PASS) {
        ROLLED(v);
        LOADED_HERE(q);
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < PASS; i++) acc[i][c] =
            start(*block_of(at, c).minus_sum, Q);
        add_groups(acc,
                   (struct tile_columns){ at.header + s.header_bytes, q, at.t->x_stride, v, 0, 8, false }, Q,
                   C, kind);
        UNROLL for (int i = 0; i < PASS; i++)
        {
            struct tile_scale w = scale_of(at.header, s.scales, 0, v + i);
            UNROLL for (int c = 0; c < C; c++)
            {
                struct product_block x = block_of(at, c);
                float *y = at.t->y + c * PANEL_ROWS + (v + i) * VF;
                vf sum = vf_fma(to_float(acc[i][c]), vf_mul(w.d, vf_set(*x.scale)), vf_load(y));
                vf_store(y, panel_has_mins(s.scales) ? vf_fma(w.m, vf_set(*x.sum), sum) : sum);
            }
        }
    }
}

VEC_INLINE void tile_blocks(const struct product_tile *t, const enum quant Q, const int C,
                            const enum dot kind)
{
    struct tile_place at = { .t = t, .header = t->w };

    for (; at.block < t->n_cols / PANEL_SUB; at.block++, at.header += panel_block_bytes(Q)) {
        prefetch(at.header, panel_block_bytes(Q));
        add_block(at, Q, C, kind);
    }
}

VEC_INLINE int32_t minus_sum(const struct product_super *x, const enum panel_scales scales, uint32_t unit)
{
    return panel_by_16(scales) ? x->minus_sum[unit] : x->minus_sum[2 * unit] + x->minus_sum[2 * unit + 1];
}

// Expanded panels have the integers as bytes, and scales and minimums' scales multiplied out.
VEC_INLINE struct panel_shape shape_of(const enum quant Q, const bool wide)
{
    return wide ? panel_wide(Q) : panel_shapes[Q];
}

VEC_INLINE vf unit_scale(const struct tile_place at, const enum quant Q, uint32_t unit, int v)
{
    if (at.wide)
        return vf_load((const float *)(const void *)(at.header + unit * PANEL_LINE) + v * VF);
    return scale_of(at.header, panel_shapes[Q].scales, unit, v).d;
}

// half: for formats with a scale for each 16 columns, the first or second 16 of a sub-block.
VEC_INLINE void add_unit(const struct tile_place at, const int half, const enum quant Q, const int C,
                         const enum dot kind)
{
    const struct panel_shape s = shape_of(Q, at.wide);
    const bool by16 = panel_by_16(s.scales);
    const uint32_t unit = by16 ? 2 * at.sub + (uint32_t)half : at.sub;
    const unsigned char *lines = at.header + s.header_bytes + at.sub * s.sub_bytes;
    const int8_t *x = super_of(at, 0)->q + at.sub * PANEL_SUB;
    acc_t acc;

    for (int v = 0; v < VECTORS; v += PASS) {
        ROLLED(v);
        LOADED_HERE(x);
        struct tile_columns r = { lines, x, at.t->x_stride, v, 4 * half, by16 ? 4 * half + 4 : 8, at.wide };
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < PASS; i++) acc[i][c] =
            start(minus_sum(super_of(at, c), s.scales, unit), Q);
        add_groups(acc, r, Q, C, kind);
        UNROLL for (int i = 0; i < PASS; i++)
        {
            vf d = unit_scale(at, Q, unit, v + i);
            UNROLL for (int c = 0; c < C; c++)
            {
                float *sum = at.sums[c] + (v + i) * VF;
                vf value = to_float(shift_left(acc[i][c], &super_of(at, c)->left[at.sub]));
                vf_store(sum, vf_fma(value, d, vf_load(sum)));
            }
        }
    }
}

// Minimums of units 4i and 4i + 2 (pair 2i), or 4i + 1 and 4i + 3 (pair 2i + 1), as 16-bit integers.
VEC_INLINE vi min_pair(const unsigned char *header, const enum panel_scales scales, const int pair, int v)
{
    const int odd = pair % 2 * 8;
    vi_16 low = (vi_16)line(header + 128, pair / 2, v) >> (odd + 4) & 15;

    if (scales == SCALES_NIBBLES16)
        return (vi)low;
    return (vi)(low | ((vi_16)line(header + 128, 2, v) >> (odd + pair / 2 * 2) & 48));
}

VEC_INLINE vf min_scale(const unsigned char *header, int v)
{
    return vf_mul(halves_to_float(header + 64, v), vf_set(1 << SUPER_SUM_SHIFT));
}

VEC_INLINE void subtract_mins(const struct tile_place at, const enum panel_scales scales, const int C, int v)
{
    const int n_units = panel_by_16(scales) ? 16 : 8;
    vi acc[TILE_ROWS];

    UNROLL for (int c = 0; c < C; c++) acc[c] = (vi){ 0 };
    UNROLL for (int p = 0; p < n_units / 2; p++)
    {
        vi m = at.wide ? line(at.header, n_units + p, v) : min_pair(at.header, scales, p, v);
        UNROLL for (int c = 0; c < C; c++)
        {
            const struct product_super *x = super_of(at, c);
            acc[c] = add_pairs(acc[c], m, n_units == 16 ? x->sums_16 + 2 * p : x->sums_32 + 2 * p);
        }
    }
    vf d = at.wide ? (vf)line(at.header, n_units + n_units / 2, v) : min_scale(at.header, v);
    UNROLL for (int c = 0; c < C; c++)
    {
        float *sum = at.sums[c] + v * VF;
        vf_store(sum, vf_fma(-d, to_float(acc[c]), vf_load(sum)));
    }
}

// Blocks of 256 columns, as in tile_avx512.c; their sums are in memory as well.
VEC_INLINE void tile_supers(const struct product_tile *t, const enum quant Q, const int C,
                            const enum dot kind, const bool wide)
{
    const struct panel_shape s = shape_of(Q, wide);
    _Alignas(64) float sums[TILE_ROWS][PANEL_ROWS];
    struct tile_place at = { .t = t, .header = t->w, .sums = sums, .wide = wide };

    for (; at.block < t->n_cols / PANEL_SUPER;
         at.block++, at.header += s.header_bytes + SUPER_SUBS * s.sub_bytes) {
        clear(sums[0], C);
        if (!wide)
            prefetch(at.header, s.header_bytes);
        for (at.sub = 0; at.sub < SUPER_SUBS; at.sub++) {
            if (!wide)
                prefetch(at.header + s.header_bytes + at.sub * s.sub_bytes, s.sub_bytes);
            add_unit(at, 0, Q, C, kind);
            if (panel_by_16(s.scales))
                add_unit(at, 1, Q, C, kind);
        }
        for (int v = 0; v < VECTORS; v++) {
            if (panel_has_mins(s.scales))
                subtract_mins(at, s.scales, C, v);
            UNROLL for (int c = 0; c < C; c++)
            {
                float *y = t->y + c * PANEL_ROWS + v * VF;
                vf_store(y, vf_fma(vf_load(sums[c] + v * VF), vf_set(super_of(at, c)->scale), vf_load(y)));
            }
        }
    }
}

VEC_INLINE void tile_int(const struct product_tile *t, const enum quant Q, const int C, const enum dot kind)
{
    clear(t->y, C);
    if (panel_shapes[Q].columns == PANEL_SUPER)
        tile_supers(t, Q, C, kind, false);
    else
        tile_blocks(t, Q, C, kind);
}

// Exact products: 32 columns of the panel as fp32 in L1, then multiplications and additions by column.
typedef float columns_t[PANEL_SUB][PANEL_ROWS];

// Column i of a group's four.
VEC_INLINE vi column(vi four, const int i, const enum quant Q)
{
    const uint32_t offset_bits = panel_shapes[Q].offset_bits;

    if (SIGNED_WEIGHTS)
        return four << (24 - 8 * i) >> 24;
    return (four >> 8 * i & 255) - (offset_bits ? 1 << offset_bits : 0);
}

// d * q has few bits and is exact: fused or not, d * q + m is the value that the format defines.
VEC_INLINE void decode_sub(columns_t out, const unsigned char *header, uint32_t sub, const enum quant Q)
{
    const struct panel_shape s = panel_shapes[Q];
    const unsigned char *lines = header + s.header_bytes + sub * s.sub_bytes;

    for (int v = 0; v < VECTORS; v++)
        UNROLL for (int g = 0; g < 8; g++)
        {
            struct tile_scale w =
                scale_of(header, s.scales, panel_by_16(s.scales) ? 2 * sub + (uint32_t)g / 4 : sub, v);
            vi four = group(lines, Q, g, v);
            UNROLL for (int i = 0; i < 4; i++)
                vf_store(&out[4 * g + i][v * VF], vf_fma(w.d, to_float(column(four, i, Q)), w.m));
        }
}

VEC_INLINE vf column_numbers(const unsigned char *w, uint32_t k, int v, const enum quant Q)
{
    if (Q == QUANT_F32)
        return (vf)line(w, (int)k, v);
    if (Q == QUANT_F16)
        return halves_to_float(w + k * 64, v);
    vi pair = line(w, (int)(k / 2), v);
    return (vf)(k % 2 ? pair & (int)0xffff0000 : pair << 16);
}

VEC_INLINE void decode_float(columns_t out, const unsigned char *w, uint32_t n, const enum quant Q)
{
    for (uint32_t k = 0; k < n; k++)
        UNROLL for (int v = 0; v < VECTORS; v++) vf_store(&out[k][v * VF], column_numbers(w, k, v, Q));
}

// for the first row
VEC_INLINE void multiply_columns(const struct product_tile *t, columns_t w, const float *x, uint32_t n,
                                 const int C)
{
    for (int v = 0; v < VECTORS; v += PASS) {
        vf sum[PASS][TILE_ROWS];
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < PASS; i++) sum[i][c] =
            vf_load(t->y + c * PANEL_ROWS + (v + i) * VF);
        for (uint32_t k = 0; k < n; k++)
            UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < PASS; i++) sum[i][c] = vf_fma(
                vf_load(&w[k][(v + i) * VF]), vf_set(x[(size_t)c * t->x_stride / sizeof *x + k]), sum[i][c]);
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int i = 0; i < PASS; i++)
            vf_store(t->y + c * PANEL_ROWS + (v + i) * VF, sum[i][c]);
    }
}

VEC_INLINE void tile_exact(const struct product_tile *t, const enum quant Q, const int C)
{
    const struct panel_shape s = panel_shapes[Q];
    const uint32_t n_subs = s.columns > PANEL_SUB ? s.columns / PANEL_SUB : 1;
    _Alignas(64) columns_t w;

    clear(t->y, C);
    for (uint32_t first = 0; first < t->n_cols; first += PANEL_SUB) {
        uint32_t n = t->n_cols - first < PANEL_SUB ? t->n_cols - first : PANEL_SUB;
        const unsigned char *at = t->w + (uint64_t)(first / s.columns) * panel_block_bytes(Q);
        if (s.planes == PLANES_FLOAT)
            decode_float(w, at, n, Q);
        else
            decode_sub(w, at, first / PANEL_SUB % n_subs, Q);
        multiply_columns(t, w, (const float *)(const void *)t->x + first, n, C);
    }
}

// Largest magnitude by its bits, so that a NaN wins and the whole block becomes NaN.
SIMD static float block_top(const float *x)
{
    int32_t most = 0;
    float top;

    for (int i = 0; i < PANEL_SUB; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= INT32_MAX;
        most = bits > most ? bits : most;
    }
    memcpy(&top, &most, sizeof top);
    return top;
}

static const struct int8_kernels int8_kernels = { block_top, round_block };

static void quantise(const float *x, uint32_t n, void *out)
{
    int8_blocks(&int8_kernels, x, n, out);
}

SIMD static void store(const struct product_store *s)
{
    for (uint32_t r = 0; r < s->n_rows; r++) {
        const float *y = s->y + r * PANEL_ROWS, *add = s->add ? s->add + r * s->add_stride : NULL;
        float *out = s->out + r * s->stride;
        for (uint32_t i = 0; i < s->n_cols; i += VF) {
            uint32_t n = s->n_cols - i;
            vf v = vf_load(y + i);
            v = s->bias ? vf_add(v, vf_load_n(s->bias + i, n)) : v;
            vf_store_n(out + i, add ? vf_add(v, vf_load_n(add + i, n)) : v, n);
        }
    }
}

// A function for each kind, format and number of rows, then their tables. kind: one of `enum dot`, or EXACT.
#define TILE_INT(kind, Q, C)                                        \
    SIMD static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                               \
        tile_int(t, QUANT_##Q, C, DOT_##kind);                      \
    }
#define TILE_EXACT(kind, Q, C)                                      \
    SIMD static void kind##_##Q##_##C(const struct product_tile *t) \
    {                                                               \
        tile_exact(t, QUANT_##Q, C);                                \
    }
#define UP_TO_2(M, kind, Q) M(kind, Q, 1) M(kind, Q, 2)
#define UP_TO_4(M, kind, Q) UP_TO_2(M, kind, Q) M(kind, Q, 3) M(kind, Q, 4)
#define NAME(kind, Q, C)    , kind##_##Q##_##C
#define TILES(kind, Q, M)  \
    UP_TO_ROWS(M, kind, Q) \
    static product_tile_fn *const kind##_##Q[] = { NULL UP_TO_ROWS(NAME, kind, Q) };
#define INT_TILES(Q, name, kind)   TILES(kind, Q, TILE_INT)
#define EXACT_TILES(Q, name, kind) TILES(kind, Q, TILE_EXACT)
#define ENTRY(Q, name, kind)       [QUANT_##Q] = kind##_##Q,
#define PRODUCT_KERNELS(kind, from_file)                                                           \
    {                                                                                              \
        .integer = { QUANT_BLOCK_FORMATS(ENTRY, kind) }, .exact = { QUANT_FORMATS(ENTRY, EXACT) }, \
        .integer_rows = TILE_ROWS, .exact_rows = TILE_ROWS, .quantise = quantise,                  \
        .quantise_super = quantise_super, .store = store, .pack = VEC(pack), from_file             \
    }
