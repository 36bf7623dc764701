// int8_results.cuh - a warpgroup's products of 64 rows by 128 weight rows in int8, and their epilogues:
// gemm_staged_int8.cu and gemm_stationary_int8.cu.
//
//   products      | columns i    | columns i + 1 | columns i + 2 | ...
//   fp32 sums                    | += columns i  | += i + 1      | ...
//
// Integers up to 128 * 127 * 127 are exact in fp32. Epilogue: staged_results.cuh, with a scale and a bias for
// each column, which are loaded before the products. K holds a kernel's constants: those that
// staged_results.cuh wants, and scale_columns, how many columns of a row share a scale.
#pragma once
#include "gemm/cuda/cluster/staged_results.cuh"
#include "gemm/cuda/int8_tiles.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)

enum { SUMS = STAGED_INT8_WEIGHTS / 8 };

// ---- products

struct int8_chunk { // of 128 columns, in shared memory
    u32 rows, weights;
    u32 scales; // of row g; that of row g + 8 is 32 bytes behind
    u32 apart;  // bytes to the scales of the second 64 columns
};

// Two sets of integer sums: the next products run while those before are converted. All of a pipeline stands
// in a row, since ptxas lets none run ahead across a loop (C7514).
template <class K> struct int8_products {
    static constexpr u32 halves = INT8_CHUNK_COLUMNS / K::scale_columns, GROUPS = 6,
                         AT_ONCE = GROUPS / halves; // chunks

    i32 d[2][SUMS][4]; // of columns with one scale
    f32 scale[2][2];   // of rows g and g + 8
    f32 sums[SUMS][4];

    __device__ __forceinline__ void clear()
    {
#pragma unroll
        for (u32 n = 0; n < SUMS; n++)
            sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0;
    }
    __device__ __forceinline__ void begin_group(u32 set, const struct int8_chunk &chunk, u32 half)
    {
        u64 rows = tile_descriptor(chunk.rows) + 2 * NEXT_COLUMNS * half,
            weights = tile_descriptor(chunk.weights) + 2 * NEXT_COLUMNS * half;

        wgmma_fence();
#pragma unroll
        for (u32 k = 0; k < K::scale_columns / 32; k++)
            wgmma(d[set], rows + NEXT_COLUMNS * k, weights + NEXT_COLUMNS * k, k > 0);
        wgmma_commit();
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            asm volatile("ld.shared.f32 %0, [%1];"
                         : "=f"(scale[set][i])
                         : "r"(chunk.scales + chunk.apart * half + 32 * i)
                         : "memory");
    }
    __device__ __forceinline__ void end_group(u32 set)
    {
#pragma unroll
        for (u32 n = 0; n < SUMS; n++)
            asm volatile(""
                         : "+r"(d[set][n][0]), "+r"(d[set][n][1]), "+r"(d[set][n][2]),
                           "+r"(d[set][n][3])::"memory");
#pragma unroll
        for (u32 n = 0; n < SUMS; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                sums[n][i] = fmaf((f32)d[set][n][i], scale[set][i / 2], sums[n][i]);
    }
    // CHUNKS of them. take() waits for the next; leave() tells that the first of those taken was read.
    template <u32 CHUNKS, typename Take, typename Leave>
    __device__ __forceinline__ void multiply_chunks(Take take, Leave leave)
    {
        struct int8_chunk chunk;

#pragma unroll
        for (u32 i = 0; i <= CHUNKS * halves; i++) {
            if (i < CHUNKS * halves) {
                if (i % halves == 0)
                    chunk = take();
                begin_group(i % 2, chunk, i % halves);
            }
            if (i == 0)
                continue;
            if (i < CHUNKS * halves)
                wgmma_wait_before();
            else
                wgmma_finish();
            if (i % halves == 0)
                leave();
            end_group((i - 1) % 2);
        }
    }
    template <typename Take, typename Leave>
    __device__ __forceinline__ void multiply_all(u32 n_chunks, Take take, Leave leave)
    {
        u32 i = 0;

        clear();
        for (; i + AT_ONCE <= n_chunks; i += AT_ONCE)
            multiply_chunks<AT_ONCE>(take, leave);
        for (; i < n_chunks; i++)
            multiply_chunks<1>(take, leave);
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
    // The highest absolute value of 64 columns of row g (which: 0) or g + 8.
    __device__ __forceinline__ f32 highest(const f32 (&d)[SUMS][4], u32 first, u32 which) const
    {
        f32 top = 0;
#pragma unroll
        for (u32 n = first; n < first + 8; n++)
            top = int8_higher(int8_higher(top, d[n][2 * which]), d[n][2 * which + 1]);
        return int8_highest<4>(top);
    }
    __device__ __forceinline__ void stage_int8(const f32 (&d)[SUMS][4], u32 first, u32 which, f32 top) const
    {
        u32 row = threadIdx.x % 32 / 4 + which * 8;
        f32 inverse = int8_inverse(top);
#pragma unroll
        for (u32 n = first; n < first + 8; n += 2) {
            const f32 *a = &d[n][2 * which], *b = &d[n + 1][2 * which];
            u32 word = int8_word(int8_two(a[0], a[1], inverse), int8_two(b[0], b[1], inverse)),
                at = room + int8_number_at(row, 8 * n + int8_word_column());
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(word) : "memory");
        }
    }
    __device__ __forceinline__ void put_int8(const f32 (&d)[SUMS][4], const struct staged_place &w) const
    {
        const struct packed_out &next = t.pairs.packed_out;
        u8 *chunk = c.packed_at[0] + int8_chunk_at(w.first, w.column, next.n_cols);
        u32 lane = threadIdx.x % 32;

        wait_until_read();
        __syncwarp();
#pragma unroll
        for (u32 which = 0; which < 2; which++) {
            u32 row = lane / 4 + which * 8;
            f32 top[2] = { highest(d, 0, which), highest(d, 8, which) };
            if (next.form == PACKING_INT8_WIDE)
                top[0] = top[1] = int8_higher(top[0], top[1]);
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                stage_int8(d, half * 8, which, top[half]);
                if (lane % 4 == 0 && row < w.n_rows)
                    *(f32 *)(chunk + int8_scale_at(w.first + row, half * INT8_SCALE_COLUMNS)) =
                        int8_scale(top[half]);
            }
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
#endif
