// fragments.cuh - weights as bf16 fragments of the tensor cores' A operand, and the instructions around them.
//
// A lane (g = lane / 4, t = lane % 4) of a warp owns the two rows of pair g and, of every 128 columns, block
// t of 32. The columns of an instruction's 16 k are chosen to suit that: step s = 2 i + h takes from each
// lane the elements 16 h + 4 i + {0, 2, 1, 3} of its block as k = 2 t, 2 t + 1, 2 t + 8, 2 t + 9. Activations
// are stored in the same order (pack_rows.cu), so no weight ever moves between lanes.
//
// An integer u < 256 in the low bits of a bf16 is the number u * 2^-133 exactly: subnormals and the first
// binade share one spacing. So weight * 2^-23 = fma(u, scale * 2^110, offset * 2^-23), one instruction and
// one rounding for two weights; sums are multiplied by 2^23 at the end.
#pragma once
#include "gemm/cuda/weight_layout.cuh"

static __device__ __forceinline__ u32 fma2(u32 a, u32 b, u32 c)
{
    u32 d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
static __device__ __forceinline__ u32 twice_bf16(f32 v)
{
    u32 d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(d) : "f"(v));
    return d;
}
static __device__ __forceinline__ u32 two_bf16(f32 low, f32 high)
{
    u32 d;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
    return d;
}

template <u32 F> struct strip { // a lane's part of one row and 128 columns: one block
    struct packed<F> block;
    static constexpr f32 scale_back = 8388608.0f; // 2^23
};
struct plain_strip {
    uint4 q[4];
    static constexpr f32 scale_back = 1;
};
template <> struct strip<QUANT_BF16> : plain_strip {
};
template <> struct strip<QUANT_F16> : plain_strip {
};

template <u32 F>
static __device__ __forceinline__ void strip_load(struct strip<F> &s, const struct weight_planes &w, u32 row,
                                                  u32 block)
{
    block = min(block, w.n_cols / 32 - 1); // activations beyond the end are zero
    if constexpr (F == QUANT_BF16 || F == QUANT_F16) {
        const uint4 *at = (const uint4 *)w.quants + ((u64)row * (w.n_cols / 32) + block) * 4;
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            s.q[i] = __ldg(at + i);
    } else {
        s.block = load_block<F>(w, row, block);
    }
}

// Nibbles without more bits need no unpacking: a mask takes both halves' numbers, the second one's times 16.
static constexpr __device__ bool has_plain_nibbles(u32 format)
{
    return format == QUANT_Q4_0 || format == QUANT_Q4_1 || format == QUANT_Q4_K;
}

// A strip before its dequantisation: integers as unsigned bytes or nibbles, and constants for its two halves.
template <u32 F> struct prepared {
    int q[has_plain_nibbles(F) ? 4 : 8];
    u32 scale[2], offset[2];
};
template <> struct prepared<QUANT_BF16> {
    uint4 q[4];
};
template <> struct prepared<QUANT_F16> {
    uint4 q[4];
};

template <u32 F>
static __device__ __forceinline__ void strip_prepare(struct prepared<F> &p, const struct strip<F> &s)
{
    if constexpr (F == QUANT_BF16 || F == QUANT_F16) {
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            p.q[i] = s.q[i];
    } else {
        constexpr bool is_signed = layout_has_bytes(F) || layout_has_table(F), nibbles = has_plain_nibbles(F);
        constexpr u32 zero = is_signed ? 128 : layout_zero(F);
        f32 scale[2], offset[2];
        if constexpr (nibbles) {
            p.q[0] = (int)s.block.q[0].x, p.q[1] = (int)s.block.q[0].y;
            p.q[2] = (int)s.block.q[0].z, p.q[3] = (int)s.block.q[0].w;
        } else {
            unpack_ints<F>(s.block, p.q);
        }
        unpack_scales<F>(s.block, scale, offset);
#pragma unroll
        for (u32 h = 0; h < 2; h++) {
            f32 up = nibbles && h ? 8.11296384146067e31f : 1.298074214633707e33f; // 2^106, 2^110
            p.scale[h] = twice_bf16(scale[h] * up);
            // -zero * 2^-133, as bits; or the offset itself
            p.offset[h] = nibbles && h ? p.offset[0]
                          : zero       ? fma2(p.scale[h], (0x8000u | zero) * 0x10001u, 0x80008000u)
                                       : twice_bf16(offset[h] * 1.1920929e-7f);
        }
        if (is_signed)
#pragma unroll
            for (u32 i = 0; i < 8; i++)
                p.q[i] ^= (int)0x80808080;
    }
}

// Step s of one row: the words for k = 2 t, 2 t + 1 and for k = 2 t + 8, 2 t + 9.
template <u32 F, u32 S>
static __device__ __forceinline__ void strip_step(const struct prepared<F> &p, u32 &low, u32 &high)
{
    constexpr u32 i = S / 2, h = S % 2;

    if constexpr (F == QUANT_BF16 || F == QUANT_F16) {
        const uint4 &v = p.q[2 * h + i / 2];
        u32 a = i % 2 ? v.z : v.x, b = i % 2 ? v.w : v.y;
        low = __byte_perm(a, b, 0x5410);
        high = __byte_perm(a, b, 0x7632);
        if (F == QUANT_F16) {
            float2 l = __half22float2(*(__half2 *)&low), u = __half22float2(*(__half2 *)&high);
            low = two_bf16(l.x, l.y);
            high = two_bf16(u.x, u.y);
        }
    } else if constexpr (has_plain_nibbles(F)) {
        constexpr u32 mask = h ? 0x00f000f0 : 0x000f000f;
        u32 w = (u32)p.q[i];
        low = fma2(w & mask, p.scale[h], p.offset[h]);
        high = fma2(w >> 8 & mask, p.scale[h], p.offset[h]);
    } else {
        u32 w = (u32)p.q[4 * h + i];
        low = fma2(w & 0x00ff00ff, p.scale[h], p.offset[h]);
        high = fma2(w >> 8 & 0x00ff00ff, p.scale[h], p.offset[h]);
    }
}

// The same of a lane's two rows, as an instruction takes them.
template <u32 F, u32 S>
static __device__ __forceinline__ void fragment(const struct prepared<F> (&rows)[2], u32 (&a)[4])
{
    strip_step<F, S>(rows[0], a[0], a[2]);
    strip_step<F, S>(rows[1], a[1], a[3]);
}

static __device__ __forceinline__ void mma_16816(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                 "{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
