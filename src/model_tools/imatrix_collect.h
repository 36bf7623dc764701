// imatrix_collect.h - fills an importance matrix by reading a text with a model: `ingot imatrix`.
//
// Every product of the layers counts, each expert for the rows that are sent to it. The head does not:
// quantize gives it a larger format. Works on any device, command by command, so a step takes longer than
// usual.
#pragma once
#include "model_tools/eval_text.h"
#include "model_tools/imatrix.h"
#include "model_tools/moments.h"

struct imatrix_job {
    struct ingot_engine *engine; // with room for a chunk and one token more
    const struct eval_text *text;
    struct moments *moments; // of dense matrices, filled within their limits as well; or NULL
    // Called with the chunks read between steps; false ends the work with ERR_CANCELLED. May be NULL.
    bool (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
};

bool imatrix_collect(const struct imatrix_job *job, struct imatrix *m, struct err *err);
