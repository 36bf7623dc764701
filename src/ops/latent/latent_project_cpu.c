// latent_project_cpu.c - the definition, a head at a time; then by panels.
//
// By panels: phase 0 packs every head's x of a row and rotates its y; phase 1 takes a panel of a head's
// matrix for a block of rows. Rows of a head that are no multiple of a panel share panels with the
// neighbours: those are computed for both.
#include <string.h>
#include "ops/latent/latent.h"
#include "ops/matmul/matmul.h"
#include "ops/product_choices.h"
#include "ops/rope_store/rope_store.h"
#include "ops/rows.h"

static const float *head_in(const struct cpu_call *call, uint32_t r, uint32_t head)
{
    const struct latent_project_args *args = cpu_args(call);
    return (const float *)cpu_row(call, LATENT_PROJECT_IN, r) +
           (size_t)head * (args->n_cols + args->n_rotated);
}

static float *head_out(const struct cpu_call *call, uint32_t r, uint32_t head)
{
    const struct latent_project_args *args = cpu_args(call);
    return (float *)cpu_row(call, LATENT_PROJECT_OUT, r) + (size_t)head * (args->n_rows + args->n_rotated);
}

static void rotate_rest(const struct cpu_call *call, uint32_t r, uint32_t head)
{
    const struct latent_project_args *args = cpu_args(call);
    float *out = head_out(call, r, head) + args->n_rows;

    if (args->n_rotated == 0)
        return;
    memcpy(out, head_in(call, r, head) + args->n_cols, args->n_rotated * sizeof *out);
    rope_rotate_plain(out, cpu_row(call, LATENT_PROJECT_ANGLES, r), args->n_rotated,
                      (enum rope_pairs)args->pairs);
}

static void project_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct latent_project_args *args = cpu_args(call);

    plan->n_phases = 1;
    plan->n_tiles[0] = args->n_heads;
    plan->local_bytes = args->n_cols * sizeof(float);
}

static void project_head(const struct cpu_call *call, uint32_t head)
{
    const struct latent_project_args *args = cpu_args(call);
    float *w = call->local; // [n_cols]

    for (uint32_t i = 0; i < args->n_rows; i++) {
        matmul_decode_row(cpu_weight(call, LATENT_PROJECT_W), head * args->n_rows + i, w);
        for (uint32_t r = 0; r < call->step->n_rows; r++)
            head_out(call, r, head)[i] = matmul_dot_plain(head_in(call, r, head), w, args->n_cols);
    }
    for (uint32_t r = 0; r < call->step->n_rows; r++)
        rotate_rest(call, r, head);
}

static void project_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t head = first; head < last; head++)
        project_head(call, head);
}

// By panels.
struct project_job {
    const struct cpu_call *call;
    const struct latent_project_args *args;
    const struct product_set *set;
    struct weight_product product;
    struct product_split split;
    size_t packed_bytes;  // of a head's x
    uint32_t head_panels; // that hold rows of one head, wherever it begins
};

static struct project_job job_of(const struct cpu_call *call, const struct product_set *set)
{
    struct project_job j = { .call = call, .args = cpu_args(call), .set = set };

    product_init(&j.product, set->kernels, cpu_weight(call, LATENT_PROJECT_W), j.args->exact);
    j.packed_bytes = product_packed_bytes(j.product.packing, j.args->n_cols);
    j.split = product_split(call->step->n_rows, j.packed_bytes);
    j.head_panels =
        j.args->n_rows % PANEL_ROWS ? j.args->n_rows / PANEL_ROWS + 2 : j.args->n_rows / PANEL_ROWS;
    return j;
}

static void project_fast_plan(const struct cpu_call *call, struct cpu_plan *plan,
                              const struct product_set *set)
{
    struct project_job j = job_of(call, set);
    uint32_t n_rows = call->step->n_rows;

    plan->n_phases = 2;
    plan->n_tiles[0] = n_rows;
    plan->n_tiles[1] = n_rows ? j.args->n_heads * j.head_panels * j.split.n_blocks : 0;
    plan->local_bytes = product_scratch_bytes(&j.product);
}

static unsigned char *packed(const struct project_job *j, uint32_t r, uint32_t head)
{
    return (unsigned char *)cpu_row(j->call, LATENT_PROJECT_WORK, r) + head * j->packed_bytes;
}

static void prepare_row(const struct project_job *j, uint32_t r)
{
    for (uint32_t h = 0; h < j->args->n_heads; h++) {
        product_prepare(j->product.kernels, j->product.packing, head_in(j->call, r, h), j->args->n_cols,
                        packed(j, r, h));
        rotate_rest(j->call, r, h);
    }
}

// Columns [columns) of a panel are the head's, from its row number `at` on.
static void store_tile(const struct project_job *j, uint32_t head, struct tile_range rows,
                       struct tile_range columns, const float *y)
{
    uint32_t at = columns.first % PANEL_ROWS, row = columns.first - head * j->args->n_rows;

    for (uint32_t r = rows.first; r < rows.last; r++, y += PANEL_ROWS)
        memcpy(head_out(j->call, r, head) + row, y + at, (columns.last - columns.first) * sizeof *y);
}

static void run_panel(struct project_job *j, uint32_t head, uint32_t number, uint32_t block)
{
    _Alignas(64) float y[PRODUCT_MAX_ROWS * PANEL_ROWS];
    uint32_t begin = head * j->args->n_rows, end = begin + j->args->n_rows,
             panel = begin / PANEL_ROWS + number;
    uint32_t row = product_block_first(&j->split, block), last = product_block_first(&j->split, block + 1);
    struct tile_range columns = { panel * PANEL_ROWS, (panel + 1) * PANEL_ROWS };

    if (columns.first >= end)
        return;
    columns.first = columns.first < begin ? begin : columns.first;
    columns.last = columns.last > end ? end : columns.last;
    j->product.x = packed(j, 0, head);
    j->product.x_stride = j->call->command->operands[LATENT_PROJECT_WORK].row_bytes;
    struct product_panel w = product_panel(&j->product, panel, last - row, j->call->local);
    for (uint32_t n; row < last; row += n) {
        n = product_tile_rows(row, last, w.max_rows);
        product_run(&j->product, &w, (struct tile_range){ row, row + n }, y);
        store_tile(j, head, (struct tile_range){ row, row + n }, columns, y);
    }
}

static void project_fast_run(const struct cpu_call *call, uint32_t phase, struct tile_range range,
                             const struct product_set *set)
{
    struct project_job j = job_of(call, set);
    uint32_t n_panels = j.args->n_heads * j.head_panels;

    for (uint32_t i = range.first; i < range.last; i++)
        if (phase == 0)
            prepare_row(&j, i);
        else
            run_panel(&j, i % n_panels / j.head_panels, i % j.head_panels, i / n_panels);
}

PRODUCT_KERNELS(project_fast)

const struct cpu_op cpu_op_latent_project = { .name = "latent_project",
                                              .by_rows = true,
                                              .plain = { project_plan, project_run },
                                              .fast = { PRODUCT_CHOICES(project_fast) } };
