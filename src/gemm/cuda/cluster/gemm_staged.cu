// gemm_staged.cu - GEMM for Hopper with bf16 weights whose results go through shared memory: gemm_cluster's
// waves for an encoder, where products of few columns wait for their epilogues.
//
// Computes   out[row][n] = sum over k of x[row][k] * w[n][k] + bias[n], and with the activation, packed for
// the next operation, or with a residual added, in fp32.
//
// Tiles, pipeline and order are those of gemm_cluster.cuh: two warpgroups take tiles of 128 rows in turn, so
// that the epilogue of one runs while the other multiplies; staged_results.cuh. An epilogue from registers
// stores 32 bytes at a time and waits for the residual: it takes longer than the products where K is small
// (measured: bench/results/2026-11-28-encoder.md). Weight rows keep their order instead of the pairs of other
// kernels, so that a thread has neighbouring columns and needs no shuffle.
#include "gemm/cuda/cluster/staged_results.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

template <u32 WEIGHTS, u32 MODE, bool PACKED> struct staged_kernel {
    static constexpr u32 N = WEIGHTS, pairs = N / 2, rows = PACKED_TILE_ROWS, couple = ROWS_CLUSTER,
                         parts = 1, halves = 2, consumers = 128;
    static constexpr bool ACTIVATED = MODE == EPILOGUE_ACTIVATED, packed = PACKED, joins = PACKED;
    static constexpr u32 n_boxes = ROWS_BOXES(N), box_bytes = N / n_boxes * STAGE_COLUMNS * 2,
                         rows_bytes = rows * STAGE_COLUMNS * 2, stage_bytes = STAGED_STAGE_BYTES(N),
                         n_stages = STAGED_STAGES, column_bytes = 2, chunk_bytes = CHUNK_BYTES;
    static constexpr u32 pitch = STAGED_PITCH(N, !PACKED); // bytes of a row in the room
};

template <class K> static __device__ __forceinline__ void gemm_staged(const struct cluster_params &c)
{
    run_staged<K, 8>(
        c, [](u32 sums_ready) { barrier_begin(sums_ready, K::consumers); },
        [&](const struct cluster_scheduler &w, const struct pipe<K> &pipe, u32, u32 sums_ready,
            const struct staged_results<K> &results) {
            consume_ping_pong<K>(c.tiles, w, pipe, sums_ready, results);
        });
}

#define GEMM_STAGED(name, N, MODE, PACKED)                                                                  \
    extern "C" __global__ void __launch_bounds__(HOPPER_THREADS(2), 1) __cluster_dims__(ROWS_CLUSTER, 1, 1) \
        gemm_staged_##name##N(const __grid_constant__ struct cluster_params c)                              \
    {                                                                                                       \
        gemm_staged<staged_kernel<N, MODE, PACKED>>(c);                                                     \
    }
GEMM_STAGED(packed_, 128, EPILOGUE_LINEAR, true)
GEMM_STAGED(packed_, 192, EPILOGUE_LINEAR, true)
GEMM_STAGED(activated_, 128, EPILOGUE_ACTIVATED, true)
GEMM_STAGED(activated_, 192, EPILOGUE_ACTIVATED, true)
GEMM_STAGED(, 128, EPILOGUE_LINEAR, false)
#endif
