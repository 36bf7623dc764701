// schema_language.h - the strings that keywords of a schema allow, and their GBNF.
#pragma once
#include "text/grammar/regular.h"
#include "text/grammar/schema_writer.h"

struct language {
    uint32_t term;
    uint32_t least, most; // characters; most UINT32_MAX: without end
};

// Writes the text between the quotes. With limits, the longest strings may be excluded (schema_language.c).
bool schema_language(struct writer *w, struct regular *r, struct language l, struct buf *to);

// The strings that all parts allow: by pattern and lengths, and by the keywords in `what`.
enum { LANGUAGE_FORMATS = 1, LANGUAGE_LISTS = 2 }; // format; enum and const
bool schema_string_language(struct writer *w, struct regular *r, const struct conjunction *c, unsigned what,
                            struct language *l);
