// gate_up.c - checks and records the operation, or its parts; see gate_up.h.
#include "ops/gate_up/gate_up.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/trellis/trellis.h"

static void record_parts(struct tape *t, struct gate_up g)
{
    struct tensor n = g.norm ? tape_tensor(t, g.in.n_cols, ROWS_STEP) : g.in;
    struct tensor gate = tape_tensor(t, g.out.n_cols, ROWS_STEP),
                  up = tape_tensor(t, g.out.n_cols, ROWS_STEP);

    if (g.norm)
        op_rmsnorm(t, (struct rmsnorm){ .out = n, .in = g.in, .scale = g.norm, .eps = g.eps });
    matmul_record_joined(
        t,
        (const struct matmul[]){ { .out = gate, .in = n, .w = g.gate }, { .out = up, .in = n, .w = g.up } },
        2);
    op_lora(t, (struct lora){ .in = n, .targets = { { gate, g.gate->lora }, { up, g.up->lora } } });
    op_activate(t, (struct activate){ .out = g.out, .gate = gate, .up = up, .activation = g.activation });
}

static void record_fused(struct tape *t, const struct gate_up *g, const struct lora *l)
{
    bool adds = lora_adds(l);
    struct gate_up_adapted_args args = {
        .product = { g->in.n_cols, g->out.n_cols, g->eps, g->activation, tape_limits(t)->exact, 0 },
        .adapters = lora_adapted_args(l),
    };
    struct tensor work = tape_tensor(t, gate_up_work_cols(g->in.n_cols), ROWS_STEP);
    struct command *c = adds ? tape_add(t, OP_gate_up_adapted, "gate_up_adapted", &args, sizeof args)
                             : tape_add(t, OP_gate_up, "gate_up", &args.product, sizeof args.product);

    tape_reads(t, c, g->in);
    tape_reads_weight(t, c, g->norm);
    tape_reads_weight(t, c, g->gate);
    tape_reads_weight(t, c, g->up);
    tape_works_in(t, c, work);
    tape_writes(t, c, g->out);
    if (adds)
        lora_add_operands(t, c, l);
}

void op_gate_up(struct tape *t, struct gate_up g)
{
    if (g.norm && g.norm->n_cols != g.in.n_cols) {
        tape_fail(t, "gate_up: in has %u columns, norm %u; they must be equal", g.in.n_cols, g.norm->n_cols);
        return;
    }
    if (!matmul_fits(t, "gate_up", g.gate, g.in.n_cols, g.out.n_cols) ||
        !matmul_fits(t, "gate_up", g.up, g.in.n_cols, g.out.n_cols))
        return;
    struct lora l = { .in = g.in, .targets = { { g.out, g.gate->lora }, { g.out, g.up->lora } } };
    bool fuses = lora_adds(&l) ? lora_fuses(t, OP_gate_up_adapted, &l) : tape_fuses(t, OP_gate_up);
    bool codes = trellis_multiplies(g.gate) || trellis_multiplies(g.up);
    if (g.norm && fuses && !codes && g.activation <= ACTIVATION_GELU_TANH) // others are not in epilogues
        record_fused(t, &g, &l);
    else
        record_parts(t, g);
}
