// embedded.h - the model that ships inside the library, so that a fresh build can answer without a download.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include "format/model_file.h"

// A GGUF image, valid as long as the process, 64-byte aligned. False when this build carries none.
bool embedded_model(const void **bytes, size_t *n);
// Opens the file at `path`, or the model inside when path is NULL.
bool embedded_or_file(struct model_file **file, const char *path, struct err *err);
