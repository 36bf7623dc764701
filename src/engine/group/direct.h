// direct.h - ranks that exchange on their devices, without the host: their inboxes (device/exchange.h), and
// whether it works here.
//
// For devices of one kind that reach each other's memory and can play exchanges: different GPUs with peer
// access. It is tried when the ranks are made, as some machines announce access and copy wrongly. What it
// does not take over stays with the host (collective.h).
#pragma once
#include "engine/stage/stage.h"

// Who adds up what ranks have: chosen by the most rows of a step.
enum exchange_kind { EXCHANGE_HOST, EXCHANGE_DEVICE };
enum exchange_kind exchange_kind_of(uint32_t n_ranks, uint32_t max_rows);
// For tests and comparisons: the most rows of a step that devices add up; 0: the host exchanges everything.
// UINT32_MAX: as the table has it. Set before ranks are made.
extern uint32_t direct_most_rows;

struct direct {
    uint32_t n; // ranks; 0: they exchange through the host
    struct exchange of[EXCHANGE_RANKS];
    struct buffer inboxes[EXCHANGE_RANKS];
    struct device *pinned_by;
    uint32_t *errors; // [n], pinned: the devices write them; see struct exchange
    uint32_t n_exchanged;
};

// Leaves n 0 where it cannot be; then it is not an error. The ranks' stages are told.
bool direct_open(struct direct *x, struct stage *const *ranks, uint32_t n, struct err *err);
void direct_close(struct direct *x); // zeroed is allowed; nobody plays
// Submits the step on all ranks, whose tapes have no borders.
bool direct_play(struct direct *x, struct stage *const *ranks, struct step *step, struct err *err);
// Whether all ranks have answered in the steps whose results are here.
bool direct_check(const struct direct *x, struct stage *const *ranks, struct err *err);
uint64_t direct_bytes(const struct direct *x);
