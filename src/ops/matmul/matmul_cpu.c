// matmul_cpu.c - the definition, then the product by panels.
//
// By panels: phase 0 packs many rows; phase 1 computes the tiles.
//
// Up to PRODUCT_FEW rows each thread packs all of them for itself: that takes a microsecond and saves a
// barrier. The bits are the same either way. Tile numbers run over the panels of a matrix first, so that a
// thread reads one stretch of memory.
#include "ops/activate/activate.h"
#include "ops/lora/adapted.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/product_choices.h"
#include "ops/rows.h"

enum { PLAIN_TILE = 16 }; // rows of w in a tile

void matmul_decode_row(const struct weight *w, uint32_t n, float *decoded)
{
    const unsigned char *row = (const unsigned char *)w->buffer.host + (uint64_t)n * (w->bytes / w->n_rows);

    CHECK(w->layout == LAYOUT_FILE);
    quant_info(w->format)->decode(row, decoded, w->n_cols);
}

float matmul_dot_plain(const float *in, const float *w, uint32_t n_cols)
{
    float sum = 0;

    for (uint32_t k = 0; k < n_cols; k++)
        sum += in[k] * w[k];
    return sum;
}

float matmul_row_plain(const float *in, const struct weight *w, uint32_t n, float *decoded)
{
    matmul_decode_row(w, n, decoded);
    return matmul_dot_plain(in, decoded, w->n_cols);
}

// NULL: the command is a plain product. The arguments of both begin alike.
static const struct matmul_activated_args *activated_args(const struct cpu_call *call)
{
    return call->command->op == OP_matmul_activated ? cpu_args(call) : NULL;
}

static void matmul_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct matmul_args *args = cpu_args(call);
    plan->n_phases = 1;
    plan->n_tiles[0] = (args->n_rows + PLAIN_TILE - 1) / PLAIN_TILE;
    plan->local_bytes = args->n_cols * sizeof(float);
}

static void matmul_output(const struct cpu_call *call, uint32_t n)
{
    const struct matmul_args *args = cpu_args(call);
    const float *bias = cpu_base(call, MATMUL_BIAS); // [n_rows] or NULL
    float *w = call->local;                          // [n_cols]
    uint32_t n_in = rows_of(call->step, args->rows);

    matmul_decode_row(cpu_weight(call, MATMUL_W), n, w);
    for (uint32_t row = 0; row < n_in; row++) {
        float sum = matmul_dot_plain(cpu_row(call, MATMUL_IN, row), w, args->n_cols);
        if (bias)
            sum += bias[n];
        if (cpu_has(call, MATMUL_ADD))
            sum += ((const float *)cpu_row(call, MATMUL_ADD, row))[n];
        if (activated_args(call))
            sum = activate_plain((enum activation)activated_args(call)->activation, sum);
        ((float *)cpu_row(call, MATMUL_OUT, row))[n] = sum;
    }
}

static void matmul_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct matmul_args *args = cpu_args(call);
    uint32_t end = last * PLAIN_TILE < args->n_rows ? last * PLAIN_TILE : args->n_rows;

    (void)phase;
    for (uint32_t n = first * PLAIN_TILE; n < end; n++)
        matmul_output(call, n);
}

static void matmul_three_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    matmul_plan(call, plan);
    plan->n_tiles[0] = 3 * ((const struct matmul_args *)cpu_args(call))->n_rows;
}

// A tile is a row of one of the matrices.
static void matmul_three_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct matmul_args *args = cpu_args(call);
    float *w = call->local;

    (void)phase;
    for (uint32_t i = first; i < last; i++) {
        uint32_t m = i / args->n_rows, n = i % args->n_rows, n_in = rows_of(call->step, args->rows);
        const float *bias = cpu_base(call, THREE_BIAS + m);
        matmul_decode_row(cpu_weight(call, THREE_W + m), n, w);
        for (uint32_t row = 0; row < n_in; row++)
            ((float *)cpu_row(call, THREE_OUT + m, row))[n] =
                matmul_dot_plain(cpu_row(call, THREE_IN, row), w, args->n_cols) + (bias ? bias[n] : 0);
    }
}

// The product as above, then what is added to a row: recorded in parts where speed counts.
static void matmul_adapted_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct matmul_args *args = cpu_args(call);

    matmul_plan(call, plan);
    plan->n_phases = 2;
    plan->n_tiles[1] = rows_of(call->step, args->rows);
}

static void matmul_adapted_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct matmul_adapted_args *args = cpu_args(call);
    struct adapted adapted = { call, &args->adapters, MATMUL_ADAPTERS, args->product.rows };

    if (phase == 0)
        matmul_run(call, 0, first, last);
    for (uint32_t r = first; phase == 1 && r < last; r++) {
        struct adapted_outputs all = { 0, 0, args->product.n_rows, cpu_row(call, MATMUL_OUT, r) };
        adapted_down_plain(&adapted, r, cpu_row(call, MATMUL_IN, r));
        adapted_up_plain(&adapted, r, &all);
    }
}

// By panels.
struct matmul_job {
    const struct cpu_call *call;
    const struct matmul_args *args;
    const struct row_kernels *rows;
    struct weight_product product;
    struct product_split split;
    uint32_t n_rows, n_panels;
    size_t packed_bytes;
    bool few;
};

static struct matmul_job job_of(const struct cpu_call *call, const struct product_set *set)
{
    const struct matmul_args *args = cpu_args(call);
    struct matmul_job j = {
        .call = call, .args = args, .n_rows = rows_of(call->step, args->rows), .rows = set->rows
    };

    product_init(&j.product, set->kernels, cpu_weight(call, MATMUL_W), args->exact);
    j.packed_bytes = product_packed_bytes(j.product.packing, args->n_cols);
    j.split = product_split(j.n_rows, j.packed_bytes);
    j.n_panels = panel_count(args->n_rows);
    j.few = j.n_rows <= PRODUCT_FEW;
    return j;
}

static void matmul_fast_plan(const struct cpu_call *call, struct cpu_plan *plan,
                             const struct product_set *set)
{
    struct matmul_job j = job_of(call, set);

    plan->n_phases = 2;
    plan->n_tiles[0] = j.few || j.product.packing == PACKING_F32 ? 0 : j.n_rows;
    plan->n_tiles[1] = j.n_rows ? j.n_panels * j.split.n_blocks : 0;
    plan->local_bytes = PRODUCT_FEW * j.packed_bytes + product_scratch_bytes(&j.product);
}

static void prepare_rows(const struct matmul_job *j, uint32_t first, uint32_t last, unsigned char *to,
                         size_t stride)
{
    for (uint32_t r = first; r < last; r++)
        product_prepare(j->product.kernels, j->product.packing, cpu_row(j->call, MATMUL_IN, r),
                        j->args->n_cols, to + (r - first) * stride);
}

// The packed rows; a thread's own copies are made on first use.
static void find_rows(struct matmul_job *j)
{
    const struct operand *work = &j->call->command->operands[MATMUL_WORK];

    if (j->product.packing == PACKING_F32) {
        j->product.x = cpu_base(j->call, MATMUL_IN);
        j->product.x_stride = j->call->command->operands[MATMUL_IN].row_bytes;
    } else if (!j->few) {
        j->product.x = cpu_base(j->call, MATMUL_WORK);
        j->product.x_stride = work->row_bytes;
    } else {
        j->product.x = j->call->local;
        j->product.x_stride = j->packed_bytes;
        if (*j->call->fresh & 2)
            prepare_rows(j, 0, j->n_rows, j->call->local, j->packed_bytes);
        *j->call->fresh &= ~(uint64_t)2;
    }
}

static void finish_tile(const struct matmul_job *j, uint32_t panel, uint32_t row,
                        const struct product_store *tile)
{
    uint32_t n = panel * PANEL_ROWS, left = j->args->n_rows - n;
    const float *bias = cpu_base(j->call, MATMUL_BIAS);
    struct product_store s = *tile;

    s.n_cols = left < PANEL_ROWS ? left : PANEL_ROWS;
    s.bias = bias ? bias + n : NULL;
    s.out = (float *)cpu_row(j->call, MATMUL_OUT, row) + n;
    s.stride = j->call->command->operands[MATMUL_OUT].row_bytes / 4;
    if (cpu_has(j->call, MATMUL_ADD)) {
        s.add = (const float *)cpu_row(j->call, MATMUL_ADD, row) + n;
        s.add_stride = j->call->command->operands[MATMUL_ADD].row_bytes / 4;
    }
    j->product.kernels->store(&s);
    if (activated_args(j->call))
        for (uint32_t r = 0; r < s.n_rows; r++) // while they are in the cache
            j->rows->activate(&(struct activate_args){ .n_cols = s.n_cols,
                                                       .activation = activated_args(j->call)->activation },
                              s.out + r * s.stride, NULL, s.out + r * s.stride);
}

static void run_panel(const struct matmul_job *j, uint32_t panel, uint32_t block)
{
    _Alignas(64) float y[PRODUCT_MAX_ROWS * PANEL_ROWS];
    unsigned char *scratch = (unsigned char *)j->call->local + PRODUCT_FEW * j->packed_bytes;
    uint32_t first = product_block_first(&j->split, block), end = product_block_first(&j->split, block + 1);
    struct product_panel w = product_panel(&j->product, panel, end - first, scratch);

    for (uint32_t row = first, n; row < end; row += n) {
        n = product_tile_rows(row, end, w.max_rows);
        product_expect((float *)cpu_row(j->call, MATMUL_OUT, row) + panel * PANEL_ROWS, j->args->n_rows, n);
        if (cpu_has(j->call, MATMUL_ADD))
            product_expect((const float *)cpu_row(j->call, MATMUL_ADD, row) + panel * PANEL_ROWS,
                           j->call->command->operands[MATMUL_ADD].row_bytes / 4, n);
        product_run(&j->product, &w, (struct tile_range){ row, row + n }, y);
        finish_tile(j, panel, row, &(struct product_store){ .y = y, .n_rows = n });
    }
}

static void matmul_fast_run(const struct cpu_call *call, uint32_t phase, struct tile_range range,
                            const struct product_set *set)
{
    struct matmul_job j = job_of(call, set);

    if (phase == 0) {
        for (uint32_t r = range.first; r < range.last; r++)
            prepare_rows(&j, r, r + 1, cpu_row(call, MATMUL_WORK, r), 0);
        return;
    }
    find_rows(&j);
    uint32_t panel = range.first % j.n_panels, block = range.first / j.n_panels;
    for (uint32_t i = range.first; i < range.last; i++) {
        run_panel(&j, panel, block);
        if (++panel == j.n_panels) {
            panel = 0;
            block++;
        }
    }
}

PRODUCT_KERNELS(matmul_fast)

const struct cpu_op cpu_op_matmul = { .name = "matmul",
                                      .by_rows = true,
                                      .plain = { matmul_plan, matmul_run },
                                      .fast = { PRODUCT_CHOICES(matmul_fast) } };
const struct cpu_op cpu_op_matmul_adapted = { .name = "matmul_adapted",
                                              .by_rows = true,
                                              .parts_are_faster = true,
                                              .plain = { matmul_adapted_plan, matmul_adapted_run } };
const struct cpu_op cpu_op_matmul_activated = { .name = "matmul_activated",
                                                .by_rows = true,
                                                .plain = { matmul_plan, matmul_run },
                                                .fast = { PRODUCT_CHOICES(matmul_fast) } };
const struct cpu_op cpu_op_matmul_three = { .name = "matmul_three",
                                            .by_rows = true,
                                            .parts_are_faster = true,
                                            .plain = { matmul_three_plan, matmul_three_run } };
