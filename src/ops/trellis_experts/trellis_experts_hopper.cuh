// trellis_experts_hopper.cuh - a row's products with codes of the codebook MUL1 by Hopper's wgmma.
//
//                     k: a split's blocks of 128 columns, the first half and the second
//                   +-------------+-------------+
//   128 outputs     | warps 0..3  | warps 4..7  |  x  8 columns of the tensor cores, of which two
//                   | 32 each     | 32 each     |     are the row's digits
//                   +-------------+-------------+
//
// A number of MUL1 is a sum of four bytes, which wgmma multiplies by four copies of an int8 digit; two digits
// of an activation, 15 bits, cost what one does. Codes become fragments in registers. Sums over a quad's
// lanes and over a warp's columns are wgmma's own.
// Pipeline: a warp copies its next codes, 128 columns of its two tiles of outputs, into a ring of its own in
// shared memory.
#pragma once
#include "device/cuda/tile.cuh"
#include "gemm/cuda/pipeline.cuh"
#include "ops/trellis/trellis_decode.cuh"
#include "ops/trellis_experts/trellis_experts_cuda.h"

// d = or d += a b: 16 of 64 rows of 32 bytes, times 8 columns.
static __device__ __forceinline__ void wgmma_begin(i32 (&d)[4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 0;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
static __device__ __forceinline__ void wgmma_add(i32 (&d)[4], const u32 (&a)[4], u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.s8 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, 1;"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#define A4(i) "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])
static __device__ __forceinline__ void wgmma_fence(u32 (&a)[4][4]) // its numbers are complete
{
    asm volatile("wgmma.fence.sync.aligned;" : A4(0), A4(1), A4(2), A4(3)::"memory");
}
static __device__ __forceinline__ void wgmma_order() // closes a group of products, waits for the one before
{
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
}
static __device__ __forceinline__ void wgmma_finish()
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// Positions 8 T to 8 T + 7 of a lane: fragments of two products, inputs 2 T + {0, 1} and 2 T + {8, 9}.
template <u32 BITS, u32 T>
static __device__ __forceinline__ void fragments(const u32 (&w)[BITS + 1], u32 (&low)[4], u32 (&high)[4])
{
    u32 s[8];

    states_of_lane<BITS, T>(w, s);
    low[0] = s[0] * TRELLIS_MUL1_ONCE;
    low[1] = s[4] * TRELLIS_MUL1_ONCE;
    low[2] = s[1] * TRELLIS_MUL1_ONCE;
    low[3] = s[5] * TRELLIS_MUL1_ONCE;
    high[0] = s[2] * TRELLIS_MUL1_ONCE;
    high[1] = s[6] * TRELLIS_MUL1_ONCE;
    high[2] = s[3] * TRELLIS_MUL1_ONCE;
    high[3] = s[7] * TRELLIS_MUL1_ONCE;
}

// A record: 128 turned numbers of the row in the order in which products read them, each of two int8 digits
// and each digit four times; the digits' scales; and what the sums are short of. A product reads digits of
// the four tiles of a quad, of two inputs. Its columns are 16 bytes apart: the first digits, the second ones,
// and six that lie behind, whose sums nobody reads.
struct hopper_record {
    u32 digits[2][8][2][2][4]; // [quad][product][of its two inputs][digit][tile]
    f32 scale[2], short_of;
    u32 reserved;
};
enum { SECOND_DIGIT = 254 }; // of which one is 1 of the first

// 128 turned numbers of the row, of a warp, to a record.
static __device__ __forceinline__ void store_record(struct hopper_record *r, const f32 (&v)[4], f32 most)
{
    u32 lane = threadIdx.x & 31;
    f32 scale = most / 127, back = most > 0 ? 1 / scale : 0, sum = 0;

#pragma unroll
    for (u32 i = 0; i < 4; i++) {
        f32 number = v[i] * back;
        i32 first = __float2int_rn(number), second = __float2int_rn((number - (f32)first) * SECOND_DIGIT);
        u32 in = lane % 4 * 4 + i; // of tile lane / 4
        u32(*to)[4] = r->digits[lane / 16][in % 8 / 2 * 2 + in / 8][in % 2];
        to[0][lane / 4 % 4] = (u32)(first & 255) * 0x01010101u;
        to[1][lane / 4 % 4] = (u32)(second & 255) * 0x01010101u;
        sum += (f32)first + (f32)second * (1.0f / SECOND_DIGIT);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        r->scale[0] = scale * TRELLIS_MUL1_SCALE;
        r->scale[1] = scale * (TRELLIS_MUL1_SCALE / SECOND_DIGIT);
        r->short_of = sum * scale * TRELLIS_MUL1_OFFSET;
    }
}
// By the eight warps: all see the records that they have stored.
static __device__ __forceinline__ void records_meet()
{
    asm volatile("fence.proxy.async.shared::cta;\nbar.sync 1, %0;" ::"n"(TRELLIS_EXPERTS_WARPS * 32)
                 : "memory");
}

template <u32 BITS> struct hopper_products {
    static constexpr u32 TILE_WORDS = 8 * BITS, ROW_WORDS = TRELLIS_HOPPER_TILES * TILE_WORDS,
                         PITCH = trellis_hopper_pitch(BITS), DEPTH = trellis_depth(BITS),
                         STAGE_BYTES = 2 * 4 * PITCH * 4, RING_BYTES = DEPTH * STAGE_BYTES;
    static constexpr u64 NEXT = 64 / 16; // from the digits of one product to those of the next
    typedef u32 fragment[4];

    struct hopper_record *records; // of the split's blocks of columns
    f32 (*all)[2][EXL3_BLOCK];     // sums: [two blocks of outputs in turn][half of the columns]
    u32 full, empty;               // their barriers
    u32 lane, warp, first_block, n_blocks;
    u32 first, end;    // of the split's blocks of columns, this warp's
    const u32 *source; // this lane's part of the next quad to fetch
    u64 stride;        // words to its part of the one after that
    u32 left, to;      // stages that are left to fetch; where this lane's part of the next one goes
    u32 ring, words;   // this warp's ring; the stage to multiply

    // Of blockIdx.y's split.
    __device__ __forceinline__ hopper_products(u32 *shared, u32 n_in, u32 split_blocks)
        : lane(threadIdx.x & 31), warp(__shfl_sync(~0u, threadIdx.x >> 5, 0)) // uniform, for wgmma
    {
        first_block = blockIdx.y * split_blocks;
        n_blocks = min(split_blocks, n_in / EXL3_BLOCK - first_block);
        first = n_blocks * (warp / 4) / 2;
        end = n_blocks * (warp / 4 + 1) / 2;
        full = shared_place(shared);
        empty = full + 16;
        records = (struct hopper_record *)(shared + TRELLIS_BARRIER_WORDS);
        all = (f32(*)[2][EXL3_BLOCK])(records + split_blocks);
        ring = shared_place(all + 2) + warp * RING_BYTES;
        if (threadIdx.x < 2) {
            barrier_begin(full + threadIdx.x * 8, TRELLIS_EXPERTS_WARPS);
            barrier_begin(empty + threadIdx.x * 8, 1);
        }
        __syncthreads();
    }

    // The first stages of 128 outputs of a matrix of n_out, from `block` on. Eight lanes copy each of a
    // quad's rows of tiles.
    __device__ __forceinline__ void begin_fetching(const u16 *codes, u32 n_out, u32 block)
    {
        u32 tiles = n_out / EXL3_TILE, row = (first_block + first) * 8 + lane / 8,
            tile = block * 8 + warp % 4 * TRELLIS_HOPPER_TILES;

        source = (const u32 *)codes + ((u64)row * tiles + tile) * TILE_WORDS + lane % 8 * 4;
        stride = (u64)tiles * 4 * TILE_WORDS;
        left = end - first;
        to = ring + (lane / 8 * PITCH + lane % 8 * 4) * 4;
        words = ring + (lane % 4 * PITCH + lane / 4 * BITS) * 4;
        for (u32 i = 0; i < DEPTH - 1; i++)
            fetch();
    }
    __device__ __forceinline__ void fetch()
    {
        if (left > 0) {
#pragma unroll
            for (u32 quad = 0; quad < 2; quad++, source += stride)
#pragma unroll
                for (u32 i = 0; i < (ROW_WORDS + 31) / 32; i++)
                    if (i * 32 + 32 <= ROW_WORDS || i * 32 + lane % 8 * 4 < ROW_WORDS)
                        copy_to(to + quad * 4 * PITCH * 4 + i * 128, source + i * 32);
            left--;
        }
        copies_close();
        to += to >= ring + RING_BYTES - STAGE_BYTES ? STAGE_BYTES - RING_BYTES : STAGE_BYTES;
    }

    __device__ __forceinline__ void take_words(u32 at, u32 (&w)[BITS + 1])
    {
        u32 own[BITS];

        shared_words(at, own);
        w[0] = __shfl_sync(~0u, own[BITS - 1], (lane + 28) & 31);
#pragma unroll
        for (u32 k = 0; k < BITS; k++)
            w[k + 1] = own[k];
    }
    // Half of a quad of a tile of outputs: positions 8 T to 8 T + 15 of a lane.
    template <u32 T>
    __device__ __forceinline__ void half_quad(const u32 (&w)[BITS + 1], fragment (&a)[4], i32 (&d)[4],
                                              u64 digits, bool begins)
    {
        fragments<BITS, T>(w, a[0], a[1]);
        fragments<BITS, T + 1>(w, a[2], a[3]);
        wgmma_fence(a);
        if (begins)
            wgmma_begin(d, a[0], digits);
        else
            wgmma_add(d, a[0], digits);
        wgmma_add(d, a[1], digits + NEXT);
        wgmma_add(d, a[2], digits + 2 * NEXT);
        wgmma_add(d, a[3], digits + 3 * NEXT);
        wgmma_order();
    }
    // A lane has outputs g and g + 8 of each tile, for columns 2 q and 2 q + 1 of the tensor cores.
    __device__ __forceinline__ void multiply(f32 (&sums)[TRELLIS_HOPPER_TILES][2])
    {
        // the second inputs of a product are 32 bytes behind the first ones
        u64 digits = 2u << 16 | (shared_place(records + first) & 0x3FFFF) >> 4;
        const struct hopper_record *record = records + first;
        f32 short_of = 0;

#pragma unroll
        for (u32 i = 0; i < TRELLIS_HOPPER_TILES; i++)
            sums[i][0] = sums[i][1] = 0;
#pragma unroll 1
        for (u32 n = end - first; n > 0; n--) {
            i32 d[TRELLIS_HOPPER_TILES][4];
            copies_wait<DEPTH - 2>();
            __syncwarp();
            fetch();
#pragma unroll
            for (u32 quad = 0; quad < 2; quad++) {
                u32 w[TRELLIS_HOPPER_TILES][BITS + 1];
                fragment even[4], odd[4];
                take_words(words + quad * 4 * PITCH * 4, w[0]);
                take_words(words + (quad * 4 * PITCH + TILE_WORDS) * 4, w[1]);
                half_quad<0>(w[0], even, d[0], digits + quad * 8 * NEXT, quad == 0);
                half_quad<0>(w[1], odd, d[1], digits + quad * 8 * NEXT, quad == 0);
                half_quad<2>(w[0], even, d[0], digits + (quad * 8 + 4) * NEXT, false);
                half_quad<2>(w[1], odd, d[1], digits + (quad * 8 + 4) * NEXT, false);
            }
            words += words >= ring + RING_BYTES - STAGE_BYTES ? STAGE_BYTES - RING_BYTES : STAGE_BYTES;
            digits += sizeof *record / 16;
            f32 scale[2] = { record->scale[0], record->scale[1] };
            short_of += record->short_of;
            record++;
            wgmma_finish();
#pragma unroll
            for (u32 i = 0; i < TRELLIS_HOPPER_TILES; i++) {
                sums[i][0] += (f32)d[i][0] * scale[0] + (f32)d[i][1] * scale[1];
                sums[i][1] += (f32)d[i][2] * scale[0] + (f32)d[i][3] * scale[1];
            }
        }
        __syncwarp(); // all have read the last stages
#pragma unroll
        for (u32 i = 0; i < TRELLIS_HOPPER_TILES; i++) {
            sums[i][0] += short_of;
            sums[i][1] += short_of;
        }
    }
    // For the ninth warp. turn: of this block's blocks of outputs.
    __device__ __forceinline__ void leave_sums(u32 turn, const f32 (&sums)[TRELLIS_HOPPER_TILES][2])
    {
        if (turn >= 2)
            wait_for_stage(empty + turn % 2 * 8, turn / 2 - 1 & 1);
        f32 *own = all[turn % 2][warp / 4] + warp % 4 * TRELLIS_HOPPER_TILES * EXL3_TILE + lane / 4;
        if (lane % 4 == 0)
#pragma unroll
            for (u32 i = 0; i < TRELLIS_HOPPER_TILES; i++) {
                own[i * EXL3_TILE] = sums[i][0];
                own[i * EXL3_TILE + 8] = sums[i][1];
            }
        __syncwarp();
        if (lane == 0)
            leave_stage(full + turn % 2 * 8);
    }

    // By the ninth warp: four outputs a lane.
    __device__ __forceinline__ void take_sums(u32 turn, f32 (&v)[4])
    {
        wait_for_stage(full + turn % 2 * 8, turn / 2 & 1);
        float4 a = *(const float4 *)(all[turn % 2][0] + 4 * lane),
               b = *(const float4 *)(all[turn % 2][1] + 4 * lane);
        __syncwarp();
        if (lane == 0)
            leave_stage(empty + turn % 2 * 8);
        v[0] = a.x + b.x;
        v[1] = a.y + b.y;
        v[2] = a.z + b.z;
        v[3] = a.w + b.w;
    }
};
