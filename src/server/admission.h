// admission.h - a request's first check, from its headers: who sends it, what for, and whether there is room.
#pragma once
#include "server/http.h"

// Sets the route. False: it was refused (x->replied), or the connection has to be dropped.
bool admission_check(struct exchange *x);
