// detokenizer.h - the text of one request: token bytes become whole characters, and the text ends before a
// stop string.
//
// Text that may be the beginning of a stop string is held back until the next tokens decide. All memory is
// allocated at the start: nothing is allocated per token, and text that was returned never moves.
#pragma once
#include "engine/stop_match.h"
#include "text/utf8_stream.h"

struct detokenizer {
    struct utf8_stream stream;
    struct stop_match stops;
    struct buf held; // whole characters that are not returned yet
    char *text;      // returned pieces, each followed by NUL
    size_t n_text, capacity;
    bool stopped;      // a stop string was found; nothing more comes
    size_t stopped_by; // its number
};

struct detokenizer_options {
    uint32_t max_tokens, longest_token; // longest_token: bytes
    const char *const *stops;
    size_t n_stops;
};
bool detokenizer_create(struct detokenizer *d, const struct detokenizer_options *options, struct err *err);
void detokenizer_release(struct detokenizer *d);
// Adds a token's bytes. Returns the text that is now certain, maybe empty. Sets stopped when a stop string is
// complete.
struct str detokenizer_push(struct detokenizer *d, struct str bytes);
// The end of the tokens: returns what was held back.
struct str detokenizer_finish(struct detokenizer *d);
