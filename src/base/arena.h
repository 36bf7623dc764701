// arena.h - memory with one lifetime: an engine's, a stage's, a request's.
//
// Allocation is a pointer bump; nothing is freed singly. An arena has a limit in bytes, so that hostile input
// ends in an error and not in a machine without memory. One thread at a time.
#pragma once
#include <stddef.h>
#include "base/str.h"

struct arena;

// limit_bytes bounds the sum of all allocations. NULL without memory.
struct arena *arena_create(size_t limit_bytes);
void arena_destroy(struct arena *arena); // NULL is allowed

// Zeroed, aligned to 16 bytes. NULL when the limit or the machine's memory is reached; n = 0 gives a valid
// pointer.
void *arena_alloc(struct arena *arena, size_t bytes);
void *arena_alloc_array(struct arena *arena, size_t n, size_t bytes);
// A copy that ends in NUL (not counted in n).
struct str arena_str(struct arena *arena, struct str text);
char *arena_printf(struct arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);
