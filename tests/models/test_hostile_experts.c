// test_hostile_experts.c - files whose experts do not fit together: each is refused in one line that says so;
// a router that yields NaN ends the request.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "ingot.h"
#include "models/model.h"
#include "testing.h"

#define GOLDEN SOURCE_DIR "/tests/golden/"

struct hostile {
    const char *model, *word; // a folder of tests/golden; what is found in its file
    size_t at;                // bytes behind the word
    uint32_t value;           // written there
    const char *says;
};

// Behind a key lie 4 bytes of type; behind a tensor's name 4 for the number of dimensions, then 8 for each,
// the fastest first.
static const struct hostile cases[] = {
    { "qwen3moe", "qwen3moe.expert_count", 4, 0, "qwen3moe.expert_count" },
    { "qwen3moe", "qwen3moe.expert_count", 4, 1025, "qwen3moe.expert_count" },
    { "qwen3moe", "qwen3moe.expert_used_count", 4, 0, "qwen3moe.expert_used_count" },
    { "qwen3moe", "qwen3moe.expert_used_count", 4, 8, "8 experts a token, but a layer has 7" },
    { "qwen3moe", "qwen3moe.expert_count", 4, 6, "ffn_gate_inp.weight is [7, 56]" },
    { "qwen3moe", "qwen3moe.expert_feed_forward_length", 4, 21,
      "is [7, 20, 56] with 3 dimensions; this model needs [7, 21, 56]" },
    { "qwen3moe", "blk.1.ffn_up_exps.weight", 20, 6,
      "is [6, 20, 56] with 3 dimensions; this model needs [7, 20, 56]" },
    { "qwen2moe", "blk.1.attn_k.bias", 0, 0, NULL },
    { "qwen2moe", "qwen2moe.expert_shared_feed_forward_length", 4, 45, "ffn_gate_shexp.weight is [44, 56]" },
    { "mixtral", "llama.expert_count", 4, 0, "ffn_gate.weight is missing" },
    { "deepseek3", "deepseek2.attention.kv_lora_rank", 4, 0, "deepseek2.attention.kv_lora_rank" },
    { "deepseek3", "deepseek2.attention.kv_lora_rank", 4, 38, "attn_kv_a_mqa.weight is [46, 72]" },
    { "deepseek3", "deepseek2.rope.dimension_count", 4, 9, "want an even latent, an even number rotated" },
    { "deepseek3", "deepseek2.attention.key_length_mla", 4, 10, "heads of 0 and 10 rotated ones" },
    { "deepseek3", "deepseek2.attention.value_length_mla", 4, 0, "attn_v_b.weight is [5, 16, 36]" },
    { "deepseek3", "deepseek2.attention.q_lora_rank", 4, 0, "attn_q.weight is missing" },
    { "deepseek3", "deepseek2.expert_gating_func", 4, 3, "deepseek2.expert_gating_func" },
    { "deepseek3", "deepseek2.expert_gating_func", 4, 1,
      "without them the answers are wrong: blk.1.exp_probs_b.bias" },
    { "deepseek3", "deepseek2.expert_group_count", 4, 3,
      "2 of 3 groups of 8 experts; want equal groups of 2 or more" },
    { "deepseek3", "deepseek2.expert_group_used_count", 4, 1, "3 experts a token, but 1 groups of 2 hold 2" },
    { "deepseek3", "deepseek2.leading_dense_block_count", 4, 3, "3 leading dense layers of 3" },
    { "deepseek3", "deepseek2.expert_shared_count", 4, 3, "ffn_gate_shexp.weight is [24, 72]" },
    { "deepseek3", "blk.1.exp_probs_b.bias", 0, 0, NULL },
    { "deepseek3", "blk.1.exp_probs_b.bias", 4, 7, "blk.1.exp_probs_b.bias" },
    { "deepseek3", "blk.1.attn_k_b.weight", 0, 0, NULL },
    { "deepseek3", "blk.1.attn_v_b.weight", 20, 4,
      "is [4, 16, 36] with 3 dimensions; this model needs [5, 16, 36]" },
    { "glm47-flash", "deepseek2.nextn_predict_layers", 4, 4, "4 draft layers of 4" },
    { "mistral4", "mistral4.expert_gating_func", 4, 2, "expert_gating_func is 2; ingot runs mistral4" },
    { "mistral4", "mistral4.attention.kv_lora_rank", 4, 26, "attn_kv_a_mqa.weight is [34, 52]" },
    { "mistral4", "mistral4.expert_used_count", 4, 7, "7 experts a token, but a layer has 6" },
    { "mistral4", "mistral4.expert_shared_count", 4, 2, "ffn_gate_shexp.weight is [18, 52]" },
    { "mistral4", "blk.1.ffn_up_exps.weight", 0, 0, NULL },
    { "gptoss", "blk.1.attn_sinks.weight", 0, 0, NULL },
    { "gptoss", "blk.1.attn_sinks.weight", 4, 3, "attn_sinks.weight is [1, 3]" },
    { "gptoss", "blk.2.ffn_gate_inp.bias", 0, 0, NULL },
    { "gptoss", "blk.0.ffn_gate_exps.bias", 0, 0, NULL },
    { "gptoss", "blk.2.ffn_down_exps.bias", 12, 6, "is [6, 56] with 2 dimensions; this model needs [7, 56]" },
    { "gptoss-mxfp4", "blk.1.ffn_down_exps.weight", 20, 4, "is [4, 96, 32] with 3 dimensions" },
    { "gptoss", "gpt-oss.attention.sliding_window", 4, 0, "gpt-oss.attention.sliding_window" },
    { "glm45-air", "blk.1.exp_probs_b.bias", 0, 0, NULL },
    { "glm45", "blk.2.attn_k_norm.weight", 0, 0, NULL },
    { "glm45-air", "glm4moe.leading_dense_block_count", 4, 3, "3 leading dense layers of 3 in all" },
    { "glm45-air", "glm4moe.nextn_predict_layers", 4, 4, "4 draft layers of 4 layers in all" },
    { "glm45-air", "glm4moe.expert_shared_count", 4, 2, "ffn_gate_shexp.weight is [22, 56]" },
    { "glm45-air", "glm4moe.rope.dimension_count", 4, 13, "heads of 24 dimensions, 13 of them rotated" },
};

static void load(struct buf *bytes, const char *model)
{
    struct err err = { 0 };
    char path[512];

    snprintf(path, sizeof path, GOLDEN "%s/model.gguf", model);
    *bytes = (struct buf){ 0 };
    assert_ok(file_read(bytes, path, 1 << 24, &err), &err);
}

static char *found(struct buf *bytes, const char *word)
{
    size_t at = str_find(buf_as_str(bytes), str_from(word));

    if (at == SIZE_MAX)
        fail_msg("the file has no %s", word);
    return bytes->at + at + strlen(word);
}

static void refused(struct buf *bytes, const char *says)
{
    struct model_file *file = NULL;
    struct model m;
    struct err err = { 0 };

    if (model_file_open_memory(&file, bytes->at, bytes->n, "hostile", &err) && model_bind(&m, file, &err))
        fail_msg("it was taken; want an error that says \"%s\"", says);
    if (!strstr(err.message, says) || strchr(err.message, '\n'))
        fail_msg("\"%s\" does not say \"%s\"", err.message, says);
    model_file_close(file);
}

static void experts_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct hostile *c = &cases[i];
        struct buf bytes;
        load(&bytes, c->model);
        if (c->says)
            memcpy(found(&bytes, c->word) + c->at, &c->value, sizeof c->value);
        else
            found(&bytes, c->word)[-1] = 'x'; // no tensor of that name
        refused(&bytes, c->says ? c->says : c->word);
        buf_free(&bytes);
    }
}

#define EXPERTS_OF "model.layers.1.mlp.experts."
static const struct {
    const char *model, *file, *edit, *says; // edit: for sed
} checkpoints[] = {
    { "qwen3moe", "model.safetensors", "s/" EXPERTS_OF "6.up_proj.weight/" EXPERTS_OF "6.up_proj.weighs/",
      EXPERTS_OF "6.up_proj.weight is missing; want [20, 56]" },
    { "gptoss", "model.safetensors", "s/layers.2.self_attn.sinks/layers.2.self_attn.sinkz/",
      "model.layers.2.self_attn.sinks is missing" },
    { "gptoss", "model.safetensors", "s/\\[7, 56, 40\\]/[7, 40, 56]/",
      "gate_up_proj is [7, 40, 56] with 3 dimensions; this model needs [7, 56, 40]" },
    { "gptoss", "model.safetensors", "s/" EXPERTS_OF "down_proj_bias/" EXPERTS_OF "down_proj_bios/",
      EXPERTS_OF "down_proj_bias is missing" },
    { "gptoss", "config.json", "s/full_attention/sliding_attention/",
      "layer_types puts the window elsewhere; ingot runs gpt-oss models whose even layers have it" },
    { "gptoss", "config.json", "s/\"layer_types\": \\[/\"layer_types\": [], \"others\": [/",
      "layer_types has 0 values; want one for each of 3 layers" },
    { "gptoss-mxfp4", "model.safetensors", "s/" EXPERTS_OF "down_proj_scales/" EXPERTS_OF "down_proj_scalez/",
      EXPERTS_OF "down_proj_scales is missing" },
    { "gptoss-mxfp4", "model.safetensors", "s/\\[5, 64, 3, 16\\]/[5, 32, 6, 16]/",
      "gate_up_proj_blocks is [5, 32, 6, 16] with 4 dimensions; this model needs [5, 64, 3, 16]" },
    { "gptoss-mxfp4", "model.safetensors", "s/\\[5, 64, 3\\]/[5, 32, 6]/",
      "gate_up_proj_scales is [5, 32, 6] with 3 dimensions; this model needs [5, 64, 3]" },
    { "gptoss-mxfp4", "model.safetensors", "s/\"U8\"/\"I8\"/g", "mlp.experts.gate_up_proj is missing" },
    { "gptoss-mxfp4", "config.json", "s/\"mxfp4\"/\"fp8\"/", "quantised by fp8" },
    { "glm45", "model.safetensors", "s/layers.3.self_attn.q_norm/layers.3.self_attn.q_nurm/",
      "model.layers.3.self_attn.q_norm.weight is missing" },
};

static void checkpoints_whose_experts_do_not_fit_are_refused(void **state)
{
    char folder[] = "/tmp/ingot-experts-XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof checkpoints / sizeof *checkpoints; i++) {
        struct model_file *file;
        struct model m;
        struct err err = { 0 };
        shell("cp " GOLDEN "%s/config.json " GOLDEN "%s/model.safetensors %s && LC_ALL=C sed -i '%s' %s/%s",
              checkpoints[i].model, checkpoints[i].model, folder, checkpoints[i].edit, folder,
              checkpoints[i].file);
        assert_ok(model_file_open(&file, folder, &err), &err);
        if (model_bind(&m, file, &err))
            fail_msg("%s: it was taken; want an error that says \"%s\"", checkpoints[i].edit,
                     checkpoints[i].says);
        if (!strstr(err.message, checkpoints[i].says) || strchr(err.message, '\n'))
            fail_msg("\"%s\" does not say \"%s\"", err.message, checkpoints[i].says);
        model_file_close(file);
    }
    shell("rm -r %s", folder);
}

static void a_router_bias_of_nan_is_refused(void **state)
{
    static const float nan = NAN;
    struct buf bytes;
    struct model_file *file;
    struct err err = { 0 };

    (void)state;
    load(&bytes, "deepseek3");
    assert_ok(model_file_open_memory(&file, bytes.at, bytes.n, "deepseek3", &err), &err);
    const struct file_tensor *bias = model_file_tensor(file, "blk.2.exp_probs_b.bias");
    memcpy(bytes.at + (bias->data - (const unsigned char *)bytes.at) + 5 * sizeof nan, &nan, sizeof nan);
    model_file_close(file);
    refused(&bytes, "tensor blk.2.exp_probs_b.bias holds nan for expert 5; want numbers");
    buf_free(&bytes);
}

static void a_router_of_nan_ends_the_request(void **state)
{
    static const uint32_t tokens[] = { 1, 2, 3 };
    static const float nan = NAN;
    char path[] = "/tmp/ingot-experts-XXXXXX";
    struct buf bytes;
    struct model_file *file;
    struct err err = { 0 };
    struct ingot_error error = { 0 };
    int fd = mkstemp(path);

    (void)state;
    load(&bytes, "olmoe");
    assert_ok(model_file_open_memory(&file, bytes.at, bytes.n, "olmoe", &err), &err);
    const struct file_tensor *router = model_file_tensor(file, "blk.1.ffn_gate_inp.weight");
    memcpy(bytes.at + (router->data - (const unsigned char *)bytes.at), &nan, sizeof nan);
    model_file_close(file);
    assert_int_equal(write(fd, bytes.at, bytes.n), bytes.n);
    close(fd);
    buf_free(&bytes);
    for (int plain = 0; plain < 2; plain++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        o.model = path;
        o.device = plain ? "cpu:plain" : "cpu";
        struct ingot_engine *engine = ingot_engine_open(&o, &error);
        assert_non_null(engine);
        struct ingot_request_options r = ingot_request_defaults();
        r.tokens = tokens;
        r.n_tokens = 3;
        r.max_tokens = 2;
        assert_false(ingot_generate(engine, &r, NULL, NULL, NULL, &error));
        assert_non_null(strstr(error.message, "hold NaN or infinity"));
        ingot_engine_close(engine);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(experts_that_do_not_fit_are_refused),
        cmocka_unit_test(checkpoints_whose_experts_do_not_fit_are_refused),
        cmocka_unit_test(a_router_bias_of_nan_is_refused),
        cmocka_unit_test(a_router_of_nan_ends_the_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
