// gguf.h - reads GGUF v2 and v3 into a model_file. Private to format/.
#pragma once
#include "format/directory.h"

// One file, or the first of a split; the others are found beside it and mapped.
bool gguf_open(struct model_file *file, struct err *err);
// An image in memory. It must start at a multiple of 8, and cannot be split.
bool gguf_open_memory(struct model_file *file, struct str bytes, struct err *err);
