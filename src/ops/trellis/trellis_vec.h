// trellis_vec.h - EXL3 codes decoded and multiplied with vectors of VT groups of eight numbers: the part that
// AVX2 (one group) and AVX-512 (two) share. Included by trellis_avx2.c and trellis_avx512.c, which define
// what is done by instruction.
//
// Positions 8 t to 8 t + 7 of a tile, a group, are inputs 2 j + {0, 1, 8, 9}, j = t % 4, of output t / 4,
// then of output t / 4 + 8. So rows of activations lie in that order, and a group is multiplied as it is
// decoded, into the eight sums of t / 4: four of each output, which are added at the end.
#pragma once
#include <string.h>
#include "ops/trellis/trellis_kernels.h"

// The tile's bytes in the order of their bits, with two before them: a group's states begin at byte bits * t.
struct tile_bytes {
    uint8_t at[2 + 32 * EXL3_MAX_BITS + 16];
};

// For state i of a group: its four bytes, the last one first, and how far it lies above the low end.
struct trellis_group {
    _Alignas(64) uint8_t bytes[64];
    _Alignas(64) int32_t shifts[16];
};

VEC_INLINE void plan_group(struct trellis_group *p, uint32_t bits)
{
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t first = (i % 8 + 1) * bits;
        for (uint32_t b = 0; b < 4; b++)
            p->bytes[4 * i + b] = (uint8_t)(first / 8 + 3 - b);
        p->shifts[i] = (int32_t)(16 - first % 8);
    }
}

VEC_INLINE void order_bytes(struct tile_bytes *t, const u16 *tile, uint32_t bits)
{
    const __m256i swap = _mm256_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12, 3, 2, 1, 0, 7,
                                          6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);

    for (uint32_t i = 0; i < bits; i++) {
        __m256i words = _mm256_loadu_si256((const __m256i *)(const void *)(tile + 16 * i));
        _mm256_storeu_si256((__m256i *)(void *)(t->at + 2 + 32 * i), _mm256_shuffle_epi8(words, swap));
    }
    memcpy(t->at, t->at + 32 * bits, 2);
}

// The numbers of groups 4 g + j: of VT neighbours g, for each j.
VEC_INLINE void decode_tile(const struct exl3 *m, const struct trellis_group *p, const u16 *tile, float *out)
{
    struct tile_bytes bytes;

    order_bytes(&bytes, tile, m->bits);
    for (uint32_t g = 0; g < 8; g += VT)
        for (uint32_t j = 0; j < 4; j++, out += 8 * VT)
            vf_store(out, values(load_states(p, bytes.at + (4 * g + j) * m->bits, 4 * m->bits), m->codebook));
}

SIMD static void decode_column(const struct exl3 *m, uint32_t in, uint32_t tile_out, float *out)
{
    struct trellis_group plan;

    plan_group(&plan, m->bits);
    for (uint32_t i = 0; i < 8; i++) {
        uint64_t at = (uint64_t)(in * 8 + i) * (m->n_out / EXL3_TILE) + tile_out;
        decode_tile(m, &plan, m->trellis + at * 16 * m->bits, out + 256 * i);
    }
}

enum { VECTORS = 8 / VT, ROWS_AT_ONCE = VT == 1 ? 2 : 4, SUMS_AT_ONCE = 4 };

// n rows, so that a number is loaded once for them; sums `first` to first + 3 of each.
VEC_INLINE void add_rows(const float *w, const struct trellis_rows *rows, uint32_t first, const uint32_t n)
{
    vf acc[ROWS_AT_ONCE][SUMS_AT_ONCE];

    for (uint32_t r = 0; r < n; r++)
        for (uint32_t g = 0; g < SUMS_AT_ONCE; g++)
            acc[r][g] = vf_load(rows->sums + r * rows->sums_stride + 8 * VT * (first + g));
    for (uint32_t i = 0; i < 8; i++)
        for (uint32_t j = 0; j < 4; j++) {
            const float *at = w + i * 256 + (4 * first + j) * 8 * VT;
            vf four[ROWS_AT_ONCE];
            for (uint32_t r = 0; r < n; r++)
                four[r] = load_four(rows->x + r * rows->x_stride + i * EXL3_TILE + 4 * j);
            for (uint32_t g = 0; g < SUMS_AT_ONCE; g++) {
                vf number = vf_load(at + 4 * g * 8 * VT);
                for (uint32_t r = 0; r < n; r++)
                    acc[r][g] = multiply_add(number, four[r], acc[r][g]);
            }
        }
    for (uint32_t r = 0; r < n; r++)
        for (uint32_t g = 0; g < SUMS_AT_ONCE; g++)
            vf_store(rows->sums + r * rows->sums_stride + 8 * VT * (first + g), acc[r][g]);
}

SIMD static void add_column(const float *w, const struct trellis_rows *rows)
{
    struct trellis_rows at = *rows;

    while (at.n > 0) {
        uint32_t n = at.n >= ROWS_AT_ONCE ? ROWS_AT_ONCE : 1;
        for (uint32_t g = 0; g < VECTORS; g += SUMS_AT_ONCE)
            if (n > 1)
                add_rows(w, &at, g, ROWS_AT_ONCE);
            else
                add_rows(w, &at, g, 1);
        at.x += n * at.x_stride;
        at.sums += n * at.sums_stride;
        at.n -= n;
    }
}
