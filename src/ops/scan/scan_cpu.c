// scan_cpu.c - the definition, and the walk that the vector kernels share. The columns of a state know
// nothing of each other: a tile is SCAN_TILE columns of one head, and takes all rows of the step in their
// order, with its part of the state in the first cache.
#include <math.h>
#include <string.h>
#include "ops/rows.h"
#include "ops/scan/scan.h"
#include "ops/vec/row_kernels.h"

static void scan_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct scan_args *args = cpu_args(call);

    plan->n_phases = 1;
    plan->n_together = (args->d_v + SCAN_TILE - 1) / SCAN_TILE;
    plan->n_tiles[0] = args->n_heads * plan->n_together;
}

static void scan_row_plain(const struct scan_row *row)
{
    for (uint32_t c = 0; c < row->n; c++) {
        float found = 0, out = 0;
        for (uint32_t i = 0; i < row->d_k; i++)
            found += row->k[i] * row->state[i][c];
        float d = row->delta ? row->factor * (row->v[c] - row->decay * found) : row->factor * row->v[c];
        for (uint32_t i = 0; i < row->d_k; i++) {
            float s = row->decay * row->state[i][c] + row->k[i] * d;
            row->state[i][c] = s;
            out += row->q[i] * s;
        }
        row->out[c] = out + row->skip * row->v[c];
    }
}

struct scan_place { // of a tile
    uint32_t head, first;
};

// One line of the tile's part in a row of the states.
static float *state_line(const struct cpu_call *call, const struct scan_place *p, uint32_t state, uint32_t i)
{
    const struct scan_args *args = cpu_args(call);
    return (float *)cpu_base(call, SCAN_STATES) + (size_t)state * args->state_words + args->state_at +
           ((size_t)p->head * args->d_k + i) * args->d_v + p->first;
}

static void take_state(const struct cpu_call *call, const struct scan_place *p, struct scan_row *row,
                       uint32_t from)
{
    for (uint32_t i = 0; i < row->d_k && from != STATE_NEXT; i++)
        if (from == STATE_ZERO)
            memset(row->state[i], 0, row->n * sizeof(float));
        else
            memcpy(row->state[i], state_line(call, p, from, i), row->n * sizeof(float));
}

static void give_state(const struct cpu_call *call, const struct scan_place *p, const struct scan_row *row,
                       uint32_t to)
{
    for (uint32_t i = 0; i < row->d_k && to != STATE_NONE; i++)
        memcpy(state_line(call, p, to, i), row->state[i], row->n * sizeof(float));
}

static float softplus(float x)
{
    return x > 20 ? x : log1pf(expf(x)); // beyond, they are the same number
}

static void take_gates(const struct cpu_call *call, uint32_t head, uint32_t r, struct scan_row *row)
{
    const struct scan_args *args = cpu_args(call);
    const float *a = cpu_base(call, SCAN_A), *bias = cpu_base(call, SCAN_DT_BIAS),
                *d = cpu_base(call, SCAN_D);
    float step = softplus(((const float *)cpu_row(call, SCAN_DT, r))[args->dt_at + head] + bias[head]);

    if (!row->delta)
        step = fminf(fmaxf(step, args->t_min), args->t_max);
    row->decay = expf((args->flags & SCAN_LOG_A ? -expf(a[head]) : a[head]) * step);
    row->skip = d ? d[head] : 0;
    row->factor = step;
    if (row->delta)
        row->factor = 1 / (1 + expf(-((const float *)cpu_row(call, SCAN_BETA, r))[args->beta_at + head]));
}

static float length_factor(const float *x, uint32_t n)
{
    float sum = 0;

    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return 1 / sqrtf(sum + SCAN_EPS);
}

// unit: room for both, at length 1.
static void take_keys(const struct scan_args *args, struct scan_row *row, float *unit)
{
    float *q = unit, *k = unit + SCAN_MAX_DIM;

    if (!row->delta)
        return;
    float q_factor = length_factor(row->q, args->d_k) / sqrtf((float)args->d_k),
          k_factor = length_factor(row->k, args->d_k);
    for (uint32_t i = 0; i < args->d_k; i++) {
        q[i] = row->q[i] * q_factor;
        k[i] = row->k[i] * k_factor;
    }
    row->q = q;
    row->k = k;
}

static void scan_tile(const struct cpu_call *call, struct scan_place p, void (*run)(const struct scan_row *))
{
    const struct scan_args *args = cpu_args(call);
    uint32_t left = args->d_v - p.first,
             kh = scan_key_head(args->n_heads, args->n_k_heads, args->flags, p.head);
    float unit[2 * SCAN_MAX_DIM];
    _Alignas(64) float state[SCAN_MAX_DIM][SCAN_TILE];
    struct scan_row row = { .state = state,
                            .d_k = args->d_k,
                            .n = left < SCAN_TILE ? left : SCAN_TILE,
                            .delta = args->flags & SCAN_DELTA };

    if (row.n < SCAN_TILE)
        memset(state, 0, sizeof state[0] * args->d_k); // columns that nobody has
    for (uint32_t r = 0; r < call->step->n_rows; r++) {
        const float *in = cpu_row(call, SCAN_IN, r);
        take_state(call, &p, &row, step_states_from(call->step)[r]);
        row.q = in + args->q_at + (size_t)kh * args->d_k;
        row.k = in + args->k_at + (size_t)kh * args->d_k;
        row.v = in + args->v_at + (size_t)p.head * args->d_v + p.first;
        row.out = (float *)cpu_row(call, SCAN_OUT, r) + (size_t)p.head * args->d_v + p.first;
        take_keys(args, &row, unit);
        take_gates(call, p.head, r, &row);
        run(&row);
        give_state(call, &p, &row, step_states_to(call->step)[r]);
    }
}

static void scan_tiles(const struct cpu_call *call, uint32_t first, uint32_t last,
                       void (*run)(const struct scan_row *))
{
    const struct scan_args *args = cpu_args(call);
    uint32_t n = (args->d_v + SCAN_TILE - 1) / SCAN_TILE;

    for (uint32_t tile = first; tile < last; tile++)
        scan_tile(call, (struct scan_place){ tile / n, tile % n * SCAN_TILE }, run);
}

static void scan_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    scan_tiles(call, first, last, scan_row_plain);
}

static void scan_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    scan_tiles(call, range.first, range.last, rows->scan_row);
}
ROW_KERNELS(scan_fast)

const struct cpu_op cpu_op_scan = { .name = "scan",
                                    .by_rows = true,
                                    .plain = { scan_plan, scan_run },
                                    .fast = { ROW_CHOICES(scan_plan, scan_fast) } };
