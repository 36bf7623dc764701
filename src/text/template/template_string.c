// template_string.c - see template_string.h. Searching is linear (memmem), and each result is bounded by the
// memory limit.
#include "text/template/template_string.h"
#include "text/template/template_char.h"
#include "text/template/template_show.h"

// The title filter starts words after these characters and white space; the title method after anything that
// is no letter.
static bool starts_word(enum string_case to, uint32_t before)
{
    if (to == CASE_TITLE_FILTER)
        return char_is_space(before) || (before && before < 128 && strchr("-({[<", (int)before));
    return !char_is_letter(before);
}

enum letter { LETTER_LOWER, LETTER_UPPER, LETTER_TITLE };

static bool put_code(struct builder *b, uint32_t code, enum letter as, bool user)
{
    char text[4];

    if (code == 0xdf && as != LETTER_LOWER)
        return builder_put(b, as == LETTER_UPPER ? STR("SS") : STR("Ss"), user);
    code = as == LETTER_UPPER ? char_upper(code) : as == LETTER_TITLE ? char_title(code) : char_lower(code);
    return builder_put(b, (struct str){ text, char_encode(code, text) }, user);
}

static enum letter letter_as(enum string_case to, uint32_t before, uint32_t code, bool first)
{
    switch (to) {
    case CASE_UPPER:
        return LETTER_UPPER;
    case CASE_LOWER:
        return LETTER_LOWER;
    case CASE_SWAP:
        return char_is_lower(code) ? LETTER_UPPER : LETTER_LOWER;
    case CASE_CAPITALIZE:
        return first ? LETTER_TITLE : LETTER_LOWER;
    case CASE_TITLE:
        return starts_word(to, before) ? LETTER_TITLE : LETTER_LOWER;
    default:
        return starts_word(to, before) ? LETTER_UPPER : LETTER_LOWER;
    }
}

bool string_case(struct render *r, struct value text, enum string_case to, struct value *out)
{
    struct builder b = builder_start(r);
    uint32_t before = ' ';

    b.safe = text.safe && to != CASE_TITLE_FILTER; // Python puts the title together from plain words
    for (size_t at = 0; at < text.s.n;) {
        size_t from = at;
        uint32_t code = char_next(text.s, &at);
        if (!put_code(&b, code, letter_as(to, before, code, from == 0),
                      text.marks ? text.marks[from] : text.user))
            return false;
        before = code;
    }
    *out = builder_value(&b);
    return true;
}

bool string_has_case(struct str text, bool upper)
{
    bool any = false;

    for (size_t at = 0; at < text.n;) {
        uint32_t code = char_next(text, &at);
        if (upper ? char_is_lower(code) : char_is_upper(code))
            return false;
        any |= upper ? char_is_upper(code) : char_is_lower(code);
    }
    return any;
}

static bool one_of(struct str chars, uint32_t code)
{
    for (size_t at = 0; at < chars.n;)
        if (char_next(chars, &at) == code)
            return true;
    return false;
}

static bool strip_here(const struct value *chars, uint32_t code)
{
    return chars->kind == VALUE_STRING ? one_of(chars->s, code) : char_is_space(code);
}

bool string_strip(struct render *r, struct value text, struct value chars, int side, struct value *out)
{
    size_t from = 0, to = text.s.n, at;

    if (chars.kind != VALUE_ABSENT && chars.kind != VALUE_NONE && chars.kind != VALUE_STRING)
        return render_fail(r, ERR_INPUT, "strip arg must be None or str, not %s", value_type_name(chars));
    if (chars.kind == VALUE_STRING && !render_spend(r, (text.s.n / 64 + 1) * (chars.s.n / 8 + 1)))
        return false;
    for (at = 0; (side & CHAR_STRIP_LEFT) && at < to; from = at)
        if (!strip_here(&chars, char_next(text.s, &at)))
            break;
    while ((side & CHAR_STRIP_RIGHT) && to > from) {
        size_t start = to - 1;
        while (start > from && ((unsigned char)text.s.at[start] & 0xc0) == 0x80)
            start--;
        at = start;
        if (!strip_here(&chars, char_next(text.s, &at)))
            break;
        to = start;
    }
    *out = value_part(text, from, to);
    return true;
}

// "abc".replace("", "-") is "-a-b-c-".
static bool replace_empty(struct render *r, struct value text, struct value new, int64_t count,
                          struct value *out)
{
    struct builder b = builder_start(r);

    b.safe = text.safe;
    for (size_t at = 0; at < text.s.n && count != 0; count -= count > 0) {
        size_t from = at;
        char_next(text.s, &at);
        if (!render_spend(r, 1) || !builder_put_value(&b, new) ||
            !builder_put_value(&b, value_part(text, from, at)))
            return false;
        if (count == 1) {
            if (!builder_put_value(&b, value_part(text, at, text.s.n)))
                return false;
            *out = builder_value(&b);
            return true;
        }
    }
    if (count != 0 && !builder_put_value(&b, new))
        return false;
    *out = count == 0 && b.n == 0 ? text : builder_value(&b);
    return true;
}

bool string_replace(struct render *r, struct value text, const struct value *old_new, int64_t count,
                    struct value *out)
{
    struct builder b = builder_start(r);
    struct value old = old_new[0], new = old_new[1];
    size_t at = 0;

    b.safe = text.safe;
    if (old.s.n == 0)
        return replace_empty(r, text, new, count, out);
    for (; count != 0; count -= count > 0) {
        size_t found = str_find(str_from_to(text.s, at, text.s.n), old.s);
        if (found == SIZE_MAX)
            break;
        if (!render_spend(r, 1) || !builder_put_value(&b, value_part(text, at, at + found)) ||
            !builder_put_value(&b, new))
            return false;
        at += found + old.s.n;
    }
    if (at == 0) {
        *out = text;
        return true;
    }
    if (!builder_put_value(&b, value_part(text, at, text.s.n)))
        return false;
    *out = builder_value(&b);
    return true;
}

// The pieces as a list; those found from the right are turned round.
static bool pieces(struct render *r, struct list list, bool reversed, struct value *out)
{
    for (size_t i = 0; reversed && i < list.n / 2; i++) {
        struct value swap = list.at[i];
        list.at[i] = list.at[list.n - 1 - i];
        list.at[list.n - 1 - i] = swap;
    }
    return value_list_share(r, LIST_PLAIN, list, out);
}

static bool split_at(struct render *r, struct list *list, struct value text, struct str separator,
                     int64_t limit)
{
    size_t at = 0;

    for (; limit != 0; limit -= limit > 0) {
        size_t found = str_find(str_from_to(text.s, at, text.s.n), separator);
        if (found == SIZE_MAX)
            break;
        if (!value_list_push(r, list, value_part(text, at, at + found)))
            return false;
        at += found + separator.n;
    }
    return value_list_push(r, list, value_part(text, at, text.s.n));
}

static size_t find_last(struct str text, struct str what)
{
    if (what.n > text.n)
        return SIZE_MAX;
    for (size_t at = text.n - what.n + 1; at-- > 0;)
        if (text.at[at] == what.at[0] && memcmp(text.at + at, what.at, what.n) == 0)
            return at;
    return SIZE_MAX;
}

static bool split_from_right(struct render *r, struct list *list, struct value text, struct str separator,
                             int64_t limit)
{
    size_t end = text.s.n;

    // A separator of many bytes may be compared at every place.
    if (!render_spend(r, (text.s.n / 64 + 1) * (separator.n / 64 + 1)))
        return false;
    for (; limit != 0; limit -= limit > 0) {
        size_t found = find_last(str_from_to(text.s, 0, end), separator);
        if (found == SIZE_MAX)
            break;
        if (!value_list_push(r, list, value_part(text, found + separator.n, end)))
            return false;
        end = found;
    }
    return value_list_push(r, list, value_part(text, 0, end));
}

static size_t word_border(struct str text, size_t at, bool space)
{
    size_t next = at;

    while (at < text.n && char_is_space(char_next(text, &next)) == space)
        at = next;
    return at;
}

static bool split_words(struct render *r, struct list *list, struct value text, int64_t limit)
{
    size_t at = word_border(text.s, 0, true);

    while (at < text.s.n) {
        size_t end = limit == 0 ? text.s.n : word_border(text.s, at, false);
        if (!value_list_push(r, list, value_part(text, at, end)))
            return false;
        limit -= limit > 0;
        at = word_border(text.s, end, true);
    }
    return true;
}

static bool split_words_from_right(struct render *r, struct list *list, struct value text, int64_t limit)
{
    size_t end = char_strip(text.s, CHAR_STRIP_RIGHT).n;

    while (end > 0) {
        size_t start = end;
        while (limit != 0 && start > 0) {
            size_t before = start - 1, at;
            while (before > 0 && ((unsigned char)text.s.at[before] & 0xc0) == 0x80)
                before--;
            at = before;
            if (char_is_space(char_next(text.s, &at)))
                break;
            start = before;
        }
        if (limit == 0)
            start = 0;
        if (!value_list_push(r, list, value_part(text, start, end)))
            return false;
        if (limit == 0)
            break;
        limit -= limit > 0;
        end = char_strip(str_from_to(text.s, 0, start), CHAR_STRIP_RIGHT).n;
    }
    return true;
}

bool string_split(struct render *r, struct value text, const struct split *how, struct value *out)
{
    struct list list = { 0 };
    bool words = how->separator.kind == VALUE_ABSENT || how->separator.kind == VALUE_NONE, ok;

    if (!words && how->separator.kind != VALUE_STRING)
        return render_fail(r, ERR_INPUT, "must be str or None, not %s", value_type_name(how->separator));
    if (!words && how->separator.s.n == 0)
        return render_fail(r, ERR_INPUT, "empty separator");
    if (words)
        ok = how->from_right ? split_words_from_right(r, &list, text, how->limit)
                             : split_words(r, &list, text, how->limit);
    else
        ok = how->from_right ? split_from_right(r, &list, text, how->separator.s, how->limit)
                             : split_at(r, &list, text, how->separator.s, how->limit);
    return ok && pieces(r, list, how->from_right, out);
}

static bool is_line_end(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 0x1c && code <= 0x1e) || code == 0x85 || code == 0x2028 ||
           code == 0x2029;
}

bool string_lines(struct render *r, struct value text, bool keep_ends, struct value *out)
{
    struct list list = { 0 };
    size_t start = 0;

    for (size_t at = 0; at < text.s.n;) {
        size_t end = at;
        uint32_t code = char_next(text.s, &at);
        if (!is_line_end(code))
            continue;
        at += code == '\r' && at < text.s.n && text.s.at[at] == '\n';
        if (!value_list_push(r, &list, value_part(text, start, keep_ends ? at : end)))
            return false;
        start = at;
    }
    if (start < text.s.n && !value_list_push(r, &list, value_part(text, start, text.s.n)))
        return false;
    return pieces(r, list, false, out);
}

bool string_join(struct render *r, struct value separator, const struct list *items, struct value *out)
{
    struct builder b = builder_start(r);
    struct value item;

    b.safe = separator.safe;
    for (size_t i = 0; i < items->n; i++)
        if (!render_spend(r, 1) || (i && !builder_put_value(&b, separator)) ||
            !show_string(r, items->at[i], &item) || !builder_put_value(&b, item))
            return false;
    *out = builder_value(&b);
    return true;
}

bool string_pad(struct render *r, struct value text, int64_t left, int64_t right, struct value *out)
{
    struct builder b = builder_start(r);
    int64_t longer = left > right ? left : right;
    char *blanks;

    b.safe = text.safe;
    *out = text;
    if (longer <= 0)
        return true;
    if ((uint64_t)longer > r->limits->memory_bytes)
        return render_fail(r, ERR_LIMIT, "padding needs more than %zu bytes", r->limits->memory_bytes);
    if (!(blanks = render_alloc(r, (size_t)longer, 1)))
        return false;
    memset(blanks, ' ', (size_t)longer);
    if (!builder_put(&b, (struct str){ blanks, left > 0 ? (size_t)left : 0 }, false) ||
        !builder_put_value(&b, text) ||
        !builder_put(&b, (struct str){ blanks, right > 0 ? (size_t)right : 0 }, false))
        return false;
    *out = builder_value(&b);
    return true;
}
