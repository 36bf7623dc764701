// admission.h - a request's first check, from its headers: who sends it, what for, and whether there is room.
#pragma once
#include <stdbool.h>

struct http_exchange;

// Sets the route. False: it was refused (x->replied), or the connection has to be dropped.
bool admission_check(struct http_exchange *x);
