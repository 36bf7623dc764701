// routes.h - the table of endpoints.
#pragma once
#include "server/http/http.h"

enum { ROUTE_OPEN = 1, ROUTE_MODEL = 2, ROUTE_ANTHROPIC = 4, ROUTE_GENERATES = 8, ROUTE_OLLAMA = 16 };

// NULL: no route. *other_method is then the method that the path has, or NULL.
const struct http_route *route_find(const char *method, const char *path, const char **other_method);
