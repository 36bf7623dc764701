// json_scan.c - see json_scan.h.
#include "format/json_scan.h"
#include "format/directory.h"

struct json_scan json_begin(struct str text)
{
    return (struct json_scan){ .all = text };
}

static enum json_token fail(struct json_scan *scan, const char *problem)
{
    if (!scan->problem)
        scan->problem = problem;
    return JSON_ERROR;
}

static int peek(const struct json_scan *scan) // -1 at the end
{
    return scan->pos < scan->all.n ? (unsigned char)scan->all.at[scan->pos] : -1;
}

static void skip_space(struct json_scan *scan)
{
    while (scan->pos < scan->all.n && strchr(" \t\n\r", scan->all.at[scan->pos]) && scan->all.at[scan->pos])
        scan->pos++;
}

// At the opening quote. Escapes are only stepped over here.
static bool take_quoted(struct json_scan *scan)
{
    size_t from = ++scan->pos;

    scan->escaped = false;
    for (int c; (c = peek(scan)) != '"'; scan->pos++) {
        if (c < 0x20) {
            fail(scan, c < 0 ? "a string does not end" : "a control byte inside a string");
            return false;
        }
        if (c == '\\') {
            scan->escaped = true;
            scan->pos++;
        }
    }
    scan->text = str_from_to(scan->all, from, scan->pos++);
    return true;
}

static bool take_word(struct json_scan *scan, const char *word)
{
    struct str rest = str_from_to(scan->all, scan->pos, scan->all.n);

    if (!str_starts(rest, str_from(word)))
        return false;
    scan->text = str_from_to(rest, 0, strlen(word));
    scan->pos += strlen(word);
    return true;
}

static size_t take_digits(struct json_scan *scan)
{
    size_t from = scan->pos;

    while (peek(scan) >= '0' && peek(scan) <= '9')
        scan->pos++;
    return scan->pos - from;
}

static enum json_token take_number(struct json_scan *scan)
{
    size_t from = scan->pos;

    if (take_word(scan, "NaN") || take_word(scan, "Infinity") || take_word(scan, "-Infinity"))
        return JSON_NUMBER;
    scan->pos += peek(scan) == '-';
    bool zero = peek(scan) == '0';
    size_t n = take_digits(scan);
    if (n == 0 || (zero && n > 1))
        return fail(scan, n ? "a number begins with 0" : "expected a value");
    if (peek(scan) == '.') {
        scan->pos++;
        if (take_digits(scan) == 0)
            return fail(scan, "a number ends in a point");
    }
    if (peek(scan) == 'e' || peek(scan) == 'E') {
        scan->pos++;
        scan->pos += peek(scan) == '+' || peek(scan) == '-';
        if (take_digits(scan) == 0)
            return fail(scan, "an exponent without digits");
    }
    scan->text = str_from_to(scan->all, from, scan->pos);
    return JSON_NUMBER;
}

static enum json_token open_nested(struct json_scan *scan, bool object)
{
    if (scan->depth == JSON_MAX_DEPTH)
        return fail(scan, "nested deeper than 64");
    scan->in_object[scan->depth++] = object;
    scan->pos++;
    scan->after_key = scan->after_value = scan->after_comma = false;
    return object ? JSON_OBJECT : JSON_ARRAY;
}

static enum json_token close_nested(struct json_scan *scan, bool object)
{
    if (scan->depth == 0 || scan->in_object[scan->depth - 1] != object || scan->after_key ||
        scan->after_comma)
        return fail(scan, "a closing bracket where none may be");
    scan->depth--;
    scan->pos++;
    scan->after_value = true;
    return object ? JSON_OBJECT_END : JSON_ARRAY_END;
}

static enum json_token take_key(struct json_scan *scan)
{
    if (peek(scan) != '"')
        return fail(scan, "expected a key in quotes");
    if (!take_quoted(scan))
        return JSON_ERROR;
    skip_space(scan);
    if (peek(scan) != ':')
        return fail(scan, "expected ':' after a key");
    scan->pos++;
    scan->after_key = true;
    scan->after_comma = false;
    return JSON_KEY;
}

static enum json_token take_plain(struct json_scan *scan)
{
    if (peek(scan) == '"')
        return take_quoted(scan) ? JSON_STRING : JSON_ERROR;
    return take_word(scan, "true")    ? JSON_TRUE
           : take_word(scan, "false") ? JSON_FALSE
           : take_word(scan, "null")  ? JSON_NULL
                                      : take_number(scan);
}

enum json_token json_next(struct json_scan *scan)
{
    if (scan->problem)
        return JSON_ERROR;
    skip_space(scan);
    int c = peek(scan);
    if (scan->depth == 0 && scan->after_value)
        return c < 0 ? JSON_END : fail(scan, "text after the end");
    if (c == '}' || c == ']')
        return close_nested(scan, c == '}');
    if (scan->after_value) {
        if (c != ',')
            return fail(scan, "expected ',' or a closing bracket");
        scan->pos++;
        scan->after_value = false;
        scan->after_comma = true;
        return json_next(scan); // at most once: after_value is clear now
    }
    if (scan->depth && scan->in_object[scan->depth - 1] && !scan->after_key)
        return take_key(scan);
    if (c == '{' || c == '[')
        return open_nested(scan, c == '{');
    enum json_token token = take_plain(scan);
    scan->after_value = true;
    scan->after_key = scan->after_comma = false;
    return token;
}

bool json_skip(struct json_scan *scan, enum json_token first)
{
    enum json_token token = first;
    uint32_t outside = scan->depth - (first == JSON_OBJECT || first == JSON_ARRAY);

    while (token != JSON_ERROR && scan->depth > outside)
        token = json_next(scan);
    return token != JSON_ERROR;
}

// Four hex digits at text[at]; -1 when they are not.
static int32_t hex4(struct str text, size_t at)
{
    int32_t v = 0;

    if (text.n - at < 4)
        return -1;
    for (size_t i = 0; i < 4; i++) {
        static const char digits[] = "0123456789abcdef";
        char c = text.at[at + i];
        const char *d = c ? strchr(digits, c >= 'A' && c <= 'F' ? c + 32 : c) : NULL;
        if (!d)
            return -1;
        v = v * 16 + (int32_t)(d - digits);
    }
    return v;
}

static size_t put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 63));
    to[0] = (char)((0xf0 << (4 - n) & 0xff) | c);
    return n;
}

// text[*at] follows a backslash; writes at most as many bytes as it reads.
static size_t put_escape(struct str text, size_t *at, char *to)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char c = text.at[(*at)++];
    const char *which = c ? strchr(letters, c) : NULL;

    if (which) {
        to[0] = meanings[which - letters];
        return 1;
    }
    int32_t code = c == 'u' ? hex4(text, *at) : -1, low = -1;
    *at += 4;
    if (code >= 0xd800 && code < 0xdc00 && text.n - *at >= 6 && text.at[*at] == '\\' &&
        text.at[*at + 1] == 'u') {
        low = hex4(text, *at + 2);
        *at += 6;
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : -1;
    }
    return code < 0 || (code >= 0xd800 && code < 0xe000) ? 0 : put_utf8(to, (uint32_t)code);
}

bool json_unescape(struct json_scan *scan, struct arena *arena, struct str *value)
{
    struct str text = scan->text;

    if (!directory_utf8_ok(text))
        return fail(scan, "a string that is not UTF-8");
    *value = text;
    if (!scan->escaped)
        return true;
    char *to = arena_alloc(arena, text.n + 1);
    size_t n = 0;
    if (!to)
        return fail(scan, "no memory for a string");
    for (size_t i = 0; i < text.n;) {
        if (text.at[i] != '\\') {
            to[n++] = text.at[i++];
            continue;
        }
        i++;
        size_t more = put_escape(text, &i, to + n);
        if (more == 0)
            return fail(scan, "a bad escape in a string");
        n += more;
    }
    *value = (struct str){ to, n };
    return true;
}
