// server.h - `ingot serve`: one engine behind HTTP, with the APIs of OpenAI, Anthropic, Ollama and
// llama.cpp's server.
//
// Threads: I/O threads wait for sockets and write responses; workers parse bodies and tokenize prompts; the
// engine's thread steps while there is work and sleeps otherwise; the caller waits for signals. The socket
// opens before the model is loaded.
#pragma once
#include "ingot.h"
#include "server/generation/prefetch.h"
#include "server/http/limits.h"

struct server_options {
    struct ingot_engine_options engine;
    const char *host; // an address: "127.0.0.1", "::1", "0.0.0.0"
    uint32_t port;    // 0: any free one; the log has its number
    const char *name; // the model's name for clients; NULL: as its file says
    const char *const *api_keys;
    size_t n_api_keys;          // 0: no key is needed
    const char *const *origins; // allowed in a browser, besides the server's own page
    size_t n_origins;
    bool strict;           // an unsupported field is an error in every request
    bool no_shared_prefix; // the prefix cache serves only requests with the same cache_salt, and none without
                           // one
    struct server_limits limits;
    bool gives_pages;                        // POST /prefill answers with the pages of a prompt
    const struct prefetch_options *prefetch; // a prefill server to ask for them; NULL: none
    int stop_fd; // the first byte read from it begins the drain, the second ends at once
};

// Runs until it is stopped. False: the model or the socket could not be opened.
bool server_run(const struct server_options *options, struct err *err);
