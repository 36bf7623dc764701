// state.h - struct server, which the files of this folder share.
//
// The folders, from the top: server (start and end, routes, admission, endpoints without generation), api
// (requests in, responses out, for each API), generation (the engine's thread), http (the transport).
#pragma once
#include <stdatomic.h>
#include "server/api/api_error.h"
#include "server/api/served_model.h"
#include "server/http/http.h"
#include "server/server.h"

enum server_phase { PHASE_LOADING, PHASE_READY, PHASE_DRAINING, PHASE_FAILED };

struct server {
    const struct server_options *options;
    atomic_int phase;
    atomic_uint progress; // of loading, in 1/1000
    bool loopback;
    struct served_model model;
    struct ingot_pages_info pages; // of the engine, for decode servers that ask
    atomic_uint n_giving;          // answers with pages
    struct http http;
    int wake_pipe[2]; // tells the main thread that loading has ended
    struct err failure;
};

static inline enum server_phase server_phase(const struct server *s)
{
    return (enum server_phase)atomic_load(&s->phase);
}
