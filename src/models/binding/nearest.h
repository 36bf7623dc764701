// nearest.h - what is said of a model whose architecture ingot does not run.
#pragma once
#include "base/str.h"

struct nearest_line {
    const char *names;   // beginnings of general.architecture or model_type, separated by blanks
    const char *because; // what the model has that ingot lacks
    const char *runs;    // the first column of docs/models.md's nearest line
};
// NULL: nothing is known of it.
const struct nearest_line *nearest_find(struct str name);
