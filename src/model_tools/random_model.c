// random_model.c - see random_model.h. A few million elements of each format are drawn once and repeated, so
// that the disk sets the pace.
#include "model_tools/random_model.h"
#include "base/mem.h"
#include "model_tools/quantize_plan.h"
#include "model_tools/random_tower.h"
#include "text/tokenizer/tokenizer_random.h"

enum { POOL = 1 << 22 }; // elements, a multiple of every block

struct shape {
    const char *name, *arch;
    uint32_t n_layers, n_cols, n_ffn, n_heads, n_kv_heads, head_dim, n_vocab;
    float rope_base;
    bool tied;
    uint32_t n_experts, n_used, n_expert_ffn, n_shared;
};

// From the config.json of each model; the toys are for tests.
static const struct shape shapes[] = {
    { "toy", "llama", 2, 256, 512, 4, 2, 64, 512, 1e4f, true, 0, 0, 0, 0 },
    { "toy-qwen2", "qwen2", 2, 256, 512, 4, 2, 64, 512, 1e6f, true, 0, 0, 0, 0 },
    { "toy-qwen3", "qwen3", 2, 256, 512, 4, 2, 64, 512, 1e6f, false, 0, 0, 0, 0 },
    { "smollm-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 1e4f, true, 0, 0, 0, 0 },
    { "smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 1e5f, true, 0, 0, 0, 0 },
    { "smollm2-360m", "llama", 32, 960, 2560, 15, 5, 64, 49152, 1e5f, true, 0, 0, 0, 0 },
    { "smolvlm-256m", "llama", 30, 576, 1536, 9, 3, 64, 49280, 1e5f, false, 0, 0, 0, 0 },
    { "smolvlm-500m", "llama", 32, 960, 2560, 15, 5, 64, 49280, 1e5f, false, 0, 0, 0, 0 },
    { "smolvlm-2.2b", "llama", 24, 2048, 8192, 32, 32, 64, 49280, 2.73e5f, false, 0, 0, 0, 0 },
    { "toy-vlm", "llama", 2, 256, 512, 4, 2, 64, 512, 1e4f, true, 0, 0, 0, 0 },
    { "smollm2-1.7b", "llama", 24, 2048, 8192, 32, 32, 64, 49152, 1.3e5f, true, 0, 0, 0, 0 },
    { "tinyllama-1.1b", "llama", 22, 2048, 5632, 32, 4, 64, 32000, 1e4f, false, 0, 0, 0, 0 },
    { "llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 5e5f, true, 0, 0, 0, 0 },
    { "llama-3.2-3b", "llama", 28, 3072, 8192, 24, 8, 128, 128256, 5e5f, true, 0, 0, 0, 0 },
    { "llama-2-7b", "llama", 32, 4096, 11008, 32, 32, 128, 32000, 1e4f, false, 0, 0, 0, 0 },
    { "llama-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 5e5f, false, 0, 0, 0, 0 },
    { "mistral-7b", "llama", 32, 4096, 14336, 32, 8, 128, 32768, 1e6f, false, 0, 0, 0, 0 },
    { "devstral-24b", "llama", 40, 5120, 32768, 32, 8, 128, 131072, 1e8f, false, 0, 0, 0, 0 },
    { "qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 1e6f, true, 0, 0, 0, 0 },
    { "qwen2.5-1.5b", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 1e6f, true, 0, 0, 0, 0 },
    { "qwen2.5-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 1e6f, false, 0, 0, 0, 0 },
    { "qwen3-0.6b", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 1e6f, true, 0, 0, 0, 0 },
    { "qwen3-1.7b", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 1e6f, true, 0, 0, 0, 0 },
    { "qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 1e6f, true, 0, 0, 0, 0 },
    { "qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 1e6f, false, 0, 0, 0, 0 },
    { "qwen3-30b-a3b", "qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 1e6f, false, 128, 8, 768, 0 },
    { "toy-qwen3moe", "qwen3moe", 2, 256, 512, 4, 2, 64, 512, 1e6f, false, 8, 2, 256, 0 },
    { "toy-qwen2moe", "qwen2moe", 2, 256, 512, 4, 2, 64, 512, 1e6f, false, 8, 2, 256, 512 },
    { "toy-mixtral", "llama", 2, 256, 256, 4, 2, 64, 512, 1e6f, false, 4, 2, 256, 0 },
    { "toy-olmoe", "olmoe", 2, 256, 256, 4, 4, 64, 512, 1e4f, false, 8, 4, 256, 0 },
    { "mixtral-8x7b", "llama", 32, 4096, 14336, 32, 8, 128, 32000, 1e6f, false, 8, 2, 14336, 0 },
    { "qwen1.5-moe-a2.7b", "qwen2moe", 24, 2048, 5632, 16, 16, 128, 151936, 1e6f, false, 60, 4, 1408, 5632 },
    { "olmoe-1b-7b", "olmoe", 16, 2048, 1024, 16, 16, 128, 50304, 1e4f, false, 64, 8, 1024, 0 },
    { "toy-granitemoe", "granitemoe", 2, 256, 256, 4, 2, 64, 512, 1e4f, true, 8, 4, 256, 0 },
    { "granite-1b-a400m", "granitemoe", 24, 1024, 512, 16, 8, 64, 49155, 1e4f, true, 32, 8, 512, 0 },
    { "toy-gpt-oss", "gpt-oss", 2, 256, 256, 4, 2, 64, 512, 1.5e5f, false, 8, 2, 256, 0 },
    { "gpt-oss-20b", "gpt-oss", 24, 2880, 2880, 64, 8, 64, 201088, 1.5e5f, false, 32, 4, 2880, 0 },
    { "gpt-oss-120b", "gpt-oss", 36, 2880, 2880, 64, 8, 64, 201088, 1.5e5f, false, 128, 4, 2880, 0 },
    { "toy-glm4moe", "glm4moe", 3, 256, 512, 4, 2, 64, 512, 1e6f, false, 8, 2, 256, 256 },
    { "glm-4.5-air", "glm4moe", 46, 4096, 10944, 96, 8, 128, 151552, 1e6f, false, 128, 8, 1408, 1408 },
    { "toy-deepseek2", "deepseek2", 3, 256, 512, 4, 1, 576, 512, 1e4f, false, 8, 3, 256, 512 },
    { "deepseek-v2-lite", "deepseek2", 27, 2048, 10944, 16, 1, 576, 102400, 1e4f, false, 64, 6, 1408, 2816 },
    { "toy-glm47", "deepseek2", 3, 256, 512, 5, 1, 576, 512, 1e6f, false, 8, 2, 256, 256 },
    { "glm-4.7-flash", "deepseek2", 47, 2048, 10240, 20, 1, 576, 154880, 1e6f, false, 64, 4, 1536, 1536 },
};

// Of those with attention in a latent space: its sizes, and how the model routes.
struct latent_shape {
    const char *name;
    uint32_t latent, q_latent, nope, rotated, value; // q_latent 0: queries have none
    uint32_t n_shared;                               // shared experts
    float scale;                                     // of the experts' weights
    bool sigmoid, yarn;
};
static const struct latent_shape latents[] = {
    { "toy-deepseek2", 512, 0, 64, 64, 96, 2, 1, false, true },
    { "deepseek-v2-lite", 512, 0, 128, 64, 128, 2, 1, false, true },
    { "toy-glm47", 512, 96, 96, 64, 64, 1, 1.8f, true, false },
    { "glm-4.7-flash", 512, 768, 192, 64, 256, 1, 1.8f, true, false },
};

// The towers of those that take pictures.
static const struct {
    const char *name;
    struct random_tower_shape shape;
} towers[] = {
    { "smolvlm-256m", { 12, 768, 12, 3072, 16, 512, 2048, 4 } },
    { "smolvlm-500m", { 12, 768, 12, 3072, 16, 512, 2048, 4 } },
    { "smolvlm-2.2b", { 27, 1152, 16, 4304, 14, 384, 1536, 3 } },
    { "toy-vlm", { 2, 128, 2, 256, 16, 64, 256, 2 } },
};

static const struct random_tower_shape *find_tower(const char *name)
{
    for (size_t i = 0; i < sizeof towers / sizeof *towers; i++)
        if (strcmp(towers[i].name, name) == 0)
            return &towers[i].shape;
    return NULL;
}

const char *const random_model_names[] = {
    "toy",           "toy-qwen2",         "toy-qwen3",    "smollm-135m",    "smollm2-135m",
    "smollm2-360m",  "smolvlm-256m",      "smolvlm-500m", "smolvlm-2.2b",   "toy-vlm",
    "smollm2-1.7b",  "tinyllama-1.1b",    "llama-3.2-1b", "llama-3.2-3b",   "llama-2-7b",
    "llama-8b",      "mistral-7b",        "devstral-24b", "qwen2.5-0.5b",   "qwen2.5-1.5b",
    "qwen2.5-7b",    "qwen3-0.6b",        "qwen3-1.7b",   "qwen3-4b",       "qwen3-8b",
    "qwen3-30b-a3b", "toy-qwen3moe",      "toy-qwen2moe", "toy-mixtral",    "toy-olmoe",
    "mixtral-8x7b",  "qwen1.5-moe-a2.7b", "olmoe-1b-7b",  "toy-granitemoe", "granite-1b-a400m",
    "toy-gpt-oss",   "gpt-oss-20b",       "gpt-oss-120b", "toy-glm4moe",    "glm-4.5-air",
    "toy-deepseek2", "deepseek-v2-lite",  "toy-glm47",    "glm-4.7-flash",  NULL,
};
_Static_assert(sizeof random_model_names / sizeof random_model_names[0] ==
                   sizeof shapes / sizeof shapes[0] + 1,
               "one name for each shape");

struct random_model {
    const struct random_model_options *options;
    const struct shape *shape;
    const struct latent_shape *latent; // or NULL
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

static bool add_latent_attention(struct random_model *s, uint32_t l)
{
    const struct shape *h = s->shape;
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

static bool add_attention(struct random_model *s, uint32_t l)
{
    const struct shape *h = s->shape;
    uint64_t n_q = (uint64_t)h->n_heads * h->head_dim, n_kv = (uint64_t)h->n_kv_heads * h->head_dim;
    bool gptoss = is_arch(s, "gpt-oss"),
         biases = gptoss || is_arch(s, "glm4moe") || is_arch(s, "qwen2") || is_arch(s, "qwen2moe");
    const char *norm = gptoss || is_arch(s, "glm4moe") ? "post_attention_norm.weight" : "ffn_norm.weight";
    bool ok = layer_tensor(s, l, "attn_norm.weight", 0, 0, h->n_cols) &&
              layer_tensor(s, l, norm, 0, 0, h->n_cols) &&
              layer_tensor(s, l, "attn_q.weight", 0, n_q, h->n_cols) &&
              layer_tensor(s, l, "attn_k.weight", 0, n_kv, h->n_cols) &&
              layer_tensor(s, l, "attn_v.weight", 0, n_kv, h->n_cols) &&
              layer_tensor(s, l, "attn_output.weight", 0, h->n_cols, n_q);

    if (ok && strncmp(h->arch, "qwen3", 5) == 0)
        ok = layer_tensor(s, l, "attn_q_norm.weight", 0, 0, h->head_dim) &&
             layer_tensor(s, l, "attn_k_norm.weight", 0, 0, h->head_dim);
    if (ok && is_arch(s, "olmoe"))
        ok = layer_tensor(s, l, "attn_q_norm.weight", 0, 0, n_q) &&
             layer_tensor(s, l, "attn_k_norm.weight", 0, 0, n_kv);
    if (ok && gptoss)
        ok = layer_tensor(s, l, "attn_output.bias", 0, 0, h->n_cols) &&
             layer_tensor(s, l, "attn_sinks.weight", 0, 0, h->n_heads);
    if (ok && biases)
        ok = layer_tensor(s, l, "attn_q.bias", 0, 0, n_q) && layer_tensor(s, l, "attn_k.bias", 0, 0, n_kv) &&
             layer_tensor(s, l, "attn_v.bias", 0, 0, n_kv);
    return ok;
}

static bool add_shared(struct random_model *s, uint32_t l)
{
    const struct shape *h = s->shape;

    return (is_arch(s, "glm4moe") || s->latent ||
            layer_tensor(s, l, "ffn_gate_inp_shexp.weight", 0, 0, h->n_cols)) &&
           layer_tensor(s, l, "ffn_gate_shexp.weight", 0, h->n_shared, h->n_cols) &&
           layer_tensor(s, l, "ffn_up_shexp.weight", 0, h->n_shared, h->n_cols) &&
           layer_tensor(s, l, "ffn_down_shexp.weight", 0, h->n_cols, h->n_shared);
}

static bool add_expert_biases(struct random_model *s, uint32_t l)
{
    const struct shape *h = s->shape;
    uint64_t n = h->n_experts;

    if (is_arch(s, "glm4moe") || (s->latent && s->latent->sigmoid))
        return layer_tensor(s, l, "exp_probs_b.bias", 0, 0, n);
    return !is_arch(s, "gpt-oss") || (layer_tensor(s, l, "ffn_gate_inp.bias", 0, 0, n) &&
                                      layer_tensor(s, l, "ffn_gate_exps.bias", 0, n, h->n_expert_ffn) &&
                                      layer_tensor(s, l, "ffn_up_exps.bias", 0, n, h->n_expert_ffn) &&
                                      layer_tensor(s, l, "ffn_down_exps.bias", 0, n, h->n_cols));
}

// GLM's and DeepSeek's first layer is dense.
static uint32_t n_dense(const struct random_model *s)
{
    return is_arch(s, "glm4moe") || s->latent ? 1 : 0;
}

static bool add_ffn(struct random_model *s, uint32_t l)
{
    const struct shape *h = s->shape;
    uint64_t n = l < n_dense(s) ? 0 : h->n_experts, n_ffn = h->n_expert_ffn;

    if (n && ((h->n_shared && !add_shared(s, l)) || !add_expert_biases(s, l)))
        return false;
    if (n)
        return layer_tensor(s, l, "ffn_gate_inp.weight", 0, n, h->n_cols) &&
               layer_tensor(s, l, "ffn_gate_exps.weight", n, n_ffn, h->n_cols) &&
               layer_tensor(s, l, "ffn_up_exps.weight", n, n_ffn, h->n_cols) &&
               layer_tensor(s, l, "ffn_down_exps.weight", n, h->n_cols, n_ffn);
    return layer_tensor(s, l, "ffn_gate.weight", 0, h->n_ffn, h->n_cols) &&
           layer_tensor(s, l, "ffn_up.weight", 0, h->n_ffn, h->n_cols) &&
           layer_tensor(s, l, "ffn_down.weight", 0, h->n_cols, h->n_ffn);
}

static bool add_tensors(struct random_model *s)
{
    const struct shape *h = s->shape;
    bool ok = add(s, "token_embd.weight", 0, h->n_vocab, h->n_cols) &&
              add(s, "output_norm.weight", 0, 0, h->n_cols) &&
              (h->tied || add(s, "output.weight", 0, h->n_vocab, h->n_cols));

    for (uint32_t l = 0; ok && l < h->n_layers; l++)
        ok = (s->latent ? add_latent_attention(s, l) : add_attention(s, l)) && add_ffn(s, l);
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
                    str_ends(e->name, STR(".bias"));
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
    if (quant_from_name(str_from(s->options->type), &q) && q < N_WEIGHT_QUANTS)
        plain_formats(s, q);
    else if (mix)
        quantize_plan_formats(&s->plan, mix);
    else
        return err_set(s->err, ERR_INPUT,
                       "unknown type '%.32s'; give a weight format such as Q4_0 or a mix such as Q4_K_M",
                       s->options->type);
    return true;
}

static void key_u32(struct random_model *s, const char *part, uint32_t value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->shape->arch, part);
    gguf_write_u32(&s->w, key, value);
}

static void key_f32(struct random_model *s, const char *part, float value)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", s->shape->arch, part);
    gguf_write_f32(&s->w, key, value);
}

static void write_expert_keys(struct random_model *s)
{
    const struct shape *h = s->shape;

    key_u32(s, "expert_count", h->n_experts);
    key_u32(s, "expert_used_count", h->n_used);
    key_u32(s, "expert_feed_forward_length", h->n_expert_ffn);
    if (is_arch(s, "qwen2moe"))
        key_u32(s, "expert_shared_feed_forward_length", h->n_shared);
    if (is_arch(s, "granitemoe")) {
        key_f32(s, "embedding_scale", 12);
        key_f32(s, "residual_scale", 0.22f);
        key_f32(s, "attention.scale", 1.0f / (float)h->head_dim);
        key_f32(s, "logit_scale", 6);
    }
    if (is_arch(s, "gpt-oss")) {
        key_u32(s, "attention.sliding_window", 128);
        gguf_write_str(&s->w, "gpt-oss.rope.scaling.type", STR("yarn"));
        key_f32(s, "rope.scaling.factor", 32);
        key_u32(s, "rope.scaling.original_context_length", 4096);
    }
    if (is_arch(s, "glm4moe")) {
        key_u32(s, "leading_dense_block_count", n_dense(s));
        key_u32(s, "expert_shared_count", h->n_shared / h->n_expert_ffn);
        key_u32(s, "expert_gating_func", 2);
        gguf_write_bool(&s->w, "glm4moe.expert_weights_norm", true);
    }
}

static void write_latent_keys(struct random_model *s)
{
    const struct latent_shape *a = s->latent;

    key_u32(s, "attention.kv_lora_rank", a->latent);
    key_u32(s, "attention.key_length_mla", a->nope + a->rotated);
    key_u32(s, "attention.value_length_mla", a->value);
    if (a->q_latent)
        key_u32(s, "attention.q_lora_rank", a->q_latent);
    key_u32(s, "leading_dense_block_count", n_dense(s));
    key_u32(s, "expert_shared_count", a->n_shared);
    key_u32(s, "expert_gating_func", a->sigmoid ? 2 : 1);
    key_f32(s, "expert_weights_scale", a->scale);
    gguf_write_bool(&s->w, "deepseek2.expert_weights_norm", a->sigmoid);
    if (!a->yarn)
        return;
    gguf_write_str(&s->w, "deepseek2.rope.scaling.type", STR("yarn"));
    key_f32(s, "rope.scaling.factor", 40);
    key_u32(s, "rope.scaling.original_context_length", 4096);
    key_f32(s, "rope.scaling.yarn_log_multiplier", 0.0707f);
}

static void write_keys(struct random_model *s, uint32_t file_type)
{
    const struct shape *h = s->shape;

    gguf_write_str(&s->w, "general.architecture", str_from(h->arch));
    gguf_write_str(&s->w, "general.name", str_from(h->name));
    key_u32(s, "block_count", h->n_layers);
    key_u32(s, "context_length", 32768);
    key_u32(s, "embedding_length", h->n_cols);
    key_u32(s, "feed_forward_length", h->n_ffn);
    key_u32(s, "attention.head_count", h->n_heads);
    key_u32(s, "attention.head_count_kv", h->n_kv_heads);
    key_u32(s, "attention.key_length", h->head_dim);
    key_u32(s, "attention.value_length", s->latent ? s->latent->latent : h->head_dim);
    key_u32(s, "rope.dimension_count",
            s->latent               ? s->latent->rotated
            : is_arch(s, "glm4moe") ? h->head_dim / 2
                                    : h->head_dim);
    key_f32(s, "attention.layer_norm_rms_epsilon", 1e-5f);
    key_f32(s, "rope.freq_base", h->rope_base);
    key_u32(s, "vocab_size", h->n_vocab);
    if (h->n_experts)
        write_expert_keys(s);
    if (s->latent)
        write_latent_keys(s);
    gguf_write_u32(&s->w, "general.file_type", file_type);
    gguf_write_u32(&s->w, "general.quantization_version", 2);
}

static bool tensor_bytes(struct random_model *s, struct quantize_entry *e)
{
    uint64_t n = e->from.dims[0] * e->from.dims[1] * e->from.dims[2];

    if (!quant_bytes(e->format, n, &e->from.bytes))
        return err_set(s->err, ERR_INPUT, "tensor %.*s: rows of %llu do not fit %s", STR_ARG(e->name),
                       (unsigned long long)e->from.dims[e->from.n_dims - 1], quant_info(e->format)->name);
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

static bool write_tensor(struct random_model *s, const struct quantize_entry *e)
{
    const struct quant_info *info = quant_info(e->format);
    const float one = 1;

    if (e->from.n_dims == 1 && str_ends(e->name, STR("norm.weight"))) {
        for (uint64_t i = 0; i < e->from.dims[0]; i++)
            gguf_write_data(&s->w, &one, sizeof one);
        return advance(s, e->from.bytes);
    }
    const unsigned char *pool = pool_of(s, e->format);
    uint64_t pool_bytes = (uint64_t)POOL / info->block_elements * info->block_bytes;
    if (!pool)
        return false;
    for (uint64_t at = 0, n; at < e->from.bytes; at += n) {
        n = e->from.bytes - at < pool_bytes ? e->from.bytes - at : pool_bytes;
        gguf_write_data(&s->w, pool, n);
        if (!advance(s, n))
            return false;
    }
    return true;
}

static bool find_shape(struct random_model *s)
{
    char known[800] = "";

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        size_t n = strlen(known);
        if (strcmp(shapes[i].name, s->options->shape) == 0)
            s->shape = &shapes[i];
        snprintf(known + n, sizeof known - n, " %s", shapes[i].name);
    }
    for (size_t i = 0; s->shape && i < sizeof latents / sizeof latents[0]; i++)
        if (strcmp(latents[i].name, s->shape->name) == 0)
            s->latent = &latents[i];
    return s->shape
               ? true
               : err_set(s->err, ERR_INPUT, "unknown shape '%.64s'; known are%s", s->options->shape, known);
}

static bool write_tower(struct random_model *s)
{
    const struct random_tower_shape *tower = find_tower(s->shape->name);
    const char *output = s->options->output, *slash = strrchr(output, '/'),
               *file = slash ? slash + 1 : output;
    const char *path = arena_printf(s->plan.arena, "%.*smmproj-%s", (int)(file - output), output, file);

    if (!tower)
        return true;
    return path ? random_tower_file(tower, s->shape->name, s->shape->n_cols, &s->random, path, s->err)
                : err_memory(s->err, "a name");
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
    ok = tokenizer_random_write(s->shape->n_vocab, find_tower(s->shape->name) != NULL, &s->w, s->err);
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
