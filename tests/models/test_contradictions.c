// test_contradictions.c - a file whose words and tensors disagree is refused in one line that says so;
// harmless extras are not.
//
// A golden model is copied with one thing changed: a value, a tensor more or a tensor less. Both formats.
#include "testing.h"
#include <fcntl.h>
#include <unistd.h>
#include "base/file.h"
#include "base/str.h"
#include "folder.h"
#include "format/gguf_write.h"
#include "models/model.h"

#define GOLDEN SOURCE_DIR "/tests/golden/"

struct change {
    const char *model; // a folder of tests/golden
    const char *key;   // dropped, and with text or number written anew
    const char *text;
    uint32_t number;
    const char *drop;       // a tensor
    const char *add, *more; // tensors of 24 numbers
    const char *prefix;     // of the language model's tensors, for "model."
    const char *head;       // name of "lm_head.weight"
};

static char path[64], message[504];

static void write_values(struct gguf_writer *w, const struct model_file *from, const struct change *c)
{
    for (size_t i = 0; i < model_file_n_metas(from); i++)
        if (!c->key || !str_is(model_file_meta_at(from, i)->key, c->key))
            gguf_write_meta(w, model_file_meta_at(from, i));
    if (c->text)
        gguf_write_str(w, c->key, str_from(c->text));
    else if (c->key)
        gguf_write_u32(w, c->key, c->number);
}

static bool kept(const struct file_tensor *t, const struct change *c)
{
    return !c->drop || !str_is(t->name, c->drop);
}

static void make_gguf(const struct change *c)
{
    static const float zeros[24];
    const char *added[] = { c->add, c->more };
    struct gguf_writer w;
    struct model_file *from;
    struct err err = { 0 };

    snprintf(path, sizeof path, GOLDEN "%s/model.gguf", c->model);
    assert_ok(model_file_open(&from, path, &err), &err);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    assert_ok(gguf_write_create(&w, path, &err), &err);
    write_values(&w, from, c);
    for (size_t i = 0; i < model_file_n_tensors(from); i++) {
        const struct file_tensor *t = model_file_tensor_at(from, i);
        if (kept(t, c))
            gguf_write_tensor(&w, t->name, t->format, t->dims, t->n_dims);
    }
    for (int i = 0; i < 2; i++)
        if (added[i])
            gguf_write_tensor(&w, str_from(added[i]), QUANT_F32, (uint64_t[]){ 24 }, 1);
    gguf_write_begin(&w);
    for (size_t i = 0; i < model_file_n_tensors(from); i++) {
        const struct file_tensor *t = model_file_tensor_at(from, i);
        if (kept(t, c))
            gguf_write_data(&w, t->data, t->bytes);
    }
    for (int i = 0; i < 2; i++)
        if (added[i])
            gguf_write_data(&w, zeros, sizeof zeros);
    assert_ok(gguf_write_commit(&w, &err), &err);
    model_file_close(from);
}

static void add_entry(struct buf *header, struct str name, const uint64_t *dims, uint32_t n_dims,
                      uint64_t *end)
{
    uint64_t begin = *end, n = 4;

    buf_printf(header, "%s\"%.*s\":{\"dtype\":\"F32\",\"shape\":[", header->n > 8 ? "," : "{", STR_ARG(name));
    for (uint32_t i = 0; i < n_dims; i++, n *= dims[i - 1])
        buf_printf(header, "%s%llu", i ? "," : "", (unsigned long long)dims[i]);
    *end += n;
    buf_printf(header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
               (unsigned long long)*end);
}

// The tensor's name in the copy.
static struct str renamed(struct str name, const struct change *c, char text[128])
{
    if (c->head && str_is(name, "lm_head.weight"))
        return str_from(c->head);
    if (!c->prefix || !str_starts(name, STR("model.")))
        return name;
    snprintf(text, 128, "%s%.*s", c->prefix, (int)(name.n - 6), name.at + 6);
    return str_from(text);
}

static void write_safetensors(const struct model_file *from, const struct change *c)
{
    static const float zeros[24];
    const char *added[] = { c->add, c->more };
    struct buf file = { 0 };
    uint64_t end = 0;
    FILE *out;

    buf_append(&file, &end, 8); // the header's length, known later
    for (size_t i = 0; i < model_file_n_tensors(from); i++) {
        const struct file_tensor *t = model_file_tensor_at(from, i);
        assert_int_equal(t->format, QUANT_F32);
        char text[128];
        if (kept(t, c))
            add_entry(&file, renamed(t->name, c, text), t->dims, t->n_dims, &end);
    }
    for (int i = 0; i < 2; i++)
        if (added[i])
            add_entry(&file, str_from(added[i]), (uint64_t[]){ 24 }, 1, &end);
    buf_text(&file, "}");
    while (file.n % 8)
        buf_text(&file, " ");
    end = file.n - 8;
    memcpy(file.at, &end, 8);
    for (size_t i = 0; i < model_file_n_tensors(from); i++) {
        const struct file_tensor *t = model_file_tensor_at(from, i);
        if (kept(t, c))
            buf_append(&file, t->data, t->bytes);
    }
    for (int i = 0; i < 2; i++)
        if (added[i])
            buf_append(&file, zeros, sizeof zeros);
    out = fopen(path, "wb");
    assert_int_equal(fwrite(file.at, 1, file.n, out), file.n);
    assert_int_equal(fclose(out), 0);
    buf_free(&file);
}

// config.json, with its line of the key dropped and the new value in front.
static void write_config(const struct change *c)
{
    char name[128], line[256], quoted[64] = "";
    bool in_list = false; // which has a line for each value
    FILE *in, *out;

    snprintf(name, sizeof name, GOLDEN "%s/config.json", c->model);
    in = fopen(name, "rb");
    snprintf(name, sizeof name, "%s/config.json", folder);
    out = fopen(name, "wb");
    assert_true(in && out);
    if (c->key)
        snprintf(quoted, sizeof quoted, "\"%s\":", c->key);
    while (fgets(line, sizeof line, in)) {
        bool dropped = in_list || (c->key && strstr(line, quoted));
        in_list = dropped && !strchr(line, ']') && (in_list || strchr(line, '['));
        if (!dropped)
            fputs(line, out);
        if (line[0] == '{' && c->text)
            fprintf(out, "%s %s,\n", quoted, c->text);
    }
    fclose(in);
    assert_int_equal(fclose(out), 0);
}

static void make_safetensors(const struct change *c)
{
    struct model_file *from;
    struct err err = { 0 };

    snprintf(path, sizeof path, GOLDEN "%s/model.safetensors", c->model);
    assert_ok(model_file_open(&from, path, &err), &err);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    write_safetensors(from, c);
    model_file_close(from);
    write_config(c);
}

// Binds the model at `path`; on failure `message` is the line. What goes to stderr meanwhile is in "log".
static bool binds(void)
{
    char log[64];
    struct model_file *file;
    struct model model;
    struct err err = { 0 };

    snprintf(log, sizeof log, "%s/log", folder);
    fflush(stderr);
    int before = dup(2), to = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(to, 2);
    assert_ok(model_file_open(&file, path, &err), &err);
    bool ok = model_bind(&model, file, &err);
    fflush(stderr);
    dup2(before, 2);
    close(before);
    close(to);
    snprintf(message, sizeof message, "%s", ok ? "" : err.message);
    assert_null(strchr(message, '\n'));
    if (ok)
        model_release(&model);
    model_file_close(file);
    return ok;
}

static void says(const char *part)
{
    if (!strstr(message, part))
        fail_msg("'%s' does not say '%s'", message, part);
}

static void gguf_refused(struct change c, const char *part)
{
    make_gguf(&c);
    assert_false(binds());
    says(part);
}

static void safetensors_refused(struct change c, const char *part)
{
    make_safetensors(&c);
    assert_false(binds());
    says(part);
}

static void safetensors_taken(struct change c)
{
    make_safetensors(&c);
    if (!binds())
        fail_msg("refused: %s", message);
}

static void warned(const char *part)
{
    char log[64];
    struct buf text = { 0 };
    struct err err = { 0 };

    snprintf(log, sizeof log, "%s/log", folder);
    assert_ok(file_read(&text, log, 1 << 16, &err), &err);
    const char *found = text.at ? text.at : "";
    if (part ? !strstr(found, part) : *found != 0)
        fail_msg("stderr is '%s', want '%s'", found, part ? part : "nothing");
    buf_free(&text);
}

static void copies_are_good(void **state)
{
    (void)state;
    make_gguf(&(struct change){ .model = "llama3" });
    assert_true(binds());
    warned(NULL);
    safetensors_taken((struct change){ .model = "llama3" });
    warned(NULL);
}

static void the_activation_must_be_the_one_that_is_computed(void **state)
{
    (void)state;
    safetensors_refused((struct change){ .model = "llama3", .key = "hidden_act", .text = "\"gelu\"" },
                        "hidden_act is \"gelu\"; ingot runs llama models with silu");
    assert_null(strstr(message, "swish")); // one name of it is enough
    safetensors_refused((struct change){ .model = "qwen2", .key = "hidden_act", .text = "\"nonesuch\"" },
                        "hidden_act is \"nonesuch\"");
    safetensors_refused((struct change){ .model = "qwen3", .key = "hidden_act", .text = "7" },
                        "hidden_act is 7; expected a string");
    safetensors_taken((struct change){ .model = "llama3", .key = "hidden_act", .text = "\"swish\"" });
    safetensors_taken((struct change){ .model = "llama3", .key = "hidden_act" });
    gguf_refused((struct change){ .model = "llama3", .key = "llama.hidden_activation", .text = "relu_sqr" },
                 "llama.hidden_activation is \"relu_sqr\"; ingot runs llama models with silu");
}

static void layers_that_the_count_leaves_out_are_named(void **state)
{
    (void)state;
    gguf_refused((struct change){ .model = "llama3", .key = "llama.block_count", .number = 1 },
                 "block_count is 1, but there are tensors beyond these layers (9): blk.1.");
    safetensors_refused(
        (struct change){ .model = "qwen3", .key = "num_hidden_layers", .text = "2" },
        "num_hidden_layers is 2, but there are tensors beyond these layers (11): model.layers.2.");
    gguf_refused((struct change){ .model = "llama3", .key = "llama.block_count", .number = 3 },
                 "tensor blk.2.attn_norm.weight is missing");
}

static void promised_biases_must_be_there_and_denied_ones_not(void **state)
{
    (void)state;
    safetensors_refused((struct change){ .model = "llama3", .key = "attention_bias", .text = "true" },
                        "attention_bias is true, but tensor model.layers.0.self_attn.q_proj.bias is missing");
    safetensors_refused((struct change){ .model = "llama3", .key = "mlp_bias", .text = "true" },
                        "mlp_bias is true; ingot runs llama models without these biases");
    safetensors_refused((struct change){ .model = "qwen3", .key = "attention_bias", .text = "true" },
                        "attention_bias is true; ingot runs qwen3 models without these biases");
    safetensors_refused((struct change){ .model = "qwen2", .drop = "model.layers.1.self_attn.k_proj.bias" },
                        "tensor model.layers.1.self_attn.k_proj.bias is missing");
    safetensors_refused(
        (struct change){ .model = "llama3", .add = "model.layers.0.mlp.up_proj.bias" },
        "does not use these tensors (1) in llama models, and without them the answers are wrong: "
        "model.layers.0.mlp.up_proj.bias");
}

static void a_bias_of_some_layers_is_not_enough(void **state)
{
    (void)state;
    struct change one = { .model = "smollm2", .add = "blk.0.attn_v.bias" },
                  both = { .model = "smollm2", .add = "model.layers.1.self_attn.v_proj.bias" };
    gguf_refused(one, "layer 0 has this bias, but tensor blk.1.attn_v.bias is missing");
    both.key = "attention_bias";
    safetensors_refused(both,
                        "layer 0 lacks this bias, but tensor model.layers.1.self_attn.v_proj.bias is there");
}

static void quantised_words_need_quantised_tensors(void **state)
{
    (void)state;
    struct change c = { .model = "llama3",
                        .key = "quantization_config",
                        .text = "{\"quant_method\": \"gptq\", \"bits\": 4}" };
    safetensors_refused(c, "quantization_config promises weights quantised by gptq, but they are plain");
    c.drop = "model.layers.0.self_attn.q_proj.weight";
    safetensors_refused(c, "the weights are quantised by gptq; ingot reads plain safetensors and EXL3, and "
                           "quantised weights from GGUF");
    safetensors_taken((struct change){ .model = "llama3", .key = "quantization_config", .text = "null" });
}

static void values_are_as_long_as_keys(void **state)
{
    (void)state;
    gguf_refused((struct change){ .model = "llama3", .key = "llama.attention.value_length", .number = 6 },
                 "llama.attention.value_length is 6, but keys have 12 numbers a head");
    safetensors_refused((struct change){ .model = "llama3", .key = "v_head_dim", .text = "24" },
                        "v_head_dim is 24, but keys have 12 numbers");
    gguf_refused((struct change){ .model = "llama3", .key = "llama.attention.key_length", .number = 24 },
                 "llama.attention.value_length is 12, but keys have 24 numbers a head");
}

static void a_head_of_its_own_must_be_there(void **state)
{
    (void)state;
    safetensors_refused((struct change){ .model = "llama3", .drop = "lm_head.weight" },
                        "tie_word_embeddings is false, but tensor lm_head.weight is missing");
}

static void unused_tensors_are_named(void **state)
{
    (void)state;
    gguf_refused((struct change){ .model = "llama3",
                                  .add = "blk.0.attn_q_norm.weight",
                                  .more = "token_embd_norm.weight" },
                 "does not use these tensors (2) in llama models, and without them the answers are wrong: "
                 "blk.0.attn_q_norm.weight, token_embd_norm.weight");
    safetensors_refused((struct change){ .model = "llama3", .add = "model.layers.0.self_attn.q_norm.weight" },
                        "wrong: model.layers.0.self_attn.q_norm.weight");
    safetensors_refused((struct change){ .model = "llama3", .add = "lm_head.bias" }, "wrong: lm_head.bias");
}

static void what_lies_beside_the_model_is_a_warning(void **state)
{
    (void)state;
    safetensors_taken(
        (struct change){ .model = "llama3", .add = "v_head.summary.weight", .more = "mtp.fc.weight" });
    warned("unused tensors beside the language model (2): v_head.summary.weight, mtp.fc.weight\n");
}

static void buffers_that_are_computed_anyway_are_harmless(void **state)
{
    (void)state;
    safetensors_taken((struct change){ .model = "llama3",
                                       .add = "model.layers.0.self_attn.rotary_emb.inv_freq",
                                       .more = "model.rotary_emb.inv_freq" });
    warned(NULL);
    make_gguf(&(struct change){ .model = "llama3", .add = "blk.0.attn_rot_embd.weight" });
    assert_true(binds());
    warned(NULL);
}

static void layers_that_differ_fit_together(void **state)
{
    (void)state;
    gguf_refused((struct change){ .model = "gemma3", .key = "gemma3.attention.sliding_window_pattern" },
                 "gemma3.attention.sliding_window_pattern");
    gguf_refused((struct change){ .model = "gemma3", .drop = "blk.1.post_ffw_norm.weight" },
                 "blk.1.post_ffw_norm.weight is missing");
    gguf_refused((struct change){ .model = "gemma3", .key = "gemma3.final_logit_softcapping", .number = 30 },
                 "final_logit_softcapping is there; ingot runs gemma3 models without it");
    // an encoder
    safetensors_taken(
        (struct change){ .model = "gemma3", .key = "use_bidirectional_attention", .text = "true" });
    gguf_refused((struct change){ .model = "gemma4", .key = "gemma4.attention.head_count_kv", .number = 3 },
                 "4 heads are no multiple of 3 KV heads");
    gguf_refused((struct change){ .model = "gemma4", .drop = "blk.0.attn_v.weight" },
                 "tensor blk.0.attn_v.weight is missing; layers with the window need it");
    gguf_refused((struct change){ .model = "gemma4", .key = "gemma4.expert_count", .number = 8 },
                 "8 experts, but 0 for a token, of 0 hidden numbers");
    gguf_refused((struct change){ .model = "gemma4-moe", .key = "gemma4.expert_count", .number = 6 },
                 "ffn_gate_inp.weight is [5, 24]");
    gguf_refused((struct change){ .model = "gemma4-moe", .key = "gemma4.expert_used_count", .number = 6 },
                 "6 experts a token, but a layer has 5");
    gguf_refused(
        (struct change){ .model = "gemma4-moe", .key = "gemma4.expert_feed_forward_length", .number = 13 },
        "ffn_gate_up_exps.weight is [5, 28, 24]");
    gguf_refused((struct change){ .model = "gemma4-moe", .drop = "blk.1.ffn_gate_up_exps.weight" },
                 "blk.1.ffn_gate_exps.weight is missing");
    gguf_refused((struct change){ .model = "gemma4-moe", .drop = "blk.2.ffn_down_exps.scale" },
                 "blk.2.ffn_down_exps.scale is missing");
    gguf_refused((struct change){ .model = "gemma4-moe", .drop = "blk.0.pre_ffw_norm_2.weight" },
                 "blk.0.pre_ffw_norm_2.weight is missing");
}

// Of what test_hostile_experts cannot write in place: tensors more and fewer, numbers of other lengths.
static void experts_are_those_that_are_counted(void **state)
{
    (void)state;
    gguf_refused((struct change){ .model = "mixtral",
                                  .drop = "blk.1.ffn_gate_exps.weight",
                                  .add = "blk.1.ffn_gate.0.weight" },
                 "blk.1.ffn_gate_exps.weight is missing");
    gguf_refused((struct change){ .model = "qwen3moe", .key = "qwen3moe.expert_count", .number = 1 },
                 "3 experts a token, but a layer has 1");
    gguf_refused((struct change){ .model = "qwen3moe", .key = "qwen3moe.expert_count", .number = 1u << 31 },
                 "qwen3moe.expert_count");
    gguf_refused((struct change){ .model = "qwen3moe", .drop = "blk.1.ffn_up_exps.weight" },
                 "blk.1.ffn_up_exps.weight is missing");
    gguf_refused((struct change){ .model = "qwen3moe",
                                  .drop = "blk.1.ffn_up_exps.weight",
                                  .add = "blk.1.ffn_up_exps.weight" },
                 "blk.1.ffn_up_exps.weight is [24, 1, 1] with 1 dimensions; this model needs [7, 20, 56]");
    gguf_refused((struct change){ .model = "deepseek3", .key = "deepseek2.expert_gating_func", .number = 7 },
                 "deepseek2.expert_gating_func");
    gguf_refused((struct change){ .model = "deepseek3", .add = "blk.1.attn_kv_b.weight" },
                 "blk.1.attn_kv_b.weight");
    safetensors_refused(
        (struct change){ .model = "qwen3moe", .add = "model.layers.1.mlp.experts.7.up_proj.weight" },
        "model.layers.1.mlp.experts.7.up_proj.weight");
}

static void layers_of_one_half_fit_together(void **state)
{
    (void)state;
    safetensors_refused(
        (struct change){ .model = "nemotronh", .key = "time_step_limit", .text = "[0.0, 0.5]" },
        "time_step_limit[1] is 0.5; ingot runs nemotron_h models whose steps have no limit");
    safetensors_refused((struct change){ .model = "nemotronh", .key = "mlp_hidden_act", .text = "\"silu\"" },
                        "mlp_hidden_act is \"silu\"; ingot runs nemotron_h models with relu2");
    safetensors_refused(
        (struct change){ .model = "nemotronh", .key = "mamba_hidden_act", .text = "\"relu\"" },
        "mamba_hidden_act is \"relu\"; ingot runs nemotron_h models with silu");
    safetensors_refused(
        (struct change){ .model = "nemotronh", .key = "hybrid_override_pattern", .text = "\"M-*Mx\"" },
        "layer 4 is of no kind that ingot knows");
    safetensors_refused(
        (struct change){ .model = "nemotronh", .key = "hybrid_override_pattern", .text = "\"M-*M\"" },
        "the kinds of 4 layers are listed; want 5");
    safetensors_refused((struct change){ .model = "nemotronh", .key = "hybrid_override_pattern" },
                        "hybrid_override_pattern is missing");
    safetensors_refused((struct change){ .model = "nemotronh-moe",
                                         .key = "layers_block_type",
                                         .text = "[\"moe\", \"x\", \"moe\", \"moe\"]" },
                        "layer 1 is of no kind that ingot knows");
    safetensors_refused((struct change){ .model = "nemotronh-moe", .key = "moe_latent_size", .text = "16" },
                        "moe_latent_size is there; ingot runs nemotron_h models without it");
    safetensors_refused((struct change){ .model = "mistral4", .key = "n_group", .text = "2" },
                        "2 groups of experts; ingot runs mistral4 models with one");
    safetensors_refused((struct change){ .model = "gemma4-moe", .key = "enable_moe_block", .text = "false" },
                        "without them the answers are wrong");
    gguf_refused(
        (struct change){ .model = "gemma4-e2b", .key = "gemma4.attention.shared_kv_layers", .number = 6 },
        "6 of 6 layers share K and V; want fewer");
    gguf_refused(
        (struct change){ .model = "gemma4-e2b", .key = "gemma4.attention.shared_kv_layers", .number = 4 },
        "layer 2 shares K and V, but none of its kind before layer 2 has its own");
    gguf_refused((struct change){ .model = "gemma4", .key = "gemma4.attention.key_length_swa" },
                 "gemma4.attention.key_length_swa");
    gguf_refused((struct change){ .model = "gemma4", .key = "gemma4.attention.sliding_window_pattern" },
                 "gemma4.attention.sliding_window_pattern");
    gguf_refused((struct change){ .model = "olmo3", .key = "olmo2.attention.sliding_window_pattern" },
                 "olmo2.attention.sliding_window_pattern");
    gguf_refused((struct change){ .model = "gemma4-e2b", .drop = "per_layer_proj_norm.weight" },
                 "per_layer_proj_norm.weight is missing");
    gguf_refused((struct change){ .model = "phi4-mini", .drop = "rope_factors_long.weight" },
                 "RoPE's long_factor is no list of 6 numbers");
    gguf_refused((struct change){ .model = "phi4", .key = "phi3.attention.head_count_kv", .number = 1 },
                 "attn_qkv.weight is [80, 40]");
    gguf_refused((struct change){ .model = "glm4", .key = "glm4.rope.dimension_count", .number = 14 },
                 "heads of 12 dimensions, 14 of them rotated");
    gguf_refused((struct change){ .model = "ministral3",
                                  .key = "mistral3.attention.temperature_scale",
                                  .number = 200 },
                 "mistral3.attention.temperature_scale");
}

// What a file says of its rotations and heads is what is computed, or an error.
static void words_of_rotations_and_heads_are_heard(void **state)
{
    (void)state;
    gguf_refused(
        (struct change){ .model = "gemma4", .key = "gemma4.attention.value_length_swa", .number = 7 },
        "gemma4.attention.value_length_swa is 7; heads with the window have 12 numbers");
    gguf_refused((struct change){ .model = "gemma4", .key = "gemma4.rope.dimension_count_swa", .number = 6 },
                 "gemma4.rope.dimension_count_swa is 6; heads with the window have 12 numbers");
    gguf_refused((struct change){ .model = "gemma4", .drop = "rope_freqs.weight" },
                 "rope_freqs.weight is missing");
    safetensors_refused((struct change){ .model = "gemma4", .key = "attn_logit_softcapping", .text = "50" },
                        "attn_logit_softcapping is there; ingot runs gemma4 models without it");
    safetensors_refused(
        (struct change){ .model = "gemma4", .key = "use_bidirectional_attention", .text = "\"all\"" },
        "use_bidirectional_attention is \"all\"");
    safetensors_taken(
        (struct change){ .model = "gemma4", .key = "use_bidirectional_attention", .text = "\"vision\"" });
    safetensors_refused((struct change){ .model = "gemma4", .key = "layer_types", .text = "3" },
                        "layer_types is no list");
    safetensors_refused((struct change){ .model = "glm4", .key = "partial_rotary_factor", .text = "0" },
                        "0 of a head's 12 numbers are rotated; want 2 or more");
    safetensors_refused(
        (struct change){ .model = "mistral4", .key = "rope_interleave", .text = "false" },
        "rope_interleave is false; ingot runs mistral4 models whose neighbours rotate together");
    gguf_refused(
        (struct change){ .model = "embed-gemma", .key = "gemma-embedding.dense_2_feat_out", .number = 40 },
        "gemma-embedding.dense_2_feat_out is 40, but the tensor has 41");
}

// A checkpoint with a tower calls the language model otherwise; what belongs to the tower is left alone.
static void language_models_beside_towers_are_found(void **state)
{
    (void)state;
    safetensors_taken((struct change){ .model = "gemma3", .prefix = "language_model.model." });
    safetensors_taken((struct change){
        .model = "gemma3", .prefix = "model.language_model.", .add = "model.vision_tower.patch.weight" });
    warned(NULL);
    safetensors_taken((struct change){
        .model = "ministral3", .prefix = "language_model.model.", .head = "language_model.lm_head.weight" });
    safetensors_taken((struct change){ .model = "ministral3", .prefix = "model.language_model." });
    safetensors_refused((struct change){ .model = "gemma3", .prefix = "other." },
                        "tensor model.language_model.embed_tokens.weight is missing");
}

static void unknown_architectures_are_named(void **state)
{
    static const char *const unknown[][2] = {
        // and the nearest that runs
        { "llama4", "llama" },        { "rwkv7", "qwen35" },       { "falcon-h1", "granitehybrid" },
        { "kimi-linear", "qwen35" },  { "gemma2", "gemma3" },      { "gemma3n", "gemma4" },
        { "nemotron", "nemotron_h" }, { "qwen3next", "qwen35moe" }
    };
    // of one that nobody knows, by the parts of its layers
    static const char *const strange[][2] = {
        { "llama3", "llama" },         { "qwen3moe", "qwen3moe" },
        { "nemotronh", "nemotron_h" }, { "nemotronh-moe", "nemotron_h_moe" },
        { "embed-bert", "bert" },
    };
    struct buf lines = { 0 };
    struct err err = { 0 };

    (void)state;
    assert_ok(file_read(&lines, SOURCE_DIR "/docs/models.md", 1 << 20, &err), &err);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char word[64];
        snprintf(word, sizeof word, "ingot does not run the architecture \"%s\": ", unknown[i][0]);
        gguf_refused(
            (struct change){ .model = "llama3", .key = "general.architecture", .text = unknown[i][0] }, word);
        snprintf(word, sizeof word, ". Nearest in docs/models.md: %s", unknown[i][1]);
        says(word);
        snprintf(word, sizeof word, "`%s`", unknown[i][1]); // is a line of it
        assert_int_not_equal(str_find(buf_as_str(&lines), str_from(word)), SIZE_MAX);
    }
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        char word[128];
        snprintf(word, sizeof word,
                 "does not know the architecture \"xyz\". By its tensors nearest in docs/models.md: %s",
                 strange[i][1]);
        gguf_refused((struct change){ .model = strange[i][0], .key = "general.architecture", .text = "xyz" },
                     word);
        assert_true(str_ends(str_from(message), str_from(strange[i][1])));
    }
    gguf_refused((struct change){ .model = "llama3", .key = "general.architecture", .text = "clip" },
                 "these are a model's eyes; give them as mmproj");
    buf_free(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_are_good),
        cmocka_unit_test(the_activation_must_be_the_one_that_is_computed),
        cmocka_unit_test(layers_that_the_count_leaves_out_are_named),
        cmocka_unit_test(promised_biases_must_be_there_and_denied_ones_not),
        cmocka_unit_test(a_bias_of_some_layers_is_not_enough),
        cmocka_unit_test(quantised_words_need_quantised_tensors),
        cmocka_unit_test(values_are_as_long_as_keys),
        cmocka_unit_test(a_head_of_its_own_must_be_there),
        cmocka_unit_test(unused_tensors_are_named),
        cmocka_unit_test(what_lies_beside_the_model_is_a_warning),
        cmocka_unit_test(buffers_that_are_computed_anyway_are_harmless),
        cmocka_unit_test(layers_that_differ_fit_together),
        cmocka_unit_test(experts_are_those_that_are_counted),
        cmocka_unit_test(layers_of_one_half_fit_together),
        cmocka_unit_test(words_of_rotations_and_heads_are_heard),
        cmocka_unit_test(language_models_beside_towers_are_found),
        cmocka_unit_test(unknown_architectures_are_named),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
