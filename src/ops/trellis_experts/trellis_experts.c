// trellis_experts.c - checks and records the operation; see trellis_experts.h.
#include "ops/trellis_experts/trellis_experts.h"
#include "ops/gate_up/gate_up.h"
#include "ops/ops.h"
#include "ops/trellis/trellis.h"

// The bits of a stack's matrices, or 0 with the tape's error.
static u32 bits_of(struct tape *t, const struct weight *w, uint32_t n_experts)
{
    uint32_t n_in = exl3_padded(w->n_cols), n_out = exl3_padded(w->n_rows / n_experts);
    u32 bits = w->bytes % n_experts ? 0 : exl3_bits(w->bytes / n_experts, n_in, n_out);

    if (bits == 0 || !trellis_multiplies(w))
        tape_fail(t, "trellis_experts: %s has %llu bytes of %s; %u matrices [%u, %u] of 1 to 8 bits are none",
                  w->name, (unsigned long long)w->bytes, quant_info(w->format)->name, n_experts, n_out, n_in);
    return trellis_multiplies(w) ? bits : 0;
}

static bool make_args(struct tape *t, const struct experts_up *up, const struct experts_down *down,
                      struct trellis_experts_args *args)
{
    const struct weight *const stacks[] = {
        [TRELLIS_GATE] = up->gate, [TRELLIS_UP] = up->up, [TRELLIS_DOWN] = down->down
    };
    struct experts_args of_down;

    if (!experts_up_check(t, up, &args->experts) || !experts_down_check(t, down, &of_down))
        return false;
    if (up->gate_bias || down->bias || up->limit > 0) {
        tape_fail(t, "trellis_experts: %s has a bias or a limit; want neither", up->gate->name);
        return false;
    }
    args->experts.n_shared = 0;
    for (uint32_t i = 0; i < TRELLIS_STACKS; i++) {
        args->bits[i] = bits_of(t, stacks[i], up->n_experts);
        args->codebook[i] = (u32)stacks[i]->format - QUANT_EXL3;
        if (args->bits[i] == 0)
            return false;
    }
    return true;
}

// What the shared expert makes of all rows; id 0: there is none.
static struct tensor record_shared(struct tape *t, const struct experts_up *up,
                                   const struct experts_down *down)
{
    if (!up->shared_up)
        return (struct tensor){ 0 };
    struct tensor hidden = tape_tensor(t, up->shared_up->n_rows, ROWS_STEP),
                  out = tape_tensor(t, down->out.n_cols, ROWS_STEP);

    op_gate_up(t, (struct gate_up){ .out = hidden,
                                    .in = up->in,
                                    .gate = up->shared_gate,
                                    .up = up->shared_up,
                                    .activation = up->activation });
    op_matmul(t, (struct matmul){ .out = out, .in = hidden, .w = down->shared });
    return out;
}

void op_trellis_experts(struct tape *t, const struct experts_up *up, const struct experts_down *down)
{
    struct trellis_experts_args args = { 0 };

    if (!make_args(t, up, down, &args))
        return;
    const struct experts_args *e = &args.experts;
    struct tensor shared = record_shared(t, up, down),
                  work =
                      tape_tensor(t, trellis_experts_work_cols(e->n_slots, e->n_cols, e->n_ffn), ROWS_STEP);
    struct command *c = tape_add(t, OP_trellis_experts, "trellis_experts", &args, sizeof args);
    tape_reads(t, c, up->in);
    tape_reads(t, c, up->ids);
    tape_reads(t, c, down->weights);
    tape_reads_weight(t, c, up->gate);
    tape_reads_weight(t, c, up->up);
    tape_reads_weight(t, c, down->down);
    tape_reads(t, c, shared);
    tape_reads(t, c, down->add);
    tape_works_in(t, c, work);
    tape_writes(t, c, down->out);
}
