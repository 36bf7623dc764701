// bench_measure.c - see bench_measure.h.
#include "model_tools/bench_measure.h"
#include "base/clock.h"
#include "base/mem.h"

uint32_t bench_test_context(const struct bench_test *test)
{
    return test->depth + test->n_prompt + test->n_gen + 2;
}

uint32_t bench_test_tokens(const struct bench_test *test)
{
    return test->n_prompt + test->n_gen;
}

uint32_t bench_token(uint32_t n_vocab, uint64_t run, uint64_t at) // splitmix64
{
    uint64_t x = (run << 32 | at) * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((x ^ (x >> 31)) % n_vocab);
}

struct listener {
    const struct bench_test *test;
    struct bench_sample *sample;
    uint64_t last_ns;
};

static bool on_event(void *arg, const struct ingot_event *event)
{
    struct listener *l = arg;
    uint64_t now = clock_ns();

    if (event->token == UINT32_MAX)
        return true;
    if (l->last_ns && l->sample->gaps_ms && l->sample->n_gaps < l->test->n_gen)
        l->sample->gaps_ms[l->sample->n_gaps++] = (double)(now - l->last_ns) * 1e-6;
    l->last_ns = now;
    return true;
}

static bool on_step(void *arg)
{
    const struct listener *l = arg;

    return !l->test->goes_on || l->test->goes_on();
}

static bool generate(struct bench_measure *m, uint32_t n_tokens, uint32_t n_gen, struct bench_sample *sample,
                     struct err *err)
{
    struct ingot_request_options options = ingot_request_defaults();
    struct listener listener = { .sample = sample, .test = &m->test };
    struct ingot_result result;
    struct ingot_error error;

    options.session = m->session;
    options.tokens = m->tokens;
    options.n_tokens = n_tokens;
    options.max_tokens = n_gen;
    options.ignore_eos = true;
    options.adapters = m->adapters;
    options.n_adapters = m->n_adapters;
    options.sampling.temperature = 0;
    options.on_step = on_step;
    sample->n_gaps = 0;
    uint64_t from = clock_ns();
    if (!ingot_generate(m->engine, &options, on_event, &listener, &result, &error))
        return err_set(err, (enum err_code)error.code, "%s", error.message);
    sample->ms = (double)(clock_ns() - from) * 1e-6;
    sample->first_token_ms = result.first_token_ms;
    if (result.finish == INGOT_FINISH_CANCELLED)
        return err_set(err, ERR_CANCELLED, "stopped");
    if (result.n_generated != n_gen)
        return err_set(err, ERR_LIMIT,
                       "the test wanted %u tokens and got %u; is the context of %u tokens too short?", n_gen,
                       result.n_generated, bench_test_context(&m->test));
    return true;
}

bool bench_measure_begin(struct bench_measure *m, struct ingot_engine *engine, const struct bench_test *test,
                         struct err *err)
{
    struct bench_sample ignored = { 0 };
    struct ingot_engine_info info;
    struct ingot_error error;

    ingot_engine_info(engine, &info);
    *m = (struct bench_measure){ .engine = engine, .test = *test, .n_vocab = info.n_vocab };
    m->n_adapters = model_adapters_all(engine, m->adapters);
    m->tokens = mem_alloc_array((size_t)test->depth + test->n_prompt + 1, sizeof *m->tokens);
    if (!m->tokens)
        return err_memory(err, "the tokens of a test");
    if (test->depth == 0)
        return true;
    for (uint32_t i = 0; i < test->depth; i++)
        m->tokens[i] = bench_token(m->n_vocab, 0, i);
    m->session = ingot_session_create(engine, &error);
    if (m->session && generate(m, test->depth, 1, &ignored, err))
        return true;
    if (!m->session)
        err_set(err, (enum err_code)error.code, "%s", error.message);
    bench_measure_end(m);
    return false;
}

void bench_measure_end(struct bench_measure *m)
{
    ingot_session_free(m->session);
    mem_free(m->tokens);
    *m = (struct bench_measure){ 0 };
}

// A run with a prompt and n_gen: the first token comes with the prompt, so n_gen more tokens make n_gen steps
// of one row. Without a prompt one token replaces it, and its step is the first of the n_gen.
bool bench_measure_run(struct bench_measure *m, struct bench_sample *sample, struct err *err)
{
    const struct bench_test *t = &m->test;
    uint32_t n_new = t->n_prompt ? t->n_prompt : 1;

    m->n_runs++;
    for (uint32_t i = 0; i < n_new; i++)
        m->tokens[t->depth + i] = bench_token(m->n_vocab, m->n_runs, i);
    return generate(m, t->depth + n_new, t->n_gen + (t->n_prompt != 0), sample, err);
}
