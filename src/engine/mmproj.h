// mmproj.h - the mmproj file (vision tower) beside a GGUF model, found by its name.
#pragma once
#include "engine/engine.h"

struct tokenizer;

enum { MMPROJ_PATH_BYTES = 4096 };

// Whether the folder of this file has any.
bool mmproj_is_beside(const char *path);
// The only mmproj*.gguf in the folder of the GGUF model at `model`, opened as `file`, if its tokenizer knows
// the mark of a picture. False: there is none, or a warning named several.
bool mmproj_find(const char *model, const struct model_file *file, const struct tokenizer *tokenizer,
                 char path[MMPROJ_PATH_BYTES]);
