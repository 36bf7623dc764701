// gemm_int8_pipeline.cuh - for gemm_int8.cu: the tiles and columns of a thread block, and its producer warps,
// which fill the stages of weights. Products and epilogue are in gemm_int8.cu.
#pragma once
#include "gemm/cuda/mma_int8.cuh"
#include "gemm/cuda/pipeline.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

enum { CONSUMER_WARPS = CONSUMER_THREADS / 32 };

struct gemm_state { // barriers of a block; all lanes arrive: compute-sanitizer's racecheck credits the
                    // arriving lane only
    u64 full[PIPELINE_STAGES];
    u64 empty[PIPELINE_STAGES];                        // all threads have multiplied the stage
    u64 summed[EPILOGUE_WARPS], taken[EPILOGUE_WARPS]; // for a stage's sums
    u64 from[PRODUCER_WARPS][4][2 * INT8_TILE_PAIRS];
};

// The epilogues of the kernels: any; or, for up to eight rows, one of packed rows for the next product, gate
// and up, q k and v.
enum int8_epilogue { INT8_EPILOGUE_ANY, INT8_EPILOGUE_PACKED, INT8_EPILOGUE_GATED, INT8_EPILOGUE_ROPE };
template <int8_epilogue EPILOGUE> static __device__ __forceinline__ u32 mode_of(const struct gemm_params &p)
{
    return EPILOGUE == INT8_EPILOGUE_PACKED  ? EPILOGUE_LINEAR
           : EPILOGUE == INT8_EPILOGUE_GATED ? EPILOGUE_GATED
           : EPILOGUE == INT8_EPILOGUE_ROPE  ? EPILOGUE_ROPE_STORE
                                             : p.mode;
}

// The work of a thread block.
struct work {
    u32 group, n_groups;            // a group: blocks that split the columns
    u32 n_all, n_tiles, log2;       // n_all: all tiles; n_tiles: of this group; log2: tiles assigned together
    u32 first_block, n_blocks;      // in blocks of 32 columns
    u32 share, pass, n_rows;        // share: this block's split of the columns; n_rows: of this pass
    u32 tile_warps, each, n_stages; // each: tiles of a stage
    u32 warp_blocks;                // blocks that a warp multiplies, an even number
    u32 eights;                     // of rows in a pass, at most

    // Tile i of the group. All groups go through the matrix side by side, which is faster than a contiguous
    // range of tiles for each.
    __device__ __forceinline__ u32 tile(u32 i) const
    {
        return ((group + (i >> log2) * n_groups) << log2) + (i & ((1 << log2) - 1));
    }
    __device__ __forceinline__ u32 stage_tiles(u32 tile) const // from this one on
    {
        return min(n_all - tile, each);
    }
};

template <int8_epilogue EPILOGUE>
static __device__ __forceinline__ struct work work_of(const struct gemm_params &p)
{
    u32 before = blockIdx.y * INT8_PASS_ROWS, all = n_rows_of(p.step, p.rows);
    struct work w;

    w.group = blockIdx.x / p.pipeline.n_splits;
    w.n_groups = gridDim.x / p.pipeline.n_splits;
    w.n_all = (p.n_pairs + INT8_TILE_PAIRS - 1) / INT8_TILE_PAIRS;
    w.share = blockIdx.x % p.pipeline.n_splits;
    w.first_block = w.share * p.pipeline.split_blocks;
    w.n_blocks = min(p.pipeline.split_blocks, p.n_cols / 32 - w.first_block);
    w.pass = blockIdx.y;
    w.n_rows = all > before ? min(all - before, (u32)INT8_PASS_ROWS) : 0;
    w.tile_warps = int8_tile_warps(p.pipeline.split_blocks);
    w.each = CONSUMER_WARPS / w.tile_warps;
    w.warp_blocks = (p.pipeline.split_blocks + 2 * w.tile_warps - 1) / (2 * w.tile_warps) * 2;
    w.log2 = EPILOGUE == INT8_EPILOGUE_PACKED || w.each == 2 ? 1 : 0;
    w.n_tiles = (((w.n_all + w.log2) >> w.log2) - w.group + w.n_groups - 1) / w.n_groups << w.log2;
    w.n_stages = w.n_tiles / w.each;
    w.eights = EPILOGUE == INT8_EPILOGUE_ANY ? p.pipeline.eights : 1;
    return w;
}

// The most bytes of a row's part of a plane that lanes copy, where there are super blocks. Larger parts, and
// other formats, are bulk copies, which take some 55 cycles each, whatever their length.
enum { MOST_WORDS = 256 };

// One plane of a stage: [rows][pitch], this split's columns of each row.
struct plane_part {
    u32 at, bytes, pitch; // at: offset in the stage
    u32 skew;             // bytes of the first word that lie before the split's columns
    u32 word;             // 16 or 4 bytes
    u32 run;              // bytes of a bulk copy, or 0: copied by words
};
template <u32 F> struct stage_parts {
    struct plane_part quants, high, scales, deltas;

    __device__ __forceinline__ stage_parts(const struct gemm_params &p, const struct work &w)
    {
        u32 all = p.n_cols, share = p.pipeline.split_blocks * 32, cols = w.n_blocks * 32,
            rows = w.each * INT8_TILE_ROWS;
        quants = part(0, layout_quants_bytes(F, all), layout_quants_bytes(F, share),
                      layout_quants_bytes(F, cols), w);
        high = part(quants.at + rows * quants.pitch, layout_high_bytes(F, all), layout_high_bytes(F, share),
                    layout_high_bytes(F, cols), w);
        scales = part(high.at + rows * high.pitch, layout_scales_bytes(F, all), layout_scales_bytes(F, share),
                      layout_scales_bytes(F, cols), w);
        deltas = part(scales.at + rows * scales.pitch, layout_deltas_bytes(F, all),
                      layout_deltas_bytes(F, share), layout_deltas_bytes(F, cols), w);
    }
    static __device__ __forceinline__ struct plane_part part(u32 at, u64 row, u64 share, u64 mine,
                                                             const struct work &w)
    {
        u32 word = row % 16 == 0 ? 16 : 4, words = layout_has_super_blocks(F) ? MOST_WORDS : 0;
        u32 skew = w.share * (u32)share % word, bytes = ((u32)mine + skew + word - 1) / word * word;
        return { at, bytes, stage_pitch(row, share), skew, word, word == 16 && mine > words ? bytes : 0 };
    }
};

// Offsets of a row's planes in any stage.
template <u32 F> struct row_places {
    u32 quants, high, scales, deltas;

    __device__ __forceinline__ row_places(const struct stage_parts<F> &parts, u32 index)
    {
        quants = kept(parts.quants.at + index * parts.quants.pitch);
        high =
            layout_high_bytes(F, 256) ? kept(parts.high.at + parts.high.skew + index * parts.high.pitch) : 0;
        scales = kept(parts.scales.at + parts.scales.skew + index * parts.scales.pitch);
        deltas = layout_has_super_blocks(F)
                     ? kept(parts.deltas.at + parts.deltas.skew + index * parts.deltas.pitch)
                     : 0;
    }
    static __device__ __forceinline__ u32 kept(u32 v) // keeps a value in a register: else it is computed
                                                      // again in each stage
    {
        asm volatile("" : "+r"(v));
        return v;
    }
    __device__ __forceinline__ struct plane_pointers in(const u8 *stage) const
    {
        return { stage + quants, stage + high, stage + scales, stage + deltas };
    }
};

// Fills stages with the first rows of pairs, or with the second rows. Addresses of long rows go through
// shared memory to one lane, elected so that the compiler knows it is alone: lanes that issue bulk copies of
// their own are serialised, at some 100 cycles each.
template <u32 F, int8_epilogue EPILOGUE> struct producer {
    const struct gemm_params &p;
    const struct work &w;
    const struct stage_parts<F> parts;
    u64 (&from)[4][2 * INT8_TILE_PAIRS]; // [plane][row], of one or two tiles
    u32 second;                          // second rows of pairs

    // Lane n < 8 handles pair n of a tile, lane 8 + n that of the next tile. Pairs beyond the last repeat it.
    __device__ __forceinline__ void find(u32 tile, u32 n_tiles)
    {
        u32 lane = threadIdx.x & 31, first = w.first_block * 32, cols = p.n_cols;
        struct pair r = pair_find(p, p.first_pair + min(tile * INT8_TILE_PAIRS + lane, p.n_pairs - 1),
                                  mode_of<EPILOGUE>(p));
        const struct weight_planes &planes = p.w[second ? r.matrix[1] : r.matrix[0]];
        u32 row = second ? r.row[1] : r.row[0];

        if (lane < n_tiles * INT8_TILE_PAIRS) {
            from[0][lane] =
                (u64)planes.quants + row * layout_quants_bytes(F, cols) + layout_quants_bytes(F, first);
            from[1][lane] = (u64)planes.high + row * layout_high_bytes(F, cols) +
                            layout_high_bytes(F, first) - parts.high.skew;
            from[2][lane] = (u64)planes.scales + row * layout_scales_bytes(F, cols) +
                            layout_scales_bytes(F, first) - parts.scales.skew;
            from[3][lane] = (u64)planes.deltas + row * layout_deltas_bytes(F, cols) +
                            layout_deltas_bytes(F, first) - parts.deltas.skew;
        }
        __syncwarp();
    }
    __device__ __forceinline__ void copy_runs(u32 plane, const struct plane_part &part, u32 n_tiles, u32 slot,
                                              u32 full) const
    {
        u32 to = slot + part.at + second * INT8_TILE_PAIRS * part.pitch;

        if (part.run == 0)
            return;
#pragma unroll 1
        for (u32 tile = 0; tile < n_tiles; tile++, to += INT8_TILE_ROWS * part.pitch)
#pragma unroll
            for (u32 i = 0; i < INT8_TILE_PAIRS; i++)
                copy_run(to + i * part.pitch, (const u8 *)from[plane][tile * INT8_TILE_PAIRS + i], part.bytes,
                         full);
    }
    // Copies by four lanes a row.
    __device__ __forceinline__ void copy_words(u32 plane, const struct plane_part &part, u32 n_tiles,
                                               u32 slot) const
    {
        u32 row = threadIdx.x % 32 / 4, to = slot + part.at + (second * INT8_TILE_PAIRS + row) * part.pitch,
            step = 4 * part.word;

        if (part.run > 0)
            return;
#pragma unroll 1
        for (u32 tile = 0; tile < n_tiles; tile++, to += INT8_TILE_ROWS * part.pitch) {
            const u8 *at = (const u8 *)from[plane][tile * INT8_TILE_PAIRS + row];
            for (u32 i = threadIdx.x % 4 * part.word; i < part.bytes; i += step)
                if (part.word == 16)
                    copy_16(to + i, at + i);
                else
                    copy_word(to + i, at + i);
        }
    }
    __device__ __forceinline__ void produce_stage(u32 n_tiles, u32 slot, u32 full) const
    {
        if (elect_one()) {
            expect_bytes(full, n_tiles * INT8_TILE_PAIRS *
                                   (parts.quants.run + parts.high.run + parts.scales.run + parts.deltas.run));
            copy_runs(0, parts.quants, n_tiles, slot, full);
            copy_runs(1, parts.high, n_tiles, slot, full);
            copy_runs(2, parts.scales, n_tiles, slot, full);
            copy_runs(3, parts.deltas, n_tiles, slot, full);
        }
        if (p.pipeline.words) {
            copy_words(0, parts.quants, n_tiles, slot);
            copy_words(1, parts.high, n_tiles, slot);
            copy_words(2, parts.scales, n_tiles, slot);
            copy_words(3, parts.deltas, n_tiles, slot);
            arrive_with_words(full);
        }
        __syncwarp();
    }
};

struct int8_room { // in dynamic shared memory
    u8 *second;    // rows 8 to 15: [blocks of the split][PACKED_INT8_BYTES]
    float4 *sums;  // [epilogue warps][CONSUMER_WARPS][eights][32]
    f32 *scales;   // int8_scales_bytes
    u8 *stages;
};
template <u32 F>
static __device__ __forceinline__ struct int8_room room_of(const struct gemm_params &p, const struct work &w,
                                                           u8 *shared)
{
    struct int8_room r = { shared,
                           (float4 *)(shared + (w.eights - 1) * p.pipeline.split_blocks * PACKED_INT8_BYTES),
                           nullptr, nullptr };
    r.scales = (f32 *)((u8 *)r.sums + int8_sums_bytes(w.eights));
    r.stages = (u8 *)r.scales + int8_scales_bytes(F);
    return r;
}

template <u32 F, int8_epilogue EPILOGUE>
static __device__ __forceinline__ void produce(const struct gemm_params &p, const struct work &w,
                                               const struct int8_room &int8_room, struct gemm_state &state)
{
    u32 second = threadIdx.x / 32 - CONSUMER_WARPS, slot = 0, turn = 0;
    struct producer<F, EPILOGUE> producer = {
        p, w, { p, w }, state.from[second], second
    };

    for (u32 i = 0; i < w.n_stages; i++) {
        u32 tile = w.tile(i * w.each), n_tiles = w.stage_tiles(tile);
        producer.find(tile, n_tiles); // before the stage is free
        if (i == p.pipeline.prefetched)
            wait_for_inputs(); // this thread reads none of them, but the block's other threads do
        if (turn > 0)
            wait_for_stage(shared_address(&state.empty[slot]), (turn - 1) & 1);
        producer.produce_stage(n_tiles, shared_address(int8_room.stages) + slot * p.pipeline.stage_bytes,
                               shared_address(&state.full[slot]));
        slot = slot + 1 == p.pipeline.depth ? 0 : slot + 1;
        turn += slot == 0;
    }
    if (w.n_stages <= p.pipeline.prefetched)
        wait_for_inputs();
}

#endif
