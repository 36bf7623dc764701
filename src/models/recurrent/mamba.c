// mamba.c - see mamba.h.
#include "models/recurrent/mamba.h"
#include <math.h>
#include "ops/gated_norm/gated_norm.h"
#include "ops/matmul/matmul.h"
#include "ops/rmsnorm/rmsnorm.h"

bool mamba_complete(const struct model *m, struct mamba_config *c, struct err *err)
{
    c->n_mixed = c->inner + 2 * c->n_groups * c->d_state;
    c->n_in = c->inner + c->n_mixed + c->n_heads;
    return (c->inner % c->n_heads == 0 && c->inner / c->n_heads <= SCAN_MAX_DIM &&
            c->n_heads % c->n_groups == 0) ||
           err_set(err, ERR_INPUT,
                   "%s: %u heads in %u groups share %u numbers; want equal parts, of at most %u",
                   model_file_path(m->file), c->n_heads, c->n_groups, c->inner, SCAN_MAX_DIM);
}

uint32_t mamba_state_words(const struct mamba_config *c)
{
    return (uint32_t)(conv_step_words(c->n_mixed, c->kernel) + (uint64_t)c->inner * c->d_state);
}

uint64_t mamba_scratch_cols(const struct model *m, const struct mamba_config *c)
{
    return (uint64_t)m->config.n_cols + c->n_in + c->n_mixed + c->inner;
}

// y of the recurrence on the convolved [x, B, C]; projected: [z, x B C, steps].
static void record_scan(struct tape *t, const struct model_stage *s, uint32_t l, const struct mamba_config *c,
                        const struct mamba_weights *w, const struct tensor values[3])
{
    op_scan(t, (struct scan){ .out = values[0],
                              .in = values[1],
                              .dt = values[2],
                              .a = w->a,
                              .dt_bias = w->dt_bias,
                              .d = w->d,
                              .states = s->states[l - s->first],
                              .state_at = conv_step_words(c->n_mixed, c->kernel),
                              .n_heads = c->n_heads,
                              .n_k_heads = c->n_groups,
                              .d_k = c->d_state,
                              .d_v = c->inner / c->n_heads,
                              .k_at = c->inner,
                              .q_at = c->inner + c->n_groups * c->d_state,
                              .dt_at = c->inner + c->n_mixed,
                              .flags = model_file_format(s->model->file) == MODEL_GGUF ? 0 : SCAN_LOG_A,
                              .t_max = INFINITY });
}

void mamba_block(struct tape *t, const struct model_stage *s, uint32_t l, struct tensor x,
                 const struct mamba_config *c, const struct mamba_weights *w)
{
    struct tensor normed = tape_tensor(t, x.n_cols, ROWS_STEP),
                  projected = tape_tensor(t, c->n_in, ROWS_STEP),
                  mixed = tape_tensor(t, c->n_mixed, ROWS_STEP), y = tape_tensor(t, c->inner, ROWS_STEP);

    tape_label(t, "layer%u.mamba_in", l);
    op_rmsnorm(
        t, (struct rmsnorm){
               .out = normed, .in = x, .scale = stage_layer(s, l)->attn_norm, .eps = s->model->factors.eps });
    op_matmul(t, (struct matmul){ .out = projected, .in = normed, .w = w->in });
    tape_label(t, "layer%u.mamba_conv", l);
    op_conv_step(t, (struct conv_step){ .out = mixed,
                                        .in = projected,
                                        .w = w->conv,
                                        .bias = w->conv_bias,
                                        .states = s->states[l - s->first],
                                        .at = c->inner,
                                        .flags = CONV_SILU });
    tape_label(t, "layer%u.mamba_scan", l);
    record_scan(t, s, l, c, w, (struct tensor[]){ y, mixed, projected });
    tape_label(t, "layer%u.mamba_norm", l);
    op_gated_norm(t, (struct gated_norm){ .out = y,
                                          .in = y,
                                          .z = projected,
                                          .scale = w->norm,
                                          .n_groups = c->n_groups,
                                          .flags = GATED_FIRST,
                                          .eps = s->model->config.norm_eps });
    tape_label(t, "layer%u.mamba_out", l);
    op_matmul(t, (struct matmul){ .out = x, .in = y, .w = w->out, .add = x });
}
