// unicode.h - Unicode for the tokenisers: normalisation forms, lower case, classes of characters.
//
// The tables are utf8proc's. Normalisation is implemented here because utf8proc sorts combining marks by
// swapping neighbours, which is quadratic on a long run of marks in a request.
#pragma once
#include "base/str.h"

enum unicode_form { UNICODE_NFC, UNICODE_NFD, UNICODE_NFKC, UNICODE_NFKD };
// These take valid UTF-8 and append. False without memory.
bool unicode_normalize(struct buf *out, struct str text, enum unicode_form form);
bool unicode_lower(struct buf *out, struct str text);
bool unicode_strip_accents(struct buf *out, struct str text);    // drops marks
bool unicode_strip_nonspacing(struct buf *out, struct str text); // drops nonspacing marks alone
// Drops control characters, format characters, private ones and U+FFFD; every space becomes U+0020, and one
// stands before and behind each ideograph.
bool unicode_clean(struct buf *out, struct str text);
bool unicode_is_space(uint32_t cp); // White_Space
bool unicode_is_word(uint32_t cp);  // letters, marks, decimal digits, connectors
