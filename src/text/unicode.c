// unicode.c - see unicode.h.
//
// Normalisation: decompose with utf8proc's tables, order combining marks stably by class (insertion for short
// runs, counting for long ones), compose with utf8proc. The text is cut at ASCII characters: nothing composes
// across the start of one, so the code points of only one stretch are held at a time.
#include "text/unicode.h"
#include <utf8proc.h>
#include "base/mem.h"
#include "text/utf8.h"

enum { SHORT_RUN = 32, DECOMPOSED_MAX = 32 };

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

bool unicode_strip_nonspacing(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        i += utf8_read(text.at + i, text.n - i, &cp);
        if (utf8proc_category((int32_t)cp) != UTF8PROC_CATEGORY_MN)
            utf8_append(out, cp);
    }
    return !out->failed;
}

static bool is_ideograph(uint32_t cp)
{
    static const struct {
        uint32_t first, last;
    } blocks[] = { { 0x4e00, 0x9fff },   { 0x3400, 0x4dbf },   { 0x20000, 0x2a6df }, { 0x2a700, 0x2b73f },
                   { 0x2b740, 0x2b81f }, { 0x2b820, 0x2ceaf }, { 0xf900, 0xfaff },   { 0x2f800, 0x2fa1f } };

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (cp >= blocks[i].first && cp <= blocks[i].last)
            return true;
    return false;
}

static bool is_dropped(uint32_t cp)
{
    utf8proc_category_t category = utf8proc_category((int32_t)cp);
    bool other = category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
                 category == UTF8PROC_CATEGORY_CO || category == UTF8PROC_CATEGORY_CS;

    return cp == 0xfffd || (other && cp != '\t' && cp != '\n' && cp != '\r');
}

bool unicode_clean(struct buf *out, struct str text)
{
    for (size_t i = 0; i < text.n;) {
        uint32_t cp;
        i += utf8_read(text.at + i, text.n - i, &cp);
        bool apart = is_ideograph(cp);
        if (is_dropped(cp))
            continue;
        if (apart)
            utf8_append(out, ' ');
        utf8_append(out, unicode_is_space(cp) ? ' ' : cp);
        if (apart)
            utf8_append(out, ' ');
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
