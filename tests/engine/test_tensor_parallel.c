// test_tensor_parallel.c - engines whose ranks have a part of every layer each: the same bits from run to run
// and on all ranks, the text of one device, pages of all ranks that are kept and moved, a rank that fails.
#include <stdlib.h>
#include <unistd.h>
#include "broken_device.h"
#include "engine/api.h"
#include "engine/api/memory_use.h"
#include "engine/api/verify.h"
#include "open_engine.h"

enum { N_PROMPT = 41, N_NEW = 24 };

static struct ingot_engine_options options_of(uint32_t n_ranks)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.device = "cpu";
    o.n_tensor_parallel = n_ranks;
    o.n_threads = 2;
    o.n_context = 256;
    o.n_sequences = 3;
    o.n_batch = 16;
    o.speculate = INGOT_SPECULATE_OFF;
    return o;
}

static struct ingot_engine *open_ranks(uint32_t n_ranks)
{
    struct ingot_engine_options o = options_of(n_ranks);

    o.exact = true;
    return open_or_fail(&o);
}

struct said_by_ranks {
    uint32_t tokens[N_NEW], n, n_reused;
};

static bool keep(void *arg, const struct ingot_event *e)
{
    struct said_by_ranks *to = arg;

    if (e->token != UINT32_MAX && to->n < N_NEW)
        to->tokens[to->n++] = e->token;
    if (e->done)
        to->n_reused = e->result->n_reused;
    return true;
}

static struct ingot_request_options question(uint32_t which, struct ingot_session *session)
{
    static uint32_t prompts[4][N_PROMPT];
    struct ingot_request_options r = greedy_request(prompts[which], N_PROMPT, N_NEW);

    for (uint32_t i = 0; i < N_PROMPT; i++)
        prompts[which][i] = (i * i * 31 + which * 77 + 9) % 500;
    r.session = session;
    return r;
}

static struct said_by_ranks ask(struct ingot_engine *engine, uint32_t which, struct ingot_session *session)
{
    struct ingot_request_options r = question(which, session);
    struct said_by_ranks said = { .n = 0 };
    struct ingot_error error;

    if (!ingot_generate(engine, &r, keep, &said, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(said.n, N_NEW);
    return said;
}

static void the_text_is_one_device_s(void **state)
{
    struct ingot_engine *one = open_ranks(0);
    (void)state;

    for (uint32_t n = 1; n <= 2; n++) {
        struct ingot_engine *many = open_ranks(n);
        for (uint32_t i = 0; i < 4; i++) {
            struct said_by_ranks a = ask(one, i, NULL), b = ask(many, i, NULL);
            assert_memory_equal(a.tokens, b.tokens, sizeof a.tokens);
        }
        assert_int_equal(many->inner.loaded->stages[0].n_others, n - 1);
        ingot_engine_close(many);
    }
    ingot_engine_close(one);
}

struct kept_rows {
    float *logits;
    uint32_t n_vocab, n;
};

static bool keep_logits(void *arg, const struct ingot_event *e)
{
    struct kept_rows *to = arg;

    if (e->logits && to->n < N_PROMPT + N_NEW)
        memcpy(to->logits + (size_t)to->n++ * to->n_vocab, e->logits, to->n_vocab * sizeof(float));
    return true;
}

static struct kept_rows logits_of(const char *device, uint32_t n_threads)
{
    struct ingot_engine_options o = options_of(2);
    struct ingot_engine_info info;
    struct ingot_error error;

    o.device = device;
    o.n_threads = n_threads;
    struct ingot_engine *engine = open_or_fail(&o);
    ingot_engine_info(engine, &info);
    struct kept_rows rows = { calloc((size_t)(N_PROMPT + N_NEW) * info.n_vocab, sizeof(float)), info.n_vocab,
                              0 };
    struct ingot_request_options r = question(0, NULL);
    r.n_logits = N_PROMPT + N_NEW;
    if (!ingot_generate(engine, &r, keep_logits, &rows, NULL, &error))
        fail_msg("%s", error.message);
    assert_true(rows.n >= N_PROMPT);
    ingot_engine_close(engine);
    return rows;
}

// Whatever the threads, and whether one name stands for both ranks.
static void bits_are_the_same_from_run_to_run(void **state)
{
    static const char *const devices[] = { "cpu", "cpu,cpu", "cpu" };
    struct kept_rows first = logits_of("cpu", 2);
    (void)state;

    for (uint32_t i = 0; i < 3; i++) {
        struct kept_rows again = logits_of(devices[i], i + 1);
        assert_int_equal(again.n, first.n);
        assert_memory_equal(again.logits, first.logits,
                            (size_t)first.n * first.n_vocab * sizeof *first.logits);
        free(again.logits);
    }
    free(first.logits);
}

static void all_ranks_hold_the_same_bits(void **state)
{
    struct ingot_engine *engine = open_ranks(2);
    const struct stage *s = &engine->inner.loaded->stages[0];
    (void)state;

    ask(engine, 0, NULL);
    for (uint32_t i = 0; i < s->n_others; i++) // the row of the last step
        assert_memory_equal(s->block.host, s->others[i].block.host,
                            s->parts.model->config.n_cols * sizeof(float));
    ingot_engine_close(engine);
}

// Together they say what each says alone.
static void sequences_run_side_by_side(void **state)
{
    struct ingot_engine *engine = open_ranks(2);
    struct ingot_request *requests[3];
    struct said_by_ranks alone[3], together[3] = { { .n = 0 } };
    struct ingot_error error;
    bool busy = true;
    (void)state;

    for (uint32_t i = 0; i < 3; i++)
        alone[i] = ask(engine, i, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        struct ingot_request_options r = question(i, NULL);
        assert_non_null(requests[i] = ingot_submit(engine, &r, &error));
    }
    while (busy) {
        assert_true(ingot_step(engine, &busy, &error));
        for (uint32_t i = 0; i < 3; i++)
            for (struct ingot_event e; ingot_poll(requests[i], &e);)
                keep(&together[i], &e);
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(together[i].n, N_NEW);
        assert_memory_equal(alone[i].tokens, together[i].tokens, sizeof alone[i].tokens);
        assert_true(together[i].n_reused > 0); // the pages of all ranks
        ingot_request_free(requests[i]);
    }
    ingot_engine_close(engine);
}

// A session's pages go to a file and come back, those of every rank.
static void sessions_move_with_all_ranks_pages(void **state)
{
    char folder[] = "/tmp/ingot-ranks-XXXXXX", path[64];
    struct ingot_error error;
    (void)state;

    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/session", folder);
    struct ingot_engine *a = open_ranks(2), *b = open_ranks(2), *one = open_ranks(0);
    struct ingot_session *of_a = ingot_session_create(a, &error), *of_one;
    ask(a, 0, of_a);
    assert_true(ingot_session_save(of_a, path, &error));
    struct said_by_ranks want = ask(a, 1, of_a);
    struct ingot_session *of_b = ingot_session_load(b, path, &error);
    if (!of_b)
        fail_msg("%s", error.message);
    struct said_by_ranks got = ask(b, 1, of_b);
    assert_memory_equal(want.tokens, got.tokens, sizeof want.tokens);
    of_one = ingot_session_load(one, path, &error); // heads lie elsewhere in a page
    assert_null(of_one);
    assert_non_null(strstr(error.message, "session"));
    ingot_session_free(of_a);
    ingot_session_free(of_b);
    ingot_engine_close(a);
    ingot_engine_close(b);
    ingot_engine_close(one);
    unlink(path);
    rmdir(folder);
}

static struct said_by_ranks with_folder(const char *folder, uint32_t n_ranks)
{
    struct ingot_engine_options o = options_of(n_ranks);

    o.exact = true;
    o.cache_dir = folder;
    struct ingot_engine *engine = open_or_fail(&o);
    struct said_by_ranks said = ask(engine, 2, NULL);
    ingot_engine_close(engine);
    return said;
}

static void pages_outlive_the_engine(void **state)
{
    char folder[] = "/tmp/ingot-ranks-XXXXXX";
    (void)state;

    assert_non_null(mkdtemp(folder));
    struct said_by_ranks first = with_folder(folder, 2), again = with_folder(folder, 2),
                         one = with_folder(folder, 0);
    assert_int_equal(first.n_reused, 0);
    assert_true(again.n_reused > 0);
    assert_int_equal(one.n_reused, 0); // other pages
    assert_memory_equal(first.tokens, again.tokens, sizeof first.tokens);
    shell("rm -r %s", folder);
}

enum { MOST_COLS = 512 };

static bool keep_vector(void *arg, const struct ingot_event *e)
{
    if (e->done && e->embedding)
        memcpy(arg, e->embedding, MOST_COLS / 2 * sizeof(float));
    return true;
}

static void vector_of(uint32_t n_ranks, enum ingot_embed kind, float *to)
{
    struct ingot_engine *engine = open_ranks(n_ranks);
    struct ingot_request_options r = question(0, NULL);
    struct ingot_engine_info info;
    struct ingot_error error;

    ingot_engine_info(engine, &info);
    assert_int_equal(info.n_embedding, MOST_COLS / 2);
    r.embed = kind;
    if (!ingot_generate(engine, &r, keep_vector, to, NULL, &error))
        fail_msg("%s", error.message);
    ingot_engine_close(engine);
}

// All ranks have the rows that are pooled.
static void embeddings_are_one_device_s(void **state)
{
    static const enum ingot_embed kinds[] = { INGOT_EMBED_MEAN, INGOT_EMBED_LAST };
    (void)state;

    for (uint32_t k = 0; k < 2; k++) {
        float one[MOST_COLS] = { 0 }, many[MOST_COLS] = { 0 };
        double length = 0, error = 0;
        vector_of(0, kinds[k], one);
        vector_of(2, kinds[k], many);
        for (uint32_t i = 0; i < MOST_COLS; i++) {
            length += (double)one[i] * one[i];
            error += ((double)one[i] - many[i]) * ((double)one[i] - many[i]);
        }
        assert_true(length > 0.99 && length < 1.01 && error <= 1e-9);
    }
}

static struct said_by_ranks with_drafts(const char *draft, uint64_t *n_drafted)
{
    struct ingot_engine_options o = options_of(2);
    struct ingot_engine_stats stats;

    o.exact = true;
    o.draft = draft;
    o.speculate = INGOT_SPECULATE_ALWAYS;
    struct ingot_engine *engine = open_or_fail(&o);
    struct said_by_ranks said = ask(engine, 3, NULL);
    ingot_engine_stats(engine, &stats);
    *n_drafted = stats.n_drafted;
    ingot_engine_close(engine);
    return said;
}

// A draft model is whole, on the first device.
static void drafts_change_nothing(void **state)
{
    static const char shipped[] = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    struct ingot_engine *plain = open_ranks(2);
    struct said_by_ranks want = ask(plain, 3, NULL);
    uint64_t n_drafted;
    (void)state;

    ingot_engine_close(plain);
    struct said_by_ranks got = with_drafts(shipped, &n_drafted);
    assert_true(n_drafted > 0);
    assert_memory_equal(got.tokens, want.tokens, sizeof got.tokens);
}

static void the_layer_that_drafts_is_left_out(void **state)
{
    struct ingot_engine_options o = options_of(2);
    struct ingot_error error;
    struct ingot_request_options r = question(0, NULL);
    uint32_t tokens[] = { 5, 9, 12, 40, 7 };
    (void)state;

    o.model = SOURCE_DIR "/tests/golden/mtp-glm4moe/model.gguf";
    o.n_context = 128;
    o.speculate = INGOT_SPECULATE_AUTO;
    struct ingot_engine *engine = open_or_fail(&o);
    assert_true(engine->inner.loaded->model.drafts);
    assert_null(engine->inner.draft_stage);
    r.tokens = tokens;
    r.n_tokens = 5;
    assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, &error));
    ingot_engine_close(engine);
}

static void encoders_are_refused(void **state)
{
    struct ingot_engine_options o = options_of(2);
    struct ingot_error error;
    (void)state;

    o.model = SOURCE_DIR "/tests/golden/embed-bge";
    assert_null(ingot_engine_open(&o, &error));
    assert_non_null(strstr(error.message, "n_tensor_parallel does not cut encoders yet; leave it out"));
}

// What is told beforehand is what the ranks take: all weights once but those that every rank has.
static void memory_is_counted_for_all_ranks(void **state)
{
    struct ingot_engine_options o = options_of(2), whole = options_of(0);
    struct ingot_memory need, alone;
    struct ingot_error error;
    (void)state;

    o.exact = whole.exact = true;
    assert_true(ingot_engine_estimate(&o, &need, &error));
    assert_true(ingot_engine_estimate(&whole, &alone, &error));
    struct ingot_engine *engine = open_or_fail(&o);
    struct memory_use use = memory_use_of(engine);
    struct ingot_engine_info info;
    ingot_engine_info(engine, &info);
    const struct engine_loaded *l = engine->inner.loaded;
    assert_int_equal(need.page_bytes, use.pages);
    assert_int_equal(need.page_bytes, alone.page_bytes);
    assert_true(need.weight_bytes > alone.weight_bytes);
    assert_in_range(need.scratch_bytes, info.scratch_bytes, 1 << 30);
    uint64_t pages = l->stages[0].n_others ? stage_page_bytes(&l->stages[0].others[0]) : 0;
    assert_true(pages > 0 && pages < use.pages);
    assert_true(strncmp(info.device, "cpu + cpu: a part of every layer on each, ", 42) == 0);
    assert_int_equal(info.page_bytes, use.pages);
    ingot_engine_close(engine);
}

// ---- errors

// In the middle of a step, at any of its collectives: the others do not wait for ever, the request ends.
static void a_rank_that_fails_ends_the_step(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 12; i++) {
        struct ingot_engine *engine = open_ranks(2);
        struct device *d = engine->inner.loaded->devices.at[i % 2];
        struct ingot_error error = { 0 };
        struct ingot_request_options r = question(0, NULL);
        struct said_by_ranks said = { .n = 0 };
        char part[64];
        device_break(d, i * i);
        assert_false(ingot_generate(engine, &r, keep, &said, NULL, &error));
        assert_int_equal(error.code, INGOT_DEVICE);
        snprintf(part, sizeof part, "rank %u of 2: cpu: a step failed: it is broken", i % 2);
        assert_non_null(strstr(error.message, part));
        assert_false(ingot_generate(engine, &r, keep, &said, NULL, &error)); // and stays so
        device_mend(d);
        ingot_engine_close(engine);
    }
}

static void options_that_do_not_go_with_it_are_named(void **state)
{
    struct ingot_engine_options o[] = { options_of(2), options_of(2), options_of(2), options_of(2),
                                        options_of(9) };
    static const char *const parts[] = {
        "stages", "experts", "cpu and cpu:plain, which are not alike",
        "devices \"cpu,cpu,cpu\" for 2 ranks; want one for each, or one for all",
        "n_tensor_parallel is 9; want at most 8"
    };
    (void)state;

    o[0].stages = "1";
    o[1].experts = "cpu";
    o[2].device = "cpu,cpu:plain";
    o[3].device = "cpu,cpu,cpu";
    for (size_t i = 0; i < sizeof o / sizeof *o; i++) {
        struct ingot_error error = { 0 };
        struct ingot_memory memory;
        assert_null(ingot_engine_open(&o[i], &error));
        if (!strstr(error.message, parts[i]))
            fail_msg("message '%s' does not contain '%s'", error.message, parts[i]);
        if (i != 2) // of which the memory can be told
            assert_false(ingot_engine_estimate(&o[i], &memory, &error));
    }
}

struct ranks_seen {
    uint32_t n_commands[5]; // by rank
};

static bool see(void *arg, const struct verify_finding *f)
{
    struct ranks_seen *seen = arg;

    assert_int_equal(f->stage, 0);
    seen->n_commands[f->rank]++;
    if (!(f->error <= f->limit))
        fail_msg("rank %u, %s %s: error %g, limit %g", f->rank, f->name, f->label, f->error, f->limit);
    return true;
}

static void every_rank_s_commands_agree_with_the_plain_loops(void **state)
{
    static const struct {
        const char *model;
        uint32_t n_ranks;
    } cases[] = { { NULL, 2 },
                  { SOURCE_DIR "/tests/golden/llama3/model.gguf", 3 },
                  { SOURCE_DIR "/tests/golden/qwen2moe/model.gguf", 4 } };
    (void)state;

    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        struct ranks_seen seen = { { 0 } };
        struct ingot_engine_options o = options_of(cases[i / 2].n_ranks);
        struct verification v = { .n_rows = 13, .on_command = see, .arg = &seen, .n_bad = 1 };
        struct err err = { 0 };
        o.model = cases[i / 2].model;
        o.exact = i % 2;
        assert_ok(engine_verify(&o, &v, &err), &err);
        assert_int_equal(v.n_bad, 0);
        for (uint32_t r = 0; r < 5; r++) // the first one draws the token, too
            assert_true(r < o.n_tensor_parallel
                            ? seen.n_commands[r] > 10 && seen.n_commands[r] <= seen.n_commands[0]
                            : seen.n_commands[r] == 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_is_one_device_s),
        cmocka_unit_test(bits_are_the_same_from_run_to_run),
        cmocka_unit_test(all_ranks_hold_the_same_bits),
        cmocka_unit_test(sequences_run_side_by_side),
        cmocka_unit_test(sessions_move_with_all_ranks_pages),
        cmocka_unit_test(pages_outlive_the_engine),
        cmocka_unit_test(embeddings_are_one_device_s),
        cmocka_unit_test(drafts_change_nothing),
        cmocka_unit_test(the_layer_that_drafts_is_left_out),
        cmocka_unit_test(encoders_are_refused),
        cmocka_unit_test(memory_is_counted_for_all_ranks),
        cmocka_unit_test(a_rank_that_fails_ends_the_step),
        cmocka_unit_test(options_that_do_not_go_with_it_are_named),
        cmocka_unit_test(every_rank_s_commands_agree_with_the_plain_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
