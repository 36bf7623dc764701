// constrain.h - the grammar of an answer, made from its response format and from forced tool calls.
#pragma once
#include "server/api/api_request.h"
#include "text/parsers/output_parser.h"

struct constrain_options {
    enum tool_call_style style;
    bool thinks;                         // the model may reason first
    bool reasoning_open;                 // the prompt ends within the reasoning
    const struct reasoning_marks *marks; // NULL: <think>
    const struct ingot_engine
        *engine; // its vocabulary has the marks that are control tokens; NULL: all marks are text
};

// Leaves gbnf empty when the answer is unconstrained. An error names the unsupported keyword of the schema.
bool constrain_answer(const struct api_request *request, const struct constrain_options *options,
                      struct buf *gbnf, struct err *err);

// ---- parts

// Writes an example call in the form of the model family, with "..." for the values.
void constrain_example(enum tool_call_style style, struct buf *text);

// Writes calls that were made (as chat completions have them) in that form. LFM2's are in Python, and where a
// family marks arguments up they stay an object.
void constrain_calls_text(enum tool_call_style style, json_t *calls, struct buf *text);

// Writes the rule "calls": one or more calls of the allowed tools.
bool constrain_calls(const struct api_request *request, const struct constrain_options *options,
                     struct buf *gbnf, struct err *err);
// Appends text as literals; marks of tool calls become control tokens where the vocabulary has them.
void constrain_text(const struct ingot_engine *engine, const char *words, struct buf *gbnf);
// Writes a rule for any text without the mark, whose first character does not occur in it again.
void constrain_without(const char *rule, const char *mark, struct buf *gbnf);
