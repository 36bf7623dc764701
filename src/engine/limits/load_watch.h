// load_watch.h - the thread that looks at the machine's load every few seconds and tells the pace; and the
// priority of our own threads.
#pragma once
#include <pthread.h>
#include "engine/limits/pace.h"
#include "engine/stage/devices.h"

struct engine;

struct load_watch {
    bool runs, stop; // stop: with the state lock
    pthread_t thread;
    struct system_load_meter meter;
    uint64_t others_bytes[MAX_DEVICES], own_bytes[MAX_DEVICES]; // of each device with memory of its own
};

// Linux: the calling thread, and those that it will make; elsewhere the whole process. What the system
// refuses is said once and is no error.
void load_watch_lower_priority(const struct usage_limits *limits);
// Free memory of the devices before anything is loaded, and after: what lies between is ours.
// While loading all of it counts as ours. The state lock is held once there is a thread.
void load_watch_begin(struct load_watch *w, const struct devices *d);
void load_watch_loaded(struct load_watch *w, const struct devices *d);
bool load_watch_start(struct engine *e, struct err *err); // nothing where no limit needs it
void load_watch_stop(struct engine *e);                   // nothing where it does not run
