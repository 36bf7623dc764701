// random_encoder.c - see random_encoder.h. What a shape's name says of its use decides on pooling.
#include "model_tools/random/random_encoder.h"
#include <string.h>

enum { MEAN = 1, CLS = 2, LAST = 3, RANK = 4 }; // as the key pooling_type has them

static bool is_nomic(const char *arch)
{
    return strcmp(arch, "nomic-bert") == 0;
}

static bool is_gemma(const char *arch)
{
    return strcmp(arch, "gemma-embedding") == 0;
}

static bool ranks(const char *name)
{
    return strstr(name, "reranker") != NULL;
}

bool random_encoder_is(const char *arch)
{
    return is_nomic(arch) || strcmp(arch, "bert") == 0;
}

uint32_t random_encoder_context(const char *name, const char *arch)
{
    if (is_nomic(arch) || is_gemma(arch))
        return 2048;
    return strncmp(name, "bge-m3", 6) == 0 || strstr(name, "-m3") ? 8192 : 512;
}

uint32_t random_encoder_layer(const char *arch, uint64_t n_cols, uint64_t n_ffn,
                              struct random_encoder_tensor *tensors)
{
    const struct random_encoder_tensor
        both[] = { { "attn_output.weight", n_cols, n_cols }, { "attn_output_norm.weight", 0, n_cols },
                   { "attn_output_norm.bias", 0, n_cols },   { "ffn_up.weight", n_ffn, n_cols },
                   { "ffn_down.weight", n_cols, n_ffn },     { "layer_output_norm.weight", 0, n_cols },
                   { "layer_output_norm.bias", 0, n_cols } },
        nomic[] = { { "attn_qkv.weight", 3 * n_cols, n_cols }, { "ffn_gate.weight", n_ffn, n_cols } },
        bert[] = { { "attn_q.weight", n_cols, n_cols }, { "attn_q.bias", 0, n_cols },
                   { "attn_k.weight", n_cols, n_cols }, { "attn_k.bias", 0, n_cols },
                   { "attn_v.weight", n_cols, n_cols }, { "attn_v.bias", 0, n_cols },
                   { "attn_output.bias", 0, n_cols },   { "ffn_up.bias", 0, n_ffn },
                   { "ffn_down.bias", 0, n_cols } };
    uint32_t n = sizeof both / sizeof *both;

    memcpy(tensors, both, sizeof both);
    if (is_nomic(arch))
        memcpy(tensors + n, nomic, sizeof nomic);
    else
        memcpy(tensors + n, bert, sizeof bert);
    return n + (uint32_t)(is_nomic(arch) ? sizeof nomic / sizeof *nomic : sizeof bert / sizeof *bert);
}

// What stands behind pooling.
static uint32_t behind(const char *name, const char *arch, uint64_t n_cols,
                       struct random_encoder_tensor *tensors)
{
    const struct random_encoder_tensor dense[] = { { "dense_2.weight", 4 * n_cols, n_cols },
                                                   { "dense_3.weight", n_cols, 4 * n_cols } },
                                       words[] = { { "cls.output.weight", 2, n_cols } },
                                       cross[] = { { "cls.weight", n_cols, n_cols },
                                                   { "cls.bias", 0, n_cols },
                                                   { "cls.output.weight", 1, n_cols },
                                                   { "cls.output.bias", 0, 1 } };

    if (is_gemma(arch)) {
        memcpy(tensors, dense, sizeof dense);
        return sizeof dense / sizeof *dense;
    }
    if (!ranks(name))
        return 0;
    if (random_encoder_is(arch)) {
        memcpy(tensors, cross, sizeof cross);
        return sizeof cross / sizeof *cross;
    }
    memcpy(tensors, words, sizeof words);
    return sizeof words / sizeof *words;
}

uint32_t random_encoder_top(const char *name, const char *arch, uint64_t n_cols,
                            struct random_encoder_tensor *tensors)
{
    const struct random_encoder_tensor all[] = {
        { "token_types.weight", ranks(name) || strstr(name, "m3") ? 1 : 2, n_cols },
        { "token_embd_norm.weight", 0, n_cols },
        { "token_embd_norm.bias", 0, n_cols },
        { "position_embd.weight", random_encoder_context(name, arch), n_cols }
    };
    uint32_t n = !random_encoder_is(arch) ? 0 : is_nomic(arch) ? 3 : 4;

    memcpy(tensors, all, n * sizeof *all);
    return n + behind(name, arch, n_cols, tensors + n);
}

void random_encoder_keys(const char *name, const char *arch, struct gguf_writer *w)
{
    bool encodes = random_encoder_is(arch);
    uint32_t pooling = ranks(name)                         ? RANK
                       : is_gemma(arch) || is_nomic(arch)  ? MEAN
                       : encodes                           ? strstr(name, "minilm") ? MEAN : CLS
                       : strstr(name, "embedding") != NULL ? LAST
                                                           : 0;
    char key[96];

    if (pooling) {
        snprintf(key, sizeof key, "%s.pooling_type", arch);
        gguf_write_u32(w, key, pooling);
    }
    if (encodes) {
        snprintf(key, sizeof key, "%s.attention.causal", arch);
        gguf_write_bool(w, key, false);
        snprintf(key, sizeof key, "%s.attention.layer_norm_epsilon", arch);
        gguf_write_f32(w, key, 1e-12f);
    }
    if (is_gemma(arch))
        gguf_write_u32(w, "gemma-embedding.attention.sliding_window", 512);
}
