// conversation.h - what was said in a chat, and how much of it fits the model's context.
//
// A turn is a message of the user and all up to the next one. When the context is full the oldest turns are
// left out whole: nothing is cut inside a message, and the system prompt stays. What is left is read anew,
// with the model's own template.
#pragma once
#include "ingot.h"
#include "base/str.h"

struct conversation { // zero-initialise; conversation_free at the end
    struct ingot_message *at;
    size_t n, capacity;
    uint32_t n_dropped; // turns that were left out so far
};

void conversation_free(struct conversation *c);
// Copies. False with a line on stderr.
bool conversation_add(struct conversation *c, const char *role, const char *content);
void conversation_cut(struct conversation *c, size_t n);                   // keeps the first n messages
bool conversation_set_system(struct conversation *c, const char *content); // NULL: none
const char *conversation_system(const struct conversation *c);             // NULL: none
size_t conversation_last_user(const struct conversation *c); // its index; SIZE_MAX: there is none

// How much room an answer gets, in tokens of the context.
struct conversation_room {
    uint32_t least; // with less the oldest turns go,
    uint32_t goal;  // until there is this much,
    bool keep_all;  // unless none may go
};
// Leaves out turns until the rest fits; *n_tokens is what it takes. The last message always stays. False with
// ERR_LIMIT when it does not fit even so; then nothing is left out.
bool conversation_fit(struct conversation *c, struct ingot_engine *engine, struct conversation_room room,
                      uint32_t *n_tokens, struct err *err);

// As JSON, {"messages": [{"role", "content"}]}. A file that is no saved chat is not written over. Loading
// replaces the conversation, or leaves it as it is on an error.
bool conversation_save(const struct conversation *c, const char *path, struct err *err);
bool conversation_load(struct conversation *c, const char *path, struct err *err);
