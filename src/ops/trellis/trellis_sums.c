// trellis_sums.c - the plain loop first: codes are decoded block by block and multiplied in fp32. Then the
// same with vectors (trellis_vec.h), in another order of sums. One row is bound by decoding.
#include "ops/trellis/trellis_sums.h"
#include <string.h>

static void add_block(const f32 *x, f32 block[EXL3_BLOCK][EXL3_BLOCK], f32 *sums)
{
    for (uint32_t i = 0; i < EXL3_BLOCK; i++)
        for (uint32_t o = 0; o < EXL3_BLOCK; o++)
            sums[o] += x[i] * block[i][o];
}

static void plain_sums(const struct exl3 *m, uint32_t out, const struct trellis_rows *rows,
                       struct trellis_sums_room *room, f32 (*sums)[EXL3_BLOCK])
{
    memset(sums, 0, rows->n * sizeof *sums);
    for (uint32_t in = 0; in < m->n_in / EXL3_BLOCK; in++) {
        exl3_decode_block(m, in, out, room->block);
        for (uint32_t r = 0; r < rows->n; r++)
            add_block(rows->x + r * rows->x_stride + in * EXL3_BLOCK, room->block, sums[r]);
    }
}

// Of each 16 numbers in the order of trellis_kernels.h.
static void reorder(f32 *numbers, uint32_t n)
{
    f32 was[EXL3_TILE];

    for (f32 *at = numbers; at < numbers + n; at += EXL3_TILE) {
        memcpy(was, at, sizeof was);
        for (uint32_t i = 0; i < EXL3_TILE; i++)
            at[i] = was[i / 4 * 2 + i % 2 + i / 2 % 2 * 8];
    }
}

void trellis_turn(const struct trellis_kernels *kernels, f32 *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += EXL3_BLOCK)
        exl3_turn(numbers + i);
    if (kernels)
        reorder(numbers, n);
}

// Each output is four sums.
static void add_fours(f32 (*parts)[TRELLIS_SUMS], f32 *sums)
{
    for (uint32_t o = 0; o < EXL3_BLOCK; o++) {
        const f32 *four = parts[o / EXL3_TILE] + o % 8 * 8 + o / 8 % 2 * 4;
        sums[o] = (four[0] + four[1]) + (four[2] + four[3]);
    }
}

static void vec_sums(const struct trellis_kernels *kernels, const struct exl3 *m, uint32_t out,
                     const struct trellis_rows *rows, struct trellis_sums_room *room, f32 (*sums)[EXL3_BLOCK])
{
    enum { N_TILES = EXL3_BLOCK / EXL3_TILE };

    memset(room->vec.sums, 0, rows->n * sizeof *room->vec.sums);
    for (uint32_t i = 0; i < m->n_in / EXL3_BLOCK * N_TILES; i++) {
        uint32_t in = i / N_TILES, tile = i % N_TILES;
        kernels->decode(m, in, out * N_TILES + tile, room->vec.column);
        kernels->add(room->vec.column, &(struct trellis_rows){ .x = rows->x + in * EXL3_BLOCK,
                                                               .x_stride = rows->x_stride,
                                                               .sums = room->vec.sums[0][tile],
                                                               .sums_stride = N_TILES * TRELLIS_SUMS,
                                                               .n = rows->n });
    }
    for (uint32_t r = 0; r < rows->n; r++)
        add_fours(room->vec.sums[r], sums[r]);
}

void trellis_sums(const struct trellis_kernels *kernels, const struct exl3 *m, uint32_t out,
                  const struct trellis_rows *rows, struct trellis_sums_room *room, f32 (*sums)[EXL3_BLOCK])
{
    if (kernels)
        vec_sums(kernels, m, out, rows, room, sums);
    else
        plain_sums(m, out, rows, room, sums);
}
