// qkv_cpu.c - the definition, which is its parts row by row; then by panels.
//
// By panels: phase 0 normalises many rows and packs them; phase 1 computes the tiles of all three products;
// phase 2 rotates and stores row by row.
//
// Up to PRODUCT_FEW rows each thread does phase 0 for itself, as in matmul. Where a head is whole panels, a
// tile of phase 1 is a head, which is rotated and stored by the same thread: one phase, no barrier inside. k
// and v are in the workspace in between.
#include "ops/lora/adapted.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/product_choices.h"
#include "ops/qkv/qkv.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/rows.h"

static void qkv_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct qkv_args *args = cpu_args(call);
    plan_rows(call, plan);
    plan->local_bytes = 2 * args->n_cols * sizeof(float);
}

struct plain_product {
    uint32_t w, bias; // operands
    float *out;
};

static void product_plain(const struct cpu_call *call, const struct plain_product *p, const float *in,
                          float *decoded)
{
    const struct weight *w = cpu_weight(call, p->w);
    const float *bias = cpu_base(call, p->bias);

    for (uint32_t n = 0; n < w->n_rows; n++) {
        p->out[n] = matmul_row_plain(in, w, n, decoded);
        if (bias)
            p->out[n] += bias[n];
    }
}

// The arguments of both operations begin alike.
static void add_adapters(const struct cpu_call *call, uint32_t r, const float *n,
                         const struct plain_product products[3])
{
    const struct qkv_adapted_args *args = cpu_args(call);
    struct adapted adapted = { call, &args->adapters, QKV_ADAPTERS, ROWS_STEP };

    if (call->command->op != OP_qkv_adapted)
        return;
    adapted_down_plain(&adapted, r, n);
    for (uint32_t i = 0; i < 3; i++)
        adapted_up_plain(
            &adapted, r,
            &(struct adapted_outputs){ i, 0, cpu_weight(call, products[i].w)->n_rows, products[i].out });
}

// k and v lie in the workspace, one behind the other.
static struct rope_row row_of(const struct cpu_call *call, uint32_t r)
{
    const struct qkv_args *args = cpu_args(call);
    float *k = cpu_row(call, QKV_WORK, r); // [n_kv]

    return (struct rope_row){
        .q = cpu_row(call, QKV_Q, r),
        .k = k,
        .v = k + args->rope.pages.n_kv_heads * args->rope.pages.head_dim,
        .q_norm = cpu_base(call, QKV_Q_NORM),
        .k_norm = cpu_base(call, QKV_K_NORM),
        .angles = cpu_row(call, QKV_ANGLES, r),
        .k_pages = cpu_base(call, QKV_K_PAGES),
        .v_pages = cpu_base(call, QKV_V_PAGES),
        .table = (const uint32_t *)cpu_base(call, QKV_TABLE) +
                 (uint64_t)step_slots(call->step)[r] * args->rope.pages.max_pages,
        .position = step_positions(call->step)[r],
    };
}

static void qkv_row(const struct cpu_call *call, uint32_t r)
{
    const struct qkv_args *args = cpu_args(call);
    float *n = call->local, *decoded = n + args->n_cols; // [n_cols] each
    const struct rope_row row = row_of(call, r);
    const struct plain_product products[] = { { QKV_WQ, QKV_BQ, row.q },
                                              { QKV_WK, QKV_BK, row.k },
                                              { QKV_WV, QKV_BV, row.v } };

    rmsnorm_row_plain(cpu_row(call, QKV_IN, r), cpu_base(call, QKV_NORM), n, args->n_cols, args->norm_eps);
    for (uint32_t i = 0; i < 3; i++)
        product_plain(call, &products[i], n, decoded);
    add_adapters(call, r, n, products);
    rope_store_row_plain(&args->rope, &row);
}

static void qkv_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t r = first; r < last; r++)
        qkv_row(call, r);
}

// By panels.
enum { N_PRODUCTS = 3 }; // q, k, v

struct qkv_job {
    const struct cpu_call *call;
    const struct qkv_args *args;
    const struct product_set *set;
    struct weight_product products[N_PRODUCTS];
    struct product_packings packings;
    struct product_split split;
    uint32_t n_rows, n_panels; // of all three
    uint32_t head_panels;      // of a tile that is a head, or 0
    bool few;
};

static struct qkv_job job_of(const struct cpu_call *call, const struct product_set *set)
{
    struct qkv_job j = { .call = call, .args = cpu_args(call), .set = set, .n_rows = call->step->n_rows };

    for (uint32_t i = 0; i < N_PRODUCTS; i++) {
        product_init(&j.products[i], set->kernels, cpu_weight(call, QKV_WQ + i), j.args->exact);
        j.n_panels += panel_count(j.products[i].w->n_rows);
    }
    j.packings = product_packings_of(j.products, N_PRODUCTS, j.args->n_cols);
    // of one packing; the others are similar
    j.split = product_split(j.n_rows, product_packed_bytes(j.products[0].packing, j.args->n_cols));
    j.few = j.n_rows <= PRODUCT_FEW;
    j.head_panels =
        j.few && j.args->rope.pages.head_dim % PANEL_ROWS == 0 ? j.args->rope.pages.head_dim / PANEL_ROWS : 0;
    return j;
}

static void qkv_fast_plan(const struct cpu_call *call, struct cpu_plan *plan, const struct product_set *set)
{
    struct qkv_job j = job_of(call, set);
    size_t scratch = 0;

    for (uint32_t i = 0; i < N_PRODUCTS; i++)
        scratch =
            product_scratch_bytes(&j.products[i]) > scratch ? product_scratch_bytes(&j.products[i]) : scratch;
    plan->n_phases = 3;
    plan->n_tiles[0] = j.few ? 0 : j.n_rows;
    plan->n_tiles[1] = j.n_rows == 0   ? 0
                       : j.head_panels ? j.n_panels / j.head_panels
                                       : j.n_panels * j.split.n_blocks;
    plan->n_tiles[2] = j.head_panels ? 0 : j.n_rows;
    plan->local_bytes = PRODUCT_FEW * j.packings.bytes + scratch;
}

static float *work_k(const struct qkv_job *j, uint32_t row)
{
    return cpu_row(j->call, QKV_WORK, row);
}

static uint32_t n_kv(const struct qkv_job *j)
{
    return j->args->rope.pages.n_kv_heads * j->args->rope.pages.head_dim;
}

static unsigned char *work_packed(const struct qkv_job *j, uint32_t row)
{
    return (unsigned char *)(work_k(j, row) + 2 * n_kv(j));
}

static void normalise(const struct qkv_job *j, uint32_t row, unsigned char *out)
{
    struct product_norm norm = { j->set->rows->rmsnorm, cpu_base(j->call, QKV_NORM), j->args->n_cols,
                                 j->args->norm_eps };
    product_normalise(j->set->kernels, &j->packings, &norm, cpu_row(j->call, QKV_IN, row), out);
}

static void find_rows(struct qkv_job *j)
{
    unsigned char *at = j->few ? j->call->local : work_packed(j, 0);
    size_t stride = j->few ? j->packings.bytes : j->call->command->operands[QKV_WORK].row_bytes;

    for (uint32_t r = 0; j->few && (*j->call->fresh & 2) && r < j->n_rows; r++)
        normalise(j, r, at + r * stride);
    *j->call->fresh &= ~(uint64_t)2;
    for (uint32_t i = 0; i < N_PRODUCTS; i++) {
        j->products[i].x = at + j->packings.at[j->products[i].packing];
        j->products[i].x_stride = stride;
    }
}

static void finish_tile(const struct qkv_job *j, uint32_t which, uint32_t panel,
                        const struct product_store *tile)
{
    const struct operand *operands = j->call->command->operands;
    uint32_t n = panel * PANEL_ROWS, left = j->products[which].w->n_rows - n;
    const float *bias = cpu_base(j->call, QKV_BQ + which);
    struct product_store s = *tile;

    s.n_cols = left < PANEL_ROWS ? left : PANEL_ROWS;
    s.bias = bias ? bias + n : NULL;
    s.stride = operands[which ? QKV_WORK : QKV_Q].row_bytes / 4;
    s.out += n;
    j->set->kernels->store(&s);
}

static void run_panel(const struct qkv_job *j, uint32_t which, uint32_t panel, uint32_t block)
{
    _Alignas(64) float y[PRODUCT_MAX_ROWS * PANEL_ROWS];
    const struct weight_product *p = &j->products[which];
    unsigned char *scratch = (unsigned char *)j->call->local + PRODUCT_FEW * j->packings.bytes;
    uint32_t first = product_block_first(&j->split, block), end = product_block_first(&j->split, block + 1);
    struct product_panel w = product_panel(p, panel, end - first, scratch);

    for (uint32_t row = first, n; row < end; row += n) {
        float *out = which ? work_k(j, row) + (which - 1) * n_kv(j) : cpu_row(j->call, QKV_Q, row);
        n = product_tile_rows(row, end, w.max_rows);
        product_run(p, &w, (struct tile_range){ row, row + n }, y);
        finish_tile(j, which, panel, &(struct product_store){ .y = y, .n_rows = n, .out = out });
    }
}

// Panel number `at` of all three products.
static void run_panel_of_all(const struct qkv_job *j, uint32_t at, uint32_t block)
{
    uint32_t which = 0;

    while (at >= panel_count(j->products[which].w->n_rows))
        at -= panel_count(j->products[which++].w->n_rows);
    run_panel(j, which, at, block);
}

static void rope_row(const struct qkv_job *j, uint32_t r, struct head_range heads)
{
    const struct rope_row row = row_of(j->call, r);

    j->set->rows->rope_store(&j->args->rope, &row, heads);
}

static void run_products(struct qkv_job *j, struct tile_range range)
{
    find_rows(j);
    for (uint32_t i = range.first; !j->head_panels && i < range.last; i++)
        run_panel_of_all(j, i % j->n_panels, i / j->n_panels);
    for (uint32_t h = range.first; j->head_panels && h < range.last; h++) {
        for (uint32_t p = 0; p < j->head_panels; p++)
            run_panel_of_all(j, h * j->head_panels + p, 0);
        for (uint32_t r = 0; r < j->n_rows; r++)
            rope_row(j, r, (struct head_range){ h, h + 1 });
    }
}

static void qkv_fast_run(const struct cpu_call *call, uint32_t phase, struct tile_range range,
                         const struct product_set *set)
{
    struct qkv_job j = job_of(call, set);

    if (phase == 1)
        run_products(&j, range);
    for (uint32_t r = range.first; phase != 1 && r < range.last; r++)
        if (phase == 0)
            normalise(&j, r, work_packed(&j, r));
        else
            rope_row(&j, r,
                     (struct head_range){ 0, j.args->rope.n_heads + 2 * j.args->rope.pages.n_kv_heads });
}

PRODUCT_KERNELS(qkv_fast)

const struct cpu_op cpu_op_qkv = {
    .name = "qkv", .by_rows = true, .plain = { qkv_plan, qkv_run }, .fast = { PRODUCT_CHOICES(qkv_fast) }
};
const struct cpu_op cpu_op_qkv_adapted = {
    .name = "qkv_adapted", .by_rows = true, .parts_are_faster = true, .plain = { qkv_plan, qkv_run }
};
