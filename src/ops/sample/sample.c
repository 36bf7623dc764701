// sample.c - checks and records the operation; see sample.h.
#include "ops/sample/sample.h"
#include "ops/ops.h"

void op_sample(struct tape *t, struct sample s)
{
    if (s.logits.rows != ROWS_OUTPUT || s.results->bytes < tape_limits(t)->max_outputs * sizeof(uint32_t)) {
        tape_fail(t, "sample: %llu bytes for results; want 4 for each of %u output rows",
                  (unsigned long long)s.results->bytes, tape_limits(t)->max_outputs);
        return;
    }
    if (s.mask_bias && s.mask_bias->bytes < (uint64_t)tape_limits(t)->max_outputs *
                                                sample_mask_bias_words(s.logits.n_cols) * 4) {
        tape_fail(t, "sample: %llu bytes for the masks and biases of %u output rows",
                  (unsigned long long)s.mask_bias->bytes, tape_limits(t)->max_outputs);
        return;
    }
    struct sample_args args = { s.logits.n_cols, s.history_stride,
                                s.mask_bias ? sample_mask_bias_words(s.logits.n_cols) : 0, s.ahead };
    uint32_t even = s.logits.n_cols + s.logits.n_cols % 2;
    // 64 bits a candidate, 32 a logit, and the CPU kernel's block maxima
    struct tensor work = tape_tensor(t, 3 * even + sample_tops(s.logits.n_cols), ROWS_OUTPUT);
    struct command *c = tape_add(t, OP_sample, "sample", &args, sizeof args);
    tape_reads(t, c, s.logits);
    tape_writes_buffer(t, c, s.history, OPERAND_U32);
    tape_works_in(t, c, work);
    tape_writes_buffer(t, c, s.results, OPERAND_U32);
    if (s.mask_bias)
        tape_reads_buffer(t, c, s.mask_bias);
    else
        tape_reads_weight(t, c, NULL); // absent: every command of an operation has as many operands
}
