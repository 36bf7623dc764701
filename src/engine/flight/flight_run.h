// flight_run.h - how an engine's steps follow each other before they are over.
#pragma once
#include "engine/engine.h"

// Why stages whose links go through the host take one step at a time, in words: something needs a step's end
// before the next begins, or the devices compete for the same processors. NULL: they compute at the same
// time. For several devices.
const char *flight_in_turn(const struct engine *e, const struct stage_shape *shape);
// As many steps in flight as the stages that exist allow, and threads for them.
bool flight_open(struct engine *e, struct err *err);
// The threads, whatever flight_in_turn says. At least two devices, linked by the host.
bool flight_start(struct engine *e, uint32_t n_sections, struct err *err);
void flight_close(struct engine *e);

// The state lock is held. Whether there is one answer alone, with nothing in flight: its next row needs the
// token of the one before, so the engine's thread plays all stages itself, and may have drafts.
bool flight_waits_for_one(const struct engine *e);
// `stepping` is held for these two. Submits e->batch, and waits for the oldest step once there are as many as
// can be, or there is nothing new. e->batch is then that one, or empty.
bool flight_run(struct engine *e, struct err *err);
// Waits until no thread uses the stages' devices (what is in flight is played to its end, and delivered in
// later steps as it would have been), then copies a page, a window page or a state's row of all stages to
// at[their bytes], or back: stage_page_move and its kin.
bool flight_move(struct engine *e, stage_mover *mover, uint32_t index, unsigned char *at, bool to_device,
                 struct err *err);
