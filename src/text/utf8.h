// utf8.h - strict UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once
#include "base/str.h"

enum { UTF8_ILL_FORMED = 0x7fffffff };

// Reads one code point of the n >= 1 bytes at `at`; returns the bytes used. Ill-formed: *cp is
// UTF8_ILL_FORMED and the result is the length of the ill-formed part, as Unicode recommends to replace it
// (one U+FFFD each).
uint32_t utf8_read(const char *at, size_t n, uint32_t *cp);
// Writes at most 4 bytes; cp must be a scalar value.
uint32_t utf8_write(char *to, uint32_t cp);
bool utf8_append(struct buf *b, uint32_t cp);
bool utf8_is_valid(struct str text);
// Length of an incomplete character at the end of the text (0-3), which more bytes may complete.
size_t utf8_n_cut(struct str text);
// Appends the text with every ill-formed part as U+FFFD.
bool utf8_append_valid(struct buf *b, struct str text);
