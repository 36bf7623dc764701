// constrain.h - the grammar that an answer has to follow, from its format and from tools that have to be called.
#pragma once
#include "server/ask.h"
#include "text/speech.h"

struct constrain_options {
    enum call_style style;
    bool thinks;         // the model may reason before it answers
    bool reasoning_open; // and has already begun to
};

// Leaves gbnf empty when the answer is free. Errors name the keyword of a schema that is not supported.
bool constrain_answer(const struct ask *ask, const struct constrain_options *options, struct buf *gbnf, struct err *err);
// Whether the mark that begins calls should be put behind the prompt: it is a control token there, which no grammar can ask for.
bool constrain_opens_calls(const struct ask *ask, enum call_style style);
