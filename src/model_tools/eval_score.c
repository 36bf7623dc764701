// eval_score.c - see eval_score.h. Exponentials in float, sums in double: the logits themselves are floats.
#include "model_tools/eval_score.h"
#include <math.h>
#include "base/stats.h"

// log of the sum of exp(logits); infinite or NaN when a logit is.
static double log_sum(const float *logits, uint32_t n, uint32_t *top)
{
    double sum = 0;

    *top = 0;
    for (uint32_t i = 1; i < n; i++)
        *top = logits[i] > logits[*top] ? i : *top;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - logits[*top]);
    return (double)logits[*top] + log(sum);
}

// The reference's codes are rounded, so that their probabilities add up to `total`, nearly 1; each is divided
// by it: sum of p / total * (log p - log total - log q), with log q = logit - log_sum.
static double divergence(const struct eval_row *row, const struct logits_code_table *t, double log_sum,
                         double log_total)
{
    double sum = 0, total = exp(log_total);

    for (uint32_t i = 0; i < row->n_vocab; i++) {
        uint16_t c = row->reference[i];
        sum += t->p[c] * (t->logprob[c] - (double)row->logits[i]);
    }
    double kl = sum / total + log_sum - log_total;
    return kl > 0 ? kl : 0; // rounding
}

static double log_of_total(const struct eval_row *row, const struct logits_code_table *t)
{
    double total = 0;

    for (uint32_t i = 0; i < row->n_vocab; i++)
        total += t->p[row->reference[i]];
    return log(total);
}

static uint16_t least(const uint16_t *codes, uint32_t n)
{
    uint16_t code = codes[0];

    for (uint32_t i = 1; i < n; i++)
        code = codes[i] < code ? codes[i] : code;
    return code;
}

bool eval_score_row(const struct eval_row *row, const struct logits_code_table *table, struct eval_figures *f)
{
    uint32_t top;
    double sum = log_sum(row->logits, row->n_vocab, &top);

    *f = (struct eval_figures){ .nll = sum - (double)row->logits[row->token] };
    if (!isfinite(sum) || !isfinite(f->nll))
        return false;
    for (uint32_t i = 0; row->codes && i < row->n_vocab; i++)
        row->codes[i] = logits_code((double)row->logits[i] - sum);
    if (!row->reference)
        return true;
    double log_total = log_of_total(row, table);
    f->reference_nll = log_total - table->logprob[row->reference[row->token]];
    f->kl = divergence(row, table, sum, log_total);
    f->same_top = row->reference[top] == least(row->reference, row->n_vocab);
    return isfinite(f->kl);
}

static struct eval_mean mean_of(const double *x, size_t n)
{
    return (struct eval_mean){ stats_mean(x, n), n ? stats_stddev(x, n) / sqrt((double)n) : 0 };
}

static double nll_of(const struct eval_figures *f)
{
    return f->nll;
}
static double excess_of(const struct eval_figures *f)
{
    return f->nll - f->reference_nll;
}
static double same_top_of(const struct eval_figures *f)
{
    return f->same_top;
}
static double kl_of(const struct eval_figures *f)
{
    return f->kl;
}

void eval_score_summary(const struct eval_figures *figures, size_t n, double *room, struct eval_summary *s)
{
    const struct {
        double (*value)(const struct eval_figures *f);
        struct eval_mean *mean;
    } all[] = {
        { nll_of, &s->nll }, { excess_of, &s->excess }, { same_top_of, &s->same_top }, { kl_of, &s->kl }
    };

    *s = (struct eval_summary){ .n = n };
    for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
        for (size_t i = 0; i < n; i++)
            room[i] = all[k].value(&figures[i]);
        *all[k].mean = mean_of(room, n);
    }
    s->reference_nll = s->nll.mean - s->excess.mean;
    stats_sort(room, n); // the divergences, which came last
    s->kl_median = stats_quantile(room, n, 0.5);
    s->kl_p90 = stats_quantile(room, n, 0.9);
    s->kl_p99 = stats_quantile(room, n, 0.99);
    s->kl_p999 = stats_quantile(room, n, 0.999);
    s->kl_most = n ? room[n - 1] : 0;
}
