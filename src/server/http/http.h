// http.h - HTTP/1.1 over TCP: the address, the threads behind it, and what they ask of the service.
//
// The transport knows no model and no API. What a request means is the service's: its routes, and four
// functions.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "base/err.h"
#include "server/http/exchange.h"
#include "server/http/io.h"
#include "server/http/limits.h"
#include "server/http/workers.h"

struct evconnlistener;

struct http_route {
    const char *method, *path; // what begins with /v1 is there without it too; "*" at the end is any name
    unsigned flags;            // the service's
    // Replies, or sets x->response. False: neither was possible (no memory).
    bool (*answer)(struct http_exchange *x);
};

struct http_service {
    // The head was read: sets the route. False: it was refused (x->replied), or the connection has to be
    // dropped.
    bool (*admit)(struct http_exchange *x);
    // Of an answer that takes time: appends what can be sent now to x->out.
    enum exchange_step (*go_on)(struct http_exchange *x);
    bool (*reply_error)(struct http_exchange *x, unsigned status, const char *message);
    void (*end)(struct http_exchange *x,
                bool whole); // the exchange ends: x->response is freed and nothing wakes it any more
};

struct http {
    const struct http_service *service;
    const struct server_limits *limits;
    struct server *server; // the service's own
    pthread_mutex_t *lock; // the engine thread's, which wakes exchanges while it holds it; guards their sleep
    atomic_size_t body_bytes; // of all requests
    atomic_uint n_exchanges;  // requests that are not answered in full
    struct io_threads io;
    struct workers workers;
    struct evconnlistener *listener;
};

void http_create(struct http *http);
void http_destroy(struct http *http);
// Opens the socket and starts to answer; the model may still be loading.
bool http_start(struct http *http, const char *host, u32 port, struct err *err);
void http_stop(struct http *http); // open connections are cut off
