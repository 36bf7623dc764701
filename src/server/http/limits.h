// limits.h - the bounds of everything that a client can make the server hold or wait for.
#pragma once
#include <stddef.h>
#include "base/err.h"
#include "base/lang.h"

struct server_limits {
    u32 n_connections; // open sockets
    u32 n_queued;      // requests that wait for a sequence; beyond: 429
    u32 n_choices;     // answers of one HTTP request
    u32 n_stops;       // stop strings
    u32 stop_bytes;    // of one stop string
    u32 header_bytes;  // request line and headers together
    u32 body_bytes;    // of one request
    u32 bodies_bytes;  // of all requests together
    u32 logits_bytes;  // logits of echoed prompts, of one HTTP request
    u32 pixels;        // of the pictures of one request together
    u32 head_s;        // from the start of a connection, or its last response, to the end of the headers
    u32 body_s;        // for the whole body
    u32 write_s;       // without reading: then the client is disconnected
    u32 keep_alive_s;  // of silence in a stream: then a comment is sent
    u32 drain_s;       // after SIGTERM, for running requests
    u32 retry_after_s; // sent with 429 and 503
};

extern const struct server_limits server_limits_default;

// Writes each limit to the log.
void limits_log(const struct server_limits *limits);
