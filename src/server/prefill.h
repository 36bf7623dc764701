// prefill.h - POST /prefill: has a prompt read, and answers with its pages, for a decode server.
//
// The question is page_question.h's. The answer is a stream of files as --cache-dir has them; where a page
// was forgotten or no thread is free it ends early, and the other side reads the rest.
#pragma once
#include "server/http/exchange.h"

bool prefill_answer(struct http_exchange *x); // by a worker
enum exchange_step prefill_go_on(struct http_exchange *x);
void prefill_end(struct http_exchange *x); // does nothing for another exchange
