// message.h - parses one HTTP/1.1 request message: its head, and the bytes of its body.
//
// The parser is llhttp, or its predecessor http_parser where llhttp is not packaged. Both accept messages
// that RFC 9112 calls ambiguous, in which a proxy may see a different request. So message.c checks the
// framing bytes once more. Not here: what a request means (admission.c), sockets (connection.c).
#pragma once
#include <stdint.h>
#include "base/str.h"

enum { MESSAGE_MAX_FIELDS = 100 };

enum message_state {
    MESSAGE_HEAD,     // the head is not complete
    MESSAGE_BODY,     // the head is complete, the body is not
    MESSAGE_COMPLETE, // bytes that follow belong to the next message
    MESSAGE_BAD,      // `problem` says why
    MESSAGE_LARGE,    // the head is larger than allowed
};

struct message_field {
    size_t name, value; // in `text`
};

struct message_reader {
    bool (*head)(void *arg);                              // the head is complete. False: stop reading
    bool (*body)(void *arg, const char *bytes, size_t n); // the next bytes of the body. False: stop reading
};

struct message {
    const struct message_reader *reader;
    void *arg; // the reader's
    size_t most_head_bytes;
    struct message_parser *parser;
    enum message_state state;
    const char *method, *problem;
    struct buf text;              // the target, then names and values, each ended by NUL
    struct message_field *fields; // [MESSAGE_MAX_FIELDS]
    unsigned n_fields, n_stored;
    bool is_1_0, keeps_alive, chunked, in_value;
    // the check of the framing bytes
    const char *at, *end; // the bytes not checked yet
    unsigned char before; // the byte before
    bool line_is_empty, any_line, last_chunk;
    int frame;
    size_t n_head_bytes;
};

bool message_create(struct message *m, const struct message_reader *reader, size_t most_head_bytes,
                    void *arg);
void message_destroy(struct message *m);
void message_next(struct message *m); // restarts, for the next message

// Parses up to the end of the message. Returns the number of bytes taken; `state` is the result.
size_t message_read(struct message *m, const char *bytes, size_t n);

const char *message_target(const struct message *m);
// The value of the field of this name, the last if there are several; NULL: none. *n (may be NULL): their
// number.
const char *message_field(const struct message *m, const char *name, unsigned *n);
const char *message_library(void); // the parser and its version
