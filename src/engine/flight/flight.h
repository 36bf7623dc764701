// flight.h - steps that are on their way through stages on several devices at once, the oldest first.
//
// While one device computes its layers of a step, the one before it computes the next step: other sequences,
// or the next rows of a prompt. A sequence has no answer's row in two of them, since the second needs the
// token of the first. Devices that pass activations to each other are played one behind the other by the
// engine's thread; stages on CPUs, and on Metal beside them, have threads (pipeline.h). Else, and on one
// device, there is one step at a time.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "engine/stage/batch.h"

struct flight {
    struct batch *at[MOST_FLIGHTS]; // [n], the oldest first; then those that are idle, [most - n]
    uint32_t n, most;               // most: 1 without flights
    uint32_t n_shares;              // the answers are shared out evenly among so many steps
    uint64_t ended_ns;              // of the step that was over last
};

// like: the engine's batch, as large as which the others are.
bool flight_create(struct flight *f, uint32_t most, const struct batch *like, struct err *err);
void flight_release(struct flight *f);
// The batch has been played. Returns an idle one for the next step.
struct batch *flight_begin(struct flight *f, struct batch *played);
// Takes the oldest out; `idle` is put back.
struct batch *flight_end(struct flight *f, struct batch *idle);
uint32_t flight_n_with_answers(const struct flight *f);        // steps that have rows of answers
void flight_forget(struct flight *f, const struct request *r); // drops its outputs
