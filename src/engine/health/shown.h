// shown.h - what an engine tells of its stages, kept so that nobody has to look at them: they are the
// stepping thread's alone, and change when a device is lost.
#pragma once
#include <stdint.h>

struct engine;

struct shown {
    char device[160]; // "cpu: 2 threads", or "cuda:0 for layers 0 to 27, cpu for layers 28 to 39"
    uint64_t page_bytes, scratch_bytes, draft_bytes; // draft: the weights of a layer that drafts
    uint32_t n_stages, k_format, v_format;           // enum kv_format
};

// The stages are there, and no step is being played.
void shown_update(struct engine *e);
