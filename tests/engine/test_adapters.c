// test_adapters.c - LoRA adapters in an engine: requests with different ones share steps and get the tokens
// that they get alone, and nothing that was computed with one serves another.
#include <stdlib.h>
#include <unistd.h>
#include "open_engine.h"

#define GOLDEN(path) SOURCE_DIR "/tests/golden/" path
enum { N_PROMPT = 40, N_NEW = 12, MOST = 64 };

static const struct ingot_adapter both[] = {
    { GOLDEN("lora/tinyllama-all/adapter.gguf"), "all", 1 },
    { GOLDEN("lora/tinyllama-root"), NULL, 0.75f },
};
static const struct ingot_adapter_use use_all = { "all", 1 }, use_root = { "tinyllama-root", 1 },
                                      use_both[] = { { "tinyllama-root", -2 }, { "all", 0.5f } };

static char folder[] = "/tmp/ingot-adapters-XXXXXX";

static struct ingot_engine_options options(uint32_t n_adapters)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = GOLDEN("tinyllama/model.gguf");
    o.device = "cpu";
    o.n_threads = 2;
    o.n_sequences = 6;
    o.speculate = INGOT_SPECULATE_OFF;
    o.adapters = both;
    o.n_adapters = n_adapters;
    return o;
}

struct adapted_answer {
    uint32_t tokens[MOST], n, n_reused;
};

struct adapted_request { // of the engine's adapters, a scale each; a prompt begins with token `first`
    const struct ingot_adapter_use *uses;
    size_t n_uses;
    uint32_t first;
    struct ingot_session *session;
};

static struct ingot_request *begin(struct ingot_engine *engine, const struct adapted_request *a)
{
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_error error = { 0 };
    uint32_t tokens[N_PROMPT];

    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = (a->first + i * 37) % 257;
    r.tokens = tokens;
    r.n_tokens = N_PROMPT;
    r.max_tokens = N_NEW;
    r.sampling.temperature = 0;
    r.session = a->session;
    r.adapters = a->uses;
    r.n_adapters = a->n_uses;
    struct ingot_request *request = ingot_submit(engine, &r, &error);
    if (!request)
        fail_msg("%s", error.message);
    return request;
}

static struct adapted_answer take(struct ingot_request *request)
{
    struct adapted_answer got = { .n = 0 };
    struct ingot_event e;

    while (ingot_poll(request, &e)) {
        if (e.token != UINT32_MAX)
            got.tokens[got.n++] = e.token;
        if (e.done) {
            assert_int_equal(e.result->finish, INGOT_FINISH_LENGTH);
            got.n_reused = e.result->n_reused;
        }
    }
    ingot_request_free(request);
    assert_int_equal(got.n, N_NEW);
    return got;
}

static struct adapted_answer ask(struct ingot_engine *engine, const struct adapted_request *a)
{
    struct ingot_request *request = begin(engine, a);
    bool busy = true;

    while (busy)
        assert_true(ingot_step(engine, &busy, NULL));
    return take(request);
}

static void assert_same(const struct adapted_answer *a, const struct adapted_answer *b)
{
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
}

static bool differ(const struct adapted_answer *a, const struct adapted_answer *b)
{
    return memcmp(a->tokens, b->tokens, sizeof a->tokens) != 0;
}

static const struct adapted_request mixed[] = {
    { NULL, 0, 3, NULL },     { &use_all, 1, 3, NULL },  { &use_root, 1, 3, NULL },
    { use_both, 2, 3, NULL }, { &use_all, 1, 50, NULL }, { NULL, 0, 50, NULL },
};
enum { N_MIXED = sizeof mixed / sizeof *mixed };

// Alone in an engine that has nothing else to do, and for the plain ones no adapters at all.
static void requests_of_different_adapters_share_steps(void **state)
{
    struct ingot_engine_options o = options(2), plain = options(0);
    struct ingot_request *requests[N_MIXED];
    struct adapted_answer got[N_MIXED];
    struct ingot_engine_stats stats;
    bool busy = true;

    (void)state;
    o.no_prefix_cache = plain.no_prefix_cache = true;
    struct ingot_engine *together = open_or_fail(&o), *alone = open_or_fail(&o),
                        *without = open_or_fail(&plain);
    for (uint32_t i = 0; i < N_MIXED; i++)
        requests[i] = begin(together, &mixed[i]);
    while (busy)
        assert_true(ingot_step(together, &busy, NULL));
    ingot_engine_stats(together, &stats);
    assert_true(stats.n_steps <= N_NEW + 2); // they shared them
    for (uint32_t i = 0; i < N_MIXED; i++) {
        got[i] = take(requests[i]);
        struct adapted_answer own = ask(mixed[i].n_uses ? alone : without, &mixed[i]);
        assert_same(&got[i], &own);
    }
    for (uint32_t i = 0; i < 4; i++) // of one prompt
        for (uint32_t k = 0; k < i; k++)
            assert_true(differ(&got[i], &got[k]));
    ingot_engine_close(together);
    ingot_engine_close(alone);
    ingot_engine_close(without);
}

// Neither do threads.
static void chunks_and_stages_change_nothing(void **state)
{
    struct ingot_engine_options o = options(2);

    (void)state;
    struct ingot_engine *engine = open_or_fail(&o);
    struct adapted_answer whole = ask(engine, &mixed[3]);
    ingot_engine_close(engine);
    o.n_batch = 5;
    o.n_threads = 1;
    o.stages = "1";
    engine = open_or_fail(&o);
    struct adapted_answer parts = ask(engine, &mixed[3]);
    assert_same(&whole, &parts);
    ingot_engine_close(engine);
}

// Drafts are checked with the request's own adapters.
static void drafts_change_nothing(void **state)
{
    struct ingot_engine_options o = options(2);

    (void)state;
    struct ingot_engine *engine = open_or_fail(&o);
    struct adapted_answer one_by_one = ask(engine, &mixed[2]);
    ingot_engine_close(engine);
    o.speculate = INGOT_SPECULATE_ALWAYS;
    engine = open_or_fail(&o);
    struct adapted_answer drafted = ask(engine, &mixed[2]);
    assert_same(&one_by_one, &drafted);
    ingot_engine_close(engine);
}

static void kept_prompts_serve_the_same_adapters_alone(void **state)
{
    struct ingot_engine_options o = options(2);
    struct ingot_adapter_use weaker = { "all", 0.5f };
    const struct adapted_request other = { &weaker, 1, 3, NULL };

    (void)state;
    struct ingot_engine *engine = open_or_fail(&o);
    for (uint32_t i = 0; i < 4; i++) {
        struct adapted_answer first = ask(engine, &mixed[i]), again = ask(engine, &mixed[i]);
        assert_int_equal(first.n_reused, 0);
        assert_int_equal(again.n_reused, 32);
        assert_same(&first, &again);
    }
    assert_int_equal(ask(engine, &other).n_reused, 0);
    ingot_engine_close(engine);
}

static void a_session_is_read_anew_for_others(void **state)
{
    struct ingot_engine_options o = options(2);
    char path[96];
    struct ingot_error error = { 0 };

    (void)state;
    o.no_prefix_cache = true;
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_session *s = ingot_session_create(engine, &error);
    struct adapted_request plain = { NULL, 0, 3, s }, adapted = { &use_all, 1, 3, s };
    struct adapted_answer fresh = ask(engine, &mixed[1]);
    assert_int_equal(ask(engine, &plain).n_reused, 0);
    assert_true(ask(engine, &plain).n_reused > 0);
    struct adapted_answer after = ask(engine, &adapted);
    assert_int_equal(after.n_reused, 0);
    assert_same(&fresh, &after);
    snprintf(path, sizeof path, "%s/session", folder);
    assert_ok(ingot_session_save(s, path, &error), &error);
    ingot_session_free(s);
    for (uint32_t i = 0; i < 2; i++) {
        struct ingot_session *loaded = ingot_session_load(engine, path, &error);
        assert_non_null(loaded);
        struct adapted_request next = { i ? NULL : &use_all, i ? 0 : 1, 3, loaded };
        struct adapted_answer got = ask(engine, &next);
        assert_true(i ? got.n_reused == 0 : got.n_reused > 0);
        ingot_session_free(loaded);
    }
    unlink(path);
    ingot_engine_close(engine);
}

static void pages_on_disk_serve_the_same_adapters_alone(void **state)
{
    struct ingot_engine_options o = options(2);
    const struct ingot_adapter renamed[] = { { both[1].path, "all", 1 }, { both[0].path, "other", 1 } };
    const struct ingot_adapter_use other = { "other", 1 };

    (void)state;
    o.cache_dir = folder;
    struct ingot_engine *engine = open_or_fail(&o);
    struct adapted_answer first = ask(engine, &mixed[1]);
    ingot_engine_close(engine);
    o.adapters = renamed;
    engine = open_or_fail(&o);
    assert_int_equal(ask(engine, &mixed[0]).n_reused, 0); // none
    assert_int_equal(ask(engine, &mixed[1]).n_reused, 0); // another of that name
    struct adapted_request moved = { &other, 1, 3, NULL };
    struct adapted_answer again = ask(engine, &moved); // that one, by another name
    assert_int_equal(again.n_reused, 32);
    assert_same(&first, &again);
    ingot_engine_close(engine);
    shell("rm %s/*", folder);
}

static void what_is_wrong_is_said(void **state)
{
    struct ingot_engine_options o = options(2);
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_adapter_use use = { "none", 1 };
    struct ingot_adapter twice[] = { both[0], both[0] };
    struct ingot_adapter_info info;
    struct ingot_engine_info engine_info;
    struct ingot_error error;

    (void)state;
    struct ingot_engine *engine = open_or_fail(&o);
    ingot_engine_info(engine, &engine_info);
    assert_int_equal(engine_info.n_adapters, 2);
    assert_true(ingot_adapter_info(engine, 1, &info));
    assert_string_equal(info.name, "tinyllama-root");
    assert_int_equal(info.rank, 4);
    assert_true(info.scale == 0.75f && info.n_matrices > 0);
    assert_false(ingot_adapter_info(engine, 2, &info));
    r.tokens = &(uint32_t){ 1 };
    r.n_tokens = 1;
    r.adapters = &use;
    r.n_adapters = 1;
    assert_fails(ingot_submit(engine, &r, &error), &error,
                 "no adapter is called 'none'; the engine has: all tinyllama-root");
    use = (struct ingot_adapter_use){ "all", 1000 };
    assert_fails(ingot_submit(engine, &r, &error), &error,
                 "the scale of adapter 'all' is 1000; want -100 to 100");
    r.n_adapters = 65;
    assert_fails(ingot_submit(engine, &r, &error), &error, "65 adapters of a request; want at most 64");
    ingot_engine_close(engine);
    o.adapters = twice;
    assert_fails(ingot_engine_open(&o, &error), &error, "two adapters are called 'all'");
    twice[1].name = "a:b";
    assert_fails(ingot_engine_open(&o, &error), &error, "has a blank or a colon");
    twice[1] = (struct ingot_adapter){ GOLDEN("lora/none.gguf"), NULL, 1 };
    assert_fails(ingot_engine_open(&o, &error), &error, "none.gguf");
    twice[1] = (struct ingot_adapter){ GOLDEN("qwen2"), NULL, 1 };
    assert_fails(ingot_engine_open(&o, &error), &error, "no adapter_model.safetensors in this folder");
    twice[1] = (struct ingot_adapter){ both[0].path, "x", 0.0f / 0.0f };
    assert_fails(ingot_engine_open(&o, &error), &error, "the scale is");
    o = options(0);
    o.model = both[0].path;
    assert_fails(ingot_engine_open(&o, &error), &error,
                 "this is an adapter of a llama model; give it with adapters");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_of_different_adapters_share_steps),
        cmocka_unit_test(chunks_and_stages_change_nothing),
        cmocka_unit_test(drafts_change_nothing),
        cmocka_unit_test(kept_prompts_serve_the_same_adapters_alone),
        cmocka_unit_test(a_session_is_read_anew_for_others),
        cmocka_unit_test(pages_on_disk_serve_the_same_adapters_alone),
        cmocka_unit_test(what_is_wrong_is_said),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
