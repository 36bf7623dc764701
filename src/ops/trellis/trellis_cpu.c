// trellis_cpu.c - the definition: rows are turned, then for each 128 outputs the codes are decoded block by
// block and multiplied in fp32, and the sums turned back. Then the same with vectors (trellis_vec.h), in
// another order of sums.
//
// A block's codes are decoded once for PASS_ROWS rows. One row is bound by decoding.
#include "ops/ops.h"
#include "ops/rows.h"
#include "ops/trellis/trellis.h"
#include "ops/trellis/trellis_kernels.h"
#include "quant/half.h"

enum { PASS_ROWS = 128 };

struct trellis_room { // a thread's own
    f32 block[EXL3_BLOCK][EXL3_BLOCK];
    f32 sums[PASS_ROWS][EXL3_BLOCK];
};
struct trellis_vec_room { // the same, of the vector kernels
    _Alignas(64) f32 column[TRELLIS_COLUMN];
    _Alignas(64) f32 sums[PASS_ROWS][EXL3_BLOCK / EXL3_TILE][TRELLIS_SUMS];
};

struct cpu_trellis { // of one of the command's matrices
    const struct cpu_call *call;
    struct exl3 m;
    uint32_t n_rows;   // of the matrix
    uint32_t operands; // before its own
};

static struct cpu_trellis product_of(const struct cpu_call *call, uint32_t matrix)
{
    const struct trellis_args *args = cpu_args(call);
    uint32_t n_rows = args->n_rows[matrix], operands = matrix * TRELLIS_OPERANDS;

    return (struct cpu_trellis){ call,
                                 exl3_at(cpu_base(call, operands + TRELLIS_W), exl3_padded(args->n_cols),
                                         exl3_padded(n_rows), args->bits, (enum exl3_codebook)args->codebook),
                                 n_rows, operands };
}

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
    plan->local_bytes = sizeof(struct trellis_room);
}

// A tile's matrix; tile: then its place among those of this matrix.
static struct cpu_trellis take_tile(const struct cpu_call *call, uint32_t phase, uint32_t *tile)
{
    const struct trellis_args *args = cpu_args(call);
    uint32_t n = rows_of(call->step, args->rows), i = 0;

    for (uint32_t own; *tile >= (own = phase == 0 ? n : blocks_of(args, i)); i++)
        *tile -= own;
    return product_of(call, i);
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
    for (uint32_t i = 0; i < m->n_in; i += EXL3_BLOCK)
        exl3_turn(turned + i);
}

static void add_block(const float *x, float block[EXL3_BLOCK][EXL3_BLOCK], float *sums)
{
    for (uint32_t i = 0; i < EXL3_BLOCK; i++)
        for (uint32_t o = 0; o < EXL3_BLOCK; o++)
            sums[o] += x[i] * block[i][o];
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

static uint32_t step_rows(const struct cpu_trellis *p)
{
    return rows_of(p->call->step, ((const struct trellis_args *)cpu_args(p->call))->rows);
}

static const float *turned_row(const struct cpu_trellis *p, uint32_t row)
{
    return cpu_row(p->call, p->operands + TRELLIS_WORK, row);
}

static void multiply(const struct cpu_trellis *p, uint32_t out)
{
    struct trellis_room *room = p->call->local;
    uint32_t n = step_rows(p);

    for (uint32_t first = 0; first < n; first += PASS_ROWS) {
        uint32_t end = n - first > PASS_ROWS ? first + PASS_ROWS : n;
        memset(room->sums, 0, (end - first) * sizeof *room->sums);
        for (uint32_t in = 0; in < p->m.n_in / EXL3_BLOCK; in++) {
            exl3_decode_block(&p->m, in, out, room->block);
            for (uint32_t r = first; r < end; r++)
                add_block(turned_row(p, r) + in * EXL3_BLOCK, room->block, room->sums[r - first]);
        }
        for (uint32_t r = first; r < end; r++)
            write_outputs(p, out, r, room->sums[r - first]);
    }
}

static void trellis_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++) {
        uint32_t tile = i;
        struct cpu_trellis p = take_tile(call, phase, &tile);
        if (phase == 0)
            turn_row(&p, tile);
        else
            multiply(&p, tile);
    }
}

#if defined(CPU_X86) // by vectors
static void vec_plan(const struct cpu_call *call, struct cpu_plan *plan)
{
    trellis_plan(call, plan);
    plan->local_bytes = sizeof(struct trellis_vec_room);
}

// Of each 16 numbers in the order of trellis_kernels.h.
static void reorder_row(const struct cpu_trellis *p, uint32_t r)
{
    float *row = cpu_row(p->call, p->operands + TRELLIS_WORK, r), was[EXL3_TILE];

    for (float *at = row; at < row + p->m.n_in; at += EXL3_TILE) {
        memcpy(was, at, sizeof was);
        for (uint32_t i = 0; i < EXL3_TILE; i++)
            at[i] = was[i / 4 * 2 + i % 2 + i / 2 % 2 * 8];
    }
}

static void write_vec_outputs(const struct cpu_trellis *p, uint32_t out, uint32_t row,
                              f32 (*sums)[TRELLIS_SUMS])
{
    float added[EXL3_BLOCK];

    for (uint32_t o = 0; o < EXL3_BLOCK; o++) {
        const f32 *four = sums[o / EXL3_TILE] + o % 8 * 8 + o / 8 % 2 * 4;
        added[o] = (four[0] + four[1]) + (four[2] + four[3]);
    }
    write_outputs(p, out, row, added);
}

static void multiply_vec(const struct cpu_trellis *p, uint32_t out, const struct trellis_kernels *kernels)
{
    struct trellis_vec_room *room = p->call->local;
    uint32_t n = step_rows(p), n_tiles = EXL3_BLOCK / EXL3_TILE;

    for (uint32_t first = 0; first < n; first += PASS_ROWS) {
        uint32_t end = n - first > PASS_ROWS ? first + PASS_ROWS : n;
        memset(room->sums, 0, (end - first) * sizeof *room->sums);
        for (uint32_t i = 0; i < p->m.n_in / EXL3_BLOCK * n_tiles; i++) {
            uint32_t in = i / n_tiles, tile = i % n_tiles;
            kernels->decode(&p->m, in, out * n_tiles + tile, room->column);
            kernels->add(room->column,
                         &(struct trellis_rows){ .x = turned_row(p, first) + in * EXL3_BLOCK,
                                                 .sums = room->sums[0][tile],
                                                 .x_stride = p->m.n_in,
                                                 .sums_stride = sizeof *room->sums / sizeof(float),
                                                 .n = end - first });
        }
        for (uint32_t r = first; r < end; r++)
            write_vec_outputs(p, out, r, room->sums[r - first]);
    }
}

static void vec_run(const struct cpu_call *call, uint32_t phase, const uint32_t range[2],
                    const struct trellis_kernels *kernels)
{
    for (uint32_t i = range[0]; i < range[1]; i++) {
        uint32_t tile = i;
        struct cpu_trellis p = take_tile(call, phase, &tile);
        if (phase == 1) {
            multiply_vec(&p, tile, kernels);
            continue;
        }
        turn_row(&p, tile);
        reorder_row(&p, tile);
    }
}

static void avx2_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    vec_run(call, phase, (uint32_t[2]){ first, last }, &trellis_avx2);
}
static void avx512_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    vec_run(call, phase, (uint32_t[2]){ first, last }, &trellis_avx512);
}
#endif

const struct cpu_op cpu_op_trellis = {
    .name = "trellis",
    .plain = { trellis_plan, trellis_run },
#if defined(CPU_X86)
    .fast = { { CPU_AVX512, { vec_plan, avx512_run } }, { CPU_AVX2, { vec_plan, avx2_run } } }
#endif
};
