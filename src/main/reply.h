// reply.h - one answer: runs a request, prints its text or JSON lines, and the figures.
#pragma once
#include "ingot.h"
#include "main/settings.h"

struct reply {
    struct ingot_engine *engine;
    struct ingot_session *session; // NULL: a fresh one
    const struct settings *settings;
    struct buf text;                   // the answer; freed by the caller
    const char *grammar, *json_schema; // that answers follow; NULL: none
    struct ingot_result result;
};

// Answers the messages, or continues the text when there are none. Returns the exit status; stopped by Ctrl-C is STATUS_OK.
int reply_print(struct reply *r, const struct ingot_message *messages, size_t n_messages, const char *text);
