// latent_attend_cpu.c - the definition: two passes over the past, the maximum first; then by the kernels of
// ops/attend.
//
// Fast: a tile is a few rows of the step, some of the query heads, and one split of the past where the
// splits' sums have room. All heads read the same pages, so a tile has as many as fit; heads are split into
// more tiles where threads would idle.
#include <math.h>
#include "base/divide.h"
#include "ops/attend/attend_rows.h"
#include "ops/latent/latent.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

struct latent_query { // one query head of one row, and where its sequence's pages are
    const struct attend_args *args;
    const uint32_t *table;
    void *pages;
    const float *q;
    float *key; // [head_dim] room for one token
    uint32_t last;
};

static const float *read_key(const struct latent_query *h, uint32_t position)
{
    page_read(&(struct page_token){ &h->args->pages, h->pages, h->table[position / PAGE_TOKENS], 0,
                                    position % PAGE_TOKENS, false },
              h->key);
    return h->key;
}

static float score(const struct latent_query *h, uint32_t position)
{
    const float *key = read_key(h, position);
    float sum = 0;

    for (uint32_t d = 0; d < h->args->pages.head_dim; d++)
        sum += h->q[d] * key[d];
    return sum * h->args->scale;
}

static void head_plain(const struct latent_query *h, float *out)
{
    float row_max = -INFINITY, row_sum = 0;

    for (uint32_t j = 0; j <= h->last; j++)
        row_max = fmaxf(row_max, score(h, j));
    for (uint32_t d = 0; d < h->args->latent_dims; d++)
        out[d] = 0;
    for (uint32_t j = 0; j <= h->last; j++) {
        float weight = expf(score(h, j) - row_max);
        row_sum += weight;
        for (uint32_t d = 0; d < h->args->latent_dims; d++) // of the key that the score was computed from
            out[d] += weight * h->key[d];
    }
    for (uint32_t d = 0; d < h->args->latent_dims; d++)
        out[d] /= row_sum;
}

static const uint32_t *table_of(const struct cpu_call *call, uint32_t r)
{
    const struct attend_args *args = cpu_args(call);
    return (const uint32_t *)cpu_base(call, LATENT_ATTEND_TABLE) +
           (uint64_t)step_slots(call->step)[r] * args->pages.max_pages;
}

static void attend_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct attend_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = args->pages.head_dim * sizeof(float);
}

static void attend_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct attend_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t r = first; r < last; r++)
        for (uint32_t i = 0; i < args->n_heads; i++)
            head_plain(&(struct latent_query){ .args = args,
                                               .table = table_of(call, r),
                                               .pages = cpu_base(call, LATENT_ATTEND_PAGES),
                                               .q = (const float *)cpu_row(call, LATENT_ATTEND_Q, r) +
                                                    i * args->pages.head_dim,
                                               .key = call->local,
                                               .last = step_positions(call->step)[r] },
                       (float *)cpu_row(call, LATENT_ATTEND_OUT, r) + i * args->latent_dims);
}

// Fast.
enum { TILES_PER_THREAD = 2, LEAST_HEADS = 8 };
struct latent_tiling {
    uint32_t rows, n_blocks, n_groups, n_splits; // rows of a tile; tiles of rows, of heads; splits of the
                                                 // past
    uint32_t split_floats;                       // of one row and split in the workspace
};

static struct latent_tiling tiling_of(const struct cpu_call *call)
{
    const struct attend_args *args = cpu_args(call);
    uint32_t n = call->step->n_rows, heads = args->n_heads, wanted = TILES_PER_THREAD * call->n_threads;
    struct latent_tiling t = { .rows = heads < ATTEND_MAX_COLUMNS ? ATTEND_MAX_COLUMNS / heads : 1,
                               .n_groups = divide_up(heads, ATTEND_MAX_COLUMNS),
                               .n_splits =
                                   cpu_has(call, LATENT_ATTEND_WORK) ? attend_splits(call->step) : 1 };
    uint32_t together = t.n_splits > 1 ? attend_longest_run(call->step) : t.rows;

    t.rows = together < t.rows ? together : t.rows;
    while (t.rows > 1 && divide_up(n, t.rows) * t.n_groups * t.n_splits < wanted)
        t.rows /= 2;
    t.n_blocks = divide_up(n, t.rows);
    while (t.n_groups < divide_up(heads, LEAST_HEADS) && t.n_blocks * t.n_groups * t.n_splits < wanted)
        t.n_groups++;
    t.split_floats = heads * (args->latent_dims + ATTEND_SUMS_FLOATS);
    return t;
}

static void latent_plan_fast(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct attend_args *args = cpu_args(call);
    struct latent_tiling t = tiling_of(call);

    plan->n_phases = 2;
    plan->n_tiles[0] = t.n_blocks * t.n_groups * t.n_splits;
    plan->n_tiles[1] = t.n_splits > 1 ? call->step->n_rows : 0;
    plan->local_bytes = attend_local_bytes(&args->pages, args->latent_dims);
}

static void attend_tile(const struct cpu_call *call, const struct latent_tiling *t, uint32_t tile,
                        const struct row_kernels *rows)
{
    const struct attend_args *all = cpu_args(call);
    uint32_t group = tile % t->n_groups, split = tile / t->n_groups % t->n_splits,
             first = tile / t->n_groups / t->n_splits * t->rows;
    uint32_t end = first + t->rows < call->step->n_rows ? first + t->rows : call->step->n_rows;
    uint32_t head = all->n_heads * group / t->n_groups;
    struct attend_args args = *all;

    args.n_heads = all->n_heads * (group + 1) / t->n_groups - head;
    for (uint32_t r = first, length; r < end; r += length) {
        length = attend_run_length(call->step, r, end);
        // [n_splits][n_heads][latent_dims + sums]
        float *partial = t->n_splits > 1 ? cpu_row(call, LATENT_ATTEND_WORK, r) : NULL;
        rows->attend(&(struct attend_run){
            .args = &args,
            .table = table_of(call, r),
            .k_pages = cpu_base(call, LATENT_ATTEND_PAGES),
            .q = (const float *)cpu_row(call, LATENT_ATTEND_Q, r) + head * args.pages.head_dim,
            .out = (float *)cpu_row(call, LATENT_ATTEND_OUT, r) + head * args.latent_dims,
            .q_stride = (size_t)all->n_heads * args.pages.head_dim,
            .out_stride = (size_t)all->n_heads * args.latent_dims,
            .n_rows = length,
            .position = step_positions(call->step)[r],
            .n_kv = 1,
            .local = call->local,
            .partial =
                partial ? partial + split * t->split_floats + head * (args.latent_dims + ATTEND_SUMS_FLOATS)
                        : NULL,
            .partial_stride = call->command->operands[LATENT_ATTEND_WORK].row_bytes / sizeof(float),
            .split = split,
        });
    }
}

static void merge_row(const struct cpu_call *call, const struct latent_tiling *t, uint32_t r,
                      const struct row_kernels *rows)
{
    const struct attend_args *args = cpu_args(call);

    rows->attend_merge(&(struct attend_merge){ .partial = cpu_row(call, LATENT_ATTEND_WORK, r),
                                               .split_stride = t->split_floats,
                                               .out = cpu_row(call, LATENT_ATTEND_OUT, r),
                                               .n_heads = args->n_heads,
                                               .head_dim = args->latent_dims,
                                               .last = step_positions(call->step)[r] / ATTEND_SPLIT });
}

static void latent_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    struct latent_tiling t = tiling_of(call);

    for (uint32_t i = range.first; i < range.last; i++)
        if (range.phase == 0)
            attend_tile(call, &t, i, rows);
        else
            merge_row(call, &t, i, rows);
}
ROW_KERNELS(latent_fast)

const struct cpu_op cpu_op_latent_attend = { .name = "latent_attend",
                                             .by_rows = true,
                                             .plain = { attend_plan, attend_run },
                                             .fast = { ROW_CHOICES(latent_plan_fast, latent_fast) } };
