// tokenize.h - endpoints that tokenize, detokenize, render a template or count tokens: nothing is generated.
#pragma once
#include <stdbool.h>

struct http_exchange;

bool tokenize_text(struct http_exchange *x);
bool tokenize_decode(struct http_exchange *x);
bool tokenize_template(struct http_exchange *x); // renders messages
bool tokenize_count(struct http_exchange *x);    // of Anthropic's messages
bool tokenize_count_response(struct http_exchange *x);
