// connection.h - one client's connection: requests in, responses out, timeouts, and its end. It belongs to
// one I/O thread.
//
// A client that leaves, or closes its sending half while its request is answered, cancels the answer. An
// early error is sent before the body was read; then what the client still writes is discarded, so that it
// can read the error.
#pragma once
#include "server/http/io.h"

void connection_open(struct io_thread *io, int fd); // takes the socket
// While a worker has the exchange, the connection keeps what the worker needs until the exchange is posted.
void connection_close(struct connection *c);
void connection_go_on(struct connection *c); // its exchange was posted
