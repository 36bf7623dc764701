// route_metal.h - the geometry of the Metal kernels. Shared by C and MSL.
#pragma once
#include "ops/route/route.h"

enum {
    ROUTE_ROWS = 8,    // of a simdgroup of route_logits, and of its threadgroup
    ROUTE_EXPERTS = 8, // of a threadgroup of route_logits: two a simdgroup
    ROUTE_THREADS = 256,
};
