// metrics.c - see metrics.h. The bounds of the histograms are vLLM's.
#include "server/generation/metrics.h"

static const double first_bounds[] = { 0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                       1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560 };
static const double between_bounds[] = { 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                         0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80 };
static const double request_bounds[] = { 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                         30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680 };
static const double token_bounds[] = { 1,   2,    5,    10,   20,    50,    100,   200,
                                       500, 1000, 2000, 5000, 10000, 20000, 50000, 100000 };

#define BOUNDS(array) array, sizeof(array) / sizeof *(array)
_Static_assert(sizeof first_bounds / sizeof *first_bounds <= METRIC_MAX_BOUNDS, "room for every bound");

static const struct {
    const char *name, *help;
    const double *bounds;
    size_t n_bounds;
} kinds[N_METRICS] = {
    [METRIC_FIRST_TOKEN] = { "vllm:time_to_first_token_seconds", "From submission to the first token.",
                             BOUNDS(first_bounds) },
    [METRIC_INTER_TOKEN] = { "vllm:inter_token_latency_seconds", "Between two tokens of an answer.",
                             BOUNDS(between_bounds) },
    [METRIC_END_TO_END] = { "vllm:e2e_request_latency_seconds", "From submission to the last token.",
                            BOUNDS(request_bounds) },
    [METRIC_QUEUE] = { "vllm:request_queue_time_seconds", "Waiting for a sequence.", BOUNDS(request_bounds) },
    [METRIC_PREFILL] = { "vllm:request_prefill_time_seconds", "Computing the prompt.",
                         BOUNDS(request_bounds) },
    [METRIC_DECODE] = { "vllm:request_decode_time_seconds", "Tokens after the first.",
                        BOUNDS(request_bounds) },
    [METRIC_INFERENCE] = { "vllm:request_inference_time_seconds", "Having a sequence.",
                           BOUNDS(request_bounds) },
    [METRIC_PER_TOKEN] = { "vllm:request_time_per_output_token_seconds",
                           "A token after the first, per answer.", BOUNDS(between_bounds) },
    [METRIC_PROMPT_TOKENS] = { "vllm:request_prompt_tokens", "Tokens of a prompt.", BOUNDS(token_bounds) },
    [METRIC_NEW_TOKENS] = { "vllm:request_generation_tokens", "Tokens of an answer.", BOUNDS(token_bounds) },
};

void metrics_create(struct metrics *m)
{
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_destroy(struct metrics *m)
{
    pthread_mutex_destroy(&m->lock);
}

static void observe(struct metrics *m, enum metric metric, double value)
{
    size_t i = 0;

    while (i < kinds[metric].n_bounds && value > kinds[metric].bounds[i])
        i++;
    m->histograms[metric].counts[i]++;
    m->histograms[metric].n++;
    m->histograms[metric].sum += value;
}

void metrics_observe(struct metrics *m, enum metric metric, double value)
{
    pthread_mutex_lock(&m->lock);
    observe(m, metric, value);
    pthread_mutex_unlock(&m->lock);
}

void metrics_result(struct metrics *m, const struct ingot_result *r)
{
    pthread_mutex_lock(&m->lock);
    m->finished[r->finish]++;
    m->prompt_tokens += r->n_prompt;
    m->reused_tokens += r->n_reused;
    m->new_tokens += r->n_generated;
    if (r->n_generated > 0) {
        observe(m, METRIC_FIRST_TOKEN, r->first_token_ms / 1e3);
        observe(m, METRIC_END_TO_END, (r->first_token_ms + r->decode_ms) / 1e3);
        observe(m, METRIC_QUEUE, (r->first_token_ms - r->prefill_ms) / 1e3);
        observe(m, METRIC_PREFILL, r->prefill_ms / 1e3);
        observe(m, METRIC_DECODE, r->decode_ms / 1e3);
        observe(m, METRIC_INFERENCE, (r->prefill_ms + r->decode_ms) / 1e3);
        if (r->n_generated > 1)
            observe(m, METRIC_PER_TOKEN, r->decode_ms / 1e3 / (r->n_generated - 1));
        observe(m, METRIC_PROMPT_TOKENS, r->n_prompt);
        observe(m, METRIC_NEW_TOKENS, r->n_generated);
    }
    pthread_mutex_unlock(&m->lock);
}

void metrics_prefetch(struct metrics *m, bool asked, bool ok, size_t n_tokens, double s)
{
    pthread_mutex_lock(&m->lock);
    m->fetches += asked;
    m->failed_fetches += asked && !ok;
    m->fetched_tokens += n_tokens;
    m->fetch_s += s;
    pthread_mutex_unlock(&m->lock);
}

void metrics_given(struct metrics *m, size_t n_tokens)
{
    pthread_mutex_lock(&m->lock);
    m->given_tokens += n_tokens;
    pthread_mutex_unlock(&m->lock);
}

void metrics_answer(struct metrics *m, unsigned status)
{
    pthread_mutex_lock(&m->lock);
    m->answers[status / 100 < 6 ? status / 100 : 5]++;
    m->rejected += status == 429;
    pthread_mutex_unlock(&m->lock);
}

// As a label: quotes, backslashes and line ends are escaped.
static void print_model(struct buf *out, const char *model)
{
    buf_text(out, "model_name=\"");
    for (; *model; model++) {
        if (*model == '\n')
            buf_text(out, "\\n");
        else if (*model == '"' || *model == '\\')
            buf_printf(out, "\\%c", *model);
        else
            buf_append(out, model, 1);
    }
    buf_text(out, "\"");
}

static void print_histogram(const struct metrics *m, enum metric metric, const char *model, struct buf *out)
{
    uint64_t below = 0;
    const char *name = kinds[metric].name;

    buf_printf(out, "# HELP %s %s\n# TYPE %s histogram\n", name, kinds[metric].help, name);
    for (size_t i = 0; i <= kinds[metric].n_bounds; i++) {
        below += m->histograms[metric].counts[i];
        buf_printf(out, "%s_bucket{", name);
        print_model(out, model);
        if (i < kinds[metric].n_bounds)
            buf_printf(out, ",le=\"%g\"} %llu\n", kinds[metric].bounds[i], (unsigned long long)below);
        else
            buf_printf(out, ",le=\"+Inf\"} %llu\n", (unsigned long long)below);
    }
    buf_printf(out, "%s_count{", name);
    print_model(out, model);
    buf_printf(out, "} %llu\n%s_sum{", (unsigned long long)m->histograms[metric].n, name);
    print_model(out, model);
    buf_printf(out, "} %.9g\n", m->histograms[metric].sum);
}

struct number {
    const char *name, *type, *help;
    double value;
};

static void print_numbers(const struct number *numbers, size_t n, const char *model, struct buf *out)
{
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n%s{", numbers[i].name, numbers[i].help, numbers[i].name,
                   numbers[i].type, numbers[i].name);
        print_model(out, model);
        buf_printf(out, "} %.15g\n", numbers[i].value);
    }
}

static void print_finished(const struct metrics *m, const char *model, struct buf *out)
{
    static const struct {
        enum ingot_finish finish;
        const char *name;
    } reasons[] = { { INGOT_FINISH_LENGTH, "length" },
                    { INGOT_FINISH_CANCELLED, "abort" },
                    { INGOT_FINISH_ERROR, "error" } };

    buf_text(out, "# HELP vllm:request_success_total Finished requests by reason.\n# TYPE "
                  "vllm:request_success_total counter\n");
    buf_text(out, "vllm:request_success_total{finished_reason=\"stop\",");
    print_model(out, model);
    buf_printf(out, "} %llu\n",
               (unsigned long long)(m->finished[INGOT_FINISH_EOS] + m->finished[INGOT_FINISH_STOP]));
    for (size_t i = 0; i < 3; i++) {
        buf_printf(out, "vllm:request_success_total{finished_reason=\"%s\",", reasons[i].name);
        print_model(out, model);
        buf_printf(out, "} %llu\n", (unsigned long long)m->finished[reasons[i].finish]);
    }
}

void metrics_print(struct metrics *m, const struct metrics_gauges *g, struct buf *out)
{
    pthread_mutex_lock(&m->lock);
    const struct number numbers[] = {
        { "vllm:num_requests_running", "gauge", "Requests that have a sequence.", g->n_running },
        { "vllm:num_requests_waiting", "gauge", "Requests that wait for a sequence.", g->n_waiting },
        { "vllm:kv_cache_usage_perc", "gauge", "Part of the pages that sequences hold, 0 to 1.",
          g->engine.n_pages ? (double)g->engine.n_pages_held / g->engine.n_pages : 0 },
        { "ingot:kv_pages", "gauge", "Pages of 16 tokens.", g->engine.n_pages },
        { "ingot:kv_pages_held", "gauge", "Pages that sequences hold.", g->engine.n_pages_held },
        { "ingot:kv_pages_idle", "gauge", "Pages kept for prompts to come.", g->engine.n_pages_idle },
        { "ingot:kv_window_pages", "gauge", "Pages of the layers with a window.", g->engine.n_window_pages },
        { "ingot:kv_window_pages_held", "gauge", "Of these the ones that sequences hold.",
          g->engine.n_window_pages_held },
        { "ingot:kv_window_pages_idle", "gauge", "Of these the ones kept for prompts to come.",
          g->engine.n_window_pages_idle },
        { "vllm:num_preemptions_total", "counter", "Pauses of a request for want of pages.",
          g->engine.n_pauses },
        { "vllm:prompt_tokens_total", "counter", "Tokens of all prompts.", m->prompt_tokens },
        { "vllm:generation_tokens_total", "counter", "Tokens of all answers.", m->new_tokens },
        { "vllm:prefix_cache_hits_total", "counter", "Tokens of prompts that were not computed again.",
          m->reused_tokens },
        { "vllm:prefix_cache_queries_total", "counter", "Tokens of prompts that were looked up.",
          m->prompt_tokens },
        { "vllm:spec_decode_num_draft_tokens_total", "counter", "Drafted tokens of speculative decoding.",
          g->engine.n_drafted },
        { "vllm:spec_decode_num_accepted_tokens_total", "counter", "Of these the accepted ones.",
          g->engine.n_accepted },
        { "ingot:limited_requests_total", "counter", "Requests that were started under --limits.",
          g->engine.n_limited },
        { "ingot:limited_steps_total", "counter", "Steps that waited for their share of the time.",
          g->engine.n_slowed_steps },
        { "ingot:held_requests_total", "counter", "Requests that --limits kept from starting at once.",
          g->engine.n_held },
        { "ingot:limits_wait_seconds_total", "counter", "Waiting that --limits asked for.",
          g->engine.limits_wait_s },
        { "ingot:load_pauses_total", "counter", "Pauses because other programs used the machine.",
          g->engine.n_load_pauses },
        { "ingot:load_paused", "gauge", "1 in such a pause.", g->engine.is_paused },
        { "ingot:prefill_fetches_total", "counter", "Prompts whose pages the prefill server was asked for.",
          m->fetches },
        { "ingot:prefill_failures_total", "counter", "Of these the ones that were read here after all.",
          m->failed_fetches },
        { "ingot:prefill_tokens_total", "counter", "Tokens whose pages came from the prefill server.",
          m->fetched_tokens },
        { "ingot:prefill_seconds_total", "counter", "Waiting of requests for the prefill server.",
          m->fetch_s },
        { "ingot:prefill_given_tokens_total", "counter", "Tokens whose pages went to decode servers.",
          m->given_tokens },
        { "ingot:requests_rejected_total", "counter", "Answers with status 429.", m->rejected },
        { "ingot:http_2xx_total", "counter", "HTTP answers that went well.", m->answers[2] },
        { "ingot:http_4xx_total", "counter", "HTTP answers that blame the request.", m->answers[4] },
        { "ingot:http_5xx_total", "counter", "HTTP answers that blame the server.", m->answers[5] },
    };
    print_numbers(numbers, sizeof numbers / sizeof *numbers, g->model, out);
    print_finished(m, g->model, out);
    for (int i = 0; i < N_METRICS; i++)
        print_histogram(m, (enum metric)i, g->model, out);
    pthread_mutex_unlock(&m->lock);
}
