// mmproj.h - the mmproj file that lies beside a GGUF model, found by its name.
#pragma once
#include "engine/engine.h"

enum { MMPROJ_PATH_BYTES = 4096 };

// The only mmproj*.gguf in the folder of a GGUF model whose tokenizer knows the mark of a picture. False:
// there is none, or a warning named several.
bool mmproj_find(const struct engine_loaded *l, char path[MMPROJ_PATH_BYTES]);
