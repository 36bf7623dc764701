// cost.h - what a command must at least move and compute in a step, from the tape alone and equal for all
// devices.
//
// Weights count once a step, values as often as the command reads or writes them; a kernel's own workspace
// and tables of a few words do not count. Of experts those are read that n rows choose if each chooses
// evenly. Operations count in products: two for each weight a row is multiplied with, and those of attention.
#pragma once
#include "device/tape.h"

struct cost {
    double weight_bytes, page_bytes, value_bytes; // page: K and V that are read or written
    double operations;
};
struct cost cost_of_command(const struct tape *t, const struct command *c, const struct step *step);

static inline double cost_bytes(const struct cost *c)
{
    return c->weight_bytes + c->page_bytes + c->value_bytes;
}
