// utf8_stream.h - whole characters from text that arrives token by token.
//
// A token may end in the middle of a character. utf8_stream holds the incomplete bytes (at most 3) back until
// the next token completes them, so that a client never sees U+FFFD in the middle of an emoji. Bytes that
// cannot form a character become U+FFFD.
#pragma once
#include "base/str.h"

struct utf8_stream { // zero-initialise
    char kept[4];
    size_t n_kept;
};
// Appends the whole characters to out.
bool utf8_stream_push(struct utf8_stream *stream, struct str bytes, struct buf *out);
// At the end: appends incomplete bytes as U+FFFD.
bool utf8_stream_finish(struct utf8_stream *stream, struct buf *out);
