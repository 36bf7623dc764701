// answer.h - the text of one answer: bytes of tokens become whole characters, and end before a stop string.
//
// Text that might be the beginning of a stop string is held back until it is known not to be. All memory is taken at the start:
// nothing is allocated per token, and text that was handed out never moves.
#pragma once
#include "base/str.h"
#include "text/stream.h"

struct answer {
    struct buf held; // whole characters not yet released
    struct utf8_stream stream;
    struct str *stops; // [n_stops]
    size_t n_stops;
    char *text; // released pieces, each ended by NUL
    size_t n_text, capacity;
    bool stopped; // a stop string was found; nothing more comes
    size_t stopped_by;
};

struct answer_limits {
    uint32_t max_tokens, longest_token; // bytes of the longest token
    const char *const *stops;
    size_t n_stops;
};
bool answer_create(struct answer *a, const struct answer_limits *limits, struct err *err);
void answer_release(struct answer *a);
// Adds a token's bytes and returns the piece that is now certain; maybe empty. Sets a->stopped when a stop string is complete.
struct str answer_push(struct answer *a, struct str bytes);
// The end of the tokens: what was held back.
struct str answer_finish(struct answer *a);
