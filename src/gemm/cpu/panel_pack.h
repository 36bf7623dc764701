// panel_pack.h - fills panels from file blocks; see panel.h. Compiled by pack_*.c for each kind of processor.
//
// A block of 32 rows is first transposed into lines of words: line i holds word i of every row's block. All
// further work is arithmetic on whole lines, 32 lanes wide, which compilers vectorise: bit fields move by
// shifts and masks into the panel's planes of bits and lines of scales. This is fast enough that weights used
// straight from the file (--no-repack) are packed into the cache for every product.
#include "gemm/cpu/product.h"
#include "quant/mxfp4.h"

typedef uint32_t word_line[PANEL_ROWS];
#define LANES for (uint32_t r = 0; r < PANEL_ROWS; r++)

struct pack_rows {
    const unsigned char *at[PANEL_ROWS]; // the rows' current block
    uint32_t block_bytes;
    uint64_t ahead; // bytes to the same row of the next panel, which is prefetched
};

static const uint32_t nibbles = 0x0f0f0f0fu, pairs = 0x03030303u, bits = 0x01010101u;

// Transposes four words of four rows, QUADS times in one vector: load_quads takes rows r, r + 4, ... Lines
// are written as wide as they will be read: a wider read would wait for narrow writes to reach the cache.
INLINE void transpose(const struct pack_rows *rows, uint32_t offset, uint32_t n_words, word_line *out)
{
    for (uint32_t w = 0; w < n_words; w += 4, offset += 16)
        for (uint32_t r = 0; r < PANEL_ROWS; r += 4 * QUADS) {
            quads a = load_quads(rows->at + r, offset), b = load_quads(rows->at + r + 1, offset);
            quads c = load_quads(rows->at + r + 2, offset), d = load_quads(rows->at + r + 3, offset);
            quads ab = low_words(a, b), cd = low_words(c, d), ef = high_words(a, b), gh = high_words(c, d);
            store_quads(&out[w][r], low_pairs(ab, cd));
            store_quads(&out[w + 1][r], high_pairs(ab, cd));
            store_quads(&out[w + 2][r], low_pairs(ef, gh));
            store_quads(&out[w + 3][r], high_pairs(ef, gh));
        }
}

INLINE void pack_halves(const struct pack_rows *rows, uint32_t offset, unsigned char *to)
{
    LANES memcpy(to + 2 * r, rows->at[r] + offset, 2);
}

enum { MAX_WORDS = 64 };

// Spreads 4 bits over 4 bytes.
INLINE uint32_t spread_bits(uint32_t four)
{
    return (four & 15) * 0x00204081u & bits;
}

INLINE uint32_t word_of(const unsigned char *p)
{
    uint32_t w;
    memcpy(&w, p, 4);
    return w;
}

// The fifth bits of 32 integers in one word, at any address.
INLINE bool has_word_of_bits(const enum quant Q)
{
    return panel_shapes[Q].planes == PLANES_5 && panel_shapes[Q].columns == PANEL_SUB;
}

// The 8 groups of sub-block j: 4 columns per word, as unsigned bytes, into q. words: n_q lines, then n_high.
INLINE void take_integers(const word_line *words, const enum quant Q, uint32_t j, word_line *q)
{
    const enum panel_planes planes = panel_shapes[Q].planes;
    const word_line *high = words + panel_shapes[Q].fields.n_q;

    if (planes == PLANES_8) {
        for (uint32_t g = 0; g < 8; g++)
            LANES q[g][r] = words[j * 8 + g][r] ^ 0x80808080u;
    } else if (Q == QUANT_Q4_K || Q == QUANT_Q5_K) { // 32 bytes hold two sub-blocks
        for (uint32_t g = 0; g < 8; g++)
            LANES q[g][r] = words[j / 2 * 8 + g][r] >> j % 2 * 4 & nibbles;
    } else if (Q == QUANT_Q6_K) { // 64 bytes hold four, 0 and 2, 1 and 3
        for (uint32_t g = 0; g < 8; g++)
            LANES q[g][r] = (words[j / 4 * 16 + j % 2 * 8 + g][r] >> j % 4 / 2 * 4 & nibbles) |
                            (high[j / 4 * 8 + g][r] >> j % 4 * 2 & pairs) << 4;
    } else if (planes == PLANES_2 || planes == PLANES_3) { // 32 bytes hold four
        for (uint32_t g = 0; g < 8; g++)
            LANES q[g][r] = words[j / 4 * 8 + g][r] >> j % 4 * 2 & pairs;
    } else { // 16 bytes: columns 0 to 15 and 16 to 31
        for (uint32_t g = 0; g < 8; g++)
            LANES q[g][r] = words[j * 4 + g % 4][r] >> g / 4 * 4 & nibbles;
    }
    for (uint32_t g = 0; g < 8 && (Q == QUANT_Q5_K || Q == QUANT_Q3_K); g++)
        LANES q[g][r] |= (high[g][r] >> j & bits) << (Q == QUANT_Q5_K ? 4 : 2);
    for (uint32_t g = 0; g < 8 && has_word_of_bits(Q); g++)
        LANES q[g][r] |= spread_bits(high[0][r] >> 4 * g) << 4;
}

INLINE void take_words(const struct pack_rows *rows, const enum quant Q, word_line *words)
{
    const struct panel_fields f = panel_shapes[Q].fields;

    transpose(rows, f.q, f.n_q, words);
    transpose(rows, f.high, f.n_high, words + f.n_q);
    if (has_word_of_bits(Q))
        LANES words[f.n_q][r] = word_of(rows->at[r] + f.high);
}

INLINE void put_two_bits(word_line *lines, word_line *q, uint32_t shift)
{
    for (uint32_t h = 0; h < 2; h++)
        LANES
        {
            uint32_t word = 0;
            for (uint32_t g = 0; g < 4; g++)
                word |= (q[4 * h + g][r] >> shift & pairs) << 2 * g;
            lines[h][r] = word;
        }
}

INLINE void put_one_bit(word_line *line, word_line *q, uint32_t shift)
{
    LANES
    {
        uint32_t word = 0;
        for (uint32_t g = 0; g < 8; g++)
            word |= (q[g][r] >> shift & bits) << g;
        line[0][r] = word;
    }
}

INLINE void put_planes(const enum panel_planes planes, word_line *q, word_line *lines)
{
    if (planes == PLANES_8)
        memcpy(lines, q, 8 * sizeof *q);
    else if (planes == PLANES_2 || planes == PLANES_3)
        put_two_bits(lines, q, 0);
    else
        for (uint32_t p = 0; p < 4; p++)
            LANES lines[p][r] = (q[2 * p][r] & nibbles) | (q[2 * p + 1][r] & nibbles) << 4;
    if (planes == PLANES_5)
        put_one_bit(lines + 4, q, 4);
    if (planes == PLANES_6)
        put_two_bits(lines + 4, q, 4);
    if (planes == PLANES_3)
        put_one_bit(lines + 2, q, 2);
}

// Scale g of Q3_K: its low 4 bits are nibble g of the first two words, its upper bits are in the third; 32 is
// subtracted.
INLINE void put_q3_k_scales(word_line *t, word_line *lines)
{
    for (uint32_t l = 0; l < 4; l++)
        LANES
        {
            uint32_t low = t[l % 2][r] >> l / 2 * 4 & nibbles, high = t[2][r] >> 2 * l & pairs;
            lines[l][r] = ((low | high << 4 | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
        }
}

// IQ4_XS: nibbles in the second word, upper bits in the upper half of the first.
INLINE void put_iq4_xs_scales(word_line *t, word_line *lines)
{
    for (uint32_t l = 0; l < 2; l++)
        LANES
        {
            uint32_t word = 0;
            for (uint32_t i = 0; i < 4; i++)
                word |= ((t[1][r] >> (16 * l + 4 * i) & 15) | (t[0][r] >> (16 + 8 * l + 2 * i) & 3) << 4)
                        << 8 * i;
            lines[l][r] = ((word | 0x80808080u) - 0x20202020u) ^ 0x80808080u;
        }
}

INLINE void put_scales(const struct pack_rows *rows, const enum quant Q, unsigned char *header)
{
    const struct panel_fields f = panel_shapes[Q].fields;
    const enum panel_scales scales = panel_shapes[Q].scales;
    const bool mins = scales == SCALES_DM || scales == SCALES_6BIT || scales == SCALES_NIBBLES16;
    word_line *lines = (word_line *)(void *)(header + (mins ? 128 : 64)), t[4];

    if (scales == SCALES_BF16) {
        LANES
        {
            uint16_t d = quant_float_to_bf16(mxfp4_scale(rows->at[r][0])); // a power of two: exact
            memcpy(header + 2 * r, &d, 2);
        }
        return;
    }
    if (scales == SCALES_FLOAT16) {
        LANES memcpy(header + 4 * r, rows->at[r] + f.d, 4);
        transpose(rows, f.scales, 4, (word_line *)(void *)(header + 128));
        return;
    }
    pack_halves(rows, f.d, header);
    if (mins)
        pack_halves(rows, f.m, header + 64);
    if (Q == QUANT_Q6_K || scales == SCALES_NIBBLES16)
        transpose(rows, f.scales, 4, lines);
    if (scales == SCALES_6BIT || scales == SCALES_BYTE32)
        transpose(rows, f.scales, 4, t);
    for (uint32_t l = 0; l < 3 && Q == QUANT_Q3_K; l++) // a fourth word would lie behind the block
        LANES t[l][r] = word_of(rows->at[r] + f.scales + 4 * l);
    if (Q == QUANT_Q3_K)
        put_q3_k_scales(t, lines);
    if (scales == SCALES_BYTE32)
        put_iq4_xs_scales(t, lines);
    for (uint32_t l = 0; l < 3 && scales == SCALES_6BIT; l++)
        LANES lines[l][r] = l == 0   ? (t[0][r] & nibbles) | (t[1][r] & nibbles) << 4
                            : l == 1 ? t[2][r]
                                     : (t[0][r] >> 4 & nibbles) | (t[1][r] & ~nibbles);
}

INLINE void pack_blocks(struct pack_rows *rows, uint32_t n_cols, unsigned char *to, const enum quant Q)
{
    const struct panel_shape s = panel_shapes[Q];
    word_line words[MAX_WORDS], q[8];
    uint32_t behind = 0;

    for (uint32_t first = 0; first < n_cols;
         first += s.columns, to += s.header_bytes + s.columns / PANEL_SUB * s.sub_bytes) {
        // Where blocks are shorter than a cache line, only the ones in which a line begins.
        for (uint32_t at = 0; at < rows->block_bytes && behind % 64 < rows->block_bytes; at += 64)
            LANES __builtin_prefetch(rows->at[r] + rows->ahead + at);
        behind += rows->block_bytes;
        put_scales(rows, Q, to);
        take_words(rows, Q, words);
        for (uint32_t j = 0; j < s.columns / PANEL_SUB; j++) {
            take_integers(words, Q, j, q);
            put_planes(s.planes, q, (word_line *)(void *)(to + s.header_bytes + j * s.sub_bytes));
        }
        LANES rows->at[r] += rows->block_bytes;
    }
}

// Words [first, first + 4) of F32, F16 or BF16 rows; fewer at the end.
INLINE void pack_words(const struct pack_rows *rows, uint32_t first, uint32_t n, unsigned char *to,
                       const enum quant Q)
{
    word_line t[4];

    if (n == 4)
        transpose(rows, first * 4, 4, t);
    for (uint32_t i = 0; i < n && n < 4; i++)
        LANES t[i][r] = word_of(rows->at[r] + 4 * (first + i));
    for (uint32_t i = 0; i < n; i++) {
        uint16_t halves[2][PANEL_ROWS];
        unsigned char *line = to + (uint64_t)(first + i) * PANEL_LINE;
        LANES
        {
            halves[0][r] = (uint16_t)t[i][r];
            halves[1][r] = (uint16_t)(t[i][r] >> 16);
        }
        memcpy(line, Q == QUANT_F16 ? (void *)halves : (void *)t[i], PANEL_LINE);
    }
}

INLINE void pack_float(struct pack_rows *rows, uint32_t n_cols, unsigned char *to, const enum quant Q)
{
    uint32_t n_words = Q == QUANT_F32 ? n_cols : n_cols / 2;
    bool odd = Q != QUANT_F32 && n_cols % 2;

    for (uint32_t w = 0; w < n_words; w += 4) {
        LANES __builtin_prefetch(rows->at[r] + rows->ahead + w * 4);
        pack_words(rows, w, n_words - w < 4 ? n_words - w : 4, to, Q);
    }
    for (uint32_t r = 0; odd && r < PANEL_ROWS; r++) // BF16 is paired with zero
        memcpy(to + (uint64_t)n_words * PANEL_LINE + r * (Q == QUANT_F16 ? 2 : 4), rows->at[r] + n_words * 4,
               2);
}

#define PACK_FUNCTION(q, name, kind)                                                      \
    SIMD static void pack_##q(struct pack_rows *rows, uint32_t n_cols, unsigned char *to) \
    {                                                                                     \
        kind(rows, n_cols, to, QUANT_##q);                                                \
    }
QUANT_PLAIN_FORMATS(PACK_FUNCTION, pack_float)
QUANT_BLOCK_FORMATS(PACK_FUNCTION, pack_blocks)

SIMD void PACK(const struct panel_source *from, uint32_t panel, unsigned char *to)
{
#define PACK_ENTRY(q, name, kind) [QUANT_##q] = pack_##q,
    static void (*const pack_as[N_WEIGHT_QUANTS])(struct pack_rows *, uint32_t,
                                                  unsigned char *) = { QUANT_FORMATS(PACK_ENTRY, ) };
    const struct quant_info *info = quant_info(from->format);
    uint64_t row_bytes = (uint64_t)from->n_cols / info->block_elements * info->block_bytes;
    uint32_t first = panel * PANEL_ROWS, last = from->n_rows - 1;
    struct pack_rows rows = { .block_bytes = info->block_bytes, .ahead = PANEL_ROWS * row_bytes };

    // Rows behind the matrix repeat the last one.
    LANES rows.at[r] = from->data + (first + r < last ? first + r : last) * row_bytes;
    if (from->format == QUANT_BF16 && from->n_cols % 2)
        memset(to + panel_bytes(from->format, from->n_cols) - PANEL_LINE, 0, PANEL_LINE);
    pack_as[from->format](&rows, from->n_cols, to);
}
