// pattern.h - the regular expressions of tokenizer files: written for Oniguruma, run by PCRE2.
//
// The two differ in the meaning of \s, \w, \h, \v, ^ and $ and in nested classes; pattern_compile rewrites
// these and refuses what it cannot rewrite. Matching has a step limit, so that a hostile pattern ends in an
// error.
#pragma once
#include "base/str.h"

struct pattern;
struct pattern_scratch; // match state of one thread

bool pattern_compile(struct pattern **p, struct str regex, struct err *err);
bool pattern_compile_literal(struct pattern **p, struct str text, struct err *err);
void pattern_free(struct pattern *p);

struct pattern_scratch *pattern_scratch_create(void); // NULL without memory
void pattern_scratch_free(struct pattern_scratch *scratch);

// Finds the first non-empty match at or after *from: [*from, *to), or *from = *to = text.n when there is
// none.
// False only after an error. text must be valid UTF-8.
bool pattern_next(const struct pattern *p, struct pattern_scratch *scratch, struct str text, size_t *from,
                  size_t *to, struct err *err);
