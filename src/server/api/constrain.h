// constrain.h - the grammar that an answer has to follow, from its format and from tools that have to be
// called.
#pragma once
#include "server/api/api_request.h"
#include "text/parsers/output_parser.h"

struct constrain_options {
    enum tool_call_style style;
    bool thinks;                       // the model may reason before it answers
    bool reasoning_open;               // and has already begun to
    const struct ingot_engine *engine; // whose marks may be control tokens; NULL: all are text
};

// Leaves gbnf empty when the answer is free. Errors name the keyword of a schema that is not supported.
bool constrain_answer(const struct api_request *request, const struct constrain_options *options,
                      struct buf *gbnf, struct err *err);

// ---- parts

// A call with "..." for everything, as the family writes it.
void constrain_example(enum tool_call_style style, struct buf *text);

// The rule "calls": one call or more of the tools that may be called.
bool constrain_calls(const struct api_request *request, const struct constrain_options *options,
                     struct buf *gbnf, struct err *err);
// Appends words as literals, the families' marks among them as control tokens where they are such.
void constrain_text(const struct ingot_engine *engine, const char *words, struct buf *gbnf);
// A rule for any text that does not hold the mark; of the mark only the first character is "<".
void constrain_without(const char *rule, const char *mark, struct buf *gbnf);
