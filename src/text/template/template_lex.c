// template_lex.c - cuts a template into tokens, with Jinja's rules for white space.
//
// trim_blocks removes the newline after a block or comment tag; lstrip_blocks removes blanks between the
// start of a line and such a tag; '-' inside a tag removes all white space on its side, '+' disables both
// rules there. Brackets are counted, so that "}}" inside an expression can close two dicts. Tokens are made
// one at a time; the only state is the stack of brackets.
#include "text/template/template_char.h"
#include "text/template/template_parser.h"

static bool lexer_fail(struct lexer *l, const char *what)
{
    return err_set(l->err, ERR_INPUT, "template line %u: %s", l->line, what);
}

bool lexer_start(struct lexer *l, struct str source, struct arena *arena, struct err *err)
{
    char *copy = arena_alloc(arena, source.n + 1);
    size_t n = 0, bad = char_find_invalid(source);

    *l = (struct lexer){ .line = 1, .inside = TOKEN_DATA, .line_starting = true, .arena = arena, .err = err };
    if (!copy)
        return err_memory(err, "the template");
    if (bad != SIZE_MAX)
        return err_set(err, ERR_INPUT, "template: byte %zu is not valid UTF-8", bad);
    for (size_t i = 0; i < source.n; i++) {
        bool cr = source.at[i] == '\r';
        if (cr && i + 1 < source.n && source.at[i + 1] == '\n')
            continue;
        copy[n++] = cr ? '\n' : source.at[i];
    }
    if (n && copy[n - 1] == '\n')
        n--;
    l->source = (struct str){ copy, n };
    return true;
}

static bool looking_at(const struct lexer *l, size_t at, const char *text)
{
    return at <= l->source.n && str_starts(str_from_to(l->source, at, l->source.n), str_from(text));
}

static void move_to(struct lexer *l, size_t to)
{
    for (size_t i = l->at; i < to; i++)
        l->line += l->source.at[i] == '\n';
    l->line_starting = to > l->at && l->source.at[to - 1] == '\n';
    l->at = to;
}

static size_t skip_space(const struct lexer *l, size_t at)
{
    size_t next = at;

    while (at < l->source.n && char_is_space(char_next(l->source, &next)))
        at = next;
    return at;
}

// The end of a tag's closing mark at `at` ("%}" and "}}" and "#}" with their signs), or 0 when there is none
// here.
static size_t tag_end(const struct lexer *l, size_t at, const char *mark)
{
    char sign = at < l->source.n ? l->source.at[at] : 0;
    bool block = mark[0] != '}';

    if (looking_at(l, at, mark)) {
        at += 2;
        return block && looking_at(l, at, "\n") ? at + 1 : at;
    }
    if (sign == '-' && looking_at(l, at + 1, mark))
        return skip_space(l, at + 3);
    return sign == '+' && block && looking_at(l, at + 1, mark) ? at + 3 : 0;
}

// The end of the tag "{% [-+] word %}" that starts at `at`, or 0 when another tag is there. The end of raw
// never trims a newline.
static size_t word_tag(const struct lexer *l, size_t at, const char *word)
{
    size_t end;

    if (!looking_at(l, at, "{%"))
        return 0;
    at += 2;
    if (looking_at(l, at, "-") || looking_at(l, at, "+"))
        at++;
    at = skip_space(l, at);
    if (!looking_at(l, at, word))
        return 0;
    at = skip_space(l, at + strlen(word));
    if (strcmp(word, "raw") != 0)
        return tag_end(l, at, "%}");
    end = looking_at(l, at, "-%}") ? skip_space(l, at + 3) : at + 2;
    return looking_at(l, at, "%}") || looking_at(l, at, "-%}") ? end : 0;
}

// The text before a tag at `end`, with white space removed according to the tag's sign and kind.
static struct str strip_before_tag(const struct lexer *l, size_t end)
{
    struct str text = str_from_to(l->source, l->at, end);
    char kind = l->source.at[end + 1], sign = end + 2 < l->source.n ? l->source.at[end + 2] : 0;
    size_t line = text.n;

    if (sign == '-')
        return char_strip(text, CHAR_STRIP_RIGHT);
    if (sign == '+' || kind == '{')
        return text;
    while (line > 0 && text.at[line - 1] != '\n')
        line--;
    if (line == 0 && !l->line_starting)
        return text;
    return char_strip(str_from_to(text, line, text.n), CHAR_STRIP_RIGHT).n == 0 ? str_from_to(text, 0, line)
                                                                                : text;
}

static size_t find_tag(const struct lexer *l, size_t at)
{
    for (; at + 1 < l->source.n; at++) {
        const char *brace = memchr(l->source.at + at, '{', l->source.n - at - 1);
        if (!brace)
            break;
        at = (size_t)(brace - l->source.at);
        if (strchr("{%#", l->source.at[at + 1]) && l->source.at[at + 1])
            return at;
    }
    return l->source.n;
}

static bool skip_comment(struct lexer *l, size_t at)
{
    size_t end = 0;

    // A sign after "{#" belongs to the beginning, so that "{#-}" is not a whole comment.
    at += 2;
    if (looking_at(l, at, "-") || looking_at(l, at, "+"))
        at++;
    while (at < l->source.n && (end = tag_end(l, at, "#}")) == 0)
        at++;
    if (end == 0)
        return lexer_fail(l, "a comment {# without its end #}");
    move_to(l, end);
    return true;
}

// {% raw %} text {% endraw %}: the text as one data token.
static bool raw_text(struct lexer *l, size_t begin, struct token *token)
{
    size_t at, end = 0;

    move_to(l, begin);
    for (at = begin; at < l->source.n; at++) {
        at = find_tag(l, at);
        end = at < l->source.n ? word_tag(l, at, "endraw") : 0;
        if (end)
            break;
    }
    if (end == 0)
        return lexer_fail(l, "{% raw %} without {% endraw %}");
    *token = (struct token){ .kind = TOKEN_DATA, .line = l->line, .text = strip_before_tag(l, at) };
    move_to(l, end);
    return true;
}

// Outside tags: a piece of text, or the beginning of a tag.
static bool next_outside(struct lexer *l, struct token *token)
{
    size_t tag = find_tag(l, l->at), raw;
    char kind = tag < l->source.n ? l->source.at[tag + 1] : 0;
    struct str text = kind ? strip_before_tag(l, tag) : str_from_to(l->source, l->at, tag);

    *token = (struct token){ .kind = TOKEN_DATA, .line = l->line, .text = text };
    move_to(l, tag);
    if (!kind) {
        token->kind = text.n ? TOKEN_DATA : TOKEN_END;
        return true;
    }
    if (kind == '#')
        return skip_comment(l, tag);
    if ((raw = word_tag(l, tag, "raw")) != 0) {
        l->pending = TOKEN_DATA;
        l->at = tag;
        return true;
    }
    l->inside = l->pending = kind == '{' ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN;
    tag += 2;
    if (looking_at(l, tag, "-") || looking_at(l, tag, "+"))
        tag++;
    move_to(l, tag);
    return true;
}

static bool digits(const struct lexer *l, size_t *at, const char *set)
{
    size_t start = *at;

    while (*at < l->source.n && l->source.at[*at] &&
           (strchr(set, l->source.at[*at]) ||
            (l->source.at[*at] == '_' && *at > start && *at + 1 < l->source.n && l->source.at[*at + 1] &&
             strchr(set, l->source.at[*at + 1]))))
        ++*at;
    return *at > start;
}

static bool number_in_base(struct lexer *l, struct token *token, size_t from, uint32_t base)
{
    int64_t value = 0;

    for (; from < l->at; from++) {
        char c = l->source.at[from];
        if (c == '_')
            continue;
        int digit = c <= '9' ? c - '0' : (c | 32) - 'a' + 10;
        if (__builtin_mul_overflow(value, (int64_t)base, &value) ||
            __builtin_add_overflow(value, (int64_t)digit, &value))
            return lexer_fail(l, "a whole number that does not fit 64 bits");
    }
    token->kind = TOKEN_INT;
    token->i = value;
    return true;
}

static bool float_number(struct lexer *l, struct token *token, size_t from)
{
    char copy[64];
    size_t n = 0;

    for (; from < l->at && n < sizeof copy; from++)
        if (l->source.at[from] != '_')
            copy[n++] = l->source.at[from];
    token->kind = TOKEN_FLOAT;
    if (n < sizeof copy && str_to_f64((struct str){ copy, n }, &token->f))
        return true;
    return lexer_fail(l, "a number that is too long or too large");
}

static bool next_number(struct lexer *l, struct token *token)
{
    static const char decimal[] = "0123456789", hex[] = "0123456789abcdefABCDEF";
    size_t from = l->at, at;
    char kind = from + 1 < l->source.n && l->source.at[from] == '0' ? l->source.at[from + 1] | 32 : 0;
    uint32_t base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;

    if (base != 10) {
        at = from + 2;
        if (!digits(l, &at, base == 16 ? hex : base == 8 ? "01234567" : "01"))
            return lexer_fail(l, "a number without digits");
        l->at = at;
        return number_in_base(l, token, from + 2, base);
    }
    digits(l, &l->at, decimal);
    bool after_dot = from > 0 && l->source.at[from - 1] == '.', is_float = false;
    at = l->at + 1;
    if (!after_dot && looking_at(l, l->at, ".") && digits(l, &at, decimal)) {
        is_float = true;
        l->at = at;
    }
    if (!after_dot && l->at < l->source.n && (l->source.at[l->at] | 32) == 'e') {
        at = l->at + 1;
        at += at < l->source.n && strchr("+-", l->source.at[at]) && l->source.at[at];
        if (digits(l, &at, decimal)) {
            is_float = true;
            l->at = at;
        }
    }
    return is_float ? float_number(l, token, from) : number_in_base(l, token, from, 10);
}

// \xhh \uhhhh \Uhhhhhhhh and octal; the position is after the backslash. Returns bytes used, 0 on error.
static size_t numeric_escape(struct str s, uint32_t *code)
{
    char kind = s.at[0];
    size_t n_digits = kind == 'x' ? 2 : kind == 'u' ? 4 : kind == 'U' ? 8 : 3;
    uint32_t base = n_digits == 3 ? 8 : 16;
    size_t at = base == 16, end = at + n_digits;

    *code = 0;
    for (; at < end && at < s.n; at++) {
        int c = (unsigned char)s.at[at];
        uint32_t digit = c >= '0' && c <= '9'                 ? (uint32_t)c - '0'
                         : (c | 32) >= 'a' && (c | 32) <= 'f' ? (uint32_t)(c | 32) - 'a' + 10
                                                              : 99;
        if (digit >= base)
            break;
        *code = *code * base + digit;
    }
    return base == 16 && at < end ? 0 : at;
}

// Python's escapes. The result is never longer than the source.
static bool unescape(struct lexer *l, struct str s, struct str *out)
{
    static const char from[] = "nrtabfv\\'\"", to[] = "\n\r\t\a\b\f\v\\'\"";
    char *copy = arena_alloc(l->arena, s.n + 1);
    size_t n = 0;

    if (!copy)
        return err_memory(l->err, "the template");
    for (size_t i = 0; i < s.n; i++) {
        if (s.at[i] != '\\' || i + 1 == s.n) {
            copy[n++] = s.at[i];
            continue;
        }
        char c = s.at[++i];
        const char *simple = c ? strchr(from, c) : NULL;
        uint32_t code;
        if (simple) {
            copy[n++] = to[simple - from];
        } else if (c == '\n') {
            continue;
        } else if (c == 'x' || c == 'u' || c == 'U' || (c >= '0' && c <= '7')) {
            size_t used = numeric_escape(str_from_to(s, i, s.n), &code);
            if (used == 0 || !char_is_valid(code))
                return lexer_fail(l, "a string with a broken \\x, \\u or \\U escape");
            n += char_encode(code, copy + n);
            i += used - 1;
        } else {
            copy[n++] = '\\';
            copy[n++] = c;
        }
    }
    *out = (struct str){ copy, n };
    return true;
}

static bool next_string(struct lexer *l, struct token *token)
{
    char quote = l->source.at[l->at];
    size_t end = l->at + 1;

    while (end < l->source.n && l->source.at[end] != quote)
        end += l->source.at[end] == '\\' ? 2 : 1;
    if (end >= l->source.n)
        return lexer_fail(l, "a string without its closing quote");
    token->kind = TOKEN_STRING;
    bool ok = unescape(l, str_from_to(l->source, l->at + 1, end), &token->text);
    move_to(l, end + 1);
    return ok;
}

static bool track_bracket(struct lexer *l, char c)
{
    const char *open = strchr("([{", c), *close = strchr(")]}", c);

    if (open) {
        if (l->n_brackets == LEXER_MAX_BRACKETS)
            return lexer_fail(l, "brackets are nested too deep");
        l->brackets[l->n_brackets++] = ")]}"[*open == '[' ? 1 : *open == '{' ? 2 : 0];
    } else if (close && (l->n_brackets == 0 || l->brackets[--l->n_brackets] != c)) {
        return err_set(l->err, ERR_INPUT, "template line %u: unexpected '%c'", l->line, c);
    }
    return true;
}

static bool next_operator(struct lexer *l, struct token *token)
{
    static const char *const two[] = { "//", "**", "==", "!=", ">=", "<=" };
    char c = l->source.at[l->at];
    size_t n = 1;

    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (looking_at(l, l->at, two[i]))
            n = 2;
    if (n == 1 && !strchr("+-*/%~()[]{}<>=.:|,;", c)) {
        unsigned byte = (unsigned char)c;
        return err_set(l->err, ERR_INPUT, "template line %u: unexpected character '%c' (0x%02x)", l->line,
                       byte >= 32 && byte < 127 ? c : '?', byte);
    }
    token->kind = TOKEN_OPERATOR;
    token->text = str_from_to(l->source, l->at, l->at + n);
    l->at += n;
    return track_bracket(l, c);
}

static bool next_inside(struct lexer *l, struct token *token)
{
    bool block = l->inside == TOKEN_BLOCK_BEGIN;
    size_t end = l->n_brackets ? 0 : tag_end(l, l->at, block ? "%}" : "}}");

    // A tag's end may be "-%}" with the sign; white space before it is skipped first.
    if (!end) {
        move_to(l, skip_space(l, l->at));
        end = l->n_brackets ? 0 : tag_end(l, l->at, block ? "%}" : "}}");
    }
    *token = (struct token){ .kind = block ? TOKEN_BLOCK_END : TOKEN_VARIABLE_END, .line = l->line };
    if (end) {
        move_to(l, end);
        l->inside = TOKEN_DATA;
        return true;
    }
    if (l->at >= l->source.n)
        return lexer_fail(l, block ? "a tag {% without its end %}" : "an expression {{ without its end }}");
    unsigned char c = (unsigned char)l->source.at[l->at];
    if (c >= '0' && c <= '9')
        return next_number(l, token);
    if (c == '\'' || c == '"')
        return next_string(l, token);
    if (!char_is_name(c))
        return c ? next_operator(l, token) : lexer_fail(l, "a NUL byte");
    size_t start = l->at;
    while (l->at < l->source.n && char_is_name((unsigned char)l->source.at[l->at]))
        l->at++;
    token->kind = TOKEN_NAME;
    token->text = str_from_to(l->source, start, l->at);
    return true;
}

bool lexer_next(struct lexer *l, struct token *token)
{
    while (l->inside == TOKEN_DATA || l->pending) {
        enum lexeme_kind pending = l->pending;
        l->pending = TOKEN_END;
        if (pending == TOKEN_DATA)
            return raw_text(l, word_tag(l, l->at, "raw"), token);
        if (pending) {
            *token = (struct token){ .kind = pending, .line = l->line };
            return true;
        }
        if (!next_outside(l, token))
            return false;
        if (token->kind == TOKEN_END || token->text.n)
            return true;
    }
    return next_inside(l, token);
}
