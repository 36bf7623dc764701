// state.h - the server from the inside: what all of its parts share.
//
// Order of the parts: http (the address), io (threads that wait for sockets), connection (one client),
// message (the bytes of a request), admission (its first check), prepare (threads that make prompts),
// exchange (a request and its reply), routes, api_request (what is asked for), api_response (one answer on
// its way), the dialects (openai, responses, anthropic, llamacpp, ollama), texts (tokenise, detokenise,
// apply-template), about (what is here), runner (the engine's thread), metrics.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "server/io.h"
#include "server/metrics.h"
#include "server/prepare.h"
#include "server/runner.h"
#include "server/server.h"

struct evconnlistener;

enum phase { PHASE_LOADING, PHASE_READY, PHASE_DRAINING, PHASE_FAILED };

struct server {
    const struct server_options *options;
    atomic_int phase;
    atomic_uint progress; // of loading, in 1/1000
    atomic_bool abort;    // the drain's time is over: answers end with an error
    atomic_size_t body_bytes;
    atomic_uint n_exchanges; // HTTP requests that are not answered in full
    bool loopback;
    // set before PHASE_READY and read-only from then on
    struct ingot_engine *engine;
    struct ingot_engine_info info;
    struct ingot_template_info template;
    char name[128];
    int64_t loaded_at; // seconds since 1970
    struct runner runner;
    struct io_threads io;
    struct prepare prepare;
    struct metrics metrics;
    struct evconnlistener *listener;
    int wake_pipe[2]; // tells the main thread that loading has ended
    struct err failure;
};

static inline enum phase server_phase(const struct server *s)
{
    return (enum phase)atomic_load(&s->phase);
}
