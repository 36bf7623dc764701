// utf8_stream.h - text that arrives token by token, made into whole characters.
//
// A token may end in the middle of a character. utf8_stream keeps the cut-off bytes (at most 3) back until the next token
// completes them, so that a client never sees U+FFFD in the middle of an emoji. What cannot become a character is U+FFFD.
#pragma once
#include "base/str.h"

struct utf8_stream { // zero-initialise
    char kept[4];
    size_t n_kept;
};
// Appends to out what is certain now.
bool utf8_stream_push(struct utf8_stream *stream, struct str bytes, struct buf *out);
// The end: kept bytes come out as U+FFFD.
bool utf8_stream_finish(struct utf8_stream *stream, struct buf *out);
