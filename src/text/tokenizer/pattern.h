// pattern.h - the regular expressions of tokenizer files: written for Oniguruma, run by PCRE2.
//
// The two differ in what \s, \w, \h, \v, ^ and $ mean and in nested classes; pattern_compile rewrites what differs and refuses
// what it cannot. Matching has a limit on steps, so that a hostile pattern ends in an error.
#pragma once
#include "base/str.h"

struct pattern;
struct pattern_scratch; // match state of one thread

bool pattern_compile(struct pattern **p, struct str regex, struct err *err);
bool pattern_compile_literal(struct pattern **p, struct str text, struct err *err);
void pattern_free(struct pattern *p);

struct pattern_scratch *pattern_scratch_create(void); // NULL without memory
void pattern_scratch_free(struct pattern_scratch *scratch);

// The first match that is not empty at or after *from. Found: [*from, *to) is its place. Not found: *from = *to = text.n.
// False only with an error. text must be valid UTF-8.
bool pattern_next(const struct pattern *p, struct pattern_scratch *scratch, struct str text, size_t *from, size_t *to,
                  struct err *err);
