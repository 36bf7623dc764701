// packing_plain.c - packed activations that one command may write for the next, in plain C: their definition,
// by which tape_diff judges what kernels have packed. pack_rows.cu and epilogue_pack.cuh write the same bits.
//
//   int8 [rows / 8][columns / 32] blocks of 320 bytes: 8 rows of 32 int8 in the order of an mma fragment,
//     then for each row its fp32 scale
//         (two low bits zero) and two 16-bit sums of 16 numbers each; with a norm, behind them fp32 sums of
//           squares [columns / 32][8]
//   int8 tiles [rows / 128][columns / 128] chunks, see packing.h
//   bf16 [rows / 128][columns / 64] tiles of [128 rows][64 columns], 16-byte words of a line swizzled by the
//     row: word w lies at w ^ row % 8
//   bf16 mma   the same, the columns of each 128 in the order of packed_mma_column
//   bf16 rows  [rows][columns]
#include <math.h>
#include <string.h>
#include "gemm/cuda/gemm_plan.h"

static uint64_t int8_bytes(uint32_t max_rows, uint32_t n_cols, bool norm)
{
    return packing_int8_bytes(max_rows, n_cols) + (norm ? packing_squares_bytes(n_cols) : 0);
}
static unsigned char *int8_block(const void *packed, uint32_t n_cols, uint32_t row, uint32_t block)
{
    return (unsigned char *)(uintptr_t)packed +
           ((uint64_t)(row / 8) * (n_cols / 32) + block) * PACKED_INT8_BYTES;
}
// Number i of 32 of a row: lane row * 4 + i / 4 % 4 of the fragment, its first word for the first 16 numbers.
static uint32_t int8_place(uint32_t row, uint32_t i)
{
    return (row % 8 * 4 + i / 4 % 4) * 8 + i / 16 * 4 + i % 4;
}
static float *squares_at(const void *packed, uint32_t n_cols, uint32_t row, uint32_t block)
{
    return (float *)((unsigned char *)(uintptr_t)packed + packing_int8_bytes(8, n_cols)) + block * 8 + row;
}

static void int8_pack_block(const float *v, uint32_t row, unsigned char *block)
{
    int16_t sums[2] = { 0, 0 };
    float top = 0, sum = 0;
    uint32_t bits;

    for (uint32_t i = 0; i < 32; i++) {
        top = fmaxf(top, fabsf(v[i]));
        sum += fabsf(v[i]);
    }
    float scale = sum < 3e38f ? top / 127 : NAN, inverse = top > 1e-36f && sum < 3e38f ? 127 / top : 0;
    for (uint32_t i = 0; i < 32; i++) {
        int8_t q = (int8_t)rintf(inverse > 0 ? v[i] * inverse : 0);
        block[int8_place(row, i)] = (unsigned char)q;
        sums[i / 16] = (int16_t)(sums[i / 16] + q);
    }
    memcpy(&bits, &scale, 4);
    bits &= ~3u;
    memcpy(block + 256 + row % 8 * 8, &bits, 4);
    memcpy(block + 260 + row % 8 * 8, sums, 4);
}

static void int8_pack(const struct packed_rows *from, void *packed)
{
    for (uint32_t row = 0; row < from->n_rows; row++)
        for (uint32_t block = 0; block < from->n_cols / 32; block++) {
            const float *in = from->rows + (size_t)row * from->n_cols + block * 32, *norm = from->norm;
            float v[32], squares = 0;
            for (uint32_t i = 0; i < 32; i++) {
                v[i] = norm ? in[i] * norm[block * 32 + i] : in[i];
                squares += in[i] * in[i];
            }
            int8_pack_block(v, row, int8_block(packed, from->n_cols, row, block));
            if (norm)
                *squares_at(packed, from->n_cols, row, block) = squares;
        }
}

static float row_factor(const void *packed, const struct packed_rows *to, uint32_t row)
{
    float squares = 0;

    for (uint32_t block = 0; to->norm && block < to->n_cols / 32; block++)
        squares += *squares_at(packed, to->n_cols, row, block);
    return to->norm && squares > 0 ? 1 / sqrtf(squares / (float)to->n_cols) : 1;
}

static void int8_unpack(const void *packed, const struct packed_rows *to)
{
    for (uint32_t row = 0; row < to->n_rows; row++) {
        float factor = row_factor(packed, to, row), scale;
        for (uint32_t i = 0; i < to->n_cols; i++) {
            const unsigned char *block = int8_block(packed, to->n_cols, row, i / 32);
            memcpy(&scale, block + 256 + row % 8 * 8, 4);
            to->rows[(size_t)row * to->n_cols + i] =
                (float)(int8_t)block[int8_place(row, i % 32)] * scale * factor;
        }
    }
}

static uint64_t bf16_bytes(uint32_t max_rows, uint32_t n_cols, bool norm)
{
    CHECK(!norm);
    return packing_bf16_bytes(max_rows, n_cols);
}
static uint16_t *bf16_at(const void *packed, uint32_t n_cols, uint32_t row, uint32_t column)
{
    uint32_t tile_row = row % PACKED_TILE_ROWS;
    uint64_t line =
        (uint64_t)(row / PACKED_TILE_ROWS * (n_cols / 64) + column / 64) * PACKED_TILE_ROWS + tile_row;
    return (uint16_t *)(uintptr_t)packed + (line * 8 + (column / 8 % 8 ^ row % 8)) * 8 + column % 8;
}

static void bf16_pack(const struct packed_rows *from, void *packed)
{
    for (uint32_t row = 0; row < from->n_rows; row++)
        for (uint32_t i = 0; i < from->n_cols; i++)
            *bf16_at(packed, from->n_cols, row, i) =
                quant_float_to_bf16(from->rows[(size_t)row * from->n_cols + i]);
}

static void bf16_unpack(const void *packed, const struct packed_rows *to)
{
    for (uint32_t row = 0; row < to->n_rows; row++)
        for (uint32_t i = 0; i < to->n_cols; i++)
            to->rows[(size_t)row * to->n_cols + i] =
                quant_bf16_to_float(*bf16_at(packed, to->n_cols, row, i));
}

static void mma_pack(const struct packed_rows *from, void *packed)
{
    for (uint32_t row = 0; row < from->n_rows; row++)
        for (uint32_t i = 0; i < from->n_cols; i++)
            *bf16_at(packed, from->n_cols, row, packed_mma_column(i)) =
                quant_float_to_bf16(from->rows[(size_t)row * from->n_cols + i]);
}

static void mma_unpack(const void *packed, const struct packed_rows *to)
{
    for (uint32_t row = 0; row < to->n_rows; row++)
        for (uint32_t i = 0; i < to->n_cols; i++)
            to->rows[(size_t)row * to->n_cols + i] =
                quant_bf16_to_float(*bf16_at(packed, to->n_cols, row, packed_mma_column(i)));
}

static uint64_t tiles_bytes(uint32_t max_rows, uint32_t n_cols, bool norm)
{
    CHECK(!norm);
    return int8_tiles_bytes(max_rows, n_cols);
}

// columns: that have one scale.
static void pack_tiles(const struct packed_rows *from, uint32_t columns, void *packed)
{
    for (uint32_t row = 0; row < from->n_rows; row++)
        for (uint32_t c = 0; c < from->n_cols; c += columns) {
            const float *v = from->rows + (size_t)row * from->n_cols + c;
            unsigned char *chunk = (unsigned char *)packed + int8_chunk_at(row, c, from->n_cols);
            float top = 0;
            for (uint32_t i = 0; i < columns; i++)
                top = isnan(top) || isnan(v[i]) ? NAN : fmaxf(top, fabsf(v[i]));
            float scale = top < 3e38f ? top / 127 : NAN,
                  inverse = top > 1e-36f && top < 3e38f ? 127 / top : 0;
            for (uint32_t i = 0; i < columns; i++)
                chunk[int8_number_at(row, c + i)] =
                    (unsigned char)(int8_t)(inverse > 0 ? rintf(v[i] * inverse) : 0);
            for (uint32_t i = 0; i < columns; i += INT8_SCALE_COLUMNS)
                memcpy(chunk + int8_scale_at(row, c + i), &scale, sizeof scale);
        }
}
static void int8_tiles_pack(const struct packed_rows *from, void *packed)
{
    pack_tiles(from, INT8_SCALE_COLUMNS, packed);
}
static void int8_wide_pack(const struct packed_rows *from, void *packed)
{
    pack_tiles(from, INT8_CHUNK_COLUMNS, packed);
}

static void tiles_unpack(const void *packed, const struct packed_rows *to)
{
    for (uint32_t row = 0; row < to->n_rows; row++)
        for (uint32_t c = 0; c < to->n_cols; c++) {
            const unsigned char *chunk = (const unsigned char *)packed + int8_chunk_at(row, c, to->n_cols);
            float scale;
            memcpy(&scale, chunk + int8_scale_at(row, c), sizeof scale);
            to->rows[(size_t)row * to->n_cols + c] = (float)(int8_t)chunk[int8_number_at(row, c)] * scale;
        }
}

static uint64_t rows_bytes(uint32_t max_rows, uint32_t n_cols, bool norm)
{
    CHECK(!norm);
    return (uint64_t)max_rows * n_cols * 2;
}

static void rows_pack(const struct packed_rows *from, void *packed)
{
    for (uint64_t i = 0; i < (uint64_t)from->n_rows * from->n_cols; i++)
        ((uint16_t *)packed)[i] = quant_float_to_bf16(from->rows[i]);
}

static void rows_unpack(const void *packed, const struct packed_rows *to)
{
    for (uint64_t i = 0; i < (uint64_t)to->n_rows * to->n_cols; i++)
        to->rows[i] = quant_bf16_to_float(((const uint16_t *)packed)[i]);
}

const struct tape_packing gemm_packing_int8 = { "int8", int8_bytes, int8_pack, int8_unpack };
const struct tape_packing gemm_packing_bf16 = { "bf16", bf16_bytes, bf16_pack, bf16_unpack };
const struct tape_packing gemm_packing_mma = { "bf16 mma", bf16_bytes, mma_pack, mma_unpack };
const struct tape_packing gemm_packing_rows = { "bf16 rows", rows_bytes, rows_pack, rows_unpack };
const struct tape_packing gemm_packing_int8_tiles = { "int8 tiles", tiles_bytes, int8_tiles_pack,
                                                      tiles_unpack };
const struct tape_packing gemm_packing_int8_wide = { "int8 wide", tiles_bytes, int8_wide_pack, tiles_unpack };
