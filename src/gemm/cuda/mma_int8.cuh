// mma_int8.cuh - 16 weight rows by eight rows of activations and 64 columns, by int8 mma: the work of
// gemm_int8's warps between two waits.
//
// Lane 4 g + t holds, of weight rows g and g + 8, columns 4 t .. 4 t + 3 and the same + 16, and the sums of
// activations 2 t and 2 t + 1. Integers are exact inside a block of 32, or inside its halves where these have
// scales of their own; blocks are added up in fp32.
#pragma once
#include "gemm/cuda/row_int8.cuh"

static __device__ __forceinline__ void mma_int8(int (&d)[4], const int (&a)[4], u32 b0, u32 b1, int start)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%10,%10,%10};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(start));
}
static __device__ __forceinline__ void mma_int8_half(int (&d)[4], int a0, int a1, u32 b, int start)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%7,%7,%7,%7};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a0), "r"(a1), "r"(b), "r"(start));
}

// Integers with a zero point in their middle go to the top of a byte, where flipping the top bit makes them
// signed: times 2^shift.
static constexpr __device__ u32 shift_of(u32 format)
{
    return format == QUANT_Q4_0   ? 4
           : format == QUANT_Q5_0 ? 3
           : format == QUANT_Q3_K ? 5
           : format == QUANT_Q6_K ? 2
                                  : 0;
}
static __device__ __forceinline__ int to_signed(int q, u32 shift)
{
    return shift ? (int)((u32)q << shift ^ 0x80808080) : q;
}
static __device__ __forceinline__ int high_nibbles_signed(u32 word) // by one instruction
{
    int r;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(r) : "r"(word), "r"(0xf0f0f0f0), "r"(0x80808080));
    return r;
}

static __device__ __forceinline__ int top_threes_signed(u32 word)
{
    return (int)((word & 0xe0e0e0e0) ^ 0x80808080);
}

// Loads a tile's 16 rows, 16 bytes each, from the shared-memory addresses that the lanes give, for two times
// 16 bytes (lanes 16 on: the second): word t of rows g and g + 8 goes to lane 4 g + t.
static __device__ __forceinline__ void load_rows(u32 (&words)[4], u32 at)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(at));
}
static constexpr __device__ bool has_rows_of_16(u32 format) // bytes of quants per block
{
    return layout_quants_bytes(format, 32) == 16 && !layout_has_table(format) && format != QUANT_Q6_K;
}

// Nibbles with one or two more bits, as to_signed takes them: each bit is shifted to its place by one
// instruction.
template <u32 F>
static __device__ __forceinline__ void unpack_more_bits(u32 word, const u32 (&bits)[2], u32 t, int &low,
                                                        int &high)
{
    if (F == QUANT_Q6_K) {
        low = (int)(((word << 2 & 0x3c3c3c3c) ^ 0x80808080) ^ (bits[0] << (6 - 2 * t) & 0xc0c0c0c0));
        high = (int)(((word >> 2 & 0x3c3c3c3c) ^ 0x80808080) ^ (bits[1] << (6 - 2 * t) & 0xc0c0c0c0));
    } else if (F == QUANT_Q5_0) {
        low = (int)((word << 3 & 0x78787878) | (~(bits[0] << (7 - t)) & 0x80808080));
        high = (int)((word >> 1 & 0x78787878) | (~(bits[0] << (3 - t)) & 0x80808080));
    } else {
        low = (int)((word & 0x0f0f0f0f) | (bits[0] << (4 - t) & 0x10101010));
        high = (int)((word >> 4 & 0x0f0f0f0f) | (bits[0] >> t & 0x10101010));
    }
}

// Scales that one lane computes for all lanes.
static constexpr __device__ bool shares_scales(u32 format)
{
    return format == QUANT_Q3_K || format == QUANT_Q4_K || format == QUANT_Q5_K || format == QUANT_Q6_K ||
           format == QUANT_IQ4_XS || format == QUANT_Q8_16;
}
// A lane's part of two neighbouring blocks of 32 columns of the tile's 16 weight rows: the operands of mma,
// and the scales of rows g and g + 8.
template <u32 F> struct weights_64 {
    static constexpr u32 halves = has_halves(F) ? 2 : 1;
    int a[2][4];        // [block]: row g, row g + 8: elements 4 t ..; the same: elements 16 + 4 t ..
    f32 scale[2][2][2]; // [block][row][half]

    // scales: of row g and the first of the blocks, where lanes share them. at: the address for load_rows.
    __device__ __forceinline__ void load(const struct plane_pointers (&rows)[2], u32 block, const f32 *scales,
                                         u32 at)
    {
        u32 words[4] = {};
        if (has_rows_of_16(F))
            load_rows(words, at);
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            struct packed<F> b[2] = {
                0
            };
            if (F == QUANT_Q3_K)
                load_threes(rows[i], block, i);
#pragma unroll
            for (u32 k = 0; k < 2 && F != QUANT_Q3_K; k++)
                load_ints(rows[i], block + k, words[2 * k + i], b[k], a[k][i], a[k][2 + i]);
            if (shares_scales(F)) {
                take_scales(scales + i * 8 * 8 * halves, i);
                continue;
            }
            load_scales(rows[i], block, b);
#pragma unroll
            for (u32 k = 0; k < 2; k++) {
                f32 offset[2];
                block_scales<F>(b[k], scale[k][i], offset);
                if (F == QUANT_Q2_K) { // at most 3 * 15 per byte
                    a[k][i] *= (int)(b[k].scale & 15);
                    a[k][2 + i] *= (int)(b[k].scale >> 8 & 15);
                    scale[k][i][0] = half_of(b[k].delta);
                }
            }
        }
    }
    __device__ __forceinline__ void take_scales(const f32 *from, u32 i)
    {
        if (halves == 2) {
            float4 v = *(const float4 *)from;
            scale[0][i][0] = v.x;
            scale[0][i][1] = v.y;
            scale[1][i][0] = v.z;
            scale[1][i][1] = v.w;
        } else {
            float2 v = *(const float2 *)from;
            scale[0][i][0] = v.x;
            scale[1][i][0] = v.y;
        }
    }
    // A unit of Q3_K: bits 5 to 7, signed.
    __device__ __forceinline__ void load_threes(const struct plane_pointers &row, u32 block, u32 i)
    {
        u32 t = threadIdx.x & 3, w = ((const u32 *)(row.quants + block * 8))[t];
        u32 bits = ((const u32 *)(row.high + block * 4))[t / 2] << 4 * (~t & 1);

        a[0][i] = top_threes_signed(w);
        a[0][2 + i] = top_threes_signed(w << 3);
        a[1][i] = top_threes_signed(bits);
        a[1][2 + i] = (int)((w << 5 & 0x60606060) | (~(bits << 3) & 0x80808080));
    }
    static __device__ __forceinline__ void load_ints(const struct plane_pointers &row, u32 block, u32 word,
                                                     struct packed<F> &b, int &low, int &high)
    {
        u32 t = threadIdx.x & 3;

        if (layout_has_bytes(F)) {
            const int *q = (const int *)(row.quants + block * 32) + t;
            low = q[0];
            high = q[4];
            return;
        }
        high_at<F>(row, block, b);
        if (F == QUANT_Q2_K) {
            uint2 twos = ((const uint2 *)row.quants)[block];
            unpack_twos(twos.x, twos.y, t, &low, &high);
        } else {
            if (!has_rows_of_16(F))
                word = ((const u32 *)(row.quants + block * 16))[t];
            if (F == QUANT_Q4_0) {
                low = high_nibbles_signed(word << 4);
                high = high_nibbles_signed(word);
                return;
            }
            if (layout_has_high_bit(F) || F == QUANT_Q6_K) {
                unpack_more_bits<F>(word, b.high, t, low, high);
                return;
            }
            unpack_word<F>(word, b.high, t, &low, &high);
        }
        low = to_signed(low, shift_of(F));
        high = to_signed(high, shift_of(F));
    }
    static __device__ __forceinline__ void load_scales(const struct plane_pointers &row, u32 block,
                                                       struct packed<F> (&b)[2])
    {
        if (layout_has_two_halves(F)) {
            uint2 v = ((const uint2 *)row.scales)[block / 2];
            b[0].scale = v.x;
            b[1].scale = v.y;
            return;
        }
        if (F == QUANT_IQ4_XS) {
            u32 v = ((const u16 *)row.scales)[block / 2];
            b[0].scale = v & 0xff;
            b[1].scale = v >> 8;
        } else {
            u32 v = ((const u32 *)row.scales)[block / 2];
            b[0].scale = v & 0xffff;
            b[1].scale = v >> 16;
        }
        if (layout_has_super_blocks(F))
            b[0].delta = b[1].delta = ((const u32 *)row.deltas)[block / 8];
    }
};

// Two rows of activations, 2 t and 2 t + 1, of a tile of eight.
template <u32 F> struct columns_32 {
    u32 b0, b1;
    f32 scale[2];

    __device__ __forceinline__ void take(const uint2 &b, const uint4 &r)
    {
        b0 = b.x;
        b1 = b.y;
        scale[0] = __uint_as_float(r.x) * (1.0f / (1 << shift_of(F)));
        scale[1] = __uint_as_float(r.z) * (1.0f / (1 << shift_of(F)));
    }
};

// mma starts from FACING_ZERO as an integer, so that its sums need no conversion. The scale of activations
// has two spare bits (pack_rows.cu), so scale * FACING_ZERO is exact, and one operation takes it off.
template <u32 F>
static __device__ __forceinline__ void add_products(const struct weights_64<F> &w, u32 block,
                                                    const struct columns_32<F> &x, f32 minus_zero,
                                                    f32 (&sums)[4])
{
    constexpr bool halves = has_halves(F) && F != QUANT_Q2_K; // two products
#pragma unroll
    for (u32 h = 0; h < (halves ? 2 : 1); h++) {
        const int(&a)[4] = w.a[block];
        int d[4];
        if (halves)
            mma_int8_half(d, a[2 * h], a[2 * h + 1], h ? x.b1 : x.b0, 0x4b400000);
        else
            mma_int8(d, a, x.b0, x.b1, 0x4b400000);
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            f32 product = fmaf(x.scale[i % 2], __int_as_float(d[i]), x.scale[i % 2] * minus_zero);
            sums[i] = fmaf(w.scale[block][i / 2][h], product, sums[i]);
        }
    }
}
