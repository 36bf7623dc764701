// direct.h - ranks that exchange on their devices, without the host: their inboxes (device/exchange_inbox.h),
// and whether it works here.
//
// What it does not take over stays with collective.h.
#pragma once
#include "device/exchange_ranks.h"
#include "engine/stage/stage.h"

struct communicator;

// Who adds up what ranks have: chosen by the most rows of a step.
// COMMUNICATOR: the devices' library (device/communicator.h), between the segments of tapes.
enum exchange_kind { EXCHANGE_HOST, EXCHANGE_DEVICE, EXCHANGE_COMMUNICATOR };
enum exchange_kind direct_kind_of(uint32_t n_ranks, uint32_t max_rows, bool has_communicator);
// For tests and comparisons: the most rows of a step that devices add up in their graphs; 0: none.
// UINT32_MAX: as the table has it. Set before ranks are made.
extern uint32_t direct_most_rows;

struct direct {
    struct exchange_ranks ranks; // of none: they exchange through the host
    uint32_t n_exchanged;
};

// The ranks' stages are told.
// communicator: what takes over where it is faster, or NULL.
bool direct_open(struct direct *x, struct stage *const *ranks, uint32_t n,
                 const struct communicator *communicator, struct err *err);
void direct_close(struct direct *x); // zeroed is allowed; nobody plays
// Numbers a step and gets all ranks ready for it. *at_once: direct_play may play it.
bool direct_ready(struct direct *x, struct stage *const *ranks, struct step *step, bool *at_once,
                  struct err *err);
// Submits the step on all ranks, or all but the first one. Nobody waits.
bool direct_play(struct direct *x, struct stage *const *ranks, const struct step *step, bool first,
                 struct err *err);
void direct_count(struct direct *x, const struct tape *played); // after each step, however it was played
uint64_t direct_bytes(const struct direct *x);
