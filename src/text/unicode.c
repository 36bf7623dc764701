// unicode.c - see unicode.h.
//
// Normalisation: decompose with utf8proc's tables, order combining marks stably by class (insertion for short
// runs, counting for long ones), compose with utf8proc. The text is cut at ASCII characters: nothing composes
// across the start of one, so the code points of only one stretch are held at a time.
#include "text/unicode.h"
#include <utf8proc.h>
#include "base/mem.h"

enum { SHORT_RUN = 32, DECOMPOSED_MAX = 32 };

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

struct code_points {
    int32_t *at;
    size_t n, capacity;
};

static bool points_reserve(struct code_points *points, size_t more)
{
    if (points->capacity - points->n >= more)
        return true;
    size_t capacity = points->capacity * 2 + more;
    int32_t *at = mem_realloc(points->at, capacity * sizeof *at);
    if (!at)
        return false;
    points->at = at;
    points->capacity = capacity;
    return true;
}

static int combining_class(int32_t cp)
{
    return cp < 0x300 ? 0 : utf8proc_get_property(cp)->combining_class;
}

static bool order_long_run(int32_t *run, size_t n)
{
    size_t first[257] = { 0 };
    int32_t *sorted = mem_alloc_array(n, sizeof *sorted);
    if (!sorted)
        return false;
    for (size_t i = 0; i < n; i++)
        first[combining_class(run[i]) + 1]++;
    for (size_t i = 1; i < 257; i++)
        first[i] += first[i - 1];
    for (size_t i = 0; i < n; i++)
        sorted[first[combining_class(run[i])]++] = run[i];
    memcpy(run, sorted, n * sizeof *run);
    mem_free(sorted);
    return true;
}

static void order_short_run(int32_t *run, size_t n)
{
    for (size_t i = 1; i < n; i++) {
        int32_t cp = run[i];
        size_t j = i;
        for (; j > 0 && combining_class(run[j - 1]) > combining_class(cp); j--)
            run[j] = run[j - 1];
        run[j] = cp;
    }
}

static bool order_marks(struct code_points *points)
{
    for (size_t i = 0; i < points->n;) {
        size_t end = i;
        while (end < points->n && combining_class(points->at[end]) != 0)
            end++;
        if (end - i > SHORT_RUN && !order_long_run(points->at + i, end - i))
            return false;
        if (end - i <= SHORT_RUN)
            order_short_run(points->at + i, end - i);
        i = end > i ? end : i + 1;
    }
    return true;
}

static bool normalize_stretch(struct buf *out, struct str text, enum unicode_form form,
                              struct code_points *points)
{
    bool compose = form == UNICODE_NFC || form == UNICODE_NFKC;
    int options = UTF8PROC_DECOMPOSE | (form == UNICODE_NFKC || form == UNICODE_NFKD ? UTF8PROC_COMPAT : 0);

    points->n = 0;
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        i += utf8_read(text.at + i, text.n - i, &cp);
        if (!points_reserve(points, DECOMPOSED_MAX))
            return false;
        int boundclass = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char((int32_t)cp, points->at + points->n, DECOMPOSED_MAX,
                                                     options, &boundclass);
        CHECK(n >= 0 && n <= DECOMPOSED_MAX);
        points->n += (size_t)n;
    }
    if (!order_marks(points))
        return false;
    if (compose && points->n) {
        utf8proc_ssize_t n = utf8proc_normalize_utf32(points->at, (utf8proc_ssize_t)points->n,
                                                      options | UTF8PROC_COMPOSE | UTF8PROC_STABLE);
        CHECK(n >= 0);
        points->n = (size_t)n;
    }
    for (size_t i = 0; i < points->n; i++)
        utf8_append(out, (uint32_t)points->at[i]);
    return !out->failed;
}

bool unicode_normalize(struct buf *out, struct str text, enum unicode_form form)
{
    struct code_points points = { 0 };
    bool ok = true;

    for (size_t i = 0; ok && i < text.n;) {
        size_t ascii = i;
        while (ascii < text.n && !((unsigned char)text.at[ascii] & 0x80))
            ascii++;
        // the last character may combine with the marks that follow
        size_t plain = ascii < text.n && ascii > i ? ascii - 1 : ascii;
        size_t end = ascii;
        while (end < text.n && (unsigned char)text.at[end] & 0x80)
            end++;
        ok = buf_append(out, text.at + i, plain - i) &&
             normalize_stretch(out, str_from_to(text, plain, end), form, &points);
        i = end;
    }
    mem_free(points.at);
    return ok && !out->failed;
}

bool unicode_lower(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        i += utf8_read(text.at + i, text.n - i, &cp);
        if (cp == 0x130) // the one code point whose lower case is two
            utf8_append(out, 'i'), utf8_append(out, 0x307);
        else
            utf8_append(out, (uint32_t)utf8proc_tolower((int32_t)cp));
    }
    return !out->failed;
}

bool unicode_strip_accents(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        i += utf8_read(text.at + i, text.n - i, &cp);
        utf8proc_category_t category = utf8proc_category((int32_t)cp);
        if (category < UTF8PROC_CATEGORY_MN || category > UTF8PROC_CATEGORY_ME)
            utf8_append(out, cp);
    }
    return !out->failed;
}

bool unicode_is_space(uint32_t cp)
{
    if (cp < 0x80)
        return cp == ' ' || (cp >= '\t' && cp <= '\r');
    utf8proc_category_t category = utf8proc_category((int32_t)cp);
    return cp == 0x85 || category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
           category == UTF8PROC_CATEGORY_ZP;
}

bool unicode_is_word(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((int32_t)cp);
    return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_ME) || c == UTF8PROC_CATEGORY_ND ||
           c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_PC;
}
