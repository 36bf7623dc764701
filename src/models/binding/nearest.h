// nearest.h - what is said of a model whose architecture ingot does not run.
#pragma once
#include "base/str.h"

struct model_file;

struct nearest_line {
    const char *names;   // beginnings of general.architecture or model_type, separated by blanks
    const char *because; // what the model has that ingot lacks
    const char *runs;    // the first column of docs/models.md's nearest line
};
// NULL: nothing is known of it.
const struct nearest_line *nearest_find(struct str name);
// For such a one: the line whose layers have the same kinds of parts, by the names of the file's tensors.
const char *nearest_by_tensors(const struct model_file *file);
