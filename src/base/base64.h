// base64.h - base64 with its padding (RFC 4648, section 4), by OpenSSL's libcrypto.
#pragma once
#include "base/str.h"

void base64_append(struct buf *text, struct str bytes); // no memory: text->failed

// bytes that base64_decode needs for a text of n_text characters
static inline size_t base64_room(size_t n_text)
{
    return n_text / 4 * 3;
}
// The bytes, in room. Strict: groups of four, '=' at the end alone, no white space, no bits behind the last
// byte. at is NULL when text is anything else, or when room has fewer than base64_room(text.n) bytes. Any
// thread.
struct str base64_decode(struct str text, char *room, size_t n_room);
