// gemm_staged_int8.cu - GEMM for Hopper with Q8_0 weights of one scale a row, and activations in int8 with a
// scale for each 64 or 128 columns: an encoder's products of many rows.
//
// Computes   out[row][n] = w_scale[n] * sum over blocks of columns of x_scale[row] * (int8 products) +
// bias[n], and with the activation, as int8 for the next product; as bf16 for attention; or with a residual
// added, in fp32.
//
//   cluster of 2 blocks             128 weight rows (N side)
//                                 +----------------------------------+
//   block 0: 128 rows (M side)    |  warpgroup 0, 1: 64 rows each    |     stage: 128 columns, and the rows'
//                                 +----------------------------------+            scales of both halves
//   block 1: the next rows        |  the same weights (multicast)    |
//                                 +----------------------------------+
//
//   warpgroup 0   | wgmma, K block i        | fp32 += scale * int32   | wgmma, K block i + 1    | ...
//   warpgroup 1   | fp32 += scale * int32   | wgmma, K block i        | fp32 += scale * int32   | ...
//
// Tiles and pipeline are those of gemm_cluster.cuh; each of two warpgroups has half of a tile, and one
// accumulates while the other multiplies. Epilogue: staged_results.cuh, by a scale and a bias of each
// column, which are loaded before the products. Whole numbers up to 128 * 127 * 127 are exact in fp32. What
// rounding costs, what bounds it, and the time: bench/results/2026-11-28-encoder.md.
#include "gemm/cuda/cluster/staged_results.cuh"
#include "gemm/cuda/int8_tiles.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum { SUMS = STAGED_INT8_WEIGHTS / 8 };

// Rows whose product is added to a residual have one scale for 64 columns, others for 128.
template <u32 MODE, bool PACKED> struct staged_int8_kernel {
    static constexpr u32 scale_columns = PACKED ? INT8_CHUNK_COLUMNS : INT8_SCALE_COLUMNS;
    static constexpr bool ACTIVATED = MODE == EPILOGUE_ACTIVATED, packed = PACKED,
                          joins = PACKED && !ACTIVATED;
    static constexpr u32 N = STAGED_INT8_WEIGHTS, pairs = N / 2, rows = PACKED_TILE_ROWS,
                         couple = ROWS_CLUSTER, parts = 1, halves = 1, consumers = BOTH_THREADS,
                         column_bytes = 1, chunk_bytes = INT8_CHUNK_BYTES, rows_bytes = chunk_bytes,
                         n_boxes = ROWS_BOXES(N), box_bytes = N / n_boxes * STAGE_LINE,
                         stage_bytes = STAGED_INT8_STAGE_BYTES,
                         n_stages = STAGED_INT8_STAGES(ACTIVATED, !PACKED),
                         pitch = STAGED_INT8_PITCH(ACTIVATED, !PACKED);
    static_assert(rows_bytes % 1024 == 0 && stage_bytes % 1024 == 0, "weights are swizzled by their address");
};

// ---- products

template <class K> struct int8_products { // of a warpgroup
    i32 d[SUMS][4];                       // of a block of columns
    f32 sums[SUMS][4];
    u32 rows, scales; // offsets in a stage
    u32 empty;        // barriers of the block that this lane's arrival goes to

    __device__ __forceinline__ void begin(const struct pipe<K> &pipe)
    {
        u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);
        rows = warp / 4 * GROUP_BYTES;
        scales = int8_scale_at(warp * WARP_ROWS + threadIdx.x % 32 / 4, 0);
        empty = place_in(threadIdx.x % K::couple, pipe.empty);
    }
    __device__ __forceinline__ void settle()
    {
#pragma unroll
        for (u32 n = 0; n < SUMS; n++)
            asm volatile("" : "+r"(d[n][0]), "+r"(d[n][1]), "+r"(d[n][2]), "+r"(d[n][3])::"memory");
    }
    // Some of a stage's columns, from a multiple of 64 on, by the scales of rows g and g + 8.
    __device__ __forceinline__ void multiply(const struct pipe<K> &pipe, u32 half)
    {
        u64 rows_at = tile_descriptor(pipe.stage() + rows) + 2 * NEXT_COLUMNS * half,
            weights_at = tile_descriptor(pipe.stage() + K::rows_bytes) + 2 * NEXT_COLUMNS * half;
        u32 scales_at = pipe.stage() + scales + PACKED_TILE_ROWS * 4 * half;
        f32 scale[2];

        settle();
        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < K::scale_columns / 32; k++)
            wgmma(d, rows_at + NEXT_COLUMNS * k, weights_at + NEXT_COLUMNS * k, k > 0);
        wgmma_commit();
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(scale[i]) : "r"(scales_at + 32 * i) : "memory");
        wgmma_finish();
        settle();
#pragma unroll
        for (u32 n = 0; n < SUMS; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                sums[n][i] = fmaf((f32)d[n][i], scale[i / 2], sums[n][i]);
    }
    __device__ __forceinline__ void multiply_all(struct pipe<K> &pipe, u32 n_stages)
    {
#pragma unroll
        for (u32 n = 0; n < SUMS; n++)
            sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0;
        for (u32 stage = 0; stage < n_stages; stage++, pipe.next()) {
            wait_for_stage(pipe.full + 8 * pipe.at, pipe.phase);
#pragma unroll
            for (u32 half = 0; half < 2; half += K::scale_columns / INT8_SCALE_COLUMNS)
                multiply(pipe, half);
            if (threadIdx.x % 32 < K::couple)
                leave_stage_of(empty + 8 * pipe.at);
        }
    }
};

// ---- epilogue

template <class K> struct int8_results : staged_results<K> {
    using staged_results<K>::c;
    using staged_results<K>::t;
    using staged_results<K>::room;

    u32 factors; // of this warpgroup, in shared memory: scale and bias of each column

    // Of one column a thread, before the products, which take longer than these loads.
    __device__ __forceinline__ float2 load_factors(const struct cluster_place &at) const
    {
        struct staged_place w = this->place(at, 0);
        const struct weight_planes &planes = t.pairs.w[w.matrix];
        u32 own = threadIdx.x % 128, column = w.column + own;
        const __half *scales = (const __half *)planes.scales;
        const f32 *bias = t.pairs.bias[w.matrix];

        if (own >= w.n_columns)
            return make_float2(0, 0);
        return make_float2(
            __half2float(__ldg(scales + (u64)column * (planes.n_cols / 32))), // of its row's first
            bias ? __ldg(bias + column) : 0);
    }
    __device__ __forceinline__ void share_factors(float2 own) const
    {
        u32 group = __shfl_sync(~0u, threadIdx.x / 128, 0);

        store_two(factors + threadIdx.x % 128 * 8, own);
        asm volatile("bar.sync %0, 128;" ::"r"(3 + group) : "memory");
    }
    __device__ __forceinline__ void finish_sums(f32 (&d)[SUMS][4]) const
    {
        u32 at = factors + threadIdx.x % 4 * 16;
#pragma unroll
        for (u32 n = 0; n < SUMS; n++) {
            float4 v = load_shared(at + n * 64);
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                f32 x = i % 2 ? fmaf(d[n][i], v.z, v.w) : fmaf(d[n][i], v.x, v.y);
                d[n][i] = K::ACTIVATED ? activated(x) : x;
            }
        }
    }
    // x sigmoid(2 u) = x / 2 (1 + tanh u), tanh to eleven bits, which is far below a step of int8.
    __device__ __forceinline__ f32 activated(f32 x) const
    {
        bool silu = t.pairs.activation == ACTIVATION_SILU;
        f32 linear = silu ? 0.5f : 0.7978845608f, cubic = silu ? 0 : 0.0356774081f, tanh;
        asm("tanh.approx.f32 %0, %1;" : "=f"(tanh) : "f"(x * fmaf(cubic * x, x, linear)));
        return fmaf(0.5f * x, tanh, 0.5f * x);
    }
    // fp32 rows beside packed ones, from registers.
    __device__ __forceinline__ void store_beside(const f32 (&d)[SUMS][4], const struct staged_place &w) const
    {
        const struct gemm_params &p = t.pairs;
        u32 row = threadIdx.x % 32 / 4, column = threadIdx.x % 4 * 2;
#pragma unroll
        for (u32 i = 0; i < 2 * SUMS; i++) {
            u32 n = i / 2, at = row + i % 2 * 8;
            if (at >= w.n_rows || 8 * n >= w.n_columns)
                continue;
            *(float2 *)(p.out[w.matrix] + (u64)(w.first + at) * p.out_stride[w.matrix] + w.column + column +
                        8 * n) = make_float2(d[n][i % 2 * 2], d[n][i % 2 * 2 + 1]);
        }
    }
    // 64 columns of row g (which: 0) or g + 8.
    __device__ __forceinline__ f32 stage_int8(const f32 (&d)[SUMS][4], u32 first, u32 which) const
    {
        u32 row = threadIdx.x % 32 / 4 + which * 8;
        f32 top = 0;
#pragma unroll
        for (u32 n = first; n < first + 8; n++)
            top = int8_higher(int8_higher(top, d[n][2 * which]), d[n][2 * which + 1]);
        top = int8_highest<4>(top);
        f32 inverse = int8_inverse(top);
#pragma unroll
        for (u32 n = first; n < first + 8; n += 2) {
            const f32 *a = &d[n][2 * which], *b = &d[n + 1][2 * which];
            u32 word = int8_word(int8_two(a[0], a[1], inverse), int8_two(b[0], b[1], inverse)),
                at = room + int8_number_at(row, 8 * n + int8_word_column());
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(word) : "memory");
        }
        return int8_scale(top);
    }
    __device__ __forceinline__ void put_int8(const f32 (&d)[SUMS][4], const struct staged_place &w) const
    {
        const struct packed_out &next = t.pairs.packed_out;
        u8 *chunk = c.packed_at[0] + int8_chunk_at(w.first, w.column, next.n_cols);
        u32 lane = threadIdx.x % 32;

        wait_until_read();
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = lane / 4 + i % 2 * 8;
            f32 scale = stage_int8(d, i / 2 * 8, i % 2);
            if (lane % 4 == 0 && row < w.n_rows)
                *(f32 *)(chunk + int8_scale_at(w.first + row, i / 2 * INT8_SCALE_COLUMNS)) = scale;
        }
        show_to_copies();
        if (lane == 0 && w.n_rows > 0)
            bulk_store(chunk + int8_number_at(w.first, 0), room, w.n_rows * INT8_CHUNK_COLUMNS);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    }

    __device__ __forceinline__ void put(f32 (&d)[SUMS][4], const struct cluster_place &at)
    {
        struct staged_place w = this->place(at, 0);

        finish_sums(d);
        if constexpr (K::ACTIVATED) {
            if (t.pairs.out[0])
                store_beside(d, w);
            if (c.packed_at[0])
                put_int8(d, w);
        } else {
            if (K::packed && t.pairs.out[w.matrix])
                store_beside(d, w);
            if (!K::packed || c.packed_at[w.matrix])
                staged_results<K>::put(d, at, false);
        }
    }
};

template <class K>
static __device__ __forceinline__ void consume(const struct tiles_params &t,
                                               const struct cluster_scheduler &w, struct pipe<K> pipe,
                                               struct int8_results<K> results)
{
    struct int8_products<K> x;

    x.begin(pipe);
    wait_for_inputs();
    for (u32 tile = first_tile(); tile < w.n_tiles; tile = next_tile(tile)) {
        results.expect(place_of<K>(t.pairs, w, tile), 0);
        float2 own = results.load_factors(place_of<K>(t.pairs, w, tile));
        x.multiply_all(pipe, w.n_stages);
        results.share_factors(own);
        results.put(x.sums, place_of<K>(t.pairs, w, tile));
    }
    results.end();
    cluster_sync();
}

template <class K> static __device__ __forceinline__ void gemm_staged_int8(const struct cluster_params &c)
{
    run_staged<K, STAGED_INT8_FACTORS>(
        c, [](u32) {},
        [&](const struct cluster_scheduler &w, const struct pipe<K> &pipe, u32 warp, u32 factors,
            const struct staged_results<K> &results) {
            consume<K>(c.tiles, w, pipe, { results, factors + warp / 4 * (STAGED_INT8_FACTORS / 2) });
        });
}

#define GEMM_STAGED_INT8(name, MODE, PACKED)                                                                \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS(2), 1) __cluster_dims__(ROWS_CLUSTER, 1, 1) \
        gemm_staged_int8##name(const __grid_constant__ struct cluster_params c)                             \
    {                                                                                                       \
        gemm_staged_int8<staged_int8_kernel<MODE, PACKED>>(c);                                              \
    }
GEMM_STAGED_INT8(, EPILOGUE_LINEAR, false)
GEMM_STAGED_INT8(_packed, EPILOGUE_LINEAR, true)
GEMM_STAGED_INT8(_activated, EPILOGUE_ACTIVATED, true)
#endif
