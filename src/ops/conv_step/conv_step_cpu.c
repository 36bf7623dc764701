// conv_step_cpu.c - the definition, and the walk that the vector kernels share: a tile is some channels, and
// takes all rows of the step in their order.
#include <math.h>
#include <string.h>
#include "ops/conv_step/conv_step.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

static void conv_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct conv_step_args *args = cpu_args(call);

    plan->n_phases = 1;
    plan->n_tiles[0] = (args->n_channels + CONV_TILE - 1) / CONV_TILE;
}

static void conv_row_plain(const struct conv_row *row)
{
    for (uint32_t c = 0; c < row->n; c++) {
        float u = row->factor ? row->in[c] * row->factor[c] : row->in[c];
        float sum = row->bias ? row->bias[c] : 0;
        for (uint32_t j = 0; j < row->kernel - 1; j++) {
            float before = row->past[j][c];
            sum += row->w[j][c] * before;
            if (j > 0)
                row->past[j - 1][c] = before;
        }
        sum += row->w[row->kernel - 1][c] * u;
        row->past[row->kernel - 2][c] = u;
        if (row->silu)
            sum = sum / (1 + expf(-sum));
        row->out[c] = row->gate ? sum * row->gate[c] : sum;
    }
}

// A row of the states, at the tile's first channel.
static float *state_of(const struct cpu_call *call, uint32_t state, uint32_t first)
{
    const struct conv_step_args *args = cpu_args(call);
    return (float *)cpu_base(call, CONV_STATES) + (size_t)state * args->state_words + args->state_at + first;
}

static void take_state(const struct cpu_call *call, struct conv_row *row, uint32_t from, uint32_t first)
{
    const struct conv_step_args *args = cpu_args(call);

    if (from == STATE_NEXT)
        return;
    for (uint32_t j = 0; j + 1 < row->kernel; j++)
        if (from == STATE_ZERO)
            memset(row->past[j], 0, row->n * sizeof(float));
        else
            memcpy(row->past[j], state_of(call, from, first) + (size_t)j * args->n_channels,
                   row->n * sizeof(float));
}

static void give_state(const struct cpu_call *call, const struct conv_row *row, uint32_t to, uint32_t first)
{
    const struct conv_step_args *args = cpu_args(call);

    for (uint32_t j = 0; to != STATE_NONE && j + 1 < row->kernel; j++)
        memcpy(state_of(call, to, first) + (size_t)j * args->n_channels, row->past[j],
               row->n * sizeof(float));
}

// The taps of the tile's channels, by tap.
static void take_weights(const struct cpu_call *call, struct conv_row *row, uint32_t first)
{
    const float *w = (const float *)cpu_base(call, CONV_W) + (size_t)first * row->kernel;

    for (uint32_t c = 0; c < row->n; c++)
        for (uint32_t j = 0; j < row->kernel; j++)
            row->w[j][c] = w[c * row->kernel + j];
}

static void conv_tile(const struct cpu_call *call, uint32_t first, void (*run)(const struct conv_row *))
{
    const struct conv_step_args *args = cpu_args(call);
    const float *bias = cpu_base(call, CONV_BIAS);
    uint32_t left = args->n_channels - first;
    float past[CONV_MAX_KERNEL - 1][CONV_TILE] = { { 0 } };
    struct conv_row row = { .past = past,
                            .n = left < CONV_TILE ? left : CONV_TILE,
                            .kernel = args->kernel_size,
                            .silu = args->flags & CONV_SILU,
                            .bias = bias ? bias + first : NULL };

    take_weights(call, &row, first);
    for (uint32_t r = 0; r < call->step->n_rows; r++) {
        const float *in = (const float *)cpu_row(call, CONV_IN, r) + first;
        take_state(call, &row, step_states_from(call->step)[r], first);
        row.in = in + args->at;
        row.factor = args->flags & CONV_FACTOR ? in + args->factor_at : NULL;
        row.gate = args->flags & CONV_GATE ? in + args->gate_at : NULL;
        row.out = (float *)cpu_row(call, CONV_OUT, r) + first;
        run(&row);
        give_state(call, &row, step_states_to(call->step)[r], first);
    }
}

static void conv_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    (void)phase;
    for (uint32_t tile = first; tile < last; tile++)
        conv_tile(call, tile * CONV_TILE, conv_row_plain);
}

static void conv_fast(const struct cpu_call *call, struct row_range range, const struct row_kernels *rows)
{
    for (uint32_t tile = range.first; tile < range.last; tile++)
        conv_tile(call, tile * CONV_TILE, rows->conv_row);
}
ROW_KERNELS(conv_fast)

const struct cpu_op cpu_op_conv_step = { .name = "conv_step",
                                         .by_rows = true,
                                         .plain = { conv_plan, conv_run },
                                         .fast = { ROW_CHOICES(conv_plan, conv_fast) } };
