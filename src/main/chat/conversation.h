// conversation.h - the messages of a chat, and how many of them fit the model's context.
//
// A turn is a message of the user and all messages up to the next one. When the context is full, the oldest
// turns are dropped whole: no message is cut, and the system prompt stays. The rest is rendered again with
// the model's template.
#pragma once
#include "ingot.h"
#include "base/str.h"
#include "main/chat/chat_pictures.h"

struct conversation { // zero-initialise; conversation_free at the end
    struct ingot_message *at;
    struct chat_pictures *pictures; // [capacity] that stand before a message's text
    size_t n, capacity;
    uint32_t n_dropped; // turns that were left out so far
};

void conversation_free(struct conversation *c);
// Copies. False with a line on stderr.
bool conversation_add(struct conversation *c, const char *role, const char *content);
// A message of the user behind these pictures, which are the conversation's from now on.
bool conversation_add_seen(struct conversation *c, const char *content, struct chat_pictures *pictures);
void conversation_cut(struct conversation *c, size_t n);                   // keeps the first n messages
bool conversation_set_system(struct conversation *c, const char *content); // NULL: none
const char *conversation_system(const struct conversation *c);             // NULL: none
size_t conversation_last_user(const struct conversation *c); // its index; SIZE_MAX: there is none

// The conversation as a request has it, without the messages from `first` up to `from`. It points into the
// conversation. False with ERR_MEMORY.
struct conversation_prompt {
    struct ingot_message *messages;
    size_t n_messages;
    const struct ingot_picture **pictures;
    size_t n_pictures;
};
bool conversation_prompt(struct conversation_prompt *p, const struct conversation *c, size_t first,
                         size_t from, struct err *err);
void conversation_prompt_free(struct conversation_prompt *p); // zeroed is allowed

// How much room an answer gets, in tokens of the context.
struct conversation_room {
    uint32_t least; // with less the oldest turns are dropped,
    uint32_t goal;  // until there is this much,
    bool keep_all;  // no turn may be dropped
    bool no_split;  // how pictures are read: each as one tile
};
// Drops turns until the rest fits; *n_tokens: tokens of the rest. The last message always stays. False with
// ERR_LIMIT when it does not fit even alone; then nothing is dropped.
bool conversation_fit(struct conversation *c, struct ingot_engine *engine, struct conversation_room room,
                      uint32_t *n_tokens, struct err *err);

// As JSON, {"messages": [{"role", "content", "images"}]}, with the paths of pictures. A file that is no saved
// chat is never overwritten. Loading replaces the conversation, or leaves it as it is on an error.
bool conversation_save(const struct conversation *c, const char *path, struct err *err);
bool conversation_load(struct conversation *c, const char *path, struct err *err);
