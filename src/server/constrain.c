// constrain.c - see constrain.h.
//
// root is an answer, calls, or both as alternatives, with a stretch of reasoning before it where the model thinks. Calls are written as
// the model's family writes them (speech.h), each tool's arguments by its own schema.
#include "server/constrain.h"
#include <string.h>
#include "text/schema.h"

static bool calls_are_forced(const struct ask *ask)
{
    return ask->tools && ask->choice >= CHOICE_REQUIRED;
}

bool constrain_opens_calls(const struct ask *ask, enum call_style style)
{
    return style == CALLS_LIST && calls_are_forced(ask);
}

// A rule "call" with each tool that may be called.
static bool write_call(const struct ask *ask, enum call_style style, struct buf *gbnf, struct err *err)
{
    const char *arguments = style == CALLS_NAKED ? "parameters" : "arguments";
    struct buf names = { 0 };
    bool ok = true;
    json_t *tool;
    size_t i;

    json_array_foreach(ask->tools, i, tool)
    {
        json_t *function = json_object_get(tool, "function");
        const char *name = json_string_value(json_object_get(function, "name"));
        char rule[32];
        if (!ok || (ask->choice == CHOICE_NAMED && strcmp(name, ask->tool) != 0))
            continue;
        snprintf(rule, sizeof rule, "tool-%zu", i);
        ok = schema_write(json_object_get(function, "parameters"), rule, gbnf, err) || err_prefix(err, "tools[%zu]", i);
        buf_printf(gbnf, "call-%zu ::= \"{\" ws \"\\\"name\\\":\" gap \"\\\"%s\\\",\" ws \"\\\"%s\\\":\" gap %s ws \"}\"\n", i,
                   name, arguments, rule);
        buf_printf(&names, "%scall-%zu", names.n ? " | " : "", i);
    }
    buf_printf(gbnf, "call ::= %s\n", buf_as_str(&names).at);
    ok = ok && (!names.failed || err_memory(err, "a grammar"));
    buf_free(&names);
    return ok;
}

static bool write_calls(const struct ask *ask, enum call_style style, struct buf *gbnf, struct err *err)
{
    static const char *const forms[][2] = {
        [CALLS_NONE] = { "call", "" },
        [CALLS_TAGS] = { "tagged", " (\"\\n\" tagged)*" },
        [CALLS_LIST] = { "\"[\" call", " (\", \" call)* \"]\"" },
        [CALLS_NAKED] = { "call", " (\"; \" call)*" },
    };

    if (!write_call(ask, style, gbnf, err))
        return false;
    if (style == CALLS_TAGS)
        buf_text(gbnf, "tagged ::= \"<tool_call>\\n\" call \"\\n</tool_call>\"\n");
    if (!ask->one_call)
        return buf_printf(gbnf, "calls ::= %s%s\n", forms[style][0], forms[style][1]);
    return buf_printf(gbnf, "calls ::= %s%s\n", forms[style][0], style == CALLS_LIST ? " \"]\"" : "");
}

bool constrain_answer(const struct ask *ask, const struct constrain_options *o, struct buf *gbnf, struct err *err)
{
    bool format = ask->schema || ask->json_object, forced = calls_are_forced(ask);
    bool calls = forced || (format && ask->tools && ask->choice == CHOICE_AUTO && o->style != CALLS_LIST);

    if (ask->grammar)
        return buf_text(gbnf, ask->grammar) || err_memory(err, "a grammar");
    if (!format && !forced)
        return true;
    schema_write_common(gbnf);
    if (calls && !write_calls(ask, o->style, gbnf, err))
        return false;
    if (ask->schema && !schema_write(ask->schema, "answer", gbnf, err))
        return false;
    if (ask->json_object)
        buf_text(gbnf, "answer ::= object\n");
    buf_text(gbnf, "thinking ::= ([^<] | \"<\" [^/] | \"</\" [^t])*\n");
    buf_printf(gbnf, "root ::= %s(%s)\n",
               o->reasoning_open ? "thinking \"</think>\" [\\n]{0,3} "
               : o->thinks       ? "(\"<think>\" thinking \"</think>\" [\\n]{0,3})? "
                                 : "",
               calls && format ? "answer | calls"
               : calls         ? "calls"
                               : "answer");
    return !gbnf->failed || err_memory(err, "a grammar");
}
