// test_window.c - layers with a window have pages of their own, let go behind it: the memory is what
// the formula says, and every bit is that of one step over all tokens, where nothing is let go. In any
// chunks, company and splits, after a pause, from a kept beginning, from disk, a session's file, with drafts.
#include "engine/api.h"
#include "engine/kv/kv_window.h"
#include "engine/session.h"
#include "folder.h"
#include "format/gguf_write.h"
#include "open_engine.h"

enum { MOST = 480, MOST_NEW = 200, N_COMPARED = 96, CONTEXT = 512, MOST_STEPS = 5000, PAGE = PAGE_TOKENS };

static const struct windowed_model {
    const char *name, *key;
} models[] = { { "gemma3", "gemma3.attention.sliding_window" },
               { "gemma4-e2b", "gemma4.attention.sliding_window" },
               { "gptoss", "gpt-oss.attention.sliding_window" },
               { "olmo3", "olmo2.attention.sliding_window" },
               { "mistral", "llama.attention.sliding_window" } }; // all layers have it
enum { N_MODELS = sizeof models / sizeof *models };

// The golden model with another window.
static struct ingot_engine_options options_of(uint32_t m, uint32_t window)
{
    static char path[512];
    struct ingot_engine_options o = ingot_engine_defaults();
    struct gguf_writer w;
    struct model_file *from;
    struct err err = { 0 };

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", models[m].name);
    assert_ok(model_file_open(&from, path, &err), &err);
    snprintf(path, sizeof path, "%s/%s-%u.gguf", folder, models[m].name, window);
    assert_ok(gguf_write_create(&w, path, &err), &err);
    for (size_t i = 0; i < model_file_n_metas(from); i++)
        if (!str_is(model_file_meta_at(from, i)->key, models[m].key))
            gguf_write_meta(&w, model_file_meta_at(from, i));
    gguf_write_u32(&w, models[m].key, window);
    for (size_t i = 0; i < model_file_n_tensors(from); i++) {
        const struct file_tensor *t = model_file_tensor_at(from, i);
        gguf_write_tensor(&w, t->name, t->format, t->dims, t->n_dims);
    }
    gguf_write_begin(&w);
    for (size_t i = 0; i < model_file_n_tensors(from); i++)
        gguf_write_data(&w, model_file_tensor_at(from, i)->data, model_file_tensor_at(from, i)->bytes);
    assert_ok(gguf_write_commit(&w, &err), &err);
    model_file_close(from);
    o.model = path;
    o.device = "cpu";
    o.n_threads = 1;
    o.n_context = CONTEXT;
    o.step_stretch = 0;
    o.speculate = INGOT_SPECULATE_OFF;
    return o;
}

struct window_answer {
    uint32_t tokens[MOST_NEW], n, n_reused, n_pauses;
    float logits[MOST_NEW][N_COMPARED];
};

static bool keep(void *arg, const struct ingot_event *e)
{
    struct window_answer *a = arg;

    if (e->logits) {
        assert_true(a->n < MOST_NEW);
        memcpy(a->logits[a->n], e->logits, sizeof a->logits[0]);
    }
    if (e->token != UINT32_MAX)
        a->tokens[a->n++] = e->token;
    if (e->done) {
        a->n_reused = e->result->n_reused;
        a->n_pauses = e->result->n_pauses;
        if (e->result->finish != INGOT_FINISH_LENGTH)
            fail_msg("%s", e->result->error.message);
    }
    return true;
}

static struct ingot_request_options request_of(const uint32_t *tokens, uint32_t n, uint32_t n_new)
{
    struct ingot_request_options o = greedy_request(tokens, n, n_new);

    o.n_logits = 1;
    return o;
}

static struct window_answer ask(struct ingot_engine *engine, struct ingot_session *session,
                                const uint32_t *tokens, uint32_t n, uint32_t n_new)
{
    struct ingot_request_options o = request_of(tokens, n, n_new);
    struct window_answer a = { .n = 0 };
    struct ingot_error error = { 0 };

    o.session = session;
    if (!ingot_generate(engine, &o, keep, &a, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(a.n, n_new);
    return a;
}

static void fill(uint32_t *tokens, uint32_t n, uint32_t seed)
{
    for (uint32_t i = 0; i < n; i++)
        tokens[i] = (i * 104729 + seed * 7919 + 11) % 101;
}

struct whole_step { // of the rows that gave an answer
    uint32_t first, n;
    const struct window_answer *answer;
};

static bool compare_row(void *arg, const struct ingot_event *e)
{
    struct whole_step *w = arg;

    if (!e->logits)
        return true;
    assert_true(e->position + 1 >= w->first);
    uint32_t i = e->position + 1 - w->first;
    assert_true(i < w->answer->n);
    assert_memory_equal(e->logits, w->answer->logits[i], sizeof w->answer->logits[i]);
    w->n++;
    return true;
}

// Every row of logits is that of one step that reads prompt and answer together, in an engine of its own: no
// row before another's step, so nothing is let go.
static void check(struct ingot_engine_options o, const uint32_t *tokens, uint32_t n,
                  const struct window_answer *a)
{
    uint32_t all[MOST + MOST_NEW];
    struct ingot_error error = { 0 };
    struct whole_step w = { .first = n, .answer = a };

    memcpy(all, tokens, n * sizeof *all);
    memcpy(all + n, a->tokens, a->n * sizeof *all);
    o.n_sequences = 1;
    o.n_kv_tokens = 0;
    o.n_batch = 512;
    o.n_logit_rows = a->n;
    o.cache_dir = NULL;
    o.stages = NULL;
    o.draft = NULL;
    o.speculate = INGOT_SPECULATE_OFF;
    assert_true(n + a->n - 1 <= o.n_batch);
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_request_options r = request_of(all, n + a->n - 1, 1);
    r.n_logits = a->n;
    if (!ingot_generate(engine, &r, compare_row, &w, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(w.n, a->n);
    ingot_engine_close(engine);
}

// ---- memory

static void the_memory_is_bounded_by_the_window(void **state)
{
    static const uint32_t windows[] = { 1, 5, 16, 17, 33, 100, 4000 };

    (void)state;
    for (uint32_t i = 0; i < sizeof windows / sizeof *windows; i++)
        for (uint32_t n_slots = 1; n_slots <= 3; n_slots += 2) {
            struct ingot_engine_options o = options_of(0, windows[i]);
            o.n_sequences = n_slots;
            o.n_batch = 40;
            o.cache_type_k = o.cache_type_v = INGOT_KV_F16;
            uint64_t pages = n_slots * CONTEXT / PAGE, seen = (windows[i] + PAGE - 1) / PAGE,
                     own = n_slots * (2 * seen + 2) + 40 / PAGE + 1, layer = PAGE * 2 * 16 * 2 * 2;
            struct ingot_engine *engine = open_or_fail(&o);
            struct ingot_engine_info info;
            struct ingot_memory need;
            struct ingot_error error;
            own = own < pages ? own : pages;
            ingot_engine_info(engine, &info);
            assert_int_equal(info.page_bytes, layer * (pages + 3 * own)); // of four layers one sees all
            assert_true(ingot_engine_estimate(&o, &need, &error));
            assert_int_equal(need.page_bytes, info.page_bytes);
            ingot_engine_close(engine);
        }
}

static uint32_t n_held(const struct kv *kv)
{
    return kv_window_count(kv).n_held;
}

// A sequence holds no more than its row sees.
static void what_lies_behind_is_let_go(void **state)
{
    uint32_t tokens[MOST];
    struct ingot_engine_options o = options_of(0, 33);

    (void)state;
    o.n_batch = 20;
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_session *session = ingot_session_create(engine, NULL);
    fill(tokens, 300, 1);
    ask(engine, session, tokens, 300, 100);
    assert_true(n_held(&engine->inner.kv) <= 33 / PAGE + 3);
    assert_true(n_held(&engine->inner.kv) >= 33 / PAGE);
    ingot_session_free(session);
    assert_int_equal(n_held(&engine->inner.kv), 0);
    struct ingot_engine_stats stats;
    ingot_engine_stats(engine, &stats);
    assert_true(stats.n_window_pages == engine->inner.kv.n_windows && stats.n_window_pages_held == 0);
    assert_true(stats.n_window_pages_idle > 0 && stats.n_window_pages_idle <= stats.n_window_pages);
    ingot_engine_close(engine);
}

// ---- the same bits

static void any_window_and_chunks_give_the_same_bits(void **state)
{
    static const uint32_t windows[] = { 1, 2, 15, 16, 17, 31, 33, 100, 256, 4000 },
                          chunks[] = { 1, 3, 17, 64 };
    uint32_t tokens[MOST];

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++)
        for (uint32_t i = 0; i < sizeof windows / sizeof *windows; i++) {
            uint32_t n = 150 + 13 * i;
            struct ingot_engine_options o = options_of(m, windows[i]);
            o.n_batch = chunks[(i + m) % 4];
            struct ingot_engine *engine = open_or_fail(&o);
            fill(tokens, n, i);
            struct window_answer a = ask(engine, NULL, tokens, n, 20);
            check(o, tokens, n, &a);
            ingot_engine_close(engine);
        }
}

static void a_long_answer_gives_the_same_bits(void **state)
{
    uint32_t tokens[MOST];

    (void)state;
    fill(tokens, 9, 2);
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(m, 21);
        struct ingot_engine *engine = open_or_fail(&o);
        struct window_answer a = ask(engine, NULL, tokens, 9, MOST_NEW);
        check(o, tokens, 9, &a);
        ingot_engine_close(engine);
    }
}

static void stages_and_threads_give_the_same_bits(void **state)
{
    uint32_t tokens[MOST];

    (void)state;
    fill(tokens, 200, 3);
    static const char *const devices[] = { "cpu", "cpu,cpu:plain" };
    for (uint32_t i = 0; i < 2; i++) {
        struct ingot_engine_options o = options_of(0, 21);
        o.stages = "2";
        o.device = devices[i];
        o.exact = i > 0;
        o.n_threads = 2;
        o.n_batch = 30;
        struct ingot_engine *engine = open_or_fail(&o);
        struct window_answer split = ask(engine, NULL, tokens, 200, 30);
        ingot_engine_close(engine);
        o.n_batch = 512;
        engine = open_or_fail(&o);
        struct window_answer whole = ask(engine, NULL, tokens, 200, 30);
        assert_memory_equal(split.logits, whole.logits, sizeof whole.logits);
        ingot_engine_close(engine);
        if (i == 0)
            check(o, tokens, 200, &split);
    }
}

// ---- many at once

enum { N_AT_ONCE = 5 };

static void run_all(struct ingot_engine *engine, struct ingot_request **requests,
                    struct window_answer *answers, uint32_t n)
{
    bool busy = true;

    for (uint32_t steps = 0; busy; steps++) {
        assert_true(steps < MOST_STEPS);
        assert_true(ingot_step(engine, &busy, NULL));
        for (uint32_t i = 0; i < n; i++) {
            struct ingot_event e;
            while (ingot_poll(requests[i], &e))
                keep(&answers[i], &e);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        ingot_request_free(requests[i]);
}

static uint32_t check_company(const struct ingot_engine_options *o)
{
    static const uint32_t lengths[N_AT_ONCE] = { 300, 7, 64, 230, 150 };
    static struct window_answer answers[N_AT_ONCE];
    uint32_t tokens[N_AT_ONCE][MOST], n_pauses = 0;
    struct ingot_request *requests[N_AT_ONCE];
    struct ingot_engine *engine = open_or_fail(o);
    struct ingot_error error;
    bool busy;

    memset(answers, 0, sizeof answers);
    for (uint32_t i = 0; i < N_AT_ONCE; i++) {
        fill(tokens[i], lengths[i], 40 + i);
        struct ingot_request_options r = request_of(tokens[i], lengths[i], 40);
        r.priority = -(int32_t)i; // whoever comes later is served first
        if (!(requests[i] = ingot_submit(engine, &r, &error)))
            fail_msg("%s", error.message);
        for (uint32_t s = 0; s < 3; s++)
            assert_true(ingot_step(engine, &busy, NULL));
    }
    run_all(engine, requests, answers, N_AT_ONCE);
    assert_int_equal(n_held(&engine->inner.kv), 0);
    ingot_engine_close(engine);
    for (uint32_t i = 0; i < N_AT_ONCE; i++) {
        check(*o, tokens[i], lengths[i], &answers[i]);
        n_pauses += answers[i].n_pauses;
    }
    return n_pauses;
}

// And where pages are few, some give way and begin again.
static void company_and_pauses_do_not_change_a_bit(void **state)
{
    uint32_t n_pauses = 0;

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(m, 18 + 7 * m);
        o.n_sequences = N_AT_ONCE;
        o.n_batch = 29;
        check_company(&o);
        o.n_sequences = 3;
        o.n_kv_tokens = 544;
        n_pauses += check_company(&o);
    }
    assert_true(n_pauses > 0);
}

// ---- kept beginnings

static void a_prompt_goes_on_where_its_window_is_kept(void **state)
{
    uint32_t tokens[MOST];

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(m, 40);
        o.n_batch = 64;
        struct ingot_engine *engine = open_or_fail(&o);
        fill(tokens, 300, 5);
        ask(engine, NULL, tokens, 300, 2);
        struct window_answer again = ask(engine, NULL, tokens, 300, 20);
        assert_int_equal(again.n_reused, 288);
        check(o, tokens, 300, &again);

        // Others read long prompts: the pages stay, their window pages go; a third time finds them again.
        uint32_t others[MOST];
        fill(others, 200, 6);
        ask(engine, NULL, others, 200, 1);
        fill(others, 200, 7);
        ask(engine, NULL, others, 200, 1);
        struct window_answer lost = ask(engine, NULL, tokens, 300, 20);
        check(o, tokens, 300, &lost);
        struct window_answer found = ask(engine, NULL, tokens, 300, 20);
        assert_int_equal(found.n_reused, 288);
        check(o, tokens, 300, &found);
        ingot_engine_close(engine);
    }
}

static void without_its_window_a_beginning_is_read_again(void **state)
{
    uint32_t tokens[MOST];
    struct ingot_engine_options o = options_of(0, 40);

    (void)state;
    struct ingot_engine *engine = open_or_fail(&o);
    struct kv *kv = &engine->inner.kv;
    fill(tokens, 300, 8);
    ask(engine, NULL, tokens, 300, 1);
    for (uint32_t i = 0; i < kv->n_windows; i++) // all but those of the first 160 tokens
        if (kv->windows[i].page != KV_NONE && kv->windows[i].page >= 10)
            kv_window_drop(kv, kv->windows[i].page);
    size_t kept = ingot_prompt_kept(engine, tokens, 300, NULL);
    struct window_answer a = ask(engine, NULL, tokens, 300, 5);
    assert_true(a.n_reused <= 160);
    assert_int_equal(kept, a.n_reused);
    assert_int_equal(ingot_prompt_kept(engine, tokens, 300, NULL), 288);
    check(o, tokens, 300, &a);
    struct window_answer again = ask(engine, NULL, tokens, 300, 5);
    assert_int_equal(again.n_reused, 288);
    check(o, tokens, 300, &again);
    ingot_engine_close(engine);
}

static void two_share_a_beginning(void **state)
{
    static struct window_answer answers[2];
    uint32_t tokens[2][MOST];
    struct ingot_request *requests[2];
    struct ingot_error error;

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(m, 27);
        o.n_sequences = 2;
        o.n_batch = 24;
        struct ingot_engine *engine = open_or_fail(&o);
        memset(answers, 0, sizeof answers);
        fill(tokens[0], 170, 8);
        ask(engine, NULL, tokens[0], 170, 1);
        memcpy(tokens[1], tokens[0], sizeof tokens[0]);
        fill(tokens[1] + 165, 15, 9);
        for (uint32_t i = 0; i < 2; i++) {
            struct ingot_request_options r = request_of(tokens[i], 170 + 10 * i, 60);
            if (!(requests[i] = ingot_submit(engine, &r, &error)))
                fail_msg("%s", error.message);
        }
        run_all(engine, requests, answers, 2);
        ingot_engine_close(engine);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(answers[i].n_reused, 160);
            check(o, tokens[i], 170 + 10 * i, &answers[i]);
        }
    }
}

// ---- sessions

static void a_session_goes_on_and_steps_back(void **state)
{
    uint32_t tokens[MOST], n;

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(m, 30);
        o.n_batch = 50;
        struct ingot_engine *engine = open_or_fail(&o);
        struct ingot_session *session = ingot_session_create(engine, NULL);
        fill(tokens, 140, 10);
        ask(engine, session, tokens, 140, 50);
        n = ingot_session_tokens(session, tokens, MOST);
        fill(tokens + n, 20, 11);
        struct window_answer on = ask(engine, session, tokens, n + 20, 30);
        assert_int_equal(on.n_reused, n);
        check(o, tokens, n + 20, &on);
        static const uint32_t ends[] = { 215, 139, 50, 3 }; // another ending, further and further back
        for (uint32_t i = 0; i < 4; i++) {
            ingot_session_tokens(session, tokens, MOST);
            fill(tokens + ends[i], 20, 12 + i);
            struct window_answer back = ask(engine, session, tokens, ends[i] + 20, 20);
            assert_true(back.n_reused <= ends[i]);
            check(o, tokens, ends[i] + 20, &back);
        }
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
        struct ingot_engine_options o = options_of(m, 30);
        o.n_batch = 16; // fewer window pages than the file has tokens for
        struct ingot_engine *engine = open_or_fail(&o);
        struct ingot_session *session = ingot_session_create(engine, NULL);
        fill(tokens, 270, 13);
        ask(engine, session, tokens, 270, 8);
        n = ingot_session_tokens(session, tokens, MOST);
        if (!ingot_session_save(session, path, &error))
            fail_msg("%s", error.message);
        ingot_session_free(session);
        ingot_engine_close(engine);

        engine = open_or_fail(&o);
        if (!(session = ingot_session_load(engine, path, &error)))
            fail_msg("%s", error.message);
        fill(tokens + n, 9, 14);
        struct window_answer on = ask(engine, session, tokens, n + 9, 30);
        assert_int_equal(on.n_reused, n);
        check(o, tokens, n + 9, &on);
        ingot_session_free(session);
        ingot_engine_close(engine);
    }
}

// ---- disk, other engines

static void window_pages_come_back_from_disk(void **state)
{
    uint32_t tokens[MOST];

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++)
        for (uint32_t round = 0; round < 2; round++) {
            struct ingot_engine_options o = options_of(m, 40);
            o.cache_dir = folder;
            o.n_batch = 64;
            struct ingot_engine *engine = open_or_fail(&o);
            fill(tokens, 300, 15 + m);
            struct window_answer a = ask(engine, NULL, tokens, 300, 20);
            assert_int_equal(a.n_reused, round ? 288 : 0);
            check(o, tokens, 300, &a);
            ingot_engine_close(engine);
        }
}

static void pages_move_to_another_engine(void **state)
{
    uint32_t tokens[MOST];
    struct ingot_error error = { 0 };
    size_t n_bytes;

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++) {
        struct ingot_engine_options o = options_of(m, 40);
        struct ingot_engine *from = open_or_fail(&o);
        o.n_sequences = 2; // another number of pages
        o.n_batch = 48;
        struct ingot_engine *to = open_or_fail(&o);
        fill(tokens, 300, 20);
        ask(from, NULL, tokens, 300, 1);
        struct ingot_pages *offer = ingot_pages_offer(from, tokens, 300, 0, NULL, &error),
                           *expect = ingot_pages_expect(to, tokens, 300, NULL, &error);
        assert_true(offer && expect);
        for (const void *at; (at = ingot_pages_give(offer, &n_bytes));)
            if (!ingot_pages_take(expect, at, n_bytes, &error))
                fail_msg("%s", error.message);
        assert_true(ingot_pages_finish(expect, &error));
        assert_int_equal(ingot_pages_n_tokens(expect), 288);
        ingot_pages_close(offer);
        ingot_pages_close(expect);
        struct window_answer a = ask(to, NULL, tokens, 300, 20);
        assert_int_equal(a.n_reused, 288);
        check(o, tokens, 300, &a);
        ingot_engine_close(from);
        ingot_engine_close(to);
    }
}

// ---- drafts

static void repeat(uint32_t *tokens, uint32_t n, uint32_t seed)
{
    fill(tokens, n, seed);
    for (uint32_t i = 10; i < n; i++)
        tokens[i] = tokens[i % 10];
}

// Two texts at once, so that what one lets go of too early would be the other's. Rows that are read back are
// not drafted for. Returns the tokens that were drafted.
static uint64_t check_drafts(struct ingot_engine_options o)
{
    static struct window_answer drafted[2];
    uint32_t tokens[2][MOST];
    struct ingot_request *requests[2];
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_engine_stats stats;
    struct ingot_error error;

    memset(drafted, 0, sizeof drafted);
    for (uint32_t i = 0; i < 2; i++) {
        repeat(tokens[i], 90 + 7 * i, 21 + i);
        struct ingot_request_options r = request_of(tokens[i], 90 + 7 * i, 120);
        r.n_logits = 0;
        if (!(requests[i] = ingot_submit(engine, &r, &error)))
            fail_msg("%s", error.message);
    }
    run_all(engine, requests, drafted, 2);
    ingot_engine_stats(engine, &stats);
    ingot_engine_close(engine);
    o.draft = NULL;
    o.speculate = INGOT_SPECULATE_OFF;
    engine = open_or_fail(&o);
    for (uint32_t i = 0; i < 2; i++) {
        struct window_answer plain = ask(engine, NULL, tokens[i], 90 + 7 * i, 120);
        assert_memory_equal(drafted[i].tokens, plain.tokens, sizeof plain.tokens);
        check(o, tokens[i], 90 + 7 * i, &plain);
    }
    ingot_engine_close(engine);
    return stats.n_drafted;
}

// Of a text that repeats itself, by the model itself, which is always right, and by one of another window.
static void drafts_do_not_change_a_bit(void **state)
{
    uint64_t n_drafted = 0;
    char draft[512];

    (void)state;
    for (uint32_t m = 0; m < N_MODELS; m++)
        for (uint32_t i = 0; i < 3; i++) {
            struct ingot_engine_options o = options_of(m, i == 2 ? 7 : 33);
            snprintf(draft, sizeof draft, "%s", o.model);
            o = options_of(m, 33);
            o.n_sequences = 2;
            o.speculate = INGOT_SPECULATE_ALWAYS;
            o.draft = i ? draft : NULL;
            n_drafted += check_drafts(o);
        }
    assert_true(n_drafted > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_memory_is_bounded_by_the_window),
        cmocka_unit_test(what_lies_behind_is_let_go),
        cmocka_unit_test(any_window_and_chunks_give_the_same_bits),
        cmocka_unit_test(a_long_answer_gives_the_same_bits),
        cmocka_unit_test(stages_and_threads_give_the_same_bits),
        cmocka_unit_test(company_and_pauses_do_not_change_a_bit),
        cmocka_unit_test(a_prompt_goes_on_where_its_window_is_kept),
        cmocka_unit_test(without_its_window_a_beginning_is_read_again),
        cmocka_unit_test(two_share_a_beginning),
        cmocka_unit_test(a_session_goes_on_and_steps_back),
        cmocka_unit_test(a_session_comes_back_from_a_file),
        cmocka_unit_test(window_pages_come_back_from_disk),
        cmocka_unit_test(pages_move_to_another_engine),
        cmocka_unit_test(drafts_do_not_change_a_bit),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
