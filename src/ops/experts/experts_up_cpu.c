// experts_up_cpu.c - the definition, row by row; then by panels, an expert at a time.
//
// By panels: phase 0 packs rows and puts a copy at each entry, so that an expert's rows follow one another;
// phase 1 takes a panel of gate and the same of up for a block of the expert's rows. Experts without rows
// cost nothing. Rows of an expert that are no multiple of a panel share panels with the neighbours: those are
// computed for both.
#include <math.h>
#include "ops/activate/activate.h"
#include "ops/experts/experts_rows.h"
#include "ops/matmul/matmul.h"
#include "ops/product_choices.h"
#include "ops/rows.h"

static float gated(const struct experts_args *args, float gate, float up)
{
    if (args->limit <= 0)
        return activate_plain((enum activation)args->activation, gate) * up;
    gate = gate > args->limit ? args->limit : gate; // a NaN stays
    up = up > args->limit ? args->limit : up < -args->limit ? -args->limit : up;
    return (up + 1) * gate / (1 + expf(-EXPERTS_ALPHA * gate));
}

static void up_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct experts_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = args->n_cols * sizeof(float);
}

static void up_slot(const struct cpu_call *call, const float *in, uint32_t expert, float *out)
{
    const struct experts_args *args = cpu_args(call);
    const float *gate_bias = cpu_base(call, EXPERTS_UP_GATE_BIAS),
                *up_bias = cpu_base(call, EXPERTS_UP_UP_BIAS);

    for (uint32_t i = 0; i < args->n_ffn; i++) {
        uint32_t at = expert * args->n_ffn + i;
        float gate = matmul_row_plain(in, cpu_weight(call, EXPERTS_UP_GATE), at, call->local);
        float up = matmul_row_plain(in, cpu_weight(call, EXPERTS_UP_UP), at, call->local);
        out[i] = gated(args, gate + (gate_bias ? gate_bias[at] : 0), up + (up_bias ? up_bias[at] : 0));
    }
}

static void up_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct experts_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        const float *in = cpu_row(call, EXPERTS_UP_IN, r), *ids = cpu_row(call, EXPERTS_UP_IDS, r);
        float *out = cpu_row(call, EXPERTS_UP_OUT, r), *shared = out + (size_t)args->n_slots * args->n_ffn;
        for (uint32_t j = 0; j < args->n_slots; j++)
            up_slot(call, in, (uint32_t)ids[j], out + (size_t)j * args->n_ffn);
        for (uint32_t i = 0; i < args->n_shared; i++)
            shared[i] =
                gated(args, matmul_row_plain(in, cpu_weight(call, EXPERTS_UP_SHARED_GATE), i, call->local),
                      matmul_row_plain(in, cpu_weight(call, EXPERTS_UP_SHARED_UP), i, call->local));
    }
}

// By panels.
enum { GATE, UP, SHARED_GATE, SHARED_UP, N_PRODUCTS };

struct up_job {
    const struct cpu_call *call;
    const struct experts_args *args;
    const struct product_set *set;
    struct weight_product products[N_PRODUCTS];
    uint32_t n_products;
    struct experts_packed packed;
    struct experts_rows rows;
    unsigned char *scratch;
};

static struct up_job up_job_of(const struct cpu_call *call, const struct product_set *set)
{
    struct up_job j = { .call = call, .args = cpu_args(call), .set = set };

    j.n_products = j.args->n_shared ? N_PRODUCTS : SHARED_GATE;
    for (uint32_t i = 0; i < j.n_products; i++) {
        static const uint8_t operands[] = { EXPERTS_UP_GATE, EXPERTS_UP_UP, EXPERTS_UP_SHARED_GATE,
                                            EXPERTS_UP_SHARED_UP };
        product_init(&j.products[i], set->kernels, cpu_weight(call, operands[i]), j.args->exact);
        j.products[i].scattered = true;
    }
    j.packed = experts_packed_of(j.products, j.n_products, j.args->n_cols);
    j.rows = experts_rows_in(call, 0);
    j.scratch = experts_local(call, experts_rows_bytes(j.args, call->step->n_rows));
    return j;
}

static uint32_t blocks_of(uint32_t n_rows)
{
    return (n_rows + EXPERTS_BLOCK - 1) / EXPERTS_BLOCK;
}

// Number of panels that hold rows of one expert, wherever it begins.
static uint32_t panels_of(uint32_t n_ffn)
{
    return n_ffn % PANEL_ROWS ? n_ffn / PANEL_ROWS + 2 : n_ffn / PANEL_ROWS;
}

static void up_fast_plan(const struct cpu_call *call, struct cpu_plan *plan, const struct product_set *set)
{
    struct up_job j = up_job_of(call, set);
    uint32_t counts[ROUTE_MAX_EXPERTS] = { 0 }, n_blocks = 0, shared = j.args->n_shared ? 1 : 0,
             n_rows = j.rows.n_rows;

    if (call->local) // while a tape is sealed there is no choice yet
        experts_count(call, EXPERTS_UP_IDS, counts);
    for (uint32_t e = 0; e < j.args->n_experts; e++)
        n_blocks += blocks_of(counts[e]);
    plan->n_phases = 2;
    plan->n_tiles[0] = n_rows;
    plan->n_tiles[1] =
        n_blocks * panels_of(j.args->n_ffn) + shared * blocks_of(n_rows) * panel_count(j.args->n_shared);
    plan->local_bytes = experts_rows_bytes(j.args, n_rows);
    for (uint32_t i = 0; i < j.n_products; i++)
        plan->local_bytes += product_scratch_bytes(&j.products[i]);
}

// A tile of phase 1: expert n_experts is the shared one.
struct up_tile {
    uint32_t expert, block, panel;
};

static uint32_t expert_rows(const struct up_job *j, uint32_t expert)
{
    return j->rows.first[expert + 1] - j->rows.first[expert];
}

static uint32_t expert_panels(const struct up_job *j, uint32_t expert)
{
    return expert == j->args->n_experts ? panel_count(j->args->n_shared) : panels_of(j->args->n_ffn);
}

static struct up_tile tile_at(const struct up_job *j, uint32_t index)
{
    struct up_tile t = { 0 };

    for (uint32_t n; index >= (n = blocks_of(expert_rows(j, t.expert)) * expert_panels(j, t.expert));
         t.expert++)
        index -= n;
    t.block = index / expert_panels(j, t.expert);
    t.panel = index % expert_panels(j, t.expert);
    return t;
}

static void tile_next(const struct up_job *j, struct up_tile *t)
{
    if (++t->panel < expert_panels(j, t->expert))
        return;
    t->panel = 0;
    if (++t->block < blocks_of(expert_rows(j, t->expert)))
        return;
    t->block = 0;
    do
        t->expert++;
    while (t->expert < j->args->n_experts && expert_rows(j, t->expert) == 0);
}

// y[n][32] += bias. Columns [from, to) are the expert's; the others are not used.
static void add_bias(float *y, const float *bias, uint32_t n, struct tile_range columns)
{
    for (uint32_t r = 0; bias && r < n; r++)
        for (uint32_t c = columns.first; c < columns.last; c++)
            y[r * PANEL_ROWS + c] += bias[c - columns.first];
}

// The clamped form in terms of SiLU: g sigmoid(a g) = silu(a g) / a.
static void clamp(float *gate, float *up, uint32_t n, float limit)
{
    for (uint32_t i = 0; i < n; i++) {
        float g = gate[i] > limit ? limit : gate[i], u = up[i] > limit    ? limit
                                                         : up[i] < -limit ? -limit
                                                                          : up[i];
        gate[i] = EXPERTS_ALPHA * g;
        up[i] = (u + 1) / EXPERTS_ALPHA;
    }
}

static float *entry_out(const struct up_job *j, uint32_t expert, uint32_t entry)
{
    const struct experts_args *args = j->args;
    uint32_t n = expert == args->n_experts ? (entry - j->rows.n_entries) * args->n_slots + args->n_slots
                                           : j->rows.entry[entry];
    uint32_t row = expert == args->n_experts ? entry - j->rows.n_entries : n / args->n_slots;

    return (float *)cpu_row(j->call, EXPERTS_UP_OUT, row) + (size_t)(n - row * args->n_slots) * args->n_ffn;
}

// Rows [row, row + n) of the workspace, a panel's columns [columns) of which the first is number `at` of the
// expert.
static void finish_tile(const struct up_job *j, const struct up_tile *t, struct tile_range rows,
                        struct tile_range columns, uint32_t at, float y[2][PRODUCT_MAX_ROWS * PANEL_ROWS])
{
    const struct experts_args *args = j->args;
    uint32_t n = rows.last - rows.first, bias_at = t->expert * args->n_ffn + at;
    const float *gate_bias = cpu_base(j->call, EXPERTS_UP_GATE_BIAS),
                *up_bias = cpu_base(j->call, EXPERTS_UP_UP_BIAS);
    struct activate_args all = { .n_cols = n * PANEL_ROWS,
                                 .activation = args->limit > 0 ? ACTIVATION_SILU : args->activation,
                                 .gated = 1 };

    if (t->expert < args->n_experts) {
        add_bias(y[0], gate_bias ? gate_bias + bias_at : NULL, n, columns);
        add_bias(y[1], up_bias ? up_bias + bias_at : NULL, n, columns);
    }
    if (args->limit > 0)
        clamp(y[0], y[1], n * PANEL_ROWS, args->limit);
    j->set->rows->activate(&all, y[0], y[1], y[0]);
    for (uint32_t i = 0; i < n; i++)
        experts_copy(entry_out(j, t->expert, rows.first + i) + at, y[0] + i * PANEL_ROWS + columns.first,
                     columns.last - columns.first);
}

// Gate and up are the same matrix.
static bool is_squared(const struct up_job *j, bool shared)
{
    return cpu_weight(j->call, shared ? EXPERTS_UP_SHARED_GATE : EXPERTS_UP_GATE) ==
           cpu_weight(j->call, shared ? EXPERTS_UP_SHARED_UP : EXPERTS_UP_UP);
}

static void run_tile(const struct up_job *j, const struct up_tile *t)
{
    _Alignas(64) float y[2][PRODUCT_MAX_ROWS * PANEL_ROWS];
    bool shared = t->expert == j->args->n_experts, same = is_squared(j, shared);
    const struct weight_product *gate = &j->products[shared ? SHARED_GATE : GATE], *up = gate + 1;
    uint32_t begin = shared ? 0 : t->expert * j->args->n_ffn,
             end = begin + (shared ? j->args->n_shared : j->args->n_ffn);
    uint32_t panel = begin / PANEL_ROWS + t->panel, at = panel * PANEL_ROWS;
    struct tile_range columns = { begin > at ? begin - at : 0,
                                  end < at + PANEL_ROWS ? end - at : PANEL_ROWS };
    uint32_t row = j->rows.first[t->expert] + t->block * EXPERTS_BLOCK, last = j->rows.first[t->expert + 1];

    if (at >= end)
        return;
    last = last - row > EXPERTS_BLOCK ? row + EXPERTS_BLOCK : last;
    struct product_panel g = product_panel(gate, panel, last - row, j->scratch);
    struct product_panel u = product_panel(up, panel, last - row, j->scratch + product_scratch_bytes(gate));
    for (uint32_t n; row < last; row += n) {
        n = product_tile_rows(row, last, g.max_rows < u.max_rows ? g.max_rows : u.max_rows);
        for (uint32_t i = row; i < row + n; i++)
            product_expect(entry_out(j, t->expert, i) + at + columns.first - begin, 0, 1);
        product_run(gate, &g, (struct tile_range){ row, row + n }, y[0]);
        if (same)
            memcpy(y[1], y[0], n * PANEL_ROWS * sizeof(float));
        else
            product_run(up, &u, (struct tile_range){ row, row + n }, y[1]);
        finish_tile(j, t, (struct tile_range){ row, row + n }, columns, at + columns.first - begin, y);
    }
}

// Packs a row once, and copies it to the places of its other entries.
static void pack_row(const struct up_job *j, uint32_t row)
{
    const uint32_t n_slots = j->args->n_slots;
    const float *ids = cpu_row(j->call, EXPERTS_UP_IDS, row);
    unsigned char *work = cpu_base(j->call, EXPERTS_UP_WORK), *packed = NULL;

    for (uint32_t i = 0; i < n_slots + (j->args->n_shared ? 1 : 0); i++) {
        uint32_t entry = i < n_slots ? experts_place(&j->rows, (uint32_t)ids[i], row * n_slots + i)
                                     : j->rows.n_entries + row;
        unsigned char *to = work + entry * j->packed.stride;
        if (packed)
            memcpy(to, packed, j->packed.stride);
        else
            experts_pack(&j->packed, j->set->kernels, cpu_row(j->call, EXPERTS_UP_IN, row), j->args->n_cols,
                         to);
        packed = to;
    }
}

static void up_fast_run(const struct cpu_call *call, uint32_t phase, struct tile_range range,
                        const struct product_set *set)
{
    struct up_job j = up_job_of(call, set);

    if (*call->fresh & 1)
        experts_rows_fill(call, EXPERTS_UP_IDS, &j.rows);
    *call->fresh &= ~(uint64_t)1;
    for (uint32_t i = range.first; phase == 0 && i < range.last; i++)
        pack_row(&j, i);
    if (phase == 0)
        return;
    for (uint32_t i = 0; i < j.n_products; i++) {
        j.products[i].x =
            (unsigned char *)cpu_base(call, EXPERTS_UP_WORK) + j.packed.at[j.products[i].packing];
        j.products[i].x_stride = j.packed.stride;
    }
    struct up_tile t = tile_at(&j, range.first);
    for (uint32_t i = range.first; i < range.last; i++, tile_next(&j, &t))
        run_tile(&j, &t);
}

PRODUCT_KERNELS(up_fast)

static void up_reads(const struct cpu_call *call, cpu_tell *tell, void *arg)
{
    static const uint8_t stacks[] = { EXPERTS_UP_GATE, EXPERTS_UP_UP },
                         shared[] = { EXPERTS_UP_SHARED_GATE, EXPERTS_UP_SHARED_UP };

    experts_tell(call, EXPERTS_UP_IDS, stacks, 2, tell, arg);
    for (uint32_t i = 0; i < 2; i++)
        if (cpu_weight(call, shared[i]))
            tell(arg, cpu_weight(call, shared[i]), 0, cpu_weight(call, shared[i])->n_rows);
}

const struct cpu_op cpu_op_experts_up = { .name = "experts_up",
                                          .by_rows = true,
                                          .reads = up_reads,
                                          .plain = { up_plan, up_run },
                                          .fast = { PRODUCT_CHOICES(up_fast) } };
