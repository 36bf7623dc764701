// panel.c - fills panels from file blocks; see panel.h.
//
// Every integer format takes the same road: a block of one row is taken apart into unsigned integers, scales and mins, which are then
// written as planes. Eight words hold 32 integers, so a plane line of a row is a few shifts of words: about 0.5 ns per element.
#include "ops/matmul/panel.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

struct parts { // one block of one row
    _Alignas(64) uint8_t q[256];
    uint16_t d, m; // fp16, but bf16 for MXFP4
    int8_t scales[16], mins[16];
};

static void add_offset(struct parts *p, const int8_t *q, uint32_t n, int offset)
{
    for (uint32_t i = 0; i < n; i++)
        p->q[i] = (uint8_t)(q[i] + offset);
}

static void copy_nibbles(uint8_t *q, const uint8_t *bytes) // 16 bytes: element i and i + 16
{
    for (uint32_t i = 0; i < 16; i++) {
        q[i] = bytes[i] & 15;
        q[i + 16] = bytes[i] >> 4;
    }
}

static void take_q4_0(struct parts *p, const struct q4_0 *b)
{
    p->d = b->d;
    copy_nibbles(p->q, b->q);
}

static void take_q4_1(struct parts *p, const struct q4_1 *b)
{
    p->d = b->d;
    p->m = b->m;
    copy_nibbles(p->q, b->q);
}

static void take_q5_0(struct parts *p, const struct q5_0 *b)
{
    int8_t q[32];

    q5_0_ints(b, q);
    add_offset(p, q, 32, 16);
    p->d = b->d;
}

static void take_q5_1(struct parts *p, const struct q5_1 *b)
{
    q5_1_ints(b, (int8_t *)p->q);
    p->d = b->d;
    p->m = b->m;
}

static void take_q8_0(struct parts *p, const struct q8_0 *b)
{
    add_offset(p, b->q, 32, 128);
    p->d = b->d;
}

static void take_iq4_nl(struct parts *p, const struct iq4_nl *b)
{
    copy_nibbles(p->q, b->q);
    p->d = b->d;
}

static void take_mxfp4(struct parts *p, const struct mxfp4 *b)
{
    copy_nibbles(p->q, b->q);
    p->d = quant_float_to_bf16(mxfp4_scale(b->e)); // a power of two: exact
}

static void take_iq4_xs(struct parts *p, const struct iq4_xs *b)
{
    p->d = b->d;
    for (uint32_t g = 0; g < 8; g++) {
        copy_nibbles(p->q + 32 * g, b->q + 16 * g);
        p->scales[g] = (int8_t)iq4_xs_scale(b, g);
    }
}

static void take_q2_k(struct parts *p, const struct q2_k *b)
{
    q2_k_ints(b, (int8_t *)p->q);
    p->d = b->d;
    p->m = b->dmin;
    for (uint32_t g = 0; g < 16; g++) {
        p->scales[g] = b->scales[g] & 15;
        p->mins[g] = (int8_t)(b->scales[g] >> 4);
    }
}

static void take_q3_k(struct parts *p, const struct q3_k *b)
{
    int8_t q[256];

    q3_k_ints(b, q);
    add_offset(p, q, 256, 4);
    p->d = b->d;
    for (uint32_t g = 0; g < 16; g++)
        p->scales[g] = (int8_t)q3_k_scale(b, g);
}

static void take_6bit_scales(struct parts *p, const uint8_t *scales)
{
    for (uint32_t g = 0; g < 8; g++) {
        struct q4_k_pair pair = q4_k_scale(scales, g);
        p->scales[g] = (int8_t)pair.scale;
        p->mins[g] = (int8_t)pair.min;
    }
}

static void take_q4_k(struct parts *p, const struct q4_k *b)
{
    q4_k_ints(b, (int8_t *)p->q);
    p->d = b->d;
    p->m = b->dmin;
    take_6bit_scales(p, b->scales);
}

static void take_q5_k(struct parts *p, const struct q5_k *b)
{
    q5_k_ints(b, (int8_t *)p->q);
    p->d = b->d;
    p->m = b->dmin;
    take_6bit_scales(p, b->scales);
}

static void take_q6_k(struct parts *p, const struct q6_k *b)
{
    int8_t q[256];

    q6_k_ints(b, q);
    add_offset(p, q, 256, 32);
    p->d = b->d;
    memcpy(p->scales, b->scales, 16);
}

static void take_block(enum quant format, struct parts *p, const void *block)
{
    switch (format) {
#define TAKE(FORMAT, format)     \
    case FORMAT:                 \
        take_##format(p, block); \
        break;
        TAKE(QUANT_Q4_0, q4_0)
        TAKE(QUANT_Q4_1, q4_1)
        TAKE(QUANT_Q5_0, q5_0)
        TAKE(QUANT_Q5_1, q5_1)
        TAKE(QUANT_Q8_0, q8_0)
        TAKE(QUANT_Q2_K, q2_k)
        TAKE(QUANT_Q3_K, q3_k)
        TAKE(QUANT_Q4_K, q4_k)
        TAKE(QUANT_Q5_K, q5_k)
        TAKE(QUANT_Q6_K, q6_k)
        TAKE(QUANT_IQ4_NL, iq4_nl)
        TAKE(QUANT_IQ4_XS, iq4_xs)
        TAKE(QUANT_MXFP4, mxfp4)
#undef TAKE
    default:
        CHECK(!"a format without blocks");
    }
}

static void put_word(unsigned char *lines, uint32_t line, uint32_t row, uint32_t word)
{
    memcpy(lines + line * PANEL_LINE + row * 4, &word, 4);
}

static void put_four_bits(unsigned char *lines, uint32_t row, const uint32_t *q)
{
    for (uint32_t p = 0; p < 4; p++)
        put_word(lines, p, row, (q[2 * p] & 0x0f0f0f0fu) | (q[2 * p + 1] & 0x0f0f0f0fu) << 4);
}

static void put_two_bits(unsigned char *lines, uint32_t row, const uint32_t *q, uint32_t shift)
{
    for (uint32_t h = 0; h < 2; h++) {
        uint32_t word = 0;
        for (uint32_t g = 0; g < 4; g++)
            word |= (q[4 * h + g] >> shift & 0x03030303u) << 2 * g;
        put_word(lines, h, row, word);
    }
}

static void put_one_bit(unsigned char *line, uint32_t row, const uint32_t *q, uint32_t shift)
{
    uint32_t word = 0;

    for (uint32_t g = 0; g < 8; g++)
        word |= (q[g] >> shift & 0x01010101u) << g;
    put_word(line, 0, row, word);
}

static void put_planes(enum panel_planes planes, unsigned char *lines, uint32_t row, const uint8_t *integers)
{
    uint32_t q[8];
    bool four = planes == PLANES_4 || planes == PLANES_5 || planes == PLANES_6 || planes == PLANES_IQ4 || planes == PLANES_MXFP4;

    memcpy(q, integers, 32);
    if (four)
        put_four_bits(lines, row, q);
    if (planes == PLANES_5)
        put_one_bit(lines + 4 * PANEL_LINE, row, q, 4);
    if (planes == PLANES_6)
        put_two_bits(lines + 4 * PANEL_LINE, row, q, 4);
    if (planes == PLANES_2 || planes == PLANES_3)
        put_two_bits(lines, row, q, 0);
    if (planes == PLANES_3)
        put_one_bit(lines + 2 * PANEL_LINE, row, q, 2);
    for (uint32_t g = 0; g < 8 && planes == PLANES_8; g++)
        put_word(lines, g, row, q[g]);
}

static void put_6bit(unsigned char *lines, uint32_t row, const struct parts *p)
{
    uint8_t low[2][4], top[4];

    for (uint32_t i = 0; i < 4; i++) {
        const int s0 = p->scales[i], s1 = p->scales[i + 4], m0 = p->mins[i], m1 = p->mins[i + 4];
        low[0][i] = (uint8_t)((s0 & 15) | (m0 & 15) << 4);
        low[1][i] = (uint8_t)((s1 & 15) | (m1 & 15) << 4);
        top[i] = (uint8_t)(s0 >> 4 | s1 >> 4 << 2 | m0 >> 4 << 4 | m1 >> 4 << 6);
    }
    memcpy(lines + row * 4, low[0], 4);
    memcpy(lines + PANEL_LINE + row * 4, low[1], 4);
    memcpy(lines + 2 * PANEL_LINE + row * 4, top, 4);
}

static void put_scales(enum panel_scales scales, unsigned char *header, uint32_t row, const struct parts *p)
{
    bool mins = scales == SCALES_DM || scales == SCALES_6BIT || scales == SCALES_NIBBLES16;
    unsigned char *lines = header + (mins ? 128 : 64);

    memcpy(header + 2 * row, &p->d, 2);
    if (mins)
        memcpy(header + 64 + 2 * row, &p->m, 2);
    if (scales == SCALES_6BIT)
        put_6bit(lines, row, p);
    for (uint32_t l = 0; l < 4 && (scales == SCALES_BYTE16 || (scales == SCALES_BYTE32 && l < 2)); l++)
        memcpy(lines + l * PANEL_LINE + row * 4, p->scales + 4 * l, 4);
    for (uint32_t i = 0; i < 16 && scales == SCALES_NIBBLES16; i++)
        lines[i / 4 * PANEL_LINE + row * 4 + i % 4] = (uint8_t)(p->scales[i] | p->mins[i] << 4);
}

static void pack_row(enum quant format, const unsigned char *blocks, uint32_t n_blocks, uint32_t row, unsigned char *panel)
{
    const struct panel_shape *s = &panel_shapes[format];
    uint32_t file_bytes = quant_info(format)->block_bytes, panel_bytes_step = panel_block_bytes(format);
    struct parts p;

    for (uint32_t b = 0; b < n_blocks; b++) {
        unsigned char *to = panel + (uint64_t)b * panel_bytes_step;
        take_block(format, &p, blocks + (uint64_t)b * file_bytes);
        put_scales(s->scales, to, row, &p);
        for (uint32_t j = 0; j < s->columns / PANEL_SUB; j++)
            put_planes(s->planes, to + s->header_bytes + j * s->sub_bytes, row, p.q + j * PANEL_SUB);
    }
}

static void pack_row_float(enum quant format, const unsigned char *from, uint32_t n_cols, uint32_t row, unsigned char *panel)
{
    uint32_t bytes = format == QUANT_F32 ? 4 : 2;

    for (uint32_t k = 0; k < n_cols; k++) {
        uint64_t at = format == QUANT_BF16 ? (uint64_t)(k / 2 * PANEL_ROWS + row) * 4 + k % 2 * 2
                                           : ((uint64_t)k * PANEL_ROWS + row) * bytes;
        memcpy(panel + at, from + (uint64_t)k * bytes, bytes);
    }
}

void panel_pack(const struct panel_source *from, uint32_t panel, unsigned char *to)
{
    uint32_t first = panel * PANEL_ROWS, n = from->n_rows - first < PANEL_ROWS ? from->n_rows - first : PANEL_ROWS;
    const struct quant_info *info = quant_info(from->format);
    uint64_t row_bytes = (uint64_t)from->n_cols / info->block_elements * info->block_bytes;

    if (n < PANEL_ROWS || from->n_cols % panel_shapes[from->format].columns != 0)
        memset(to, 0, panel_bytes(from->format, from->n_cols));
    for (uint32_t r = 0; r < n; r++) {
        const unsigned char *row = from->data + (first + r) * row_bytes;
        if (panel_is_float(from->format))
            pack_row_float(from->format, row, from->n_cols, r, to);
        else
            pack_row(from->format, row, from->n_cols / info->block_elements, r, to);
    }
}
