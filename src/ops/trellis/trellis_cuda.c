// trellis_cuda.c - the operation's launches.
//
// One row of the codebook MUL1 on Hopper: trellis_hopper.cu.
// Up to FEW_ROWS rows, and wherever a row must have the same bits in any step: trellis.cu, where its shared
// memory fits. More rows, and exact products: trellis_expand.cu writes rows of the matrix into private
// memory, as many as CHUNK_BYTES hold, and an ordinary product multiplies them.
#include "base/divide.h"
#include "gemm/cuda/gemm_params.h"
#include "ops/cuda_table.h"
#include "ops/trellis/trellis_cuda.h"

enum { FEW_ROWS = 64, CHUNK_BYTES = 32 << 20 };

const struct trellis_codebook trellis_codebooks[] = {
    [EXL3_3INST] = { 89226354, 64248484 }, [EXL3_MCG] = { EXL3_MARK_MCG, 0 }, [EXL3_MUL1] = { 0, 0 }
};

static const struct trellis_args *args_of(const struct cuda_plan *p)
{
    return (const struct trellis_args *)p->command->args;
}

static u32 max_rows_of(const struct cuda_plan *p)
{
    return args_of(p)->rows == ROWS_STEP ? p->tape.max_rows : p->tape.max_outputs;
}

static u32 kernel_rows_of(const struct cuda_plan *p)
{
    u32 most = max_rows_of(p);

    return most > 8 ? 16 : most > 1 || p->tape.invariant ? 8 : 1;
}

// Shared memory of a block with so many blocks of columns; the same for any rows where these must have the
// same bits.
static u32 shared_bytes_of(const struct cuda_plan *p, u32 split)
{
    const struct trellis_args *a = args_of(p);

    return trellis_shared_bytes(a->bits, a->codebook == EXL3_MUL1, split,
                                p->tape.invariant ? 16 : kernel_rows_of(p));
}

// What a block takes of an SM's shared memory besides: of its own, and the system's.
enum { BLOCK_OWN_SHARED = 1040 };

// Chooses the splits of the columns, and how many blocks walk the outputs of each: all are on the device at
// once, and the busiest has least to do. For some outputs a block multiplies, and the last of the splits'
// blocks adds up what each left; the weights are fits to measured times
// (bench/results/2026-11-28-trellis.md).
static void split_columns(const struct cuda_plan *p, u32 groups, struct trellis_params *params)
{
    bool alike = p->tape.invariant; // whatever the rows
    u32 n_blocks = params->n_in / EXL3_BLOCK, rows = kernel_rows_of(p), most = rows == 1 ? 32 : 16,
        most_of_sm = rows == 16 || alike ? 2 : 3, meeting = rows == 1 ? 2 : 5, least = UINT32_MAX;

    for (u32 split = 1; split <= n_blocks && split <= most; split++) {
        u32 bytes = shared_bytes_of(p, split), fit = p->device.shared_bytes / (bytes + BLOCK_OWN_SHARED),
            n_splits = divide_up(n_blocks, split);
        if (bytes > p->device.shared_bytes)
            break;
        fit = fit < 1 ? 1 : fit > most_of_sm ? most_of_sm : fit;
        u32 room = fit * p->device.n_sms / (alike ? 1 : groups);
        room = room < 1 ? 1 : room;
        u32 walkers = room / n_splits;
        walkers = walkers < 1 ? 1 : walkers > params->blocks_out ? params->blocks_out : walkers;
        u32 quads = divide_up(2 * split, TRELLIS_SHARERS) * TRELLIS_SHARERS,
            cost = divide_up(params->blocks_out, walkers) * divide_up(walkers * n_splits, room) *
                   (2 * quads + 6 + meeting * n_splits);
        if (cost < least) {
            least = cost;
            params->split_blocks = split;
            params->n_splits = n_splits;
            params->walkers = walkers;
        }
    }
}

// One row of MUL1 on Hopper: trellis_hopper.cu. With 2, 4 or 8 splits these are a cluster.
static u32 cluster_of(u32 n_splits)
{
    return n_splits == 2 || n_splits == 4 || n_splits == 8 ? n_splits : 1;
}
static void name_of_row(const struct cuda_plan *p, u32 cluster, char name[32])
{
    static const char *const clusters[] = { [1] = "", [2] = "_2", [4] = "_4", [8] = "_8" };

    snprintf(name, 32, "trellis_hopper_%u%s", args_of(p)->bits, clusters[cluster]);
}
static bool is_row(const struct cuda_plan *p)
{
    char name[32];

    name_of_row(p, 1, name);
    return kernel_rows_of(p) == 1 && args_of(p)->codebook == EXL3_MUL1 && p->device.capability >= 90 &&
           cuda_has_kernel(p, name);
}

// Shared memory of a block: so much that no third block fits an SM. Launches overlap (programmatic dependent
// launch), and with room for three the next launch's blocks filled some SMs while others had one.
static u32 row_shared_bytes(const struct cuda_plan *p, u32 split, u32 cluster)
{
    u32 bytes = trellis_hopper_shared_bytes(args_of(p)->bits, split, cluster),
        least = p->device.shared_bytes / 3 + BLOCK_OWN_SHARED;

    return bytes > least ? bytes : least;
}

// The same for one row. The weights are fits again: a quad takes longer the more blocks a multiprocessor has,
// and clusters of eight are spread unevenly.
static void split_row(const struct cuda_plan *p, struct trellis_params *params)
{
    enum { OF_BLOCK = 28, OF_MEMORY = 16, MOST = 32 };
    u32 n_blocks = params->n_in / EXL3_BLOCK, n_sms = p->device.n_sms, least = UINT32_MAX;

    for (u32 split = 1; split <= n_blocks && split <= MOST; split++) {
        u32 n = divide_up(n_blocks, split), cluster = cluster_of(n),
            fit = p->device.shared_bytes / (row_shared_bytes(p, split, cluster) + BLOCK_OWN_SHARED),
            walkers = fit * n_sms / n;
        walkers = walkers > params->blocks_out ? params->blocks_out : walkers;
        if (walkers == 0)
            continue;
        u32 of_quad = n == 8                ? 44
                      : walkers * n > n_sms ? 25
                                            : 20,
            quads = divide_up(2 * split, TRELLIS_SHARERS),
            cost = divide_up(params->blocks_out, walkers) *
                   (quads * of_quad + OF_BLOCK + (n > cluster ? OF_MEMORY : 0));
        if (cost < least) {
            least = cost;
            params->split_blocks = split;
            params->n_splits = n;
            params->walkers = walkers;
        }
    }
}

static void launch_row(struct cuda_plan *p, const struct trellis_params *params)
{
    u32 cluster = cluster_of(params->n_splits);
    char name[32];

    name_of_row(p, cluster, name);
    cuda_launch_add(p, name,
                    (struct cuda_shape){ { params->walkers, params->n_splits, 1 },
                                         TRELLIS_HOPPER_THREADS,
                                         row_shared_bytes(p, params->split_blocks, cluster) },
                    params, sizeof *params);
}

static struct trellis_matrix matrix_of(const struct cuda_plan *p, u32 i)
{
    const struct trellis_args *a = args_of(p);
    u32 n_in = exl3_padded(a->n_cols), n_out = exl3_padded(a->n_rows[i]), first = i * TRELLIS_OPERANDS;
    u64 codes = cuda_at(p, first + TRELLIS_W), suh = codes + exl3_codes_bytes(n_in, n_out, a->bits);

    return (struct trellis_matrix){ .codes = codes,
                                    .suh = suh,
                                    .svh = suh + 2 * (u64)n_in,
                                    .bias = cuda_at(p, first + TRELLIS_BIAS),
                                    .add = cuda_at(p, first + TRELLIS_ADD),
                                    .out = cuda_at(p, first + TRELLIS_OUT),
                                    .n_out = n_out,
                                    .n_rows = a->n_rows[i] };
}

static void launch_few(struct cuda_plan *p)
{
    const struct trellis_args *a = args_of(p);
    u32 groups = divide_up(max_rows_of(p), TRELLIS_ROWS), rows = kernel_rows_of(p), n = trellis_n_matrices(a);
    bool bytes = a->codebook == EXL3_MUL1;
    struct trellis_params params = { .in = cuda_at(p, TRELLIS_IN),
                                     .n_in = exl3_padded(a->n_cols),
                                     .n_cols = a->n_cols,
                                     .rows = a->rows,
                                     .factor = trellis_codebooks[a->codebook].factor,
                                     .more = trellis_codebooks[a->codebook].more };
    u64 record_bytes = (u64)groups * (params.n_in / EXL3_BLOCK) * trellis_record_words(bytes, rows) * 4;
    char name[32];

    for (u32 i = 0; i < n; i++) {
        params.matrices[i] = matrix_of(p, i);
        params.blocks_out += params.matrices[i].n_out / EXL3_BLOCK;
        params.matrices[i].turned = p->private_at + i * record_bytes;
    }
    p->private_bytes = rows > 1 ? n * record_bytes : 0;
    if (is_row(p))
        split_row(p, &params);
    else
        split_columns(p, groups, &params);
    if (params.n_splits > 1) {
        params.arrived = p->counters_at;
        params.partial = p->private_at + p->private_bytes;
        p->counters_bytes = (u64)groups * params.blocks_out * 4;
        p->private_bytes += (u64)groups * params.n_splits * TRELLIS_ROWS * params.blocks_out * EXL3_BLOCK * 4;
    }
    if (is_row(p)) {
        launch_row(p, &params);
        return;
    }
    if (rows > 1) {
        snprintf(name, sizeof name, "trellis_turn_%s_%u", bytes ? "bytes" : "halves", rows);
        cuda_launch_add(p, name,
                        (struct cuda_shape){ { params.n_in / EXL3_BLOCK, n, groups }, TRELLIS_WARPS * 32, 0 },
                        &params, sizeof params);
    }
    snprintf(name, sizeof name, "trellis_%s_%u_%u", bytes ? "bytes" : "halves", a->bits, rows);
    cuda_launch_add(p, name,
                    (struct cuda_shape){ { params.walkers, params.n_splits, groups },
                                         TRELLIS_WARPS * 32,
                                         trellis_shared_bytes(a->bits, bytes, params.split_blocks, rows) },
                    &params, sizeof params);
}

// Rows [first, first + n) of a matrix, at `to`.
static void launch_expand(struct cuda_plan *p, const struct trellis_matrix *m, u64 to, u32 first, u32 n)
{
    const struct trellis_args *a = args_of(p);
    struct trellis_expand_params params = { .codes = m->codes,
                                            .suh = m->suh,
                                            .svh = m->svh,
                                            .to = to,
                                            .n_in = exl3_padded(a->n_cols),
                                            .n_out = m->n_out,
                                            .n_cols = a->n_cols,
                                            .first = first,
                                            .n_rows = n,
                                            .bits = a->bits,
                                            .exact = a->exact,
                                            .factor = trellis_codebooks[a->codebook].factor,
                                            .more = trellis_codebooks[a->codebook].more };

    cuda_launch_add(p, "trellis_expand",
                    (struct cuda_shape){ { params.n_in / EXL3_BLOCK, divide_up(n, EXL3_BLOCK), 1 },
                                         TRELLIS_EXPAND_THREADS,
                                         EXL3_BLOCK * (EXL3_BLOCK + 1) * 4 },
                    &params, sizeof params);
    cuda_launch_ends_first(p);
}

static void launch_product(struct cuda_plan *p, const struct trellis_matrix *m, u64 rows_at, u32 first, u32 n)
{
    const struct trellis_args *a = args_of(p);
    u64 before = 4 * (u64)first;
    struct gemm_plan product = {
        .params = { .bias = { m->bias ? m->bias + before : 0 },
                    .out = { m->out + before },
                    .in = cuda_at(p, TRELLIS_IN),
                    .add = m->add ? m->add + before : 0,
                    .out_stride = { m->n_rows },
                    .n_cols = a->n_cols,
                    .mode = EPILOGUE_LINEAR,
                    .rows = a->rows },
        .work = cuda_at(p, TRELLIS_WORK),
        .work_bytes = p->command->operands[TRELLIS_WORK].bytes,
        .exact = a->exact,
    };

    weight_layout_place(&product.params.w[0], rows_at, a->exact ? QUANT_F32 : QUANT_BF16, n, a->n_cols);
    gemm_launch(p, &product);
}

// The most private memory that a product wanted, of those before and of this matrix, behind `own` bytes.
static u64 launch_matrix(struct cuda_plan *p, const struct trellis_matrix *m, u32 chunk, u64 own, u64 most)
{
    u64 begin = p->private_at;
    // kernels are chosen by the address, which there is none of in the first pass
    u64 at = begin ? begin : (u64)(uintptr_t)BUFFER_OUTLINE;

    for (u32 first = 0; first < m->n_rows; first += chunk) {
        u32 n = m->n_rows - first < chunk ? m->n_rows - first : chunk;
        p->private_at = begin + own;
        p->private_bytes = 0;
        launch_expand(p, m, at, first, n);
        launch_product(p, m, at, first, n);
        most = p->private_bytes > most ? p->private_bytes : most;
    }
    p->private_at = begin;
    return most;
}

static void launch_many(struct cuda_plan *p)
{
    const struct trellis_args *a = args_of(p);
    u64 row = (u64)a->n_cols * (a->exact ? 4 : 2), most = 0;
    u32 fit = (u32)(CHUNK_BYTES / row) / EXL3_BLOCK * EXL3_BLOCK, chunk = fit ? fit : EXL3_BLOCK, n_out = 0;

    for (u32 i = 0; i < trellis_n_matrices(a); i++)
        n_out = exl3_padded(a->n_rows[i]) > n_out ? exl3_padded(a->n_rows[i]) : n_out;
    chunk = chunk < n_out ? chunk : n_out;
    u64 own = (chunk * row + 255) / 256 * 256;
    for (u32 i = 0; i < trellis_n_matrices(a); i++) {
        struct trellis_matrix m = matrix_of(p, i);
        most = launch_matrix(p, &m, chunk, own, most);
    }
    p->private_bytes = own + most;
}

void cuda_plan_trellis(struct cuda_plan *p)
{
    if (!args_of(p)->exact && (max_rows_of(p) <= FEW_ROWS || p->tape.invariant) &&
        shared_bytes_of(p, 1) <= p->device.shared_bytes)
        launch_few(p);
    else
        launch_many(p);
}
