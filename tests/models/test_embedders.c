// test_embedders.c - embedding models and rerankers against vectors of a second implementation, from both
// file formats.
#include "models/golden_embed.h"

static const struct embed_way ways[] = { { "/model.gguf", "cpu:plain", true },
                                         { "", "cpu:plain", true },
                                         { "/model.gguf", "cpu", true },
                                         { "", "cpu", false } };

static void check_ways(const char *folder, enum ingot_embed kind)
{
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        check_embed(folder, &ways[i], kind);
}

static void decoders_pool_their_last_row(void **state)
{
    (void)state;
    check_ways("embed-qwen3", INGOT_EMBED_MODEL);
    check_ways("rerank-qwen3", INGOT_EMBED_RANK);
}

static void encoders_see_a_whole_text(void **state)
{
    static const char *const folders[] = { "embed-bert", "embed-bge", "embed-e5", "embed-nomic",
                                           "embed-gemma" };

    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
        check_ways(folders[i], INGOT_EMBED_MODEL);
    check_ways("rerank-bge", INGOT_EMBED_RANK);
}

// Texts that share a step do not see each other: the same bits as alone, on any number of threads.
static void texts_of_a_step_do_not_see_each_other(void **state)
{
    static const char *const folders[] = { "embed-bert", "embed-nomic", "embed-gemma" };
    const uint32_t tokens[] = { 9, 70, 31, 5, 5, 120, 44, 8, 16, 99, 23, 77, 6, 14, 100, 7, 41 };
    enum { N = 6 };

    (void)state;
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct ingot_request_options r[N];
        struct ingot_request *running[N];
        struct ingot_error error = { 0 };
        char path[512];
        snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", folders[f]);
        o.model = path;
        o.device = "cpu";
        o.n_threads = 1;
        struct ingot_engine *alone = open_or_fail(&o);
        o.n_threads = 2;
        o.n_sequences = N;
        struct ingot_engine *together = open_or_fail(&o);
        for (uint32_t i = 0; i < N; i++) {
            r[i] = ingot_request_defaults();
            r[i].tokens = tokens + i;
            r[i].n_tokens = 1 + 2 * i;
            r[i].embed = INGOT_EMBED_MODEL;
            running[i] = ingot_submit(together, &r[i], &error);
            assert_non_null(running[i]);
        }
        for (uint32_t i = 0; i < N; i++) {
            struct taken one = embed(alone, &r[i]), other = { .n = 0 };
            struct ingot_event event = { 0 };
            while (!event.done && ingot_wait(together, running[i], UINT32_MAX))
                while (ingot_poll(running[i], &event) && !event.done)
                    ;
            assert_true(event.done);
            take(&other, &event);
            assert_int_equal(other.n, one.n);
            assert_memory_equal(other.numbers, one.numbers, one.n * sizeof(float));
            ingot_request_free(running[i]);
        }
        struct ingot_engine_stats stats;
        ingot_engine_stats(together, &stats);
        assert_int_equal(stats.n_steps, 1);
        ingot_engine_close(alone);
        ingot_engine_close(together);
    }
}

static void an_encoder_generates_nothing(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };
    uint32_t tokens[49] = { 1 };

    (void)state;
    o.model = SOURCE_DIR "/tests/golden/embed-bert/model.gguf";
    o.device = "cpu";
    struct ingot_engine *engine = open_or_fail(&o);
    r.tokens = tokens;
    r.n_tokens = 4;
    assert_null(ingot_submit(engine, &r, &error));
    assert_non_null(strstr(error.message, "generate no text"));
    r.embed = INGOT_EMBED_RANK;
    assert_null(ingot_submit(engine, &r, &error));
    assert_non_null(strstr(error.message, "no reranker"));
    r.n_tokens = 48;
    r.embed = INGOT_EMBED_MODEL;
    assert_int_equal(embed(engine, &r).n, 30); // the whole context
    r.n_tokens = 49;
    assert_null(ingot_submit(engine, &r, &error));
    assert_non_null(strstr(error.message, "49 tokens and the context holds 48"));
    r.n_tokens = 3;
    r.n_logits = 1;
    assert_null(ingot_submit(engine, &r, &error));
    ingot_engine_close(engine);
    o.n_context = 49;
    assert_null(ingot_engine_open(&o, &error));
    assert_non_null(strstr(error.message, "positions for 48"));
}

// Norms that a checkpoint holds without their 1 count as the layers see them.
static void embeddings_of_gemma_are_the_same_from_both_formats(void **state)
{
    const uint32_t tokens[] = { 9, 70, 31, 5, 120 };
    struct taken got[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct ingot_request_options r = ingot_request_defaults();
        o.model = i ? SOURCE_DIR "/tests/golden/gemma3" : SOURCE_DIR "/tests/golden/gemma3/model.gguf";
        o.device = "cpu";
        o.exact = true;
        struct ingot_engine *engine = open_or_fail(&o);
        r.tokens = tokens;
        r.n_tokens = 5;
        r.embed = INGOT_EMBED_MODEL;
        got[i] = embed(engine, &r);
        ingot_engine_close(engine);
    }
    assert_true(distance(got[0].numbers, got[1].numbers, (uint32_t)got[0].n) < 1e-9);
}

// dimensions are cut before the length becomes 1, and the length can be left.
static void dimensions_are_cut_before_the_length(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };
    uint32_t tokens[] = { 7, 11, 5, 90 };
    double squares = 0, short_squares = 0;

    (void)state;
    o.model = SOURCE_DIR "/tests/golden/embed-qwen3";
    o.device = "cpu";
    struct ingot_engine *engine = open_or_fail(&o);
    r.tokens = tokens;
    r.n_tokens = 4;
    r.embed = INGOT_EMBED_MODEL;
    r.n_dimensions = 5;
    struct taken cut = embed(engine, &r);
    r.n_dimensions = 0;
    r.no_normalize = true;
    struct taken raw = embed(engine, &r);
    assert_int_equal(cut.n, 5);
    assert_int_equal(raw.n, 24);
    for (size_t i = 0; i < 24; i++)
        squares += (double)raw.numbers[i] * raw.numbers[i];
    for (size_t i = 0; i < 5; i++)
        short_squares += (double)raw.numbers[i] * raw.numbers[i];
    assert_true(fabs(squares - 1) > 0.1);
    for (size_t i = 0; i < 5; i++)
        assert_true(fabs(cut.numbers[i] - raw.numbers[i] / sqrt(short_squares)) < 1e-6);
    r.n_dimensions = 25;
    assert_null(ingot_submit(engine, &r, &error));
    assert_string_equal(error.message, "dimensions is 25; this model's embeddings have 24");
    ingot_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoders_pool_their_last_row),
        cmocka_unit_test(encoders_see_a_whole_text),
        cmocka_unit_test(texts_of_a_step_do_not_see_each_other),
        cmocka_unit_test(an_encoder_generates_nothing),
        cmocka_unit_test(embeddings_of_gemma_are_the_same_from_both_formats),
        cmocka_unit_test(dimensions_are_cut_before_the_length),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
