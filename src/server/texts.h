// texts.h - texts and tokens at their paths: nothing is generated.
#pragma once
#include "server/http.h"

bool texts_tokenize(struct exchange *x);
bool texts_detokenize(struct exchange *x);
bool texts_template(struct exchange *x); // messages as the model reads them
bool texts_count(struct exchange *x);    // tokens of Anthropic's messages
bool texts_count_response(struct exchange *x);
