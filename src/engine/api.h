// api.h - shared by the files behind ingot.h: the engine inside the public one, and its errors.
#pragma once
#include "engine/engine.h"
#include "image/picture_tiles.h"

struct ingot_engine {
    struct engine inner;
};

struct ingot_picture {
    struct picture inner;
    double read_ms;          // that decoding took
    struct picture_cut *cut; // behind a pointer: nobody else changes a picture
};

// Frees the engine once it is closed and all that came from it is freed. Called with the state lock, which it
// releases.
void api_unlock_or_free(struct engine *e);

static inline struct err *as_err(struct ingot_error *error)
{
    return (struct err *)error;
}
