// constrain_calls.c - the grammar of forced tool calls in the form of the model family, which
// text/parsers/output_parser.h parses.
//
// Arguments follow the tool's schema. In families that mark arguments up, each value has a rule of its own: a
// plain string is any text without the closing mark, anything else is JSON. A schema that this form cannot
// express (limits on a string, references, other keywords) is kept by an object {"name", "arguments"} within
// the same tags, which every parser of tags accepts. Marks that are control tokens are matched by token id.
#include <string.h>
#include "base/buf_json.h"
#include "server/api/constrain.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/schema.h"

struct caller {
    const struct api_request *request;
    const struct constrain_options *options;
    struct buf *gbnf;
    struct err *err;
};

static const struct form {
    const char *begin, *open;
    const char *head; // after the name; NULL: the call is an object with name and arguments
    const char *close, *between, *end;
} forms[N_CALL_STYLES] = {
    [CALLS_NONE] = { "", "", NULL, "", " ", "" },
    [CALLS_TAGS] = { "", "<tool_call>\n", NULL, "\n</tool_call>", "\n", "" },
    [CALLS_FUNCTIONS] = { "", "<tool_call>\n", NULL, "\n</tool_call>", "\n", "" },
    [CALLS_KEYS] = { "", "<tool_call>", NULL, "</tool_call>", "\n", "" },
    [CALLS_LIST] = { "[TOOL_CALLS][", "", NULL, "", ", ", "]" },
    [CALLS_ARGS] = { "", "[TOOL_CALLS]", "[ARGS]", "", "", "" },
    [CALLS_ARGS_ID] = { "", "[TOOL_CALLS]", "[CALL_ID]", "", "", "" },
    [CALLS_FENCED] = { CALLS_BEGIN, CALL_BEGIN "function" CALL_SEP, "\n```json\n", "\n```" CALL_END, "\n",
                       CALLS_END },
    [CALLS_SEPARATED] = { CALLS_BEGIN, CALL_BEGIN, CALL_SEP, CALL_END, "", CALLS_END },
    [CALLS_NAKED] = { "", "", NULL, "", "; ", "" },
    [CALLS_BRACES] = { "", "<|tool_call>call:", "", "<tool_call|>", "", "" },
    [CALLS_PYTHON] = { "<|tool_call_start|>[", "", NULL, "", ", ", "]<|tool_call_end|>" },
    [CALLS_BARS] = { "<|tool_call|>[", "", NULL, "", ", ", "]" },
    [CALLS_CAPITALS] = { "<TOOLCALL>[", "", NULL, "", ", ", "]</TOOLCALL>" },
    [CALLS_LINES] = { "<function_calls>", "", NULL, "", "\n", "</function_calls>" },
    [CALLS_TURNS] = { "", "", "\n", "", CALL_TURN_MARK, "" },
    [CALLS_CHANNELS] = { "", "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "",
                         "<|call|><|start|>assistant", "" },
};

void constrain_example(enum tool_call_style style, struct buf *text)
{
    const struct form *form = &forms[style];

    buf_printf(text, "%s%s", form->begin, form->open);
    if (style == CALLS_FUNCTIONS)
        buf_text(text, "<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>");
    else if (style == CALLS_KEYS)
        buf_text(text, "NAME\n<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n");
    else if (form->head)
        buf_printf(text, "NAME%s%s{...}", form->head, style == CALLS_ARGS_ID ? "ID[ARGS]" : "");
    else
        buf_printf(text, "{\"name\": \"...\", \"%s\": {...}}",
                   style == CALLS_NAKED ? "parameters" : "arguments");
    buf_printf(text, "%s%s", form->close, form->end);
}

// ---- calls that were made

static void write_python(const json_t *value, struct buf *text)
{
    const char *key, *between = "";
    json_t *item;
    size_t i;

    if (json_is_object(value)) {
        buf_text(text, "{");
        json_object_foreach((json_t *)(uintptr_t)value, key, item)
        {
            json_t *quoted = json_string(key);
            buf_text(text, between);
            buf_json(text, quoted, JSON_ENCODE_ANY);
            buf_text(text, ": ");
            write_python(item, text);
            json_decref(quoted);
            between = ", ";
        }
        buf_text(text, "}");
    } else if (json_is_array(value)) {
        buf_text(text, "[");
        json_array_foreach(value, i, item)
        {
            buf_text(text, i ? ", " : "");
            write_python(item, text);
        }
        buf_text(text, "]");
    } else if (json_is_boolean(value) || json_is_null(value)) {
        buf_text(text, json_is_true(value) ? "True" : json_is_false(value) ? "False" : "None");
    } else {
        buf_json(text, value, JSON_ENCODE_ANY);
    }
}

static void write_python_call(const char *name, json_t *arguments, struct buf *text)
{
    const char *key, *between = "";
    json_t *value;

    buf_printf(text, "%s(", name);
    json_object_foreach(arguments, key, value)
    {
        buf_printf(text, "%s%s=", between, key);
        write_python(value, text);
        between = ", ";
    }
    buf_text(text, ")");
}

static void write_name(json_t *name, const char *arguments, struct buf *text)
{
    buf_text(text, "{\"name\": ");
    buf_json(text, name, JSON_ENCODE_ANY);
    buf_printf(text, ", \"%s\": ", arguments);
}

static void write_made_call(enum tool_call_style style, json_t *call, struct buf *text)
{
    json_t *function = json_object_get(call, "function"), *name = json_object_get(function, "name"),
           *given = json_object_get(function, "arguments");
    const char *words = json_string_value(given), *head = forms[style].head,
               *id = json_string_value(json_object_get(call, "id"));
    json_t *arguments = words ? json_loads(words, 0, NULL) : json_incref(given);

    if ((style == CALLS_PYTHON || style == CALLS_LINES) && json_is_object(arguments)) {
        write_python_call(json_string_value(name), arguments, text);
        json_decref(arguments);
        return;
    }
    if (head)
        buf_printf(text, "%s%s", json_string_value(name), head);
    else
        write_name(name, style == CALLS_NAKED ? "parameters" : "arguments", text);
    if (style == CALLS_ARGS_ID)
        buf_printf(text, "%s[ARGS]", id ? id : "");
    if (words)
        buf_text(text, words);
    else
        buf_json(text, given, JSON_ENCODE_ANY);
    buf_text(text, head ? "" : "}");
    json_decref(arguments);
}

void constrain_calls_text(enum tool_call_style style, json_t *calls, struct buf *text)
{
    const struct form *form = &forms[style];
    json_t *call;
    size_t i;

    buf_text(text, form->begin);
    json_array_foreach(calls, i, call)
    {
        buf_printf(text, "%s%s", i ? form->between : "", form->open);
        write_made_call(style, call, text);
        buf_text(text, form->close);
    }
    buf_text(text, form->end);
}

// ---- marks

static const char *const marks[] = {
    "<tool_call>",       "</tool_call>", "[TOOL_CALLS]", "[CALL_ID]",        "[ARGS]",
    "<arg_key>",         "</arg_key>",   "<arg_value>",  "</arg_value>",     CALLS_BEGIN,
    CALLS_END,           CALL_BEGIN,     CALL_END,       CALL_SEP,           "</think>",
    "<|channel|>",       "<|message|>",  "<|start|>",    "<|end|>",          "<|call|>",
    "<|constrain|>",     "[THINK]",      "[/THINK]",     "<|channel>",       "<channel|>",
    "<|tool_call>",      "<tool_call|>", "<|\"|>",       "<|tool_call|>",    "<|tool_call_start|>",
    "<|tool_call_end|>", "<TOOLCALL>",   "</TOOLCALL>",  "<function_calls>", "</function_calls>",
    CALL_TURN_MARK
};

static const char *first_mark(struct str text, size_t *at)
{
    const char *mark = NULL;

    *at = text.n;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        size_t found = str_find(text, str_from(marks[i]));
        if (found < *at) {
            *at = found;
            mark = marks[i];
        }
    }
    return mark;
}

void constrain_text(const struct ingot_engine *engine, const char *words, struct buf *gbnf)
{
    struct str text = str_from(words);
    size_t at;

    while (text.n > 0) {
        const char *mark = first_mark(text, &at);
        int64_t token = mark && engine ? ingot_token_find(engine, mark, strlen(mark)) : -1;
        struct ingot_token_info info;
        if (at > 0)
            gbnf_literal(gbnf, str_from_to(text, 0, at));
        if (token >= 0 && ingot_token_info(engine, (uint32_t)token, &info) &&
            info.kind == INGOT_TOKEN_CONTROL)
            buf_printf(gbnf, " <[%u]>", (uint32_t)token);
        else if (mark)
            gbnf_literal(gbnf, str_from(mark));
        buf_text(gbnf, " ");
        text = str_from_to(text, at + (mark ? strlen(mark) : 0), text.n);
    }
}

void constrain_without(const char *rule, const char *mark, struct buf *gbnf)
{
    size_t n = strlen(mark);
    const char *in_class = *mark == '[' ? "\\[" : "<";

    CHECK(*mark == '<' || *mark == '[');
    buf_printf(gbnf, "%s ::= ([^%s] %s | \"%c\" %s-1)?\n", rule, in_class, rule, *mark, rule);
    // Rule i: the first i characters of the mark have been read.
    for (size_t i = 1; i < n; i++) {
        if (i + 1 < n)
            buf_printf(gbnf, "%s-%zu ::= (\"%c\" %s-%zu | \"%c\" %s-1 | [^%s%c] %s)?\n", rule, i, mark[i],
                       rule, i + 1, *mark, rule, in_class, mark[i], rule);
        else
            buf_printf(gbnf, "%s-%zu ::= (\"%c\" %s-1 | [^%s%s%c] %s)?\n", rule, i, *mark, rule, in_class,
                       mark[i] == ']' ? "\\" : "", mark[i], rule);
    }
}

// ---- arguments in markup

static bool only_keys(const json_t *schema, const char *const *known)
{
    void *at = json_object_iter((json_t *)(uintptr_t)schema);

    for (; at; at = json_object_iter_next((json_t *)(uintptr_t)schema, at)) {
        size_t i = 0;
        while (known[i] && strcmp(known[i], json_object_iter_key(at)) != 0)
            i++;
        if (!known[i])
            return false;
    }
    return json_is_object(schema);
}

static bool type_is(const json_t *schema, const char *type)
{
    const char *name = json_string_value(json_object_get(schema, "type"));
    return name && !strcmp(name, type);
}

static bool is_plain_string(const json_t *schema)
{
    static const char *const known[] = {
        "type", "title", "description", "default", "examples", "enum", NULL
    };
    const json_t *values = json_object_get(schema, "enum");

    for (size_t i = 0; i < json_array_size(values); i++)
        if (!json_is_string(json_array_get(values, i)) || !*json_string_value(json_array_get(values, i)) ||
            strpbrk(json_string_value(json_array_get(values, i)), "<\n"))
            return false;
    return type_is(schema, "string") && only_keys(schema, known) && (!values || json_array_size(values) > 0);
}

// True if the parser takes this value as JSON: every type but string.
static bool is_json_value(const json_t *schema)
{
    static const char *const types[] = { "integer", "number", "boolean", "array", "object", "null" };

    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (type_is(schema, types[i]))
            return true;
    return false;
}

static bool can_be_marked_up(const json_t *parameters)
{
    static const char *const known[] = { "type",       "title",    "description",
                                         "properties", "required", "additionalProperties",
                                         "$schema",    "strict",   NULL };
    const json_t *properties = json_object_get(parameters, "properties"),
                 *required = json_object_get(parameters, "required");
    json_t *value;
    const char *name;

    if (!only_keys(parameters, known) || !type_is(parameters, "object") || !json_is_object(properties) ||
        json_is_object(json_object_get(parameters, "additionalProperties")))
        return false;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_is_string(json_array_get(required, i)) ||
            !json_object_get(properties, json_string_value(json_array_get(required, i))))
            return false;
    json_object_foreach((json_t *)(uintptr_t)properties, name, value)
    {
        if (!*name || strpbrk(name, "<>\n") || strlen(name) > 100 ||
            (!is_plain_string(value) && !is_json_value(value)))
            return false;
    }
    return true;
}

static bool is_required(const json_t *parameters, const char *name)
{
    const json_t *required = json_object_get(parameters, "required");

    for (size_t i = 0; i < json_array_size(required); i++)
        if (!strcmp(json_string_value(json_array_get(required, i)), name))
            return true;
    return false;
}

static bool write_value(struct caller *c, json_t *schema, const char *rule, struct buf *call)
{
    json_t *values = json_object_get(schema, "enum"), *value;
    size_t i;

    if (!type_is(schema, "string"))
        return buf_text(call, rule) && schema_write(schema, rule, c->gbnf, c->err);
    if (!values)
        return buf_text(call, "marked");
    json_array_foreach(values, i, value)
    {
        buf_text(call, i ? " | " : "(");
        gbnf_literal(call, str_from(json_string_value(value)));
    }
    return buf_text(call, ")");
}

static bool write_marked_up(struct caller *c, json_t *function, size_t index, struct buf *call)
{
    bool keys = c->options->style == CALLS_KEYS, ok = true;
    const struct ingot_engine *engine = c->options->engine;
    json_t *parameters = json_object_get(function, "parameters"), *schema;
    const char *name;
    char text[256], rule[48];
    size_t i = 0;

    snprintf(text, sizeof text, keys ? "%s\n" : "<function=%s>\n",
             json_string_value(json_object_get(function, "name")));
    constrain_text(engine, text, call);
    json_object_foreach(json_object_get(parameters, "properties"), name, schema)
    {
        bool required = is_required(parameters, name);
        snprintf(rule, sizeof rule, "value-%zu-%zu", index, i++);
        snprintf(text, sizeof text, keys ? "<arg_key>%s</arg_key>\n<arg_value>" : "<parameter=%s>\n", name);
        buf_text(call, required ? "" : "(");
        constrain_text(engine, text, call);
        ok = ok && (write_value(c, schema, rule, call) || err_prefix(c->err, "tools[%zu], %s", index, name));
        buf_text(call, " ");
        constrain_text(engine, keys ? "</arg_value>\n" : "\n</parameter>\n", call);
        buf_text(call, required ? "" : ")? ");
    }
    if (!keys)
        constrain_text(engine, "</function>", call);
    return ok;
}

// ---- calls

static bool write_call(struct caller *c, json_t *function, size_t i, struct buf *call)
{
    enum tool_call_style style = c->options->style;
    const char *name = json_string_value(json_object_get(function, "name")), *head = forms[style].head;
    char rule[32];

    if ((style == CALLS_FUNCTIONS || style == CALLS_KEYS) &&
        can_be_marked_up(json_object_get(function, "parameters")))
        return write_marked_up(c, function, i, call);
    snprintf(rule, sizeof rule, "tool-%zu", i);
    if (head) {
        constrain_text(c->options->engine, name, call);
        constrain_text(c->options->engine, head, call);
        if (style == CALLS_ARGS_ID) {
            buf_text(call, "[a-zA-Z0-9]{9} ");
            constrain_text(c->options->engine, "[ARGS]", call);
        }
        buf_text(call, rule);
    } else {
        buf_printf(call, "\"{\" ws \"\\\"name\\\":\" gap \"\\\"%s\\\",\" ws \"\\\"%s\\\":\" gap %s ws \"}\"",
                   name, style == CALLS_NAKED ? "parameters" : "arguments", rule);
    }
    return schema_write(json_object_get(function, "parameters"), rule, c->gbnf, c->err) ||
           err_prefix(c->err, "tools[%zu]", i);
}

static bool write_one(struct caller *c, struct buf *all)
{
    json_t *tool;
    size_t i;

    json_array_foreach(c->request->tools, i, tool)
    {
        json_t *function = json_object_get(tool, "function");
        struct buf call = { 0 };
        if (c->request->choice == CHOICE_NAMED &&
            strcmp(json_string_value(json_object_get(function, "name")), c->request->tool) != 0)
            continue;
        bool ok = write_call(c, function, i, &call);
        buf_printf(c->gbnf, "call-%zu ::= %s\n", i, buf_as_str(&call).at);
        buf_printf(all, "%scall-%zu", all->n ? " | " : "", i);
        all->failed |= call.failed;
        buf_free(&call);
        if (!ok)
            return false;
    }
    return true;
}

bool constrain_calls(const struct api_request *request, const struct constrain_options *o, struct buf *gbnf,
                     struct err *err)
{
    const struct form *form = &forms[o->style];
    struct caller c = { request, o, gbnf, err };
    struct buf all = { 0 };
    bool ok = write_one(&c, &all) && (!all.failed || err_memory(err, "a grammar"));

    constrain_without("marked", o->style == CALLS_KEYS ? "</arg_value>" : "</parameter>", gbnf);
    buf_text(gbnf, "call ::= ");
    constrain_text(o->engine, form->open, gbnf);
    buf_printf(gbnf, "(%s) ", buf_as_str(&all).at);
    constrain_text(o->engine, form->close, gbnf);
    buf_text(gbnf, "\ncalls ::= ");
    constrain_text(o->engine, form->begin, gbnf);
    buf_text(gbnf, "call ");
    if (!request->one_call) {
        buf_text(gbnf, "(");
        constrain_text(o->engine, form->between, gbnf);
        buf_text(gbnf, "call)* ");
    }
    constrain_text(o->engine, form->end, gbnf);
    buf_text(gbnf, "\n");
    buf_free(&all);
    return ok;
}
