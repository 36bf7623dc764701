// metrics.h - counters, gauges and histograms for Prometheus, under the names that vLLM uses, so that its
// dashboards work here.
//
// Thread safe: one short lock. Not here: figures per client or per key.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include "base/str.h"
#include "ingot.h"

enum metric {
    METRIC_FIRST_TOKEN,
    METRIC_INTER_TOKEN,
    METRIC_END_TO_END,
    METRIC_QUEUE,
    METRIC_PREFILL,
    METRIC_DECODE,
    METRIC_INFERENCE,
    METRIC_PER_TOKEN,
    METRIC_PROMPT_TOKENS,
    METRIC_NEW_TOKENS,
    N_METRICS,
};
enum { METRIC_MAX_BOUNDS = 24 };

struct metrics {
    pthread_mutex_t lock;
    struct {
        uint64_t counts[METRIC_MAX_BOUNDS + 1], n;
        double sum;
    } histograms[N_METRICS];
    uint64_t finished[INGOT_FINISH_ERROR + 1], prompt_tokens, reused_tokens, new_tokens;
    uint64_t rejected, answers[6]; // HTTP answers by the status's first digit
    // A prefill server: asked, in vain; tokens that came, and that were given; seconds that requests waited.
    uint64_t fetches, failed_fetches, fetched_tokens, given_tokens;
    double fetch_s;
};

struct metrics_gauges {
    const char *model;
    uint32_t n_running, n_waiting;
    struct ingot_engine_stats engine;
};

void metrics_create(struct metrics *m);
void metrics_destroy(struct metrics *m);
void metrics_observe(struct metrics *m, enum metric metric, double value);
void metrics_result(struct metrics *m, const struct ingot_result *result); // of one finished engine request
// Of one prompt whose pages were to be fetched.
void metrics_prefetch(struct metrics *m, bool asked, bool ok, size_t n_tokens, double s);
void metrics_given(struct metrics *m, size_t n_tokens); // to a decode server
void metrics_answer(struct metrics *m, unsigned status);
void metrics_print(struct metrics *m, const struct metrics_gauges *gauges, struct buf *out);
