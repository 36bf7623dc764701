// reasoning_marks.c - see reasoning_marks.h.
#include "text/reasoning_marks.h"

static const struct reasoning_marks think = { "<think>",        "</think>", "<think>\n",
                                              "\n</think>\n\n", NULL,       false },
                                    // Qwen3.5 and Nemotron 3 call in the middle of a thought
    think_or_call = { "<think>", "</think>", "<think>\n", "\n</think>\n\n", "<tool_call>", false },
                                    upper = { "[THINK]",  "[/THINK]",     "[THINK]",
                                              "[/THINK]", "[TOOL_CALLS]", true }, // Magistral, Ministral 3
    channel = {
        "<|channel>thought", "<channel|>", "<|channel>thought\n", "\n<channel|>", "<|tool_call>", true
    }; // Gemma 4

static bool has(struct str text, const char *part)
{
    return str_find(text, str_from(part)) != SIZE_MAX;
}

const struct reasoning_marks *reasoning_marks_of(struct str chat_template, bool *shown)
{
    bool thinks = has(chat_template, "<think>") || has(chat_template, "</think>");
    const struct reasoning_marks *marks =
        has(chat_template, "<|channel>")                                        ? &channel
        : has(chat_template, "[THINK]")                                         ? &upper
        : has(chat_template, "<tool_call>") && has(chat_template, "<function=") ? &think_or_call
                                                                                : &think;

    if (shown)
        *shown = thinks || marks->special;
    return marks;
}
