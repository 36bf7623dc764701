// staged_results.cuh - the epilogues of gemm_staged.cu and gemm_staged_int8.cu: results go through shared
// memory.
//
//   a warp's 16 rows, in its room of shared memory        memory
//   +--------------------------------------+
//   | sums + bias, activated, as bf16      |  -> bulk copies of whole rows, or of 16 rows of 64 columns
//   +--------------------------------------+
//   | residual in fp32, plus sums and bias |  <- the same rows, asked for before the products begin
//   +--------------------------------------+
//
// A warp needs no other: only its own lanes meet. K, a kernel's constants: N weight rows of a tile, joins,
// packed, ACTIVATED, and pitch, the bytes of a row in the room.
#pragma once
#include "gemm/gemm.h"
#include "gemm/cuda/cluster/gemm_cluster.cuh"
#include "gemm/cuda/cluster/gemm_staged.h"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum { WARP_ROWS = 16, STAGED_WARPS = BOTH_THREADS / 32, BATCH = 4, CHUNK_WORDS = 8 };

// activation_of in fewer instructions, for packed results: numbers below 2^-126 count as zero.
static __device__ __forceinline__ f32 activation_near(u32 activation, f32 x)
{
    f32 power = activation == ACTIVATION_SILU ? -1.4426950409f * x // of two
                                              : x * fmaf(-0.1029432396f * x, x, -2.3022081981f),
        e, inverse;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(power));
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1 + e));
    return x * inverse;
}

static __device__ __forceinline__ void wait_until_read() // what this lane's bulk copies store
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
static __device__ __forceinline__ void bulk_store(void *to, u32 from, u32 bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}
static __device__ __forceinline__ void show_to_copies() // what this warp has written
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
}
static __device__ __forceinline__ float2 load_two(u32 at)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}
static __device__ __forceinline__ void store_two(u32 at, float2 v)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(v.x), "f"(v.y) : "memory");
}
static __device__ __forceinline__ u32 two_halves(f32 low, f32 high)
{
    __nv_bfloat162 h = __floats2bfloat162_rn(low, high);
    return *(u32 *)&h;
}

// Where a warp's 16 rows of a tile lie in the result.
struct staged_place {
    u32 first, n_rows;     // of the rows; how many of the 16 exist
    u32 column, n_columns; // likewise, of the matrix
    u32 matrix;
};

template <class K> struct staged_results {
    const struct cluster_params &c;
    const struct tiles_params &t;
    u32 room;           // of this warp, in shared memory
    u32 loaded, parity; // the barrier of the residual's rows, which lie in the room

    __device__ __forceinline__ struct staged_place place(const struct cluster_place &at, u32 skip) const
    {
        u32 first = at.row - threadIdx.x % 32 / 4 + skip, column = 2 * (at.pair - threadIdx.x % 4 * 2),
            of_matrix = 2 * c.matrix_pairs,
            matrix = K::joins ? (column >= of_matrix) + (column >= 2 * of_matrix) : 0;

        return { first, at.n_rows > first ? min(at.n_rows - first, (u32)WARP_ROWS) : 0,
                 column - matrix * of_matrix, 2 * at.end > column ? 2 * at.end - column : 0, matrix };
    }

    // Asks for the residual of 16 rows. What the room held has been stored.
    __device__ __forceinline__ void expect(const struct cluster_place &at, u32 skip) const
    {
        if constexpr (!K::packed) {
            const struct gemm_params &p = t.pairs;
            struct staged_place w = place(at, skip);
            u32 lane = threadIdx.x % 32, bytes = w.n_columns * 4;
            if (!p.add)
                return;
            wait_until_read();
            if (lane == 0)
                expect_bytes(loaded, w.n_rows * bytes);
            __syncwarp();
            if (lane < w.n_rows && bytes > 0)
                bulk_copy(room + lane * K::pitch,
                          (const u8 *)(p.add + (u64)(w.first + lane) * p.out_stride[0] + w.column), bytes,
                          loaded);
        }
    }

    // The bias of this thread's columns in some eights.
    __device__ __forceinline__ void load_bias(float2 (&bias)[BATCH], const struct staged_place &w,
                                              u32 eight) const
    {
        if constexpr (K::column_bytes == 1) { // the bias is in the sums; x + -0 is x
            for (u32 i = 0; i < BATCH; i++)
                bias[i] = make_float2(-0.0f, -0.0f);
            return;
        }
        const f32 *from = t.pairs.bias[w.matrix] + w.column + threadIdx.x % 4 * 2;
#pragma unroll
        for (u32 i = 0; i < BATCH; i++) {
            u32 column = 8 * (eight + i);
            bias[i] = t.pairs.bias[w.matrix] && column < w.n_columns ? *(const float2 *)(from + column)
                                                                     : make_float2(0, 0);
        }
    }
    __device__ __forceinline__ f32 finished(f32 v) const
    {
        return K::ACTIVATED ? activation_near(t.pairs.activation, v) : v;
    }

    // Two eights of 16 rows, as bf16: stmatrix stores four tiles of 8 rows.
    __device__ __forceinline__ void stage_packed(const f32 (&d)[K::N / 8][4],
                                                 const struct staged_place &w) const
    {
        u32 row = threadIdx.x % 16, right = threadIdx.x % 32 / 16;
        bool by_rows = t.pairs.packed_out.form == PACKING_BF16_ROWS;
#pragma unroll
        for (u32 n = 0; n < K::N / 8; n += BATCH) {
            float2 bias[BATCH];
            load_bias(bias, w, n);
#pragma unroll
            for (u32 i = 0; i < BATCH; i += 2) {
                u32 m[4], word = n + i + right;
#pragma unroll
                for (u32 j = 0; j < 4; j++) {
                    const f32 *v = &d[n + i + j / 2][j % 2 * 2];
                    const float2 &b = bias[i + j / 2];
                    m[j] = two_halves(finished(v[0] + b.x), finished(v[1] + b.y));
                }
                u32 at = by_rows ? row * K::pitch + word * 16
                                 : word / CHUNK_WORDS * (WARP_ROWS * 128) + row * 128 +
                                       (word % CHUNK_WORDS ^ row % 8) * 16;
                asm volatile(
                    "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(room + at),
                    "r"(m[0]), "r"(m[1]), "r"(m[2]), "r"(m[3])
                    : "memory");
            }
        }
    }
    // Row by row, or the same 64 columns of 16 rows, which lie together.
    __device__ __forceinline__ void store_packed(const struct staged_place &w) const
    {
        const struct packed_out &next = t.pairs.packed_out;
        u32 lane = threadIdx.x % 32;

        if (next.form == PACKING_BF16_ROWS) {
            if (lane < w.n_rows && w.n_columns > 0)
                bulk_store(c.packed_at[w.matrix] + ((u64)(w.first + lane) * next.n_cols + w.column) * 2,
                           room + lane * K::pitch, w.n_columns * 2);
        } else if (lane < K::N / 64 && w.n_rows > 0 && w.column / 64 + lane < next.n_cols / 64) {
            u64 chunk = (u64)(w.first / PACKED_TILE_ROWS) * (next.n_cols / 64) + w.column / 64 + lane;
            bulk_store(c.packed_at[w.matrix] + (chunk * PACKED_TILE_ROWS + w.first % PACKED_TILE_ROWS) * 128,
                       room + lane * (WARP_ROWS * 128), w.n_rows * 128);
        }
    }

    // The same 16 rows, 16 bytes a lane at a time: where both warpgroups have the same tile, what bulk copies
    // of single rows take to issue is time without products.
    __device__ __forceinline__ void store_packed_rows(const struct staged_place &w) const
    {
        constexpr u32 words = K::N / 8;
        u32 n_cols = t.pairs.packed_out.n_cols;
        u8 *to = c.packed_at[w.matrix] + ((u64)w.first * n_cols + w.column) * 2;

        __syncwarp();
#pragma unroll 4
        for (u32 i = 0; i < WARP_ROWS * words / 32; i++) {
            u32 at = 32 * i + threadIdx.x % 32, row = at / words, word = at % words;
            float4 v = load_shared(room + row * K::pitch + word * 16);
            if (row < w.n_rows && word * 8 < w.n_columns)
                *(float4 *)(to + (u64)row * n_cols * 2 + word * 16) = v;
        }
    }

    __device__ __forceinline__ void stage_rows(const f32 (&d)[K::N / 8][4],
                                               const struct staged_place &w) const
    {
        u32 from = room + threadIdx.x % 32 / 4 * K::pitch + threadIdx.x % 4 * 8;
#pragma unroll
        for (u32 n = 0; n < K::N / 8; n += BATCH) {
            float2 bias[BATCH], rest[BATCH][2];
            load_bias(bias, w, n);
#pragma unroll
            for (u32 i = 0; i < 2 * BATCH; i++)
                rest[i / 2][i % 2] = t.pairs.add ? load_two(from + (n + i / 2) * 32 + i % 2 * 8 * K::pitch)
                                                 : make_float2(0, 0);
#pragma unroll
            for (u32 i = 0; i < 2 * BATCH; i++) {
                const f32 *v = &d[n + i / 2][i % 2 * 2];
                const float2 &b = bias[i / 2], &x = rest[i / 2][i % 2];
                store_two(from + (n + i / 2) * 32 + i % 2 * 8 * K::pitch,
                          make_float2(v[0] + x.x + b.x, v[1] + x.y + b.y));
            }
        }
    }
    __device__ __forceinline__ void store_rows(const struct staged_place &w) const
    {
        const struct gemm_params &p = t.pairs;
        u32 lane = threadIdx.x % 32;

        if (lane < w.n_rows && w.n_columns > 0)
            bulk_store(p.out[0] + (u64)(w.first + lane) * p.out_stride[0] + w.column, room + lane * K::pitch,
                       w.n_columns * 4);
    }

    // next: rows 64 further on follow.
    __device__ __forceinline__ void put(const f32 (&d)[K::N / 8][4], const struct cluster_place &at,
                                        bool next)
    {
        struct staged_place w = place(at, 0);

        if (!K::packed && t.pairs.add) {
            wait_for_stage(loaded, parity);
            parity ^= 1;
        } else {
            wait_until_read();
            __syncwarp();
        }
        if constexpr (K::packed)
            stage_packed(d, w);
        else
            stage_rows(d, w);
        if (K::packed && K::column_bytes == 1 && t.pairs.packed_out.form == PACKING_BF16_ROWS) {
            store_packed_rows(w);
            return;
        }
        show_to_copies();
        if constexpr (K::packed)
            store_packed(w);
        else
            store_rows(w);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        if (next)
            expect(at, PACKED_TILE_ROWS / 2);
    }
    __device__ __forceinline__ void end() const
    {
        wait_until_read();
    }
};

// The kernel's frame: a producer warp, and two warpgroups that call consume(w, pipe, warp, own, results).
// Shared memory: the stages, the warps' rooms, OWN bytes for the kernel at `own`, the barriers. One thread
// calls begin(own), to initialise barriers there.
template <class K, u32 OWN, typename Begin, typename Consume>
static __device__ __forceinline__ void run_staged(const struct cluster_params &c, Begin begin,
                                                  Consume consume)
{
    const struct tiles_params &t = c.tiles;
    extern __shared__ __align__(1024) unsigned char shared[];
    struct pipe<K> pipe = {
        0
    };
    u32 warp = __shfl_sync(~0u, threadIdx.x / 32, 0);

    pipe.data = shared_address(shared);
    u32 rooms = pipe.data + K::n_stages * K::stage_bytes, own = rooms + STAGED_WARPS * WARP_ROWS * K::pitch,
        loaded = own + OWN;
    pipe.full = loaded + 8 * STAGED_WARPS;
    pipe.empty = pipe.full + 8 * K::n_stages;
    struct cluster_scheduler &w =
        *(struct cluster_scheduler *)(shared + (pipe.empty + 8 * K::n_stages - pipe.data));
    if (warp == STAGED_WARPS && elect_one()) {
        prefetch_view(&t.w[0]);
        for (u32 i = 0; i < K::n_stages; i++) {
            barrier_begin(pipe.full + 8 * i, 1);
            barrier_begin(pipe.empty + 8 * i, K::couple * K::consumers / 32);
        }
        for (u32 i = 0; i < STAGED_WARPS; i++)
            barrier_begin(loaded + 8 * i, 1);
        begin(own);
        show_barriers();
        w = tile_scheduler_of<K>(c);
        if (first_tile() < w.n_tiles)
            copy_early(c, pipe, w);
    }
    cluster_sync();
    if (warp >= STAGED_WARPS) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (warp == STAGED_WARPS && elect_one())
            produce<K>(c, pipe, w);
        else
            wait_for_inputs();
        cluster_sync();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume(w, pipe, warp, own,
                staged_results<K>{ c, t, rooms + warp * WARP_ROWS * K::pitch, loaded + 8 * warp, 0 });
    }
}
#endif
