// test_speculate.c - speculative decoding changes nothing but the number of steps.
//
// Every request is answered alone, one row a step, and then with drafts: always, or while they gain; alone,
// beside others, in few pages, in one session after the other. Tokens, texts, positions, logits and
// log-probabilities are compared in bits.
#include <stdlib.h>
#include "engine/api.h"
#include "engine/session.h"
#include "open_engine.h"
#include "queued_cpu.h"

#define GOLDEN(name) SOURCE_DIR "/tests/golden/" name "/model.gguf"
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(INGOT_VALGRIND)
enum { N_REQUESTS = 50 };
#else
enum { N_REQUESTS = 250 };
#endif
enum { MAX_PROMPT = 90, MAX_NEW = 40, N_COMPARED = 32, N_KINDS = 50, AT_ONCE = 12 };

struct whole_answer {
    uint32_t tokens[MAX_NEW], positions[MAX_NEW], n_tokens, n_logits, n_text, finish;
    float logits[MAX_NEW][N_COMPARED];
    double logprobs[MAX_NEW][3];
    char text[1024];
};

struct drafted_question {
    uint32_t tokens[MAX_PROMPT];
    struct ingot_request_options options;
    struct ingot_bias bias[2];
};

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static void take(struct whole_answer *a, const struct ingot_event *event)
{
    if (event->logits)
        memcpy(a->logits[a->n_logits++], event->logits, sizeof a->logits[0]);
    for (uint32_t i = 0; i < event->n_logprobs && a->n_tokens < MAX_NEW; i++)
        a->logprobs[a->n_tokens][i] = event->logprobs[i].logprob + event->logprobs[i].token;
    if (event->token != UINT32_MAX) {
        a->positions[a->n_tokens] = event->position;
        a->tokens[a->n_tokens++] = event->token;
    }
    assert_true(a->n_text + event->n_bytes < sizeof a->text);
    memcpy(a->text + a->n_text, event->text, event->n_bytes);
    a->n_text += (uint32_t)event->n_bytes;
    if (event->done)
        a->finish = event->result->finish;
}

static bool record(void *arg, const struct ingot_event *event)
{
    take(arg, event);
    return true;
}

static struct ingot_result run(struct ingot_engine *engine, const struct drafted_question *q,
                               struct whole_answer *a)
{
    struct ingot_result result = { 0 };
    struct ingot_error error = { 0 };

    memset(a, 0, sizeof *a);
    if (!ingot_generate(engine, &q->options, record, a, &result, &error))
        fail_msg("%s", error.message);
    return result;
}

// A run of tokens again and again, now and then with another one.
static void make_tokens(struct drafted_question *q, uint32_t *random, uint32_t n_vocab)
{
    uint32_t period = 3 + draw(random, 20), n = 8 + draw(random, MAX_PROMPT - 8),
             first = draw(random, n_vocab);

    for (uint32_t i = 0; i < n; i++)
        q->tokens[i] = draw(random, 25) ? (first + i % period * 104729) % n_vocab : draw(random, n_vocab);
    q->options.tokens = q->tokens;
    q->options.n_tokens = n;
}

static void make_question(struct drafted_question *q, uint32_t kind, const struct ingot_engine_info *info)
{
    static const char *const stops[] = { " the", ". " };
    uint32_t random = kind * 977 + 5;

    q->options = ingot_request_defaults();
    make_tokens(q, &random, info->n_vocab);
    q->options.max_tokens = 1 + draw(&random, MAX_NEW);
    q->options.ignore_eos = kind % 4 != 1;
    q->options.priority = (int32_t)(kind % 3) - 1;
    q->options.sampling.seed = kind;
    q->options.sampling.temperature = kind % 3 ? 0 : 0.8f;
    q->options.sampling.top_k = 3;
    q->options.sampling.repeat_penalty = kind % 5 ? 1 : 1.1f;
    q->options.sampling.frequency_penalty = kind % 7 ? 0 : 0.3f;
    q->options.n_logits = kind % 4 == 2;
    q->options.n_logprobs = kind % 4 == 3;
    q->options.n_top_logprobs = 2;
    if (kind % 6 == 0) {
        q->bias[0] = (struct ingot_bias){ q->tokens[0], 3 };
        q->bias[1] = (struct ingot_bias){ q->tokens[1], 2 };
        q->options.bias = q->bias;
        q->options.n_bias = 2;
    }
    if (info->has_tokenizer && kind % 4 == 0) {
        q->options.stop = stops;
        q->options.n_stop = 2;
    }
    if (info->has_tokenizer && kind % 10 == 1) {
        q->options.grammar = "root ::= (\"the \" | \"fox \" | [a-c])+";
        q->options.ignore_eos = false;
    }
}

struct drafting { // a way to draft
    const char *model, *draft;
    enum ingot_speculate speculate;
    bool queue;
    uint32_t least_accepted; // of 250 requests; greedy texts, and so what repeats, differ by processor
};

static struct ingot_engine *open_engine(const struct drafting *way, uint32_t n_sequences)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = way->model;
    o.draft = way->draft;
    o.speculate = way->speculate;
    o.device = "cpu";
    o.n_threads = 1;
    o.n_context = 144;
    o.n_sequences = n_sequences;
    o.no_prefix_cache = n_sequences == 1;
    o.n_kv_tokens = n_sequences > 1 ? 16 * 24 : 0; // some have to pause
    struct ingot_engine *engine = open_or_fail(&o);
    if (way->queue)
        engine->inner.loaded->devices.at[0]->queue = &queued_cpu;
    return engine;
}

struct drafted_ask {
    struct ingot_request *request;
    struct whole_answer answer;
    uint32_t kind;
};

// True when it is over.
static bool read_events(struct drafted_ask *a, const struct whole_answer *expected, uint32_t *n_accepted)
{
    struct ingot_event e = { 0 };

    while (ingot_poll(a->request, &e))
        take(&a->answer, &e);
    if (!e.done)
        return false;
    if (e.result->finish != INGOT_FINISH_CANCELLED &&
        memcmp(&a->answer, &expected[a->kind], sizeof a->answer) != 0)
        fail_msg("a request of kind %u is not answered as without drafts", a->kind);
    assert_true(e.result->n_accepted <= e.result->n_drafted);
    *n_accepted += e.result->n_accepted;
    ingot_request_free(a->request);
    a->request = NULL;
    return true;
}

static void ask_many(struct ingot_engine *engine, const struct drafted_question *q,
                     const struct whole_answer *expected, uint32_t *n_accepted)
{
    struct drafted_ask *asked = calloc(AT_ONCE, sizeof *asked);
    uint32_t n_begun = 0, n_done = 0, random = 1;
    bool busy;

    while (n_done < N_REQUESTS) {
        for (uint32_t i = 0; i < AT_ONCE && n_begun < N_REQUESTS; i++) {
            if (asked[i].request || draw(&random, 3))
                continue;
            memset(&asked[i], 0, sizeof asked[i]);
            asked[i].kind = n_begun++ * 37 % N_KINDS;
            asked[i].request = ingot_submit(engine, &q[asked[i].kind].options, NULL);
            assert_non_null(asked[i].request);
        }
        assert_true(ingot_step(engine, &busy, NULL));
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (asked[i].request && draw(&random, 500) == 0)
                ingot_cancel(asked[i].request);
            n_done += asked[i].request && read_events(&asked[i], expected, n_accepted);
        }
    }
    free(asked);
}

// 250 requests of each way.
static void a_thousand_requests_answer_as_without(void **state)
{
    static const struct drafting ways[] = {
        { GOLDEN("llama3"), NULL, INGOT_SPECULATE_ALWAYS, false, 25 },
        { GOLDEN("deepseek2"), NULL, INGOT_SPECULATE_AUTO, true, 0 },
        { NULL, NULL, INGOT_SPECULATE_ALWAYS, true, 25 },
        { GOLDEN("gptoss"), NULL, INGOT_SPECULATE_AUTO, false, 0 },
        { GOLDEN("llama3"), GOLDEN("llama3"), INGOT_SPECULATE_ALWAYS, false, 2000 },
        { GOLDEN("mistral"), GOLDEN("llama3"), INGOT_SPECULATE_ALWAYS, true, 0 },
        { NULL, INGOT_BUILTIN, INGOT_SPECULATE_AUTO, false, 0 },
        { GOLDEN("mtp-glm4moe"), NULL, INGOT_SPECULATE_ALWAYS, false, 500 },
        { GOLDEN("mtp-deepseek3"), NULL, INGOT_SPECULATE_ALWAYS, true, 500 },
        { GOLDEN("mtp-glm4moe"), NULL, INGOT_SPECULATE_AUTO, true, 0 },
        { GOLDEN("qwen35"), GOLDEN("qwen35"), INGOT_SPECULATE_ALWAYS, false, 2000 },
        { GOLDEN("lfm2"), GOLDEN("nemotronh"), INGOT_SPECULATE_ALWAYS, true, 0 },
        { GOLDEN("mtp-qwen35"), NULL, INGOT_SPECULATE_ALWAYS, true, 500 },
        { GOLDEN("mtp-qwen35moe"), NULL, INGOT_SPECULATE_ALWAYS, false, 500 },
    };
    struct drafted_question *q = calloc(N_KINDS, sizeof *q);
    struct whole_answer *expected = calloc(N_KINDS, sizeof *expected);
    (void)state;

    for (size_t m = 0; m < sizeof ways / sizeof *ways; m++) {
        const struct drafting without = { .model = ways[m].model, .speculate = INGOT_SPECULATE_OFF };
        struct ingot_engine *plain = open_engine(&without, 1), *engine = open_engine(&ways[m], 6);
        struct ingot_engine_info info;
        struct ingot_engine_stats stats;
        uint32_t n_accepted = 0;
        ingot_engine_info(engine, &info);
        for (uint32_t k = 0; k < N_KINDS; k++) {
            make_question(&q[k], k, &info);
            assert_int_equal(run(plain, &q[k], &expected[k]).n_drafted, 0);
        }
        ask_many(engine, q, expected, &n_accepted);
        ingot_engine_stats(engine, &stats);
        assert_int_equal(stats.n_pages_held, 0);
        assert_int_equal(stats.n_accepted, n_accepted);
        print_message("%s: %llu drafted, %u accepted, %llu pauses\n", info.model_name,
                      (unsigned long long)stats.n_drafted, n_accepted, (unsigned long long)stats.n_pauses);
        assert_true(n_accepted >= ways[m].least_accepted * N_REQUESTS / 250);
        ingot_engine_close(plain);
        ingot_engine_close(engine);
    }
    free(q);
    free(expected);
}

// Greedy, with a bias that makes the answer a run of one token on every processor: fewer steps, and the
// session holds what a session without drafts holds.
static void repeats_take_fewer_steps(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_engine_stats stats;
    const struct ingot_bias bias = { 70, 1000 };
    uint32_t tokens[2][128], n_tokens[2];
    uint64_t n_steps[2];
    struct whole_answer a[2];
    (void)state;

    for (int drafts = 0; drafts < 2; drafts++) {
        o.n_threads = 1;
        o.speculate = drafts ? INGOT_SPECULATE_ALWAYS : INGOT_SPECULATE_OFF;
        struct ingot_engine *engine = open_or_fail(&o);
        struct drafted_question q = { .options = ingot_request_defaults() };
        q.options.text = "a b c d e f a b c d e f a b c d e f a b c d e f a b c d e f";
        q.options.sampling.temperature = 0;
        q.options.max_tokens = MAX_NEW;
        q.options.ignore_eos = true;
        q.options.bias = &bias;
        q.options.n_bias = 1;
        q.options.session = ingot_session_create(engine, NULL);
        struct ingot_result result = run(engine, &q, &a[drafts]);
        ingot_engine_stats(engine, &stats);
        n_steps[drafts] = stats.n_steps;
        n_tokens[drafts] = ingot_session_tokens(q.options.session, tokens[drafts], 128);
        assert_int_equal(engine->inner.kv.n_taken[q.options.session->slot], kv_pages_of(n_tokens[drafts]));
        assert_true(drafts ? result.n_accepted > 10 : result.n_drafted == 0);
        assert_true(!drafts || result.draft_gain > 0);
        q.options.tokens = tokens[drafts]; // a second request goes on with what it holds
        q.options.n_tokens = n_tokens[drafts];
        q.options.text = NULL;
        assert_int_equal(run(engine, &q, &a[drafts]).n_reused, n_tokens[drafts] - 1);
        ingot_session_free(q.options.session);
        ingot_engine_close(engine);
    }
    assert_int_equal(n_tokens[0], n_tokens[1]);
    assert_memory_equal(tokens[0], tokens[1], n_tokens[0] * sizeof *tokens[0]);
    assert_memory_equal(&a[0], &a[1], sizeof a[0]);
    assert_true(n_steps[1] * 2 < n_steps[0]);
}

// Drafted rows take no other request's place in a step.
static void every_request_has_its_row_in_each_step(void **state)
{
    enum { N = 3, N_EACH = 30 };
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_request *requests[N];
    uint32_t tokens[60], n_tokens[N] = { 0 };
    bool busy = true;
    (void)state;

    o.model = o.draft = GOLDEN("llama3");
    o.device = "cpu";
    o.n_threads = 1;
    o.n_sequences = N;
    o.speculate = INGOT_SPECULATE_ALWAYS;
    struct ingot_engine *engine = open_or_fail(&o);
    for (uint32_t i = 0; i < 60; i++)
        tokens[i] = 20 + i % 5;
    for (uint32_t i = 0; i < N; i++) {
        struct ingot_request_options r = greedy_request(tokens, 50 + i, N_EACH);
        assert_non_null(requests[i] = ingot_submit(engine, &r, NULL));
    }
    while (engine->inner.speculation.n_drafted < 30 && busy) {
        uint32_t before[N];
        memcpy(before, n_tokens, sizeof before);
        assert_true(ingot_step(engine, &busy, NULL));
        for (uint32_t i = 0; i < N; i++)
            for (struct ingot_event e; ingot_poll(requests[i], &e);)
                n_tokens[i] += e.token != UINT32_MAX;
        bool all_run = before[0] > 0 && before[1] > 0 && before[2] > 0;
        for (uint32_t i = 0; i < N && all_run; i++)
            assert_true(before[i] == N_EACH || n_tokens[i] > before[i]);
    }
    assert_true(engine->inner.speculation.n_drafted >= 30);
    for (uint32_t i = 0; i < N; i++)
        ingot_request_free(requests[i]);
    ingot_engine_close(engine);
}

static void another_vocabulary_is_refused(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error;
    (void)state;

    o.model = GOLDEN("llama3");
    o.draft = GOLDEN("qwen3");
    assert_null(ingot_engine_open(&o, &error));
    assert_non_null(strstr(error.message, "the draft model has"));
    o.draft = "no-such-file.gguf";
    assert_null(ingot_engine_open(&o, &error));
    assert_non_null(strstr(error.message, "the draft model: "));
}

static void a_run_is_found_where_most_agrees(void **state)
{
    const uint32_t tokens[] = { 9, 1, 2, 3, 50, 4, 1, 2, 3, 60, 9, 1, 2, 3 };
    struct ngram g;
    struct err err;
    (void)state;

    assert_ok(ngram_create(&g, 14, &err), &err);
    assert_int_equal(ngram_find(&g, tokens, 2).length, 0);
    assert_int_equal(ngram_find(&g, tokens, 8).length, 0); // 4 1 2
    struct ngram_match m = ngram_find(&g, tokens, 9);
    assert_true(m.at == 4 && m.length == 3);
    m = ngram_find(&g, tokens, 14);
    assert_true(m.at == 4 && m.length == 4); // 9 1 2 3, and not the later 4 1 2 3
    ngram_release(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_found_where_most_agrees),
        cmocka_unit_test(another_vocabulary_is_refused),
        cmocka_unit_test(repeats_take_fewer_steps),
        cmocka_unit_test(every_request_has_its_row_in_each_step),
        cmocka_unit_test(a_thousand_requests_answer_as_without),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
