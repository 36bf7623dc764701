// huge_pages.h - large buffers of the CPU device, cut one after the other from chunks of huge pages.
//
// A model has hundreds of buffers of a few MB. If each were mapped alone, a third of their bytes would lie in
// small pages, since only aligned stretches of 2 MB can be huge. The buffers of a chunk are freed together,
// with the last of them: a device frees all at once.
#pragma once
#include <stdbool.h>
#include <stddef.h>

struct huge_chunk;

// Zeroed memory, aligned to 64 bytes, from *newest or from a new chunk that takes its place. NULL without
// memory. *owner goes to huge_chunk_drop.
void *huge_chunk_take(struct huge_chunk **newest, size_t bytes, struct huge_chunk **owner);
void huge_chunk_drop(struct huge_chunk **newest, struct huge_chunk *owner);
