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

// A lane's four of columns 128 * block to 128 * block + 127 of a row.
struct trellis_columns {
    f32 in[4];
    u16 factors[4];

    // Begins loading; zeros from column `end` on.
    __device__ __forceinline__ void load(const struct trellis_params &p, const u16 *suh, u32 block, u64 row,
                                         u32 end)
    {
        u32 first = block * EXL3_BLOCK + 4 * (threadIdx.x & 31);
        const f32 *from = p.in + row * p.n_cols + first;

#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            in[i] = first + i < end ? __ldcg(from + i) : 0;
            factors[i] = first + i < end ? __ldg(suh + first + i) : 0;
        }
    }
    // Gives their largest magnitude.
    __device__ __forceinline__ f32 turned(f32 (&v)[4]) const
    {
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            v[i] = __fmul_rn(in[i], __half2float(__ushort_as_half(factors[i])));
        return turn_128_most(v);
    }
};

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
