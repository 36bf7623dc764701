// http.h - HTTP/1.1 over TCP: the listening socket, the threads behind it, and what they ask of the service.
//
// The transport knows no model and no API. The service gives requests their meaning: routes, and four
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
    const char *method, *path; // "/v1/x" is also found as "/x"; "*" at the end is any name
    unsigned flags;            // the service's
    // Replies, or sets x->response. False: neither was possible (no memory).
    bool (*answer)(struct http_exchange *x);
};

struct http_service {
    // Called when the head was read; sets x->route. False: an error was replied (x->replied), or the
    // connection has to be closed.
    bool (*admit)(struct http_exchange *x);
    // Called for an answer that takes time: appends what can be sent now to x->out.
    enum exchange_step (*go_on)(struct http_exchange *x);
    bool (*reply_error)(struct http_exchange *x, unsigned status, const char *message);
    // The exchange ends: frees x->response. After this nothing wakes the exchange.
    void (*end)(struct http_exchange *x, bool whole);
};

struct http {
    const struct http_service *service;
    const struct server_limits *limits;
    struct server *server;    // the service's
    pthread_mutex_t *lock;    // guards the sleep of exchanges; the engine's thread holds it when it wakes one
    atomic_size_t body_bytes; // of all requests
    atomic_uint n_exchanges;  // requests without a complete response
    struct io_threads io;
    struct workers workers;
    struct evconnlistener *listener;
};

void http_create(struct http *http);
void http_destroy(struct http *http);
// Opens the socket and starts to answer requests; the model may still be loading.
bool http_start(struct http *http, const char *host, u32 port, struct err *err);
void http_stop(struct http *http); // closes all connections
