// quantize_eyes.h - writes the vision tower of a model as the mmproj file beside a quantised one.
#pragma once
#include "format/gguf_write.h"
#include "models/vision/tower.h"

struct quantize_eyes {
    const char *output; // the text model's file; the tower goes to mmproj-NAME in its folder
    const char *type;   // of the text model: F32, F16 and BF16 for the tower too, else Q8_0
    char path[4096];    // of the tower's file, empty: the folder has one already, which stays
    uint64_t bytes;     // of its tensors
};

// Fills in path and bytes. Products get the type, F16 where their rows are not whole blocks of it; positions,
// patch embedding, norms and biases stay F32.
bool quantize_eyes_write(struct quantize_eyes *q, const struct tower *t, struct err *err);
// The keys of an mmproj file.
void quantize_eyes_keys(struct gguf_writer *w, const char *projector, const struct tower_config *c);
