// tool_call_style.h - the forms in which model families write tool calls, and the marks of each form.
#pragma once
#include "base/str.h"

enum tool_call_style {
    CALLS_NONE,      // no tools were offered: everything is content
    CALLS_TAGS,      // <tool_call>{"name", "arguments"}</tool_call>: Hermes, Qwen2.5, Qwen3
    CALLS_FUNCTIONS, // <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>:
                     // Qwen3-Coder, Qwen3.5
    CALLS_KEYS,      // <tool_call>NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value></tool_call>: GLM-4.5
    CALLS_LIST,      // [TOOL_CALLS][{"name", "arguments"}, ...]: Mistral
    CALLS_ARGS,      // [TOOL_CALLS]NAME[ARGS]{...}: Mistral, later
    CALLS_ARGS_ID,   // [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}: in between
    CALLS_FENCED, // <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, {...} in a fence, <｜tool▁call▁end｜>:
                  // DeepSeek R1, V3
    CALLS_SEPARATED, // <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>: DeepSeek V3.1
    CALLS_NAKED,    // {"name", "parameters"} at the beginning, or [NAME(KEY=VALUE)] in Python: Llama 3.x
    CALLS_CHANNELS, // <|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{...}<|call|>:
                    // gpt-oss; without tools too, since reasoning and answer are told apart by channels
    CALLS_BRACES,   // <|tool_call>call:NAME{key:<|"|>text<|"|>,other:3}<tool_call|>: Gemma 4
    CALLS_PYTHON,   // <|tool_call_start|>[NAME(KEY=VALUE), ...]<|tool_call_end|>: LFM2
    CALLS_BARS, // <|tool_call|>[{"name", "arguments"}, ...]: Granite 3; <|/tool_call|> behind it: Phi-4-mini
    CALLS_CAPITALS, // <TOOLCALL>[{"name", "arguments"}, ...]</TOOLCALL>: Nemotron Nano 2
    CALLS_LINES,    // <function_calls>NAME(KEY=VALUE)</function_calls>, a line for each call: OLMo 3
    CALLS_TURNS,    // NAME, a line break and {...}, each call in a turn of its own: GLM-4-0414
    N_CALL_STYLES
};

// DeepSeek's marks.
#define CALLS_BEGIN "<｜tool▁calls▁begin｜>"
#define CALLS_END   "<｜tool▁calls▁end｜>"
#define CALL_BEGIN  "<｜tool▁call▁begin｜>"
#define CALL_END    "<｜tool▁call▁end｜>"
#define CALL_SEP    "<｜tool▁sep｜>"

#define CALL_FUNCTION_MARK "<function="    // begins a call, and is part of its markup
#define CALL_TURN_MARK     "<|assistant|>" // begins a further turn; the first one's stands in the prompt

// Styles with the same marks form a family.
enum { MAX_CALL_MARKS = 2, MAX_CALL_CLOSERS = 4 };
struct tool_call_family {
    const char *marks[MAX_CALL_MARKS];     // begin calls
    const char *closers[MAX_CALL_CLOSERS]; // may follow a call
    enum {
        CALL_MARKUP, // {...}, a list of these in brackets, or markup
        CALL_LIST,   // {...}, a list of these in brackets, or NAME, a separator and {...}
        CALL_NAMED,  // {...}, or NAME, a separator and {...}
        CALL_NAKED,  // {...} alone, or Python
        CALL_PYTHON, // Python in brackets
        CALL_LINES,  // Python up to the closer, {...} too
        CALL_TURN    // the name of a tool of the request, a line break and {...}
    } form;
};
const struct tool_call_family *tool_call_family_of(enum tool_call_style style);

// The style that this chat template shows; CALLS_TAGS when it shows none.
enum tool_call_style tool_call_style_of(struct str chat_template);
