// prompts.h - from what a request asks to the tokens of its prompts: messages through the template, texts
// through the tokeniser.
#pragma once
#include "server/api/api_request.h"
#include "text/parsers/output_parser.h"
#include "text/tokenizer/tokenizer.h"

struct served_model;

// A conversation as the engine takes it.
struct prompts_conversation {
    struct buf json;            // texts, each ended by NUL: messages, tools, variables
    struct ingot_message *list; // [n]
    size_t n;
    struct ingot_request_options options; // messages, pictures (those of the request) and how to render them
};

struct prompts {
    struct token_ids *at; // [n]
    uint32_t n;
    struct prompts_conversation said; // of a request with pictures: the engine gets it in place of tokens
};

// The prompt of an ask with messages or input, or its prompts. Free in any case.
bool prompts_make(const struct served_model *merver, struct api_request *request, struct prompts *prompts,
                  struct err *err);
void prompts_forget_said(struct prompts *prompts); // the engine has it
void prompts_free(struct prompts *prompts);
// The rendered text of messages; free with buf_free.
bool prompts_render(const struct served_model *merver, struct api_request *request, struct buf *text,
                    struct err *err);
// How this model writes calls (CALLS_NONE when none are offered), and whether it reasons before it answers.
void prompts_style(const struct served_model *merver, const struct api_request *request,
                   enum tool_call_style *style, bool *thinks);
