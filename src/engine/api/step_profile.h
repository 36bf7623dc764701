// step_profile.h - where the time of one step goes, command by command.
//
// A step of a given shape is played again and again, on the engine's own tapes, pages and links. Three times
// are kept apart. Plain: the step as it always runs. Stamped: the same with a note of when each command ran.
// Alone: a command repeated by itself. Plain and stamped plays take turns, so that what slows the machine
// slows both. Each mean is that of the middle half of the plays, and what stamped plays consist of is the
// mean over the same plays: so commands, waits, links and the rest add up to the stamped step. On a device
// that samples (a GPU), a stamped play has few cuts, as many as slow it by 2 %, at other places each time,
// and the commands' times come from all of them (step_fronts.h).
#pragma once
#include "engine/api/step_spread.h"
#include "engine/engine.h"
#include "ops/cost.h"

struct step_shape {
    uint32_t n_sequences, n_rows; // rows of each sequence, the last of which has logits
    uint32_t depth;               // tokens of each sequence before them
};

enum { NO_LAYER = UINT32_MAX, STEP_PROFILE_PLAYS = 100 };

struct profiled_command {
    const char *name, *label; // the tape's: valid while the engine is open
    uint32_t stage, layer;    // of the model; NO_LAYER: none
    uint32_t device;          // of the engine's
    bool barrier;             // before it
    struct cost cost;
    // stamped, mean of lanes: until the next one begins, or all before it have ended on a device that
    // samples; and of it, after its own end
    double ns, wait_ns;
    double alone_ns;
};

struct stage_spans { // of one stamped play, or of all on a device that samples
    uint32_t first_command, n_commands, device;
    struct play_times times;
};

struct step_profile {
    struct step_shape shape;
    bool is_timed;                     // every device can stamp; else plain and alone only
    struct profiled_command *commands; // [n_commands], of all stages
    uint32_t n_commands, n_barriers;
    double plain_ns[STEP_PROFILE_PLAYS], timed_ns[STEP_PROFILE_PLAYS]; // [n_plays], as they came
    uint32_t n_plays;
    double plain, timed;               // means of the middle halves
    double start_ns, link_ns, host_ns; // of `timed`: until lanes begin, between stages, the rest
    double cuts_ns;                    // of `timed`, and in no command: by cuts, as those of other plays cost
    struct stage_spans spans[MAX_STAGES]; // [n_stages] of one more play
    uint32_t n_stages;
    struct expert_spread *experts; // [n_experts], one a layer that has some, or NULL
    uint32_t n_experts;
};

struct step_profile_request {
    struct step_shape shape;
    double seconds;             // that plain and stamped plays may take together; at least a few of each
    bool alone;                 // measure commands alone too
    bool (*goes_on)(void *arg); // asked between plays; false: the profile fails with ERR_CANCELLED
    void *arg;
};

// No request may run. What sequences held is given back, but pages that nobody uses are overwritten.
// step_profile_release frees, also after a failure.
bool step_profile_run(struct ingot_engine *engine, const struct step_profile_request *request,
                      struct step_profile *profile, struct err *err);
// The same of the vision tower, for as many tiles as its first tape takes. The request's shape does not
// count. ERR_UNSUPPORTED: the model takes no pictures. Places of encoded tiles are overwritten.
bool step_profile_tower(struct ingot_engine *engine, const struct step_profile_request *request,
                        struct step_profile *profile, struct err *err);
void step_profile_release(struct step_profile *profile);
