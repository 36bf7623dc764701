// load_split.h - tensor parallel: what each rank has of the model, and what does not go together with it.
#pragma once
#include "engine/engine.h"

// Whether every layer is cut over several ranks.
bool load_split_is_asked(const struct ingot_engine_options *options);
// Nothing to do unless it is asked for. Before devices are opened: refuses options that do not go together
// with it, and makes the parts, which tells what of the model cannot be cut.
bool load_split_make(struct engine_loaded *l, struct err *err);
// The devices are open: one for each rank, all of one kind.
bool load_split_check_devices(const struct engine_loaded *l, struct err *err);
// The shape as rank i has it, which differs in its adapters and its part of the eyes.
struct stage_shape load_split_shape(const struct engine_loaded *l, const struct stage_shape *shape,
                                    uint32_t i);
// Bytes of the ranks' weights in their files.
uint64_t load_split_weights(const struct engine_loaded *l, const struct stage_shape *shape);
// Before the memory that is left is looked at: the ranks' devices get a communicator, if they have one.
void load_split_connect(struct engine_loaded *l);
// The other ranks of the engine's one stage, which exists. pool: that stage's, of pictures, or NULL.
bool load_split_stages(struct engine_loaded *l, const struct stage_shape *shape, const struct buffer *pool,
                       struct stage_progress *progress, struct err *err);
void load_split_release(struct engine_loaded *l); // the parts; their stages are released
// Bytes of rank i's inbox, where the devices are likely to exchange by themselves (group/direct.h).
uint64_t load_split_inbox(const struct engine_loaded *l, const struct stage_shape *shape, uint32_t i);
