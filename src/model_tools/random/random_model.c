// random_model.c - see random_model.h. A few million elements of each format are drawn once and repeated, so
// that the disk sets the pace.
#include "model_tools/random/random_model.h"
#include "base/mem.h"
#include "model_tools/quantize/quantize_plan.h"
#include "model_tools/random/random_encoder.h"
#include "model_tools/random/random_family.h"
#include "model_tools/random/random_hybrid.h"
#include "model_tools/random/random_keys.h"
#include "model_tools/random/random_layers.h"
#include "model_tools/random/random_shapes.h"
#include "model_tools/random/random_tower.h"
#include "text/tokenizer/tokenizer_random.h"

enum { POOL = 1 << 22 }; // elements, a multiple of every block

// Of decoders that differ from Llama's in their tensors.
static const struct decoder_parts {
    const char *arch;
    bool plain; // no norms before the halves
    bool out_norms, head_norms, whole_norms, biases, fused_qkv, fused_ffn;
} decoders[] = {
    { .arch = "gemma3", .out_norms = true, .head_norms = true },
    { .arch = "gemma-embedding", .out_norms = true, .head_norms = true },
    { .arch = "olmo2", .plain = true, .out_norms = true, .whole_norms = true },
    { .arch = "glm4", .out_norms = true, .biases = true, .fused_ffn = true },
    { .arch = "phi3", .fused_qkv = true, .fused_ffn = true },
    { .arch = "olmoe", .whole_norms = true },
    { .arch = "qwen2", .biases = true },
    { .arch = "qwen2moe", .biases = true },
    { .arch = "qwen3", .head_norms = true },
    { .arch = "qwen3moe", .head_norms = true },
};

// Of those with attention in a latent space: its sizes, and how the model routes.
struct latent_shape {
    const char *name;
    uint32_t latent, q_latent, nope, rotated, value; // q_latent 0: queries have none
    uint32_t n_shared, n_dense;                      // shared experts; first layers without experts
    uint32_t n_groups, n_used_groups;                // of experts
    float scale;                                     // of the experts' weights
    float yarn;                                      // yarn_log_multiplier; 0: no YaRN
    bool sigmoid;
};
static const struct latent_shape latents[] = {
    { "toy-deepseek2", 512, 0, 64, 64, 96, 2, 1, 1, 1, 1, 0.0707f, false },
    { "deepseek-v2-lite", 512, 0, 128, 64, 128, 2, 1, 1, 1, 1, 0.0707f, false },
    { "toy-deepseek3", 512, 96, 64, 64, 96, 1, 3, 4, 2, 2.5f, 0.1f, true },
    { "deepseek-v3", 512, 1536, 128, 64, 128, 1, 3, 8, 4, 2.5f, 0.1f, true },
    { "toy-glm47", 512, 96, 96, 64, 64, 1, 1, 1, 1, 1.8f, 0, true },
    { "glm-4.7-flash", 512, 768, 192, 64, 256, 1, 1, 1, 1, 1.8f, 0, true },
    { "toy-mistral4", 256, 96, 64, 64, 64, 1, 0, 1, 1, 1, 0.1f, false },
    { "mistral-small-4", 256, 1024, 64, 64, 128, 1, 0, 1, 1, 1, 0.1f, false },
};

struct random_model {
    const struct random_model_options *options;
    const struct random_shape *shape;
    struct random_shape deeper;         // with the layers that were asked for
    const struct latent_shape *latent;  // or NULL
    const struct random_hybrid *hybrid; // or NULL
    struct quantize_plan plan;
    struct gguf_writer w;
    unsigned char *pools[N_QUANTS];
    uint64_t random, done, total;
    struct err *err;
};

static uint64_t draw(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random;
}

// The sum of eight bytes has mean 1020 and deviation 209.
float random_model_draw(uint64_t *random)
{
    uint64_t bytes = draw(random);
    int sum = 0;

    for (int i = 0; i < 8; i++, bytes >>= 8)
        sum += (int)(bytes & 255);
    return (float)(sum - 1020) * (0.02f / 209.0f);
}

// 0.003 as a half, in the tops of the last four words.
static void put_iq1_m_scale(unsigned char *block)
{
    uint16_t d = quant_float_to_half(0.003f);

    for (int i = 0; i < 4; i++)
        block[49 + 2 * i] = (unsigned char)((block[49 + 2 * i] & 15) | (d >> 4 * i & 15) << 4);
}

static void draw_blocks(struct random_model *s, enum quant q, unsigned char *pool)
{
    const struct quant_info *info = quant_info(q);
    size_t n_bytes = (size_t)POOL / info->block_elements * info->block_bytes;
    const struct quant_halves *h = &info->halves;
    uint16_t halves[2] = { quant_float_to_half(h->usual[0]), quant_float_to_half(h->usual[1]) };

    for (size_t i = 0; i < n_bytes; i += 8) { // POOL blocks are a multiple of 8 bytes
        uint64_t bytes = draw(&s->random);
        memcpy(pool + i, &bytes, 8);
    }
    for (size_t i = 0; i < n_bytes; i += info->block_bytes) {
        if (q == QUANT_MXFP4) {
            pool[i] = 120; // 2^-7
            continue;
        }
        if (q == QUANT_IQ1_M) {
            put_iq1_m_scale(pool + i);
            continue;
        }
        if (info->head_bytes)
            return;
        memcpy(pool + i + h->at[0], &halves[0], 2);
        memcpy(pool + i + h->at[1], &halves[1], 2);
    }
}

static const unsigned char *pool_of(struct random_model *s, enum quant q)
{
    const struct quant_info *info = quant_info(q);
    unsigned char *pool = s->pools[q];

    if (pool)
        return pool;
    pool = mem_alloc((size_t)POOL / info->block_elements * info->block_bytes);
    s->pools[q] = pool;
    if (!pool) {
        err_memory(s->err, "random weights");
        return NULL;
    }
    if (info->block_elements > 1)
        draw_blocks(s, q, pool);
    for (size_t i = 0; info->block_elements == 1 && i < POOL; i++) {
        float x = random_model_draw(&s->random);
        uint16_t half = q == QUANT_F16 ? quant_float_to_half(x) : quant_float_to_bf16(x);
        if (q == QUANT_F32)
            memcpy(pool + 4 * i, &x, 4);
        else
            memcpy(pool + 2 * i, &half, 2);
    }
    return pool;
}

// --- what the file holds ---

static bool add(struct random_model *s, const char *name, uint64_t n_matrices, uint64_t n_rows,
                uint64_t n_cols)
{
    struct quantize_entry e = { .name = str_from(name) };

    e.from.name = e.name;
    e.from.format = QUANT_F32;
    e.from.n_dims = n_matrices ? 3 : n_rows ? 2 : 1;
    uint64_t dims[3][TENSOR_MAX_DIMS] = { { n_cols, 1, 1, 1 },
                                          { n_rows, n_cols, 1, 1 },
                                          { n_matrices, n_rows, n_cols, 1 } };
    memcpy(e.from.dims, dims[e.from.n_dims - 1], sizeof e.from.dims);
    return quantize_plan_add(&s->plan, &e, s->err);
}

static bool layer_tensor(struct random_model *s, uint32_t layer, const char *part, uint64_t n_matrices,
                         uint64_t n_rows, uint64_t n_cols)
{
    const char *name = arena_printf(s->plan.arena, "blk.%u.%s", layer, part);
    return name ? add(s, name, n_matrices, n_rows, n_cols) : err_memory(s->err, "names of tensors");
}

static bool is_arch(const struct random_model *s, const char *name)
{
    return strcmp(s->shape->arch, name) == 0;
}

static bool has_draft(const struct random_model *s)
{
    return s->hybrid && s->hybrid->drafts;
}

static bool add_latent_attention(struct random_model *s, uint32_t l)
{
    const struct random_shape *h = s->shape;
    const struct latent_shape *a = s->latent;
    uint64_t n_q = (uint64_t)h->n_heads * (a->nope + a->rotated), n = h->n_heads;
    bool ok = layer_tensor(s, l, "attn_norm.weight", 0, 0, h->n_cols) &&
              layer_tensor(s, l, "ffn_norm.weight", 0, 0, h->n_cols) &&
              layer_tensor(s, l, "attn_kv_a_mqa.weight", 0, a->latent + a->rotated, h->n_cols) &&
              layer_tensor(s, l, "attn_kv_a_norm.weight", 0, 0, a->latent) &&
              layer_tensor(s, l, "attn_k_b.weight", n, a->latent, a->nope) &&
              layer_tensor(s, l, "attn_v_b.weight", n, a->value, a->latent) &&
              layer_tensor(s, l, "attn_output.weight", 0, h->n_cols, n * a->value);

    if (a->q_latent == 0)
        return ok && layer_tensor(s, l, "attn_q.weight", 0, n_q, h->n_cols);
    return ok && layer_tensor(s, l, "attn_q_a.weight", 0, a->q_latent, h->n_cols) &&
           layer_tensor(s, l, "attn_q_a_norm.weight", 0, 0, a->q_latent) &&
           layer_tensor(s, l, "attn_q_b.weight", 0, n_q, a->q_latent);
}

// Of a recurrent layer, in place of attention; or of one that drafts, beside it.
static bool add_recurrent(struct random_model *s, uint32_t l, bool drafts)
{
    struct random_hybrid_tensor tensors[RANDOM_HYBRID_TENSORS];
    uint32_t n = drafts ? random_hybrid_draft(s->shape->n_cols, tensors)
                        : random_hybrid_tensors(s->hybrid, s->shape->n_cols, tensors);

    for (uint32_t i = 0; i < n; i++)
        if (!layer_tensor(s, l, tensors[i].part, 0, tensors[i].n_rows, tensors[i].n_cols))
            return false;
    return true;
}

// q has a gate in Qwen3.5.
static bool add_hybrid(struct random_model *s, uint32_t l)
{
    const struct random_shape *h = s->shape;
    uint64_t n_q = (uint64_t)h->n_heads * h->head_dim, n_kv = (uint64_t)h->n_kv_heads * h->head_dim;
    bool ok = layer_tensor(s, l, "attn_norm.weight", 0, 0, h->n_cols) &&
              layer_tensor(s, l, s->hybrid->dim ? "post_attention_norm.weight" : "ffn_norm.weight", 0, 0,
                           h->n_cols);

    bool drafts = l == h->n_layers;
    if (!drafts && !random_hybrid_attends(s->hybrid, l))
        return ok && add_recurrent(s, l, false);
    return ok && (!drafts || add_recurrent(s, l, true)) &&
           layer_tensor(s, l, "attn_q.weight", 0, s->hybrid->dim ? 2 * n_q : n_q, h->n_cols) &&
           layer_tensor(s, l, "attn_k.weight", 0, n_kv, h->n_cols) &&
           layer_tensor(s, l, "attn_v.weight", 0, n_kv, h->n_cols) &&
           layer_tensor(s, l, "attn_output.weight", 0, h->n_cols, n_q) &&
           layer_tensor(s, l, "attn_q_norm.weight", 0, 0, h->head_dim) &&
           layer_tensor(s, l, "attn_k_norm.weight", 0, 0, h->head_dim);
}

static const struct decoder_parts *parts_of(const struct random_model *s)
{
    static const struct decoder_parts llama = { .arch = "llama" };

    for (size_t i = 0; i < sizeof decoders / sizeof *decoders; i++)
        if (is_arch(s, decoders[i].arch))
            return &decoders[i];
    return &llama;
}

static bool vectors(struct random_model *s, uint32_t l, const char *const *names, uint32_t n, uint64_t n_cols)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < n; i++)
        ok = layer_tensor(s, l, names[i], 0, 0, n_cols);
    return ok;
}

static bool add_norms(struct random_model *s, uint32_t l)
{
    const struct random_shape *h = s->shape;
    const struct decoder_parts *p = parts_of(s);
    bool behind =
        is_arch(s, "gpt-oss") || is_arch(s, "glm4moe"); // where the norm before the FFN has that name
    uint64_t n_q = (uint64_t)h->n_heads * h->head_dim, n_kv = (uint64_t)h->n_kv_heads * h->head_dim;
    const char *before[] = { "attn_norm.weight", behind ? "post_attention_norm.weight" : "ffn_norm.weight" };
    static const char *const out[] = { "post_attention_norm.weight", "post_ffw_norm.weight" },
                             *const q_and_k[] = { "attn_q_norm.weight", "attn_k_norm.weight" };

    return (p->plain || vectors(s, l, before, 2, h->n_cols)) &&
           (!p->out_norms || vectors(s, l, out, 2, h->n_cols)) &&
           (!p->head_norms || vectors(s, l, q_and_k, 2, h->head_dim)) &&
           (!p->whole_norms || (vectors(s, l, q_and_k, 1, n_q) && vectors(s, l, q_and_k + 1, 1, n_kv)));
}

static bool add_projections(struct random_model *s, uint32_t l, uint64_t n_q, uint64_t n_kv)
{
    const struct random_shape *h = s->shape;

    if (parts_of(s)->fused_qkv)
        return layer_tensor(s, l, "attn_qkv.weight", 0, n_q + 2 * n_kv, h->n_cols);
    return layer_tensor(s, l, "attn_q.weight", 0, n_q, h->n_cols) &&
           layer_tensor(s, l, "attn_k.weight", 0, n_kv, h->n_cols) &&
           layer_tensor(s, l, "attn_v.weight", 0, n_kv, h->n_cols);
}

// GLM-4's 9B has biases of q, k and v, the 32B has none.
static bool has_biases(const struct random_model *s)
{
    return is_arch(s, "gpt-oss") || is_arch(s, "glm4moe") ||
           (parts_of(s)->biases && strcmp(s->shape->name, "glm-4-32b") != 0);
}

static bool add_attention(struct random_model *s, uint32_t l)
{
    const struct random_shape *h = s->shape;
    uint64_t n_q = (uint64_t)h->n_heads * h->head_dim, n_kv = (uint64_t)h->n_kv_heads * h->head_dim;
    bool gptoss = is_arch(s, "gpt-oss");
    bool ok = add_norms(s, l) && add_projections(s, l, n_q, n_kv) &&
              layer_tensor(s, l, "attn_output.weight", 0, h->n_cols, n_q);

    if (ok && gptoss)
        ok = layer_tensor(s, l, "attn_output.bias", 0, 0, h->n_cols) &&
             layer_tensor(s, l, "attn_sinks.weight", 0, 0, h->n_heads);
    if (ok && has_biases(s))
        ok = layer_tensor(s, l, "attn_q.bias", 0, 0, n_q) && layer_tensor(s, l, "attn_k.bias", 0, 0, n_kv) &&
             layer_tensor(s, l, "attn_v.bias", 0, 0, n_kv);
    return ok;
}

static bool add_shared(struct random_model *s, uint32_t l)
{
    const struct random_shape *h = s->shape;

    return (is_arch(s, "glm4moe") || s->latent ||
            layer_tensor(s, l, "ffn_gate_inp_shexp.weight", 0, 0, h->n_cols)) &&
           layer_tensor(s, l, "ffn_gate_shexp.weight", 0, h->n_shared, h->n_cols) &&
           layer_tensor(s, l, "ffn_up_shexp.weight", 0, h->n_shared, h->n_cols) &&
           layer_tensor(s, l, "ffn_down_shexp.weight", 0, h->n_cols, h->n_shared);
}

static bool add_expert_biases(struct random_model *s, uint32_t l)
{
    const struct random_shape *h = s->shape;
    uint64_t n = h->n_experts;

    if (is_arch(s, "glm4moe") || is_arch(s, "lfm2moe") || (s->latent && s->latent->sigmoid))
        return layer_tensor(s, l, "exp_probs_b.bias", 0, 0, n);
    return !is_arch(s, "gpt-oss") || (layer_tensor(s, l, "ffn_gate_inp.bias", 0, 0, n) &&
                                      layer_tensor(s, l, "ffn_gate_exps.bias", 0, n, h->n_expert_ffn) &&
                                      layer_tensor(s, l, "ffn_up_exps.bias", 0, n, h->n_expert_ffn) &&
                                      layer_tensor(s, l, "ffn_down_exps.bias", 0, n, h->n_cols));
}

// The first layer of GLM-4.5 is dense, and two of LFM2's.
static uint32_t n_dense(const struct random_model *s)
{
    return s->latent ? s->latent->n_dense : is_arch(s, "lfm2moe") ? 2 : is_arch(s, "glm4moe");
}

static bool add_ffn(struct random_model *s, uint32_t l)
{
    const struct random_shape *h = s->shape;
    uint64_t n = l < n_dense(s) ? 0 : h->n_experts, n_ffn = h->n_expert_ffn;

    if (n && ((h->n_shared && !add_shared(s, l)) || !add_expert_biases(s, l)))
        return false;
    if (n)
        return layer_tensor(s, l, "ffn_gate_inp.weight", 0, n, h->n_cols) &&
               layer_tensor(s, l, "ffn_gate_exps.weight", n, n_ffn, h->n_cols) &&
               layer_tensor(s, l, "ffn_up_exps.weight", n, n_ffn, h->n_cols) &&
               layer_tensor(s, l, "ffn_down_exps.weight", n, h->n_cols, n_ffn);
    bool fused = parts_of(s)->fused_ffn;
    return (fused || layer_tensor(s, l, "ffn_gate.weight", 0, h->n_ffn, h->n_cols)) &&
           layer_tensor(s, l, "ffn_up.weight", 0, fused ? 2 * h->n_ffn : h->n_ffn, h->n_cols) &&
           layer_tensor(s, l, "ffn_down.weight", 0, h->n_cols, h->n_ffn);
}

static bool add_listed(struct random_model *s, int64_t l, const struct random_encoder_tensor *tensors,
                       uint32_t n)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < n; i++)
        ok = l < 0 ? add(s, tensors[i].name, 0, tensors[i].n_rows, tensors[i].n_cols)
                   : layer_tensor(s, (uint32_t)l, tensors[i].name, 0, tensors[i].n_rows, tensors[i].n_cols);
    return ok;
}

// l < 0: outside of the layers.
static bool add_list(struct random_model *s, int64_t l, const struct random_tensor *list, uint32_t n)
{
    bool ok = true;

    for (uint32_t i = 0; ok && i < n; i++)
        ok = l < 0 ? add(s, list[i].part, list[i].n_matrices, list[i].n_rows, list[i].n_cols)
                   : layer_tensor(s, (uint32_t)l, list[i].part, list[i].n_matrices, list[i].n_rows,
                                  list[i].n_cols);
    return ok;
}

static bool add_layer(struct random_model *s, uint32_t l)
{
    const struct random_shape *h = s->shape;
    struct random_encoder_tensor tensors[RANDOM_ENCODER_TENSORS];
    struct random_tensor list[RANDOM_LAYER_TENSORS];

    if (random_layers_knows(h->arch))
        return add_list(s, l, list, random_layers_tensors(h, l, list));
    if (random_encoder_is(h->arch))
        return add_listed(s, l, tensors, random_encoder_layer(h->arch, h->n_cols, h->n_ffn, tensors));
    return (s->latent   ? add_latent_attention(s, l)
            : s->hybrid ? add_hybrid(s, l)
                        : add_attention(s, l)) &&
           add_ffn(s, l);
}

// Phi-4-mini's long context: divisors of RoPE's frequencies.
static bool has_long_rope(const struct random_model *s)
{
    return strcmp(s->shape->name, "phi-4-mini") == 0;
}

static uint32_t n_rotated(const struct random_model *s)
{
    const struct random_shape *h = s->shape;

    return s->latent                                     ? s->latent->rotated
           : is_arch(s, "glm4moe") || is_arch(s, "glm4") ? h->head_dim / 2
           : s->hybrid && s->hybrid->dim                 ? h->head_dim / 4
           : has_long_rope(s)                            ? h->head_dim / 4 * 3
                                                         : h->head_dim;
}

static bool add_tensors(struct random_model *s)
{
    const struct random_shape *h = s->shape;
    struct random_encoder_tensor tensors[RANDOM_ENCODER_TENSORS];
    struct random_tensor list[RANDOM_LAYER_TENSORS];
    const char *norm = strncmp(h->arch, "lfm2", 4) == 0 ? "token_embd_norm.weight" : "output_norm.weight";
    bool ok = add(s, "token_embd.weight", 0, h->n_vocab, h->n_cols) &&
              (random_encoder_is(h->arch) || add(s, norm, 0, 0, h->n_cols)) &&
              (h->tied || add(s, "output.weight", 0, h->n_vocab, h->n_cols)) &&
              add_list(s, -1, list, random_layers_top(h, list)) &&
              add_listed(s, -1, tensors, random_encoder_top(h->name, h->arch, h->n_cols, tensors)) &&
              (!has_long_rope(s) || (add(s, "rope_factors_long.weight", 0, 0, n_rotated(s) / 2) &&
                                     add(s, "rope_factors_short.weight", 0, 0, n_rotated(s) / 2)));

    for (uint32_t l = 0; ok && l < h->n_layers + has_draft(s); l++)
        ok = add_layer(s, l);
    return ok;
}

// One format for the layers, Q8_0 around them; rows that its blocks do not divide become Q8_0.
// MXFP4 is for experts alone, as gpt-oss has it.
static void plain_formats(struct random_model *s, enum quant q)
{
    bool blocks = quant_info(q)->block_elements > 1;
    enum quant inside = s->shape->n_cols % quant_info(q)->block_elements == 0 ? q : QUANT_Q8_0;

    for (size_t i = 0; i < s->plan.n; i++) {
        struct quantize_entry *e = &s->plan.entries[i];
        bool outside = !str_starts(e->name, STR("blk."));
        bool keep = e->from.n_dims == 1 || str_ends(e->name, STR("ffn_gate_inp.weight")) ||
                    str_ends(e->name, STR(".bias")) || str_ends(e->name, STR("conv.weight")) ||
                    str_ends(e->name, STR("conv1d.weight"));
        bool around = outside || (q == QUANT_MXFP4 && s->shape->n_experts && e->from.n_dims == 2);
        bool whole = e->from.dims[e->from.n_dims - 1] % quant_info(inside)->block_elements == 0;
        e->format = keep ? QUANT_F32 : (around && blocks) || !whole ? QUANT_Q8_0 : inside;
    }
}

static bool choose_formats(struct random_model *s, uint32_t *file_type)
{
    const struct quantize_mix *mix = quantize_mix_find(s->options->type);
    enum quant q;

    *file_type = mix ? mix->file_type : 2;
    if (quant_from_name(str_from(s->options->type), &q) && q < N_READABLE_QUANTS && quant_in_files(q))
        plain_formats(s, q);
    else if (mix)
        quantize_plan_formats(&s->plan, mix);
    else
        return err_set(s->err, ERR_INPUT,
                       "unknown type '%.32s'; give a weight format such as Q4_0 or a mix such as Q4_K_M",
                       s->options->type);
    return true;
}

static void write_expert_keys(struct random_model *s)
{
    const struct random_shape *h = s->shape;
    const char *arch = h->arch;
    struct gguf_writer *w = &s->w;

    random_key_u32(w, arch, "expert_count", h->n_experts);
    random_key_u32(w, arch, "expert_used_count", h->n_used);
    random_key_u32(w, arch, "expert_feed_forward_length", h->n_expert_ffn);
    if (is_arch(s, "qwen2moe") || is_arch(s, "qwen35moe"))
        random_key_u32(w, arch, "expert_shared_feed_forward_length", h->n_shared);
    if (is_arch(s, "gpt-oss")) {
        random_key_u32(w, arch, "attention.sliding_window", 128);
        random_key_str(w, arch, "rope.scaling.type", STR("yarn"));
        random_key_f32(w, arch, "rope.scaling.factor", 32);
        random_key_u32(w, arch, "rope.scaling.original_context_length", 4096);
    }
    if (is_arch(s, "lfm2moe")) {
        random_key_u32(w, arch, "leading_dense_block_count", n_dense(s));
        random_key_u32(w, arch, "expert_gating_func", 2);
    }
    if (is_arch(s, "glm4moe")) {
        random_key_u32(w, arch, "leading_dense_block_count", n_dense(s));
        random_key_u32(w, arch, "expert_shared_count", h->n_shared / h->n_expert_ffn);
        random_key_u32(w, arch, "expert_gating_func", 2);
        random_key_bool(w, arch, "expert_weights_norm", true);
    }
}

static void write_latent_keys(struct random_model *s)
{
    const char *arch = s->shape->arch;
    struct gguf_writer *w = &s->w;
    const struct latent_shape *a = s->latent;

    random_key_u32(w, arch, "attention.kv_lora_rank", a->latent);
    random_key_u32(w, arch, "attention.key_length_mla", a->nope + a->rotated);
    random_key_u32(w, arch, "attention.value_length_mla", a->value);
    if (a->q_latent)
        random_key_u32(w, arch, "attention.q_lora_rank", a->q_latent);
    random_key_u32(w, arch, "leading_dense_block_count", n_dense(s));
    random_key_u32(w, arch, "expert_shared_count", a->n_shared);
    random_key_u32(w, arch, "expert_gating_func", a->sigmoid ? 2 : 1);
    random_key_f32(w, arch, "expert_weights_scale", a->scale);
    random_key_bool(w, arch, "expert_weights_norm", a->sigmoid || is_arch(s, "mistral4"));
    if (a->n_groups > 1) {
        random_key_u32(w, arch, "expert_group_count", a->n_groups);
        random_key_u32(w, arch, "expert_group_used_count", a->n_used_groups);
    }
    if (a->yarn == 0)
        return;
    bool mistral = is_arch(s, "mistral4");
    random_key_str(w, arch, "rope.scaling.type", STR("yarn"));
    random_key_f32(w, arch, "rope.scaling.factor", mistral ? 128 : 40);
    random_key_u32(w, arch, "rope.scaling.original_context_length", mistral ? 8192 : 4096);
    random_key_f32(w, arch, "rope.scaling.yarn_log_multiplier", a->yarn);
    if (mistral)
        random_key_f32(w, arch, "attention.temperature_scale", 0.1f);
}

static void write_keys(struct random_model *s, uint32_t file_type)
{
    const struct random_shape *h = s->shape;
    const char *arch = h->arch;
    struct gguf_writer *w = &s->w;

    gguf_write_str(w, "general.architecture", str_from(arch));
    gguf_write_str(w, "general.name", str_from(h->name));
    random_key_u32(w, arch, "block_count", h->n_layers + has_draft(s));
    bool encodes = random_encoder_is(arch) || is_arch(s, "gemma-embedding");
    random_key_u32(w, arch, "context_length", encodes ? random_encoder_context(h->name, arch) : 32768);
    random_key_u32(w, arch, "embedding_length", h->n_cols);
    bool listed = random_layers_knows(arch);
    if (listed)
        random_layers_keys(h, w);
    else
        random_key_u32(w, arch, "feed_forward_length", h->n_ffn);
    random_key_u32(w, arch, "attention.head_count", h->n_heads);
    if (s->hybrid)
        random_hybrid_keys(s->hybrid, w, arch, h->n_layers, h->n_kv_heads, n_rotated(s));
    else if (!listed)
        random_key_u32(w, arch, "attention.head_count_kv", h->n_kv_heads);
    random_key_u32(w, arch, "attention.key_length", h->head_dim);
    random_key_u32(w, arch, "attention.value_length", s->latent ? s->latent->latent : h->head_dim);
    random_key_u32(w, arch, "rope.dimension_count", n_rotated(s));
    random_key_f32(w, arch, "attention.layer_norm_rms_epsilon", 1e-5f);
    random_key_f32(w, arch, "rope.freq_base", h->rope_base);
    if (has_long_rope(s))
        random_key_u32(w, arch, "rope.scaling.original_context_length", 4096);
    random_key_u32(w, arch, "vocab_size", h->n_vocab);
    random_family_keys(h, w);
    random_encoder_keys(h->name, arch, w);
    if (h->n_experts)
        write_expert_keys(s);
    if (s->latent)
        write_latent_keys(s);
    gguf_write_u32(w, "general.file_type", file_type);
    gguf_write_u32(w, "general.quantization_version", 2);
}

static bool tensor_bytes(struct random_model *s, struct quantize_entry *e)
{
    uint64_t n = e->from.dims[0] * e->from.dims[1] * e->from.dims[2],
             n_cols = e->from.dims[e->from.n_dims - 1];

    if (!quant_bytes(e->format, n / n_cols, n_cols, &e->from.bytes))
        return err_set(s->err, ERR_INPUT, "tensor %.*s: rows of %llu do not fit %s", STR_ARG(e->name),
                       (unsigned long long)n_cols, quant_info(e->format)->name);
    gguf_write_tensor(&s->w, e->name, e->format, e->from.dims, e->from.n_dims);
    s->total += e->from.bytes;
    return true;
}

static bool advance(struct random_model *s, uint64_t bytes)
{
    const struct random_model_options *o = s->options;

    s->done += bytes;
    if (o->progress && !o->progress(o->progress_arg, s->done, s->total))
        return err_set(s->err, ERR_CANCELLED, "stopped; nothing was written");
    if (s->w.out.first.code != ERR_NONE) {
        *s->err = s->w.out.first;
        return false;
    }
    return true;
}

// Part `number` of a tensor, n bytes: a row of a format whose rows have heads, with other blocks than the row
// before; else blocks.
static void write_part(struct random_model *s, const struct quant_info *info, const unsigned char *pool,
                       uint64_t n, uint64_t number)
{
    const float head = info->halves.usual[0];
    uint64_t body = n - info->head_bytes, n_bodies = POOL / info->block_elements * info->block_bytes / body;

    if (info->head_bytes) {
        gguf_write_data(&s->w, &head, sizeof head);
        pool += number % n_bodies * body;
    }
    gguf_write_data(&s->w, pool, body);
}

static bool write_tensor(struct random_model *s, const struct quantize_entry *e)
{
    const struct quant_info *info = quant_info(e->format);
    bool decays = str_ends(e->name, STR("ssm_a")); // above 0 states would grow
    bool scales = str_ends(e->name, STR("norm.weight")) || str_ends(e->name, STR("output_scale.weight")) ||
                  str_starts(e->name, STR("rope_factors_"));
    const float one = decays ? -1 : 1;

    if (e->from.n_dims == 1 && (decays || scales)) {
        for (uint64_t i = 0; i < e->from.dims[0]; i++)
            gguf_write_data(&s->w, &one, sizeof one);
        return advance(s, e->from.bytes);
    }
    if (str_eq(e->name, STR("rope_freqs.weight"))) { // Gemma 4: a fourth of the pairs turn
        for (uint64_t i = 0; i < e->from.dims[0]; i++)
            gguf_write_data(&s->w, &(float){ i < e->from.dims[0] / 4 ? 1 : 1e30f }, sizeof(float));
        return advance(s, e->from.bytes);
    }
    if (s->options->hollow) {
        gguf_write_data(&s->w, NULL, e->from.bytes);
        return advance(s, e->from.bytes);
    }
    const unsigned char *pool = pool_of(s, e->format);
    uint64_t pool_bytes = (uint64_t)POOL / info->block_elements * info->block_bytes;
    if (!pool)
        return false;
    const uint64_t part_bytes =
        info->head_bytes ? quant_row_bytes(e->format, e->from.dims[e->from.n_dims - 1]) : pool_bytes;
    for (uint64_t at = 0, n; at < e->from.bytes; at += n) {
        n = e->from.bytes - at < part_bytes ? e->from.bytes - at : part_bytes;
        write_part(s, info, pool, n, at / part_bytes);
        if (!advance(s, n))
            return false;
    }
    return true;
}

// At least one layer with experts, if some have them, and one with attention.
static bool choose_layers(struct random_model *s)
{
    uint32_t n = s->options->n_layers, fewest = s->shape->n_experts ? n_dense(s) + 1 : 1,
             attends = s->hybrid ? random_hybrid_fewest(s->hybrid) : random_layers_fewest(s->shape->arch);

    if (n == 0)
        return true;
    fewest = attends > fewest ? attends : fewest;
    if (n < fewest || n > RANDOM_MOST_LAYERS)
        return err_set(s->err, ERR_INPUT, "%s with %u layer%s cannot be run; want %u to %d", s->shape->name,
                       n, str_plural(n), fewest, RANDOM_MOST_LAYERS);
    s->deeper = *s->shape;
    s->deeper.n_layers = n;
    s->shape = &s->deeper;
    return true;
}

static bool find_shape(struct random_model *s)
{
    char known[2000] = "";

    const struct random_shape *one;
    for (size_t i = 0; (one = random_shape_at(i)); i++) {
        size_t n = strlen(known);
        if (strcmp(one->name, s->options->shape) == 0)
            s->shape = one;
        snprintf(known + n, sizeof known - n, " %s", one->name);
    }
    for (size_t i = 0; s->shape && i < sizeof latents / sizeof latents[0]; i++)
        if (strcmp(latents[i].name, s->shape->name) == 0)
            s->latent = &latents[i];
    s->hybrid = random_hybrid_find(s->options->shape);
    return s->shape
               ? choose_layers(s)
               : err_set(s->err, ERR_INPUT, "unknown shape '%.64s'; known are%s", s->options->shape, known);
}

static bool write_tower(struct random_model *s)
{
    const struct random_tower_shape *tower = random_tower_find(s->shape->name);
    const char *output = s->options->output, *slash = strrchr(output, '/'),
               *file = slash ? slash + 1 : output;
    const char *path = arena_printf(s->plan.arena, "%.*smmproj-%s", (int)(file - output), output, file);

    if (!tower)
        return true;
    enum quant type;
    bool q8 = quant_from_name(str_from(s->options->type), &type) && type == QUANT_Q8_0;
    struct random_tower_file to = { .path = path,
                                    .name = s->shape->name,
                                    .n_out = s->shape->n_cols,
                                    .matrices = q8 ? QUANT_Q8_0 : QUANT_BF16,
                                    .hollow = s->options->hollow };
    return path ? random_tower_file(tower, &to, &s->random, s->err) : err_memory(s->err, "a name");
}

static enum tokenizer_random_pictures pictures_of(const struct random_model *s)
{
    const struct random_tower_shape *tower = random_tower_find(s->shape->name);

    return !tower                ? TOKENIZER_NO_PICTURES
           : tower->longest_edge ? TOKENIZER_ROWS_OF_TILES
                                 : TOKENIZER_TILES_TOGETHER;
}

static bool synth_run(struct random_model *s)
{
    uint32_t file_type = 0;
    bool ok = find_shape(s);

    s->plan.arena = arena_create((size_t)1 << 24);
    if (!s->plan.arena)
        return err_memory(s->err, "names of tensors");
    ok = ok && add_tensors(s) && choose_formats(s, &file_type) &&
         gguf_write_create(&s->w, s->options->output, s->err);
    if (!ok)
        return false;
    write_keys(s, file_type);
    ok = tokenizer_random_write(s->shape->n_vocab, pictures_of(s), &s->w, s->err);
    for (size_t i = 0; ok && i < s->plan.n; i++)
        ok = tensor_bytes(s, &s->plan.entries[i]);
    if (ok)
        gguf_write_begin(&s->w);
    for (size_t i = 0; ok && i < s->plan.n; i++)
        ok = write_tensor(s, &s->plan.entries[i]);
    return ok && gguf_write_commit(&s->w, s->err) && write_tower(s);
}

bool random_model_file(const struct random_model_options *options, struct err *err)
{
    struct err unused;
    struct random_model *s = mem_alloc(sizeof *s);

    err = err ? err : &unused;
    if (!s)
        return err_memory(err, "a synthetic model");
    s->options = options;
    s->err = err;
    s->random = (options->seed + 1) * 0x9e3779b97f4a7c15u;
    if (s->random == 0) // where this generator would stay
        s->random = 1;
    bool ok = synth_run(s);
    gguf_write_abort(&s->w);
    for (size_t i = 0; i < N_QUANTS; i++)
        mem_free(s->pools[i]);
    quantize_plan_release(&s->plan);
    mem_free(s);
    return ok;
}
