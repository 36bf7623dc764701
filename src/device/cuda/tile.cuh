// tile.cuh - tensor cores and copies past registers for kernels that hold their tiles in shared memory: the
// instructions by name, so that the emulated GPU of the tests can stand in for them, and products of fp32.
//
// A product of two tiles is made of mma.m16n8k8: lane 4 g + t has numbers (g, t), (g + 8, t), (g, t + 4) and
// (g + 8, t + 4) of A [16, 8], (t, g) and (t + 4, g) of B [8, 8], and of the result [16, 8] (g, 2 t),
// (g, 2 t + 1) and the same of row g + 8. Tensor cores take 11 bits of a number. Each is cut into two such
// parts, and three of the four products of parts are added: what is lost lies below 2^-20 of a product.
#pragma once
#include "base/lang.h"

#ifndef CUDA_EMULATED
// d += a b, of numbers cut to TF32.
static __device__ __forceinline__ void mma_tf32(f32 (&d)[4], const f32 (&a)[4], const f32 (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}
// The same of 16-bit numbers, mma.m16n8k16: a word has two neighbours of A's or B's 16.
template <bool BF16>
static __device__ __forceinline__ void mma_16(f32 (&d)[4], const u32 (&a)[4], u32 b0, u32 b1)
{
    if (BF16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// 16 bytes to shared memory, past registers; zeros where there is nothing to copy. Copies are waited for in
// the groups that were closed, all but the newest N.
static __device__ __forceinline__ void copy_begin(f32 *to, const f32 *from, bool exists)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)),
                 "l"(from), "r"(exists ? 16 : 0)
                 : "memory");
}
static __device__ __forceinline__ void copies_close()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <u32 N> static __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}
#endif

template <u32 N> struct tf32_parts {
    f32 high[N], low[N];
};

template <u32 N> static __device__ __forceinline__ struct tf32_parts<N> tf32_cut(const f32 (&x)[N]) {
    struct tf32_parts<N> p;
#pragma unroll
    for (u32 i = 0; i < N; i++) {
        p.high[i] = __uint_as_float(__float_as_uint(x[i]) & 0xffffe000u);
        p.low[i] = x[i] - p.high[i];
    }
    return p;
}

static __device__ __forceinline__ void
mma_fp32(f32 (&d)[4], const struct tf32_parts<4> &a, const struct tf32_parts<2> &b)
{
    mma_tf32(d, a.low, b.high);
    mma_tf32(d, a.high, b.low);
    mma_tf32(d, a.high, b.high);
}

// The same for warps with few tiles: three sums, of which none waits for another.
struct fp32_sums {
    f32 parts[3][4];
};
static __device__ __forceinline__ void mma_fp32(struct fp32_sums &d, const struct tf32_parts<4> &a,
                                                const struct tf32_parts<2> &b)
{
    mma_tf32(d.parts[0], a.high, b.high);
    mma_tf32(d.parts[1], a.high, b.low);
    mma_tf32(d.parts[2], a.low, b.high);
}
static __device__ __forceinline__ f32 fp32_sum(const struct fp32_sums &d, u32 i)
{
    return d.parts[0][i] + (d.parts[1][i] + d.parts[2][i]);
}

// A lane's numbers of A [16, 8] at `at`: number (i, j) lies i * down + j * across further.
static __device__ __forceinline__ struct tf32_parts<4> take_a(const f32 *at, u32 down, u32 across) {
    u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const f32 *x = at + g * down + t * across;
    const f32 numbers[4] = { x[0], x[8 * down], x[4 * across], x[8 * down + 4 * across] };
    return tf32_cut(numbers);
}

// The same of B [8, 8]; its rows t and t + 4 are multiplied by a factor each.
static __device__ __forceinline__ struct tf32_parts<2>
take_b(const f32 *at, u32 down, u32 across, f32 first = 1, f32 second = 1) {
    u32 g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const f32 *x = at + t * down + g * across;
    const f32 numbers[2] = { x[0] * first, x[4 * down] * second };
    return tf32_cut(numbers);
}
