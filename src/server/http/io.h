// io.h - the threads that wait for sockets. Each has its own connections and shares nothing with the others;
// another thread reaches one through a pipe of numbers: a new connection's socket, or a signal.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "base/lang.h"

struct http;
struct http_exchange;
struct connection;
struct event;
struct event_base;

enum { IO_MAX_THREADS = 4 };

struct io_thread {
    struct http *http;
    struct event_base *base;
    struct event *wakeup; // something came through the pipe
    struct connection *connections;
    struct http_exchange *posted; // that have to go on; guarded by http->lock
    int pipe[2];
    pthread_t thread;
    bool running, stopping;
};

struct io_threads {
    struct io_thread at[IO_MAX_THREADS];
    u32 n;
    atomic_uint n_connections, n_taken;
    u32 most_connections;
};

bool io_open(struct http *http);
bool io_start(struct http *http); // from here on they run
void io_stop(struct http *http);  // closes all connections and the listener

bool io_assign(struct io_threads *threads,
               int fd); // a new connection to one of them. False: the descriptor is still the caller's
// http->lock is held: the exchange has to go on in its own thread.
void io_post(struct io_thread *io, struct http_exchange *x);
void io_forget(struct io_thread *io, struct http_exchange *x); // lock not held; it was perhaps posted
