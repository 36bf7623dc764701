// test_latent_pages.c - pages of keys without values (latent attention) in the engine: what they weigh,
// shared prefixes, pages on disk, sessions in files, pauses, stages; answers have the bits that they have
// without all that.
#include "folder.h"
#include "open_engine.h"

#define MODEL SOURCE_DIR "/tests/golden/deepseek3/model.gguf"
enum { N_PROMPT = 70, N_NEW = 8, N_VOCAB = 257, N_AT_ONCE = 6, N_SHORT = 28, MOST_STEPS = 2000 };
enum { N_LAYERS = 3, KEY_DIMS = 36 + 10 }; // of the model

static struct ingot_engine_options options(void)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = MODEL;
    o.device = "cpu";
    o.n_threads = 1;
    o.n_context = 96;
    return o;
}

struct latent_answer {
    float logits[N_NEW][N_VOCAB];
    uint32_t n;
};

static bool record(void *arg, const struct ingot_event *e)
{
    struct latent_answer *a = arg;

    if (e->logits && a->n < N_NEW)
        memcpy(a->logits[a->n++], e->logits, sizeof a->logits[0]);
    return true;
}

static struct ingot_request_options request(uint32_t tokens[N_PROMPT], uint32_t which)
{
    struct ingot_request_options r = greedy_request(tokens, N_PROMPT, N_NEW);

    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = ((i < 48 ? 0 : which * 7919) + i * 31 + 5) % 250; // three pages are everybody's
    r.n_logits = 1;
    return r;
}

// Returns how many of the prompt's tokens were known.
static uint32_t ask(struct ingot_engine *engine, struct ingot_session *session, uint32_t which,
                    struct latent_answer *a)
{
    uint32_t tokens[N_PROMPT];
    struct ingot_request_options r = request(tokens, which);
    struct ingot_result result;
    struct ingot_error error = { 0 };

    r.session = session;
    memset(a, 0, sizeof *a);
    if (!ingot_generate(engine, &r, record, a, &result, &error))
        fail_msg("%s", error.message);
    return result.n_reused;
}

static uint32_t ask_new(const struct ingot_engine_options *o, uint32_t which, struct latent_answer *a)
{
    struct ingot_engine *engine = open_or_fail(o);
    uint32_t n = ask(engine, NULL, which, a);

    ingot_engine_close(engine);
    return n;
}

static void pages_weigh_what_they_hold(void **state)
{
    static const struct {
        enum ingot_kv type;
        uint32_t bytes;
    } types[] = { { INGOT_KV_F32, 4 }, { INGOT_KV_F16, 2 }, { INGOT_KV_BF16, 2 } };

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        struct ingot_engine_options o = options();
        struct ingot_memory memory;
        struct ingot_engine_info info;
        struct ingot_error error;
        o.cache_type_k = types[i].type;
        o.cache_type_v = INGOT_KV_Q8_0; // there is none
        assert_ok(ingot_engine_estimate(&o, &memory, &error), &error);
        assert_int_equal(memory.page_bytes, N_LAYERS * 96 * KEY_DIMS * types[i].bytes);
        struct ingot_engine *engine = open_or_fail(&o);
        ingot_engine_info(engine, &info);
        assert_int_equal(info.page_bytes, memory.page_bytes);
        ingot_engine_close(engine);
    }
}

static void a_prefix_is_shared(void **state)
{
    struct ingot_engine_options o = options();
    struct latent_answer alone, after;
    struct ingot_engine *engine;

    (void)state;
    ask_new(&o, 2, &alone);
    engine = open_or_fail(&o);
    assert_int_equal(ask(engine, NULL, 1, &after), 0);
    assert_int_equal(ask(engine, NULL, 2, &after), 48);
    assert_memory_equal(&alone, &after, sizeof alone);
    ingot_engine_close(engine);
}

static void pages_outlive_the_process(void **state)
{
    struct ingot_engine_options o = options(), none = o;
    struct latent_answer cold, warm;

    (void)state;
    o.cache_dir = folder;
    ask_new(&none, 1, &cold);
    assert_int_equal(ask_new(&o, 1, &warm), 0);
    assert_memory_equal(&cold, &warm, sizeof cold);
    assert_int_equal(ask_new(&o, 1, &warm), 64);
    assert_memory_equal(&cold, &warm, sizeof cold);
    o.stages = "1";
    assert_int_equal(ask_new(&o, 1, &warm), 64);
    assert_memory_equal(&cold, &warm, sizeof cold);
}

static void a_session_goes_on_from_its_file(void **state)
{
    struct ingot_engine_options o = options();
    struct ingot_error error = { 0 };
    struct latent_answer first, second;
    char path[64];

    (void)state;
    snprintf(path, sizeof path, "%s/session", folder);
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_session *session = ingot_session_create(engine, &error);
    ask(engine, session, 1, &first);
    assert_ok(ingot_session_save(session, path, &error), &error);
    ask(engine, session, 2, &first);
    ingot_session_free(session);
    ingot_engine_close(engine);
    engine = open_or_fail(&o);
    session = ingot_session_load(engine, path, &error);
    assert_non_null(session);
    assert_true(ask(engine, session, 2, &second) > 0);
    assert_memory_equal(&first, &second, sizeof first);
    ingot_session_free(session);
    ingot_engine_close(engine);
}

// Six prompts of two pages, answers that need a third, and eleven pages: some are paused and go on, and
// nobody's logits change.
static void a_paused_request_goes_on(void **state)
{
    struct ingot_engine_options o = options();
    struct latent_answer alone[N_AT_ONCE] = { 0 }, together[N_AT_ONCE] = { 0 };
    struct ingot_request *requests[N_AT_ONCE];
    struct ingot_engine_stats stats;
    struct ingot_engine *one = open_or_fail(&o);
    uint32_t tokens[N_AT_ONCE][N_PROMPT], n_steps = 0;
    bool busy = true;

    (void)state;
    o.n_sequences = N_AT_ONCE;
    o.n_kv_tokens = 176;
    struct ingot_engine *engine = open_or_fail(&o);
    for (uint32_t i = 0; i < N_AT_ONCE; i++) {
        struct ingot_request_options r = request(tokens[i], i + 1);
        r.tokens += N_PROMPT - N_SHORT;
        r.n_tokens = N_SHORT;
        assert_true(ingot_generate(one, &r, record, &alone[i], NULL, NULL));
        requests[i] = ingot_submit(engine, &r, NULL);
        assert_non_null(requests[i]);
    }
    while (busy) {
        assert_true(++n_steps < MOST_STEPS);
        assert_true(ingot_step(engine, &busy, NULL));
        for (uint32_t i = 0; i < N_AT_ONCE; i++)
            for (struct ingot_event e; ingot_poll(requests[i], &e);)
                record(&together[i], &e);
    }
    ingot_engine_stats(engine, &stats);
    assert_true(stats.n_pauses > 0);
    for (uint32_t i = 0; i < N_AT_ONCE; i++) {
        assert_memory_equal(&alone[i], &together[i], sizeof alone[i]);
        ingot_request_free(requests[i]);
    }
    ingot_engine_close(engine);
    ingot_engine_close(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_weigh_what_they_hold), cmocka_unit_test(a_prefix_is_shared),
        cmocka_unit_test(pages_outlive_the_process),  cmocka_unit_test(a_session_goes_on_from_its_file),
        cmocka_unit_test(a_paused_request_goes_on),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
