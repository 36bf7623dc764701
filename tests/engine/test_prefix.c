// test_prefix.c - pages that requests share: what is reused, what is not and why, and that no way to an
// answer changes its bits.
//
// Every answer is compared with that of the same request alone on an engine that shares nothing and has one
// device; the engine that shares has one device, then two.
#include <stdlib.h>
#include "engine/api.h"
#include "engine/kv/prefix.h"
#include "open_engine.h"

#define MODEL SOURCE_DIR "/tests/golden/llama3/model.gguf"
enum { MAX_PROMPT = 96, N_NEW = 6, N_COMPARED = 64 };

struct answer_bits {
    uint32_t tokens[N_NEW];
    float logits[N_NEW][N_COMPARED];
    uint32_t n_tokens, n_logits;
};

struct question {
    uint32_t tokens[MAX_PROMPT], n;
    struct ingot_request_options options;
};

static const char *shared_on = "cpu"; // the device of engines that share pages

static bool record(void *arg, const struct ingot_event *event)
{
    struct answer_bits *a = arg;
    if (event->token != UINT32_MAX)
        a->tokens[a->n_tokens++] = event->token;
    if (event->logits)
        memcpy(a->logits[a->n_logits++], event->logits, sizeof a->logits[0]);
    return true;
}

static struct ingot_engine *open_engine(uint32_t n_sequences, uint32_t n_kv_tokens, bool no_prefix_cache)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    o.model = MODEL;
    o.device = no_prefix_cache ? "cpu" : shared_on;
    o.stages = strcmp(o.device, "cpu") ? "1" : NULL;
    o.n_threads = 1;
    o.n_context = 128;
    o.n_sequences = n_sequences;
    o.n_kv_tokens = n_kv_tokens;
    o.no_prefix_cache = no_prefix_cache;
    return open_or_fail(&o);
}

// Number `family` chooses the beginning, of `shared` tokens; `own` the rest.
static void ask(struct question *q, uint32_t family, uint32_t shared, uint32_t own, uint32_t n)
{
    q->n = n;
    for (uint32_t i = 0; i < n; i++)
        q->tokens[i] = ((i < shared ? family * 7919 : own * 6101 + 3) + i * 104729 + 11) % 250;
    q->options = ingot_request_defaults();
    q->options.tokens = q->tokens;
    q->options.n_tokens = n;
    q->options.max_tokens = N_NEW;
    q->options.n_logits = 1;
    q->options.ignore_eos = true;
    q->options.sampling.seed = own;
}

static struct ingot_result run(struct ingot_engine *engine, const struct question *q,
                               struct answer_bits *bits)
{
    struct ingot_result result = { 0 };
    struct ingot_error error;
    memset(bits, 0, sizeof *bits);
    if (!ingot_generate(engine, &q->options, record, bits, &result, &error))
        fail_msg("%s", error.message);
    return result;
}

static void assert_as_alone(struct ingot_engine *alone, const struct question *q,
                            const struct answer_bits *bits)
{
    struct answer_bits expected;
    run(alone, q, &expected);
    assert_memory_equal(&expected, bits, sizeof expected);
}

static void a_beginning_is_computed_once(void **state)
{
    struct ingot_engine *engine = open_engine(2, 0, false), *alone = open_engine(1, 0, true);
    struct answer_bits bits;
    struct question q;
    (void)state;

    ask(&q, 1, 64, 5, 84);
    assert_int_equal(run(engine, &q, &bits).n_reused, 0);
    ask(&q, 1, 64, 6, 80); // 64 tokens in common
    struct ingot_result r = run(engine, &q, &bits);
    assert_int_equal(r.n_reused, 64);
    assert_int_equal(r.miss.reason, INGOT_MISS_DIFFERS);
    assert_int_equal(r.miss.position, 64);
    assert_int_equal(r.miss.token, q.tokens[64]);
    assert_as_alone(alone, &q, &bits);
    ask(&q, 1, 64, 6, 80); // the same again: whole pages before the last token, 64 of 79
    r = run(engine, &q, &bits);
    assert_int_equal(r.n_reused, 64);
    assert_as_alone(alone, &q, &bits);
    ask(&q, 1, 40, 7, 48); // in common: two pages and a half
    assert_int_equal(run(engine, &q, &bits).n_reused, 32);
    assert_as_alone(alone, &q, &bits);
    q.options.n_logits = 20; // logits of the last 20 are wanted: their rows are computed
    q.options.max_tokens = 1;
    struct ingot_result all;
    assert_true(ingot_generate(engine, &q.options, NULL, NULL, &all, NULL));
    assert_int_equal(all.n_reused, 16);
    ingot_engine_close(engine);
    ingot_engine_close(alone);
}

static void salts_keep_tenants_apart(void **state)
{
    struct ingot_engine *engine = open_engine(2, 0, false);
    struct answer_bits bits;
    struct question q;
    (void)state;

    ask(&q, 2, 64, 1, 64);
    q.options.cache_salt = "tenant one";
    run(engine, &q, &bits);
    q.options.cache_salt = "tenant two";
    struct ingot_result r = run(engine, &q, &bits);
    assert_int_equal(r.n_reused, 0);
    assert_int_equal(r.miss.reason, INGOT_MISS_SALT);
    q.options.cache_salt = "tenant one";
    assert_int_equal(run(engine, &q, &bits).n_reused, 48);
    ingot_engine_close(engine);
}

static void the_longest_unused_goes_first(void **state)
{
    struct ingot_engine *engine = open_engine(1, 160, false); // ten pages
    struct answer_bits bits;
    struct question q;
    (void)state;

    ask(&q, 1, 48, 1, 48); // three pages each and one for the answer
    run(engine, &q, &bits);
    ask(&q, 2, 48, 1, 48);
    run(engine, &q, &bits);
    ask(&q, 1, 48, 1, 48); // used again: family 2 is older now
    assert_int_equal(run(engine, &q, &bits).n_reused, 32);
    ask(&q, 3, 80, 1, 80); // wants six pages, four of them are free
    run(engine, &q, &bits);
    ask(&q, 1, 48, 1, 48);
    assert_int_equal(run(engine, &q, &bits).n_reused, 32);
    ask(&q, 2, 48, 1, 48);
    struct ingot_result r = run(engine, &q, &bits);
    assert_in_range(r.n_reused, 0, 16); // its end was given up
    assert_int_equal(r.miss.reason, INGOT_MISS_EVICTED);
    ingot_engine_close(engine);
}

// With keys of two bits everything collides: tokens decide.
static void keys_that_collide_give_no_wrong_page(void **state)
{
    struct ingot_engine *engine = open_engine(2, 0, false), *alone = open_engine(1, 0, true);
    struct answer_bits bits;
    struct question q;
    (void)state;

    prefix_weaken(engine->inner.kv.prefix, 2);
    for (uint32_t i = 0; i < 12; i++) {
        ask(&q, i % 3, 32 + 16 * (i % 2), i, 64);
        run(engine, &q, &bits);
        assert_as_alone(alone, &q, &bits);
    }
    ingot_engine_close(engine);
    ingot_engine_close(alone);
}

static void a_late_request_ends_with_its_deadline(void **state)
{
    struct ingot_engine *engine = open_engine(1, 0, false);
    struct ingot_event e = { 0 };
    struct question q;
    bool busy = true;
    (void)state;

    ask(&q, 1, 0, 1, 64);
    q.options.max_tokens = 60;
    q.options.n_logits = 0;
    q.options.deadline_ms = 1;
    struct ingot_request *r = ingot_submit(engine, &q.options, NULL);
    struct timespec pause = { .tv_nsec = 5000000 };
    nanosleep(&pause, NULL);
    while (busy)
        assert_true(ingot_step(engine, &busy, NULL));
    while (ingot_poll(r, &e))
        ;
    assert_true(e.done);
    assert_int_equal(e.result->finish, INGOT_FINISH_ERROR);
    assert_int_equal(e.result->error.code, INGOT_TIMEOUT);
    assert_non_null(strstr(e.result->error.message, "deadline of 1 ms"));
    ingot_request_free(r);
    ingot_engine_close(engine);
}

static void the_urgent_goes_before_the_patient(void **state)
{
    struct ingot_engine *engine = open_engine(1, 0, false), *alone = open_engine(1, 0, true);
    struct question patient, urgent;
    struct answer_bits bits[2] = { 0 };
    bool busy = true, urgent_is_done = false;
    (void)state;

    ask(&patient, 1, 0, 1, 64);
    ask(&urgent, 2, 0, 2, 64);
    urgent.options.priority = -1;
    struct ingot_request *p = ingot_submit(engine, &patient.options, NULL), *u;
    for (int i = 0; i < 3; i++) // it has begun to answer
        ingot_step(engine, &busy, NULL);
    u = ingot_submit(engine, &urgent.options, NULL);
    struct ingot_event e = { 0 };
    while (busy) {
        assert_true(ingot_step(engine, &busy, NULL));
        while (ingot_poll(u, &e)) {
            record(&bits[1], &e);
            urgent_is_done = urgent_is_done || e.done;
        }
        while (ingot_poll(p, &e)) {
            record(&bits[0], &e);
            assert_true(!e.done || urgent_is_done);
        }
    }
    assert_int_equal(e.result->n_pauses, 1);
    assert_as_alone(alone, &patient, &bits[0]);
    assert_as_alone(alone, &urgent, &bits[1]);
    ingot_request_free(p);
    ingot_request_free(u);
    ingot_engine_close(engine);
    ingot_engine_close(alone);
}

static void paused_requests_go_on_with_the_same_bits(void **state)
{
    enum { N = 6 };
    // 11 pages for six requests
    struct ingot_engine *engine = open_engine(N, 176, false), *alone = open_engine(1, 0, true);
    struct question q[N];
    struct answer_bits bits[N] = { 0 };
    struct ingot_request *r[N];
    struct ingot_engine_stats stats;
    bool busy = true;
    (void)state;

    for (uint32_t i = 0; i < N; i++) {
        ask(&q[i], i, 0, i, 28); // two pages; the answer needs a third
        r[i] = ingot_submit(engine, &q[i].options, NULL);
    }
    while (busy) {
        assert_true(ingot_step(engine, &busy, NULL));
        for (uint32_t i = 0; i < N; i++)
            for (struct ingot_event e; ingot_poll(r[i], &e);)
                record(&bits[i], &e);
    }
    ingot_engine_stats(engine, &stats);
    for (uint32_t i = 0; i < N; i++) {
        assert_as_alone(alone, &q[i], &bits[i]);
        ingot_request_free(r[i]);
    }
    assert_true(stats.n_pauses > 0);
    assert_int_equal(stats.n_pages_held, 0);
    assert_int_equal(stats.n_waiting + stats.n_running, 0);
    ingot_engine_close(engine);
    ingot_engine_close(alone);
}

// ---- a thousand

enum { N_REQUESTS = 1000, N_KINDS = 125, AT_ONCE = 24 };

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

// Half of the beginnings are shared, each kind is asked about eight times: cold, warm, paused, in every
// batch.
static void make_kind(struct question *q, uint32_t kind)
{
    uint32_t random = kind * 977 + 5, n = 20 + draw(&random, MAX_PROMPT - 20);

    ask(q, kind % 7, draw(&random, n), kind, n);
    q->options.sampling.temperature = kind % 3 ? 0.9f : 0;
    q->options.sampling.repeat_penalty = kind % 5 ? 1 : 1.2f;
    q->options.cache_salt = kind % 11 ? NULL : "another";
    q->options.priority = (int32_t)(kind % 4) - 2;
}

static void a_thousand_requests_answer_as_alone(void **state)
{
    struct ingot_engine *engine = open_engine(8, 16 * 24, false), *alone = open_engine(1, 0, true);
    struct question *q = calloc(N_KINDS, sizeof *q);
    struct answer_bits *expected = calloc(N_KINDS, sizeof *expected), bits[AT_ONCE] = { 0 };
    struct ingot_request *r[AT_ONCE] = { 0 };
    uint32_t kinds[AT_ONCE] = { 0 }, n_begun = 0, n_done = 0, n_cancelled = 0, random = 1;
    uint64_t n_reused = 0;
    struct ingot_engine_stats stats;
    (void)state;

    for (uint32_t k = 0; k < N_KINDS; k++) {
        make_kind(&q[k], k);
        run(alone, &q[k], &expected[k]);
    }
    while (n_done < N_REQUESTS) {
        bool busy;
        for (uint32_t i = 0; i < AT_ONCE && n_begun < N_REQUESTS; i++) {
            if (r[i] || draw(&random, 3))
                continue;
            kinds[i] = n_begun++ * 37 % N_KINDS;
            memset(&bits[i], 0, sizeof bits[i]);
            r[i] = ingot_submit(engine, &q[kinds[i]].options, NULL);
            assert_non_null(r[i]);
        }
        assert_true(ingot_step(engine, &busy, NULL));
        for (uint32_t i = 0; i < AT_ONCE; i++) {
            if (!r[i])
                continue;
            if (draw(&random, 400) == 0)
                ingot_cancel(r[i]);
            struct ingot_event e = { 0 };
            while (ingot_poll(r[i], &e))
                record(&bits[i], &e);
            if (!e.done)
                continue;
            if (e.result->finish == INGOT_FINISH_CANCELLED)
                n_cancelled++;
            else if (memcmp(&bits[i], &expected[kinds[i]], sizeof bits[i]) != 0)
                fail_msg("request %u of kind %u is not the same bits as alone", n_done, kinds[i]);
            n_reused += e.result->n_reused;
            n_done++;
            ingot_request_free(r[i]);
            r[i] = NULL;
        }
    }
    ingot_engine_stats(engine, &stats);
    assert_int_equal(stats.n_pages_held, 0);
    assert_true(stats.n_pauses > 0);
    assert_true(n_reused > N_REQUESTS);
    assert_in_range(n_cancelled, 1, N_REQUESTS / 4);
    free(q);
    free(expected);
    ingot_engine_close(engine);
    ingot_engine_close(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_beginning_is_computed_once),
        cmocka_unit_test(salts_keep_tenants_apart),
        cmocka_unit_test(the_longest_unused_goes_first),
        cmocka_unit_test(keys_that_collide_give_no_wrong_page),
        cmocka_unit_test(a_late_request_ends_with_its_deadline),
        cmocka_unit_test(the_urgent_goes_before_the_patient),
        cmocka_unit_test(paused_requests_go_on_with_the_same_bits),
        cmocka_unit_test(a_thousand_requests_answer_as_alone),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);

    shared_on = "cpu,cpu";
    return n_failed + cmocka_run_group_tests(tests, NULL, NULL);
}
