// plan_pipeline.c - launches of the kernels whose weights go through stages of shared memory: gemv_pipeline
// (or gemv) for one row, gemm_int8 for 2 to 64. Measured: bench/results/2026-11-22-h200-kernel-choices.md.
#include "gemm/cuda/gemv_pipeline.h"
#include "gemm/cuda/gemm_plan.h"

enum {
    LEAST_ALONE_WIDTH = 2560,         // for gemv_pipeline's kernels `alone`: columns, and rows too
    LEAST_ALONE_PAIRS = 100,          // of a block; else for them too
    LEAST_EVEN_COLS = 2048,           // from here on `alone` with 8 bits a weight; else even blocks
    BESIDE_PREFETCHED = 4,            // stages, of the others
    LEAST_WIDE_COLS = 2048,           // for _wide
    INT8_PREFETCH_BYTES = 120 * 1024, // gemm_int8, before the rows are there; or two stages
    GEMV_WARPS = 16,
    BESIDE_STATIC = 1536,   // bytes of shared memory of a block that are not its own
    GEMV_STAGE = 48 * 1024, // of gemv_pipeline, at most
    WIDE_STAGE = 80 * 1024,
    MANY_STAGES = 12
};

// Lanes that share a pair: fewer where a row has so few blocks that most of a warp would idle, and there are
// enough pairs.
static u32 lanes_of(u32 n_blocks, u32 n_pairs, u32 n_sms)
{
    u32 best = 32, least = divide_up(n_blocks, 32) * 32;

    for (u32 lanes = 16; lanes >= 8 && n_pairs / (32 / lanes) >= 4 * n_sms * GEMV_WARPS; lanes /= 2) {
        u32 slots = divide_up(n_blocks, lanes) * lanes;
        if (slots < least) {
            least = slots;
            best = lanes;
        }
    }
    return best;
}

static u32 stage_bytes(u32 format, u32 n_cols, u32 n_rows)
{
    u32 bytes = stage_part_bytes(n_rows, layout_quants_bytes(format, n_cols)) +
                stage_part_bytes(n_rows, layout_high_bytes(format, n_cols)) +
                stage_part_bytes(n_rows, layout_scales_bytes(format, n_cols)) +
                stage_part_bytes(n_rows, layout_deltas_bytes(format, n_cols));
    return divide_up(bytes, 128) * 128;
}

// One block of gemv_pipeline per SM: where it has much to do, more warps are worth more than beginning beside
// the launch before. Both dimensions count, so that all products of a model's layers are of one kind: beside
// a block that fills its SM nothing begins.
static bool runs_alone(const struct adapted_params *params, u32 format)
{
    const struct gemm_params *p = &params->product;
    u32 width = p->n_cols < 2 * p->n_pairs ? p->n_cols : 2 * p->n_pairs;

    return width >= LEAST_ALONE_WIDTH ||
           (width >= LEAST_EVEN_COLS && layout_quants_bytes(format, 32) >= 32) ||
           p->pipeline.most_pairs >= LEAST_ALONE_PAIRS || params->adapters.shared_bytes;
}

// Divides what adapters add among the blocks: a power of two of them shares a rank's columns.
static void plan_adapters(struct cuda_plan *p, struct adapted_params *params, u32 grid)
{
    struct gemm_adapters *a = &params->adapters;
    u32 n_ranks = adapter_first_rank(a, 3), most_pairs = divide_up(params->product.n_pairs, grid);

    a->shared_bytes = 0;
    if (n_ranks == 0)
        return;
    for (a->shares_log2 = 0; a->shares_log2 < 5 && n_ranks << (a->shares_log2 + 1) <= grid;)
        a->shares_log2++;
    a->share_cols = divide_up(params->product.n_cols, 4u << a->shares_log2) * 4;
    a->shared_bytes = divide_up(n_ranks, 2) * 8 + most_pairs * 8 + 8;
    a->left = p->counters_at;
    a->words = p->counters_at + 128; // not in the cache line of `left`
    a->copy_words = divide_up(n_ranks << a->shares_log2, 32) * 32;
    u64 bytes = 128 + (u64)ADAPTER_COPIES * a->copy_words * 4;
    p->counters_bytes = bytes > p->counters_bytes ? bytes : p->counters_bytes;
}

// Stages for `rounds`: all of a block's, or as many as fit. Returns the bytes of shared memory; 0: fewer than
// two stages fit.
static u32 plan_stages(const struct cuda_plan *p, struct adapted_params *params, u32 format, u32 consumers,
                       u32 rounds)
{
    struct gemm_pipeline *pipeline = &params->product.pipeline;
    u32 each = rounds * consumers >> pipeline->lanes_log2, n_cols = params->product.n_cols;
    u32 row = row_bytes_of(format > QUANT_BF16, n_cols),
        sums = pipeline->most_pairs * 8 << pipeline->lanes_log2 >> 5,
        before = divide_up(row + sums + params->adapters.shared_bytes, 128) * 128;
    u32 room =
            consumers == BESIDE_THREADS ? p->device.shared_bytes / 2 - BESIDE_STATIC : p->device.shared_bytes,
        n_stages = divide_up(pipeline->most_pairs, each), depth;

    pipeline->rounds = rounds;
    pipeline->stage_bytes = stage_bytes(format, n_cols, 2 * each);
    depth = before < room ? (room - before) / pipeline->stage_bytes : 0;
    depth = depth < PIPELINE_STAGES ? depth : PIPELINE_STAGES;
    pipeline->depth = depth < n_stages ? depth : n_stages;
    return pipeline->depth > 1 || (pipeline->depth == 1 && n_stages == 1)
               ? before + pipeline->depth * pipeline->stage_bytes
               : 0;
}

// Lanes that share a pair: as few as keep a stage within GEMV_STAGE and give a lane at most two blocks. Where
// rows are short and stages many, a warp takes two pairs at a time, with more work between two waits. Returns
// the bytes of shared memory, or 0.
static u32 plan_blocks(const struct cuda_plan *p, struct adapted_params *params, u32 format, u32 consumers)
{
    struct gemm_pipeline *pipeline = &params->product.pipeline;
    u32 plain = format <= QUANT_BF16, n_cols = params->product.n_cols, log2 = 5, shared = 0;

    while (1u << log2 < consumers && (stage_bytes(format, n_cols, 2 * consumers >> log2) > GEMV_STAGE ||
                                      (!plain && 64u << log2 < n_cols)))
        log2++;
    if (!plain && 64u << log2 < n_cols)
        return 0;
    pipeline->lanes_log2 = log2;
    u32 doubled = 2 * consumers >> log2; // pairs of a stage with two rounds
    if (consumers == CONSUMER_THREADS && gemv_takes_two_rounds(format) && log2 > 5 &&
        pipeline->most_pairs >= MANY_STAGES * doubled &&
        stage_bytes(format, n_cols, 2 * doubled) <= GEMV_STAGE)
        shared = plan_stages(p, params, format, consumers, 2);
    return shared > 0 ? shared : plan_stages(p, params, format, consumers, 1);
}

// Q2_K, where two blocks a lane would leave many lanes idle: as few lanes as keep a stage within WIDE_STAGE.
static u32 plan_wide(const struct cuda_plan *p, struct adapted_params *params, u32 format)
{
    u32 n_blocks = params->product.n_cols / 32, lanes = 32, log2 = 5;

    while (2 * lanes < n_blocks)
        lanes *= 2;
    if (format != QUANT_Q2_K || params->product.n_cols < LEAST_WIDE_COLS || n_blocks * 10 >= 2 * lanes * 9)
        return 0;
    while (log2 < 9 && stage_bytes(format, params->product.n_cols, 2 * CONSUMER_THREADS >> log2) > WIDE_STAGE)
        log2++;
    params->product.pipeline.lanes_log2 = log2;
    u32 each = CONSUMER_THREADS >> log2;
    return params->product.pipeline.most_pairs >= MANY_STAGES * each
               ? plan_stages(p, params, format, CONSUMER_THREADS, 1)
               : 0;
}

// Plans stages that are a part of a pair.
static u32 plan_long(const struct cuda_plan *p, struct adapted_params *params)
{
    struct gemm_pipeline *pipeline = &params->product.pipeline;
    u32 bytes = pipeline->most_pairs * 2 * 4 * CONSUMER_THREADS / 32 + params->adapters.shared_bytes,
        sums = divide_up(bytes, 128) * 128, room = p->device.shared_bytes;

    pipeline->stage_bytes = divide_up(2 * long_part_eights(params->product.n_cols) * 16, 128) * 128;
    pipeline->depth = sums < room ? (room - sums) / pipeline->stage_bytes : 0;
    pipeline->depth = pipeline->depth < PIPELINE_STAGES ? pipeline->depth : PIPELINE_STAGES;
    return pipeline->depth > 1 ? sums + pipeline->depth * pipeline->stage_bytes : 0;
}

// The pipeline of gemv_pipeline.cu; returns which of its kernels, or NULL. Two or three stages are requested
// before the row: more of them delay it.
static const char *plan_gemv_pipeline(const struct cuda_plan *p, struct adapted_params *adapted,
                                      struct gemm_part part, struct cuda_shape *shape)
{
    struct gemm_params *params = &adapted->product;
    u32 plain = part.format <= QUANT_BF16, n_cols = params->n_cols, shared;
    u32 grid = params->n_pairs < p->device.n_sms ? params->n_pairs : p->device.n_sms;
    u64 odd = layout_high_bytes(part.format, n_cols) | layout_scales_bytes(part.format, n_cols) |
              layout_deltas_bytes(part.format, n_cols);
    bool adapts = adapted->adapters.shared_bytes > 0;
    u32 threads = GEMV_PIPELINE_THREADS + (adapts ? ADAPTER_THREADS : 0);
    const gemm_kernel_names *kernels = adapts ? &gemv_pipeline_adapted_wide : &gemv_pipeline_wide;

    if (p->device.capability < 90 || part.max_rows > 1 || p->tape.invariant ||
        n_cols % (plain ? 8 : 32) != 0 || odd % 4 != 0)
        return NULL;
    params->pipeline = (struct gemm_pipeline){
        .prefetched = n_cols >= 4096 && !layout_has_super_blocks(part.format) ? 3 : 2,
        .most_pairs = divide_up(params->n_pairs, grid),
        .apart = params->mode == EPILOGUE_GATED ||
                 (params->mode == EPILOGUE_ROPE_STORE && params->rope.pairs == ROPE_HALVES),
        .words = odd % 16 != 0,
    };
    shared = plan_wide(p, adapted, part.format);
    if (shared == 0 && !runs_alone(adapted, part.format)) {
        shared = plan_blocks(p, adapted, part.format, BESIDE_THREADS);
        if (shared > 0) {
            params->pipeline.prefetched = BESIDE_PREFETCHED;
            kernels = &gemv_pipeline;
            threads = GEMV_BESIDE_THREADS;
            if (n_cols >= LEAST_EVEN_COLS && n_cols < LEAST_ALONE_WIDTH)
                grid = divide_up(params->n_pairs, params->pipeline.most_pairs);
        }
    }
    if (shared == 0) {
        shared = plan_blocks(p, adapted, part.format, CONSUMER_THREADS);
        kernels = adapts ? &gemv_pipeline_adapted : &gemv_pipeline_alone;
    }
    if (shared == 0 && plain && n_cols <= MOST_LONG_COLS) {
        shared = plan_long(p, adapted);
        kernels = adapts ? &gemv_pipeline_adapted_long : &gemv_pipeline_long;
    }
    params->pipeline.block_pairs = params->n_pairs / grid;
    params->pipeline.more = params->n_pairs % grid;
    *shape = (struct cuda_shape){ { grid, 1, 1 }, threads, shared };
    return shared > 0 ? (*kernels)[part.format] : NULL;
}

void gemm_pipeline_launch(struct cuda_plan *p, struct adapted_params *adapted, struct gemm_part part)
{
    struct gemm_params *params = &adapted->product;
    u32 n_blocks = divide_up(params->n_cols, 32),
        warps = params->n_pairs > GEMV_WARPS * p->device.n_sms ? 2 * GEMV_WARPS : GEMV_WARPS;
    u32 grid = params->n_pairs < p->device.n_sms ? params->n_pairs : p->device.n_sms;
    bool int8 = part.kernel == KERNEL_GEMV_INT8;
    plan_adapters(p, adapted, grid);
    struct cuda_shape shape = { { grid, part.max_rows, 1 },
                                warps * 32,
                                n_blocks * (int8 ? 44 : 36 * 4) + adapted->adapters.shared_bytes },
                      pipeline_shape;
    bool pipelined = int8 || (part.kernel == KERNEL_GEMV_PLAIN && part.format != QUANT_F32);
    const char *pipeline = pipelined ? plan_gemv_pipeline(p, adapted, part, &pipeline_shape) : NULL;

    if (pipeline) {
        cuda_launch_add(p, pipeline, pipeline_shape, adapted,
                        adapted->adapters.shared_bytes ? sizeof *adapted : sizeof *params);
        return;
    }
    params->lanes = int8 ? lanes_of(n_blocks, params->n_pairs, p->device.n_sms) : 32;
    cuda_launch_add(p,
                    int8                               ? gemv_int8[part.format]
                    : part.kernel == KERNEL_GEMV_PLAIN ? "gemv_plain"
                                                       : "gemv_exact",
                    shape, adapted, sizeof *adapted);
}

static u32 gemm_stage_bytes(u32 format, u32 n_cols, u32 split_blocks)
{
    u32 cols = split_blocks * 32, n_rows = 16 / int8_tile_warps(split_blocks) * INT8_TILE_ROWS;
    u32 row = stage_pitch(layout_quants_bytes(format, n_cols), layout_quants_bytes(format, cols)) +
              stage_pitch(layout_high_bytes(format, n_cols), layout_high_bytes(format, cols)) +
              stage_pitch(layout_scales_bytes(format, n_cols), layout_scales_bytes(format, cols)) +
              stage_pitch(layout_deltas_bytes(format, n_cols), layout_deltas_bytes(format, cols));
    return divide_up(n_rows * row, 128) * 128;
}

// The pipeline of gemm_int8.cu: as few splits of the columns as leave room for two stages beside the
// activations. Depends on the format and the columns alone, since the order of sums does. Super blocks, which
// take longer, get one more stage.
static bool plan_gemm_int8(const struct cuda_plan *p, struct gemm_part part, u32 n_cols,
                           struct gemm_pipeline *pipeline, u32 *shared)
{
    u32 format = part.format, eights = part.max_rows > 8 ? 2 : 1;
    u64 row[] = { layout_quants_bytes(format, n_cols), layout_high_bytes(format, n_cols),
                  layout_scales_bytes(format, n_cols), layout_deltas_bytes(format, n_cols) };
    u32 n_blocks = n_cols / 32;

    if (p->device.capability < 90 || format <= QUANT_BF16 || n_cols % 64 != 0 ||
        (row[1] | row[2] | row[3]) % 4 != 0)
        return false;
    for (u32 n = divide_up(n_blocks, 128); n <= 32; n++) {
        u32 share = divide_up(divide_up(n_blocks, n), 8) * 8, stage = gemm_stage_bytes(format, n_cols, share);
        u32 before =
            (eights - 1) * share * PACKED_INT8_BYTES + int8_sums_bytes(eights) + int8_scales_bytes(format);
        u32 room = p->device.shared_bytes, depth = before < room ? (room - before) / stage : 0;
        if (depth < 2)
            continue;
        u32 prefetched = INT8_PREFETCH_BYTES / stage < 2 ? 2 : INT8_PREFETCH_BYTES / stage;
        u32 super = layout_has_super_blocks(format), most = prefetched + super;
        u64 odd = row[1] | row[2] | row[3];
        depth = depth < most ? depth : most;
        *pipeline = (struct gemm_pipeline){ .depth = depth < PIPELINE_STAGES ? depth : PIPELINE_STAGES,
                                            .prefetched = prefetched,
                                            .stage_bytes = stage,
                                            .words = super || odd % 16 != 0,
                                            .split_blocks = share,
                                            .n_splits = divide_up(n_blocks, share),
                                            .eights = eights };
        *shared = before + pipeline->depth * stage;
        return true;
    }
    return false;
}

bool gemm_int8_fits(const struct cuda_plan *p, u32 format, u32 max_rows, u32 n_cols)
{
    struct gemm_pipeline pipeline;
    u32 shared;

    return plan_gemm_int8(p, (struct gemm_part){ format, max_rows, KERNEL_GEMM_INT8 }, n_cols, &pipeline,
                          &shared);
}

// Packed rows are written two tiles at a time: of one stage each where the columns are not split.
bool gemm_int8_packs(const struct cuda_plan *p, const struct gemm_params *params)
{
    struct gemm_pipeline pipeline = { 0 };
    u32 shared, max_rows = gemm_max_rows(p, params);

    return max_rows <= 8 && params->w[0].n_rows % 32 == 0 &&
           plan_gemm_int8(p, (struct gemm_part){ params->w[0].format, max_rows, KERNEL_GEMM_INT8 },
                          params->n_cols, &pipeline, &shared) &&
           (pipeline.n_splits > 1 || int8_tile_warps(pipeline.split_blocks) == CONSUMER_THREADS / 32);
}

// Up to eight rows have kernels with one fixed epilogue: a launch runs through its instructions once, which
// is not free.
static const char *gemm_int8_kernel(const struct gemm_params *params, struct gemm_part part)
{
    if (params->packed_out.at)
        return gemm_int8_packed[part.format];
    if (part.max_rows <= 8 && params->mode == EPILOGUE_GATED)
        return gemm_int8_gated[part.format];
    return part.max_rows <= 8 && params->mode == EPILOGUE_ROPE_STORE ? gemm_int8_rope[part.format]
                                                                     : gemm_int8[part.format];
}

// Partial sums of split columns go to the tape's private memory, after the packed rows.
void gemm_int8_launch(struct cuda_plan *p, struct gemm_params *params, struct gemm_part part)
{
    u32 n_tiles = divide_up(params->n_pairs, INT8_TILE_PAIRS),
        n_passes = divide_up(part.max_rows, INT8_PASS_ROWS), shared = 0;

    CHECK(plan_gemm_int8(p, part, params->n_cols, &params->pipeline, &shared));
    u32 n_splits = params->pipeline.n_splits, groups = p->device.n_sms / n_splits,
        most_groups = params->packed_out.at ? n_tiles / 2 : n_tiles;
    u64 n_units = (u64)params->pipeline.eights * n_tiles * n_passes, partial = params->partial;
    groups = groups == 0 ? 1 : groups < most_groups ? groups : most_groups;
    if (n_splits > 1) {
        u64 bytes = partial - p->private_at + n_units * n_splits * 32 * 16;
        p->private_bytes = bytes > p->private_bytes ? bytes : p->private_bytes;
        p->counters_bytes =
            (u64)groups * n_passes * 4 > p->counters_bytes ? (u64)groups * n_passes * 4 : p->counters_bytes;
        params->arrived = p->counters_at;
    }
    cuda_launch_add(p, gemm_int8_kernel(params, part),
                    (struct cuda_shape){ { groups * n_splits, n_passes, 1 }, GEMM_INT8_THREADS, shared },
                    params, sizeof *params);
}
