// prompts.h - from what a request asks to the tokens of its prompts: messages through the template, texts through the tokeniser.
#pragma once
#include "server/api_request.h"
#include "text/parsers/output_parser.h"
#include "text/tokenizer/tokenizer.h"

struct server;

// The prompt of an ask with messages or input, or its prompts. Free each, then the array by mem_free.
bool prompts_make(const struct server *server, struct api_request *request, struct token_ids **prompts, uint32_t *n,
                  struct err *err);
// The rendered text of messages; free with buf_free.
bool prompts_render(const struct server *server, struct api_request *request, struct buf *text, struct err *err);
// How this model writes calls (CALLS_NONE when none are offered), and whether it reasons before it answers.
void prompts_style(const struct server *server, const struct api_request *request, enum tool_call_style *style, bool *thinks);
