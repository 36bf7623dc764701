// test_draft_layer.c - a model's own layer that drafts: its logits against a reference, at every position,
// from both file formats; that it drafts; what files may lack of it; the memory that it takes.
//
// That answers with its drafts are those without: test_speculate.
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/str.h"
#include "engine/api.h"
#include "engine/speculate/draft_stage.h"
#include "models/golden.h"

static const char *const toys[] = { "mtp-glm4moe", "mtp-deepseek3", "mtp-qwen35", "mtp-qwen35moe" };
enum { N_TOYS = sizeof toys / sizeof *toys };

// ---- against the reference

// Of the rows of the step before, which the layer has still to read: plays it with an output for each.
static void collect_drafts(struct engine *e, const struct golden *g, struct collected *c)
{
    struct stage *s = (struct stage *)(uintptr_t)draft_stage_of(e->draft_stage);
    struct batch *b;
    struct err err = { 0 };

    assert_true(e->block_is_fresh);
    assert_ok(batch_create(&b, e->batch->max_rows, e->batch->max_outputs, &err), &err);
    for (uint32_t i = 0; i < e->batch->n_rows; i++) {
        struct batch_row row = e->batch->rows[i];
        row.token = row.position + 1 < g->n ? g->tokens[row.position + 1] : 0;
        batch_add_row(b, row);
        batch_add_output(b, (struct batch_output){ .params = { .temperature = 0, .repeat_penalty = 1 } });
    }
    const struct bucket *bucket = &s->buckets[stage_bucket_index(s, b->n_rows, b->n_outputs)];
    assert_ok(stage_play(s, batch_layout(b, bucket->max_rows, bucket->max_outputs), &err), &err);
    for (uint32_t i = 0; i < b->n_rows; i++)
        if (b->rows[i].position + 1 < g->n) {
            memcpy(c->logits + (size_t)b->rows[i].position * c->n_vocab,
                   (const float *)s->logits.host + (size_t)i * c->n_vocab, c->n_vocab * sizeof(float));
            c->n_rows++;
        }
    batch_free(b);
}

struct golden_drafts {
    const char *toy, *file, *device, *stages;
    uint32_t n_batch;
};

static void check_drafts(const struct golden_drafts *run)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_request_options r = ingot_request_defaults();
    struct golden g;
    char path[512];
    bool busy = true;

    golden_open(&g, run->toy);
    const struct file_tensor *drafts = model_file_tensor(g.file, "drafts");
    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s%s", run->toy, run->file);
    o.model = path;
    o.device = run->device;
    o.stages = run->stages;
    o.n_batch = run->n_batch;
    o.n_threads = 1;
    o.n_logit_rows = g.n;
    o.exact = true;
    struct ingot_engine *engine = open_or_fail(&o);
    struct collected c = { calloc((size_t)g.n * g.n_vocab, sizeof(float)), g.n_vocab, g.n - 1, 0 };
    r.tokens = g.tokens;
    r.n_tokens = g.n;
    r.max_tokens = 4;
    struct ingot_request *request = ingot_submit(engine, &r, NULL);
    assert_non_null(request);
    while (c.n_rows < c.n) {
        assert_true(ingot_step(engine, &busy, NULL));
        collect_drafts(&engine->inner, &g, &c);
    }
    struct golden of_drafts = { NULL, g.tokens, (const float *)drafts->data, g.n - 1, g.n_vocab };
    struct closeness close = compare_logits(&of_drafts, c.logits);
    print_message("%-13s %-12s %-9s batch %u: squared error %.1e, KL %.1e\n", run->toy,
                  *run->file ? run->file : "safetensors", run->device, run->n_batch, close.worst_error,
                  close.mean_kl);
    assert_true(close.worst_error <= 1e-9 && close.mean_kl <= 1e-3 && close.top1_changes == 0);
    ingot_request_free(request);
    ingot_engine_close(engine);
    free(c.logits);
    model_file_close(g.file);
}

static void drafts_have_the_reference_logits(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_TOYS; i++) {
        check_drafts(&(struct golden_drafts){ toys[i], "/model.gguf", "cpu:plain", NULL, 512 });
        check_drafts(&(struct golden_drafts){ toys[i], "", "cpu:plain", NULL, 512 });
        check_drafts(&(struct golden_drafts){ toys[i], "/model.gguf", "cpu", NULL, 7 });
        check_drafts(&(struct golden_drafts){ toys[i], "", "cpu", "1", 16 });
    }
}

static void the_model_gives_the_reference_logits_beside_it(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_TOYS; i++) {
        check_golden(&(struct golden_run){ toys[i], "/model.gguf", "cpu:plain", 512, true });
        check_golden(&(struct golden_run){ toys[i], "", "cpu", 7, true });
    }
}

// ---- drafts

// A prompt that repeats nothing: what is drafted, the layer drafts.
static void it_drafts_where_nothing_repeats(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * N_TOYS; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct ingot_request_options r = ingot_request_defaults();
        struct ingot_result result;
        struct ingot_error error;
        char path[512];
        uint32_t tokens[40], n_drafted = 0, n_accepted = 0;
        snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s%s", toys[i / 2], i % 2 ? "" : "/model.gguf");
        o.model = path;
        o.device = "cpu";
        o.speculate = INGOT_SPECULATE_ALWAYS;
        struct ingot_engine *engine = open_or_fail(&o);
        r.tokens = tokens;
        r.n_tokens = 40;
        r.max_tokens = 3;
        r.ignore_eos = true;
        for (uint32_t k = 0; k < 60; k++) {
            for (uint32_t t = 0; t < 40; t++)
                tokens[t] = (k + t * 7) % 61;
            r.sampling.temperature = k % 2 ? 0.5f : 0;
            r.sampling.seed = k;
            assert_ok(ingot_generate(engine, &r, NULL, NULL, &result, &error), &error);
            assert_int_equal(result.n_generated, 3);
            n_drafted += result.n_drafted;
            n_accepted += result.n_accepted;
        }
        print_message("%s: %u drafted, %u accepted\n", path, n_drafted, n_accepted);
        assert_true(n_drafted == 59 && n_accepted > 5); // the first request's step is timed without
        ingot_engine_close(engine);
    }
}

static bool drafts_with(const struct ingot_engine_options *o)
{
    struct ingot_engine *engine = open_or_fail(o);
    bool drafts = engine->inner.draft_stage;

    ingot_engine_close(engine);
    return drafts;
}

static void it_stays_out_of_the_way(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    (void)state;

    o.model = SOURCE_DIR "/tests/golden/mtp-glm4moe/model.gguf";
    o.device = "cpu";
    assert_true(drafts_with(&o));
    o.experts = "cpu";
    assert_false(drafts_with(&o)); // experts on a device of their own
    o.experts = NULL;
    o.draft = o.model;
    assert_false(drafts_with(&o)); // the model that is named drafts
    o.draft = NULL;
    o.speculate = INGOT_SPECULATE_OFF;
    assert_false(drafts_with(&o));
}

// ---- files

static char warning[512], warnings[2048]; // the last; all of a case

static void keep_warning(void *arg, int level, const char *tag, const char *text)
{
    (void)arg, (void)tag;
    if (level == LOG_WARN)
        snprintf(warning, sizeof warning, "%s", text);
    size_t n = strlen(warnings);
    snprintf(warnings + n, sizeof warnings - n, "%s\n", text);
}

struct changed_file {
    const char *toy, *word;
    uint32_t at, value; // a number so many bytes behind the word; at 0: its next letter
    const char *warns;  // part of it, and nothing drafts; NULL: nothing, and it does
};

static char *found(struct buf *bytes, const char *word)
{
    size_t at = str_find(buf_as_str(bytes), str_from(word));

    if (at == SIZE_MAX)
        fail_msg("the file has no %s", word);
    return bytes->at + at + strlen(word);
}

static void layers_that_are_not_whole_are_left_alone(void **state)
{
    static const struct changed_file cases[] = {
        { "mtp-glm4moe", "glm4moe.nextn_predict_layers", 4, 1, NULL },
        { "mtp-glm4moe", "blk.2.nextn.eh_proj.weigh", 0, 'x', "blk.2.nextn.eh_proj.weight is missing" },
        { "mtp-glm4moe", "blk.2.nextn.hnorm.weigh", 0, 'x', "blk.2.nextn.hnorm.weight is missing" },
        { "mtp-glm4moe", "blk.2.attn_k.weigh", 0, 'x', "blk.2.attn_k.weight is missing; want [24, 28]" },
        { "mtp-glm4moe", "blk.2.nextn.eh_proj.weight", 12, 27,
          "blk.2.nextn.eh_proj.weight is [27, 56] with 2 dimensions; this model needs [28, 56]" },
        { "mtp-glm4moe", "blk.2.nextn.eh_proj.weight", 4, 28,
          "blk.2.nextn.eh_proj.weight is [28, 28] with 2 dimensions; this model needs [28, 56]" },
        { "mtp-glm4moe", "blk.2.nextn.enorm.weight", 4, 27, "blk.2.nextn.enorm.weight is [1, 27]" },
        { "mtp-glm4moe", "blk.2.nextn.shared_head_head.weight", 12, 60, "is [60, 28]" },
        { "mtp-deepseek3", "blk.2.nextn.eh_proj.weigh", 0, 'x', "eh_proj.weight is missing; want [24, 24]" },
        { "mtp-deepseek3", "blk.2.ffn_up_exps.weight", 20, 3, "is [3, 12, 24]" },
        { "mtp-qwen35", "blk.3.nextn.eh_proj.weigh", 0, 'x', "blk.3.nextn.eh_proj.weight is missing" },
        { "mtp-qwen35", "blk.3.nextn.shared_head_norm.weigh", 0, 'x', "shared_head_norm.weight is missing" },
        { "mtp-qwen35", "blk.3.attn_q.weigh", 0, 'x', "blk.3.attn_q.weight is missing" },
        { "mtp-qwen35", "blk.3.nextn.enorm.weight", 4, 27, "blk.3.nextn.enorm.weight is [1, 27]" },
        { "mtp-qwen35", "blk.3.attn_q.weight", 12, 64, "blk.3.attn_q.weight is [64, 28]" },
        { "mtp-qwen35moe", "blk.3.ffn_gate_inp.weight", 12, 4, "blk.3.ffn_gate_inp.weight is [4, 24]" },
        { "mtp-qwen35moe", "blk.3.ffn_down_exps.weight", 20, 3, "is [3, 24, 10]" },
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct changed_file *c = &cases[i];
        char path[512];
        struct buf bytes = { 0 };
        struct model_file *file;
        struct model m;
        struct err err = { 0 };
        snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", c->toy);
        assert_ok(file_read(&bytes, path, 1 << 20, &err), &err);
        if (c->at)
            memcpy(found(&bytes, c->word) + c->at, &c->value, sizeof c->value);
        else
            *found(&bytes, c->word) = (char)c->value;
        *warning = 0;
        log_sink_set(keep_warning, NULL);
        assert_ok(model_file_open_memory(&file, bytes.at, bytes.n, "changed", &err), &err);
        assert_ok(model_bind(&m, file, &err), &err);
        log_sink_set(NULL, NULL);
        assert_int_equal(m.drafts, c->warns == NULL);
        if (c->warns ? !strstr(warning, c->warns) || strchr(warning, '\n') : *warning)
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, warning, c->warns ? c->warns : "");
        model_release(&m);
        model_file_close(file);
        buf_free(&bytes);
    }
}

// Copies the toy's checkpoint with a letter of a name changed.
static void write_folder(const char *folder, const char *toy, const char *word)
{
    static const char *const names[] = { "config.json", "model.safetensors" };

    for (uint32_t i = 0; i < 2; i++) {
        char path[512];
        struct buf bytes = { 0 };
        struct err err = { 0 };
        snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/%s", toy, names[i]);
        assert_ok(file_read(&bytes, path, 1 << 20, &err), &err);
        if (i == 1)
            *found(&bytes, word) = 'x';
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(bytes.at, 1, bytes.n, f), bytes.n);
        fclose(f);
        buf_free(&bytes);
    }
}

static void checkpoints_whose_layer_is_not_whole_run_without_it(void **state)
{
    static const struct changed_file cases[] = {
        { "mtp-qwen35", "mtp.fc.weigh", 0, 0, "tensor mtp.fc.weight is missing; want [28, 28]" },
        { "mtp-qwen35", "mtp.pre_fc_norm_hidden.weigh", 0, 0, "mtp.pre_fc_norm_hidden.weight is missing" },
        { "mtp-qwen35", "mtp.layers.0.self_attn.q_proj.weigh", 0, 0, "self_attn.q_proj.weight is missing" },
        { "mtp-qwen35moe", "mtp.layers.0.mlp.experts.down_pro", 0, 0, "mlp.experts.down_proj is missing" },
    };
    char folder[] = "/tmp/ingot-draft-XXXXXX", command[64];
    (void)state;

    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_file *file;
        struct model m;
        struct err err = { 0 };
        write_folder(folder, cases[i].toy, cases[i].word);
        *warnings = 0;
        log_sink_set(keep_warning, NULL);
        assert_ok(model_file_open(&file, folder, &err), &err);
        assert_ok(model_bind(&m, file, &err), &err);
        log_sink_set(NULL, NULL);
        assert_false(m.drafts);
        if (!strstr(warnings, cases[i].warns))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, warnings, cases[i].warns);
        model_release(&m);
        model_file_close(file);
    }
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void numbers_of_layers_that_cannot_be_are_refused(void **state)
{
    static const struct {
        uint32_t n;
        const char *says;
    } cases[] = {
        { 0, "without them the answers are wrong: blk.2.nextn." }, // then it is the model's own
        { 3, "3 draft layers of 3 layers in all; want fewer" },
        { 9, "9 draft layers of 3 layers in all; want fewer" },
        { 65, "nextn_predict_layers is 65" },
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf bytes = { 0 };
        struct model_file *file;
        struct model m;
        struct err err = { 0 };
        assert_ok(file_read(&bytes, SOURCE_DIR "/tests/golden/mtp-glm4moe/model.gguf", 1 << 20, &err), &err);
        memcpy(found(&bytes, "glm4moe.nextn_predict_layers") + 4, &cases[i].n, 4);
        assert_ok(model_file_open_memory(&file, bytes.at, bytes.n, "changed", &err), &err);
        assert_false(model_bind(&m, file, &err));
        if (!strstr(err.message, cases[i].says) || strchr(err.message, '\n'))
            fail_msg("\"%s\" does not say \"%s\"", err.message, cases[i].says);
        model_file_close(file);
        buf_free(&bytes);
    }
}

// ---- memory

static void its_memory_is_known_before(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_TOYS; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct ingot_memory with, without;
        struct ingot_engine_info info;
        struct ingot_error error;
        char path[512];
        snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", toys[i]);
        o.model = path;
        o.device = "cpu";
        assert_ok(ingot_engine_estimate(&o, &with, &error), &error);
        struct ingot_engine *engine = open_or_fail(&o);
        ingot_engine_info(engine, &info);
        assert_int_equal(info.weight_bytes, with.weight_bytes);
        assert_int_equal(info.page_bytes, with.page_bytes);
        assert_true(info.scratch_bytes <= with.scratch_bytes);
        ingot_engine_close(engine);
        o.speculate = INGOT_SPECULATE_OFF;
        assert_ok(ingot_engine_estimate(&o, &without, &error), &error);
        if (!strstr(toys[i], "qwen35"))
            assert_int_equal(without.page_bytes * 3, with.page_bytes * 2); // two layers, and it
        assert_true(without.page_bytes < with.page_bytes);
        assert_true(without.weight_bytes < with.weight_bytes && without.scratch_bytes < with.scratch_bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_have_the_reference_logits),
        cmocka_unit_test(the_model_gives_the_reference_logits_beside_it),
        cmocka_unit_test(it_drafts_where_nothing_repeats),
        cmocka_unit_test(it_stays_out_of_the_way),
        cmocka_unit_test(layers_that_are_not_whole_are_left_alone),
        cmocka_unit_test(checkpoints_whose_layer_is_not_whole_run_without_it),
        cmocka_unit_test(numbers_of_layers_that_cannot_be_are_refused),
        cmocka_unit_test(its_memory_is_known_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
