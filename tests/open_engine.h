// open_engine.h - an engine for a test that goes no further without one.
#pragma once
#include "ingot.h"
#include "testing.h"

static inline struct ingot_engine *open_or_fail(const struct ingot_engine_options *options)
{
    struct ingot_error error = { 0 };
    struct ingot_engine *engine = ingot_engine_open(options, &error);

    if (!engine)
        fail_msg("%s", error.message);
    return engine;
}
