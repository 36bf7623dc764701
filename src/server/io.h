// io.h - the threads that wait for sockets. Each has its own connections and shares nothing with the others;
// another thread speaks to one through a pipe of numbers: a new connection's socket, or a word.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "base/lang.h"

struct server;
struct exchange;
struct connection;
struct event;
struct event_base;

enum { IO_MAX_THREADS = 4 };

struct io {
    struct server *server;
    struct event_base *base;
    struct event *heard; // something came through the pipe
    struct connection *connections;
    struct exchange *posted; // that have to go on; guarded by the runner's lock
    int pipe[2];
    pthread_t thread;
    bool running, stopping;
};

struct io_threads {
    struct io at[IO_MAX_THREADS];
    u32 n;
    atomic_uint n_connections, n_taken;
    u32 most_connections;
};

bool io_open(struct server *server);
bool io_start(struct server *server); // from here on they run
void io_stop(struct server *server);  // closes all connections and the listener

bool io_give(struct io_threads *threads,
             int fd); // a new connection, to one of them. False: the descriptor is still the caller's
// The runner's lock is held: the exchange has to go on in its own thread.
void io_post(struct io *io, struct exchange *x);
void io_forget(struct io *io, struct exchange *x); // lock not held; it was perhaps posted
