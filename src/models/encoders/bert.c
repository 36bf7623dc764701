// bert.c - BERT (Devlin et al., 2018), RoBERTa and XLM-R: encoders with a learned vector for each position.
//
// RoBERTa's table has two rows before the first position's, which GGUF files leave out. A text's tokens are
// all of the first type; rerankers that tell two texts apart by it are refused. Left out: the pooler and
// heads that predict words.
#include "models/encoders/encoder_layer.h"

static const struct config_key bert_keys[] = {
    SIZE_KEY(n_layers, "%s.block_count", "num_hidden_layers", 4096, REQUIRED),
    SIZE_KEY(n_cols, "%s.embedding_length", "hidden_size", 65536, REQUIRED),
    SIZE_KEY(n_heads, "%s.attention.head_count", "num_attention_heads", 4096, REQUIRED),
    SIZE_KEY(n_ffn, "%s.feed_forward_length", "intermediate_size", 1 << 20, REQUIRED),
    FLOAT_KEY(norm_eps, "%s.attention.layer_norm_epsilon", "layer_norm_eps", 1e-15, 1, DEFAULT(1e-12)),
    ENCODER_CONFIG("max_position_embeddings"),
};

#define LAYER "model.encoder.layer.%u."
#define PROJECTION(field, gguf_name, json_name, n_rows, n_cols)                         \
    L(field, "blk.%u." gguf_name ".weight", LAYER json_name ".weight", n_rows, n_cols), \
        L(field##_bias, "blk.%u." gguf_name ".bias", LAYER json_name ".bias", ONE, n_rows)

static const struct weight_key bert_tensors[] = {
    W(embed, "token_embd.weight", "model.embeddings.word_embeddings.weight", VOCAB, COLS),
    W(position_embed, "position_embd.weight", "model.embeddings.position_embeddings.weight", POSITIONS, COLS,
      | 0, .part = &(const struct weight_rows){ { DIM_SKIPPED, DIM_POSITIONS }, 2, 1 }),
    ENCODER_TYPES,
    W(embed_norm, "token_embd_norm.weight", "model.embeddings.LayerNorm.weight", ONE, COLS),
    W(embed_norm_bias, "token_embd_norm.bias", "model.embeddings.LayerNorm.bias", ONE, COLS),
    PROJECTION(q, "attn_q", "attention.self.query", Q, COLS),
    PROJECTION(k, "attn_k", "attention.self.key", KV, COLS),
    PROJECTION(v, "attn_v", "attention.self.value", KV, COLS),
    PROJECTION(o, "attn_output", "attention.output.dense", COLS, Q),
    ENCODER_NORM(attn, "attn_output_norm", LAYER "attention.output.LayerNorm"),
    L(up, "blk.%u.ffn_up.weight", LAYER "intermediate.dense.weight", FFN, COLS),
    ENCODER_OWN(up_bias, "blk.%u.ffn_up.bias", LAYER "intermediate.dense.bias", FFN),
    L(down, "blk.%u.ffn_down.weight", LAYER "output.dense.weight", COLS, FFN),
    ENCODER_OWN(down_bias, "blk.%u.ffn_down.bias", LAYER "output.dense.bias", COLS),
    ENCODER_NORM(ffn, "layer_output_norm", LAYER "output.LayerNorm"),
    // of a reranker
    W(rank_dense, "cls.weight", "classifier.dense.weight", COLS, COLS, | 0, .when = DIM_LABELS),
    W(rank_dense_bias, "cls.bias", "classifier.dense.bias", ONE, COLS, | 0, .when = DIM_LABELS),
    W(rank_out, "cls.output.weight", "classifier.out_proj.weight", LABELS, COLS, | 0, .when = DIM_LABELS),
    W(rank_out_bias, "cls.output.bias", "classifier.out_proj.bias", ONE, LABELS, | 0, .when = DIM_LABELS),
};

// ---- sizes

static bool is_gguf(const struct model *m)
{
    return model_file_format(m->file) == MODEL_GGUF;
}

// RoBERTa's first position is that behind the padding token's number.
static bool bert_complete(struct model *m, struct err *err)
{
    struct encoder_config *c = m->own;
    struct str type = STR("bert");
    uint64_t n = encoder_rows(m, "position_embd.weight", "embeddings.position_embeddings.weight"), pad = 1;

    if (!encoder_read_types(m, err) || !model_file_string(m->file, "model_type", &type, err) ||
        !model_file_u64(m->file, "pad_token_id", 0, 1000, &pad, err))
        return false;
    c->n_skipped = is_gguf(m) || str_is(type, "bert") ? 0 : (uint32_t)pad + 1;
    if (n <= c->n_skipped || n - c->n_skipped > 1 << 24)
        return err_set(err, ERR_INPUT,
                       "%s: a table of %llu positions, of which %u come before the first; want more",
                       model_file_path(m->file), (unsigned long long)n, c->n_skipped);
    c->n_positions = (uint32_t)n - c->n_skipped;
    m->config.n_context = m->config.n_context < c->n_positions ? m->config.n_context : c->n_positions;
    return true;
}

// There are no angles.
static bool bert_layers(struct model *m, struct err *err)
{
    (void)err;
    m->config.rope[0].n_dims = 0;
    return true;
}

// Those that tell a query from a document by its type want two types in one text.
static bool check_ranking(const struct model *m, struct err *err)
{
    const struct encoder_config *c = m->own;
    const struct file_tensor *head =
        model_file_tensor(m->file, is_gguf(m) ? "cls.output.weight" : "classifier.out_proj.weight");
    uint64_t n_labels = !head ? 0 : head->n_dims == 1 ? 1 : head->dims[0];

    return n_labels == 0 || (n_labels == 1 && c->n_types <= 1) ||
           err_set(
               err, ERR_UNSUPPORTED,
               "%s: a head of %llu labels and %u token types; ingot ranks with models that have one of each",
               model_file_path(m->file), (unsigned long long)n_labels, c->n_types);
}

static bool bert_check(const struct model *m, struct err *err)
{
    struct str positions = STR("absolute");

    if (!check_ranking(m, err) || !encoder_sees_all(m, err) ||
        !model_file_string(m->file, "position_embedding_type", &positions, err))
        return false;
    return str_is(positions, "absolute") ||
           err_set(err, ERR_UNSUPPORTED,
                   "%s: position_embedding_type is \"%.*s\"; ingot reads absolute positions",
                   model_file_path(m->file), STR_ARG(positions));
}

const struct arch arch_bert = { .name = "bert",
                                .model_types = "bert roberta xlm-roberta",
                                .json_prefix = "bert. roberta.",
                                .activations = "gelu",
                                .is_encoder = true,
                                .gguf_differs = true,
                                ARCH_TABLES(bert_keys, bert_tensors),
                                ARCH_OWN(struct encoder_config, struct encoder_weights),
                                .complete = bert_complete,
                                .layers = bert_layers,
                                .check = bert_check,
                                .layer = encoder_layer };
