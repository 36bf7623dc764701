// profile_phases.c - see profile_phases.h.
#include "model_tools/profile/profile_phases.h"
#include <math.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "model_tools/bench_measure.h"

enum {
    LONG_INPUT = 4096,
    BRIEF_INPUT = 512,
    SUSTAINED_RUNS = 10,
    WARM_RUNS = 5,
    RUNS = 3,
    REPEATED_FROM = 1 << 20
};

const char *phase_name(enum profile_phase phase)
{
    static const char *const names[N_PHASES] = { "warm-up", "outputs", "inputs", "sustained", "streams" };
    return names[phase];
}

// ---- which cases

static uint32_t longest_input(bool brief)
{
    return brief ? BRIEF_INPUT : LONG_INPUT;
}

uint32_t phases_context(bool brief, uint32_t n_context)
{
    uint32_t wanted = longest_input(brief) + 32;
    return wanted < n_context ? wanted : n_context;
}

uint32_t phases_kv_tokens(bool brief, uint32_t n_context)
{
    uint32_t one = phases_context(brief, n_context), streams = PHASES_MOST_STREAMS * 64;
    return one > streams ? one : streams;
}

static void add_case(struct phases *p, const struct phase_case *like, const char *format, uint32_t number)
{
    CHECK(p->n < PHASES_MOST_CASES);
    struct phase_case *c = &p->cases[p->n++];
    *c = *like;
    snprintf(c->name, sizeof c->name, format, number);
}

static void choose_warm_up(struct phases *p)
{
    struct phase_case like = { PHASE_WARM_UP, .n_prompt = 4, .n_gen = 10, .n_streams = 1, .n_wanted = 1 };

    add_case(p, &like, "cold", 0);
    add_case(p, &like, "second", 0);
    add_case(p, &like, "third", 0);
    like.n_wanted = WARM_RUNS;
    add_case(p, &like, "warm", 0);
}

static void choose_lengths(struct phases *p, uint32_t n_context, bool brief)
{
    static const uint32_t outputs[] = { 5, 10, 20, 50 }, inputs[] = { 4, 8, 16, 512, LONG_INPUT };
    struct phase_case like = { PHASE_OUTPUTS, .n_prompt = 8, .n_streams = 1, .n_wanted = brief ? 1 : RUNS };

    for (uint32_t i = 0; i < 4; i++) {
        like.n_gen = outputs[i];
        add_case(p, &like, "output %u", outputs[i]);
    }
    like.phase = PHASE_INPUTS;
    like.n_gen = 10;
    for (uint32_t i = 0; i < 5 && inputs[i] <= longest_input(brief); i++) {
        like.n_prompt = inputs[i];
        if (inputs[i] + like.n_gen + 2 <= n_context)
            add_case(p, &like, "input %u", inputs[i]);
        else if (!*p->left_out)
            snprintf(p->left_out, sizeof p->left_out, "inputs of %u tokens and more: the context has %u",
                     inputs[i], n_context);
    }
}

static void choose_long_runs(struct phases *p, uint32_t n_streams, bool brief)
{
    struct phase_case like = { PHASE_SUSTAINED, .n_prompt = 8, .n_gen = brief ? 16 : 64, .n_streams = 1,
                               .n_wanted = SUSTAINED_RUNS };

    add_case(p, &like, "sustained", 0);
    like = (struct phase_case){ PHASE_STREAMS, .n_prompt = 16, .n_gen = brief ? 8 : 32,
                                .n_wanted = brief ? 1 : RUNS };
    for (like.n_streams = 1; like.n_streams <= n_streams; like.n_streams *= 2)
        add_case(p, &like, like.n_streams == 1 ? "%u stream" : "%u streams", like.n_streams);
}

static bool cases_open(struct phases *p, struct err *err)
{
    for (uint32_t i = 0; i < p->n; i++) {
        struct phase_case *c = &p->cases[i];
        size_t n = (size_t)c->n_wanted * c->n_streams;
        c->begun_ns = mem_alloc_array(c->n_wanted, sizeof(uint64_t));
        c->first_ms = mem_alloc_array(n, sizeof(double));
        c->run_ms = mem_alloc_array(c->n_wanted, sizeof(double));
        c->gaps_ms = mem_alloc_array(n * c->n_gen, sizeof(double));
        if (!c->begun_ns || !c->first_ms || !c->run_ms || !c->gaps_ms)
            return err_memory(err, "the measurements");
    }
    return true;
}

void phases_free(struct phases *phases)
{
    for (uint32_t i = 0; i < phases->n; i++) {
        mem_free(phases->cases[i].begun_ns);
        mem_free(phases->cases[i].first_ms);
        mem_free(phases->cases[i].run_ms);
        mem_free(phases->cases[i].gaps_ms);
    }
    *phases = (struct phases){ 0 };
}

// ---- one run

struct phase_stream {
    struct ingot_request *request;
    uint64_t last_ns; // of its last token
    bool done;
};

struct phase_run {
    const struct phases_request *of;
    struct phase_case *c;
    struct phase_stream streams[PHASES_MOST_STREAMS];
    uint32_t *tokens;         // [n_prompt]
    uint32_t n_vocab, number; // number: of all runs so far
    uint64_t begun;
};

static bool submit(struct phase_run *r, uint32_t stream, struct err *err)
{
    struct ingot_request_options options = ingot_request_defaults();
    struct ingot_error error;

    for (uint32_t i = 0; i < r->c->n_prompt; i++)
        r->tokens[i] = bench_token(r->n_vocab, r->number, (uint64_t)stream << 20 | i);
    options.tokens = r->tokens;
    options.n_tokens = r->c->n_prompt;
    options.max_tokens = r->c->n_gen;
    options.ignore_eos = true;
    options.sampling.temperature = 0;
    r->streams[stream] = (struct phase_stream){ .request = ingot_submit(r->of->engine, &options, &error) };
    return r->streams[stream].request || err_set(err, (enum err_code)error.code, "%s", error.message);
}

static bool take_event(struct phase_run *r, struct phase_stream *s, const struct ingot_event *event,
                       struct err *err)
{
    struct phase_case *c = r->c;
    uint64_t now = clock_ns();

    if (event->token != UINT32_MAX) {
        if (s->last_ns)
            c->gaps_ms[c->n_gaps++] = (double)(now - s->last_ns) * 1e-6;
        else
            c->first_ms[c->n_runs * c->n_streams + (uint32_t)(s - r->streams)] =
                (double)(now - r->begun) * 1e-6;
        s->last_ns = now;
    }
    s->done = event->done;
    if (event->done && event->result->finish == INGOT_FINISH_ERROR)
        return err_set(err, (enum err_code)event->result->error.code, "%s", event->result->error.message);
    return !event->done || event->result->n_generated == c->n_gen ||
           err_set(err, ERR_LIMIT, "%s: %u of %u tokens came", c->name, event->result->n_generated, c->n_gen);
}

static bool take_events(struct phase_run *r, struct err *err)
{
    struct ingot_event event;

    for (uint32_t i = 0; i < r->c->n_streams; i++)
        while (!r->streams[i].done && ingot_poll(r->streams[i].request, &event))
            if (!take_event(r, &r->streams[i], &event, err))
                return false;
    return true;
}

static bool run_once(struct phase_run *r, struct err *err)
{
    struct phase_case *c = r->c;
    struct ingot_error error;
    bool busy = true, ok = true;
    uint32_t n_gaps = c->n_gaps;

    memset(r->streams, 0, sizeof r->streams);
    r->number++;
    r->begun = c->begun_ns[c->n_runs] = clock_ns();
    for (uint32_t i = 0; i < c->n_streams && ok; i++)
        ok = submit(r, i, err);
    while (ok && busy) {
        ok = ingot_step(r->of->engine, &busy, &error) ||
             err_set(err, (enum err_code)error.code, "%s", error.message);
        ok = ok && take_events(r, err);
    }
    c->run_ms[c->n_runs] = (double)(clock_ns() - r->begun) * 1e-6;
    for (uint32_t i = 0; i < c->n_streams; i++)
        ingot_request_free(r->streams[i].request);
    c->n_runs += ok;
    c->n_gaps = ok ? c->n_gaps : n_gaps;
    return ok;
}

static bool run_cases(struct phase_run *r, struct phases *p, struct err *err)
{
    for (uint32_t i = 0; i < p->n; i++) {
        r->c = &p->cases[i];
        while (r->c->n_runs < r->c->n_wanted) {
            if (!run_once(r, err))
                return err_prefix(err, "%s", r->c->name);
            if (r->of->goes_on && !r->of->goes_on(r->of->arg, r->c))
                return err_set(err, ERR_CANCELLED, "stopped");
        }
    }
    return true;
}

bool phases_run(const struct phases_request *request, struct phases *phases, struct err *err)
{
    struct phase_run r = { .of = request, .tokens = mem_alloc_array(LONG_INPUT, sizeof(uint32_t)) };
    struct ingot_engine_info info;

    *phases = (struct phases){ 0 };
    ingot_engine_info(request->engine, &info);
    r.n_vocab = info.n_vocab;
    choose_warm_up(phases);
    choose_lengths(phases, info.n_context, request->brief);
    choose_long_runs(phases, info.n_sequences < PHASES_MOST_STREAMS ? info.n_sequences : PHASES_MOST_STREAMS,
                     request->brief);
    bool ok = r.tokens ? cases_open(phases, err) && run_cases(&r, phases, err)
                       : err_memory(err, "a prompt to measure with");
    mem_free(r.tokens);
    return ok;
}

bool phases_repeat(const struct phases_request *request, const struct phase_case *like, double seconds,
                   uint32_t *n_runs, struct err *err)
{
    struct phases one = { .cases = { *like }, .n = 1 };
    struct phase_run r = { .of = request, .c = &one.cases[0], .number = REPEATED_FROM };
    struct ingot_engine_info info;
    uint64_t begun = clock_ns();

    ingot_engine_info(request->engine, &info);
    r.n_vocab = info.n_vocab;
    r.tokens = mem_alloc_array((size_t)like->n_prompt + 1, sizeof *r.tokens);
    r.c->n_wanted = 1;
    bool ok = cases_open(&one, err) && (r.tokens || err_memory(err, "a prompt to measure with"));
    while (ok && (double)(clock_ns() - begun) < seconds * 1e9) {
        r.c->n_runs = r.c->n_gaps = 0;
        ok = run_once(&r, err) || err_prefix(err, "%s", like->name);
        *n_runs += ok;
        if (ok && request->goes_on && !request->goes_on(request->arg, like))
            ok = err_set(err, ERR_CANCELLED, "stopped");
    }
    mem_free(r.tokens);
    phases_free(&one);
    return ok;
}

// ---- figures

static double median_of(const double *x, size_t n)
{
    double sorted[PHASES_MOST_STREAMS * SUSTAINED_RUNS];

    n = n < sizeof sorted / sizeof *sorted ? n : sizeof sorted / sizeof *sorted;
    memcpy(sorted, x, n * sizeof *sorted);
    return stats_median(sorted, n);
}

double phase_first_ms(const struct phase_case *c)
{
    return median_of(c->first_ms, (size_t)c->n_runs * c->n_streams);
}

double phase_speed(const struct phase_case *c)
{
    double ms = median_of(c->run_ms, c->n_runs);
    return ms > 0 ? c->n_gen * c->n_streams * 1e3 / ms : 0;
}

double phase_gap_ms(const struct phase_case *c, double q)
{
    uint32_t least = q > 0.98 ? 100 : q > 0.9 ? 20 : 1;
    double *sorted = c->n_gaps < least ? NULL : mem_alloc_array(c->n_gaps, sizeof *sorted);

    if (!sorted)
        return -1;
    memcpy(sorted, c->gaps_ms, c->n_gaps * sizeof *sorted);
    stats_sort(sorted, c->n_gaps);
    double value = sorted[(uint32_t)ceil(q * c->n_gaps) - 1];
    mem_free(sorted);
    return value;
}

static void fit_outputs(const struct phases *p, struct phases_summary *s)
{
    double n = 0, x = 0, y = 0, xx = 0, xy = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        const struct phase_case *c = &p->cases[i];
        if (c->phase != PHASE_OUTPUTS || c->n_runs == 0)
            continue;
        double ms = median_of(c->run_ms, c->n_runs);
        n++;
        x += c->n_gen;
        y += ms;
        xx += (double)c->n_gen * c->n_gen;
        xy += c->n_gen * ms;
    }
    if (n < 2)
        return;
    s->fitted_token_ms = (n * xy - x * y) / (n * xx - x * x);
    s->fitted_ms = (y - s->fitted_token_ms * x) / n;
}

struct phases_summary phases_summarise(const struct phases *p)
{
    struct phases_summary s = { 0 };

    for (uint32_t i = 0; i < p->n; i++) {
        const struct phase_case *c = &p->cases[i];
        if (c->n_runs == 0)
            continue;
        double speed = phase_speed(c);
        s.cold_ms = strcmp(c->name, "cold") ? s.cold_ms : phase_first_ms(c);
        s.warm_ms = strcmp(c->name, "warm") ? s.warm_ms : phase_first_ms(c);
        s.peak_ts = c->n_streams == 1 && speed > s.peak_ts ? speed : s.peak_ts;
        s.streams_ts = c->n_streams > 1 && speed > s.streams_ts ? speed : s.streams_ts;
        if (c->phase == PHASE_SUSTAINED) {
            s.sustained_ts = speed;
            s.drift = c->n_runs < 6 ? 0 : median_of(c->run_ms + c->n_runs - 3, 3) / median_of(c->run_ms, 3);
        }
    }
    fit_outputs(p, &s);
    return s;
}
