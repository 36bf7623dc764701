// embedded.h - the models that ship inside the library, so that a fresh build can answer without a download:
// one that reads text, one that sees.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "format/model_file.h"

// GGUF images, valid as long as the process, 64-byte aligned.
struct embedded {
    const char *name;
    const char *model, *model_end;
    const char *eyes, *eyes_end; // its mmproj file; NULL: none
};

extern const struct embedded embedded_models[]; // those of this build; then one without a name

// The one of this name; NULL is that of INGOT_BUILTIN. NULL when this build has none.
const struct embedded *embedded_find(const char *name);
// What embedded_or_file opens where it opens no file: a file that has the name wins.
const struct embedded *embedded_of(const char *path);
// Opens the file at `path`, or a model inside: when it has this name, or when path is NULL.
bool embedded_or_file(struct model_file **file, const char *path, struct err *err);
bool embedded_open_eyes(struct model_file **file, const struct embedded *m, struct err *err);
