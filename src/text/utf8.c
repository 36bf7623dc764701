// utf8.c - see utf8.h.
#include "text/utf8.h"

static bool continues(const char *at, size_t n, size_t i, unsigned low, unsigned high)
{
    return i < n && (unsigned char)at[i] >= low && (unsigned char)at[i] <= high;
}

uint32_t utf8_read(const char *at, size_t n, uint32_t *cp)
{
    unsigned char first = (unsigned char)at[0];
    *cp = UTF8_ILL_FORMED;
    if (first < 0x80) {
        *cp = first;
        return 1;
    }
    uint32_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4)
        return 1;
    // The second byte carries the limits: no overlong forms, no surrogates, nothing above U+10FFFF.
    unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    uint32_t value = first & (0xffu >> (length + 1));
    for (uint32_t i = 1; i < length; i++) {
        if (!continues(at, n, i, i == 1 ? low : 0x80, i == 1 ? high : 0xbf))
            return i;
        value = value << 6 | ((unsigned char)at[i] & 0x3fu);
    }
    *cp = value;
    return length;
}

uint32_t utf8_write(char *to, uint32_t cp)
{
    if (cp < 0x80) {
        to[0] = (char)cp;
        return 1;
    }
    uint32_t length = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (uint32_t i = length - 1; i > 0; i--, cp >>= 6)
        to[i] = (char)(0x80 | (cp & 0x3f));
    to[0] = (char)((0xf00u >> length) | cp);
    return length;
}

bool utf8_append(struct buf *b, uint32_t cp)
{
    char bytes[4];
    return buf_append(b, bytes, utf8_write(bytes, cp));
}

// The number of bytes before the first ill-formed part.
static size_t valid_prefix(struct str text)
{
    size_t i = 0;
    while (i < text.n) {
        uint64_t eight;
        while (text.n - i >= 8 && (memcpy(&eight, text.at + i, 8), (eight & 0x8080808080808080u) == 0))
            i += 8;
        if (i == text.n)
            break;
        uint32_t cp, length = utf8_read(text.at + i, text.n - i, &cp);
        if (cp == UTF8_ILL_FORMED)
            return i;
        i += length;
    }
    return i;
}

bool utf8_is_valid(struct str text)
{
    return valid_prefix(text) == text.n;
}

size_t utf8_n_cut(struct str text)
{
    for (size_t back = 1; back <= 3 && back <= text.n; back++) {
        const char *at = text.at + text.n - back;
        if (((unsigned char)*at & 0xc0) == 0x80)
            continue;
        uint32_t cp, length = utf8_read(at, back, &cp);
        uint32_t wanted = (unsigned char)*at >= 0xf0 ? 4 : (unsigned char)*at >= 0xe0 ? 3 : 2;
        bool may_begin = (unsigned char)*at >= 0xc2 && (unsigned char)*at <= 0xf4;
        return cp == UTF8_ILL_FORMED && may_begin && length == back && back < wanted ? back : 0;
    }
    return 0;
}

bool utf8_append_valid(struct buf *b, struct str text)
{
    while (text.n) {
        size_t good = valid_prefix(text);
        buf_append(b, text.at, good);
        text = str_from_to(text, good, text.n);
        if (text.n) {
            uint32_t cp, length = utf8_read(text.at, text.n, &cp);
            buf_str(b, STR("\xef\xbf\xbd"));
            text = str_from_to(text, length, text.n);
        }
    }
    return !b->failed;
}
