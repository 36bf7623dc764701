// memory_use.h - the memory that an engine has taken, by part.
#pragma once
#include "engine/engine.h"

struct memory_use {
    // pages: and the states of recurrent layers. scratch: of the tapes that were recorded, and what steps
    // write beside it (logits, activations between stages). A tied matrix that lies in two forms counts
    // twice, but for rows that are the mapped file's.
    uint64_t weights, pages, scratch, tower;
};
struct memory_use memory_use_of(const struct ingot_engine *engine);
