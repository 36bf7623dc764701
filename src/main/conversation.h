// conversation.h - the conversation on a terminal.
#pragma once
#include "main/reply.h"

// Reads messages and answers them until /exit, the end of input, or Ctrl-C twice in a row; `first` is the first one, or NULL. Returns
// the exit status.
int talk(struct reply *r, const char *first);
