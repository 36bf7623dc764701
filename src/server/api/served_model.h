// served_model.h - what every API answers from: the model, the thread that runs it, and what the operator
// allows.
#pragma once
#include "ingot.h"
#include "server/generation/engine_thread.h"
#include "server/generation/metrics.h"
#include "server/generation/prefetch.h"
#include "server/http/limits.h"

struct served_model {
    const struct server_limits *limits;
    bool no_shared_prefix; // the prefix cache serves only requests with the same cache_salt, and none without
                           // one
    struct engine_thread thread;
    struct metrics metrics;
    struct prefetch prefetch;
    // set when the model is loaded, and read-only from then on
    struct ingot_engine *engine;
    struct ingot_engine_info info;
    struct ingot_template_info template;
    char name[128];
    int64_t loaded_at; // seconds since 1970
};

enum { SERVED_NAME_BYTES = 200 };

// The name of the model with one of its adapters, from 0: "model:adapter". False: there is no such adapter.
bool served_model_adapter(const struct served_model *m, uint32_t adapter, char name[SERVED_NAME_BYTES]);
// The adapter of a model that clients call so: UINT32_MAX, none.
struct served_choice {
    bool is_here;
    uint32_t adapter;
};
struct served_choice served_model_find(const struct served_model *m, const char *name);
