// record.h - a request and its answer in a file, so that another build, device or split can be asked the
// same.
//
// One JSON object: the prompt's tokens, the parameters, a hash of the model's weights, the settings that
// choose kernels, the answer's tokens. It holds the text of the conversation, as tokens. Pictures are not
// kept.
#pragma once
#include <jansson.h>
#include "ingot.h"
#include "main/settings.h"

struct record {
    json_t *root;                         // that strings belong to
    struct ingot_request_options options; // of the request; its prompt is tokens
    uint32_t *tokens, n_tokens;           // the prompt, and what was answered
    uint32_t n_prompt;
    const char *model, *model_hash, *finish, *device;
    const char **stop;
    uint32_t n_context;
    bool exact, invariant;
};

struct record_answer { // what is written
    struct ingot_engine *engine;
    const struct ingot_request_options *options;
    const uint32_t *answer; // [n_answer]
    size_t n_answer;
    enum ingot_finish finish;
};
const char *record_finish_name(enum ingot_finish finish);
bool record_write(const struct settings *settings, const struct record_answer *what, struct err *err);
bool record_read(struct record *r, const char *path, struct err *err);
void record_release(struct record *r); // a zeroed one is allowed
