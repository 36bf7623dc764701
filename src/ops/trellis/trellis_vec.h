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

// sums: [8 / VT] of VT groups each.
SIMD static void add_column(const float *w, const float *x, float *sums)
{
    vf acc[8 / VT];

    for (uint32_t g = 0; g < 8 / VT; g++)
        acc[g] = vf_load(sums + 8 * VT * g);
    for (uint32_t i = 0; i < 8; i++, w += 256, x += EXL3_TILE) {
        vf four[4];
        for (uint32_t j = 0; j < 4; j++)
            four[j] = load_four(x + 4 * j);
        for (uint32_t g = 0; g < 8 / VT; g++)
            for (uint32_t j = 0; j < 4; j++)
                acc[g] = multiply_add(vf_load(w + (4 * g + j) * 8 * VT), four[j], acc[g]);
    }
    for (uint32_t g = 0; g < 8 / VT; g++)
        vf_store(sums + 8 * VT * g, acc[g]);
}
