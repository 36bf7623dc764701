// eval.h - how well a loaded model predicts a text, and how far its distributions are from a reference's:
// `ingot eval`.
//
// Perplexity is llama-perplexity's: exp of the mean of -log p over the scored tokens (eval_text.h), with the
// standard error of that mean, times the perplexity, as its error. Divergences are of the reference from this
// model, in nats.
#pragma once
#include "model_tools/eval_score.h"
#include "model_tools/logits_file.h"

struct eval_job {
    struct ingot_engine *engine; // with room for a chunk; opened with eval_engine_options
    const struct eval_text *text;
    struct logits_file *reference;   // of the same text; NULL: none
    struct logits_file_writer *save; // receives the logits; NULL: they are dropped
    unsigned n_threads;              // that score; 0: all processors
    // Called with the scored chunks between steps; false ends the work with ERR_CANCELLED. May be NULL.
    bool (*progress)(void *arg, uint64_t done, uint64_t total);
    void *progress_arg;
};

// Sets what reading chunks of n_chunk tokens needs: context, rows of logits in a step, no kept prompts.
void eval_engine_options(struct ingot_engine_options *options, uint32_t n_chunk);
bool eval_run(const struct eval_job *job, struct eval_summary *summary, struct err *err);
// Whether ids in the text mean what they mean to the engine's model.
bool eval_check_vocabulary(const struct ingot_engine *engine, const struct eval_text *text, struct err *err);
