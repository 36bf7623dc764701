// trellis_cpu.c - the definition: rows are turned, then for each 128 outputs the codes are decoded block by
// block and multiplied in fp32, and the sums turned back. With vectors the sums have another order
// (trellis_sums.c).
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/trellis/trellis.h"
#include "ops/trellis/trellis_sums.h"
#include "quant/half.h"

struct trellis_local { // a thread's own
    struct trellis_sums_room room;
    f32 sums[TRELLIS_PASS_ROWS][EXL3_BLOCK];
};

struct cpu_trellis { // of one of the command's matrices
    const struct cpu_call *call;
    const struct trellis_kernels *kernels; // NULL: plain
    struct exl3 m;
    uint32_t n_rows;   // of the matrix
    uint32_t operands; // before its own
};

static uint32_t blocks_of(const struct trellis_args *args, uint32_t matrix)
{
    return exl3_padded(args->n_rows[matrix]) / EXL3_BLOCK;
}

// Phase 0: a tile for each matrix and row. Phase 1: for each 128 outputs.
static void trellis_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct trellis_args *args = cpu_args(call);
    uint32_t n = rows_of(call->step, args->rows);

    plan->n_phases = 2;
    plan->n_tiles[0] = n * trellis_n_matrices(args);
    for (uint32_t i = 0; i < TRELLIS_MATRICES; i++)
        plan->n_tiles[1] += n ? blocks_of(args, i) : 0;
    plan->local_bytes = sizeof(struct trellis_local);
}

// A tile's matrix; tile: then its place among those of this matrix.
static struct cpu_trellis take_tile(const struct cpu_call *call, uint32_t phase, uint32_t *tile)
{
    const struct trellis_args *args = cpu_args(call);
    uint32_t n = rows_of(call->step, args->rows), i = 0;

    for (uint32_t own; *tile >= (own = phase == 0 ? n : blocks_of(args, i)); i++)
        *tile -= own;
    struct cpu_trellis p = { .call = call, .n_rows = args->n_rows[i], .operands = i * TRELLIS_OPERANDS };
    p.m = exl3_at(cpu_base(call, p.operands + TRELLIS_W), exl3_padded(args->n_cols), exl3_padded(p.n_rows),
                  args->bits, (enum exl3_codebook)args->codebook);
    return p;
}

// H (suh * in), the padding zero.
static void turn_row(const struct cpu_trellis *p, uint32_t r)
{
    const struct exl3 *m = &p->m;
    uint32_t n_cols = ((const struct trellis_args *)cpu_args(p->call))->n_cols;
    const float *in = cpu_row(p->call, TRELLIS_IN, r);
    float *turned = cpu_row(p->call, p->operands + TRELLIS_WORK, r);

    for (uint32_t i = 0; i < m->n_in; i++)
        turned[i] = i < n_cols ? in[i] * half_to_float(m->suh[i]) : 0;
    trellis_turn(p->kernels, turned, m->n_in);
}

static void write_outputs(const struct cpu_trellis *p, uint32_t out, uint32_t row, float *sums)
{
    const struct cpu_call *call = p->call;
    uint32_t first = out * EXL3_BLOCK, add_at = p->operands + TRELLIS_ADD;
    const float *bias = cpu_base(call, p->operands + TRELLIS_BIAS),
                *add = cpu_has(call, add_at) ? cpu_row(call, add_at, row) : NULL;
    float *to = cpu_row(call, p->operands + TRELLIS_OUT, row);

    exl3_turn(sums);
    for (uint32_t n = first; n < first + EXL3_BLOCK && n < p->n_rows; n++) {
        float v = sums[n - first] * half_to_float(p->m.svh[n]);
        if (bias)
            v += bias[n];
        to[n] = add ? v + add[n] : v;
    }
}

static void multiply(const struct cpu_trellis *p, uint32_t out)
{
    struct trellis_local *local = p->call->local;
    uint32_t n = rows_of(p->call->step, ((const struct trellis_args *)cpu_args(p->call))->rows);

    for (uint32_t first = 0; first < n; first += TRELLIS_PASS_ROWS) {
        struct trellis_rows rows = { .x = cpu_row(p->call, p->operands + TRELLIS_WORK, first),
                                     .x_stride = p->m.n_in,
                                     .n = n - first > TRELLIS_PASS_ROWS ? TRELLIS_PASS_ROWS : n - first };
        trellis_sums(p->kernels, &p->m, out, &rows, &local->room, local->sums);
        for (uint32_t r = 0; r < rows.n; r++)
            write_outputs(p, out, first + r, local->sums[r]);
    }
}

static void run(const struct cpu_call *call, uint32_t phase, const uint32_t range[2],
                const struct trellis_kernels *kernels)
{
    for (uint32_t i = range[0]; i < range[1]; i++) {
        uint32_t tile = i;
        struct cpu_trellis p = take_tile(call, phase, &tile);
        p.kernels = kernels;
        if (phase == 0)
            turn_row(&p, tile);
        else
            multiply(&p, tile);
    }
}

static void trellis_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    run(call, phase, (uint32_t[2]){ first, last }, NULL);
}

#if defined(CPU_X86) // by vectors
static void avx2_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    run(call, phase, (uint32_t[2]){ first, last }, &trellis_avx2);
}
static void avx512_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    run(call, phase, (uint32_t[2]){ first, last }, &trellis_avx512);
}
#endif

const struct cpu_op cpu_op_trellis = {
    .name = "trellis",
    .plain = { trellis_plan, trellis_run },
#if defined(CPU_X86)
    .fast = { { CPU_AVX512, { trellis_plan, avx512_run } }, { CPU_AVX2, { trellis_plan, avx2_run } } }
#endif
};
