// api.h - shared by the files behind ingot.h: the engine inside the public one, and its errors.
#pragma once
#include "engine/engine.h"
#include "image/image.h"

struct ingot_engine {
    struct engine inner;
};

struct ingot_picture {
    struct picture inner;
    double read_ms; // that decoding took
};

static inline struct err *as_err(struct ingot_error *error)
{
    return (struct err *)error;
}
