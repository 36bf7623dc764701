// trellis_rows.cuh - rows of activations and of results around the products of dense matrices, 128 numbers a
// warp.
#pragma once
#include "ops/trellis/trellis_decode.cuh"

// The matrix of a block of outputs, whose place in it the block then is.
static __device__ __forceinline__ const struct trellis_matrix *
trellis_matrix_of(const struct trellis_params &p, u32 &block)
{
    const struct trellis_matrix *of = p.matrices;

    for (; block >= of->n_out / EXL3_BLOCK; of++)
        block -= of->n_out / EXL3_BLOCK;
    return of;
}

// Columns 128 * block to 128 * block + 127 of a row, turned. Gives their largest magnitude.
static __device__ __forceinline__ f32 trellis_turned(const struct trellis_params &p, const u16 *suh,
                                                     u32 block, u64 row, f32 (&v)[4])
{
    u32 first = block * EXL3_BLOCK + 4 * (threadIdx.x & 31);
    const f32 *in = p.in + row * p.n_cols + first;

#pragma unroll
    for (u32 i = 0; i < 4; i++)
        v[i] = first + i < p.n_cols ? __fmul_rn(__ldcg(in + i), half_at(suh, first + i)) : 0;
    return turn_128_most(v);
}

// 128 sums of a row, turned back, to outputs 128 * block to 128 * block + 127 of matrix m.
static __device__ __forceinline__ void trellis_write(const struct trellis_matrix *m, u32 block, u64 row,
                                                     f32 (&v)[4])
{
    u32 first = block * EXL3_BLOCK + 4 * (threadIdx.x & 31);

    turn_128(v);
#pragma unroll
    for (u32 i = 0; i < 4; i++)
        if (first + i < m->n_rows) {
            u64 at = row * m->n_rows + first + i;
            f32 sum = __fmul_rn(v[i], half_at(m->svh, first + i));
            sum += m->bias ? m->bias[first + i] : 0;
            m->out[at] = m->add ? sum + m->add[at] : sum;
        }
}
