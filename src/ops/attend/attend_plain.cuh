// attend_plain.cuh - a kernel of attend.cu, included once for each name, with KERNEL and SINKS defined: a
// shared function would change the machine code.
//
// A block per head and row: the four warps take positions in turn, each with a softmax of its own; the four
// are combined at the end.
extern "C" __global__ void __launch_bounds__(128) KERNEL(const __grid_constant__ struct attend_params p)
{
    extern __shared__ __align__(16) f32 plain_shared[]; // q, then the sum [head_dim]
    __shared__ f32 row_maxes[4], row_sums[4];
    const struct page_shape &shape = p.args.pages;
    u32 row = blockIdx.y, h = blockIdx.x, kv = h / (p.args.n_heads / shape.n_kv_heads),
        lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    struct page_side k = { &shape, (void *)p.k_pages, false }, v = { &shape, (void *)p.v_pages, true };
    f32 *q = plain_shared, *out = q + shape.head_dim, row_max = -__int_as_float(0x7f800000), row_sum = 0;
    f32 sums[16]; // lane's dimensions: lane, lane + 32, ...; up to 512

    wait_for_inputs();
    if (row >= p.step->n_rows)
        return;
    u32 position = step_positions(p.step)[row],
        begin = p.args.window && position >= p.args.window ? position - p.args.window + 1 : 0;
    const u32 *table = p.table + (u64)step_slots(p.step)[row] * shape.max_pages;
    u32 n_sums = (shape.head_dim + 31) / 32;
    for (u32 d = threadIdx.x; d < shape.head_dim; d += 128) {
        q[d] = p.q[((u64)row * p.args.n_heads + h) * shape.head_dim + d];
        out[d] = 0;
    }
#pragma unroll
    for (u32 i = 0; i < 16; i++)
        sums[i] = 0;
    __syncthreads();
    for (u32 j = begin + warp; j <= position; j += 4) {
        u32 page = table[j / PAGE_TOKENS];
        f32 score = 0;
        for (u32 d = lane; d < shape.head_dim; d += 32)
            score += q[d] * page_get(k, page, kv, j % PAGE_TOKENS, d);
        score = warp_sum(score) * p.args.scale;
        f32 new_max = fmaxf(row_max, score), rescale = expf(row_max - new_max),
            weight = expf(score - new_max);
        row_max = new_max;
        row_sum = row_sum * rescale + weight;
#pragma unroll
        for (u32 i = 0; i < 16; i++)
            if (i < n_sums && lane + 32 * i < shape.head_dim)
                sums[i] = sums[i] * rescale + weight * page_get(v, page, kv, j % PAGE_TOKENS, lane + 32 * i);
    }
    if (lane == 0) {
        row_maxes[warp] = row_max;
        row_sums[warp] = row_sum;
    }
    __syncthreads();
    f32 all = fmaxf(fmaxf(row_maxes[0], row_maxes[1]), fmaxf(row_maxes[2], row_maxes[3])), sum = 0;
    for (u32 w = 0; w < 4; w++)
        sum += row_sums[w] * expf(row_maxes[w] - all);
    sum = attend_row_sum<SINKS>(p, h, all, sum);
    for (u32 w = 0; w < 4; w++) {
        if (warp == w)
#pragma unroll
            for (u32 i = 0; i < 16; i++)
                if (i < n_sums && lane + 32 * i < shape.head_dim)
                    out[lane + 32 * i] += sums[i] * expf(row_max - all);
        __syncthreads();
    }
    for (u32 d = threadIdx.x; d < shape.head_dim; d += 128)
        p.out[((u64)row * p.args.n_heads + h) * shape.head_dim + d] = out[d] / sum;
}
