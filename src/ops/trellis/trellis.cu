// trellis.cu - a product with EXL3 codes for up to 64 rows of activations, and for any number where a row
// must get the same bits whatever shares its step; see trellis.h.
//
// Computes   out = svh * H (W (H (suh * in)))  + bias + add. Bound by decoding, then by reading the codes.
//
//                k: a split's blocks of 128 columns, divided among 4 warps
//              +------+------+------+------+
//   128        | warp | warp | warp | warp |   x  16 rows of activations
//   outputs    |  0   |  2   |  4   |  6   |
//   of the     +------+------+------+------+
//   matrix     |  1   |  3   |  5   |  7   |      grid: (blocks of 128 outputs, splits, groups of 16 rows)
//              +------+------+------+------+
//
// Pipeline: each warp copies its next codes into a ring of its own in shared memory, the first before the
// inputs are there (programmatic dependent launch).
//
// Operands: the block turns its part of the rows itself and keeps them in shared memory as fragments, with a
// scale for each row and 128 columns. Codes become fragments in registers (trellis_decode.cuh): halves; or,
// of the codebook MUL1, whose numbers are sums of four bytes, the bytes themselves, which int8 tensor cores
// add up against four copies of an int8 activation.
// Reduction: the warps' sums in shared memory, in the order of the columns; then the splits' in memory, by
// the block that comes last, in the order of the splits. Which sums these are depends on the matrix alone.
// Epilogue: the last block has all of 128 outputs, which it turns back.
#include <type_traits>
#include "device/cuda/tile.cuh"
#include "ops/trellis/trellis_decode.cuh"

template <u32 BITS, u32 CODEBOOK, u32 EIGHTS> struct trellis_kernel {
    static constexpr bool BYTES = CODEBOOK == EXL3_MUL1;
    static constexpr u32 DEPTH = BITS <= 4 ? 8 : 4, TILE_WORDS = 8 * BITS,
                         STAGE_WORDS = TRELLIS_TILES * TILE_WORDS, LANE_WORDS = BYTES ? 1 : 2;

    const struct trellis_params &p;
    u32 *ring;   // [warp][DEPTH][STAGE_WORDS]
    u32 *x;      // [eight][tile of columns][lane][LANE_WORDS]
    f32 *scales; // [EIGHTS * 8][blocks]
    f32 *offsets;
    f32 (*all)[EXL3_BLOCK]; // [TRELLIS_SHARERS][EIGHTS * 8], in place of the ring and the rows
    u32 lane, warp, n_rows, first_row, first_block, n_blocks;
    const u32 *source; // this lane's part of the next stage to fetch
    u32 left, to;      // stages that are left to fetch; where this lane's part of the next one goes
    u32 to_last;

    f32 sums[TRELLIS_TILES][2][4];

    __device__ __forceinline__ trellis_kernel(const struct trellis_params &params, u32 *shared)
        : p(params), lane(threadIdx.x & 31), warp(threadIdx.x >> 5)
    {
        u32 n = n_rows_of(p.step, p.rows);

        first_row = blockIdx.z * TRELLIS_ROWS;
        n_rows = n > first_row ? min(n - first_row, EIGHTS * 8) : 0;
        first_block = blockIdx.y * p.split_blocks;
        n_blocks = min(p.split_blocks, p.n_in / EXL3_BLOCK - first_block);
        scales = (f32 *)shared;
        offsets = scales + EIGHTS * 8 * p.split_blocks;
        shared += trellis_scales_bytes(p.split_blocks, EIGHTS) / 4;
        all = (f32(*)[EXL3_BLOCK])shared;
        ring = shared + warp * DEPTH * STAGE_WORDS;
        x = shared + TRELLIS_WARPS * DEPTH * STAGE_WORDS;
#pragma unroll
        for (u32 i = 0; i < TRELLIS_TILES; i++)
#pragma unroll
            for (u32 e = 0; e < 8; e++)
                sums[i][e / 4][e % 4] = 0;
    }

    // Tiles of columns [first, end) are this warp's.
    __device__ __forceinline__ u32 first_tile() const
    {
        return n_blocks * 8 * (warp / 2) / TRELLIS_SHARERS;
    }
    __device__ __forceinline__ u32 end_tile() const
    {
        return n_blocks * 8 * (warp / 2 + 1) / TRELLIS_SHARERS;
    }
    __device__ __forceinline__ void begin_fetching()
    {
        source =
            (const u32 *)p.codes +
            ((u64)(first_block * 8 + first_tile()) * (p.n_out / EXL3_TILE) + blockIdx.x * 8 + warp % 2 * 4) *
                TILE_WORDS +
            lane * 4;
        left = end_tile() - first_tile();
        to = shared_place(ring + lane * 4);
        keep(to);
        to_last = to + (DEPTH - 1) * STAGE_WORDS * 4;
        for (u32 i = 0; i < DEPTH - 1; i++)
            fetch();
    }
    __device__ __forceinline__ void fetch()
    {
        if (left > 0) {
#pragma unroll
            for (u32 i = 0; i < (STAGE_WORDS / 4 + 31) / 32; i++)
                if (i * 128 + lane * 4 < STAGE_WORDS)
                    copy_to(to + i * 512, source + i * 128);
            source += p.n_out / EXL3_TILE * TILE_WORDS;
            left--;
        }
        copies_close();
        to += to == to_last ? 0u - (DEPTH - 1) * STAGE_WORDS * 4 : STAGE_WORDS * 4;
    }

    // A warp turns 128 columns of a row.
    __device__ __forceinline__ void turn(u32 row, u32 block)
    {
        u32 first = (first_block + block) * EXL3_BLOCK + 4 * lane;
        f32 v[4], most = 0, sum = 0;

#pragma unroll
        for (u32 i = 0; i < 4; i++)
            v[i] =
                first + i < p.n_cols && row < n_rows
                    ? __ldcg(p.in + (u64)(first_row + row) * p.n_cols + first + i) * half_at(p.suh, first + i)
                    : 0;
        turn_128(v);
#pragma unroll
        for (u32 i = 0; i < 4; i++)
            most = fmaxf(most, fabsf(v[i]));
        most = warp_max(most);
        f32 scale = BYTES ? most / 127 : most, back = most > 0 ? 1 / scale : 0;
        // columns 4 l to 4 l + 3: two lanes of the fragment, the same word of each
        u32 at = ((row / 8 * p.split_blocks + block) * 8 + lane / 4) * 32 + row % 8 * 4 + lane % 2 * 2,
            word = lane % 4 / 2;
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            if constexpr (BYTES) {
                i32 a = __float2int_rn(v[2 * i] * back), b = __float2int_rn(v[2 * i + 1] * back);
                sum += (f32)(a + b);
                ((u16 *)x)[(at + i) * 2 + word] = (u16)((a & 255) | (b & 255) << 8);
            } else {
                __half2 both = __floats2half2_rn(v[2 * i] * back, v[2 * i + 1] * back);
                x[(at + i) * 2 + word] = *(u32 *)&both;
            }
        if constexpr (BYTES)
            sum = warp_sum(sum);
        if (lane == 0) {
            scales[row * p.split_blocks + block] = BYTES ? scale * TRELLIS_MUL1_SCALE : scale;
            offsets[row * p.split_blocks + block] = sum * scale * TRELLIS_MUL1_OFFSET;
        }
    }
    __device__ __forceinline__ void turn_all()
    {
        for (u32 row = 0; row < n_rows; row++)
            for (u32 block = (warp + row * n_blocks) % TRELLIS_WARPS; block < n_blocks;
                 block += TRELLIS_WARPS)
                turn(row, block);
    }
    // Before the inputs are there: factors that will be read.
    __device__ __forceinline__ void prepare()
    {
        if (threadIdx.x < 2 * n_blocks)
            bring_near(p.suh + first_block * EXL3_BLOCK + threadIdx.x * 64);
        else if (threadIdx.x - 2 * n_blocks < 2)
            bring_near(p.svh + blockIdx.x * EXL3_BLOCK + (threadIdx.x - 2 * n_blocks) * 64);
    }

    // One tile of columns, whose codes lie at words[] and whose activations at at[], times four tiles of
    // outputs.
    template <class SUM>
    __device__ __forceinline__ void step(const u32 (&words)[3], u32 skip, const u32 (&at)[2],
                                         SUM (&into)[TRELLIS_TILES][2][4])
    {
        u32 a[2][4]; // of bytes: of the first two inputs, of the last two, each four times

#pragma unroll
        for (u32 e = 0; e < 2; e++) {
            if constexpr (BYTES) {
                u32 four = e < EIGHTS ? shared_word(at[e]) : 0;
                a[0][e] = __byte_perm(four, 0, 0x0000);
                a[0][2 + e] = __byte_perm(four, 0, 0x1111);
                a[1][e] = __byte_perm(four, 0, 0x2222);
                a[1][2 + e] = __byte_perm(four, 0, 0x3333);
            } else {
                a[0][e] = e < EIGHTS ? shared_word(at[e]) : 0;
                a[0][2 + e] = e < EIGHTS ? shared_word(at[e] + 4) : 0;
            }
        }
#pragma unroll
        for (u32 i = 0; i < TRELLIS_TILES; i++) {
            u32 s[8];
            tile_states<BITS>(words, i * TILE_WORDS * 4, skip, s);
#pragma unroll
            for (u32 h = 0; h < 2; h++) {
                const u32 *four = s + 4 * h;
                if constexpr (BYTES) {
                    mma_s8_u8(into[i][h], a[0], four[0] * EXL3_MARK_MUL1, four[1] * EXL3_MARK_MUL1);
                    mma_s8_u8(into[i][h], a[1], four[2] * EXL3_MARK_MUL1, four[3] * EXL3_MARK_MUL1);
                } else {
                    mma_f16(into[i][h], a[0], two_values<CODEBOOK>(four[0], four[1]),
                            two_values<CODEBOOK>(four[2], four[3]));
                }
            }
        }
    }

    // Until the end of a block of columns, then with its scales to the sums.
    __device__ __forceinline__ void multiply()
    {
        typedef typename std::conditional<BYTES, i32, f32>::type sum;
        const struct lane_window<BITS> window(lane);
        const bool exists[2] = { lane / 4 < n_rows, EIGHTS > 1 && 8 + lane / 4 < n_rows };
        u32 tile = first_tile(), end = end_tile(), begin = shared_place(ring), words[3], skip = window.skip,
            at[2];

        // a row that does not exist is the first one again: nobody reads its sums
        for (u32 e = 0; e < 2; e++)
            at[e] = shared_place(
                x + (((exists[e] ? e * p.split_blocks * 8 : 0) + tile) * 32 + (exists[e] ? lane : lane % 4)) *
                        LANE_WORDS);
#pragma unroll
        for (u32 i = 0; i < 3; i++) {
            words[i] = begin + window.at[i];
            keep(words[i]);
        }
        keep(skip);
        keep(at[0]);
        keep(at[1]);
        u32 last = words[0] + (DEPTH - 1) * STAGE_WORDS * 4; // then from the ring's begin on
        while (tile < end) {
            u32 n = min(end, (tile | 7) + 1) - tile, block = tile / 8;
            sum own[TRELLIS_TILES][2][4] = {};
            tile += n;
#pragma unroll 1
            for (; n > 0; n--) {
                copies_wait<DEPTH - 2>();
                __syncwarp();
                fetch();
                step(words, skip, at, own);
                u32 next = words[0] == last ? 0u - (DEPTH - 1) * STAGE_WORDS * 4 : STAGE_WORDS * 4;
#pragma unroll
                for (u32 i = 0; i < lane_window<BITS>::WORDS; i++)
                    words[i] += next;
                at[0] += 32 * LANE_WORDS * 4;
                at[1] += 32 * LANE_WORDS * 4;
            }
            f32 scale[2] = { exists[0] ? scales[lane / 4 * p.split_blocks + block] : 0,
                             exists[1] ? scales[(8 + lane / 4) * p.split_blocks + block] : 0 };
#pragma unroll
            for (u32 i = 0; i < TRELLIS_TILES; i++)
#pragma unroll
                for (u32 e = 0; e < 8; e++)
                    if (e % 4 < 2 * EIGHTS)
                        sums[i][e / 4][e % 4] += (f32)own[i][e / 4][e % 4] * scale[e % 4 / 2];
        }
    }

    __device__ __forceinline__ void store_sums()
    {
        f32(*own)[EXL3_BLOCK] = all + warp / 2 * EIGHTS * 8;

#pragma unroll
        for (u32 i = 0; i < TRELLIS_TILES; i++)
#pragma unroll
            for (u32 e = 0; e < 8; e += 2) {
                u32 row = lane / 4 + e % 4 / 2 * 8, o = (warp % 2 * 4 + i) * 16 + e / 4 * 8 + lane % 4 * 2;
                if (e % 4 < 2 * EIGHTS && row < n_rows)
                    *(float2 *)&own[row][o] = make_float2(sums[i][e / 4][e % 4], sums[i][e / 4][e % 4 + 1]);
            }
    }

    // The sums of all warps, those of the first columns first, and of this split's offsets.
    __device__ __forceinline__ f32 sum_of(u32 row, u32 o) const
    {
        f32 sum = all[row][o], offset = 0;

#pragma unroll
        for (u32 sharer = 1; sharer < TRELLIS_SHARERS; sharer++)
            sum += all[sharer * EIGHTS * 8 + row][o];
        for (u32 b = 0; BYTES && b < n_blocks; b++)
            offset += offsets[row * p.split_blocks + b];
        return sum + offset;
    }

    // Whether this block has all splits' sums, in `all`: it came last.
    __device__ __forceinline__ bool gather()
    {
        __shared__ u32 before;
        f32 *group =
            p.partial + (u64)blockIdx.z * p.n_splits * TRELLIS_ROWS * p.n_out + blockIdx.x * EXL3_BLOCK;
        u32 *arrived = p.arrived + blockIdx.z * gridDim.x + blockIdx.x;
        u64 split = (u64)TRELLIS_ROWS * p.n_out;

        for (u32 i = threadIdx.x; i < n_rows * EXL3_BLOCK; i += TRELLIS_WARPS * 32) {
            u32 row = i / EXL3_BLOCK, o = i % EXL3_BLOCK;
            f32 sum = sum_of(row, o);
            if (p.n_splits == 1)
                all[row][o] = sum;
            else
                __stcg(group + blockIdx.y * split + (u64)row * p.n_out + o, sum);
        }
        if (p.n_splits > 1)
            __threadfence();
        __syncthreads();
        if (p.n_splits == 1)
            return true;
        if (threadIdx.x == 0)
            before = atomicAdd(arrived, 1u);
        __syncthreads();
        if (before + 1 < p.n_splits)
            return false;
        __threadfence();
        for (u32 i = threadIdx.x; i < n_rows * EXL3_BLOCK; i += TRELLIS_WARPS * 32) {
            const f32 *at = group + (u64)(i / EXL3_BLOCK) * p.n_out + i % EXL3_BLOCK;
            f32 sum = 0;
#pragma unroll 8
            for (u32 s = 0; s < p.n_splits; s++)
                sum += __ldcg(at + s * split);
            all[i / EXL3_BLOCK][i % EXL3_BLOCK] = sum;
        }
        if (threadIdx.x == 0)
            *arrived = 0;
        __syncthreads();
        return true;
    }

    __device__ __forceinline__ void finish()
    {
        for (u32 row = warp; row < n_rows; row += TRELLIS_WARPS) {
            u32 first = blockIdx.x * EXL3_BLOCK + 4 * lane;
            f32 v[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                v[i] = all[row][4 * lane + i];
            turn_128(v);
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                if (first + i < p.n_rows) {
                    u64 at = (u64)(first_row + row) * p.n_rows + first + i;
                    f32 sum = v[i] * half_at(p.svh, first + i);
                    sum += p.bias ? p.bias[first + i] : 0;
                    p.out[at] = p.add ? sum + p.add[at] : sum;
                }
        }
    }

    __device__ __forceinline__ void run()
    {
        if (n_rows > 0) {
            begin_fetching();
            prepare();
        }
        wait_for_inputs();
        if (n_rows == 0)
            return;
        turn_all();
        __syncthreads();
        multiply();
        copies_wait<0>();
        __syncthreads();
        store_sums();
        __syncthreads();
        if (gather())
            finish();
    }
};

#define TRELLIS_KERNEL(bits, name, codebook, eights)                                        \
    extern "C" __global__ void __launch_bounds__(TRELLIS_WARPS * 32, eights == 1 ? 3 : 2)   \
        trellis_##name##_##bits##_##eights(const __grid_constant__ struct trellis_params p) \
    {                                                                                       \
        struct trellis_kernel<bits, codebook, eights> k(p, (u32 *)trellis_shared);          \
        k.run();                                                                            \
    }
#define TRELLIS_BITS(name, codebook, eights)  \
    TRELLIS_KERNEL(1, name, codebook, eights) \
    TRELLIS_KERNEL(2, name, codebook, eights) \
    TRELLIS_KERNEL(3, name, codebook, eights) \
    TRELLIS_KERNEL(4, name, codebook, eights) \
    TRELLIS_KERNEL(5, name, codebook, eights) \
    TRELLIS_KERNEL(6, name, codebook, eights) \
    TRELLIS_KERNEL(7, name, codebook, eights) \
    TRELLIS_KERNEL(8, name, codebook, eights)
TRELLIS_BITS(3inst, EXL3_3INST, 1)
TRELLIS_BITS(mcg, EXL3_MCG, 1)
TRELLIS_BITS(mul1, EXL3_MUL1, 1)
TRELLIS_BITS(3inst, EXL3_3INST, 2)
TRELLIS_BITS(mcg, EXL3_MCG, 2)
TRELLIS_BITS(mul1, EXL3_MUL1, 2)
