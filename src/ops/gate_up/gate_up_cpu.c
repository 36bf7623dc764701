// gate_up_cpu.c - the definition, which is its parts row by row; then by panels.
//
// By panels: phase 0 normalises many rows and packs them; phase 1 takes a panel of gate and the same panel of
// up, and applies the activation before anything is written.
//
// Up to PRODUCT_FEW rows each thread does phase 0 for itself, as in matmul.
#include "ops/gate_up/gate_up.h"
#include "ops/lora/adapted.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/product_choices.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rows.h"

static void gate_up_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct gate_up_args *args = cpu_args(call);
    plan_rows(call, plan);
    plan->local_bytes = 2 * args->n_cols * sizeof(float);
}

static void gate_up_row(const struct cpu_call *call, uint32_t r)
{
    const struct gate_up_args *args = cpu_args(call);
    const struct weight *gate = cpu_weight(call, GATE_UP_GATE), *up = cpu_weight(call, GATE_UP_UP);
    float *n = call->local, *decoded = n + args->n_cols; // [n_cols] each
    float *out = cpu_row(call, GATE_UP_OUT, r);          // [n_out]
    // The arguments of both operations begin alike.
    const struct gate_up_adapted_args *adapted_args = cpu_args(call);
    struct adapted adapted = { call, &adapted_args->adapters, GATE_UP_ADAPTERS, ROWS_STEP };
    bool adds = call->command->op == OP_gate_up_adapted;

    rmsnorm_row_plain(cpu_row(call, GATE_UP_IN, r), cpu_base(call, GATE_UP_NORM), n, args->n_cols, args->eps);
    if (adds)
        adapted_down_plain(&adapted, r, n);
    for (uint32_t i = 0; i < args->n_out; i++) {
        float g = matmul_row_plain(n, gate, i, decoded), u = matmul_row_plain(n, up, i, decoded);
        if (adds) {
            adapted_up_plain(&adapted, r, &(struct adapted_outputs){ 0, i, 1, &g });
            adapted_up_plain(&adapted, r, &(struct adapted_outputs){ 1, i, 1, &u });
        }
        out[i] = activate_plain((enum activation)args->activation, g) * u;
    }
}

static void gate_up_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t r = first; r < last; r++)
        gate_up_row(call, r);
}

// By panels.
struct gate_up_job {
    const struct cpu_call *call;
    const struct gate_up_args *args;
    const struct product_set *set;
    struct weight_product products[2]; // gate, up
    struct product_packings packings;
    struct product_split split;
    uint32_t n_rows, n_panels;
    size_t scratch_bytes;
    bool few;
};

static struct gate_up_job job_of(const struct cpu_call *call, const struct product_set *set)
{
    struct gate_up_job j = { .call = call, .args = cpu_args(call), .set = set, .n_rows = call->step->n_rows };

    for (uint32_t i = 0; i < 2; i++)
        product_init(&j.products[i], set->kernels, cpu_weight(call, GATE_UP_GATE + i), j.args->exact);
    j.packings = product_packings_of(j.products, 2, j.args->n_cols);
    j.split = product_split(j.n_rows, product_packed_bytes(j.products[0].packing, j.args->n_cols));
    j.n_panels = panel_count(j.args->n_out);
    j.scratch_bytes = product_scratch_bytes(&j.products[0]);
    j.few = j.n_rows <= PRODUCT_FEW;
    return j;
}

static void gate_up_fast_plan(const struct cpu_call *call, struct cpu_plan *plan,
                              const struct product_set *set)
{
    struct gate_up_job j = job_of(call, set);

    plan->n_phases = 2;
    plan->n_tiles[0] = j.few ? 0 : j.n_rows;
    plan->n_tiles[1] = j.n_rows ? j.n_panels * j.split.n_blocks : 0;
    plan->local_bytes =
        PRODUCT_FEW * j.packings.bytes + j.scratch_bytes + product_scratch_bytes(&j.products[1]);
}

static void normalise(const struct gate_up_job *j, uint32_t row, unsigned char *out)
{
    struct product_norm norm = { j->set->rows->rmsnorm, cpu_base(j->call, GATE_UP_NORM), j->args->n_cols,
                                 j->args->eps };
    product_normalise(j->set->kernels, &j->packings, &norm, cpu_row(j->call, GATE_UP_IN, row), out);
}

static void find_rows(struct gate_up_job *j)
{
    unsigned char *at = j->few ? j->call->local : cpu_base(j->call, GATE_UP_WORK);
    size_t stride = j->few ? j->packings.bytes : j->call->command->operands[GATE_UP_WORK].row_bytes;

    for (uint32_t r = 0; j->few && (*j->call->fresh & 2) && r < j->n_rows; r++)
        normalise(j, r, at + r * stride);
    *j->call->fresh &= ~(uint64_t)2;
    for (uint32_t i = 0; i < 2; i++) {
        j->products[i].x = at + j->packings.at[j->products[i].packing];
        j->products[i].x_stride = stride;
    }
}

static void finish_tile(const struct gate_up_job *j, uint32_t panel, uint32_t row, float *gate,
                        const float *up, uint32_t n)
{
    uint32_t column = panel * PANEL_ROWS, left = j->args->n_out - column;
    struct activate_args all = { .n_cols = n * PANEL_ROWS, .activation = j->args->activation, .gated = 1 };

    j->set->rows->activate(&all, gate, up, gate);
    j->set->kernels->store(
        &(struct product_store){ .y = gate,
                                 .out = (float *)cpu_row(j->call, GATE_UP_OUT, row) + column,
                                 .stride = j->call->command->operands[GATE_UP_OUT].row_bytes / 4,
                                 .n_rows = n,
                                 .n_cols = left < PANEL_ROWS ? left : PANEL_ROWS });
}

static void run_panel(const struct gate_up_job *j, uint32_t panel, uint32_t block)
{
    _Alignas(64) float y[2][PRODUCT_MAX_ROWS * PANEL_ROWS];
    unsigned char *scratch = (unsigned char *)j->call->local + PRODUCT_FEW * j->packings.bytes;
    uint32_t first = product_block_first(&j->split, block), end = product_block_first(&j->split, block + 1);
    struct product_panel gate = product_panel(&j->products[0], panel, end - first, scratch);
    struct product_panel up = product_panel(&j->products[1], panel, end - first, scratch + j->scratch_bytes);
    uint32_t max_rows = gate.max_rows < up.max_rows ? gate.max_rows : up.max_rows;

    for (uint32_t row = first, n; row < end; row += n) {
        n = product_tile_rows(row, end, max_rows);
        product_expect((float *)cpu_row(j->call, GATE_UP_OUT, row) + panel * PANEL_ROWS, j->args->n_out, n);
        product_run(&j->products[0], &gate, (struct tile_range){ row, row + n }, y[0]);
        product_run(&j->products[1], &up, (struct tile_range){ row, row + n }, y[1]);
        finish_tile(j, panel, row, y[0], y[1], n);
    }
}

static void gate_up_fast_run(const struct cpu_call *call, uint32_t phase, struct tile_range range,
                             const struct product_set *set)
{
    struct gate_up_job j = job_of(call, set);

    for (uint32_t r = range.first; phase == 0 && r < range.last; r++)
        normalise(&j, r, cpu_row(call, GATE_UP_WORK, r));
    if (phase == 0)
        return;
    find_rows(&j);
    for (uint32_t i = range.first; i < range.last; i++)
        run_panel(&j, i % j.n_panels, i / j.n_panels);
}

PRODUCT_KERNELS(gate_up_fast)

const struct cpu_op cpu_op_gate_up = { .name = "gate_up",
                                       .by_rows = true,
                                       .plain = { gate_up_plan, gate_up_run },
                                       .fast = { PRODUCT_CHOICES(gate_up_fast) } };
const struct cpu_op cpu_op_gate_up_adapted = { .name = "gate_up_adapted",
                                               .by_rows = true,
                                               .parts_are_faster = true,
                                               .plain = { gate_up_plan, gate_up_run } };
