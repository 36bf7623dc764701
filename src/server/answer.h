// answer.h - the service that the transport calls: an API response on its way through an exchange.
#pragma once
#include "server/http/http.h"

struct generation;

extern const struct http_service answer_service;

// Replies with an error; the status follows from err's code.
bool answer_error(struct http_exchange *x, const struct err *err);
// True: it sleeps until the engine's thread wakes it. False: the generation has events now.
bool answer_sleeps(struct http_exchange *x, const struct generation *g);
