// limits.h - everything a client can make the server hold or wait for is bounded, and the bounds stand in one
// table.
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
    u32 logits_bytes;  // of the prompts whose log-probabilities one HTTP request asks for
    u32 pixels;        // of the pictures of one request together
    u32 head_s;        // from the start of a connection, or its last answer, to the end of the headers
    u32 body_s;        // for the whole body
    u32 write_s;       // a client that takes no data for so long is cut off
    u32 keep_alive_s;  // a comment in a stream that is silent for so long
    u32 drain_s;       // after SIGTERM: for what is running
    u32 retry_after_s; // told with 429
};

extern const struct server_limits server_limits_default;

// Tells each limit with its value in a log line.
void limits_print(const struct server_limits *limits);
