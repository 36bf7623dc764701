// json_memory.h - tells when jansson had no memory. Its functions that put a value into another take NULL for
// one, so a document that lacks a part looks like any other.
#pragma once
#include <stdbool.h>

// Gives jansson mem_alloc and mem_free, for the whole program; before other threads start. Without it nothing
// is told.
void json_memory_watch(void);
// Whether an allocation of jansson's has failed on this thread since the last call.
bool json_memory_failed(void);
