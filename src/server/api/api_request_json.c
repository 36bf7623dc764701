// api_request_json.c - the JSON text of a request: parsed as one object without duplicate names, with errors
// that say what to correct.
//
// A JavaScript string may hold half of a surrogate pair, for example when a text was cut in the middle of an
// emoji, and JSON.stringify writes it as "\ud83d". It is no character, so it is read as U+FFFD, which is what
// browsers send in UTF-8.
#include "base/mem.h"
#include "server/api/api_request.h"
#include "server/api/api_request_scan.h"
#include "text/json_memory.h"

enum { ESCAPE_BYTES = 6, NEAR_BYTES = 24 }; // of "\ud83d"

// The code unit of an escape "\uXXXX" at the front of text; -1: there is none.
static int escape_unit(struct str text)
{
    int unit = 0;

    if (text.n < ESCAPE_BYTES || text.at[0] != '\\' || text.at[1] != 'u')
        return -1;
    for (int i = 2; i < ESCAPE_BYTES; i++) {
        char c = text.at[i], lower = (char)(c | 0x20);
        int digit = c >= '0' && c <= '9' ? c - '0' : lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
        if (digit < 0)
            return -1;
        unit = unit * 16 + digit;
    }
    return unit;
}

static bool is_high(int unit)
{
    return unit >= 0xd800 && unit < 0xdc00;
}

static bool is_low(int unit)
{
    return unit >= 0xdc00 && unit < 0xe000;
}

// Overwrites unpaired surrogates with U+FFFD. False: there are none.
static bool mend_surrogates(char *text, size_t n)
{
    bool mended = false;

    for (size_t i = 0; i < n; i++) {
        if (text[i] != '\\')
            continue;
        const struct str rest = { text + i, n - i };
        int unit = escape_unit(rest),
            next = unit < 0 ? -1 : escape_unit(str_from_to(rest, ESCAPE_BYTES, rest.n));
        bool pair = is_high(unit) && is_low(next);
        if (!pair && (is_high(unit) || is_low(unit))) {
            memcpy(text + i, "\\ufffd", ESCAPE_BYTES);
            mended = true;
        }
        i += pair ? 2 * ESCAPE_BYTES - 1 : 1;
    }
    return mended;
}

static json_t *parse(struct str body, json_error_t *where)
{
    return json_memory_read(body, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, where);
}

static json_t *parse_mended(struct str body, json_error_t *where)
{
    json_t *value = NULL;
    char *copy = mem_alloc(body.n);

    if (!copy)
        return NULL;
    memcpy(copy, body.at, body.n);
    if (mend_surrogates(copy, body.n))
        value = parse((struct str){ copy, body.n }, where);
    mem_free(copy);
    return value;
}

static const char *fault_of(const json_error_t *where)
{
    switch (json_error_code(where)) {
    case json_error_premature_end_of_input:
        return "it ends too early";
    case json_error_end_of_input_expected:
        return "something follows its end";
    case json_error_invalid_utf8:
        return "it is not UTF-8";
    case json_error_null_character:
    case json_error_null_byte_in_key:
        return "a text holds a NUL character";
    case json_error_duplicate_key:
        return "a name is there twice in one object";
    case json_error_numeric_overflow:
        return "a number is too large";
    case json_error_stack_overflow:
        return "it is nested too deeply";
    default:
        return "this is no valid JSON";
    }
}

// The error quotes the text before the fault, as far as it is printable.
static void describe_fault(struct str body, const json_error_t *where, struct err *err)
{
    size_t end = where->position > 0 ? (size_t)where->position : 0, n = 0;
    char near[NEAR_BYTES + 1];

    end = end < body.n ? end : body.n;
    for (size_t i = end > NEAR_BYTES ? end - NEAR_BYTES : 0; i < end; i++)
        near[n++] = body.at[i] >= 0x20 && body.at[i] < 0x7f ? body.at[i] : '?';
    near[n] = 0;
    err_set(err, ERR_INPUT, "the body is not JSON: %s, at byte %zu (line %d) behind '%s'", fault_of(where),
            end, where->line, near);
}

static json_t *parse_or_describe(struct str body, struct err *err)
{
    json_error_t where, again;
    json_t *value = parse(body, &where);
    bool no_memory = !value && json_memory_failed();

    if (!value && !no_memory && str_find(body, STR("\\u")) != SIZE_MAX)
        value = parse_mended(body, &again);
    if (!value && (no_memory || json_memory_failed()))
        err_memory(err, "the body");
    else if (!value)
        describe_fault(body, &where, err);
    return value;
}

static json_t *parse_scanned(struct str body, const struct api_request_names *names, struct err *err)
{
    struct buf room = { 0 };
    json_t *value = NULL;

    if (body.n == 0)
        err_set(err, ERR_INPUT, "the body is empty; want a JSON object");
    else if ((body = api_request_scan(body, names, &room, err)).n > 0)
        value = parse_or_describe(body, err);
    buf_free(&room);
    return value;
}

json_t *api_request_parse(struct str body, struct err *err)
{
    return parse_scanned(body, NULL, err);
}

bool api_request_read_text(struct api_request *request, enum dialect dialect, struct str body,
                           const struct server_limits *limits, struct err *err)
{
    const struct api_request_names names = { api_request_knows, dialect };
    json_t *json = parse_scanned(body, &names, err);
    return json && api_request_read(request, dialect, json, limits, err);
}
