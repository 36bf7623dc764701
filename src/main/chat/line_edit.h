// line_edit.h - messages that the user types: edited by libedit, with a history, where that is built in; else
// read as lines.
//
// A message is a line, or more: what is pasted at once, what stands between """ and """, and lines that end
// in a backslash.
#pragma once
#include "base/str.h"

struct line_editor;

enum line_end {
    LINE_READ,
    LINE_CLOSED,
    LINE_INTERRUPTED
}; // a message | end of input | Ctrl-C twice in a row

// What the Tab key may complete: the words, separated by spaces, that may stand where `before` (all before
// the cursor) ends. NULL: names of files.
typedef const char *line_candidates(void *arg, struct str before);

struct line_editor *line_open(line_candidates *candidates,
                              void *arg);        // NULL: no memory; the error has been printed
void line_close(struct line_editor *e);          // saves the history; NULL is allowed
bool line_is_shown(const struct line_editor *e); // stdin and stderr are a terminal: prompts are printed
// The message without the newline at its end, ended by NUL, valid until the next call.
enum line_end line_read(struct line_editor *e, struct str *line);
