// internvit.c - the vision tower of InternVL3: InternViT with a class token, LayerScale and GELU, pixel
// shuffle, and a connector of a norm and two products. (Chen et al., 2024; Zhu et al., 2025.)
//
// The class token is the row behind a tile's patches; attention sees it, and the shuffle leaves it out. The
// position table that the tape reads has the patches' bias in it, which the class token does not get. Only
// the smaller tower, of 300 M parameters: that of 6 B norms q and k and has RMSNorm.
#include "models/vision/tower_blocks.h"
#include "ops/activate/activate.h"
#include "ops/layernorm/layernorm.h"
#include "ops/scatter/scatter.h"
#include "ops/shuffle/shuffle.h"

static const float CONNECTOR_EPS = 1e-5F; // of torch, in no file

static const struct tower_size sizes[] = {
    { TOWER_SIZE(n_layers), "clip.vision.block_count", "vision_config.num_hidden_layers", 24, 512 },
    { TOWER_SIZE(n_cols), "clip.vision.embedding_length", "vision_config.hidden_size", 1024, 16384 },
    { TOWER_SIZE(n_heads), "clip.vision.attention.head_count", "vision_config.num_attention_heads", 16,
      1024 },
    { TOWER_SIZE(n_ffn), "clip.vision.feed_forward_length", "vision_config.intermediate_size", 4096, 65536 },
};

static bool check_flag(const struct tower *t, const char *key, bool wanted, struct err *err)
{
    bool value = wanted;

    return model_file_bool(t->file, key, &value, err) &&
           (value == wanted ||
            err_set(err, ERR_UNSUPPORTED, "%s: %s is %s; ingot runs the smaller tower of InternVL alone",
                    model_file_path(t->file), key, value ? "true" : "false"));
}

static bool check_kind(const struct tower *t, struct err *err)
{
    struct str norm = STR("layer_norm");

    if (!check_flag(t, "vision_config.use_qk_norm", false, err) ||
        !check_flag(t, "vision_config.use_mean_pooling", true, err) ||
        !model_file_string(t->file, "vision_config.norm_type", &norm, err))
        return false;
    return str_is(norm, "layer_norm") ||
           err_set(err, ERR_UNSUPPORTED, "%s: vision_config.norm_type is \"%.*s\"; expected layer_norm",
                   model_file_path(t->file), STR_ARG(norm));
}

static bool read(struct tower *t, struct err *err)
{
    struct tower_config *c = &t->config;

    if (!tower_read_sizes(t, sizes, sizeof sizes / sizeof *sizes, err) ||
        !tower_read_common(t, "gelu", err) || !check_kind(t, err) ||
        !image_processor_read(&c->processor, t->file, err))
        return false;
    c->patch = c->processor.patch;
    c->scale = c->processor.scale;
    c->side = c->processor.tile / c->patch;
    c->n_class = 1;
    return true;
}

#define P       TOWER_KEY
#define Q(...)  LAYER_KEYS("vision_tower.encoder.layer", __VA_ARGS__)
#define Q1(...) LAYER_KEY("vision_tower.encoder.layer", __VA_ARGS__)

static const struct tower_key weights[] = {
    P(class_token, "v.class_embd", "vision_tower.embeddings.cls_token", ONE, COLS),
    P(patch, "v.patch_embd.weight", "vision_tower.embeddings.patch_embeddings.projection.weight", COLS,
      PATCH),
    P(patch_bias, "v.patch_embd.bias", "vision_tower.embeddings.patch_embeddings.projection.bias", ONE, COLS),
    P(position, "v.position_embd.weight", "vision_tower.embeddings.position_embeddings", TILE_ROWS, COLS),
    P(connect_norm, "mm.model.mlp.0.weight", "multi_modal_projector.layer_norm.weight", ONE, SQUARE),
    P(connect_norm_bias, "mm.model.mlp.0.bias", "multi_modal_projector.layer_norm.bias", ONE, SQUARE),
    P(connect, "mm.model.mlp.1.weight", "multi_modal_projector.linear_1.weight", OUT, SQUARE),
    P(connect_bias, "mm.model.mlp.1.bias", "multi_modal_projector.linear_1.bias", ONE, OUT),
    P(connect2, "mm.model.mlp.3.weight", "multi_modal_projector.linear_2.weight", OUT, OUT),
    P(connect2_bias, "mm.model.mlp.3.bias", "multi_modal_projector.linear_2.bias", ONE, OUT),
    Q(norm1, "ln1", "layernorm_before", ONE, COLS, COLS),
    Q(q, "attn_q", "attention.q_proj", COLS, COLS, COLS),
    Q(k, "attn_k", "attention.k_proj", COLS, COLS, COLS),
    Q(v, "attn_v", "attention.v_proj", COLS, COLS, COLS),
    Q(o, "attn_out", "attention.projection_layer", COLS, COLS, COLS),
    Q1(scale1, "ls1.weight", "lambda_1", ONE, COLS),
    Q(norm2, "ln2", "layernorm_after", ONE, COLS, COLS),
    Q(up, "ffn_up", "mlp.fc1", FFN, COLS, FFN),
    Q(down, "ffn_down", "mlp.fc2", COLS, FFN, COLS),
    Q1(scale2, "ls2.weight", "lambda_2", ONE, COLS),
};

static void record_connector(struct tape *t, const struct tower_stage *s, struct tensor encoded)
{
    const struct tower_config *c = &s->tower->config;
    const struct tower_weights *w = &s->weights;
    struct tensor squares = tape_tensor(t, c->n_cols * c->scale * c->scale, ROWS_OUTPUT),
                  between = tape_tensor(t, c->n_out, ROWS_OUTPUT),
                  rows = tape_tensor(t, c->n_out, ROWS_OUTPUT);

    tape_label(t, "vision.connect");
    op_shuffle(t, (struct shuffle){ .out = squares, .in = encoded, .side = c->scale, .n_across = c->side });
    op_layernorm(t, (struct layernorm){ .out = squares,
                                        .in = squares,
                                        .scale = w->connect_norm,
                                        .bias = w->connect_norm_bias,
                                        .eps = CONNECTOR_EPS });
    op_matmul(t, (struct matmul){ .out = between, .in = squares, .w = w->connect, .bias = w->connect_bias });
    op_activate(t, (struct activate){ .out = between, .gate = between, .activation = ACTIVATION_GELU });
    op_matmul(t, (struct matmul){ .out = rows, .in = between, .w = w->connect2, .bias = w->connect2_bias });
    op_scatter(t, (struct scatter){ .in = rows, .pool = s->pool, .places = s->places });
}

static struct tower_parts record(struct tape *t, const struct tower_stage *s)
{
    const struct tower_config *c = &s->tower->config;
    struct tensor x = s->encoded ? tape_tensor_bound(t, c->n_cols, ROWS_STEP, s->encoded)
                                 : tape_tensor(t, c->n_cols, ROWS_STEP);
    struct tower_parts parts;

    tower_block_patches(t, s, x);
    parts.n_embed = tape_n_commands(t);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        tower_block_attention(t, s, l, x);
        tower_block_ffn(t, s, l, x, ACTIVATION_GELU);
    }
    parts.n_encode = tape_n_commands(t) - parts.n_embed;
    record_connector(t, s, x);
    return parts;
}

const struct tower_arch tower_internvit = {
    .projector = "internvl",
    .model_types = "internvl",
    .json_prefixes = "model.vision_tower. model.multi_modal_projector.",
    .weights = weights,
    .n_weights = sizeof weights / sizeof *weights,
    .read = read,
    .record = record,
};
