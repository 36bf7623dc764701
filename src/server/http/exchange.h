// exchange.h - one HTTP request and its response, between a connection and the service that answers.
//
// An exchange belongs to its connection's I/O thread, except while a worker reads the body and tokenizes the
// prompt (workers.h). While the engine works for it, an exchange sleeps and no thread waits.
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
    struct io_thread *io;
    struct connection *connection;
    const struct message *message; // the connection's
    struct http_exchange *next;    // in the workers' queue, or in the I/O thread's list
    char *path;                    // as sent, without the query
    char id[24];                   // in a header of the response, and in the log
    const char *id_header;         // the name of that header
    struct buf body;
    const char *origin;            // allowed, and not the server's own; NULL: none
    const char *requested_headers; // Access-Control-Request-Headers of a preflight; NULL: none
    const char *allow;             // the method that the path has, where it is another; or NULL
    const char *policy;            // Content-Security-Policy of the page; NULL: none
    bool replied, closes, busy;    // closes: the connection, after this response; busy: a worker has it
    unsigned status;
    size_t n_counted; // bytes of the body in http->body_bytes
    size_t answer_bytes;
    uint64_t begun_ns;
    struct buf out;   // bytes for the client that the connection does not have yet
    struct buf text;  // of a stream: the next chunk
    uint64_t sent_ns; // when a stream last sent something
    bool streams, keep_alive_due;
    // guarded by http->lock
    bool suspended, posted; // suspended: it sleeps; posted: it waits for its I/O thread
    // set and read by the service alone
    struct server *server;
    const struct http_route *route;
    struct api_response *response; // NULL: answered at once, or with pages
    struct prefill_answer *pages;  // of a prompt; NULL: none
    const char *key;               // the API key that the client has; NULL: none is needed
    int family;                    // enum api_family: the API whose form errors have
};

// ---- replies: true means that the exchange has its response

bool exchange_reply_json(struct http_exchange *x, unsigned status, json_t *value); // takes value
bool exchange_reply_text(struct http_exchange *x, unsigned status, const char *type, struct str text);
bool exchange_reply_error(struct http_exchange *x, unsigned status, const char *format, ...)
    PRINTF_LIKE(3, 4);
// The head of a stream; exchange_add_chunk follows.
bool exchange_reply_stream(struct http_exchange *x, const char *type);
// Appends x->text as a chunk, and with `last` the end of the stream. False without memory.
bool exchange_add_chunk(struct http_exchange *x, bool last);

// ---- for the connection

struct http_exchange *exchange_create(struct http *http, struct io_thread *io, struct connection *connection,
                                      const struct message *message);
void exchange_destroy(struct http_exchange *x, bool whole); // whole: the client has all of the response
bool exchange_take_body(struct http_exchange *x, const char *bytes, size_t n); // false: an error was replied
void exchange_answer(struct http_exchange *x); // the request is complete; any thread

enum exchange_step { EXCHANGE_SLEEPS, EXCHANGE_MORE, EXCHANGE_DONE, EXCHANGE_BROKEN };
enum exchange_step exchange_go_on(struct http_exchange *x); // appends what can be sent now to `out`
// True: its stream has been silent for long. It is awake then, and has to go on.
bool exchange_needs_keep_alive(struct http_exchange *x, uint64_t now_ns);

// There is more to send: wakes the exchange's I/O thread. http->lock is held.
void exchange_wake(void *exchange);
