// template_char.c - see template_char.h. The tables are utf8proc's.
#include "text/template/template_char.h"
#include <utf8proc.h>

bool char_is_valid(uint32_t code)
{
    return code < 0x110000 && (code < 0xd800 || code > 0xdfff);
}

size_t char_find_invalid(struct str text)
{
    for (size_t i = 0; i < text.n;) {
        utf8proc_int32_t code;
        size_t left = text.n - i;
        if ((unsigned char)text.at[i] < 0x80) {
            i++;
            continue;
        }
        utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text.at + i,
                                              (utf8proc_ssize_t)(left > 4 ? 4 : left), &code);
        if (n <= 0)
            return i;
        i += (size_t)n;
    }
    return SIZE_MAX;
}

void char_make_line(char *text)
{
    size_t bad;

    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    while ((bad = char_find_invalid(str_from(text))) != SIZE_MAX)
        text[bad] = '?';
}

uint32_t char_next(struct str text, size_t *at)
{
    const unsigned char *s = (const unsigned char *)text.at + *at;
    size_t left = text.n - *at, n = s[0] < 0xc0 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    uint32_t code = n == 1 ? s[0] : s[0] & (0x7fu >> n);

    n = n > left ? left : n;
    for (size_t i = 1; i < n; i++)
        code = code << 6 | (s[i] & 0x3f);
    *at += n;
    return code;
}

size_t char_encode(uint32_t code, char *out)
{
    return (size_t)utf8proc_encode_char((utf8proc_int32_t)code, (utf8proc_uint8_t *)out);
}

size_t char_count(struct str text)
{
    size_t n = 0;

    for (size_t i = 0; i < text.n; i++)
        n += ((unsigned char)text.at[i] & 0xc0) != 0x80;
    return n;
}

size_t char_offset(struct str text, size_t index)
{
    for (size_t i = 0; i < text.n; i++)
        if (((unsigned char)text.at[i] & 0xc0) != 0x80 && index-- == 0)
            return i;
    return text.n;
}

static utf8proc_category_t category(uint32_t code)
{
    return utf8proc_category((utf8proc_int32_t)code);
}

bool char_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool char_is_letter(uint32_t code)
{
    if (code < 0x80)
        return (code | 32) >= 'a' && (code | 32) <= 'z';
    utf8proc_category_t c = category(code);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT ||
           c == UTF8PROC_CATEGORY_LM || c == UTF8PROC_CATEGORY_LO;
}

bool char_is_digit(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_ND;
}

bool char_is_word(uint32_t code)
{
    if (code < 0x80)
        return char_is_name((unsigned char)code);
    utf8proc_category_t c = category(code);
    return char_is_letter(code) || c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL ||
           c == UTF8PROC_CATEGORY_NO;
}

bool char_is_upper(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_LU;
}

bool char_is_lower(uint32_t code)
{
    return category(code) == UTF8PROC_CATEGORY_LL;
}

bool char_is_printable(uint32_t code)
{
    switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
        return false;
    case UTF8PROC_CATEGORY_ZS:
        return code == ' ';
    default:
        return true;
    }
}

uint32_t char_upper(uint32_t code)
{
    if (code < 0x80)
        return code >= 'a' && code <= 'z' ? code - 32 : code;
    return (uint32_t)utf8proc_toupper((utf8proc_int32_t)code);
}

uint32_t char_lower(uint32_t code)
{
    if (code < 0x80)
        return code >= 'A' && code <= 'Z' ? code + 32 : code;
    return (uint32_t)utf8proc_tolower((utf8proc_int32_t)code);
}

uint32_t char_title(uint32_t code)
{
    if (code < 0x80)
        return char_upper(code);
    return (uint32_t)utf8proc_totitle((utf8proc_int32_t)code);
}

struct str char_strip(struct str text, enum char_strip_side side)
{
    size_t from = 0, to = text.n, at;

    while ((side & CHAR_STRIP_LEFT) && from < to) {
        at = from;
        if (!char_is_space(char_next(text, &at)))
            break;
        from = at;
    }
    while ((side & CHAR_STRIP_RIGHT) && to > from) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)text.at[start] & 0xc0) == 0x80)
            start--;
        at = start;
        if (!char_is_space(char_next(text, &at)))
            break;
        to = start;
    }
    return str_from_to(text, from, to);
}
