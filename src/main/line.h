// line.h - lines from a person: edited with libedit and remembered where that is built in, else read as the terminal gives them.
#pragma once
#include "base/str.h"

struct line_editor;

enum line_end { LINE_READ, LINE_CLOSED, LINE_INTERRUPTED }; // a line | end of input | Ctrl-C twice

struct line_editor *line_open(void);             // NULL: no memory, told on stderr
void line_close(struct line_editor *e);          // saves the history; NULL is allowed
bool line_is_shown(const struct line_editor *e); // somebody is watching: prompts make sense
// The line without its newline, valid until the next call.
enum line_end line_read(struct line_editor *e, struct str *line);
