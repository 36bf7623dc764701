// experts_down_cpu.c - the definition, number by number; then by panels.
//
// By panels: phase 0 packs each slot's hidden numbers, so that an expert's rows follow one another. Phase 1
// owns 32 columns of a block of rows: it takes these columns of one expert after the other, keeps each slot's
// numbers apart, and sums them in the order of the slots. Where columns are no multiple of a panel, they span
// two panels of an expert.
#include "ops/experts/experts_rows.h"
#include "ops/matmul/matmul.h"
#include "ops/product_choices.h"
#include "ops/rows.h"

static void down_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct experts_args *args = cpu_args(call);

    plan_rows(call, plan);
    plan->local_bytes = (args->n_ffn > args->n_shared ? args->n_ffn : args->n_shared) * sizeof(float);
}

// One number of a row: the slots in their order, then the shared expert.
static float down_column(const struct cpu_call *call, uint32_t r, uint32_t column)
{
    const struct experts_args *args = cpu_args(call);
    const float *in = cpu_row(call, EXPERTS_DOWN_IN, r), *ids = cpu_row(call, EXPERTS_DOWN_IDS, r);
    const float *weights = cpu_row(call, EXPERTS_DOWN_WEIGHTS, r), *bias = cpu_base(call, EXPERTS_DOWN_BIAS);
    float sum = 0;

    for (uint32_t j = 0; j < args->n_slots; j++) {
        uint32_t at = (uint32_t)ids[j] * args->n_cols + column;
        float y = matmul_row_plain(in + (size_t)j * args->n_ffn, cpu_weight(call, EXPERTS_DOWN_DOWN), at,
                                   call->local);
        sum += weights[j] * (y + (bias ? bias[at] : 0));
    }
    if (args->n_shared)
        sum += weights[args->n_slots] * matmul_row_plain(in + (size_t)args->n_slots * args->n_ffn,
                                                         cpu_weight(call, EXPERTS_DOWN_SHARED), column,
                                                         call->local);
    return sum;
}

// The row to add, or NULL.
static const float *added(const struct cpu_call *call, uint32_t r)
{
    return cpu_base(call, EXPERTS_DOWN_ADD) ? cpu_row(call, EXPERTS_DOWN_ADD, r) : NULL;
}

static void down_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct experts_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t r = first; r < last; r++) {
        const float *add = added(call, r);
        float *out = cpu_row(call, EXPERTS_DOWN_OUT, r);
        for (uint32_t i = 0; i < args->n_cols; i++)
            out[i] = (add ? add[i] : 0) + down_column(call, r, i);
    }
}

// By panels.
struct down_job {
    const struct cpu_call *call;
    const struct experts_args *args;
    const struct product_set *set;
    struct weight_product down, shared;
    struct experts_packed packed, shared_packed;
    struct experts_rows rows;
    unsigned char *scratch;
    float *slots; // [rows of a block, n_slots + 1, 32]: the summands of each slot and the shared expert
    uint32_t n_panels;
};

static size_t scratch_bytes(const struct down_job *j)
{
    size_t down = product_scratch_bytes(&j->down),
           shared = j->args->n_shared ? product_scratch_bytes(&j->shared) : 0;
    return ((down > shared ? down : shared) + 63) / 64 * 64;
}

static struct down_job down_job_of(const struct cpu_call *call, const struct product_set *set)
{
    struct down_job j = { .call = call, .args = cpu_args(call), .set = set };
    unsigned char *work = cpu_base(call, EXPERTS_DOWN_WORK);

    product_init(&j.down, set->kernels, cpu_weight(call, EXPERTS_DOWN_DOWN), j.args->exact);
    j.down.scattered = true;
    j.down.next_panel = j.args->n_cols / PANEL_ROWS; // the next expert's
    j.packed = experts_packed_of(&j.down, 1, j.args->n_ffn);
    j.rows = experts_rows_in(call, 0);
    j.down.x = work;
    j.down.x_stride = j.packed.stride;
    if (j.args->n_shared) {
        product_init(&j.shared, set->kernels, cpu_weight(call, EXPERTS_DOWN_SHARED), j.args->exact);
        j.shared_packed = experts_packed_of(&j.shared, 1, j.args->n_shared);
        j.shared.x = work + j.rows.n_entries * j.packed.stride;
        j.shared.x_stride = j.shared_packed.stride;
    }
    size_t scratch = experts_rows_bytes(j.args, j.rows.n_rows);
    j.scratch = experts_local(call, scratch);
    j.slots = experts_local(call, scratch + scratch_bytes(&j));
    j.n_panels = panel_count(j.args->n_cols);
    return j;
}

static void down_fast_plan(const struct cpu_call *call, struct cpu_plan *plan, const struct product_set *set)
{
    struct down_job j = down_job_of(call, set);
    uint32_t n_rows = j.rows.n_rows, block = n_rows < EXPERTS_BLOCK ? n_rows : EXPERTS_BLOCK;

    plan->n_phases = 2;
    plan->n_tiles[0] = j.rows.n_entries + (j.args->n_shared ? n_rows : 0);
    plan->n_tiles[1] = j.n_panels * ((n_rows + EXPERTS_BLOCK - 1) / EXPERTS_BLOCK);
    plan->local_bytes = experts_rows_bytes(j.args, n_rows) + scratch_bytes(&j) +
                        (size_t)block * (j.args->n_slots + 1) * PANEL_ROWS * sizeof(float);
}

static void pack_entry(const struct down_job *j, uint32_t entry)
{
    const struct experts_args *args = j->args;
    uint32_t n = j->rows.n_entries;

    if (entry >= n) {
        const float *in =
            (const float *)cpu_row(j->call, EXPERTS_DOWN_IN, entry - n) + (size_t)args->n_slots * args->n_ffn;
        experts_pack(&j->shared_packed, j->set->kernels, in, args->n_shared,
                     (unsigned char *)(uintptr_t)j->shared.x + (entry - n) * j->shared.x_stride);
        return;
    }
    uint32_t slot = j->rows.entry[entry];
    const float *in = (const float *)cpu_row(j->call, EXPERTS_DOWN_IN, slot / args->n_slots) +
                      (size_t)(slot % args->n_slots) * args->n_ffn;
    experts_pack(&j->packed, j->set->kernels, in, args->n_ffn,
                 (unsigned char *)(uintptr_t)j->down.x + entry * j->down.x_stride);
}

// A range of columns within one panel: columns [from, from + n) of the 32, from column `at` of the panel on.
struct stretch {
    uint32_t panel, at, from, n;
    const float *bias; // [n] or NULL
};

static void keep_slot(float *to, const float *y, const struct stretch *s)
{
    experts_copy(to + s->from, y + s->at, s->n);
    for (uint32_t c = 0; s->bias && c < s->n; c++)
        to[s->from + c] += s->bias[c];
}

// Where the numbers of a slot are kept, of the rows from first_row on.
static float *slot_place(const struct down_job *j, uint32_t slot, uint32_t first_row)
{
    const uint32_t n_slots = j->args->n_slots, row = slot / n_slots;
    return j->slots + (slot + row - first_row * (n_slots + 1)) * (size_t)PANEL_ROWS;
}

static void run_expert(const struct down_job *j, const struct stretch *s, struct tile_range entries,
                       uint32_t first_row)
{
    _Alignas(64) float y[PRODUCT_MAX_ROWS * PANEL_ROWS];
    struct product_panel w = product_panel(&j->down, s->panel, entries.last - entries.first, j->scratch);

    for (uint32_t at = entries.first, n; at < entries.last; at += n) {
        float *to[PRODUCT_MAX_ROWS];
        n = product_tile_rows(at, entries.last, w.max_rows);
        for (uint32_t i = 0; i < n; i++) {
            to[i] = slot_place(j, j->rows.entry[at + i], first_row);
            product_expect(to[i], 0, 1);
        }
        product_run(&j->down, &w, (struct tile_range){ at, at + n }, y);
        for (uint32_t i = 0; i < n; i++)
            keep_slot(to[i], y + i * PANEL_ROWS, s);
    }
}

static void run_experts(const struct down_job *j, uint32_t column, uint32_t n, struct tile_range rows)
{
    const float *bias = cpu_base(j->call, EXPERTS_DOWN_BIAS);
    const uint32_t n_slots = j->args->n_slots;

    for (uint32_t e = 0; e < j->args->n_experts; e++) {
        struct tile_range entries = { experts_place(&j->rows, e, rows.first * n_slots),
                                      experts_place(&j->rows, e, rows.last * n_slots) };
        for (uint32_t from = 0; entries.first < entries.last && from < n;) {
            uint32_t at = e * j->args->n_cols + column + from, left = PANEL_ROWS - at % PANEL_ROWS;
            struct stretch s = { at / PANEL_ROWS, at % PANEL_ROWS, from, n - from < left ? n - from : left,
                                 bias ? bias + at : NULL };
            run_expert(j, &s, entries, rows.first);
            from += s.n;
        }
    }
}

static void run_shared(const struct down_job *j, uint32_t column, uint32_t n, struct tile_range rows)
{
    _Alignas(64) float y[PRODUCT_MAX_ROWS * PANEL_ROWS];
    const uint32_t n_slots = j->args->n_slots;
    struct product_panel w =
        product_panel(&j->shared, column / PANEL_ROWS, rows.last - rows.first, j->scratch);

    for (uint32_t row = rows.first, take; row < rows.last; row += take) {
        take = product_tile_rows(row, rows.last, w.max_rows);
        product_run(&j->shared, &w, (struct tile_range){ row, row + take }, y);
        for (uint32_t i = 0; i < take; i++)
            experts_copy(j->slots + ((size_t)(row + i - rows.first) * (n_slots + 1) + n_slots) * PANEL_ROWS,
                         y + i * PANEL_ROWS, n);
    }
}

enum { SUM_AHEAD = 4, SUM_VECTORS = 8 };
typedef float floats_4 __attribute__((vector_size(4 * sizeof(float))));

static float *out_of(const struct down_job *j, uint32_t column, uint32_t row)
{
    return (float *)cpu_row(j->call, EXPERTS_DOWN_OUT, row) + column;
}

static floats_4 floats_at(const float *p)
{
    floats_4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void sum_row(const struct down_job *j, uint32_t column, uint32_t n, uint32_t row, const float *slots)
{
    const float *weights = cpu_row(j->call, EXPERTS_DOWN_WEIGHTS, row), *add = added(j->call, row);
    uint32_t n_slots = j->args->n_slots + (j->args->n_shared ? 1 : 0);
    floats_4 sums[SUM_VECTORS] = { { 0 } };
    float rest[PANEL_ROWS] = { 0 };

    for (uint32_t i = 0; i < n_slots; i++, slots += PANEL_ROWS)
        for (uint32_t v = 0; v < SUM_VECTORS; v++)
            sums[v] += weights[i] * floats_at(slots + 4 * v);
    if (add)
        experts_copy(rest, add + column, n);
    for (uint32_t v = 0; v < SUM_VECTORS; v++)
        sums[v] = floats_at(rest + 4 * v) + sums[v];
    memcpy(rest, sums, sizeof rest);
    experts_copy(out_of(j, column, row), rest, n);
}

// The rows' sums. What a row reads and writes lies far from its neighbour's: it is asked for a few rows
// before.
static void sum_rows(const struct down_job *j, uint32_t column, uint32_t n, struct tile_range rows)
{
    const size_t stride = (size_t)(j->args->n_slots + 1) * PANEL_ROWS;

    for (uint32_t r = rows.first; r < rows.last; r++) {
        uint32_t later = r + SUM_AHEAD < rows.last ? r + SUM_AHEAD : r;
        product_expect(out_of(j, column, later), 0, 1);
        if (added(j->call, later))
            product_expect(added(j->call, later) + column, 0, 1);
        sum_row(j, column, n, r, j->slots + (r - rows.first) * stride);
    }
}

static void run_tile(const struct down_job *j, uint32_t panel, uint32_t block)
{
    uint32_t column = panel * PANEL_ROWS, left = j->args->n_cols - column,
             n = left < PANEL_ROWS ? left : PANEL_ROWS;
    struct tile_range rows = { block * EXPERTS_BLOCK, (block + 1) * EXPERTS_BLOCK };

    rows.last = rows.last < j->rows.n_rows ? rows.last : j->rows.n_rows;
    run_experts(j, column, n, rows);
    if (j->args->n_shared)
        run_shared(j, column, n, rows);
    sum_rows(j, column, n, rows);
}

static void down_fast_run(const struct cpu_call *call, uint32_t phase, struct tile_range range,
                          const struct product_set *set)
{
    struct down_job j = down_job_of(call, set);

    if (*call->fresh & 1)
        experts_rows_fill(call, EXPERTS_DOWN_IDS, &j.rows);
    *call->fresh &= ~(uint64_t)1;
    for (uint32_t i = range.first; i < range.last; i++) {
        if (phase == 0)
            pack_entry(&j, i);
        else
            run_tile(&j, i % j.n_panels, i / j.n_panels);
    }
}

PRODUCT_KERNELS(down_fast)

static void down_reads(const struct cpu_call *call, cpu_tell *tell, void *arg)
{
    static const uint8_t stacks[] = { EXPERTS_DOWN_DOWN };
    const struct weight *shared = cpu_weight(call, EXPERTS_DOWN_SHARED);

    experts_tell(call, EXPERTS_DOWN_IDS, stacks, 1, tell, arg);
    if (shared)
        tell(arg, shared, 0, shared->n_rows);
}

const struct cpu_op cpu_op_experts_down = { .name = "experts_down",
                                            .by_rows = true,
                                            .reads = down_reads,
                                            .plain = { down_plan, down_run },
                                            .fast = { PRODUCT_CHOICES(down_fast) } };
