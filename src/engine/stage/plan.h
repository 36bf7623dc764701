// plan.h - which layers go to which device, by measured speed and free memory.
#pragma once
#include "engine/stage/devices.h"
#include "engine/stage/plan_choose.h"
#include "engine/stage/probe_cache.h"

enum { PLAN_MOST_LAYERS = 1024 };

struct plan_request {
    const struct model *model;
    const struct devices *devices;
    const struct stage_shape *shape; // exact holds for devices that are not plain
    const struct placement *pinned;  // NULL: choose
    bool many;                       // the most tokens of all sequences; else the least time of an answer's
    uint32_t depth;                  // tokens in the context
    bool limits;                     // what each device can do at best, too
    bool no_repack;                  // as the devices were opened
    struct probe_cache *cache;       // NULL: probe
    bool probe_anew;                 // and replace what the cache has
    const struct sha256 *digest;     // of the model, for the cache
};

struct plan {
    struct placement placement;
    struct place_memory need[MAX_STAGES];         // by stage, without experts elsewhere
    uint64_t stage_ns[MAX_STAGES][N_PROBE_STEPS]; // of a step, with them
    uint64_t link_ns[MAX_STAGES][N_PROBE_STEPS];  // of its activations to the next stage; 0: in place
    char names[MAX_DEVICES][16];                  // by device, as the next three
    struct probe_speed speed[MAX_DEVICES];
    struct probe_link links[MAX_DEVICES][MAX_DEVICES]; // [from, to]
    uint64_t room[MAX_DEVICES];                        // bytes
    // Predicted: a step of one row, of one row of each sequence, and of a prompt's rows. many_ns: until every
    // sequence has another token, which is less than the steps' times where stages compute at the same time.
    // long_prompt_ns: of a prompt's step among many, behind each other.
    uint64_t token_ns, many_ns, prompt_ns, long_prompt_ns;
    uint32_t n_rows[N_PROBE_STEPS];
    uint32_t n_many; // sequences: those of many_ns, more than the probe's rows where it has not as many
    bool overlaps, many;
    uint32_t least_share;     // of the answers of a step, where stages overlap
    const char *in_turn;      // why stages take one step at a time; NULL: they do not, or there is one device
    uint32_t n_away;          // of the last layers, whose experts the processor has
    uint64_t draft_bytes;     // of the last stage's weights: the layer that drafts tokens; 0: not used
    uint32_t depth, n_probed; // n_probed: devices that were probed and not found in the cache
};

// Probes the devices and the links between them, chooses unless the placement is pinned, and predicts.
// Nothing fits: ERR_MEMORY, with what would.
bool plan_layers(const struct plan_request *request, struct plan *plan, struct err *err);

// What takes most of a token's time in a stage, beside what the device can do at best: reading memory,
// arithmetic, commands one after the other, or the link to the next stage. percent: of the time of both. "-"
// where no limits were measured.
struct plan_bound {
    const char *by;
    double percent;
};
struct plan_bound plan_bound(const struct plan *p, uint32_t stage);
