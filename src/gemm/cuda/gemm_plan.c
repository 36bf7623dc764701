// gemm_plan.c - chooses the kernels of a matrix product on CUDA; see gemm_params.h.
//
// The choice table below is read from the top: the first rule that fits a matrix is taken. The number of rows
// is the largest that the tape can get. q, k and v may have different formats: neighbours with one kernel and
// format share a launch.
// Why the limits are what they are: bench/results/2026-11-22-h200-many-sequences.md and 2026-11-22-h200.md.
#include "gemm/cuda/gemm_plan.h"
#include "gemm/cuda/gemv_pipeline.h"
#include "gemm/cuda/vendor_parts.h"

enum { INT8_MIN_COLS = 2048, FEW_PAIRS = 16, MANY_SHARED = 5 * 128 * PACKED_TILE_ROWS, ANY_ROWS = ~0u >> 1 };

struct gemm_choice { // one matrix of a product
    const struct cuda_plan *plan;
    const struct gemm_plan *product;
    u32 m, format, n_cols, max_rows;
};

static bool is_exact(const struct gemm_choice *c)
{
    return c->product->exact;
}
static bool is_invariant(const struct gemm_choice *c)
{
    return c->plan->tape.invariant;
}
static bool varies(const struct gemm_choice *c)
{
    return !is_invariant(c);
}
static bool has_odd_width(const struct gemm_choice *c)
{
    return c->n_cols % 32 != 0;
}

// A single row goes to gemv_pipeline, unless it is too long for that.
static bool fits_tma(const struct gemm_choice *c)
{
    return varies(c) && !is_exact(c) && !has_odd_width(c) &&
           (c->max_rows > 1 || c->n_cols > MOST_LONG_COLS) &&
           gemm_tma_fits(c->plan, &c->product->params, c->m);
}
static bool fits_staged_int8(const struct gemm_choice *c)
{
    return varies(c) && !is_exact(c) && gemm_staged_int8_fits(c->plan, &c->product->params, c->m);
}
static bool fits_int8(const struct gemm_choice *c)
{
    return gemm_int8_fits(c->plan, c->format, c->max_rows, c->n_cols);
}
static bool fits_int8_with_long_rows(const struct gemm_choice *c)
{
    return c->n_cols >= INT8_MIN_COLS && fits_int8(c);
}
static bool fits_int8_without_hopper(const struct gemm_choice *c)
{
    return c->plan->tape.gemm != GEMM_VENDOR && !gemm_hopper_fits(c->plan, c->format, c->n_cols) &&
           fits_int8(c);
}

#define FORMAT_BIT(NAME, name, with) 1u << QUANT_##NAME |
enum {
    F32 = 1u << QUANT_F32,
    Q8_0 = 1u << QUANT_Q8_0,
    HALVES = QUANT_HALF_FORMATS(FORMAT_BIT, ) 0,
    ALL = QUANT_FORMATS(FORMAT_BIT, ) 0
};

// clang-format off
static const struct gemm_rule {
    enum gemm_kernel kernel;
    u32 min_rows, max_rows;
    u32 formats;
    bool (*when)(const struct gemm_choice *c); // NULL: always
} rules[] = {
    // kernel            rows          weights  when                       what it is
    { KERNEL_GEMM_TMA,   1,  ANY_ROWS, ALL,    fits_tma },                 // bf16, TMA tiles: wgmma (Hopper)
    { KERNEL_GEMM_STAGED_INT8, PACKED_TILE_ROWS + 1, ANY_ROWS, Q8_0, fits_staged_int8 }, // int8 wgmma (Hopper)
    { KERNEL_GEMV_PLAIN, 1,  ANY_ROWS, F32,    NULL },                     // fp32 sums, row by row
    { KERNEL_GEMV_PLAIN, 1,  ANY_ROWS, HALVES, is_exact },
    { KERNEL_GEMV_PLAIN, 1,  ANY_ROWS, HALVES, has_odd_width },
    { KERNEL_GEMV_PLAIN, 1,  1,        HALVES, varies },                   // gemv_pipeline from Hopper on
    { KERNEL_GEMV_EXACT, 1,  ANY_ROWS, ALL,    is_exact },                 // decoded weights, fp32 sums
    { KERNEL_GEMM_FEW,   1,  ANY_ROWS, ALL,    is_invariant },             // one order of sums for any rows
    { KERNEL_GEMV_INT8,  1,  1,        ALL,    NULL },                     // gemv_pipeline from Hopper on
    { KERNEL_GEMM_INT8,  2,  16,       ALL,    fits_int8_with_long_rows }, // int8 mma, weights by stages
    { KERNEL_GEMM_INT8,  17, 64,       ALL,    fits_int8_without_hopper },
    { KERNEL_GEMM_FEW,   2,  FEW_ROWS, ALL,    NULL },                     // bf16 mma, weights in registers
    { KERNEL_GEMM_MANY,  FEW_ROWS + 1, ANY_ROWS, ALL, NULL },              // gemm_hopper, or gemm_many
};
// clang-format on

enum gemm_kernel gemm_kernel_of(const struct cuda_plan *p, const struct gemm_plan *product, u32 m)
{
    const struct gemm_params *params = &product->params;
    struct gemm_choice c = { p, product, m, params->w[m].format, params->n_cols, gemm_max_rows(p, params) };

    for (u32 i = 0; i < sizeof rules / sizeof *rules; i++) {
        const struct gemm_rule *r = &rules[i];
        if (c.max_rows >= r->min_rows && c.max_rows <= r->max_rows && r->formats >> c.format & 1 &&
            (!r->when || r->when(&c)))
            return r->kernel;
    }
    CHECK(!"the last rules take every matrix");
    return KERNEL_GEMM_MANY;
}

u32 gemm_max_rows(const struct cuda_plan *p, const struct gemm_params *params)
{
    return params->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
}

u32 gemm_n_matrices(const struct gemm_params *params)
{
    return params->mode >= EPILOGUE_ROPE_STORE ? 3 : params->mode == EPILOGUE_GATED ? 2 : 1;
}

bool gemm_wants_vendor(const struct cuda_plan *p, const struct gemm_plan *product)
{
    bool wants = p->tape.gemm == GEMM_VENDOR && gemm_max_rows(p, &product->params) > FEW_ROWS;

    for (u32 m = 0; m < gemm_n_matrices(&product->params); m++)
        wants = wants && gemm_kernel_of(p, product, m) >= KERNEL_GEMM_MANY;
    return wants;
}

// Q8_0 has one scale for more dims than a pair; kernels for many rows support fp16 alone.
bool gemm_stores_pages(const struct cuda_plan *p, const struct page_shape *pages)
{
    bool halves = pages->k_format == KV_F16 && pages->v_format == KV_F16,
         blocks = pages->k_format == KV_Q8_0 || pages->v_format == KV_Q8_0;
    return halves || (!blocks && (p->tape.max_rows <= FEW_ROWS || p->tape.invariant));
}

static void launch_few(struct cuda_plan *p, struct gemm_params *params, struct gemm_part part)
{
    struct cuda_shape shape = {
        { divide_up(part.max_rows, FEW_ROWS), divide_up(params->n_pairs, FEW_PAIRS), 1 }, 256, 0
    };

    cuda_launch_add(p, gemm_few[part.format], shape, params, sizeof *params);
}

static void launch_many(struct cuda_plan *p, struct gemm_params *params, struct gemm_part part)
{
    u32 tiles = divide_up(params->n_pairs, MANY_PAIRS);
    struct cuda_shape shape = { { divide_up(part.max_rows, PACKED_TILE_ROWS), tiles, 1 }, 256, MANY_SHARED };

    if (gemm_hopper_fits(p, part.format, params->n_cols))
        gemm_hopper_launch(p, params, part);
    else
        cuda_launch_add(p, gemm_many[part.format], shape, params, sizeof *params);
}

static void launch_part(struct cuda_plan *p, struct adapted_params *adapted, struct gemm_part part)
{
    struct gemm_params *params = &adapted->product;

    CHECK(!adapted->adapters.scales || part.kernel <= KERNEL_GEMV_EXACT);
    switch (part.kernel) {
    case KERNEL_GEMM_TMA: // gemm_tma.cu, and gemm_cluster.cu
        gemm_tma_launch(p, params, part);
        break;
    case KERNEL_GEMM_STAGED_INT8: // gemm_staged_int8.cu
        gemm_staged_int8_launch(p, &(struct cluster_params){ .tiles.pairs = *params }, part.max_rows);
        break;
    case KERNEL_GEMM_INT8: // gemm_int8.cu
        gemm_int8_launch(p, params, part);
        break;
    case KERNEL_GEMM_FEW: // gemm_few.cu
        launch_few(p, params, part);
        break;
    case KERNEL_GEMM_MANY: // gemm_hopper.cu, or gemm_many.cu
        launch_many(p, params, part);
        break;
    default: // gemv_pipeline.cu, or gemv.cu
        gemm_pipeline_launch(p, adapted, part);
    }
}

// q, k and v follow each other in the list of pairs; neighbours in one format share a launch.
static void launch_qkv(struct cuda_plan *p, const struct gemm_plan *product, struct adapted_params *adapted)
{
    struct gemm_params *params = &adapted->product;
    const struct gemm_adapters all = adapted->adapters;

    params->first_pair = 0;
    for (u32 m = 0; m < 3;) {
        u32 first = m;
        struct gemm_part part = { params->w[m].format, gemm_max_rows(p, params),
                                  gemm_kernel_of(p, product, m) };
        params->n_pairs = 0;
        for (; m < 3 && params->w[m].format == part.format && gemm_kernel_of(p, product, m) == part.kernel;
             m++)
            params->n_pairs += params->w[m].n_rows / 2;
        for (u32 i = 0; i < 3; i++)
            adapted->adapters.n_ranks[i] = i < first || i >= m ? 0 : all.n_ranks[i];
        if (params->n_pairs > 0) // v may be absent
            launch_part(p, adapted, part);
        params->first_pair += params->n_pairs;
    }
}

void gemm_launch_adapted(struct cuda_plan *p, const struct gemm_plan *product,
                         const struct gemm_adapters *adapters)
{
    struct adapted_params adapted = { product->params, *adapters };
    struct gemm_params *params = &adapted.product;
    u32 max_rows = gemm_max_rows(p, params);

    params->packed_cols = divide_up(params->n_cols, 128) * 128;
    params->n_pairs =
        params->mode == EPILOGUE_GATED ? params->w[0].n_rows : divide_up(params->w[0].n_rows, 2);
    if (params->mode >= EPILOGUE_ROPE_STORE)
        params->n_pairs += params->w[1].n_rows / 2 + params->w[2].n_rows / 2;
    if (gemm_wants_vendor(p, product)) {
        gemm_vendor_launch(p, params, gemm_n_matrices(params), max_rows);
        return;
    }
    gemm_packing_launch(p, product, params);
    if (params->mode >= EPILOGUE_ROPE_STORE)
        launch_qkv(p, product, &adapted);
    else
        launch_part(p, &adapted,
                    (struct gemm_part){ params->w[0].format, max_rows, gemm_kernel_of(p, product, 0) });
}

void gemm_launch(struct cuda_plan *p, const struct gemm_plan *product)
{
    gemm_launch_adapted(p, product, &(struct gemm_adapters){ 0 });
}
