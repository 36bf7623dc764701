// idefics3.c - the vision tower of Idefics3, SmolVLM and SmolVLM2: a SigLIP encoder, pixel shuffle and one
// product. (Zhai et al. 2023; Laurencon et al. 2024; Marafioti et al. 2025.) Three parts: config keys,
// tensors, the tape.
//
// A tile is always full, so a patch's position id is its number. Keys that are missing in config.json have
// the defaults of transformers' class.
#include "models/vision/tower_blocks.h"
#include "ops/layernorm/layernorm.h"
#include "ops/scatter/scatter.h"
#include "ops/shuffle/shuffle.h"

static const struct tower_size sizes[] = {
    { TOWER_SIZE(n_layers), "clip.vision.block_count", "vision_config.num_hidden_layers", 12, 512 },
    { TOWER_SIZE(n_cols), "clip.vision.embedding_length", "vision_config.hidden_size", 1152, 16384 },
    { TOWER_SIZE(n_heads), "clip.vision.attention.head_count", "vision_config.num_attention_heads", 16,
      1024 },
    { TOWER_SIZE(n_ffn), "clip.vision.feed_forward_length", "vision_config.intermediate_size", 3072, 65536 },
    { TOWER_SIZE(patch), "clip.vision.patch_size", "vision_config.patch_size", 32, 256 },
    { TOWER_SIZE(scale), "clip.vision.projector.scale_factor", "scale_factor", 2, 64 },
};

static bool read(struct tower *t, struct err *err)
{
    if (!tower_read_sizes(t, sizes, sizeof sizes / sizeof *sizes, err) ||
        !tower_read_common(t, "gelu_pytorch_tanh", err) ||
        !image_processor_read(&t->config.processor, t->file, err))
        return false;
    t->config.side = t->config.processor.tile / t->config.patch;
    return true;
}

#define P      TOWER_KEY
#define Q(...) LAYER_KEYS("vision_model.encoder.layers", __VA_ARGS__)

static const struct tower_key weights[] = {
    P(patch, "v.patch_embd.weight", "vision_model.embeddings.patch_embedding.weight", COLS, PATCH),
    P(patch_bias, "v.patch_embd.bias", "vision_model.embeddings.patch_embedding.bias", ONE, COLS),
    P(position, "v.position_embd.weight", "vision_model.embeddings.position_embedding.weight", PLACES, COLS),
    P(post_norm, "v.post_ln.weight", "vision_model.post_layernorm.weight", ONE, COLS),
    P(post_norm_bias, "v.post_ln.bias", "vision_model.post_layernorm.bias", ONE, COLS),
    P(connect, "mm.model.fc.weight", "connector.modality_projection.proj.weight", OUT, SQUARE),
    Q(norm1, "ln1", "layer_norm1", ONE, COLS, COLS),
    Q(q, "attn_q", "self_attn.q_proj", COLS, COLS, COLS),
    Q(k, "attn_k", "self_attn.k_proj", COLS, COLS, COLS),
    Q(v, "attn_v", "self_attn.v_proj", COLS, COLS, COLS),
    Q(o, "attn_out", "self_attn.out_proj", COLS, COLS, COLS),
    Q(norm2, "ln2", "layer_norm2", ONE, COLS, COLS),
    Q(up, "ffn_up", "mlp.fc1", FFN, COLS, FFN),
    Q(down, "ffn_down", "mlp.fc2", COLS, FFN, COLS),
};

static struct tower_parts record(struct tape *t, const struct tower_stage *s)
{
    const struct tower_config *c = &s->tower->config;
    const struct tower_weights *w = &s->weights;
    struct tensor x = tape_tensor(t, c->n_cols, ROWS_STEP);
    struct tensor encoded = s->encoded ? tape_tensor_bound(t, c->n_cols, ROWS_STEP, s->encoded) : x;
    struct tensor squares = tape_tensor(t, c->n_cols * c->scale * c->scale, ROWS_OUTPUT),
                  rows = tape_tensor(t, c->n_out, ROWS_OUTPUT);
    struct tower_parts parts;

    tower_block_patches(t, s, x);
    parts.n_embed = tape_n_commands(t);
    for (uint32_t l = 0; l < c->n_layers; l++) {
        tower_block_attention(t, s, l, x);
        tower_block_ffn(t, s, l, x, ACTIVATION_GELU_TANH);
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
                                           .json_prefixes = "model.vision_model. model.connector.",
                                           .weights = weights,
                                           .n_weights = sizeof weights / sizeof *weights,
                                           .read = read,
                                           .record = record };
