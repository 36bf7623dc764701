// answer.h - the service behind HTTP: an API response on its way through an exchange.
#pragma once
#include "server/http/http.h"

extern const struct http_service answer_service;

bool answer_error(struct http_exchange *x,
                  const struct err *err); // replies; the status follows from err's code
