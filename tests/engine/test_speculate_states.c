// test_speculate_states.c - drafts for models whose layers carry a state: a refused token leaves no trace in
// it.
//
// What a request will say is known from an engine without drafts. The drafts of the other engine are that,
// right up to a random place: so every number of tokens is accepted and refused. Tokens, logits and what is
// reused are compared in bits; prompts go on from what others have said, and from states kept there.
#include <stdlib.h>
#include "engine/api.h"
#include "engine/kv/kv_state.h"
#include "engine/request.h"
#include "engine/session.h"
#include "open_engine.h"
#include "queued_cpu.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(INGOT_VALGRIND)
enum { N_REQUESTS = 24 };
#else
enum { N_REQUESTS = 120 };
#endif
enum { N_KINDS = 24, MOST_PROMPT = 180, MOST_NEW = 75, N_COMPARED = 16, AT_ONCE = 7, CONTEXT = 256 };

struct said {
    uint32_t tokens[MOST_NEW], n;
    float logits[MOST_NEW][N_COMPARED];
};

struct saying {
    uint32_t tokens[MOST_PROMPT];
    struct ingot_request_options options;
    struct said said; // without drafts
};

struct drafted_for {
    struct ingot_request *request;
    struct saying *kind;
    struct said said;
    uint32_t n_tokens; // of the last draft
};

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static bool hear(void *arg, const struct ingot_event *e)
{
    struct said *s = arg;

    if (e->logits && s->n < MOST_NEW)
        memcpy(s->logits[s->n], e->logits, sizeof s->logits[0]);
    if (e->token != UINT32_MAX)
        s->tokens[s->n++] = e->token;
    return true;
}

static struct ingot_engine *open_engine(const char *model, bool drafts, uint32_t n_batch)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    char path[512];

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", model);
    o.model = path;
    o.device = "cpu";
    o.n_threads = 1;
    o.n_context = CONTEXT;
    o.n_batch = n_batch;
    o.step_stretch = 0;
    o.n_sequences = drafts ? 4 : 1;
    o.n_kv_tokens = drafts ? 3 * CONTEXT : 0; // some have to pause
    o.no_prefix_cache = !drafts;
    o.speculate = drafts ? INGOT_SPECULATE_ALWAYS : INGOT_SPECULATE_OFF;
    return open_or_fail(&o);
}

// A third of the prompts begin with what another one has led to.
static void make_kind(struct saying *kinds, uint32_t i, uint32_t n_vocab)
{
    struct saying *k = &kinds[i];
    uint32_t random = i * 7919 + 3, n = 0, end = 4 + draw(&random, MOST_PROMPT - MOST_NEW - 20);

    *k = (struct saying){ .options = ingot_request_defaults() };
    if (i % 3 == 2) {
        const struct saying *before = &kinds[draw(&random, i)];
        for (; n < before->options.n_tokens && n < end; n++)
            k->tokens[n] = before->tokens[n];
        for (uint32_t j = 0; n == before->options.n_tokens + j && j < before->said.n && n < end; j++)
            k->tokens[n++] = before->said.tokens[j];
        end = n + 1 + draw(&random, 9);
    }
    while (n < end)
        k->tokens[n++] = draw(&random, n_vocab);
    k->options.tokens = k->tokens;
    k->options.n_tokens = n;
    k->options.max_tokens = 3 + draw(&random, MOST_NEW - 3);
    k->options.ignore_eos = true;
    k->options.priority = (int32_t)(i % 3) - 1;
    k->options.sampling.seed = i;
    k->options.sampling.temperature = i % 2 ? 0 : 0.8f;
    k->options.sampling.repeat_penalty = i % 5 ? 1 : 1.1f;
}

static void say_without(struct saying *kinds, const char *model, bool logits)
{
    struct ingot_engine *engine = open_engine(model, false, 512);
    struct ingot_engine_info info;
    struct ingot_error error = { 0 };

    ingot_engine_info(engine, &info);
    for (uint32_t i = 0; i < N_KINDS; i++) {
        make_kind(kinds, i, info.n_vocab);
        kinds[i].options.n_logits = logits;
        if (!ingot_generate(engine, &kinds[i].options, hear, &kinds[i].said, NULL, &error))
            fail_msg("%s", error.message);
        assert_int_equal(kinds[i].said.n, kinds[i].options.max_tokens);
    }
    ingot_engine_close(engine);
}

// The public request is a pointer to the engine's.
static struct request *inner(const struct drafted_for *a)
{
    return *(struct request **)(void *)a->request;
}

// What the request will say, wrong from a random place on.
static void draft(struct drafted_for *a, uint32_t n_vocab, uint32_t *random)
{
    struct request *r = inner(a);
    struct draft d = { .n = 1 + draw(random, SPECULATE_MOST) };
    uint32_t n_right = draw(random, 3) ? draw(random, d.n + 1) : d.n;

    if (r->state != REQUEST_DECODE || r->n_fed + 1 != r->n_tokens)
        return;
    uint32_t n = r->n_tokens - r->n_prompt, left = a->kind->options.max_tokens - n - 1;
    d.n = d.n < left ? d.n : left;
    for (uint32_t i = 0; i < d.n; i++)
        d.tokens[i] = (a->kind->said.tokens[n + i] + (i == n_right)) % n_vocab;
    a->n_tokens = d.n ? r->n_tokens : 0;
    if (d.n)
        speculate_take(r, &d);
}

static void begin(struct ingot_engine *engine, struct drafted_for *a, struct saying *kind)
{
    struct ingot_error error = { 0 };

    memset(a, 0, sizeof *a);
    a->kind = kind;
    if (!(a->request = ingot_submit(engine, &kind->options, &error)))
        fail_msg("%s", error.message);
}

// True when it is over.
static bool listen(struct drafted_for *a, uint32_t *n_pauses)
{
    struct ingot_event e = { 0 };

    while (ingot_poll(a->request, &e))
        hear(&a->said, &e);
    if (!e.done)
        return false;
    if (e.result->finish != INGOT_FINISH_CANCELLED)
        assert_memory_equal(&a->said, &a->kind->said, sizeof a->said);
    *n_pauses += e.result->n_pauses;
    ingot_request_free(a->request);
    a->request = NULL;
    return true;
}

struct counted {
    uint32_t n_pauses, accepted[SPECULATE_MOST + 1];
};

static void count(struct drafted_for *a, struct counted *c)
{
    const struct request *r = inner(a);

    if (a->n_tokens && r->n_tokens > a->n_tokens)
        c->accepted[r->n_tokens - a->n_tokens - 1]++;
    a->n_tokens = 0;
}

static void ask_all(struct ingot_engine *engine, struct saying *kinds, struct counted *c)
{
    struct drafted_for *asked = calloc(AT_ONCE, sizeof *asked);
    struct ingot_engine_info info;
    uint32_t random = 1, n_begun = 0, n_done = 0;
    bool busy;

    ingot_engine_info(engine, &info);
    while (n_done < N_REQUESTS) {
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (!asked[i].request && n_begun < N_REQUESTS && draw(&random, 3) == 0)
                begin(engine, &asked[i], &kinds[n_begun++ * 7 % N_KINDS]);
            if (asked[i].request && draw(&random, 5))
                draft(&asked[i], info.n_vocab, &random);
            if (asked[i].request && draw(&random, 600) == 0)
                ingot_cancel(asked[i].request);
        }
        assert_true(ingot_step(engine, &busy, NULL));
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (!asked[i].request)
                continue;
            count(&asked[i], c);
            n_done += listen(&asked[i], &c->n_pauses);
        }
    }
    free(asked);
}

static void drafts_leave_no_trace_in_a_state(void **state)
{
    static const struct {
        const char *model;
        uint32_t n_batch;
        bool queue; // steps are queued ahead, where nobody asks for logits
    } engines[] = { { "lfm2", 512, false },
                    { "qwen35", 31, false },
                    { "qwen35moe", 512, true },
                    { "granitehybrid", 70, true },
                    { "nemotronh-moe", 512, false } };
    struct saying *kinds = calloc(N_KINDS, sizeof *kinds);
    struct counted all = { 0 };
    (void)state;

    for (size_t m = 0; m < sizeof engines / sizeof *engines; m++) {
        struct counted c = { 0 };
        say_without(kinds, engines[m].model, !engines[m].queue);
        struct ingot_engine *engine = open_engine(engines[m].model, true, engines[m].n_batch);
        if (engines[m].queue)
            engine->inner.loaded->devices.at[0]->queue = &queued_cpu;
        ask_all(engine, kinds, &c);
        struct ingot_engine_stats stats;
        ingot_engine_stats(engine, &stats);
        assert_int_equal(stats.n_pages_held, 0);
        assert_int_equal(engine->inner.kv.n_spare_free, engine->inner.kv.n_spare);
        assert_true(stats.n_drafted > stats.n_accepted && stats.n_accepted > N_REQUESTS);
        print_message("%s: %llu drafted, %llu accepted, %u pauses\n", engines[m].model,
                      (unsigned long long)stats.n_drafted, (unsigned long long)stats.n_accepted, c.n_pauses);
        ingot_engine_close(engine);
        all.n_pauses += c.n_pauses;
        for (uint32_t i = 0; i <= SPECULATE_MOST; i++)
            all.accepted[i] += c.accepted[i];
    }
    for (uint32_t i = 0; i <= SPECULATE_MOST; i++)
        assert_true(all.accepted[i] > 0);
    assert_true(all.n_pauses > 0);
    free(kinds);
}

// A session holds the same tokens and the same state, on which a second request goes on.
// Another request has its slot, whose state lies in another row by now, before it is loaded again.
static struct ingot_session *through_a_file(struct ingot_engine *engine, struct ingot_session *session,
                                            const struct ingot_request_options *between)
{
    static const char path[] = BINARY_DIR "/speculate_states.session";
    struct ingot_error error = { 0 };
    struct said said = { 0 };

    assert_true(kv_state_own(&engine->inner.kv, session->slot) != session->slot);
    if (!ingot_session_save(session, path, &error))
        fail_msg("%s", error.message);
    ingot_session_free(session);
    if (!ingot_generate(engine, between, hear, &said, NULL, &error))
        fail_msg("%s", error.message);
    session = ingot_session_load(engine, path, &error);
    if (!session)
        fail_msg("%s", error.message);
    remove(path);
    return session;
}

static void a_session_goes_on_behind_drafts(void **state)
{
    struct saying *kinds = calloc(N_KINDS, sizeof *kinds);
    uint32_t tokens[2][CONTEXT], n[2], random = 9;
    struct said said[2] = { 0 };
    struct ingot_error error = { 0 };
    (void)state;

    say_without(kinds, "qwen35", true);
    for (uint32_t drafts = 0; drafts < 2; drafts++) {
        struct ingot_engine *engine = open_engine("qwen35", drafts, 512);
        struct drafted_for a = { .kind = &kinds[4] };
        struct ingot_session *session = kinds[4].options.session = ingot_session_create(engine, NULL);
        struct ingot_result result = { 0 };
        uint32_t n_pauses = 0;
        begin(engine, &a, &kinds[4]);
        for (bool busy = true; busy;) {
            if (drafts)
                draft(&a, 131, &random);
            assert_true(ingot_step(engine, &busy, NULL));
        }
        assert_true(listen(&a, &n_pauses));
        if (drafts)
            session = kinds[4].options.session = through_a_file(engine, session, &kinds[5].options);
        n[drafts] = ingot_session_tokens(session, tokens[drafts], CONTEXT);
        for (uint32_t i = 0; i < 5; i++)
            tokens[drafts][n[drafts] + i] = i + 3;
        struct ingot_request_options on = kinds[4].options;
        on.tokens = tokens[drafts];
        on.n_tokens = n[drafts] + 5;
        on.max_tokens = 9;
        if (!ingot_generate(engine, &on, hear, &said[drafts], &result, &error))
            fail_msg("%s", error.message);
        assert_int_equal(result.n_reused, n[drafts]); // no row is read again
        ingot_session_free(session);
        ingot_engine_close(engine);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(tokens[0], tokens[1], n[0] * sizeof *tokens[0]);
    assert_memory_equal(&said[0], &said[1], sizeof said[0]);
    free(kinds);
}

static uint64_t estimate(const char *model, enum ingot_speculate speculate, uint32_t most, uint32_t n)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_memory memory;
    struct ingot_engine_info info;
    struct ingot_error error = { 0 };

    o.model = model;
    o.device = "cpu";
    o.n_threads = 1;
    o.n_sequences = n;
    o.speculate = speculate;
    o.draft_most = most;
    if (!ingot_engine_estimate(&o, &memory, &error))
        fail_msg("%s", error.message);
    struct ingot_engine *engine = open_or_fail(&o);
    ingot_engine_info(engine, &info);
    assert_int_equal(info.page_bytes, memory.page_bytes);
    ingot_engine_close(engine);
    return memory.page_bytes;
}

static void spare_rows_are_in_the_estimate(void **state)
{
    const char *model = SOURCE_DIR "/tests/golden/lfm2/model.gguf";
    uint64_t row = 3ull * 2 * 36 * 4, // three layers that keep two rows of 36 numbers
        without = estimate(model, INGOT_SPECULATE_OFF, 0, 1);
    (void)state;

    assert_int_equal(estimate(model, INGOT_SPECULATE_AUTO, 0, 1), without + 7 * row);
    assert_int_equal(estimate(model, INGOT_SPECULATE_ALWAYS, 2, 1), without + 2 * row);
    without = estimate(model, INGOT_SPECULATE_OFF, 0, 20);
    assert_int_equal(estimate(model, INGOT_SPECULATE_AUTO, 0, 20), without + 16 * row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_leave_no_trace_in_a_state),
        cmocka_unit_test(a_session_goes_on_behind_drafts),
        cmocka_unit_test(spare_rows_are_in_the_estimate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
