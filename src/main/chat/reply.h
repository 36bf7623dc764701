// reply.h - one answer: runs a request, prints its text or JSON lines, and the figures.
#pragma once
#include "ingot.h"
#include "main/settings.h"
#include "model_tools/model_adapters.h"
#include "text/parsers/output_parser.h"

struct reply {
    struct ingot_engine *engine;
    struct ingot_session *session; // NULL: a fresh one
    const struct settings *settings;
    struct buf text;                             // the answer; freed by the caller
    struct buf tokens;                           // of it, u32, with --record; freed by the caller
    const char *grammar, *json_schema;           // that answers follow; NULL: none
    const struct ingot_picture *const *pictures; // [n_pictures] of the messages, or before the text
    size_t n_pictures;
    struct ingot_adapter_use adapters[MODEL_ADAPTERS]; // [n_adapters] that answers use
    size_t n_adapters;
    struct ingot_result result;
    struct output_parser parser; // separates reasoning and answer, with `parts`
    bool parts, is_dim, thinks;  // thinks: the last piece was reasoning
    bool channels;               // marks that are control tokens tell thoughts from the answer
};

uint64_t reply_random_seed(void);
// Answers the messages, or continues the text when there are none. Returns the exit status; stopped by Ctrl-C
// is STATUS_OK.
int reply_print(struct reply *r, const struct ingot_message *messages, size_t n_messages, const char *text);
