// admission.h - admission: the check of a request's head. Framing, sender, key, route, and room in the queue.
#pragma once
#include <stdbool.h>

struct http_exchange;

// Sets the route. False: an error was replied (x->replied), or the connection has to be closed.
bool admission_check(struct http_exchange *x);
