// reasoning_marks.h - the marks between which model families write what they think.
//
// A template shows its family's: templates that write thoughts, or end with an opened one, name them. gpt-oss
// has messages instead (parsers/channel_parser.c).
#pragma once
#include "base/str.h"

struct reasoning_marks {
    const char *open, *close; // without the blanks around them
    const char *begin, *end;  // with the blanks that templates write, before a thought and behind it
    const char *other_end;    // of a call, which ends the thought too; or NULL
    bool special;             // they are control tokens
};

// Of this template; <think> and </think> where it shows none. *shown: it shows some. May be NULL.
const struct reasoning_marks *reasoning_marks_of(struct str chat_template, bool *shown);
