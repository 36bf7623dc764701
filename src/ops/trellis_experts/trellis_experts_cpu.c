// trellis_experts_cpu.c - the definition, an expert at a time; with vectors the sums have another order
// (ops/trellis/trellis_sums.c).
//
// Phase 0 turns each slot's row by its expert's factors, so that an expert's rows follow one another. Phase 1
// takes 128 outputs of an expert's gate and up for its rows, and turns what becomes of them for down. Phase 2
// takes 128 outputs of an expert's down. Phase 3 adds a row's slots.
#include "ops/activate/activate.h"
#include "ops/experts/experts_rows.h"
#include "ops/rows.h"
#include "ops/trellis/trellis_sums.h"
#include "ops/trellis_experts/trellis_experts.h"
#include "quant/half.h"

struct trellis_experts_local { // a thread's own
    struct trellis_sums_room room;
    f32 sums[2][TRELLIS_PASS_ROWS][EXL3_BLOCK]; // of gate, or down; of up
};

struct trellis_job {
    const struct cpu_call *call;
    const struct trellis_experts_args *args;
    const struct trellis_kernels *kernels; // NULL: plain
    struct trellis_experts_local *local;
    struct experts_rows rows;
    uint32_t n_in, n_hidden; // padded: of gate and up, of down
    // by the entries' places in `rows`: [2][n_in] of gate and up, [n_hidden] of down; and by entries
    f32 *of_up, *of_down, *result; // result: [n_cols]
};

static size_t local_bytes(const struct cpu_call *call)
{
    return sizeof(struct trellis_experts_local) + experts_rows_bytes(cpu_args(call), call->step->n_rows);
}

static struct trellis_job job_of(const struct cpu_call *call, const struct trellis_kernels *kernels)
{
    const struct trellis_experts_args *args = cpu_args(call);
    struct trellis_job j = { .call = call, .args = args, .kernels = kernels, .local = call->local };

    j.rows = experts_rows_in(call, sizeof *j.local);
    j.n_in = exl3_padded(args->experts.n_cols);
    j.n_hidden = exl3_padded(args->experts.n_ffn);
    j.of_up = j.result = cpu_base(call, TRELLIS_EXPERTS_WORK);
    j.of_down = j.of_up + (size_t)j.rows.n_entries * 2 * j.n_in;
    if (*call->fresh & 1)
        experts_rows_fill(call, TRELLIS_EXPERTS_IDS, &j.rows);
    *call->fresh &= ~(uint64_t)1;
    return j;
}

// A matrix of an expert.
static struct exl3 matrix_of(const struct trellis_job *j, uint32_t kind, uint32_t expert)
{
    uint32_t n_in = kind == TRELLIS_DOWN ? j->n_hidden : j->n_in,
             n_out = kind == TRELLIS_DOWN ? j->n_in : j->n_hidden;
    const unsigned char *stack = cpu_base(j->call, TRELLIS_EXPERTS_GATE + kind);

    return exl3_at(stack + expert * exl3_bytes(n_in, n_out, j->args->bits[kind]), n_in, n_out,
                   j->args->bits[kind], (enum exl3_codebook)j->args->codebook[kind]);
}

static void plan_experts(const struct cpu_call *call, struct cpu_plan *plan)
{
    const struct experts_args *e = cpu_args(call);
    uint32_t n_entries = call->step->n_rows * e->n_slots,
             n_used = n_entries < e->n_experts ? n_entries : e->n_experts; // at most

    plan->n_phases = 4;
    plan->n_tiles[0] = n_entries;
    plan->n_tiles[1] = n_used * (exl3_padded(e->n_ffn) / EXL3_BLOCK);
    plan->n_tiles[2] = n_used * (exl3_padded(e->n_cols) / EXL3_BLOCK);
    plan->n_tiles[3] = call->step->n_rows;
    plan->local_bytes = local_bytes(call);
}

static uint32_t expert_of(const struct trellis_job *j, uint32_t place)
{
    uint32_t n_slots = j->args->experts.n_slots, entry = j->rows.entry[place];

    return (uint32_t)((const float *)cpu_row(j->call, TRELLIS_EXPERTS_IDS, entry / n_slots))[entry % n_slots];
}

static void turn_entry(const struct trellis_job *j, uint32_t place)
{
    const float *in = cpu_row(j->call, TRELLIS_EXPERTS_IN, j->rows.entry[place] / j->args->experts.n_slots);

    for (uint32_t kind = TRELLIS_GATE; kind <= TRELLIS_UP; kind++) {
        struct exl3 m = matrix_of(j, kind, expert_of(j, place));
        f32 *turned = j->of_up + ((size_t)place * 2 + kind) * j->n_in;
        for (uint32_t i = 0; i < j->n_in; i++)
            turned[i] = i < j->args->experts.n_cols ? in[i] * half_to_float(m.suh[i]) : 0;
        trellis_turn(j->kernels, turned, j->n_in);
    }
}

// The expert that is the at-th of those with rows; n_experts: there are fewer.
static uint32_t used_expert(const struct trellis_job *j, uint32_t at)
{
    uint32_t e = 0;

    for (; e < j->args->experts.n_experts; e++)
        if (j->rows.first[e + 1] > j->rows.first[e] && at-- == 0)
            break;
    return e;
}

// 128 hidden numbers, and what down multiplies of them.
static void make_hidden(const struct trellis_job *j, uint32_t expert, uint32_t out, f32 *gate, f32 *up,
                        f32 *to)
{
    struct exl3 g = matrix_of(j, TRELLIS_GATE, expert), u = matrix_of(j, TRELLIS_UP, expert),
                d = matrix_of(j, TRELLIS_DOWN, expert);

    exl3_turn(gate);
    exl3_turn(up);
    for (uint32_t i = 0, n = out * EXL3_BLOCK; i < EXL3_BLOCK; i++, n++) {
        float a = gate[i] * half_to_float(g.svh[n]), b = up[i] * half_to_float(u.svh[n]);
        to[i] = n < j->args->experts.n_ffn ? activate_plain((enum activation)j->args->experts.activation, a) *
                                                 b * half_to_float(d.suh[n])
                                           : 0;
    }
    trellis_turn(j->kernels, to, EXL3_BLOCK);
}

static void run_up(const struct trellis_job *j, uint32_t expert, uint32_t out, struct tile_range places)
{
    struct trellis_rows rows = { .x_stride = 2 * j->n_in, .n = places.last - places.first };

    for (uint32_t kind = TRELLIS_GATE; kind <= TRELLIS_UP; kind++) {
        struct exl3 m = matrix_of(j, kind, expert);
        rows.x = j->of_up + ((size_t)places.first * 2 + kind) * j->n_in;
        trellis_sums(j->kernels, &m, out, &rows, &j->local->room, j->local->sums[kind]);
    }
    for (uint32_t r = 0; r < rows.n; r++)
        make_hidden(j, expert, out, j->local->sums[TRELLIS_GATE][r], j->local->sums[TRELLIS_UP][r],
                    j->of_down + (size_t)(places.first + r) * j->n_hidden + out * EXL3_BLOCK);
}

static void run_down(const struct trellis_job *j, uint32_t expert, uint32_t out, struct tile_range places)
{
    struct exl3 m = matrix_of(j, TRELLIS_DOWN, expert);
    uint32_t n_cols = j->args->experts.n_cols;
    struct trellis_rows rows = { .x = j->of_down + (size_t)places.first * j->n_hidden,
                                 .x_stride = j->n_hidden,
                                 .n = places.last - places.first };

    trellis_sums(j->kernels, &m, out, &rows, &j->local->room, j->local->sums[0]);
    for (uint32_t r = 0; r < rows.n; r++) {
        f32 *sums = j->local->sums[0][r], *to = j->result + (size_t)j->rows.entry[places.first + r] * n_cols;
        exl3_turn(sums);
        for (uint32_t n = out * EXL3_BLOCK; n < (out + 1) * EXL3_BLOCK && n < n_cols; n++)
            to[n] = sums[n % EXL3_BLOCK] * half_to_float(m.svh[n]);
    }
}

// All rows of a used expert, of 128 outputs of up or down.
static void run_tile(const struct trellis_job *j, uint32_t tile,
                     void run(const struct trellis_job *j, uint32_t expert, uint32_t out,
                              struct tile_range places),
                     uint32_t n_out)
{
    uint32_t n_blocks = n_out / EXL3_BLOCK, expert = used_expert(j, tile / n_blocks);

    if (expert == j->args->experts.n_experts)
        return;
    for (uint32_t at = j->rows.first[expert], end = j->rows.first[expert + 1]; at < end;
         at += TRELLIS_PASS_ROWS)
        run(j, expert, tile % n_blocks,
            (struct tile_range){ at, end - at > TRELLIS_PASS_ROWS ? at + TRELLIS_PASS_ROWS : end });
}

static void sum_row(const struct trellis_job *j, uint32_t row)
{
    const struct experts_args *e = &j->args->experts;
    const struct cpu_call *call = j->call;
    const f32 *weights = cpu_row(call, TRELLIS_EXPERTS_WEIGHTS, row),
              *shared =
                  cpu_has(call, TRELLIS_EXPERTS_SHARED) ? cpu_row(call, TRELLIS_EXPERTS_SHARED, row) : NULL,
              *add = cpu_has(call, TRELLIS_EXPERTS_ADD) ? cpu_row(call, TRELLIS_EXPERTS_ADD, row) : NULL,
              *result = j->result + (size_t)row * e->n_slots * e->n_cols;
    f32 *out = cpu_row(call, TRELLIS_EXPERTS_OUT, row);

    for (uint32_t n = 0; n < e->n_cols; n++) {
        f32 sum = 0;
        for (uint32_t s = 0; s < e->n_slots; s++)
            sum += weights[s] * result[(size_t)s * e->n_cols + n];
        if (shared)
            sum += weights[e->n_slots] * shared[n];
        out[n] = (add ? add[n] : 0) + sum;
    }
}

static void run(const struct cpu_call *call, uint32_t phase, struct tile_range range,
                const struct trellis_kernels *kernels)
{
    struct trellis_job j = job_of(call, kernels);

    for (uint32_t i = range.first; i < range.last; i++)
        if (phase == 0)
            turn_entry(&j, i);
        else if (phase == 1)
            run_tile(&j, i, run_up, j.n_hidden);
        else if (phase == 2)
            run_tile(&j, i, run_down, j.n_in);
        else
            sum_row(&j, i);
}

static void plain_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    run(call, phase, (struct tile_range){ first, last }, NULL);
}

#if defined(CPU_X86)
static void avx2_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    run(call, phase, (struct tile_range){ first, last }, &trellis_avx2);
}
static void avx512_run(const struct cpu_call *call, uint32_t phase, uint32_t first, uint32_t last)
{
    run(call, phase, (struct tile_range){ first, last }, &trellis_avx512);
}
#endif

static void tell_experts(const struct cpu_call *call, cpu_tell *tell, void *arg)
{
    static const uint8_t stacks[] = { TRELLIS_EXPERTS_GATE, TRELLIS_EXPERTS_UP, TRELLIS_EXPERTS_DOWN };

    experts_tell(call, TRELLIS_EXPERTS_IDS, stacks, 3, tell, arg);
}

const struct cpu_op cpu_op_trellis_experts = {
    .name = "trellis_experts",
    .reads = tell_experts,
    .plain = { plan_experts, plain_run },
#if defined(CPU_X86)
    .fast = { { CPU_AVX512, { plan_experts, avx512_run } }, { CPU_AVX2, { plan_experts, avx2_run } } }
#endif
};
