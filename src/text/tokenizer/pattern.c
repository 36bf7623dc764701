// pattern.c - see pattern.h.
//
// The published patterns run in linear time, except two that are replaced when the text of the pattern
// matches exactly. The step and heap limits apply to all others.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/pattern.h"
#include <pcre2.h>
#include "base/mem.h"

enum {
    MATCH_STEPS_MAX = 20000000,
    HEAP_KIB_MAX = 65536,
    JIT_STACK_MAX = 1 << 20,
    PATTERN_BYTES_MAX = 1 << 16
};

struct pattern {
    pcre2_code *code;
};

struct pattern_scratch {
    pcre2_match_data *data;
    pcre2_match_context *limits;
    pcre2_jit_stack *stack;
};

static void *regex_alloc(PCRE2_SIZE bytes, void *unused)
{
    (void)unused;
    return mem_alloc(bytes);
}

static void regex_free(void *memory, void *unused)
{
    (void)unused;
    mem_free(memory);
}

// Oniguruma's classes, which follow Unicode's properties where PCRE2 follows Perl.
static const char SPACE[] = "\\t-\\r\\x{85}\\p{Z}";
static const char WORD[] = "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}";

static bool refuse(struct err *err, struct str regex, size_t at, const char *what)
{
    return err_set(err, ERR_UNSUPPORTED, "pattern '%.*s': %s at byte %zu is not supported", STR_ARG(regex),
                   what, at);
}

// \p{..} and \x{..} whole, others as two bytes; returns the index after it.
static size_t copy_escape(struct buf *out, struct str regex, size_t i)
{
    size_t end = i + 2;
    if (end < regex.n && regex.at[end] == '{' && strchr("pPx", regex.at[i + 1])) {
        const char *brace = memchr(regex.at + end, '}', regex.n - end);
        end = brace ? (size_t)(brace - regex.at) + 1 : regex.n;
    }
    buf_append(out, regex.at + i, end - i);
    return end;
}

// One backslash sequence starting at i; returns the index after it, or 0 after an error.
static size_t translate_escape(struct buf *out, struct str regex, size_t i, bool in_class, struct err *err)
{
    char c = i + 1 < regex.n ? regex.at[i + 1] : 0;
    const char *set = c == 's' || c == 'S' ? SPACE : WORD;

    if (c == 's' || c == 'w')
        buf_printf(out, in_class ? "%s" : "[%s]", set);
    else if ((c == 'S' || c == 'W') && !in_class)
        buf_printf(out, "[^%s]", set);
    else if (c == 'v')
        buf_text(out, "\\x0b");
    else if (c && (strchr("dDpPnrtfbBAzZx0", c) ||
                   (c > 0 && c < 127 && !((c | 32) >= 'a' && (c | 32) <= 'z') && !(c >= '0' && c <= '9'))))
        return copy_escape(out, regex, i);
    else
        return refuse(err, regex, i, "this escape"), 0;
    return i + 2;
}

static size_t translate_class_byte(struct buf *out, struct str regex, size_t i, struct err *err)
{
    char c = regex.at[i];
    if (c == '[')
        return refuse(err, regex, i, "a class inside a class"), 0;
    if (c == '&' && i + 1 < regex.n && regex.at[i + 1] == '&')
        return refuse(err, regex, i, "an intersection of classes"), 0;
    buf_append(out, &c, 1);
    return i + 1;
}

// "[", "[^" and a "]" right behind, which is itself; returns the index after it.
static size_t open_class(struct buf *out, struct str regex, size_t i)
{
    buf_append(out, "[", 1);
    i++;
    if (i < regex.n && regex.at[i] == '^')
        buf_append(out, &regex.at[i++], 1);
    if (i < regex.n && regex.at[i] == ']') {
        buf_append(out, "\\]", 2);
        i++;
    }
    return i;
}

static size_t translate_byte(struct buf *out, struct str regex, size_t i, struct err *err)
{
    char c = regex.at[i], next = i + 1 < regex.n ? regex.at[i + 1] : 0;
    if (c == '(' && next == '*')
        return refuse(err, regex, i, "a verb"), 0;
    if (c == '}' && next == '+') // PCRE2 reads it as possessive, Oniguruma as a second repeat
        return refuse(err, regex, i, "a repeated repeat"), 0;
    buf_append(out, &c, 1);
    return i + 1;
}

static bool translate(struct buf *out, struct str regex, struct err *err)
{
    bool in_class = false;

    // Trailing space, in DeepSeek's list only, after the split at line ends. The original is quadratic on a
    // long run of spaces that is not trailing; (*SKIP) continues after the run.
    if (str_is(regex, "\\s+$"))
        return buf_printf(out, "[%s]++$|[%s]++(*SKIP)(*FAIL)", SPACE, SPACE);
    for (size_t i = 0; i < regex.n;) {
        char c = regex.at[i];
        if (c == '\\')
            i = translate_escape(out, regex, i, in_class, err);
        else if (in_class && c != ']')
            i = translate_class_byte(out, regex, i, err);
        else if (c == '[')
            i = open_class(out, regex, i);
        else
            i = translate_byte(out, regex, i, err);
        if (i == 0)
            return false;
        in_class = c == '[' || (in_class && c != ']');
    }
    return out->failed ? err_memory(err, "a pattern") : true;
}

static bool compile(struct pattern **p, struct str text, uint32_t options, struct err *err)
{
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_general_context *memory = pcre2_general_context_create(regex_alloc, regex_free, NULL);
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;

    *p = mem_alloc(sizeof **p);
    if (*p && context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        (*p)->code = pcre2_compile((PCRE2_SPTR)text.at, text.n, options | PCRE2_UTF, &code, &at, context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    if (*p && (*p)->code) {
        // JIT code reads whole vectors beyond the end of the text, which valgrind reports. Without JIT the
        // interpreter gives the same matches.
#if !defined(INGOT_VALGRIND)
        pcre2_jit_compile((*p)->code, PCRE2_JIT_COMPLETE);
#endif
        return true;
    }
    pattern_free(*p);
    *p = NULL;
    if (code == 0 || code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)
        return err_memory(err, "a pattern");
    char why[160] = "";
    pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why);
    return err_set(err, ERR_INPUT, "pattern '%.*s': %s (at byte %zu)", STR_ARG(text), why, at);
}

bool pattern_compile(struct pattern **p, struct str regex, struct err *err)
{
    struct buf text = { 0 };

    *p = NULL;
    if (regex.n == 0 || regex.n > PATTERN_BYTES_MAX)
        return err_set(err, ERR_INPUT, "a pattern of %zu bytes: expected 1 to %d", regex.n,
                       PATTERN_BYTES_MAX);
    bool ok = translate(&text, regex, err) && compile(p, buf_as_str(&text), PCRE2_UCP | PCRE2_MULTILINE, err);
    buf_free(&text);
    return ok;
}

bool pattern_compile_literal(struct pattern **p, struct str text, struct err *err)
{
    *p = NULL;
    if (text.n == 0 || text.n > PATTERN_BYTES_MAX)
        return err_set(err, ERR_INPUT, "a literal pattern of %zu bytes: expected 1 to %d", text.n,
                       PATTERN_BYTES_MAX);
    return compile(p, text, PCRE2_LITERAL, err);
}

void pattern_free(struct pattern *p)
{
    if (p)
        pcre2_code_free(p->code);
    mem_free(p);
}

struct pattern_scratch *pattern_scratch_create(void)
{
    struct pattern_scratch *s = mem_alloc(sizeof *s);
    pcre2_general_context *memory = pcre2_general_context_create(regex_alloc, regex_free, NULL);

    if (s && memory) {
        s->data = pcre2_match_data_create(1, memory);
        s->limits = pcre2_match_context_create(memory);
        s->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_MAX, memory);
    }
    pcre2_general_context_free(memory);
    if (!s || !s->data || !s->limits) {
        pattern_scratch_free(s);
        return NULL;
    }
    if (s->stack)
        pcre2_jit_stack_assign(s->limits, NULL, s->stack);
    pcre2_set_match_limit(s->limits, MATCH_STEPS_MAX);
    pcre2_set_heap_limit(s->limits, HEAP_KIB_MAX);
    return s;
}

void pattern_scratch_free(struct pattern_scratch *s)
{
    if (!s)
        return;
    pcre2_match_data_free(s->data);
    pcre2_match_context_free(s->limits);
    pcre2_jit_stack_free(s->stack);
    mem_free(s);
}

bool pattern_next(const struct pattern *p, struct pattern_scratch *scratch, struct str text, size_t *from,
                  size_t *to, struct err *err)
{
    int rc = pcre2_match(p->code, (PCRE2_SPTR)text.at, text.n, *from, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                         scratch->data, scratch->limits);
    if (rc == PCRE2_ERROR_NOMATCH) {
        *from = *to = text.n;
        return true;
    }
    if (rc == PCRE2_ERROR_NOMEMORY)
        return err_memory(err, "matching a pattern");
    if (rc < 0) {
        char why[160] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return err_set(err, ERR_LIMIT, "the tokenizer's pattern gave up at byte %zu of %zu of the text: %s",
                       *from, text.n, why);
    }
    const PCRE2_SIZE *place = pcre2_get_ovector_pointer(scratch->data);
    *from = place[0];
    *to = place[1];
    return true;
}
