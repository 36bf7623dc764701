// matmul_cpu.c - the definition, and the list of faster kernels.
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_fast.h"
#include "ops/product_choices.h"
#include "ops/rows.h"

enum { PLAIN_TILE = 16 }; // rows of w in a tile

void matmul_decode_row(const struct weight *w, uint32_t n, float *decoded)
{
    const unsigned char *row = (const unsigned char *)w->buffer.host + (uint64_t)n * (w->bytes / w->n_rows);

    CHECK(w->layout == 0);
    quant_info(w->format)->decode(row, decoded, w->n_cols);
}

float matmul_dot_plain(const float *in, const float *w, uint32_t n_cols)
{
    float sum = 0;

    for (uint32_t k = 0; k < n_cols; k++)
        sum += in[k] * w[k];
    return sum;
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

PRODUCT_KERNELS(matmul_fast)

const struct cpu_op cpu_op_matmul = {
    .name = "matmul", .by_rows = true, .plain = { matmul_plan, matmul_run }, .fast = { PRODUCT_CHOICES(matmul_fast) }
};
