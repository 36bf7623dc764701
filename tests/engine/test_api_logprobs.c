// test_api_logprobs.c - log-probabilities in events, against what the rows of logits give.
#include <math.h>
#include "open_engine.h"

enum { N_PROMPT = 6, N_NEW = 5, N_TOP = 4 };

struct logprobs_seen {
    const struct ingot_request_options *o;
    uint32_t n_vocab, n_prompt_rows, n_new;
};

static double sum_of(const float *logits, uint32_t n)
{
    double sum = 0, most = -INFINITY;

    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, logits[i]);
    for (uint32_t i = 0; i < n; i++)
        sum += exp(logits[i] - most);
    return most + log(sum);
}

// The top are sorted, and no token beside them is likelier than the last of them.
static void check_top(const struct ingot_event *e, const struct logprobs_seen *s)
{
    uint32_t n_above = 0;

    assert_int_equal(e->n_logprobs, 1 + s->o->n_top_logprobs);
    for (uint32_t i = 2; i < e->n_logprobs; i++)
        assert_true(e->logprobs[i - 1].logprob >= e->logprobs[i].logprob);
    const float *last = &e->logits[e->logprobs[e->n_logprobs - 1].token];
    for (uint32_t i = 0; i < s->n_vocab; i++)
        n_above += e->logits[i] > *last;
    assert_true(n_above < s->o->n_top_logprobs);
}

static bool check(void *arg, const struct ingot_event *e)
{
    struct logprobs_seen *s = arg;
    bool prompt = e->token == UINT32_MAX && e->position + 1 < N_PROMPT;

    if (!e->n_logprobs) {
        assert_null(e->logprobs);
        assert_true(e->done || e->token == UINT32_MAX);
        return true;
    }
    assert_non_null(e->logits);
    assert_int_equal(e->logprobs[0].token, prompt ? s->o->tokens[e->position + 1] : e->token);
    double sum = sum_of(e->logits, s->n_vocab);
    for (uint32_t i = 0; i < e->n_logprobs; i++)
        assert_true(fabs(e->logprobs[i].logprob - (e->logits[e->logprobs[i].token] - sum)) < 1e-9);
    check_top(e, s);
    s->n_prompt_rows += prompt;
    s->n_new += !prompt;
    return true;
}

static struct ingot_engine *toy(void)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.n_threads = 1;
    return open_or_fail(&o);
}

static void they_are_those_of_the_logits(void **state)
{
    static const uint32_t tokens[N_PROMPT] = { 300, 401, 502, 303, 404, 505 };
    struct ingot_engine *engine = toy();
    struct ingot_request_options o = ingot_request_defaults();
    struct logprobs_seen seen = { .o = &o };
    struct ingot_engine_info info;
    struct ingot_error error = { 0 };

    (void)state;
    ingot_engine_info(engine, &info);
    seen.n_vocab = info.n_vocab;
    o.tokens = tokens;
    o.n_tokens = N_PROMPT;
    o.max_tokens = N_NEW;
    o.ignore_eos = true;
    o.n_logits = o.n_logprobs = N_PROMPT;
    o.n_top_logprobs = N_TOP;
    if (!ingot_generate(engine, &o, check, &seen, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(seen.n_prompt_rows, N_PROMPT - 1); // nothing precedes the first
    assert_int_equal(seen.n_new, N_NEW);
    o.n_top_logprobs = 1025;
    assert_fails(ingot_submit(engine, &o, &error), &error, "n_top_logprobs is 1025; at most 1024");
    ingot_engine_close(engine);
}

static bool check_alone(void *arg, const struct ingot_event *e)
{
    assert_null(e->logits);
    if (e->token != UINT32_MAX) {
        assert_int_equal(e->n_logprobs, 1);
        assert_int_equal(e->logprobs[0].token, e->token);
        assert_true(e->logprobs[0].logprob <= 0);
        ++*(uint32_t *)arg;
    }
    return true;
}

static void they_come_without_the_logits(void **state)
{
    struct ingot_engine *engine = toy();
    struct ingot_request_options o = ingot_request_defaults();
    uint32_t n = 0;

    (void)state;
    o.text = "Once upon a time";
    o.max_tokens = N_NEW;
    o.ignore_eos = true;
    o.n_logprobs = 1;
    assert_true(ingot_generate(engine, &o, check_alone, &n, NULL, NULL));
    assert_int_equal(n, N_NEW);
    ingot_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(they_are_those_of_the_logits),
        cmocka_unit_test(they_come_without_the_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
