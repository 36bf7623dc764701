// hub_http.h - one request to the hub, by libcurl: redirects, ranges, and what an answer's head says.
//
// The token goes to the endpoint's own scheme, host and port and nowhere else: libcurl drops the header on
// any redirect away from there. From an https endpoint no redirect leads to http. Bodies are never
// decompressed. Trying again is the caller's.
#pragma once
#include "hub/hub.h"

struct hub_http;

struct hub_reply {
    long status;
    bool ranged; // Content-Range was understood: bytes from to the end of total
    uint64_t from, total;
    char etag[256];  // a strong one; empty: none
    char error[512]; // what the hub says of a refusal
    uint32_t wait_s; // Retry-After; 0: not said
};

struct hub_get {
    const char *url;
    uint64_t from;    // ask for the bytes from here; 0: all
    const char *etag; // with `from`: only if this is still the ETag; NULL: in any case
    // The head of the last answer is there, before its first byte; may be NULL. Then its bytes. false ends
    // the request.
    bool (*head)(void *arg, const struct hub_reply *reply);
    bool (*body)(void *arg, const void *bytes, size_t n);
    bool (*go_on)(void *arg); // asked at least once a second
    void *arg;
};

enum hub_end {
    HUB_ANSWERED, // any status, and all of the body
    HUB_STOPPED,  // by head, body or go_on
    HUB_BROKEN,   // connection, time, length: may be tried again
    HUB_REFUSED,  // would end so again: too many redirects, a bad certificate, nobody there
};

struct hub_http *hub_http_open(const struct hub *hub, struct err *err);
void hub_http_close(struct hub_http *http); // NULL is allowed
// err says why it was not HUB_ANSWERED.
enum hub_end hub_http_get(struct hub_http *http, const struct hub_get *get, struct hub_reply *reply,
                          struct err *err);
