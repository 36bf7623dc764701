// eval_score.h - what one row of logits says about the token behind it, and about the reference's
// distribution; and sums of many rows.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "model_tools/logits_code.h"

struct eval_row {
    const float *logits; // [n_vocab]
    uint32_t n_vocab, token;
    const uint16_t *reference; // [n_vocab] codes of the reference, or NULL
    uint16_t *codes;           // [n_vocab] receives the row's own codes, or NULL
};

struct eval_figures {
    double nll, reference_nll; // minus the log-probability of the token
    double kl;                 // of the reference from this row: sum of p log(p / q), p being the reference's
    bool same_top;             // the likeliest token is one of the reference's likeliest
};

// table: needed with a reference. False: the logits hold NaN or infinity.
bool eval_score_row(const struct eval_row *row, const struct logits_code_table *table,
                    struct eval_figures *f);

struct eval_mean {
    double mean, error; // error: standard error of the mean
};
struct eval_summary {
    size_t n;
    struct eval_mean nll, kl, same_top;
    struct eval_mean excess; // of nll over the reference's: log of the ratio of perplexities
    double reference_nll;    // mean
    double kl_median, kl_p90, kl_p99, kl_p999, kl_most;
};
// Summary of figures[n]; room[n] is overwritten.
void eval_score_summary(const struct eval_figures *figures, size_t n, double *room, struct eval_summary *s);
