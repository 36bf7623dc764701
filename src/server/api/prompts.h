// prompts.h - the prompts of a request as tokens: messages rendered by the template, texts tokenized.
#pragma once
#include "server/api/api_request.h"
#include "text/parsers/output_parser.h"
#include "text/tokenizer/tokenizer.h"

struct served_model;

struct prompts {
    struct token_ids *at; // [n]
    uint32_t n;
};

// Makes the prompt of a request with messages or input, or its list of prompts. Free in any case.
bool prompts_make(const struct served_model *merver, struct api_request *request, struct prompts *prompts,
                  struct err *err);
void prompts_free(struct prompts *prompts);
// Sets the pictures of the request, whose places the prompt's tokens have.
void prompts_show_pictures(const struct api_request *request, struct ingot_request_options *options);
// The rendered text of messages; free with buf_free.
bool prompts_render(const struct served_model *merver, struct api_request *request, struct buf *text,
                    struct err *err);
// *style: how this model writes tool calls, CALLS_NONE without tools. *thinks: it may reason before it
// answers. Returns the marks between which it does.
const struct reasoning_marks *prompts_style(const struct served_model *merver,
                                            const struct api_request *request, enum tool_call_style *style,
                                            bool *thinks);
