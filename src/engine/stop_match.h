// stop_match.h - finds stop strings in text that streams.
#pragma once
#include "base/str.h"

struct stop_match {
    struct str *stops; // [n_stops], copies
    size_t n_stops, longest;
};

// ERR_INPUT: a stop string is empty.
bool stop_match_create(struct stop_match *m, const char *const *stops, size_t n_stops, struct err *err);
void stop_match_release(struct stop_match *m);
// The offset of the first stop string, and its number in *which; SIZE_MAX: the text has none.
size_t stop_match_find(const struct stop_match *m, struct str text, size_t *which);
// Number of bytes at the end of the text that may be the beginning of a stop string.
size_t stop_match_tail(const struct stop_match *m, struct str text);
