// hub_http.h - one GET request to the hub, by libcurl: redirects, ranges, and the response headers.
//
// The token goes to the endpoint's own scheme, host and port and nowhere else: libcurl drops the header on
// any redirect away from there. From an https endpoint no redirect leads to http. Bodies are never
// decompressed. The caller retries.
#pragma once
#include "hub/hub.h"

struct hub_http;

struct hub_reply {
    long status;
    bool ranged; // Content-Range was understood: bytes from to the end of total
    uint64_t from, total;
    char etag[256];  // a strong one; empty: none
    char error[512]; // the hub's message with an error status
    uint32_t wait_s; // Retry-After; 0: not given
};

struct hub_get {
    const char *url;
    uint64_t from;    // ask for the bytes from here; 0: all
    const char *etag; // with `from`: only if this is still the ETag; NULL: in any case
    // head: the final response's headers, before the first byte of its body; may be NULL. body: its bytes.
    // False ends the request.
    bool (*head)(void *arg, const struct hub_reply *reply);
    bool (*body)(void *arg, const void *bytes, size_t n);
    bool (*go_on)(void *arg); // called at least once a second; false ends the request
    void *arg;
};

enum hub_http_result {
    HUB_HTTP_ANSWERED, // any status, and all of the body
    HUB_HTTP_STOPPED,  // by head, body or go_on
    HUB_HTTP_BROKEN,   // connection, time, length: a retry may help
    HUB_HTTP_FAILED,   // a retry fails too: too many redirects, a bad certificate, no server
};

struct hub_http *hub_http_open(const struct hub *hub, struct err *err);
void hub_http_close(struct hub_http *http); // NULL is allowed
// err says why it was not HUB_HTTP_ANSWERED.
enum hub_http_result hub_http_get(struct hub_http *http, const struct hub_get *get, struct hub_reply *reply,
                                  struct err *err);
