// chat_loop.h - the chat on a terminal: messages in, answers out, until the user leaves.
//
// What the user types is edited on stderr, so that stdout carries answers only. The whole conversation goes
// to the engine each time; its session keeps the part that it has computed.
#pragma once
#include "main/chat/conversation.h"
#include "main/chat/line_edit.h"
#include "main/chat/reply.h"

struct chat_loop {
    struct reply *reply;
    struct settings *settings; // for replies; /set changes them
    struct arena *arena;       // of values that were set
    struct line_editor *editor;
    struct conversation conversation;
    struct buf attached;           // texts of files, for the next message
    struct chat_pictures pictures; // for it, too
    // of all answers so far
    uint32_t n_answers, n_context_used;
    uint64_t n_read, n_generated;
    double prefill_ms, decode_ms;
};

// Reads messages and answers them until /exit, the end of input, or Ctrl-C twice in a row; `first` is the
// first one, or NULL. Returns the exit status.
int chat_loop_run(struct chat_loop *loop, const char *first);

// What follows a line that begins with a slash.
enum chat_next {
    CHAT_MESSAGE, // it is no command
    CHAT_READ,    // it was done
    CHAT_ASK,     // the conversation ends with a message that wants an answer
    CHAT_LEAVE,
};
enum chat_next chat_command(struct chat_loop *loop, struct str line);
// The picture goes with the next message. False with a line on stderr.
bool chat_attach_picture(struct chat_loop *loop, const char *path);
// What Tab may complete; see line_edit.h.
const char *chat_command_candidates(void *arg, struct str before);
