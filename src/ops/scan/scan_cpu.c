// scan_cpu.c - the definition, and the walk that the vector kernels share. The columns of a state know
// nothing of each other: a tile is SCAN_TILE columns of one head, and takes all rows of the step in their
// order, with its part of the state in the first cache.
#include <math.h>
#include <string.h>
#include "ops/matmul/matmul.h"
#include "ops/rows.h"
#include "ops/scan/scan.h"
#include "ops/vec/row_kernels.h"

enum { ROWS_AHEAD = 3 };

static void scan_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct scan_args *args = cpu_args(call);

    plan->n_phases = 1;
    plan->n_together = (args->d_v + SCAN_TILE - 1) / SCAN_TILE;
    plan->n_tiles[0] = args->n_heads * plan->n_together;
    plan->local_bytes = call->step->n_rows * sizeof(struct scan_gates);
}

static void scan_row_plain(struct scan_row *row)
{
    const struct scan_gates *g = &row->gates;

    for (uint32_t c = 0; c < row->n; c++) {
        float found = 0, out = 0;
        for (uint32_t i = 0; i < row->d_k; i++)
            found += g->k_factor * row->k[i] * row->state[i][c];
        float d = g->factor * (row->delta ? row->v[c] - g->decay * found : row->v[c]);
        for (uint32_t i = 0; i < row->d_k; i++) {
            float s = g->decay * row->state[i][c] + g->k_factor * row->k[i] * d;
            row->state[i][c] = s;
            out += g->q_factor * row->q[i] * s;
        }
        row->out[c] = out + row->skip * row->v[c];
    }
}

static void scan_give_plain(struct scan_row *row, float *to, size_t stride)
{
    for (uint32_t i = 0; i < row->d_k; i++)
        memcpy(to + i * stride, row->state[i], row->n * sizeof(float));
}

struct scan_place { // of a tile
    uint32_t head, first;
};

// The tile's part of a row of the states: [d_k] lines, d_v floats apart.
static float *state_at(const struct cpu_call *call, const struct scan_place *p, uint32_t state)
{
    const struct scan_args *args = cpu_args(call);
    return (float *)cpu_base(call, SCAN_STATES) + (size_t)state * args->state_words + args->state_at +
           (size_t)p->head * args->d_k * args->d_v + p->first;
}

static void take_state(const struct cpu_call *call, const struct scan_place *p, struct scan_row *row,
                       uint32_t from)
{
    const struct scan_args *args = cpu_args(call);

    if (from == STATE_NEXT)
        return;
    row->written = false; // what is left belongs to a state that nobody keeps
    if (row->n < SCAN_TILE || from == STATE_ZERO)
        memset(row->state, 0, sizeof row->state[0] * args->d_k); // columns that nobody has, too
    if (from == STATE_ZERO)
        return;
    const float *line = state_at(call, p, from);
    for (uint32_t i = 0; i < args->d_k; i++, line += args->d_v)
        if (row->n == SCAN_TILE)
            memcpy(row->state[i], line, SCAN_TILE * sizeof(float)); // of a constant size: no call
        else
            memcpy(row->state[i], line, row->n * sizeof(float));
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x)); // beyond, they are the same number
}

// Where q and k of a head lie in a row.
static const float *key_at(const struct cpu_call *call, uint32_t head, uint32_t r, uint32_t at)
{
    const struct scan_args *args = cpu_args(call);
    uint32_t kh = scan_key_head(args->n_heads, args->n_k_heads, args->flags, head);
    return (const float *)cpu_row(call, SCAN_IN, r) + at + (size_t)kh * args->d_k;
}

static const float *values_at(const struct cpu_call *call, const struct scan_place *p, uint32_t r)
{
    const struct scan_args *args = cpu_args(call);
    return (const float *)cpu_row(call, SCAN_IN, r) + args->v_at + (size_t)p->head * args->d_v + p->first;
}

static void prefetch(const float *x, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 16)
        __builtin_prefetch(x + i);
}

// What the tile will need of a later row, which lies too far away for the processor to foresee.
static void prefetch_row(const struct cpu_call *call, const struct scan_place *p, uint32_t r)
{
    const struct scan_args *args = cpu_args(call);

    if (r >= call->step->n_rows)
        return;
    prefetch(key_at(call, p->head, r, args->q_at), args->d_k);
    prefetch(key_at(call, p->head, r, args->k_at), args->d_k);
    prefetch(values_at(call, p, r), SCAN_TILE);
}

struct scan_kernel { // as in row_kernels.h
    void (*row)(struct scan_row *row);
    void (*give)(struct scan_row *row, float *to, size_t stride);
    float (*dot)(const float *a, const float *b, uint32_t n);
};

static struct scan_gates gates_of(const struct cpu_call *call, uint32_t head, uint32_t r,
                                  struct scan_kernel kernel)
{
    const struct scan_args *args = cpu_args(call);
    const float *a = cpu_base(call, SCAN_A), *bias = cpu_base(call, SCAN_DT_BIAS),
                *q = key_at(call, head, r, args->q_at), *k = key_at(call, head, r, args->k_at);
    float step = softplus(((const float *)cpu_row(call, SCAN_DT, r))[args->dt_at + head] + bias[head]);
    struct scan_gates g = { .q_factor = 1, .k_factor = 1 };

    if (args->flags & SCAN_DELTA) {
        const float *beta = cpu_row(call, SCAN_BETA, r);
        g.factor = 1 / (1 + expf(-beta[args->beta_at + head]));
        g.q_factor = 1 / sqrtf(kernel.dot(q, q, args->d_k) + SCAN_EPS) / sqrtf((float)args->d_k);
        g.k_factor = 1 / sqrtf(kernel.dot(k, k, args->d_k) + SCAN_EPS);
    } else {
        g.factor = step = fminf(fmaxf(step, args->t_min), args->t_max);
    }
    g.decay = expf((args->flags & SCAN_LOG_A ? -expf(a[head]) : a[head]) * step);
    g.qk = g.q_factor * g.k_factor * kernel.dot(q, k, args->d_k);
    return g;
}

// gates: of each row.
static void scan_tile(const struct cpu_call *call, struct scan_place p, const struct scan_gates *gates,
                      struct scan_kernel kernel)
{
    const struct scan_args *args = cpu_args(call);
    const float *skip = cpu_base(call, SCAN_D);
    uint32_t left = args->d_v - p.first;
    _Alignas(64) float state[SCAN_MAX_DIM][SCAN_TILE];
    struct scan_row row = { .state = state,
                            .d_k = args->d_k,
                            .n = left < SCAN_TILE ? left : SCAN_TILE,
                            .delta = args->flags & SCAN_DELTA,
                            .skip = skip ? skip[p.head] : 0 };

    for (uint32_t r = 0; r < call->step->n_rows; r++) {
        take_state(call, &p, &row, step_states_from(call->step)[r]);
        row.q = key_at(call, p.head, r, args->q_at);
        row.k = key_at(call, p.head, r, args->k_at);
        row.v = values_at(call, &p, r);
        row.out = (float *)cpu_row(call, SCAN_OUT, r) + (size_t)p.head * args->d_v + p.first;
        row.gates = gates[r];
        prefetch_row(call, &p, r + ROWS_AHEAD);
        kernel.row(&row);
        if (step_states_to(call->step)[r] != STATE_NONE)
            kernel.give(&row, state_at(call, &p, step_states_to(call->step)[r]), args->d_v);
    }
}

static void scan_tiles(const struct cpu_call *call, uint32_t first, uint32_t last, struct scan_kernel kernel)
{
    const struct scan_args *args = cpu_args(call);
    uint32_t n = (args->d_v + SCAN_TILE - 1) / SCAN_TILE;
    struct scan_gates *gates = call->local;

    for (uint32_t tile = first; tile < last; tile++) {
        struct scan_place p = { tile / n, tile % n * SCAN_TILE };
        for (uint32_t r = 0; r < call->step->n_rows && (tile == first || p.first == 0); r++) {
            prefetch_row(call, &p, r + ROWS_AHEAD);
            gates[r] = gates_of(call, p.head, r, kernel);
        }
        scan_tile(call, p, gates, kernel);
    }
}

static void scan_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    scan_tiles(call, first, last, (struct scan_kernel){ scan_row_plain, scan_give_plain, matmul_dot_plain });
}

static void scan_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    scan_tiles(call, range.first, range.last,
               (struct scan_kernel){ rows->scan_row, rows->scan_give, rows->dot });
}
ROW_KERNELS(scan_fast)

const struct cpu_op cpu_op_scan = { .name = "scan",
                                    .by_rows = true,
                                    .plain = { scan_plan, scan_run },
                                    .fast = { ROW_CHOICES(scan_plan, scan_fast) } };
