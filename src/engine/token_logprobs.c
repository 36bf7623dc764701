// token_logprobs.c - see token_logprobs.h. The sum over the vocabulary runs in double, in the order of the
// tokens.
#include "engine/token_logprobs.h"
#include <math.h>
#include "base/mem.h"

bool token_logprobs_create(struct token_logprobs *p, const struct ingot_request_options *o, struct err *err)
{
    *p = (struct token_logprobs){ .wanted = o->n_logprobs > 0, .n_top = o->n_top_logprobs };
    if (p->n_top > MAX_TOP_LOGPROBS)
        return err_set(err, ERR_INPUT, "n_top_logprobs is %u; at most %u", p->n_top,
                       (unsigned)MAX_TOP_LOGPROBS);
    if (!p->wanted)
        return true;
    p->at = mem_alloc_array(1 + p->n_top, sizeof *p->at);
    return p->at || err_memory(err, "log-probabilities");
}

void token_logprobs_release(struct token_logprobs *p)
{
    mem_free(p->at);
    *p = (struct token_logprobs){ 0 };
}

static double log_sum(const float *logits, uint32_t n)
{
    double most = logits[0], sum = 0;

    for (uint32_t i = 1; i < n; i++)
        most = logits[i] > most ? logits[i] : most;
    for (uint32_t i = 0; i < n; i++)
        sum += exp(logits[i] - most);
    return most + log(sum);
}

// Fewer than n_top only where the vocabulary is smaller.
static uint32_t find_likeliest(struct ingot_logprob *top, uint32_t n_top, const float *logits,
                               uint32_t n_vocab)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < n_vocab && n_top > 0; i++) {
        if (n == n_top && logits[i] <= logits[top[n - 1].token])
            continue;
        uint32_t at = n < n_top ? n++ : n - 1;
        for (; at > 0 && logits[i] > logits[top[at - 1].token]; at--)
            top[at] = top[at - 1];
        top[at].token = i;
    }
    return n;
}

void token_logprobs_fill(struct token_logprobs *p, const float *logits, uint32_t n_vocab, uint32_t token)
{
    double sum = log_sum(logits, n_vocab);

    p->at[0].token = token;
    p->n_top = find_likeliest(p->at + 1, p->n_top, logits, n_vocab);
    for (uint32_t i = 0; i <= p->n_top; i++)
        p->at[i].logprob = logits[p->at[i].token] - sum;
}
