// group.h - the ranks that have a part of every layer each: the first is the engine's stage, the others are
// stages beside it, on devices of their own.
//
// Where they can, their devices exchange by themselves (direct.h): a step is submitted on all ranks and
// nobody waits. Else a thread for each rank plays its tape; where tapes have borders (tape_all_reduce,
// tape_all_gather) the ranks exchange (collective.h), in the host's memory where their devices have no
// communicator. So it works on any device, and devices of one kind alone: all ranks must choose the same
// experts, by the same bits. An error of one rank ends the step on all of them.
#pragma once
#include "engine/stage/stage.h"

struct rank_group;

struct group_plan {
    const struct model *parts;     // [n], of split/model_part.h; outlive the group
    struct device *const *devices; // [n], borrowed
    uint32_t n;                    // at most EXCHANGE_RANKS
    const struct stage_shape *shape;
    const struct buffer *pool;         // the first rank's rows of pictures, or NULL
    const struct adapters *adapters;   // or NULL
    struct communicator *communicator; // the devices' own, borrowed; or NULL
};

// Loads the other ranks; `first`, a whole model's part 0, exists, and is told of them.
bool group_create(struct rank_group **group, struct stage *first, const struct group_plan *plan,
                  struct stage_progress *progress, struct err *err);
void group_free(struct rank_group *g); // before the first stage is released; NULL is allowed
// Copies a range of the pool to the other ranks', once the first one's device has computed it.
bool group_share_pool(struct rank_group *g, uint64_t offset, uint64_t bytes, struct err *err);
uint64_t group_pool_bytes(const struct rank_group *g); // of the other ranks
// stage_play of all ranks. The results are on the first one's device.
bool group_play(struct rank_group *g, struct step *step, struct err *err);
// The same on all but the first, whose caller then writes the step, which was numbered, and plays the tape:
// for a profile. Where the group goes ahead.
bool group_play_others(struct rank_group *g, struct step *step, struct err *err);
// Whether a step may be played before the results of the one before are known.
bool group_goes_ahead(const struct rank_group *g);
// Whether all ranks have answered each other, once results are here.
bool group_check(const struct rank_group *g, struct err *err);
uint64_t group_inbox_bytes(const struct rank_group *g);
