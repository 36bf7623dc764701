// logits_code.h - a log-probability in 16 bits: code c stands for -40 (c / 65535)^2.
//
// Steps are 6e-7 near certainty, 2e-4 at a probability of 1/e and 1e-3 at the floor of e^-40: fine where a
// distribution has its mass. Readers divide by the sum of what the codes stand for, so that rounding does not
// change the total.
#pragma once
#include <stdint.h>

enum { LOGITS_CODES = 65536 };

struct logits_code_table {
    double logprob[LOGITS_CODES], p[LOGITS_CODES];
};

uint16_t logits_code(double logprob);
void logits_code_fill(struct logits_code_table *t);
