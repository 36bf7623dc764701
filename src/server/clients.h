// clients.h - who is connected, since when, and whether still.
//
// One thread waits on the sockets of all clients whose answer is being made, so that a client that leaves is noticed at once, also
// when nothing is being written to it; once a second it looks at the clock. A client that closes its sending half counts as gone.
// libmicrohttpd cannot tell: it does not look at a socket while its connection is suspended.
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "server/limits.h"

struct server;
struct exchange;

enum client_phase { CLIENT_HEAD, CLIENT_BODY, CLIENT_WAITING };

struct client {
    struct client *next, *before;
    uint64_t id;
    int fd;
    enum client_phase phase;
    uint64_t since_ns;         // of the phase
    struct exchange *exchange; // while waiting
};

struct clients {
    pthread_mutex_t lock; // taken before the runner's lock
    pthread_t thread;
    struct client *first;
    uint64_t n_ids;
    uint32_t n;
    int wake[2];
    bool running, stop;
};

bool clients_create(struct clients *c, struct server *server, struct err *err); // starts the thread
void clients_destroy(struct clients *c);                                        // stops it

struct client *client_add(struct clients *c, int fd); // NULL: no memory
void client_remove(struct clients *c, struct client *client);
// exchange: for CLIENT_WAITING, else NULL.
void client_set_phase(struct clients *c, struct client *client, enum client_phase phase, struct exchange *exchange);
