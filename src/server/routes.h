// routes.h - what is answered at which path.
#pragma once
#include "server/http/http.h"

enum { ROUTE_OPEN = 1, ROUTE_MODEL = 2, ROUTE_ANTHROPIC = 4, ROUTE_GENERATES = 8, ROUTE_OLLAMA = 16 };

// NULL with *other_method set when the path exists under another method (its name), else with NULL there.
const struct http_route *route_find(const char *method, const char *path, const char **other_method);
