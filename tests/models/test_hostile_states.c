// test_hostile_states.c - files whose recurrent layers do not fit together: each is refused in one line that
// says so.
#include <math.h>
#include "base/file.h"
#include "models/model.h"
#include "testing.h"

#define GOLDEN SOURCE_DIR "/tests/golden/"

struct hostile_layer {
    const char *model, *word; // a folder of tests/golden; what is found in its file
    size_t at;                // bytes behind the word
    uint32_t value;           // written there
    const char *says;         // NULL: the word, as a tensor that is missing or a key
};

// Behind a key lie 4 bytes of type (behind that of an array 4 of its elements' type, and 8 for their number);
// behind a tensor's name 4 for the number of dimensions, then 8 for each, the fastest first.
static const struct hostile_layer cases[] = {
    { "lfm2", "lfm2.shortconv.l_cache", 4, 0, "lfm2.shortconv.l_cache" },
    { "lfm2", "lfm2.shortconv.l_cache", 4, 1, "lfm2.shortconv.l_cache" },
    { "lfm2", "lfm2.shortconv.l_cache", 4, 65, "lfm2.shortconv.l_cache" },
    { "lfm2", "lfm2.shortconv.l_cache", 4, 4, "blk.0.shortconv.conv.weight is [36, 3]" },
    { "lfm2", "lfm2.attention.head_count_kv", 16, 1, "blk.0.attn_q.weight is missing" },
    { "lfm2", "lfm2.attention.head_count_kv", 24, 0, "lfm2.attention.head_count_kv would be 0" },
    { "lfm2", "lfm2.attention.head_count_kv", 24, 2, "3 heads are no multiple of 2 KV heads" },
    { "lfm2", "lfm2.attention.head_count_kv", 24, 0x80000000u, "lfm2.attention.head_count_kv" },
    { "lfm2", "blk.1.shortconv.conv.weight", 12, 37, "blk.1.shortconv.conv.weight is [37, 3]" },
    { "lfm2", "blk.1.shortconv.in_proj.weight", 0, 0, NULL },
    { "lfm2moe", "lfm2moe.expert_gating_func", 4, 1, "expert_gating_func is 1" },
    { "lfm2moe", "lfm2moe.leading_dense_block_count", 4, 4, "4 leading dense layers of 4" },
    { "lfm2moe", "blk.2.exp_probs_b.bias", 0, 0, NULL },
    { "qwen35", "qwen35.ssm.state_size", 4, 0, "qwen35.ssm.state_size" },
    { "qwen35", "qwen35.ssm.state_size", 4, 0x80000000u, "qwen35.ssm.state_size" },
    { "qwen35", "qwen35.ssm.state_size", 4, 16, "qwen35.ssm.inner_size is 48; want 6 heads of 16" },
    { "qwen35", "qwen35.ssm.time_step_rank", 4, 7, "7 value heads are no multiple of 3 key heads" },
    { "qwen35", "qwen35.ssm.group_count", 4, 0, "qwen35.ssm.group_count" },
    { "qwen35", "qwen35.ssm.group_count", 4, 2, "attn_qkv.weight is [96, 36]" },
    { "qwen35", "qwen35.ssm.conv_kernel", 4, 0, "qwen35.ssm.conv_kernel" },
    { "qwen35", "qwen35.ssm.conv_kernel", 4, 65, "qwen35.ssm.conv_kernel" },
    { "qwen35", "qwen35.ssm.conv_kernel", 4, 3, "ssm_conv1d.weight is [96, 4]" },
    { "qwen35", "qwen35.ssm.inner_size", 4, 47, "qwen35.ssm.inner_size is 47" },
    { "qwen35", "qwen35.full_attention_interval", 4, 2, "blk.1.attn_q.weight is missing" },
    { "qwen35", "qwen35.full_attention_interval", 4, 0, "qwen35.full_attention_interval" },
    { "qwen35", "qwen35.rope.dimension_count", 4, 18, "heads of 16 dimensions, 18 of them rotated" },
    { "qwen35", "blk.2.attn_q.weight", 12, 127, "attn_q.weight is [127, 36]" },
    { "qwen35", "blk.1.ssm_a", 0, 0, NULL },
    { "qwen35", "blk.0.ssm_dt.bias", 4, 5, "blk.0.ssm_dt.bias is [1, 5]" },
    { "qwen35moe", "qwen35moe.expert_shared_feed_forward_length", 4, 15,
      "ffn_gate_shexp.weight is [14, 32]" },
    { "granitehybrid", "granitehybrid.ssm.state_size", 4, 0, "granitehybrid.ssm.state_size" },
    { "granitehybrid", "granitehybrid.ssm.time_step_rank", 4, 7, "7 heads in 1 groups share 72 numbers" },
    { "granitehybrid", "granitehybrid.ssm.group_count", 4, 4, "6 heads in 4 groups share 72 numbers" },
    { "granitehybrid", "granitehybrid.ssm.inner_size", 4, 66, "ssm_in.weight is [" },
    { "granitehybrid", "blk.0.ssm_d", 0, 0, NULL },
    { "granitehybrid-moe", "granitehybrid.expert_used_count", 4, 6, "6 experts a token, but a layer has 5" },
    { "granitehybrid-moe", "granitehybrid.expert_shared_feed_forward_length", 4, 0,
      "0 numbers of a shared one" },
    { "qwen35moe", "qwen35moe.expert_used_count", 4, 6, "6 experts a token, but a layer has 5" },
    { "nemotronh", "nemotron_h.ssm.state_size", 4, 0, "nemotron_h.ssm.state_size" },
    { "nemotronh", "nemotron_h.ssm.time_step_rank", 4, 7, "7 heads in 2 groups share 60 numbers" },
    { "nemotronh", "nemotron_h.ssm.conv_kernel", 4, 65, "nemotron_h.ssm.conv_kernel" },
    { "nemotronh", "nemotron_h.ssm.inner_size", 4, 54, "ssm_in.weight is [" },
    { "nemotronh", "nemotron_h.attention.key_length", 4, 0, "heads of 0 dimensions" },
    { "nemotronh", "nemotron_h.block_count", 4, 0, "the number of layers is missing" },
    { "nemotronh", "nemotron_h.block_count", 4, 6, "nemotron_h.attention.head_count_kv has 5 numbers" },
    // behind an array's type those of its numbers and their count; then layer 2's
    { "nemotronh", "nemotron_h.attention.head_count_kv", 16 + 8, 0,
      "nemotron_h.attention.head_count_kv would be 0" },
    { "nemotronh", "nemotron_h.feed_forward_length", 16 + 4, 0, "blk.1.ssm_in.weight is missing" },
    { "nemotronh", "nemotron_h.feed_forward_length", 16, 44, "blk.0.ffn_up.weight is missing" },
    { "nemotronh", "blk.2.attn_norm.weight", 0, 0, NULL },
    { "nemotronh", "blk.1.attn_norm.weight", 0, 0, NULL },
    { "nemotronh", "blk.1.ffn_down.weight", 0, 0, NULL },
    { "nemotronh-moe", "nemotron_h_moe.expert_count", 4, 0, "blk.1.ffn_up.weight is missing" },
    { "nemotronh-moe", "nemotron_h_moe.expert_count", 4, 6, "ffn_gate_inp.weight is [5, 32]" },
    { "nemotronh-moe", "nemotron_h_moe.expert_used_count", 4, 6, "6 experts a token, but a layer has 5" },
    { "nemotronh-moe", "nemotron_h_moe.expert_used_count", 4, 0, "5 experts, but 0 for a token" },
    { "nemotronh-moe", "nemotron_h_moe.expert_group_count", 4, 2, "want equal groups of 2 or more" },
    { "nemotronh-moe", "nemotron_h_moe.expert_shared_feed_forward_length", 4, 17,
      "ffn_up_shexp.weight is [18, 32]" },
    { "nemotronh-moe", "nemotron_h_moe.expert_shared_feed_forward_length", 4, 0,
      "without them the answers are wrong" },
    { "nemotronh-moe", "blk.3.exp_probs_b.bias", 0, 0, NULL },
};

static void change(const struct hostile_layer *h, struct buf *bytes)
{
    struct err err = { 0 };
    char path[512];

    snprintf(path, sizeof path, GOLDEN "%s/model.gguf", h->model);
    assert_ok(file_read(bytes, path, 1 << 24, &err), &err);
    size_t at = str_find(buf_as_str(bytes), str_from(h->word));
    if (at == SIZE_MAX)
        fail_msg("%s has no %s", path, h->word);
    if (h->says)
        memcpy(bytes->at + at + strlen(h->word) + h->at, &h->value, sizeof h->value);
    else
        bytes->at[at] = 'x'; // another name
}

static void contradictions_are_refused_in_one_line(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf bytes = { 0 };
        struct model_file *file = NULL;
        struct model m;
        struct err err = { 0 };
        const char *says = cases[i].says ? cases[i].says : cases[i].word;
        change(&cases[i], &bytes);
        if (model_file_open_memory(&file, bytes.at, bytes.n, "hostile", &err) && model_bind(&m, file, &err))
            fail_msg("case %zu was taken; want: %s", i, says);
        if (!strstr(err.message, says) || strchr(err.message, '\n'))
            fail_msg("case %zu says: %s; want: %s", i, err.message, says);
        model_file_close(file);
        buf_free(&bytes);
    }
}

// The first number of the tensor in a copy of the file.
static void number_refused(const char *model, const char *tensor, float value, const char *says)
{
    char path[512];
    struct buf bytes = { 0 };
    struct model_file *file;
    struct model m;
    struct err err = { 0 };

    snprintf(path, sizeof path, GOLDEN "%s/model.gguf", model);
    assert_ok(file_read(&bytes, path, 1 << 24, &err), &err);
    assert_ok(model_file_open_memory(&file, bytes.at, bytes.n, "hostile", &err), &err);
    const struct file_tensor *t = model_file_tensor(file, tensor);
    memcpy(bytes.at + (t->data - (const unsigned char *)bytes.at), &value, sizeof value);
    assert_fails(model_bind(&m, file, &err), &err, says);
    model_file_close(file);
    buf_free(&bytes);
}

static void a_state_that_would_grow_is_refused(void **state)
{
    (void)state;
    number_refused("qwen35", "blk.0.ssm_a", 50,
                   "tensor blk.0.ssm_a holds 50 for head 0; want numbers up to 0");
    number_refused("qwen35moe", "blk.0.ssm_a", NAN, "blk.0.ssm_a holds nan for head 0");
    number_refused("granitehybrid", "blk.0.ssm_a", 0.5f, "blk.0.ssm_a holds 0.5 for head 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_that_would_grow_is_refused),
        cmocka_unit_test(contradictions_are_refused_in_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
