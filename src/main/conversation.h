// conversation.h - the conversation on a terminal.
#pragma once
#include "main/reply.h"

// Reads lines and answers them until /exit, the end of input, or Ctrl-C twice. Returns the exit status.
int talk(struct reply *r);
