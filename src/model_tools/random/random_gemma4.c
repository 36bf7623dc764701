// random_gemma4.c - see random_gemma4.h. Sizes from transformers' convert_gemma4_weights.py, but for 12B's;
// the toys have the same proportions.
#include "model_tools/random/random_gemma4.h"
#include "base/err.h"

// What the shape's sizes do not say. Its head_dim and heads are those of layers that see all; heads of layers
// with a window are half as wide.
static const struct gemma4_shape {
    const char *name;
    uint32_t period, window; // every so many layers one sees all
    uint32_t n_all_kv_heads; // of layers that see all
    uint32_t n_shared, of;   // so many of so many layers have no K and V
    uint32_t n_inputs;       // of a token's vector for each layer
    bool same_values, wide; // layers that see all have no V; FFNs of layers without K and V are twice as wide
} shapes[] = {
    { "toy-gemma4", 6, 1024, 1, 0, 1, 0, true, false },
    { "toy-ranks-gemma4", 6, 1024, 2, 0, 1, 0, true, false },
    { "toy-gemma4-dense", 3, 64, 1, 0, 1, 0, true, false },
    { "toy-gemma4-e2b", 3, 64, 1, 4, 7, 64, false, true },
    { "gemma-4-e2b", 5, 512, 1, 20, 35, 256, false, true },
    { "gemma-4-e4b", 6, 512, 2, 18, 42, 256, false, false },
    { "gemma-4-12b", 6, 1024, 1, 0, 1, 0, true, false },
    { "gemma-4-31b", 6, 1024, 4, 0, 1, 0, true, false },
    { "gemma-4-26b-a4b", 6, 1024, 2, 0, 1, 0, true, false },
};

static const struct gemma4_shape *shape_of(const struct random_shape *h)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (strcmp(shapes[i].name, h->name) == 0)
            return &shapes[i];
    CHECK(false);
    return NULL;
}

// Fewer layers than the period have one too that sees all.
static uint32_t period(const struct random_shape *h)
{
    uint32_t whole = shape_of(h)->period;
    return h->n_layers < whole ? 3 : whole;
}

static bool sees_all(const struct random_shape *h, uint32_t l)
{
    return (l + 1) % period(h) == 0;
}

// The layers before those that share hold one of each kind.
static uint32_t n_shared(const struct random_shape *h)
{
    const struct gemma4_shape *g = shape_of(h);
    uint32_t share = h->n_layers * g->n_shared / g->of,
             most = h->n_layers > period(h) ? h->n_layers - period(h) : 0;
    return share < most ? share : most;
}

static uint32_t n_kv_heads(const struct random_shape *h, uint32_t l)
{
    return sees_all(h, l) ? shape_of(h)->n_all_kv_heads : h->n_kv_heads;
}

static bool shares(const struct random_shape *h, uint32_t l)
{
    return l >= h->n_layers - n_shared(h);
}

static uint32_t n_ffn(const struct random_shape *h, uint32_t l)
{
    return h->n_ffn * (shape_of(h)->wide && shares(h, l) ? 2 : 1);
}

static uint32_t append(struct random_tensor *to, const struct random_tensor *list, size_t bytes)
{
    memcpy(to, list, bytes);
    return (uint32_t)(bytes / sizeof *list);
}

static uint32_t kv_tensors(const struct random_shape *h, uint32_t l, uint64_t head_dim,
                           struct random_tensor *to)
{
    uint64_t n_kv = n_kv_heads(h, l) * head_dim;
    bool has_values = !(sees_all(h, l) && shape_of(h)->same_values);
    const struct random_tensor list[] = {
        { "attn_k.weight", 0, n_kv, h->n_cols },
        { "attn_k_norm.weight", 0, 0, head_dim },
        { "attn_v.weight", 0, n_kv, h->n_cols },
    };
    return append(to, list, has_values ? sizeof list : sizeof list - sizeof *list);
}

static uint32_t expert_tensors(const struct random_shape *h, struct random_tensor *to)
{
    uint64_t n = h->n_cols, e = h->n_experts, wide = h->n_expert_ffn;
    const struct random_tensor list[] = {
        { "ffn_gate_inp.weight", 0, e, n },     { "ffn_gate_inp.scale", 0, 0, n },
        { "ffn_gate_exps.weight", e, wide, n }, { "ffn_up_exps.weight", e, wide, n },
        { "ffn_down_exps.weight", e, n, wide }, { "ffn_down_exps.scale", 0, 0, e },
        { "pre_ffw_norm_2.weight", 0, 0, n },   { "post_ffw_norm_1.weight", 0, 0, n },
        { "post_ffw_norm_2.weight", 0, 0, n },
    };
    return append(to, list, sizeof list);
}

static uint32_t input_tensors(const struct random_shape *h, struct random_tensor *to)
{
    uint64_t n = h->n_cols, inputs = shape_of(h)->n_inputs;
    const struct random_tensor list[] = {
        { "inp_gate.weight", 0, inputs, n },
        { "proj.weight", 0, n, inputs },
        { "post_norm.weight", 0, 0, n },
    };
    return append(to, list, sizeof list);
}

uint32_t random_gemma4_layer(const struct random_shape *h, uint32_t l,
                             struct random_tensor tensors[RANDOM_LAYER_TENSORS])
{
    uint64_t head_dim = sees_all(h, l) ? h->head_dim : h->head_dim / 2, n_q = h->n_heads * head_dim,
             n = h->n_cols, ffn = n_ffn(h, l);
    const struct random_tensor all[] = {
        { "attn_norm.weight", 0, 0, n },           { "attn_q.weight", 0, n_q, n },
        { "attn_q_norm.weight", 0, 0, head_dim },  { "attn_output.weight", 0, n, n_q },
        { "post_attention_norm.weight", 0, 0, n }, { "ffn_norm.weight", 0, 0, n },
        { "ffn_gate.weight", 0, ffn, n },          { "ffn_up.weight", 0, ffn, n },
        { "ffn_down.weight", 0, n, ffn },          { "post_ffw_norm.weight", 0, 0, n },
        { "layer_output_scale.weight", 0, 0, 1 },
    };
    uint32_t i = append(tensors, all, sizeof all);

    if (!shares(h, l))
        i += kv_tensors(h, l, head_dim, tensors + i);
    if (h->n_experts)
        i += expert_tensors(h, tensors + i);
    if (shape_of(h)->n_inputs)
        i += input_tensors(h, tensors + i);
    return i;
}

uint32_t random_gemma4_top(const struct random_shape *h, struct random_tensor tensors[RANDOM_LAYER_TENSORS])
{
    uint64_t inputs = shape_of(h)->n_inputs, all = inputs * h->n_layers;
    const struct random_tensor list[] = {
        { "rope_freqs.weight", 0, 0, h->head_dim / 2 },
        { "per_layer_token_embd.weight", 0, h->n_vocab, all },
        { "per_layer_model_proj.weight", 0, all, h->n_cols },
        { "per_layer_proj_norm.weight", 0, 0, inputs },
    };
    return append(tensors, list, inputs ? sizeof list : sizeof *list);
}

static void ffn_keys(const struct random_shape *h, struct gguf_writer *w)
{
    int32_t sizes[RANDOM_MOST_LAYERS];

    for (uint32_t l = 0; l < h->n_layers; l++)
        sizes[l] = (int32_t)n_ffn(h, l);
    if (shape_of(h)->wide)
        gguf_write_i32s(w, "gemma4.feed_forward_length", sizes, h->n_layers);
    else
        gguf_write_u32(w, "gemma4.feed_forward_length", h->n_ffn);
}

void random_gemma4_keys(const struct random_shape *h, struct gguf_writer *w)
{
    int32_t kv[RANDOM_MOST_LAYERS];
    bool windows[RANDOM_MOST_LAYERS];

    for (uint32_t l = 0; l < h->n_layers; l++) {
        windows[l] = !sees_all(h, l);
        kv[l] = (int32_t)n_kv_heads(h, l);
    }
    gguf_write_i32s(w, "gemma4.attention.head_count_kv", kv, h->n_layers);
    ffn_keys(h, w);
    gguf_write_u32(w, "gemma4.attention.key_length_swa", h->head_dim / 2);
    gguf_write_u32(w, "gemma4.attention.value_length_swa", h->head_dim / 2);
    gguf_write_u32(w, "gemma4.attention.sliding_window", shape_of(h)->window);
    gguf_write_bools(w, "gemma4.attention.sliding_window_pattern", windows, h->n_layers);
    gguf_write_u32(w, "gemma4.attention.shared_kv_layers", n_shared(h));
    gguf_write_u32(w, "gemma4.embedding_length_per_layer_input", shape_of(h)->n_inputs);
    gguf_write_u32(w, "gemma4.rope.dimension_count_swa", h->head_dim / 2);
    gguf_write_f32(w, "gemma4.rope.freq_base_swa", 1e4f);
    gguf_write_f32(w, "gemma4.final_logit_softcapping", 30);
}
