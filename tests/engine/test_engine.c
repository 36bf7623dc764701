// test_engine.c - requests, sessions, batches and stages through the public interface, on a tiny random model
// without a tokenizer.
//
// The promise under test: a sequence's logits are the same bits alone or in any batch, whole or in chunks,
// with any number of threads, from a fresh or a reused session, on one stage or three.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/mem.h"
#include "engine/api.h"
#include "engine/api/verify.h"
#include "open_engine.h"

#define MODEL(name) SOURCE_DIR "/tests/golden/" name "/model.gguf"
enum { N_PROMPT = 40, N_NEW = 8, N_COMPARED = 257 };

static uint32_t n_vocab(const struct ingot_engine *engine)
{
    struct ingot_engine_info info;
    ingot_engine_info(engine, &info);
    return info.n_vocab;
}

static struct ingot_engine_options defaults(const char *model)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    o.model = model;
    o.n_threads = 1;
    return o;
}

// Prompt number i: tokens of its own, or with the first `shared` tokens of prompt 0.
static void make_prompt(uint32_t *tokens, uint32_t i, uint32_t shared, uint32_t vocab)
{
    for (uint32_t t = 0; t < N_PROMPT; t++)
        tokens[t] = ((t < shared ? 0 : i) * 7919 + t * 104729 + 11) % vocab;
}

// All that a generation gave, for comparison in bits.
struct trace {
    uint32_t tokens[N_NEW], n_tokens, n_logits;
    float logits[N_NEW + N_PROMPT][N_COMPARED];
};

static bool record(void *arg, const struct ingot_event *event)
{
    struct trace *t = arg;
    if (event->token != UINT32_MAX)
        t->tokens[t->n_tokens++] = event->token;
    if (event->logits)
        memcpy(t->logits[t->n_logits++], event->logits, N_COMPARED * sizeof(float));
    return true;
}

static struct ingot_request_options request(const uint32_t *tokens, uint32_t n_logits)
{
    struct ingot_request_options r = greedy_request(tokens, N_PROMPT, N_NEW);

    r.n_logits = n_logits;
    return r;
}

static struct trace *generate(struct ingot_engine *engine, const struct ingot_request_options *r)
{
    struct trace *t = calloc(1, sizeof *t);
    struct ingot_error error = { 0 };
    if (!ingot_generate(engine, r, record, t, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(t->n_tokens, N_NEW);
    return t;
}

static struct trace *generate_with(const struct ingot_engine_options *options, uint32_t prompt)
{
    struct ingot_engine *engine = open_or_fail(options);
    uint32_t tokens[N_PROMPT];
    make_prompt(tokens, prompt, 0, n_vocab(engine));
    struct ingot_request_options r = request(tokens, N_PROMPT);
    struct trace *t = generate(engine, &r);
    assert_int_equal(t->n_logits, N_PROMPT + N_NEW - 1);
    ingot_engine_close(engine);
    return t;
}

static void assert_same_bits(const struct trace *a, const struct trace *b, const char *what)
{
    if (memcmp(a, b, sizeof *a) != 0)
        fail_msg("%s: the result is not the same bits", what);
}

static void chunks_threads_and_stages_give_the_same_bits(void **state)
{
    (void)state;
    static const struct {
        const char *what, *stages;
        uint32_t n_batch, n_threads;
        bool no_repack;
    } ways[] = { { "one row a step", NULL, 1, 1, false },  { "chunks of 7", NULL, 7, 1, false },
                 { "chunks of 16", NULL, 16, 1, false },   { "two threads", NULL, 512, 2, false },
                 { "three threads", NULL, 13, 3, false },  { "two stages", "1", 512, 1, false },
                 { "stages and chunks", "1", 9, 2, false } };
    static const char *const models[] = { MODEL("llama3"), MODEL("qwen3"), MODEL("mistral") };

    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (int exact = 0; exact < 2; exact++) {
            struct ingot_engine_options o = defaults(models[m]);
            o.exact = exact;
            struct trace *whole = generate_with(&o, 3);
            for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
                o.stages = ways[i].stages;
                o.n_batch = ways[i].n_batch;
                o.n_threads = ways[i].n_threads;
                struct trace *t = generate_with(&o, 3);
                assert_same_bits(whole, t, ways[i].what);
                free(t);
            }
            free(whole);
        }
}

enum { MAX_TOGETHER = 13 };

// Prompts 0 to n - 1 at once: each gives what it gives alone, with logits of its last n_logits tokens.
static void assert_as_alone(struct ingot_engine *engine, const char *model, uint32_t n, uint32_t n_logits)
{
    struct ingot_engine_options options = defaults(model);
    struct ingot_engine *alone = open_or_fail(&options);
    struct trace *together[MAX_TOGETHER];
    uint32_t tokens[MAX_TOGETHER][N_PROMPT];
    struct ingot_request *requests[MAX_TOGETHER];
    bool busy = true;

    for (uint32_t i = 0; i < n; i++) {
        together[i] = calloc(1, sizeof **together);
        make_prompt(tokens[i], i, 0, n_vocab(engine));
        struct ingot_request_options r = request(tokens[i], n_logits);
        requests[i] = ingot_submit(engine, &r, NULL);
        assert_non_null(requests[i]);
    }
    while (busy) {
        assert_true(ingot_step(engine, &busy, NULL));
        for (uint32_t i = 0; i < n; i++)
            for (struct ingot_event e; ingot_poll(requests[i], &e);)
                record(together[i], &e);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct ingot_request_options r = request(tokens[i], n_logits);
        struct trace *t = generate(alone, &r);
        assert_int_equal(t->n_logits, n_logits + N_NEW - 1);
        assert_same_bits(t, together[i], "in a batch");
        ingot_request_free(requests[i]);
        free(t);
        free(together[i]);
    }
    ingot_engine_close(alone);
}

static void a_batch_gives_each_the_same_bits_as_alone(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("llama3"));

    o.n_sequences = 3; // two have to wait
    o.n_batch = 50;
    struct ingot_engine *engine = open_or_fail(&o);
    assert_as_alone(engine, MODEL("llama3"), 5, N_PROMPT);
    ingot_engine_close(engine);
}

// Where the cache is known and holds the weights, a step of many sequences is dealt to threads by rows, also
// unevenly.
static void dealt_by_rows_each_gets_the_same_bits_as_alone(void **state)
{
    (void)state;
    static const char *const models[] = { MODEL("llama3"), MODEL("qwen3"), MODEL("mistral") };

    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (uint32_t way = 0; way < 3; way++) {
            struct ingot_engine_options o = defaults(models[m]);
            o.n_sequences = MAX_TOGETHER;
            o.step_stretch = 0; // which rows a step has does not hang on the clock
            o.n_threads = way == 0 ? 3 : 2;
            o.stages = way == 2 ? "1" : NULL;
            struct ingot_engine *engine = open_or_fail(&o);
            const struct engine *e = &engine->inner;
            struct device_counters before = e->loaded->stages[0].device->counters;
            assert_as_alone(engine, models[m], MAX_TOGETHER, 1);
            uint64_t plays = e->loaded->stages[0].device->counters.plays - before.plays,
                     n = tape_n_barriers(e->loaded->stages[0].buckets[0].tape);
            uint64_t barriers = e->loaded->stages[0].device->counters.barriers - before.barriers;
#if defined(_SC_LEVEL3_CACHE_SIZE) // else no cache is known, and nothing is dealt so
            if (sysconf(_SC_LEVEL3_CACHE_SIZE) > 0)
                assert_true(barriers <= plays * n - (n - 1)); // one step at least had but one
#else
            (void)barriers, (void)plays, (void)n;
#endif
            ingot_engine_close(engine);
        }
}

static void a_session_reuses_what_it_knows(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("llama3"));
    o.n_sequences = 2;
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_session *session = ingot_session_create(engine, NULL);
    uint32_t first[N_PROMPT], second[N_PROMPT];
    struct ingot_result result;
    make_prompt(first, 0, 0, n_vocab(engine));
    make_prompt(second, 1, 20, n_vocab(engine)); // shares 20 tokens
    struct ingot_request_options r = request(first, 1), fresh = request(second, 1);
    r.session = session;
    free(generate(engine, &r));
    assert_int_equal(ingot_session_n_tokens(session), N_PROMPT + N_NEW - 1);
    r.tokens = second;
    struct trace warm = { 0 };
    assert_true(ingot_generate(engine, &r, record, &warm, &result, NULL));
    assert_int_equal(result.n_reused, 16); // the page in which they part is in the index and stays as it is
    assert_int_equal(result.miss.reason, INGOT_MISS_DIFFERS);
    assert_int_equal(result.miss.position, 20);
    assert_int_equal(result.miss.token, second[20]);
    assert_int_equal(result.miss.kept_token, first[20]);
    assert_int_equal(result.n_prompt, N_PROMPT);
    struct trace *cold = generate(engine, &fresh);
    assert_same_bits(cold, &warm, "from a session");
    // The same prompt again: all but the last token, whose logits are wanted, is there.
    assert_true(ingot_generate(engine, &r, NULL, NULL, &result, NULL));
    assert_int_equal(result.n_reused, N_PROMPT - 1);
    free(cold);
    ingot_session_free(session);
    ingot_engine_close(engine);
}

static void sessions_are_counted(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("llama2"));
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_error error = { 0 };
    struct ingot_session *a = ingot_session_create(engine, &error), *b = ingot_session_create(engine, &error);
    assert_non_null(a);
    assert_null(b);
    assert_int_equal(error.code, INGOT_LIMIT);
    assert_non_null(strstr(error.message, "sequences in use: all 1"));
    ingot_session_free(a);
    b = ingot_session_create(engine, &error);
    assert_non_null(b);
    ingot_session_free(b);
    ingot_engine_close(engine);
}

static void limits_are_errors_with_numbers(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("llama2"));
    struct ingot_error error = { 0 };
    uint32_t tokens[N_PROMPT] = { 0 };
    o.n_context = N_PROMPT;
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_request_options r = request(tokens, 0);
    assert_null(ingot_submit(engine, &r, &error));
    assert_int_equal(error.code, INGOT_LIMIT);
    assert_non_null(strstr(error.message, "40 tokens and the context holds 40"));
    r.n_tokens = N_PROMPT - 3;
    struct ingot_result result;
    assert_true(ingot_generate(engine, &r, NULL, NULL, &result, &error)); // room for three
    assert_int_equal(result.n_generated, 3);
    assert_int_equal(result.finish, INGOT_FINISH_LENGTH);
    tokens[5] = 1u << 30;
    assert_null(ingot_submit(engine, &r, &error));
    assert_non_null(strstr(error.message, "token 5 of the prompt is 1073741824"));
    r.n_tokens = 0;
    assert_null(ingot_submit(engine, &r, &error));
    assert_non_null(strstr(error.message, "empty"));
    tokens[5] = 0;
    r.n_tokens = 4;
    r.text = "both";
    assert_null(ingot_submit(engine, &r, &error));
    assert_non_null(strstr(error.message, "exactly one"));
    r.text = NULL;
    r.sampling.top_p = 1.5f;
    assert_null(ingot_submit(engine, &r, &error));
    assert_non_null(strstr(error.message, "top_p is 1.5"));
    ingot_engine_close(engine);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    static const struct {
        struct ingot_engine_options o;
        const char *message;
    } cases[] = {
        { { .model = "/nowhere/x.gguf" }, "/nowhere/x.gguf" },
        { { .model = MODEL("llama2"), .device = "tpu" }, "device \"tpu\"" },
        { { .model = MODEL("llama2"), .stages = "0" }, "stages \"0\"" },
        { { .model = MODEL("llama2"), .stages = "1,1" }, "stages \"1,1\"" },
        { { .model = MODEL("llama2"), .stages = "99" }, "stages \"99\"" },
        { { .model = MODEL("llama2"), .n_batch = 1u << 30 }, "n_batch" },
        { { .model = MODEL("llama2"), .n_kv_tokens = 5 }, "n_kv_tokens is 5; want at least the context" },
        { { .model = MODEL("mixtral"), .n_tensor_parallel = 2, .stages = "1" },
          "n_tensor_parallel does not work with stages" },
        { { .model = MODEL("llama2"), .n_threads = 5000 }, "5000 threads" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ingot_engine_options o = cases[i].o;
        struct ingot_error error = { 0 };
        o.size = sizeof o;
        assert_null(ingot_engine_open(&o, &error));
        if (!strstr(error.message, cases[i].message))
            fail_msg("message '%s' does not contain '%s'", error.message, cases[i].message);
    }
}

static void cancelling_ends_at_any_time(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("llama2"));
    o.n_batch = 8;
    struct ingot_engine *engine = open_or_fail(&o);
    uint32_t tokens[N_PROMPT] = { 1, 2, 3 };
    for (int steps = 0; steps < 8; steps++) { // before the first step, during the prompt, while generating
        struct ingot_request_options r = request(tokens, 0);
        struct ingot_request *q = ingot_submit(engine, &r, NULL);
        struct ingot_event e = { 0 };
        bool busy = true;
        for (int i = 0; i < steps; i++)
            ingot_step(engine, &busy, NULL);
        ingot_cancel(q);
        ingot_step(engine, &busy, NULL);
        assert_false(busy);
        while (ingot_poll(q, &e))
            ;
        assert_true(e.done);
        assert_int_equal(e.result->finish, INGOT_FINISH_CANCELLED);
        ingot_request_free(q);
    }
    struct ingot_session *s = ingot_session_create(engine, NULL); // no slot was lost
    assert_non_null(s);
    ingot_session_free(s);
    ingot_engine_close(engine);
}

static enum ingot_finish finish_of(struct ingot_request *q)
{
    struct ingot_event e = { 0 };
    while (ingot_poll(q, &e))
        ;
    assert_true(e.done);
    return e.result->finish;
}

static void closing_ends_all_that_runs(void **state)
{
    (void)state;
    enum { N = 5 };
    struct ingot_engine_options o = defaults(MODEL("llama2"));
    o.n_sequences = 3;
    o.n_batch = 8;
    struct ingot_engine *engine = open_or_fail(&o);
    struct ingot_session *s = ingot_session_create(engine, NULL);
    uint32_t tokens[N_PROMPT] = { 1, 2, 3 };
    struct ingot_request_options r = request(tokens, 0);
    struct ingot_request *q[N];
    bool busy = true;
    q[0] = ingot_submit(engine, &r, NULL); // done before the end
    while (busy)
        ingot_step(engine, &busy, NULL);
    r.session = s;
    for (int i = 1; i < N; i++) { // of these one runs, then three; the last one waits for its session
        q[i] = ingot_submit(engine, &r, NULL);
        r.session = i == 3 ? s : NULL;
        ingot_step(engine, &busy, NULL);
    }
    ingot_engine_close(engine);
    for (int i = 0; i < N; i++)
        assert_int_equal(finish_of(q[i]), i == 0 ? INGOT_FINISH_LENGTH : INGOT_FINISH_CANCELLED);
    for (int i = 0; i < N; i++)
        ingot_request_free(q[(i + 2) % N]);
    ingot_session_free(s); // the engine goes here
}

static void freeing_a_session_ends_its_requests(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("llama2"));
    struct ingot_engine *engine = open_or_fail(&o);
    uint32_t tokens[N_PROMPT] = { 1, 2, 3 };
    struct ingot_request_options r = request(tokens, 0);
    struct ingot_request *q[2];
    bool busy = true;
    r.session = ingot_session_create(engine, NULL);
    for (int i = 0; i < 2; i++) { // the second waits for the first
        q[i] = ingot_submit(engine, &r, NULL);
        ingot_step(engine, &busy, NULL);
    }
    ingot_session_free(r.session);
    ingot_step(engine, &busy, NULL);
    assert_false(busy);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(finish_of(q[i]), INGOT_FINISH_CANCELLED);
        ingot_request_free(q[i]);
    }
    r.session = NULL; // its sequence is free again
    assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, NULL));
    ingot_engine_close(engine);
}

// A request that waits for a session ends in one of two ways; the one that runs there must not notice.
static void what_waits_for_a_session_may_end_before(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("llama2"));
    struct ingot_engine *engine = open_or_fail(&o);
    uint32_t tokens[N_PROMPT] = { 1, 2, 3 };
    struct ingot_request_options r = request(tokens, 1);
    struct trace *alone = generate(engine, &r);
    for (int late = 0; late < 2; late++) {
        struct trace t = { 0 };
        bool busy = true, done = false;
        r.session = ingot_session_create(engine, NULL);
        r.deadline_ms = 0;
        struct ingot_request *first = ingot_submit(engine, &r, NULL);
        ingot_step(engine, &busy, NULL);
        r.deadline_ms = (uint32_t)late;
        struct ingot_request *second = ingot_submit(engine, &r, NULL);
        usleep(2000);
        if (!late)
            ingot_cancel(second);
        ingot_step(engine, &busy, NULL);
        assert_int_equal(finish_of(second), late ? INGOT_FINISH_ERROR : INGOT_FINISH_CANCELLED);
        r.deadline_ms = 0;
        struct ingot_request *third = ingot_submit(engine, &r, NULL);
        for (struct ingot_event e; !done;) {
            ingot_step(engine, &busy, NULL);
            while (ingot_poll(first, &e)) {
                record(&t, &e);
                done |= e.done;
            }
        }
        assert_memory_equal(&t, alone, sizeof t);
        ingot_request_free(first);
        ingot_request_free(second);
        ingot_request_free(third);
        ingot_session_free(r.session);
        r.session = NULL;
    }
    free(alone);
    ingot_engine_close(engine);
}

struct endless {
    struct ingot_engine *engine;
    atomic_bool begun;
    struct ingot_result result;
};

static bool tell_begin(void *arg, const struct ingot_event *event)
{
    struct endless *w = arg;
    (void)event;
    atomic_store(&w->begun, true);
    return true;
}

static void *generate_endlessly(void *arg)
{
    struct endless *w = arg;
    uint32_t tokens[N_PROMPT] = { 1, 2, 3 };
    struct ingot_request_options r = request(tokens, 0);
    r.max_tokens = 0;
    r.ignore_eos = true;
    ingot_generate(w->engine, &r, tell_begin, w, &w->result, NULL);
    return NULL;
}

static void closing_ends_what_another_thread_generates(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("llama2"));
    o.n_context = 1 << 16; // long enough to be closed on the way
    for (useconds_t pause_us = 0; pause_us < 2000; pause_us += 250) {
        struct endless w = { .engine = open_or_fail(&o) };
        pthread_t thread;
        pthread_create(&thread, NULL, generate_endlessly, &w);
        while (!atomic_load(&w.begun))
            sched_yield();
        usleep(pause_us);
        ingot_engine_close(w.engine);
        pthread_join(thread, NULL);
        assert_int_equal(w.result.finish, INGOT_FINISH_CANCELLED);
    }
}

static void nothing_is_allocated_per_token(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("qwen3"));
    o.n_sequences = 2;
    o.n_threads = 2;
    struct ingot_engine *engine = open_or_fail(&o);
    uint32_t tokens[N_PROMPT] = { 1, 2, 3 };
    struct ingot_request_options r = request(tokens, 0);
    r.max_tokens = 0;
    r.sampling.temperature = 0.9f;
    r.sampling.repeat_penalty = 1.1f;
    struct ingot_request *a = ingot_submit(engine, &r, NULL), *b = ingot_submit(engine, &r, NULL);
    bool busy;
    for (int i = 0; i < 3; i++)
        ingot_step(engine, &busy, NULL);
    uint64_t before = mem_n_allocations();
    for (int i = 0; i < 40; i++) // pages are added on the way
        ingot_step(engine, &busy, NULL);
    assert_true(busy);
    assert_int_equal(mem_n_allocations() - before, 0);
    ingot_request_free(a);
    ingot_request_free(b);
    ingot_engine_close(engine);
}

static bool append_text(void *arg, const struct ingot_event *event)
{
    char *text = arg;
    size_t n = strlen(text);
    assert_true(n + event->n_bytes < 400);
    memcpy(text + n, event->text, event->n_bytes + 1);
    return true;
}

// A processor that claims to work on its own, and copies results when they are collected: a step that was
// played meanwhile must have left them alone.
static const unsigned char *fetches[DEVICE_FETCHES];
static bool fetch_place(struct device *d, const struct buffer *b, struct device_span span, uint32_t fetch,
                        struct err *err)
{
    (void)d, (void)err;
    fetches[fetch] = (const unsigned char *)b->host + span.offset;
    return true;
}
static bool collect_fetched(struct device *d, uint32_t fetch, void *to, uint64_t bytes, struct err *err)
{
    (void)d, (void)err;
    memcpy(to, fetches[fetch], bytes);
    return true;
}

// Answers in one session, which end where the model ends them: a row too many was fed each time.
static void ask_twice(struct ingot_engine *engine, char answers[2][400], uint32_t *n_reused)
{
    struct ingot_session *s = ingot_session_create(engine, NULL);
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_message messages[3] = { { .role = "user", .content = "What is your name?" },
                                         { 0 },
                                         { .role = "user", .content = "Say hello." } };
    struct ingot_result result;
    struct ingot_error error = { 0 };

    r.session = s;
    r.sampling.temperature = 0;
    r.max_tokens = 80;
    r.messages = messages;
    for (int i = 0; i < 2; i++) {
        r.n_messages = i == 0 ? 1 : 3;
        answers[i][0] = 0;
        if (!ingot_generate(engine, &r, append_text, answers[i], &result, &error))
            fail_msg("%s", error.message);
        assert_int_equal(result.finish, INGOT_FINISH_EOS);
        messages[1] = (struct ingot_message){ .role = "assistant", .content = answers[0] };
    }
    *n_reused = result.n_reused;
    ingot_session_free(s);
}

static void steps_queued_ahead_change_nothing(void **state)
{
    static const struct device_queue queue = { .fetch = fetch_place, .collect = collect_fetched };
    (void)state;
    struct ingot_engine_options o = defaults(SOURCE_DIR "/models/ingot-7m-q8_0.gguf");
    o.speculate = INGOT_SPECULATE_OFF; // by measured times, and plays are counted here
    struct ingot_engine *engine = open_or_fail(&o);
    char alone[2][400], ahead[2][400];
    uint32_t n_reused[2];

    ask_twice(engine, alone, &n_reused[0]);
    uint64_t plays = engine->inner.loaded->devices.at[0]->counters.plays;
    ask_twice(engine, alone, &n_reused[0]);
    plays = engine->inner.loaded->devices.at[0]->counters.plays - plays;
    engine->inner.loaded->devices.at[0]->queue = &queue;
    uint64_t before = engine->inner.loaded->devices.at[0]->counters.plays;
    ask_twice(engine, ahead, &n_reused[1]);
    // one for each answer's end
    assert_int_equal(engine->inner.loaded->devices.at[0]->counters.plays - before, plays + 2);
    assert_int_equal(n_reused[0], n_reused[1]);
    for (int i = 0; i < 2; i++)
        assert_string_equal(alone[i], ahead[i]);
    ingot_engine_close(engine);
}

static void a_layer_is_five_commands(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("llama3"));
    struct ingot_engine *engine = open_or_fail(&o);
    struct engine *e = &engine->inner;
    const struct bucket *one = &e->loaded->stages[0].buckets[0];
    assert_int_equal(tape_n_commands(one->tape), 2 + 5 * e->loaded->model.config.n_layers + 4);
    // A pure chain: every command waits for the one before, save that angles and embed run side by side.
    assert_int_equal(tape_n_barriers(one->tape), tape_n_commands(one->tape) - 2);
    struct device_counters before = e->loaded->devices.at[0]->counters;
    uint32_t tokens[1] = { 5 };
    struct ingot_request_options r = request(tokens, 0);
    r.n_tokens = 1;
    r.max_tokens = 3;
    assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, NULL));
    struct device_counters after = e->loaded->devices.at[0]->counters;
    assert_int_equal(after.plays - before.plays, 3);
    assert_int_equal(after.submissions - before.submissions, 3);
    assert_int_equal(after.waits - before.waits, 3);
    assert_int_equal(after.read_bytes - before.read_bytes, 3 * 4); // four bytes a token
    assert_int_equal(after.buffers - before.buffers, 0);
    ingot_engine_close(engine);
}

static bool print_bad(void *arg, const struct verify_finding *f)
{
    (void)arg;
    if (!(f->error <= f->limit))
        print_error("%s %s: error %g, limit %g\n", f->name, f->label, f->error, f->limit);
    return true;
}

static void every_command_agrees_with_the_plain_loops(void **state)
{
    (void)state;
    static const char *const models[] = { MODEL("llama3"), MODEL("qwen2"), MODEL("qwen3"), MODEL("devstral"),
                                          MODEL("smollm2") };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        for (uint32_t n_rows = 1; n_rows <= 33; n_rows += 16)
            for (int exact = 0; exact < 2; exact++) {
                struct ingot_engine_options o = defaults(models[i]);
                struct err err = { 0 };
                struct verification v = { .n_rows = n_rows, .on_command = print_bad, .n_bad = 1 };
                o.exact = exact;
                o.n_threads = 2;
                o.stages = "1";
                assert_ok(engine_verify(&o, &v, &err), &err);
                assert_int_equal(v.n_bad, 0);
            }
}

static void loading_survives_every_failed_allocation(void **state)
{
    (void)state;
    struct ingot_engine_options o = defaults(MODEL("llama2"));
    bool opened = false;
    for (uint64_t k = 1; k < 3000 && !opened; k++) {
        struct ingot_error error = { 0 };
        mem_fail_at(k, k % 2);
        struct ingot_engine *engine = ingot_engine_open(&o, &error);
        mem_fail_at(0, 0);
        opened = engine != NULL;
        if (!engine)
            assert_int_not_equal(error.code, INGOT_OK);
        ingot_engine_close(engine);
    }
    assert_true(opened); // in the end none of them failed
}

struct stream_counts {
    struct ingot_engine *engine;
    uint32_t prompt;
    bool same;
};

static void *one_stream(void *arg)
{
    struct stream_counts *s = arg;
    uint32_t tokens[N_PROMPT];
    make_prompt(tokens, s->prompt, 0, n_vocab(s->engine));
    struct ingot_request_options r = request(tokens, 1);
    struct trace *first = generate(s->engine, &r);
    s->same = true;
    for (int i = 0; i < 5; i++) {
        struct trace *again = generate(s->engine, &r);
        s->same &= memcmp(first, again, sizeof *first) == 0;
        free(again);
    }
    free(first);
    return NULL;
}

static void many_threads_may_generate(void **state)
{
    (void)state;
    enum { N = 4 };
    struct ingot_engine_options o = defaults(MODEL("llama2"));
    struct stream_counts streams[N];
    pthread_t threads[N];
    o.n_sequences = 3;
    o.n_threads = 2;
    struct ingot_engine *engine = open_or_fail(&o);
    for (uint32_t i = 0; i < N; i++) {
        streams[i] = (struct stream_counts){ engine, i, false };
        pthread_create(&threads[i], NULL, one_stream, &streams[i]);
    }
    for (uint32_t i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_true(streams[i].same);
    }
    ingot_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_threads_and_stages_give_the_same_bits),
        cmocka_unit_test(a_batch_gives_each_the_same_bits_as_alone),
        cmocka_unit_test(dealt_by_rows_each_gets_the_same_bits_as_alone),
        cmocka_unit_test(a_session_reuses_what_it_knows),
        cmocka_unit_test(sessions_are_counted),
        cmocka_unit_test(limits_are_errors_with_numbers),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(cancelling_ends_at_any_time),
        cmocka_unit_test(closing_ends_all_that_runs),
        cmocka_unit_test(freeing_a_session_ends_its_requests),
        cmocka_unit_test(what_waits_for_a_session_may_end_before),
        cmocka_unit_test(closing_ends_what_another_thread_generates),
        cmocka_unit_test(nothing_is_allocated_per_token),
        cmocka_unit_test(a_layer_is_five_commands),
        cmocka_unit_test(steps_queued_ahead_change_nothing),
        cmocka_unit_test(every_command_agrees_with_the_plain_loops),
        cmocka_unit_test(loading_survives_every_failed_allocation),
        cmocka_unit_test(many_threads_may_generate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
