// logits_code.c - see logits_code.h.
#include "model_tools/logits_code.h"
#include <math.h>

static const double FLOOR = 40, LAST = LOGITS_CODES - 1;

uint16_t logits_code(double logprob)
{
    double depth = logprob < 0 ? -logprob : 0;

    return depth < FLOOR ? (uint16_t)(LAST * sqrt(depth / FLOOR) + 0.5) : LOGITS_CODES - 1;
}

void logits_code_fill(struct logits_code_table *t)
{
    for (uint32_t c = 0; c < LOGITS_CODES; c++) {
        t->logprob[c] = -FLOOR * (c / LAST) * (c / LAST);
        t->p[c] = exp(t->logprob[c]);
    }
}
