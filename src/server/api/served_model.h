// served_model.h - what every API answers from: the model, the thread that runs it, and what the operator
// allows.
#pragma once
#include "ingot.h"
#include "server/generation/engine_thread.h"
#include "server/generation/metrics.h"
#include "server/http/limits.h"

struct served_model {
    const struct server_limits *limits;
    bool no_shared_prefix; // the prefix cache serves only requests with the same cache_salt, and none without
                           // one
    struct engine_thread thread;
    struct metrics metrics;
    // set when the model is loaded, and read-only from then on
    struct ingot_engine *engine;
    struct ingot_engine_info info;
    struct ingot_template_info template;
    char name[128];
    int64_t loaded_at; // seconds since 1970
};

bool served_model_is(const struct served_model *m, const char *name); // clients may call it so
