// http.h - sockets, routes and replies: libmicrohttpd on one side, the parts that know what to answer on the other.
//
// An exchange is one HTTP request and its reply. While the engine works for it, its connection is suspended: no thread waits.
#pragma once
#include <jansson.h>
#include <stdatomic.h>
#include "base/str.h"
#include "server/talk.h"

struct server;
struct client;
struct MHD_Connection;
struct MHD_Response;

enum api_family { // whose words replies and errors have
    API_OPENAI,
    API_ANTHROPIC,
    API_OLLAMA
};

struct exchange {
    struct server *server;
    struct client *client;
    struct MHD_Connection *connection;
    const struct route *route;
    char *path;  // as sent, without the query
    char id[24]; // told in headers and in the log, so that a reply can be found there
    struct buf body;
    struct talk *talk;         // NULL: answered at once
    const char *key;           // of the options, that it proved to know; NULL: none is asked for
    const char *origin;        // allowed, from another place; NULL: none
    const char *asked_headers; // of a preflight: what the page wants to send; NULL: none
    enum api_family family;
    bool too_large, refused, replied, closes;
    unsigned status;
    size_t n_counted; // of the body, in the server's sum
    uint64_t n_received;
    size_t answer_bytes;
    uint64_t begun_ns;
    // the stream's text that is not sent yet
    struct buf out;
    size_t out_at;
    bool out_ended;
    atomic_uint_least64_t offered_ns; // when a stream's reader was last offered more text, or could have been
    // guarded by the runner's lock
    bool suspended, gone, quiet_due;
};

// Opens the socket and starts to answer; the model may still be loading.
bool http_start(struct server *server, struct err *err);
void http_stop(struct server *server); // nothing is suspended any more

// Replies. True always means that the exchange has its reply.
bool exchange_reply_json(struct exchange *x, unsigned status, json_t *value); // takes value
bool exchange_reply_text(struct exchange *x, unsigned status, const char *type, struct str text);
bool exchange_reply_error(struct exchange *x, unsigned status, const char *format, ...) PRINTF_LIKE(3, 4);
bool exchange_reply_err(struct exchange *x, const struct err *err); // the status follows from the code

// More can be said: resumes the connection. The runner's lock is held. For struct talk_client.
void exchange_wake(void *exchange);
bool exchange_begin_talk(struct exchange *x); // the talk is there: streams, or waits for the end
bool exchange_go_on(struct exchange *x);      // after a sleep. False: drop the connection
void exchange_forget_body(struct exchange *x);
void exchange_log(const struct exchange *x, bool whole);

// For the thread that watches clients.
bool exchange_is_gone(struct exchange *x);
void exchange_client_left(struct exchange *x);
bool exchange_tick(struct exchange *x, uint64_t now_ns); // true: the client takes no data
