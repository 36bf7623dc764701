// tower_blocks.c - see tower_blocks.h.
#include "models/vision/tower_blocks.h"
#include <math.h>
#include "ops/attend_all/attend_all.h"
#include "ops/embed/embed.h"
#include "ops/layernorm/layernorm.h"
#include "ops/patches/patches.h"
#include "ops/scale_add/scale_add.h"

// ---- sizes

static bool read_size(struct tower *t, const struct tower_size *k, struct err *err)
{
    bool gguf = model_file_format(t->file) == MODEL_GGUF;
    uint64_t value = gguf ? 0 : k->otherwise;

    if (!model_file_u64(t->file, gguf ? k->gguf : k->json, 1, k->max, &value, err))
        return false;
    *(uint32_t *)(void *)((char *)&t->config + k->offset) = (uint32_t)value;
    return value || err_set(err, ERR_INPUT, "%s: %s is missing; a vision tower needs it",
                            model_file_path(t->file), k->gguf);
}

bool tower_read_sizes(struct tower *t, const struct tower_size *sizes, uint32_t n, struct err *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (!read_size(t, &sizes[i], err))
            return false;
    return true;
}

static bool check_activation(const struct tower *t, const char *activation, struct err *err)
{
    bool gguf = model_file_format(t->file) == MODEL_GGUF, gelu = !gguf;
    struct str name = str_from(activation);

    if (!model_file_bool(t->file, "clip.use_gelu", &gelu, err) ||
        !model_file_string(t->file, "vision_config.hidden_act", &name, err))
        return false;
    if (!gelu)
        return err_set(err, ERR_UNSUPPORTED, "%s: clip.use_gelu is not true; ingot runs this tower with GELU",
                       model_file_path(t->file));
    return str_is(name, activation) ||
           err_set(err, ERR_UNSUPPORTED,
                   "%s: vision_config.hidden_act is \"%.*s\"; ingot runs this tower with %s",
                   model_file_path(t->file), STR_ARG(name), activation);
}

static bool check_projection(const struct tower *t, struct err *err)
{
    uint64_t n_out = t->config.n_out;

    if (!model_file_u64(t->file, "clip.vision.projection_dim", 1, 1 << 20, &n_out, err))
        return false;
    return n_out == t->config.n_out ||
           err_set(err, ERR_INPUT,
                   "%s: the tower makes rows of %llu columns, and the text model has %u; they do not belong "
                   "together",
                   model_file_path(t->file), (unsigned long long)n_out, t->config.n_out);
}

bool tower_read_common(struct tower *t, const char *activation, struct err *err)
{
    double eps = 1e-6;

    if (!model_file_f64(t->file, "clip.vision.attention.layer_norm_epsilon", 1e-12, 1, &eps, err) ||
        !model_file_f64(t->file, "vision_config.layer_norm_eps", 1e-12, 1, &eps, err) ||
        !check_activation(t, activation, err) || !check_projection(t, err))
        return false;
    t->config.norm_eps = (float)eps;
    return true;
}

// ---- the tape

// x += in w + bias, times the factors if there are any.
static void add_product(struct tape *t, struct tensor x, struct matmul m, const struct weight *factors)
{
    if (!factors) {
        m.out = m.add = x;
        op_matmul(t, m);
        return;
    }
    m.out = tape_tensor(t, x.n_cols, ROWS_STEP);
    op_matmul(t, m);
    op_scale_add(t, (struct scale_add){ .out = x, .in = m.out, .add = x, .scale = factors });
}

void tower_block_attention(struct tape *t, const struct tower_stage *s, uint32_t l, struct tensor x)
{
    const struct tower_config *c = &s->tower->config;
    const struct tower_layer *w = &s->layers[l];
    struct tensor normed = tape_tensor(t, c->n_cols, ROWS_STEP),
                  attended = tape_tensor(t, c->n_cols, ROWS_STEP);
    struct tensor q = tape_tensor(t, c->n_cols, ROWS_STEP), k = tape_tensor(t, c->n_cols, ROWS_STEP),
                  v = tape_tensor(t, c->n_cols, ROWS_STEP);

    tape_label(t, "vision.layer%u.norm1", l);
    op_layernorm(t,
                 (struct layernorm){
                     .out = normed, .in = x, .scale = w->norm1, .bias = w->norm1_bias, .eps = c->norm_eps });
    tape_label(t, "vision.layer%u.qkv", l);
    op_matmul_three(t, (struct matmul_three){ .out = { q, k, v },
                                              .in = normed,
                                              .w = { w->q, w->k, w->v },
                                              .bias = { w->q_bias, w->k_bias, w->v_bias } });
    tape_label(t, "vision.layer%u.attend", l);
    op_attend_all(t, (struct attend_all){ .out = attended,
                                          .q = q,
                                          .k = k,
                                          .v = v,
                                          .n_heads = c->n_heads,
                                          .half = true,
                                          .scale = 1 / sqrtf((float)(c->n_cols / c->n_heads)) });
    tape_label(t, "vision.layer%u.attn_out", l);
    add_product(t, x, (struct matmul){ .in = attended, .w = w->o, .bias = w->o_bias }, w->scale1);
}

void tower_block_ffn(struct tape *t, const struct tower_stage *s, uint32_t l, struct tensor x,
                     enum activation activation)
{
    const struct tower_config *c = &s->tower->config;
    const struct tower_layer *w = &s->layers[l];
    struct tensor normed = tape_tensor(t, c->n_cols, ROWS_STEP), ffn = tape_tensor(t, c->n_ffn, ROWS_STEP);

    tape_label(t, "vision.layer%u.norm2", l);
    op_layernorm(t,
                 (struct layernorm){
                     .out = normed, .in = x, .scale = w->norm2, .bias = w->norm2_bias, .eps = c->norm_eps });
    tape_label(t, "vision.layer%u.up", l);
    op_matmul_activated(t, (struct matmul){ .out = ffn, .in = normed, .w = w->up, .bias = w->up_bias },
                        activation);
    tape_label(t, "vision.layer%u.down", l);
    add_product(t, x, (struct matmul){ .in = ffn, .w = w->down, .bias = w->down_bias }, w->scale2);
}

void tower_block_patches(struct tape *t, const struct tower_stage *s, struct tensor x)
{
    const struct tower_config *c = &s->tower->config;
    const struct tower_weights *w = &s->weights;
    struct tensor pixels = tape_tensor(t, w->patch->n_cols, ROWS_STEP);

    tape_label(t, "vision.patch");
    op_patches(t, (struct patches){ .out = pixels,
                                    .pixels = s->pixels,
                                    .table = w->pixels,
                                    .side = c->processor.tile,
                                    .patch = c->patch });
    op_embed(t, (struct embed){
                    .out = x, .table = w->position, .history = s->history, .history_stride = 0, .scale = 1 });
    op_matmul(t, (struct matmul){ .out = x, .in = pixels, .w = w->patch, .bias = w->patch_bias, .add = x });
}
