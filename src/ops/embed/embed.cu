// embed.cu - rows of the embedding, dequantised; see embed.h.
//
// Computes   out[r] = table[token of r] * scale, or a row of the pool; or out[r] += table[position of r] or
// table[0]. Bound by memory.
//
//   row r:  | t0 | t1 | ... | t127 | t0 | ...     grid: rows; block: 128 threads
//             32 columns of a quantised row each, or one column of a plain row
//
// No pipeline, no shared memory, no epilogue.
#include "ops/embed/embed_cuda.h"
#include "gemm/cuda/weight_layout.cuh"

template <u32 F> static __device__ void decode(const struct embed_params &p, u32 token, f32 *out)
{
    bool adds = p.args.by != EMBED_TOKEN;

    for (u32 block = threadIdx.x; block < p.args.n_cols / 32; block += blockDim.x) {
        struct unpacked u = unpack_block<F>(load_block<F>(p.table, token, block));
#pragma unroll
        for (u32 i = 0; i < 8; i++) {
            float4 *to = (float4 *)(out + block * 32 + i * 4), old = adds ? *to : make_float4(0, 0, 0, 0);
            f32 v[4];
#pragma unroll
            for (u32 k = 0; k < 4; k++)
                v[k] = (u.scale[i / 4] * signed_byte((u32)u.q[i], k) + u.offset[i / 4]) * p.args.scale;
            *to = adds ? make_float4(old.x + v[0], old.y + v[1], old.z + v[2], old.w + v[3])
                       : make_float4(v[0], v[1], v[2], v[3]);
        }
    }
}

static __device__ f32 plain(const struct weight_planes &w, u64 at)
{
    return w.format == QUANT_F32   ? ((const f32 *)w.quants)[at]
           : w.format == QUANT_F16 ? __half2float(((const __half *)w.quants)[at])
                                   : __uint_as_float((u32)((const u16 *)w.quants)[at] << 16);
}

extern "C" __global__ void __launch_bounds__(128) embed(const __grid_constant__ struct embed_params p)
{
    u32 row = blockIdx.x, n_rows = p.step->n_rows, at = min(row, max(n_rows, 1u) - 1),
        token = p.args.by == EMBED_TOKEN      ? step_tokens(p.step)[at]
                : p.args.by == EMBED_POSITION ? step_positions(p.step)[at]
                                              : 0;
    u64 at_history = (u64)step_slots(p.step)[at] * p.args.history_stride + step_positions(p.step)[at];

    wait_for_inputs();
    if (row >= n_rows)
        return;
    f32 *out = p.out + (u64)row * p.args.n_cols;
    if (token == STEP_TOKEN_HISTORY)
        token = p.history[at_history];
    if (token >= STEP_TOKEN_POOLED && token - STEP_TOKEN_POOLED < p.args.n_pooled) {
        for (u32 i = threadIdx.x; i < p.args.n_cols; i += blockDim.x)
            out[i] = p.pool[(u64)(token - STEP_TOKEN_POOLED) * p.args.n_cols + i];
        return;
    }
    if (token >= p.args.n_tokens)
        token = 0; // the row of a sequence whose last result was invalid: it is not used
    if (p.table.format <= QUANT_BF16) {
        for (u32 i = threadIdx.x; i < p.args.n_cols; i += blockDim.x) {
            f32 value = plain(p.table, (u64)token * p.args.n_cols + i) * p.args.scale;
            out[i] = p.args.by == EMBED_TOKEN ? value : out[i] + value;
        }
        return;
    }
    FOR_QUANTISED(p.table.format, decode<F>(p, token, out))
}
