// test_states.c - models whose layers carry a state: the same bits in any chunks and any company, from a kept
// state, after a pause, from disk and from a session's file.
#include "folder.h"
#include "open_engine.h"

enum { MOST = 224, N_NEW = 6, N_COMPARED = 96, MOST_STEPS = 2000 };

static const char *const models[] = { "lfm2",          "lfm2moe",           "qwen35",    "qwen35moe",
                                      "granitehybrid", "granitehybrid-moe", "nemotronh", "nemotronh-moe" };
enum { N_MODELS = sizeof models / sizeof *models };

static struct ingot_engine_options options_of(const char *model)
{
    static char path[512];
    struct ingot_engine_options o = ingot_engine_defaults();

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", model);
    o.model = path;
    o.device = "cpu";
    o.n_threads = 1;
    o.n_context = 256;
    o.step_stretch = 0;
    return o;
}

struct answer {
    uint32_t tokens[N_NEW], n, n_reused, n_pauses;
    float logits[N_NEW][N_COMPARED];
};

static bool keep(void *arg, const struct ingot_event *e)
{
    struct answer *a = arg;

    if (e->logits && a->n < N_NEW)
        memcpy(a->logits[a->n], e->logits, sizeof a->logits[0]);
    if (e->token != UINT32_MAX)
        a->tokens[a->n++] = e->token;
    if (e->done) {
        a->n_reused = e->result->n_reused;
        a->n_pauses = e->result->n_pauses;
        assert_int_equal(e->result->finish, INGOT_FINISH_LENGTH);
    }
    return true;
}

static struct ingot_request_options request_of(const uint32_t *tokens, uint32_t n)
{
    struct ingot_request_options o = greedy_request(tokens, n, N_NEW);

    o.n_logits = 1;
    return o;
}

static struct answer ask(struct ingot_engine *engine, struct ingot_session *session, const uint32_t *tokens,
                         uint32_t n)
{
    struct ingot_request_options o = request_of(tokens, n);
    struct answer a = { .n = 0 };
    struct ingot_error error = { 0 };

    o.session = session;
    if (!ingot_generate(engine, &o, keep, &a, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(a.n, N_NEW);
    return a;
}

static void fill(uint32_t *tokens, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (i * 104729 + seed * 7919 + 11) % 131;
}

// In an engine of its own, all rows in one step.
static struct answer ask_alone(const char *model, const uint32_t *tokens, uint32_t n)
{
    struct ingot_engine_options o = options_of(model);
    struct ingot_engine *engine = open_or_fail(&o);
    struct answer a = ask(engine, NULL, tokens, n);

    ingot_engine_close(engine);
    return a;
}

static void assert_same(const struct answer *a, const struct answer *b)
{
    assert_memory_equal(a->tokens, b->tokens, sizeof a->tokens);
    assert_memory_equal(a->logits, b->logits, sizeof a->logits);
}

static void any_chunks_give_the_same_bits(void **state)
{
    static const uint32_t lengths[] = { 1, 2, 3, 4, 63, 64, 65, 200 }, chunks[] = { 1, 3, 17, 64 };
    uint32_t tokens[MOST];

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++)
        for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            fill(tokens, lengths[i], i);
            struct answer whole = ask_alone(models[m], tokens, lengths[i]);
            for (uint32_t c = 0; c < sizeof chunks / sizeof *chunks; c++) {
                struct ingot_engine_options o = options_of(models[m]);
                o.n_batch = chunks[c];
                struct ingot_engine *engine = open_or_fail(&o);
                struct answer parts = ask(engine, NULL, tokens, lengths[i]);
                assert_same(&whole, &parts);
                ingot_engine_close(engine);
            }
        }
}

static void stages_and_threads_give_the_same_bits(void **state)
{
    uint32_t tokens[MOST];

    (void)state;
    fill(tokens, 150, 3);
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct answer whole = ask_alone(models[m], tokens, 150);
        struct ingot_engine_options o = options_of(models[m]);
        o.stages = "1,2";
        o.n_threads = 3;
        o.n_batch = 50;
        struct ingot_engine *engine = open_or_fail(&o);
        struct answer split = ask(engine, NULL, tokens, 150);
        assert_same(&whole, &split);
        ingot_engine_close(engine);
    }
}

// ---- many at once

enum { N_AT_ONCE = 5 };

static void run_all(struct ingot_engine *engine, struct ingot_request **requests, struct answer *answers,
                    uint32_t n)
{
    bool busy = true;

    for (uint32_t steps = 0; busy; steps++) {
        assert_true(steps < MOST_STEPS);
        assert_true(ingot_step(engine, &busy, NULL));
        for (uint32_t i = 0; i < n; i++) {
            struct ingot_event e;
            while (requests[i] && ingot_poll(requests[i], &e))
                keep(&answers[i], &e);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        if (requests[i])
            ingot_request_free(requests[i]);
}

static void check_company(const char *model, const struct ingot_engine_options *o, uint32_t *n_pauses)
{
    static const uint32_t lengths[N_AT_ONCE] = { 200, 7, 64, 130, 90 };
    uint32_t tokens[N_AT_ONCE][MOST];
    struct answer answers[N_AT_ONCE] = { 0 };
    struct ingot_request *requests[N_AT_ONCE];
    struct ingot_engine *engine = open_or_fail(o);
    struct ingot_error error;
    bool busy;

    for (uint32_t i = 0; i < N_AT_ONCE; i++) {
        fill(tokens[i], lengths[i], 40 + i);
        struct ingot_request_options r = request_of(tokens[i], lengths[i]);
        r.priority = -(int32_t)i; // whoever comes later is served first
        if (!(requests[i] = ingot_submit(engine, &r, &error)))
            fail_msg("%s", error.message);
        for (uint32_t s = 0; s < 3; s++)
            assert_true(ingot_step(engine, &busy, NULL));
    }
    run_all(engine, requests, answers, N_AT_ONCE);
    for (uint32_t i = 0; i < N_AT_ONCE; i++) {
        struct answer alone = ask_alone(model, tokens[i], lengths[i]);
        assert_same(&alone, &answers[i]);
        *n_pauses += answers[i].n_pauses;
    }
    ingot_engine_close(engine);
}

static void company_does_not_change_a_bit(void **state)
{
    uint32_t n_pauses = 0;

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(models[m]);
        o.n_sequences = N_AT_ONCE;
        o.n_batch = 29;
        check_company(models[m], &o, &n_pauses);
    }
}

// Two slots and few pages: some give way and begin again.
static void a_pause_does_not_change_a_bit(void **state)
{
    uint32_t n_pauses = 0;

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(models[m]);
        o.n_sequences = 2;
        o.n_kv_tokens = 320;
        o.n_batch = 29;
        check_company(models[m], &o, &n_pauses);
    }
    assert_true(n_pauses > 0);
}

// ---- kept states

static void a_prompt_goes_on_from_a_kept_state(void **state)
{
    uint32_t tokens[MOST];

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(models[m]);
        struct ingot_engine *engine = open_or_fail(&o);
        fill(tokens, 200, 5);
        ask(engine, NULL, tokens, 200);
        struct answer again = ask(engine, NULL, tokens, 200), alone = ask_alone(models[m], tokens, 200);
        assert_int_equal(again.n_reused, 192); // the last multiple of 64
        assert_same(&again, &alone);
        assert_int_equal(ingot_prompt_kept(engine, tokens, 200, NULL), 192);

        // Another end: pages as far as 144, but no state. The next one like it finds what this one left.
        fill(tokens + 150, 50, 6);
        struct answer branch = ask(engine, NULL, tokens, 200);
        assert_int_equal(branch.n_reused, 0);
        fill(tokens + 150, 50, 7);
        struct answer other = ask(engine, NULL, tokens, 200);
        assert_int_equal(other.n_reused, 128);
        alone = ask_alone(models[m], tokens, 200);
        assert_same(&other, &alone);
        ingot_engine_close(engine);
    }
}

// The same state twice at once.
static void two_go_on_from_one_state(void **state)
{
    uint32_t tokens[2][MOST];
    struct ingot_request *requests[2];
    struct answer answers[2] = { 0 };
    struct ingot_engine_options o = options_of("lfm2");
    struct ingot_error error;

    (void)state;
    o.n_sequences = 2;
    o.n_batch = 24;
    struct ingot_engine *engine = open_or_fail(&o);
    fill(tokens[0], 170, 8);
    ask(engine, NULL, tokens[0], 170);
    memcpy(tokens[1], tokens[0], sizeof tokens[0]);
    fill(tokens[1] + 140, 30, 9);
    for (uint32_t i = 0; i < 2; i++) {
        struct ingot_request_options r = request_of(tokens[i], 170);
        if (!(requests[i] = ingot_submit(engine, &r, &error)))
            fail_msg("%s", error.message);
    }
    run_all(engine, requests, answers, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct answer alone = ask_alone("lfm2", tokens[i], 170);
        assert_int_equal(answers[i].n_reused, 128);
        assert_same(&answers[i], &alone);
    }
    ingot_engine_close(engine);
}

// Prompts that come together and begin alike: one reads what they share, and keeps a state there for the
// others.
static void prompts_that_come_together_share_a_state(void **state)
{
    uint32_t tokens[3][MOST];
    struct ingot_request *requests[3];
    struct answer answers[3] = { 0 };
    struct ingot_engine_options o = options_of("lfm2");
    struct ingot_error error;

    (void)state;
    o.n_sequences = 3;
    o.n_batch = 40;
    struct ingot_engine *engine = open_or_fail(&o);
    for (uint32_t i = 0; i < 3; i++) {
        fill(tokens[i], 190, 16);
        fill(tokens[i] + 150, 40, 17 + i);
        struct ingot_request_options r = request_of(tokens[i], 190);
        if (!(requests[i] = ingot_submit(engine, &r, &error)))
            fail_msg("%s", error.message);
    }
    run_all(engine, requests, answers, 3);
    for (uint32_t i = 0; i < 3; i++) {
        struct answer alone = ask_alone("lfm2", tokens[i], 190);
        assert_int_equal(answers[i].n_reused, i ? 128 : 0);
        assert_same(&answers[i], &alone);
    }
    ingot_engine_close(engine);
}

// More prompts than states can be kept: the bits stay, whatever is lost.
static void lost_states_are_made_again(void **state)
{
    uint32_t tokens[MOST];
    struct ingot_engine_options o = options_of("lfm2");

    (void)state;
    o.n_sequences = 2;
    struct ingot_engine *engine = open_or_fail(&o);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t i = 0; i < 12; i++) {
            fill(tokens, 130 + i, 60 + i);
            struct answer got = ask(engine, NULL, tokens, 130 + i),
                          alone = ask_alone("lfm2", tokens, 130 + i);
            assert_same(&got, &alone);
        }
    ingot_engine_close(engine);
}

// ---- sessions

static void a_session_goes_on_and_steps_back(void **state)
{
    uint32_t tokens[MOST], n;

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(models[m]);
        struct ingot_engine *engine = open_or_fail(&o);
        struct ingot_session *session = ingot_session_create(engine, NULL);
        fill(tokens, 140, 10);
        ask(engine, session, tokens, 140);
        n = ingot_session_tokens(session, tokens, MOST);
        fill(tokens + n, 20, 11);
        struct answer on = ask(engine, session, tokens, n + 20), alone = ask_alone(models[m], tokens, n + 20);
        assert_int_equal(on.n_reused, n);
        assert_same(&on, &alone);
        fill(tokens + 139, 20, 12); // another ending: back to the last kept state
        struct answer back = ask(engine, session, tokens, 159);
        alone = ask_alone(models[m], tokens, 159);
        assert_int_equal(back.n_reused, 128);
        assert_same(&back, &alone);
        ingot_session_free(session);
        ingot_engine_close(engine);
    }
}

static void a_session_comes_back_from_a_file(void **state)
{
    char path[64];
    uint32_t tokens[MOST], n;
    struct ingot_error error = { 0 };

    (void)state;
    snprintf(path, sizeof path, "%s/session", folder);
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(models[m]);
        struct ingot_engine *engine = open_or_fail(&o);
        struct ingot_session *session = ingot_session_create(engine, NULL);
        fill(tokens, 77, 13);
        ask(engine, session, tokens, 77);
        n = ingot_session_tokens(session, tokens, MOST);
        if (!ingot_session_save(session, path, &error))
            fail_msg("%s", error.message);
        ingot_session_free(session);
        ingot_engine_close(engine);

        engine = open_or_fail(&o);
        if (!(session = ingot_session_load(engine, path, &error)))
            fail_msg("%s", error.message);
        fill(tokens + n, 9, 14);
        struct answer on = ask(engine, session, tokens, n + 9), alone = ask_alone(models[m], tokens, n + 9);
        assert_int_equal(on.n_reused, n);
        assert_same(&on, &alone);
        ingot_session_free(session);
        ingot_engine_close(engine);
    }
}

static void states_come_back_from_disk(void **state)
{
    uint32_t tokens[MOST];

    (void)state;
    fill(tokens, 200, 15);
    for (uint32_t i = 0; i < 2 * N_MODELS; i++) {
        const char *model = models[i / 2];
        struct ingot_engine_options o = options_of(model);
        o.cache_dir = folder;
        struct ingot_engine *engine = open_or_fail(&o);
        struct answer got = ask(engine, NULL, tokens, 200), alone = ask_alone(model, tokens, 200);
        assert_int_equal(got.n_reused, i % 2 ? 192 : 0);
        assert_same(&got, &alone);
        ingot_engine_close(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_chunks_give_the_same_bits),
        cmocka_unit_test(stages_and_threads_give_the_same_bits),
        cmocka_unit_test(company_does_not_change_a_bit),
        cmocka_unit_test(a_pause_does_not_change_a_bit),
        cmocka_unit_test(a_prompt_goes_on_from_a_kept_state),
        cmocka_unit_test(two_go_on_from_one_state),
        cmocka_unit_test(prompts_that_come_together_share_a_state),
        cmocka_unit_test(lost_states_are_made_again),
        cmocka_unit_test(a_session_goes_on_and_steps_back),
        cmocka_unit_test(a_session_comes_back_from_a_file),
        cmocka_unit_test(states_come_back_from_disk),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
