// io.h - the I/O threads: one event loop each. A thread has its own connections and shares nothing with the
// others. Other threads reach it through a pipe of numbers: the socket of a new connection, or a signal.
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
    struct event *wakeup; // on the pipe
    struct connection *connections;
    struct http_exchange *posted; // exchanges that have to go on; guarded by http->lock
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
bool io_start(struct http *http); // starts the threads
void io_stop(struct http *http);  // closes all connections and the listener

// Gives a new connection to one of the threads. False: the descriptor is still the caller's.
bool io_assign(struct io_threads *threads, int fd);
// Makes the exchange go on in its own thread. http->lock is held.
void io_post(struct io_thread *io, struct http_exchange *x);
void io_forget(struct io_thread *io,
               struct http_exchange *x); // takes back a post, if there is one; lock not held
