// idefics3.c - the vision tower of Idefics3, SmolVLM and SmolVLM2: a SigLIP encoder, pixel shuffle and one
// product. (Zhai et al. 2023; Laurencon et al. 2024; Marafioti et al. 2025.) Three parts: config keys,
// tensors, the tape.
//
// A tile is always full, so a patch's position id is its number. Keys that are missing in config.json have
// the defaults of transformers' class.
#include <math.h>
#include "models/arch.h"
#include "models/tower.h"
#include "ops/attend_all/attend_all.h"
#include "ops/embed/embed.h"
#include "ops/layernorm/layernorm.h"
#include "ops/matmul/matmul.h"
#include "ops/patches/patches.h"
#include "ops/scatter/scatter.h"
#include "ops/shuffle/shuffle.h"

struct size_key {
    size_t offset; // in struct tower_config
    const char *gguf, *json;
    uint32_t otherwise, max; // otherwise: the default in a folder; a GGUF file must have the key
};

static const struct size_key sizes[] = {
#define SIZE(field) offsetof(struct tower_config, field)
    { SIZE(n_layers), "clip.vision.block_count", "vision_config.num_hidden_layers", 12, 512 },
    { SIZE(n_cols), "clip.vision.embedding_length", "vision_config.hidden_size", 1152, 16384 },
    { SIZE(n_heads), "clip.vision.attention.head_count", "vision_config.num_attention_heads", 16, 1024 },
    { SIZE(n_ffn), "clip.vision.feed_forward_length", "vision_config.intermediate_size", 3072, 65536 },
    { SIZE(patch), "clip.vision.patch_size", "vision_config.patch_size", 32, 256 },
    { SIZE(scale), "clip.vision.projector.scale_factor", "scale_factor", 2, 64 },
#undef SIZE
};

static bool read_size(struct tower *t, const struct size_key *k, struct err *err)
{
    bool gguf = model_file_format(t->file) == MODEL_GGUF;
    uint64_t value = gguf ? 0 : k->otherwise;

    if (!model_file_u64(t->file, gguf ? k->gguf : k->json, 1, k->max, &value, err))
        return false;
    *(uint32_t *)(void *)((char *)&t->config + k->offset) = (uint32_t)value;
    return value || err_set(err, ERR_INPUT, "%s: %s is missing; a vision tower needs it",
                            model_file_path(t->file), k->gguf);
}

static bool check_activation(const struct tower *t, struct err *err)
{
    bool gguf = model_file_format(t->file) == MODEL_GGUF, gelu = !gguf;
    struct str name = STR("gelu_pytorch_tanh");

    if (!model_file_bool(t->file, "clip.use_gelu", &gelu, err) ||
        !model_file_string(t->file, "vision_config.hidden_act", &name, err))
        return false;
    if (!gelu)
        return err_set(err, ERR_UNSUPPORTED, "%s: clip.use_gelu is not true; ingot runs this tower with GELU",
                       model_file_path(t->file));
    return str_is(name, "gelu_pytorch_tanh") ||
           err_set(err, ERR_UNSUPPORTED,
                   "%s: vision_config.hidden_act is \"%.*s\"; ingot runs this tower with gelu_pytorch_tanh",
                   model_file_path(t->file), STR_ARG(name));
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

static bool read(struct tower *t, struct err *err)
{
    double eps = 1e-6;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (!read_size(t, &sizes[i], err))
            return false;
    if (!model_file_f64(t->file, "clip.vision.attention.layer_norm_epsilon", 1e-12, 1, &eps, err) ||
        !model_file_f64(t->file, "vision_config.layer_norm_eps", 1e-12, 1, &eps, err) ||
        !check_activation(t, err) || !check_projection(t, err) ||
        !image_processor_read(&t->config.processor, t->file, err))
        return false;
    t->config.norm_eps = (float)eps;
    t->config.side = t->config.processor.tile / t->config.patch;
    return true;
}

#define P(field, gguf_name, json_name, n_rows, n_cols)                                                \
    {                                                                                                 \
        false, offsetof(struct tower_weights, field) / sizeof(void *), gguf_name, "model." json_name, \
            TOWER_##n_rows, TOWER_##n_cols                                                            \
    }
#define Q(field, gguf_name, json_name, n_rows, n_cols)                                        \
    {                                                                                         \
        true, offsetof(struct tower_layer, field) / sizeof(void *), "v.blk.%u." gguf_name,    \
            "model.vision_model.encoder.layers.%u." json_name, TOWER_##n_rows, TOWER_##n_cols \
    }
// A product or norm with its bias.
#define Q_BIAS(field, gguf_name, json_name, n_rows, n_cols, n_bias)     \
    Q(field, gguf_name ".weight", json_name ".weight", n_rows, n_cols), \
        Q(field##_bias, gguf_name ".bias", json_name ".bias", ONE, n_bias)

static const struct tower_key weights[] = {
    P(patch, "v.patch_embd.weight", "vision_model.embeddings.patch_embedding.weight", COLS, PATCH),
    P(patch_bias, "v.patch_embd.bias", "vision_model.embeddings.patch_embedding.bias", ONE, COLS),
    P(position, "v.position_embd.weight", "vision_model.embeddings.position_embedding.weight", PLACES, COLS),
    P(post_norm, "v.post_ln.weight", "vision_model.post_layernorm.weight", ONE, COLS),
    P(post_norm_bias, "v.post_ln.bias", "vision_model.post_layernorm.bias", ONE, COLS),
    P(connect, "mm.model.fc.weight", "connector.modality_projection.proj.weight", OUT, SQUARE),
    Q_BIAS(norm1, "ln1", "layer_norm1", ONE, COLS, COLS),
    Q_BIAS(q, "attn_q", "self_attn.q_proj", COLS, COLS, COLS),
    Q_BIAS(k, "attn_k", "self_attn.k_proj", COLS, COLS, COLS),
    Q_BIAS(v, "attn_v", "self_attn.v_proj", COLS, COLS, COLS),
    Q_BIAS(o, "attn_out", "self_attn.out_proj", COLS, COLS, COLS),
    Q_BIAS(norm2, "ln2", "layer_norm2", ONE, COLS, COLS),
    Q_BIAS(up, "ffn_up", "mlp.fc1", FFN, COLS, FFN),
    Q_BIAS(down, "ffn_down", "mlp.fc2", COLS, FFN, COLS),
};

static void record_attention(struct tape *t, const struct tower_stage *s, uint32_t l, struct tensor x)
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
    tape_label(t, "vision.layer%u.q", l);
    op_matmul(t, (struct matmul){ .out = q, .in = normed, .w = w->q, .bias = w->q_bias });
    tape_label(t, "vision.layer%u.k", l);
    op_matmul(t, (struct matmul){ .out = k, .in = normed, .w = w->k, .bias = w->k_bias });
    tape_label(t, "vision.layer%u.v", l);
    op_matmul(t, (struct matmul){ .out = v, .in = normed, .w = w->v, .bias = w->v_bias });
    tape_label(t, "vision.layer%u.attend", l);
    op_attend_all(t, (struct attend_all){ .out = attended,
                                          .q = q,
                                          .k = k,
                                          .v = v,
                                          .n_heads = c->n_heads,
                                          .scale = 1 / sqrtf((float)(c->n_cols / c->n_heads)) });
    tape_label(t, "vision.layer%u.attn_out", l);
    op_matmul(t, (struct matmul){ .out = x, .in = attended, .w = w->o, .bias = w->o_bias, .add = x });
}

static void record_ffn(struct tape *t, const struct tower_stage *s, uint32_t l, struct tensor x)
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
                        ACTIVATION_GELU_TANH);
    tape_label(t, "vision.layer%u.down", l);
    op_matmul(t, (struct matmul){ .out = x, .in = ffn, .w = w->down, .bias = w->down_bias, .add = x });
}

static struct tower_parts record(struct tape *t, const struct tower_stage *s)
{
    const struct tower_config *c = &s->tower->config;
    const struct tower_weights *w = &s->weights;
    struct tensor pixels = tape_tensor(t, 3 * c->patch * c->patch, ROWS_STEP),
                  x = tape_tensor(t, c->n_cols, ROWS_STEP);
    struct tensor encoded = s->encoded ? tape_tensor_bound(t, c->n_cols, ROWS_STEP, s->encoded) : x;
    struct tensor squares = tape_tensor(t, c->n_cols * c->scale * c->scale, ROWS_OUTPUT),
                  rows = tape_tensor(t, c->n_out, ROWS_OUTPUT);
    struct tower_parts parts;

    tape_label(t, "vision.patch");
    op_patches(t, (struct patches){ .out = pixels,
                                    .pixels = s->pixels,
                                    .table = w->pixels,
                                    .side = c->processor.tile,
                                    .patch = c->patch });
    op_embed(t, (struct embed){
                    .out = x, .table = w->position, .history = s->history, .history_stride = 0, .scale = 1 });
    op_matmul(t, (struct matmul){ .out = x, .in = pixels, .w = w->patch, .bias = w->patch_bias, .add = x });
    parts.n_embed = tape_n_commands(t);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        record_attention(t, s, l, x);
        record_ffn(t, s, l, x);
    }
    tape_label(t, "vision.norm");
    op_layernorm(
        t,
        (struct layernorm){
            .out = encoded, .in = x, .scale = w->post_norm, .bias = w->post_norm_bias, .eps = c->norm_eps });
    parts.n_encode = tape_n_commands(t) - parts.n_embed;
    tape_label(t, "vision.connect");
    op_shuffle(t, (struct shuffle){ .out = squares, .in = encoded, .side = c->scale, .n_across = c->side });
    op_matmul(t, (struct matmul){ .out = rows, .in = squares, .w = w->connect });
    op_scatter(t, (struct scatter){ .in = rows, .pool = s->pool, .places = s->places });
    return parts;
}

const struct tower_arch tower_idefics3 = { .projector = "idefics3",
                                           .model_types = "idefics3 smolvlm",
                                           .weights = weights,
                                           .n_weights = sizeof weights / sizeof *weights,
                                           .read = read,
                                           .record = record };
