// exchange.h - one HTTP request and its response, between a connection and the service that answers.
//
// A connection belongs to one I/O thread, and so does its exchange, except while a worker reads the body and
// makes its prompt into tokens (workers.c). While the engine works for it, an exchange sleeps: no thread
// waits.
#pragma once
#include <jansson.h>
#include "base/err.h"
#include "base/str.h"

struct http;
struct connection;
struct io_thread;
struct message;

struct http_exchange {
    struct http *http;
    struct io_thread *io; // the thread it belongs to
    struct connection *connection;
    const struct message *message; // of the connection
    struct http_exchange *next;    // that waits for a worker, or for its I/O thread
    char *path;                    // as sent, without the query
    char id[24];           // sent in a header and written to the log, so that a response can be found there
    const char *id_header; // the header's name
    struct buf body;
    const char *origin;         // allowed, from another place; NULL: none
    const char *asked_headers;  // of a preflight: what the page wants to send; NULL: none
    const char *policy;         // Content-Security-Policy of the page; NULL: none
    bool replied, closes, busy; // busy: a worker has it
    unsigned status;
    size_t n_counted; // of the body, in the sum of all
    size_t answer_bytes;
    uint64_t begun_ns;
    struct buf out;      // bytes for the client, not handed to the connection yet
    struct buf text;     // of a stream: the next chunk
    uint64_t offered_ns; // when a stream last sent something
    bool streams, quiet_due;
    // guarded by http->lock
    bool suspended, posted; // sleeps; waits for its I/O thread
    // the service's
    struct server *server;
    const struct http_route *route;
    struct api_response *response; // NULL: answered at once
    const char *key;               // the API key that the client has; NULL: none is needed
    int family;                    // enum api_family: whose words errors have
};

// ---- replies. True always means that the exchange has its reply.

bool exchange_reply_json(struct http_exchange *x, unsigned status, json_t *value); // takes value
bool exchange_reply_text(struct http_exchange *x, unsigned status, const char *type, struct str text);
bool exchange_reply_error(struct http_exchange *x, unsigned status, const char *format, ...)
    PRINTF_LIKE(3, 4);
bool exchange_reply_stream(struct http_exchange *x,
                           const char *type); // the head of a stream, whose text follows
// Appends x->text as a chunk, and with `last` the end of the stream. False without memory.
bool exchange_add_chunk(struct http_exchange *x, bool last);

// ---- for the connection

struct http_exchange *exchange_create(struct http *http, struct io_thread *io, struct connection *connection,
                                      const struct message *message);
void exchange_destroy(struct http_exchange *x, bool whole); // whole: the client has all of it
bool exchange_take_body(struct http_exchange *x, const char *bytes, size_t n); // false: refused
void exchange_answer(struct http_exchange *x); // the whole request is here; any thread

enum exchange_step { EXCHANGE_SLEEPS, EXCHANGE_MORE, EXCHANGE_DONE, EXCHANGE_BROKEN };
enum exchange_step exchange_go_on(struct http_exchange *x); // appends what can be sent now to `out`
bool exchange_tick(struct http_exchange *x,
                   uint64_t now_ns); // true: it has been silent for long, and has to go on

// More can be sent: wakes its I/O thread. http->lock is held.
void exchange_wake(void *exchange);
