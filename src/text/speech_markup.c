// speech_markup.c - see speech_markup.h.
#include "text/speech_markup.h"
#include <jansson.h>

static struct str trimmed(struct str text, const char *blanks)
{
    while (text.n && strchr(blanks, text.at[0]))
        text = str_from_to(text, 1, text.n);
    while (text.n && strchr(blanks, text.at[text.n - 1]))
        text.n--;
    return text;
}

// Takes the text up to the mark, and the mark. False: there is no such mark.
static bool take_until(struct str *from, const char *mark, struct str *text)
{
    size_t at = str_find(*from, str_from(mark));

    if (at == SIZE_MAX)
        return false;
    *text = str_from_to(*from, 0, at);
    *from = str_from_to(*from, at + strlen(mark), from->n);
    return true;
}

// The value of an argument: markup puts a line's end after and before it.
static json_t *value_of(struct str text)
{
    json_t *value;

    if (text.n && text.at[0] == '\n')
        text = str_from_to(text, 1, text.n);
    if (text.n && text.at[text.n - 1] == '\n')
        text.n--;
    value = json_loadb(text.at, text.n, JSON_DECODE_ANY, NULL);
    if (value && !json_is_string(value))
        return value;
    json_decref(value);
    return json_stringn(text.at, text.n);
}

static bool add_argument(json_t *arguments, struct str key, struct str value)
{
    char name[128];

    key = trimmed(key, " \n\t\r");
    if (key.n == 0 || key.n >= sizeof name || memchr(key.at, 0, key.n))
        return false;
    memcpy(name, key.at, key.n);
    name[key.n] = 0;
    return json_object_set_new(arguments, name, value_of(value)) == 0;
}

static int append(const char *bytes, size_t n, void *arg)
{
    return buf_append(arg, bytes, n) ? 0 : -1;
}

static bool read_arguments(struct str body, bool functions, json_t *arguments)
{
    const char *open = functions ? "<parameter=" : "<arg_key>", *between = functions ? ">" : "</arg_key>";
    const char *close = functions ? "</parameter>" : "</arg_value>";
    struct str skipped, key, value;

    while (take_until(&body, open, &skipped)) {
        if (!take_until(&body, between, &key) || (!functions && !take_until(&body, "<arg_value>", &skipped)) ||
            !take_until(&body, close, &value) || !add_argument(arguments, key, value))
            return false;
    }
    return true;
}

bool speech_read_markup(struct str body, struct buf *name, struct buf *arguments)
{
    struct str rest = body, skipped, called;
    bool functions = take_until(&rest, "<function=", &skipped);
    size_t end = functions ? str_find(rest, STR(">")) : str_find(body, STR("<arg_key>"));

    if (!functions)
        rest = body;
    end = end == SIZE_MAX && !functions ? rest.n : end;
    if (end == SIZE_MAX)
        return false;
    called = trimmed(str_from_to(rest, 0, end), " \n\t\r\"");
    if (called.n == 0 || called.n > 64 || strcspn(called.at, " \n<>{}\"") < called.n)
        return false;
    json_t *object = json_object();
    bool ok = object && read_arguments(str_from_to(rest, end, rest.n), functions, object) && buf_str(name, called) &&
              json_dump_callback(object, append, arguments, 0) == 0;
    json_decref(object);
    return ok;
}
