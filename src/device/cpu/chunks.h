// chunks.h - large buffers of the CPU, carved one behind the other from chunks of huge pages.
//
// A model has hundreds of buffers of a few MB. Mapped one by one a third of their bytes end in small pages,
// since only aligned stretches of 2 MB can be huge. Buffers of a chunk are freed together, with the last of
// them: a device frees all at once.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct chunk;

// Zeroed memory, aligned to 64 bytes, from *newest or from a new chunk that takes its place. NULL without
// memory. *owner goes to chunk_drop.
void *chunk_take(struct chunk **newest, size_t bytes, struct chunk **owner);
void chunk_drop(struct chunk **newest, struct chunk *owner);
