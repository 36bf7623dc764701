// porch.h - where new connections wait until the head of their first request is whole.
//
// One thread takes connections and looks at what they send, without taking it; the socket is handed over when the empty line is there,
// or more than a head may have. libmicrohttpd looks at all its sockets whenever one of them stirs, for every token of every stream:
// a thousand that send a byte now and then would be felt by everybody. Here they cost nothing until they send.
// Not here: later requests on a connection, and bodies; clients.h has their time limits.
#pragma once
#include <sys/socket.h>
#include "base/lang.h"

struct porch;

struct porch_options {
    const struct sockaddr *address; // to listen on
    socklen_t address_bytes;
    u32 n_waiting;    // at most; beyond it the one that waited longest is closed
    u32 header_bytes; // of a head, at most: whoever gets the socket refuses a longer one
    u32 head_s;       // seconds until a connection without a head is closed
    // Gets a socket and who is on its other side; called in the porch's thread. The socket is its own from then on.
    void (*hand_over)(void *arg, int fd, const struct sockaddr *from, socklen_t from_bytes);
    void *arg;
};

// Listens and starts the thread. NULL with errno set when the address cannot be had.
struct porch *porch_open(const struct porch_options *options);
u32 porch_port(const struct porch *porch);
void porch_close(struct porch *porch); // NULL is allowed; closes what still waits
