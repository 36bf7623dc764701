// trellis_kernel.cuh - the product of trellis.cu, which see; its parts for one row are those of
// trellis_hopper.cu too.
#pragma once
#include <type_traits>
#include <utility>
#include "device/cuda/tile.cuh"
#include "ops/trellis/trellis_rows.cuh"

// 128 columns of a row, turned by a warp, to a record (trellis_cuda.h).
template <bool BYTES, u32 ROWS> struct trellis_record {
    static constexpr u32 EIGHTS = trellis_eights(ROWS), LANES = trellis_lanes(ROWS),
                         LANE_WORDS = trellis_lane_words(BYTES, ROWS),
                         QUAD_WORDS = EIGHTS * LANES * LANE_WORDS,
                         SCALES = trellis_record_numbers(BYTES, ROWS), OFFSETS = SCALES + ROWS,
                         WORDS = trellis_record_words(BYTES, ROWS);

    static __device__ __forceinline__ void turn(const struct trellis_columns &columns, u32 *record, u32 row)
    {
        u32 lane = threadIdx.x & 31;
        i32 sum = 0;
        f32 v[4], most = columns.turned(v);
        f32 scale = BYTES ? most / 127 : most, back = most > 0 ? 1 / scale : 0;
        // columns 4 l to 4 l + 3: two pairs of 2 t and 2 t + 1, or of those behind 8
        u32 owner = (lane / 16 * EIGHTS + row / 8) * LANES + row % 8 * 4 + lane / 4 % 4,
            pair = owner * 8 + lane % 2 * 4 + lane % 4 / 2;
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            if constexpr (BYTES) {
                i32 a = __float2int_rn(v[2 * i] * back), b = __float2int_rn(v[2 * i + 1] * back);
                sum += a + b;
                if constexpr (ROWS == 1) { // each four times, for dot products
                    u32 *to = record + (lane / 16 * 4 + lane / 4 % 4) * LANE_WORDS + lane % 2 * 8 +
                              lane % 4 / 2 * 2;
                    to[4 * i] = (u32)(a & 255) * 0x01010101u;
                    to[4 * i + 1] = (u32)(b & 255) * 0x01010101u;
                } else
                    ((u16 *)record)[pair + 2 * i] = (u16)((a & 255) | (b & 255) << 8);
            } else {
                __half2 both = __floats2half2_rn(v[2 * i] * back, v[2 * i + 1] * back);
                record[pair + 2 * i] = *(u32 *)&both;
            }
        if constexpr (BYTES)
            sum = __reduce_add_sync(~0u, sum);
        if (lane == 0) {
            ((f32 *)record)[SCALES + row] = BYTES ? scale * TRELLIS_MUL1_SCALE : scale;
            ((f32 *)record)[OFFSETS + row] = (f32)sum * scale * TRELLIS_MUL1_OFFSET;
        }
    }
};

template <u32 BITS, bool BYTES, u32 ROWS> struct trellis_kernel {
    typedef struct trellis_record<BYTES, ROWS> record;
    static constexpr bool HALVES_OF_TILES = BYTES && ROWS == 1; // a lane decodes, of a quad; see `words`
    static constexpr u32 DEPTH = trellis_depth(BITS), PITCH = trellis_pitch(BITS, HALVES_OF_TILES),
                         STAGE = 4 * PITCH * 4, ROW_WORDS = TRELLIS_TILES * 8 * BITS, LANES = record::LANES,
                         LANE_WORDS = record::LANE_WORDS, EIGHTS = record::EIGHTS;
    typedef typename std::conditional<BYTES, i32, f32>::type sum;

    const struct trellis_params &p;
    const struct trellis_matrix *m;
    u32 *ring;              // [warp][DEPTH][4 tiles of a quad][PITCH]
    u32 *records;           // [block][record::WORDS]
    f32 (*all)[EXL3_BLOCK]; // [TRELLIS_SHARERS][ROWS]
    u32 lane, warp, n_rows, first_row, first_block, n_blocks;
    u32 column, block_out; // of 128 outputs: of all matrices', of its matrix's
    const u32 *source;     // this lane's part of the next stage to fetch
    u32 stride;            // bytes to its part of the one after that
    i32 left;              // stages that are left to fetch
    u32 to;                // where this lane's part of the ring's first stage goes
    u32 words;             // of that stage, the codes that this lane decodes
    u32 stage, free;       // bytes to the stage to multiply, and to that which was before it

    f32 sums[TRELLIS_TILES][EIGHTS][4];

    __device__ __forceinline__ trellis_kernel(const struct trellis_params &params, u32 *shared)
        : p(params), lane(threadIdx.x & 31), warp(threadIdx.x >> 5)
    {
        u32 n = n_rows_of(p.step, p.rows);

        first_row = blockIdx.z * TRELLIS_ROWS;
        n_rows = n > first_row ? min(n - first_row, ROWS) : 0;
        first_block = blockIdx.y * p.split_blocks;
        n_blocks = min(p.split_blocks, p.n_in / EXL3_BLOCK - first_block);
        records = shared;
        shared += p.split_blocks * record::WORDS;
        all = (f32(*)[EXL3_BLOCK])shared;
        ring = shared + TRELLIS_SHARERS * ROWS * EXL3_BLOCK + warp * DEPTH * STAGE / 4;
    }

    // Quads [first, end) are this warp's.
    __device__ __forceinline__ u32 first_quad() const
    {
        return n_blocks * 2 * (warp / TRELLIS_ACROSS) / TRELLIS_SHARERS;
    }
    __device__ __forceinline__ u32 end_quad() const
    {
        return n_blocks * 2 * (warp / TRELLIS_ACROSS + 1) / TRELLIS_SHARERS;
    }
    // A quad of a block of all matrices' outputs is next. Eight lanes copy each of its tiles.
    __device__ __forceinline__ void fetch_from(u32 quad, u32 block)
    {
        u32 tile = (first_block * 2 + quad) * 4 + lane / 8;
        const struct trellis_matrix *of = trellis_matrix_of(p, block);
        source = (const u32 *)of->codes +
                 ((u64)tile * (of->n_out / EXL3_TILE) + block * 8 + warp % TRELLIS_ACROSS * TRELLIS_TILES) *
                     8 * BITS +
                 lane % 8 * 4;
        stride = of->n_out / EXL3_TILE * 4 * 32 * BITS;
        keep(stride);
    }
    // The first stages of a block of all matrices' outputs.
    __device__ __forceinline__ void begin_fetching(u32 block)
    {
        fetch_from(first_quad(), block);
        left = (i32)(end_quad() - first_quad());
        to = shared_place(ring + lane / 8 * PITCH + lane % 8 * 4);
        keep(to);
        words = shared_place(ring + lane % 4 * PITCH + lane / 4 * (HALVES_OF_TILES ? 4 * BITS : BITS));
        keep(words);
        stage = 0;
        free = (DEPTH - 1) * STAGE;
        for (u32 i = 0; i < DEPTH - 1; i++)
            fetch(i * STAGE);
    }
    __device__ __forceinline__ void fetch(u32 at)
    {
        if (left > 0)
#pragma unroll
            for (u32 i = 0; i < ROW_WORDS / 32; i++)
                copy_to(to + at + i * 128, source + i * 32);
        copies_close();
        source = (const u32 *)((const u8 *)source + stride);
        left--;
    }

    // One row is turned by every block that needs it; several are by trellis_turn.
    __device__ __forceinline__ void take_rows()
    {
        if constexpr (ROWS == 1) {
            u32 end = min(p.n_cols, (first_block + n_blocks) * EXL3_BLOCK);
            struct trellis_columns next;
            next.load(p, m->suh, first_block + warp, first_row, end);
#pragma unroll 1
            for (u32 block = warp; block < n_blocks; block += TRELLIS_WARPS) {
                struct trellis_columns columns = next;
                next.load(p, m->suh, first_block + block + TRELLIS_WARPS, first_row, end);
                record::turn(columns, records + block * record::WORDS, 0);
            }
        } else {
            const uint4 *from =
                (const uint4 *)(m->turned +
                                (u64)(blockIdx.z * (p.n_in / EXL3_BLOCK) + first_block) * record::WORDS);
            for (u32 i = threadIdx.x; i < n_blocks * record::WORDS / 4; i += TRELLIS_WARPS * 32)
                ((uint4 *)records)[i] = __ldcg(from + i);
        }
    }
    // Before the inputs are there: factors that will be read.
    __device__ __forceinline__ void prepare()
    {
        u32 block = blockIdx.x;
        const struct trellis_matrix *of = trellis_matrix_of(p, block);
        if (ROWS == 1 && threadIdx.x < 2 * n_blocks)
            bring_near(of->suh + first_block * EXL3_BLOCK + threadIdx.x * 64);
        else if (threadIdx.x - 2 * n_blocks < 2)
            bring_near(of->svh + block * EXL3_BLOCK + (threadIdx.x - 2 * n_blocks) * 64);
    }

    __device__ __forceinline__ u32 two(u32 first, u32 second) const
    {
        return two_of_halves(first, second, p.factor * TRELLIS_ONCE, p.more);
    }
    // Positions 8 T to 8 T + 7 of a lane.
    template <u32 T>
    __device__ __forceinline__ void part(const u32 (&words)[BITS + 1], const u32 (&rows)[EIGHTS][16],
                                         sum (&into)[EIGHTS][4])
    {
        u32 s[8];

        states_of_lane<BITS, T>(words, s);
        if constexpr (BYTES) {
            const u32 first[4] = { s[0] * TRELLIS_MUL1_ONCE, s[4] * TRELLIS_MUL1_ONCE,
                                   s[1] * TRELLIS_MUL1_ONCE, s[5] * TRELLIS_MUL1_ONCE },
                      last[4] = { s[2] * TRELLIS_MUL1_ONCE, s[6] * TRELLIS_MUL1_ONCE,
                                  s[3] * TRELLIS_MUL1_ONCE, s[7] * TRELLIS_MUL1_ONCE };
#pragma unroll
            for (u32 e = 0; e < EIGHTS; e++) {
                mma_u8_s8(into[e], first, rows[e][4 * T], rows[e][4 * T + 1]);
                mma_u8_s8(into[e], last, rows[e][4 * T + 2], rows[e][4 * T + 3]);
            }
        } else {
            const u32 halves[4] = { two(s[0], s[1]), two(s[4], s[5]), two(s[2], s[3]), two(s[6], s[7]) };
#pragma unroll
            for (u32 e = 0; e < EIGHTS; e++)
                mma_f16(into[e], halves, rows[e][2 * T], rows[e][2 * T + 1]);
        }
    }

    // Position I of a lane's half of a tile. A dot product for each takes fewer clocks than instructions of
    // the tensor cores, of whose eight rows one would be used.
    template <u32 I>
    __device__ __forceinline__ void dot(const u32 (&w)[4 * BITS + 1], const u32 (&rows)[16],
                                        sum (&into)[TRELLIS_TILES][EIGHTS][4])
    {
        i32 &to = into[I / 32][0][I % 8 / 4 * 2];
        to = dot_u8_s8(state_of_lane<BITS, I>(w) * TRELLIS_MUL1_ONCE, rows[I / 8 % 4 * 4 + I % 4], to);
    }
    template <u32... I>
    __device__ __forceinline__ void dots(std::integer_sequence<u32, I...>, const u32 (&w)[4 * BITS + 1],
                                         const u32 (&rows)[16], sum (&into)[TRELLIS_TILES][EIGHTS][4])
    {
        (dot<position_in_turn<BITS>(I)>(w, rows, into), ...);
    }
    __device__ __forceinline__ void step_of_row(u32 codes, u32 at, sum (&into)[TRELLIS_TILES][EIGHTS][4])
    {
        u32 rows[16], own[4 * BITS], w[4 * BITS + 1];

        shared_words(at, rows);
        shared_words(codes, own);
        w[0] = __shfl_xor_sync(~0u, own[4 * BITS - 1], 4); // a tile is a ring
#pragma unroll
        for (u32 k = 0; k < 4 * BITS; k++)
            w[k + 1] = own[k];
        dots(std::make_integer_sequence<u32, EXL3_BLOCK>(), w, rows, into);
    }

    // A quad of each tile of outputs; the rows lie at `at`.
    __device__ __forceinline__ void step(const u32 (&at)[EIGHTS], sum (&into)[TRELLIS_TILES][EIGHTS][4])
    {
        u32 rows[EIGHTS][16]; // of bytes: each four times

#pragma unroll
        for (u32 e = 0; e < EIGHTS; e++) {
            u32 packed[LANE_WORDS];
            shared_words(at[e], packed);
#pragma unroll
            for (u32 i = 0; i < 16; i++)
                rows[e][i] = BYTES            ? __byte_perm(packed[i / 4], 0, i % 4 * 0x1111)
                             : i < LANE_WORDS ? packed[i % LANE_WORDS]
                                              : 0;
        }
#pragma unroll
        for (u32 i = 0; i < TRELLIS_TILES; i++) {
            u32 own[BITS], w[BITS + 1];
            shared_words(words + stage + i * 8 * BITS * 4, own);
            w[0] = __shfl_sync(~0u, own[BITS - 1], (lane + 28) & 31);
#pragma unroll
            for (u32 k = 0; k < BITS; k++)
                w[k + 1] = own[k];
            part<0>(w, rows, into[i]);
            part<1>(w, rows, into[i]);
            part<2>(w, rows, into[i]);
            part<3>(w, rows, into[i]);
        }
    }

    // Until the end of a block of columns, then with its scales to the sums. A lane has rows 2 q and 2 q + 1
    // of outputs g and g + 8 of each tile; of one row four outputs below each other and those 8 further, of
    // tile g / 2.
    __device__ __forceinline__ void multiply()
    {
        u32 quad = first_quad(), end = end_quad(), at[EIGHTS];

#pragma unroll
        for (u32 i = 0; i < TRELLIS_TILES; i++)
#pragma unroll
            for (u32 e = 0; e < EIGHTS * 4; e++)
                sums[i][e / 4][e % 4] = 0;
#pragma unroll
        for (u32 e = 0; e < EIGHTS; e++) {
            // a row that does not exist is the first one again: nobody reads its sums
            u32 own = e * 8 + lane / 4 < n_rows && ROWS > 1 ? e * LANES + lane : lane % 4;
            at[e] = shared_place(records + quad / 2 * record::WORDS + quad % 2 * record::QUAD_WORDS +
                                 own * LANE_WORDS);
            keep(at[e]);
        }
        while (quad < end) {
            u32 n = min(end, (quad | 1) + 1) - quad, block = quad / 2;
            sum own[TRELLIS_TILES][EIGHTS][4] = {};
            quad += n;
#pragma unroll 1
            do {
                copies_wait<DEPTH - 2>();
                __syncwarp();
                fetch(free);
                if constexpr (HALVES_OF_TILES)
                    step_of_row(words + stage, at[0], own);
                else
                    step(at, own);
                free = stage;
                stage = stage == (DEPTH - 1) * STAGE ? 0 : stage + STAGE;
#pragma unroll
                for (u32 e = 0; e < EIGHTS; e++)
                    at[e] += record::QUAD_WORDS * 4;
            } while (--n > 0);
#pragma unroll
            for (u32 e = 0; e < EIGHTS; e++) {
                at[e] += (record::WORDS - 2 * record::QUAD_WORDS) * 4;
                u32 row = ROWS > 1 ? e * 8 + lane % 4 * 2 : 0;
                const f32 *of = (const f32 *)records + block * record::WORDS + record::SCALES + row;
                f32 scale[2] = { row < n_rows ? of[0] : 0, row + 1 < n_rows ? of[1] : 0 };
#pragma unroll
                for (u32 i = 0; i < TRELLIS_TILES; i++)
#pragma unroll
                    for (u32 j = 0; j<4; j += ROWS> 1 ? 1 : 2)
                        sums[i][e][j] = __fmaf_rn((f32)own[i][e][j], scale[j % 2], sums[i][e][j]);
            }
        }
        __syncwarp(); // all have read the last stages
    }

    __device__ __forceinline__ void store_sums(f32 (*to)[EXL3_BLOCK])
    {
        f32(*own)[EXL3_BLOCK] = to + warp / TRELLIS_ACROSS * ROWS;

        if constexpr (HALVES_OF_TILES) {
            store_parts(own[0]);
            return;
        }
#pragma unroll
        for (u32 i = 0; i < TRELLIS_TILES; i++)
#pragma unroll
            for (u32 e = 0; e < EIGHTS * 4; e++) {
                u32 row = e / 4 * 8 + lane % 4 * 2 + e % 2,
                    o = (warp % TRELLIS_ACROSS * TRELLIS_TILES + i) * 16 + e % 4 / 2 * 8 + lane / 4;
                if (row < n_rows)
                    own[row][o] = sums[i][e / 4][e % 4];
            }
    }
    // Of one row: four lanes have the parts of eight sums, and each gets two of them.
    __device__ __forceinline__ void store_parts(f32 (&to)[EXL3_BLOCK])
    {
        bool second = lane & 1, fourth = lane & 2;
        f32 v[4];

#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            f32 upper = sums[i][0][0], lower = sums[i][0][2];
            v[i] = (second ? lower : upper) + __shfl_xor_sync(~0u, second ? upper : lower, 1);
        }
#pragma unroll
        for (u32 i = 0; i < 2; i++)
            v[i] = (fourth ? v[i + 2] : v[i]) + __shfl_xor_sync(~0u, fourth ? v[i] : v[i + 2], 2);
        u32 tile = warp % TRELLIS_ACROSS * TRELLIS_TILES + lane / 8;
        *(float2 *)(to + tile * 16 + lane % 2 * 8 + lane / 4 % 2 * 4 + lane % 4 / 2 * 2) =
            make_float2(v[0], v[1]);
    }

    // The sums of all warps, those of the first columns first, and of this split's offsets.
    __device__ __forceinline__ f32 sum_of(u32 row, u32 o) const
    {
        f32 sum = all[row][o], offset = 0;

#pragma unroll
        for (u32 sharer = 1; sharer < TRELLIS_SHARERS; sharer++)
            sum += all[sharer * ROWS + row][o];
        for (u32 b = 0; BYTES && b < n_blocks; b++)
            offset += ((const f32 *)records)[b * record::WORDS + record::OFFSETS + row];
        return sum + offset;
    }

    // Whether this block has all splits' sums, in `all`: it came last.
    __device__ __forceinline__ bool gather()
    {
        __shared__ u32 before;
        u32 n_out = p.blocks_out * EXL3_BLOCK;
        u32 *arrived = p.arrived + blockIdx.z * p.blocks_out + column;
        u64 split = (u64)TRELLIS_ROWS * n_out;
        f32 *group = p.partial + blockIdx.z * p.n_splits * split + column * EXL3_BLOCK;

        for (u32 i = threadIdx.x; i < n_rows * EXL3_BLOCK; i += TRELLIS_WARPS * 32) {
            u32 row = i / EXL3_BLOCK, o = i % EXL3_BLOCK;
            f32 sum = sum_of(row, o);
            if (p.n_splits == 1)
                all[row][o] = sum;
            else
                __stcg(group + blockIdx.y * split + row * n_out + o, sum);
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
            const f32 *at = group + i / EXL3_BLOCK * n_out + i % EXL3_BLOCK;
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
            f32 v[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                v[i] = all[row][4 * lane + i];
            trellis_write(m, block_out, first_row + row, v);
        }
    }

    __device__ __forceinline__ void run()
    {
        if (n_rows > 0) {
            begin_fetching(blockIdx.x);
            prepare();
        }
        wait_for_inputs();
        if (n_rows == 0)
            return;
        const struct trellis_matrix *turned = nullptr;
        for (column = blockIdx.x; column < p.blocks_out; column += gridDim.x) {
            block_out = column;
            m = trellis_matrix_of(p, block_out);
            if (m != turned) {
                take_rows();
                turned = m;
                __syncthreads();
            }
            multiply();
            if (column + gridDim.x < p.blocks_out)
                begin_fetching(column + gridDim.x);
            store_sums(all);
            __syncthreads();
            if (gather())
                finish();
            __syncthreads(); // then others may write what was read
        }
    }
};
