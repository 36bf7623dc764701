// json_memory.h - tells when jansson had no memory. Its functions that put a value into another take NULL for
// one, so a document that lacks a part looks like any other.
#pragma once
#include <jansson.h>
#include <stdbool.h>
#include "base/str.h"

// Gives jansson mem_alloc and mem_free, for the whole program; before other threads start. Without it nothing
// is told.
void json_memory_watch(void);
// json_loadb; NULL also where it had no memory on the way, of which `where` tells then: jansson leaves bytes
// out of a string and goes on. json_memory_failed still tells of it.
json_t *json_memory_read(struct str json, size_t flags, json_error_t *where);
// Whether an allocation of jansson's has failed on this thread since the last call.
bool json_memory_failed(void);
