// tool_call_style.c - see tool_call_style.h.
#include "text/parsers/tool_call_style.h"

static const struct tool_call_family
    tags = { .marks = { "<tool_call>" }, .closers = { "</tool_call>", "</function>" } },
    functions = { .marks = { "<tool_call>", CALL_FUNCTION_MARK },
                  .closers = { "</tool_call>", "</function>" } },
    list = { .marks = { "[TOOL_CALLS]" }, .form = CALL_LIST },
    separated = { .marks = { CALL_BEGIN, CALLS_BEGIN },
                  .closers = { "```", CALL_END, CALLS_END },
                  .form = CALL_NAMED },
    braces = { .marks = { "<|tool_call>" }, .closers = { "<tool_call|>" } },
    python = { .marks = { "<|tool_call_start|>" }, .closers = { "<|tool_call_end|>" }, .form = CALL_PYTHON },
    bars = { .marks = { "<|tool_call|>" }, .closers = { "<|/tool_call|>" }, .form = CALL_LIST },
    capitals = { .marks = { "<TOOLCALL>" }, .closers = { "</TOOLCALL>" }, .form = CALL_LIST },
    lines = { .marks = { "<function_calls>" }, .closers = { "</function_calls>" }, .form = CALL_LINES },
    turns = { .marks = { CALL_TURN_MARK }, .closers = { CALL_TURN_MARK }, .form = CALL_TURN },
    naked = { .form = CALL_NAKED };

const struct tool_call_family *tool_call_family_of(enum tool_call_style style)
{
    static const struct tool_call_family *const families[N_CALL_STYLES] = {
        [CALLS_NONE] = &naked,     [CALLS_TAGS] = &tags,        [CALLS_FUNCTIONS] = &functions,
        [CALLS_KEYS] = &tags,      [CALLS_LIST] = &list,        [CALLS_ARGS] = &list,
        [CALLS_ARGS_ID] = &list,   [CALLS_FENCED] = &separated, [CALLS_SEPARATED] = &separated,
        [CALLS_CHANNELS] = &naked, [CALLS_NAKED] = &naked,      [CALLS_BRACES] = &braces,
        [CALLS_PYTHON] = &python,  [CALLS_BARS] = &bars,        [CALLS_CAPITALS] = &capitals,
        [CALLS_LINES] = &lines,    [CALLS_TURNS] = &turns,
    };

    return families[style];
}

enum tool_call_style tool_call_style_of(struct str chat_template)
{
    static const struct {
        const char *mark, *detail; // detail NULL: the mark alone
        enum tool_call_style style;
    } signs[] = { { "<|channel|>", NULL, CALLS_CHANNELS },
                  { "<|tool_call>", NULL, CALLS_BRACES },
                  { "<|tool_call|>", NULL, CALLS_BARS },
                  { "<|tool_call_start|>", NULL, CALLS_PYTHON },
                  { "<|tool_list_start|>", NULL, CALLS_PYTHON },
                  { "List of tools: [", NULL, CALLS_PYTHON }, // LFM2.5, whose template names no mark
                  { CALL_BEGIN, "```json", CALLS_FENCED },
                  { CALL_BEGIN, NULL, CALLS_SEPARATED },
                  { "[TOOL_CALLS]", "[CALL_ID]", CALLS_ARGS_ID },
                  { "[TOOL_CALLS]", "[ARGS]", CALLS_ARGS },
                  { "[TOOL_CALLS]", NULL, CALLS_LIST },
                  { "<tool_call>", CALL_FUNCTION_MARK, CALLS_FUNCTIONS },
                  { "<tool_call>", "<arg_key>", CALLS_KEYS },
                  { "<tool_call>", NULL, CALLS_TAGS },
                  { "<TOOLCALL>", NULL, CALLS_CAPITALS },
                  { "<function_calls>", NULL, CALLS_LINES },
                  { "<|observation|>", "metadata", CALLS_TURNS },
                  { "<|python_tag|>", NULL, CALLS_NAKED },
                  { "ipython", NULL, CALLS_NAKED },
                  { "func_name1(", NULL, CALLS_NAKED } };

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (str_find(chat_template, str_from(signs[i].mark)) != SIZE_MAX &&
            (!signs[i].detail || str_find(chat_template, str_from(signs[i].detail)) != SIZE_MAX))
            return signs[i].style;
    return CALLS_TAGS;
}
