// trellis_cuda.c - the operation's launches.
//
// Up to FEW_ROWS rows, and wherever a row must have the same bits in any step: trellis.cu. More rows, and
// exact products: trellis_expand.cu writes rows of the matrix into private memory, as many as CHUNK_BYTES
// hold, and an ordinary product multiplies them.
#include "base/divide.h"
#include "gemm/cuda/gemm_params.h"
#include "ops/cuda_table.h"
#include "ops/trellis/trellis_cuda.h"

enum { FEW_ROWS = 64, CHUNK_BYTES = 32 << 20 };

static const struct trellis_args *args_of(const struct cuda_plan *p)
{
    return (const struct trellis_args *)p->command->args;
}

static u32 max_rows_of(const struct cuda_plan *p)
{
    return args_of(p)->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
}

// As many splits as there is room for blocks, in one wave; the activations' part must fit into shared memory.
static void split_columns(const struct cuda_plan *p, u32 eights, struct trellis_params *params)
{
    u32 n_blocks = params->n_in / EXL3_BLOCK, blocks_of_sm = eights == 1 && !p->tape.invariant ? 3 : 2,
        n = blocks_of_sm * p->device.n_sms / (params->n_out / EXL3_BLOCK);

    n = n < 1 ? 1 : n > n_blocks ? n_blocks : n;
    params->split_blocks = divide_up(n_blocks, n);
    if (params->split_blocks > TRELLIS_MOST_BLOCKS)
        params->split_blocks = divide_up(n_blocks, divide_up(n_blocks, TRELLIS_MOST_BLOCKS));
    params->n_splits = divide_up(n_blocks, params->split_blocks);
}

static void launch_few(struct cuda_plan *p)
{
    static const char *const codebooks[] = {
        [EXL3_3INST] = "3inst", [EXL3_MCG] = "mcg", [EXL3_MUL1] = "mul1"
    };
    const struct trellis_args *a = args_of(p);
    u32 n_in = exl3_padded(a->n_cols), n_out = exl3_padded(a->n_rows), max_rows = max_rows_of(p),
        groups = divide_up(max_rows, TRELLIS_ROWS), eights = max_rows > 8 ? 2 : 1;
    u64 codes = cuda_at(p, MATMUL_W), suh = codes + exl3_codes_bytes(n_in, n_out, a->bits);
    struct trellis_params params = { .codes = codes,
                                     .suh = suh,
                                     .svh = suh + 2 * (u64)n_in,
                                     .in = cuda_at(p, MATMUL_IN),
                                     .bias = cuda_at(p, MATMUL_BIAS),
                                     .add = cuda_at(p, MATMUL_ADD),
                                     .out = cuda_at(p, MATMUL_OUT),
                                     .n_in = n_in,
                                     .n_out = n_out,
                                     .n_cols = a->n_cols,
                                     .n_rows = a->n_rows,
                                     .rows = a->rows };
    char name[32];

    split_columns(p, eights, &params);
    if (params.n_splits > 1) {
        p->counters_bytes = (u64)groups * (n_out / EXL3_BLOCK) * 4;
        p->private_bytes = (u64)groups * params.n_splits * TRELLIS_ROWS * n_out * 4;
        params.arrived = p->counters_at;
        params.partial = p->private_at;
    }
    snprintf(name, sizeof name, "trellis_%s_%u_%u", codebooks[a->codebook], a->bits, eights);
    cuda_launch_add(
        p, name,
        (struct cuda_shape){ { n_out / EXL3_BLOCK, params.n_splits, groups },
                             TRELLIS_WARPS * 32,
                             trellis_shared_bytes(a->bits, a->codebook, params.split_blocks, eights) },
        &params, sizeof params);
}

// Rows [first, first + n) of the matrix, at `to`.
static void launch_expand(struct cuda_plan *p, u64 to, u32 first, u32 n)
{
    const struct trellis_args *a = args_of(p);
    u32 n_in = exl3_padded(a->n_cols), n_out = exl3_padded(a->n_rows);
    u64 codes = cuda_at(p, MATMUL_W), suh = codes + exl3_codes_bytes(n_in, n_out, a->bits);
    struct trellis_expand_params params = { .codes = codes,
                                            .suh = suh,
                                            .svh = suh + 2 * (u64)n_in,
                                            .to = to,
                                            .n_in = n_in,
                                            .n_out = n_out,
                                            .n_cols = a->n_cols,
                                            .first = first,
                                            .n_rows = n,
                                            .bits = a->bits,
                                            .codebook = a->codebook,
                                            .exact = a->exact };

    cuda_launch_add(p, "trellis_expand",
                    (struct cuda_shape){ { n_in / EXL3_BLOCK, divide_up(n, EXL3_BLOCK), 1 },
                                         TRELLIS_EXPAND_THREADS,
                                         EXL3_BLOCK * (EXL3_BLOCK + 1) * 4 },
                    &params, sizeof params);
    cuda_launch_ends_first(p);
}

static void launch_product(struct cuda_plan *p, u64 rows_at, u32 first, u32 n)
{
    const struct trellis_args *a = args_of(p);
    u64 bias = cuda_at(p, MATMUL_BIAS), add = cuda_at(p, MATMUL_ADD), before = 4 * (u64)first;
    struct gemm_plan product = {
        .params = { .bias = { bias ? bias + before : 0 },
                    .out = { cuda_at(p, MATMUL_OUT) + before },
                    .in = cuda_at(p, MATMUL_IN),
                    .add = add ? add + before : 0,
                    .out_stride = { a->n_rows },
                    .n_cols = a->n_cols,
                    .mode = EPILOGUE_LINEAR,
                    .rows = a->rows },
        .work = cuda_at(p, MATMUL_WORK),
        .work_bytes = p->command->operands[MATMUL_WORK].bytes,
        .exact = a->exact,
    };

    weight_layout_place(&product.params.w[0], rows_at, a->exact ? QUANT_F32 : QUANT_BF16, n, a->n_cols);
    gemm_launch(p, &product);
}

static void launch_many(struct cuda_plan *p)
{
    const struct trellis_args *a = args_of(p);
    u64 row = (u64)a->n_cols * (a->exact ? 4 : 2), begin = p->private_at, most = 0;
    u32 fit = (u32)(CHUNK_BYTES / row) / EXL3_BLOCK * EXL3_BLOCK, chunk = fit ? fit : EXL3_BLOCK;

    chunk = chunk < exl3_padded(a->n_rows) ? chunk : exl3_padded(a->n_rows);
    u64 own = (chunk * row + 255) / 256 * 256;
    // kernels are chosen by the address, which there is none of in the first pass
    u64 at = begin ? begin : (u64)(uintptr_t)BUFFER_OUTLINE;
    for (u32 first = 0; first < a->n_rows; first += chunk) {
        u32 n = a->n_rows - first < chunk ? a->n_rows - first : chunk;
        p->private_at = begin + own;
        p->private_bytes = 0;
        launch_expand(p, at, first, n);
        launch_product(p, at, first, n);
        most = p->private_bytes > most ? p->private_bytes : most;
    }
    p->private_at = begin;
    p->private_bytes = own + most;
}

void cuda_plan_trellis(struct cuda_plan *p)
{
    if (!args_of(p)->exact && (max_rows_of(p) <= FEW_ROWS || p->tape.invariant))
        launch_few(p);
    else
        launch_many(p);
}
