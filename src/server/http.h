// http.h - exchanges: one HTTP request and its reply, between a connection and the parts that know what to
// answer.
//
// A connection belongs to one I/O thread, and so does its exchange, save while a preparing thread reads the
// body and makes its prompt into tokens (prepare.c). While the engine works for it, it sleeps: no thread
// waits.
#pragma once
#include <jansson.h>
#include "base/str.h"
#include "server/message.h"
#include "server/api_response.h"

struct server;
struct connection;
struct io;

enum api_family { // whose words replies and errors have
    API_OPENAI,
    API_ANTHROPIC,
    API_OLLAMA
};

struct exchange {
    struct server *server;
    struct io *io; // the thread it belongs to
    struct connection *connection;
    const struct message *message; // of the connection
    const struct http_route *route;
    struct exchange *next; // that waits to be prepared, or for its I/O thread
    char *path;            // as sent, without the query
    char id[24];           // told in headers and in the log, so that a reply can be found there
    struct buf body;
    struct api_response *response; // NULL: answered at once
    const char *key;               // of the options, that it proved to know; NULL: none is asked for
    const char *origin;            // allowed, from another place; NULL: none
    const char *asked_headers;     // of a preflight: what the page wants to send; NULL: none
    enum api_family family;
    bool replied, closes, busy; // busy: a preparing thread has it
    unsigned status;
    size_t n_counted; // of the body, in the server's sum
    size_t answer_bytes;
    uint64_t begun_ns;
    struct buf out;      // bytes for the client, not handed to the connection yet
    struct buf text;     // of a stream: the next chunk
    uint64_t offered_ns; // when a stream last said something
    bool streams, quiet_due;
    // guarded by the runner's lock
    bool suspended, posted; // sleeps; waits for its I/O thread
};

// Opens the socket and starts to answer; the model may still be loading.
bool http_start(struct server *server, struct err *err);
void http_stop(struct server *server); // whoever is still connected is cut off

// Replies. True always means that the exchange has its reply.
bool exchange_reply_json(struct exchange *x, unsigned status, json_t *value); // takes value
bool exchange_reply_text(struct exchange *x, unsigned status, const char *type, struct str text);
bool exchange_reply_error(struct exchange *x, unsigned status, const char *format, ...) PRINTF_LIKE(3, 4);
bool exchange_reply_err(struct exchange *x, const struct err *err); // the status follows from the code
bool exchange_reply_stream(struct exchange *x, const char *type); // the head of a stream, whose text follows

// For the connection.
struct exchange *exchange_create(struct server *server, struct io *io, struct connection *connection,
                                 const struct message *message);
void exchange_destroy(struct exchange *x, bool whole);                    // whole: the client has all of it
bool exchange_take_body(struct exchange *x, const char *bytes, size_t n); // false: refused
void exchange_answer(struct exchange *x); // the whole request is here; any thread

enum exchange_step { EXCHANGE_SLEEPS, EXCHANGE_MORE, EXCHANGE_DONE, EXCHANGE_BROKEN };
enum exchange_step exchange_go_on(struct exchange *x); // appends what can be said now to `out`
bool exchange_tick(struct exchange *x,
                   uint64_t now_ns); // true: it has been silent for long, and has to go on

// More can be said: wakes its I/O thread. The runner's lock is held. For struct api_response_client.
void exchange_wake(void *exchange);
