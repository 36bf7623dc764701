// experts_many.cu - products of many rows with the experts that they chose, on the tensor cores: a GEMM for
// each expert in one launch.
//
// Computes the tasks of experts_cuda.h, expert by expert.
//
//                    up to 128 entries of one expert (N side of mma.m16n8k16)
//                  +---------------------------+
//   64 pairs    8  |  warp 0: 16 weight rows   |      k advances by 128 columns a step
//   of weight   8  |  warp 1                   |      block: 8 warps, 256 threads
//   rows        .. |  ...                      |      grid: (tiles of entries, tiles of pairs)
//                  +---------------------------+
//
// Tiles: experts_group has sorted the entries by expert; a block finds its tile in the list of first entries,
// or ends.
// Pipeline: five stages of 64 columns of activations in shared memory, gathered row by row with cp.async; the
// next step's weights wait in registers.
// Operands: weights are dequantised to bf16 fragments in registers (fragments.cuh); activations are bf16 rows
// from experts_pack_bf16. Columns are summed in order, whatever the tile, so the order of a sum depends on
// n_cols alone.
// Epilogue: from registers.
#include "gemm/cuda/fragments.cuh"
#include "ops/experts/experts.cuh"

enum {
    TILE_ENTRIES = EXPERTS_TILE_ENTRIES,
    EIGHTS = TILE_ENTRIES / 8,
    STAGES = 5,
    STAGE_BYTES = TILE_ENTRIES * 128
};

struct experts_tile {
    u32 expert, first, count; // of its entries in the sorted list
};

// A warp looks 32 experts further at a time.
static __device__ __forceinline__ void find_tile(const struct experts_params &p, struct experts_tile *tile)
{
    u32 lane = threadIdx.x, before = 0, wanted = blockIdx.x;

    *tile = { 0, 0, 0 };
    for (u32 base = 0; base < p.n_experts; base += 32) {
        u32 expert = min(base + lane, p.n_experts - 1), first = p.first[expert];
        u32 count = base + lane < p.n_experts ? p.first[expert + 1] - first : 0,
            n = (count + TILE_ENTRIES - 1) / TILE_ENTRIES, end = n;
#pragma unroll
        for (u32 o = 1; o < 32; o *= 2) {
            u32 other = __shfl_up_sync(~0u, end, o);
            end += lane >= o ? other : 0;
        }
        end += before;
        __syncwarp();
        if (wanted < end && wanted >= end - n) {
            u32 skipped = (wanted - (end - n)) * TILE_ENTRIES;
            *tile = { expert, first + skipped, min(count - skipped, (u32)TILE_ENTRIES) };
        }
        before = __shfl_sync(~0u, end, 31);
        if (wanted < before)
            return;
    }
}

// Of the shared expert, whose entries are the rows.
static __device__ __forceinline__ struct experts_tile shared_tile(u32 n_rows)
{
    u32 first = blockIdx.x * TILE_ENTRIES;
    return { 0, first, first < n_rows ? min(n_rows - first, (u32)TILE_ENTRIES) : 0 };
}

// 16 bytes of 64 columns of four entries a thread. Odd rows have their halves exchanged, so that two rows
// have no bank conflicts.
struct gather {
    const u8 *from[TILE_ENTRIES / 32];
    u32 to, count;

    __device__ __forceinline__ void begin(const struct experts_params &p, const u32 *entries, u32 n,
                                          u32 shared)
    {
        u32 row = threadIdx.x / 8, chunk = threadIdx.x % 8;
        to = shared + row * 128 + (chunk ^ row % 2 * 4) * 16;
        count = n > row ? (n - row + 31) / 32 : 0;
#pragma unroll
        for (u32 i = 0; i < TILE_ENTRIES / 32; i++)
            from[i] =
                i < count ? experts_packed_at(p, p.packed, entries[row + 32 * i]) + chunk * 16 : nullptr;
    }
    __device__ __forceinline__ void fetch(u32 stage, u32 n_stages)
    {
        u32 at = to + stage % STAGES * STAGE_BYTES;
#pragma unroll
        for (u32 i = 0; i < TILE_ENTRIES / 32; i++)
            if (stage < n_stages && i < count)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at + i * 32 * 128),
                             "l"(from[i] + stage * 128));
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
};

static __device__ __forceinline__ uint4 shared_word(u32 at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at));
    return v;
}

// Two steps of 16 columns: Q-th quarter of 128.
template <u32 F, u32 Q>
static __device__ __forceinline__ void quarter(const struct prepared<F> (&w)[2], f32 (&d)[EIGHTS][4],
                                               u32 tile, u32 count)
{
    u32 a[4], b[4], row = threadIdx.x % 32 / 4, chunk = Q % 2 * 4 + threadIdx.x % 4,
                    at = tile + row * 128 + (chunk ^ row % 2 * 4) * 16;

    strip_step<F, 2 * Q>(w[0], a[0], a[2]);
    strip_step<F, 2 * Q>(w[1], a[1], a[3]);
    strip_step<F, 2 * Q + 1>(w[0], b[0], b[2]);
    strip_step<F, 2 * Q + 1>(w[1], b[1], b[3]);
#pragma unroll
    for (u32 n = 0; n < EIGHTS; n++) {
        if (n * 8 >= count)
            break;
        uint4 x = shared_word(at + n * 8 * 128);
        mma_16816(d[n], a, x.x, x.y);
        mma_16816(d[n], b, x.z, x.w);
    }
}

// Half a step, 64 columns. The stage that was read last is free after the barrier.
template <u32 F, u32 H>
static __device__ __forceinline__ void half_step(struct gather &g, const struct prepared<F> (&w)[2],
                                                 f32 (&d)[EIGHTS][4], u32 shared, u32 stage, u32 n_stages,
                                                 u32 count)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
    __syncthreads();
    g.fetch(stage + STAGES - 1, n_stages);
    u32 tile = shared + stage % STAGES * STAGE_BYTES;
    quarter<F, 2 * H>(w, d, tile, count);
    quarter<F, 2 * H + 1>(w, d, tile, count);
}

template <u32 F>
static __device__ __forceinline__ void multiply(const struct experts_params &p, const struct experts_task &t,
                                                struct gather &g, f32 (&d)[EIGHTS][4], u32 shared, u32 count)
{
    u32 lane = threadIdx.x % 32, n_steps = p.packed_stride / 256;
    struct strip<F> next[2];
    struct prepared<F> now[2];

    for (u32 s = 0; s < STAGES - 1; s++)
        g.fetch(s, 2 * n_steps);
    strip_load<F>(next[0], p.w[0], t.row[0], lane % 4);
    strip_load<F>(next[1], p.w[1], t.row[1], lane % 4);
    for (u32 s = 0; s < n_steps; s++) {
        strip_prepare<F>(now[0], next[0]);
        strip_prepare<F>(now[1], next[1]);
        strip_load<F>(next[0], p.w[0], t.row[0], (s + 1) * 4 + lane % 4);
        strip_load<F>(next[1], p.w[1], t.row[1], (s + 1) * 4 + lane % 4);
        half_step<F, 0>(g, now, d, shared, 2 * s, 2 * n_steps, count);
        half_step<F, 1>(g, now, d, shared, 2 * s + 1, 2 * n_steps, count);
    }
}

template <u32 F> static __device__ __forceinline__ void experts_many(const struct experts_params &p)
{
    extern __shared__ __align__(128) unsigned char stages[];
    __shared__ struct experts_tile tile;
    __shared__ u32 entries[TILE_ENTRIES];
    u32 lane = threadIdx.x % 32, pair = blockIdx.y * EXPERTS_TILE_PAIRS + threadIdx.x / 32 * 8 + lane / 4;
    f32 d[EIGHTS][4] = {};
    struct gather g;

    wait_for_inputs();
    if (p.ids && threadIdx.x < 32)
        find_tile(p, &tile);
    if (!p.ids && threadIdx.x == 0)
        tile = shared_tile(p.step->n_rows);
    __syncthreads();
    u32 count = tile.count;
    if (count == 0)
        return;
    if (threadIdx.x < count)
        entries[threadIdx.x] = p.ids ? p.entries[tile.first + threadIdx.x] : tile.first + threadIdx.x;
    __syncthreads();
    struct experts_task t = experts_task_of(p, tile.expert, min(pair, p.n_pairs - 1));
    u32 shared = (u32)__cvta_generic_to_shared(stages);
    g.begin(p, entries, count, shared);
    multiply<F>(p, t, g, d, shared, count);
    if (pair >= p.n_pairs)
        return;
#pragma unroll
    for (u32 n = 0; n < EIGHTS; n++)
#pragma unroll
        for (u32 i = 0; i < 2; i++) {
            u32 row = n * 8 + lane % 4 * 2 + i;
            if (row < count)
                experts_store(
                    p, t, entries[row],
                    make_float2(d[n][i] * strip<F>::scale_back, d[n][2 + i] * strip<F>::scale_back));
        }
}

#define EXPERTS_MANY(NAME, name, with)                                       \
    extern "C" __global__ void __launch_bounds__(EXPERTS_MANY_THREADS)       \
        experts_many_##name(const __grid_constant__ struct experts_params p) \
    {                                                                        \
        experts_many<QUANT_##NAME>(p);                                       \
    }
QUANT_HALF_FORMATS(EXPERTS_MANY, )
QUANT_BLOCK_FORMATS(EXPERTS_MANY, )
