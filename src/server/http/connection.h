// connection.h - one client's connection: requests in, replies out, its times and its end. All of it in its
// I/O thread.
//
// A client that leaves, or closes its sending half while an answer is made for it, ends that answer. A
// refusal is sent before the body was read; then what the client still writes is taken and thrown away, so
// that it gets to read why.
#pragma once
#include "server/http/io.h"

void connection_open(struct io_thread *io, int fd); // takes the socket
void connection_close(
    struct connection *c); // an exchange that is busy keeps what it needs until it is posted
void connection_go_on(struct connection *c); // its exchange was posted
