// toy_engine.h - one engine with the model inside the library, on one thread, for all tests of a file: a
// group's setup and teardown.
#pragma once
#include "open_engine.h"

static struct ingot_engine *engine;

static int open_toy(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    (void)state;
    o.n_threads = 1;
    engine = open_or_fail(&o);
    return 0;
}

static int close_toy(void **state)
{
    (void)state;
    ingot_engine_close(engine);
    return 0;
}
