// server.h - `ingot serve`: one engine behind HTTP, spoken to as people's programs already speak.
//
// Threads: a few wait for sockets and write replies; two read bodies and make prompts into tokens; one engine
// thread steps while there is work and sleeps otherwise; the caller waits for signals. The socket opens
// before the model is loaded.
#pragma once
#include "ingot.h"
#include "server/http/limits.h"

struct server_options {
    struct ingot_engine_options engine;
    const char *host; // an address: "127.0.0.1", "::1", "0.0.0.0"
    uint32_t port;    // 0: any free one, told in a log line
    const char *name; // the model's name for clients; NULL: as its file says
    const char *const *api_keys;
    size_t n_api_keys;          // 0: no key is asked for
    const char *const *origins; // that may call from a browser, besides the server's own page
    size_t n_origins;
    bool strict;           // a field that is not honoured is an error for everyone
    bool no_shared_prefix; // kept prompts are found by requests of the same cache_salt alone, and never
                           // without one
    struct server_limits limits;
    int stop_fd; // the first byte read from it begins the drain, the second ends at once
};

// Runs until told to stop. True when it stopped in order; false when the model or the socket could not be
// opened.
bool server_run(const struct server_options *options, struct err *err);
