// attend_all_cpu.c - the definition, then blocks of rows by head.
//
// Fast: a tile is ALL_BLOCK rows of the step and a head. Its keys are transposed once, so that scores of
// neighbouring keys fill a vector; that costs 1 / ALL_BLOCK of the products.
#include <math.h>
#include "ops/attend_all/attend_all.h"
#include "ops/matmul/matmul.h"
#include "ops/rows.h"
#include "ops/vec/row_kernels.h"

enum { ALL_BLOCK = 128 };

static void attend_all_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    plan_rows(call, plan);
    plan->local_bytes = call->step->n_rows * sizeof(float);
}

// The columns of a head's keys and values.
static uint32_t kv_column(const struct attend_all_args *args, uint32_t head)
{
    return head / (args->n_heads / args->n_kv_heads) * args->head_dim;
}

static void head_plain(const struct cpu_call *call, uint32_t r, uint32_t first, uint32_t head)
{
    const struct attend_all_args *args = cpu_args(call);
    const uint32_t n = args->head_dim, at = kv_column(args, head);
    uint32_t last = attend_all_end(call->step, r);
    const float *q = (const float *)cpu_row(call, ATTEND_ALL_Q, r) + head * n;
    float *out = (float *)cpu_row(call, ATTEND_ALL_OUT, r) + head * n, *weights = call->local,
          row_max = -INFINITY, row_sum = 0;

    if (args->reach) {
        last = last - r > args->reach ? r + args->reach + 1 : last;
        first = r - first > args->reach ? r - args->reach : first;
    }
    for (uint32_t j = first; j < last; j++) {
        weights[j - first] =
            matmul_dot_plain(q, (const float *)cpu_row(call, ATTEND_ALL_K, j) + at, n) * args->scale;
        row_max = fmaxf(row_max, weights[j - first]);
    }
    for (uint32_t d = 0; d < n; d++)
        out[d] = 0;
    for (uint32_t j = first; j < last; j++) {
        const float *v = (const float *)cpu_row(call, ATTEND_ALL_V, j) + at;
        float weight = expf(weights[j - first] - row_max);
        row_sum += weight;
        for (uint32_t d = 0; d < n; d++)
            out[d] += weight * v[d];
    }
    for (uint32_t d = 0; d < n; d++)
        out[d] /= row_sum;
}

static void attend_all_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    const struct attend_all_args *args = cpu_args(call);

    (void)phase;
    for (uint32_t r = first; r < last; r++)
        for (uint32_t h = 0; h < args->n_heads; h++)
            head_plain(call, r, r - step_positions(call->step)[r], h);
}

static uint32_t n_blocks(const struct cpu_call *call)
{
    return (call->step->n_rows + ALL_BLOCK - 1) / ALL_BLOCK;
}

static void attend_all_plan_fast(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct attend_all_args *args = cpu_args(call);

    plan->n_phases = 1;
    plan->n_tiles[0] = n_blocks(call) * args->n_heads;
    plan->local_bytes = attend_all_local_bytes(args, call->step->n_rows);
}

// Rows [first, end) are the tile's rows of one slot.
static void attend_all_tile(const struct cpu_call *call, uint32_t tile, const struct row_kernels *rows)
{
    const struct attend_all_args *args = cpu_args(call);
    const uint32_t head = tile / n_blocks(call), first = tile % n_blocks(call) * ALL_BLOCK;
    const uint32_t column = head * args->head_dim, kv = kv_column(args, head);
    const uint32_t last = first + ALL_BLOCK < call->step->n_rows ? first + ALL_BLOCK : call->step->n_rows;

    for (uint32_t r = first, end; r < last; r = end) {
        uint32_t key = r - step_positions(call->step)[r], keys_end = attend_all_end(call->step, r);
        end = keys_end < last ? keys_end : last;
        rows->attend_all(&(struct attend_all_block){
            .args = args,
            .q = (const float *)cpu_row(call, ATTEND_ALL_Q, r) + column,
            .k = (const float *)cpu_row(call, ATTEND_ALL_K, key) + kv,
            .v = (const float *)cpu_row(call, ATTEND_ALL_V, key) + kv,
            .out = (float *)cpu_row(call, ATTEND_ALL_OUT, r) + column,
            .stride = (size_t)args->n_heads * args->head_dim,
            .kv_stride = (size_t)args->n_kv_heads * args->head_dim,
            .first = r - key,
            .n_rows = end - r,
            .n_keys = keys_end - key,
            .local = call->local,
        });
    }
}

static void attend_all_fast(const struct cpu_call *call, struct row_range range,
                            const struct row_kernels *rows)
{
    for (uint32_t tile = range.first; tile < range.last; tile++)
        attend_all_tile(call, tile, rows);
}
ROW_KERNELS(attend_all_fast)

const struct cpu_op cpu_op_attend_all = { .name = "attend_all",
                                          .plain = { attend_all_plan, attend_all_run },
                                          .fast = { ROW_CHOICES(attend_all_plan_fast, attend_all_fast) } };
