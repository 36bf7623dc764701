// template_char.h - code points of UTF-8 text, with Python's definitions of space, case and printable
// characters.
//
// The text is valid UTF-8: templates and JSON are checked on entry (char_find_invalid). Case maps single code
// points; of the one-to-many mappings only U+00DF is supported, by the callers.
#pragma once
#include "base/str.h"

size_t char_find_invalid(struct str text); // the first byte that is not UTF-8, or SIZE_MAX
bool char_is_valid(uint32_t code);         // whether UTF-8 can encode this code point
void char_make_line(char *text);           // for messages: control characters become blanks, broken UTF-8 '?'
uint32_t char_next(struct str text, size_t *at);
size_t char_encode(uint32_t code, char *out); // 1 to 4 bytes
size_t char_count(struct str text);
// Bytes before the code point of this index; text.n when the text is shorter.
size_t char_offset(struct str text, size_t index);

bool char_is_space(uint32_t code);
bool char_is_letter(uint32_t code);
bool char_is_word(uint32_t code); // \w: letters, digits, '_'
bool char_is_upper(uint32_t code);
bool char_is_lower(uint32_t code);
bool char_is_digit(uint32_t code);
bool char_is_printable(uint32_t code);
uint32_t char_upper(uint32_t code);
uint32_t char_lower(uint32_t code);
uint32_t char_title(uint32_t code);

static inline bool char_is_name(unsigned char byte)
{
    return ((byte | 32) >= 'a' && (byte | 32) <= 'z') || (byte >= '0' && byte <= '9') || byte == '_' ||
           byte >= 0x80;
}

enum char_strip_side { CHAR_STRIP_LEFT = 1, CHAR_STRIP_RIGHT = 2, CHAR_STRIP_BOTH = 3 };
struct str char_strip(struct str text, enum char_strip_side side);
