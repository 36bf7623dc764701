// texts.h - texts and tokens at their paths: nothing is generated.
#pragma once
#include <stdbool.h>

struct http_exchange;

bool texts_tokenize(struct http_exchange *x);
bool texts_detokenize(struct http_exchange *x);
bool texts_template(struct http_exchange *x); // messages as the model reads them
bool texts_count(struct http_exchange *x);    // tokens of Anthropic's messages
bool texts_count_response(struct http_exchange *x);
