// message.h - one HTTP/1.1 request as it comes off a connection: its head, and the bytes of its body.
//
// llhttp reads it, or where that is not packaged http_parser, which it grew from. Both forgive what RFC 9112
// calls ambiguous; another reader on the way may have seen a different request there. So the bytes around the
// body's are looked at once more: message.c. Not here: what a request means (admission.c), sockets
// (connection.c).
#pragma once
#include <stdint.h>
#include "base/str.h"

enum { MESSAGE_MAX_FIELDS = 100 };

enum message_state {
    MESSAGE_HEAD,  // goes on
    MESSAGE_BODY,  // the head was taken, the body goes on
    MESSAGE_WHOLE, // what follows belongs to the next
    MESSAGE_BAD,   // `problem` says why
    MESSAGE_LARGE, // the head is larger than allowed
};

struct message_field {
    size_t name, value; // in `text`
};

struct message_reader {
    bool (*head)(void *arg); // the head is whole. False: read no further
    bool (*body)(void *arg, const char *bytes,
                 size_t n); // the next bytes of the body. False: read no further
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
    // the bytes that frame it
    const char *at, *end; // of those being read: not looked at yet
    unsigned char before; // the byte before
    bool line_is_empty, any_line, last_chunk;
    int frame;
    size_t n_head_bytes;
};

bool message_create(struct message *m, const struct message_reader *reader, size_t most_head_bytes,
                    void *arg);
void message_destroy(struct message *m);
void message_next(struct message *m); // forgets what it read

// Reads up to the message's end. Returns how many of the bytes were taken; `state` says what came of it.
size_t message_read(struct message *m, const char *bytes, size_t n);

const char *message_target(const struct message *m);
// The value of the field of this name, the last where there are more; NULL: none. *n (may be NULL): how many
// there are.
const char *message_field(const struct message *m, const char *name, unsigned *n);
const char *message_library(void); // what reads, and which version of it
