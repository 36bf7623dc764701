// step_fronts.h - the time of each command from plays that were cut at a few places each.
//
// The front at a command is the moment at which all commands before it have ended, from the play's begin on.
// A cut shows the front there and holds the play up; plays are cut at different places, so that every front
// is seen. A command's time is from its front to the next one: what the step gains by it, however much it
// overlaps with its neighbours. All of them are the play, without what the cuts took.
#pragma once
#include "base/err.h"
#include "device/device_timing.h"

struct fronts {
    uint32_t n_commands, every; // a play has the cuts first, first + every, ..., with first from 1 to every
    uint32_t room;              // samples of a front
    uint32_t *n;                // [n_commands]
    double *samples;            // [n_commands][room]
};

bool fronts_open(struct fronts *f, uint32_t n_commands, uint32_t every, uint32_t n_plays, struct err *err);
void fronts_close(struct fronts *f); // a zeroed one is allowed
uint32_t fronts_n_cuts(uint32_t n_commands, const struct play_cuts *cuts);
// ns: as device_sampling.read tells them, n_cuts + 1.
void fronts_add(struct fronts *f, uint32_t first, const double *ns);
// The time of each command in a play without cuts, whose end shows at `end`, and the first command's begin
// would at `begin`: what is before it is the price of showing both. False: out of memory.
bool fronts_solve(struct fronts *f, double begin, double end, double *ns, struct err *err);
