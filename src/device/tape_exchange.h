// tape_exchange.h - tapes of ranks whose devices exchange by themselves: all-reduces and all-gathers are no
// borders then, but commands that the device plays (exchange_inbox.h).
#pragma once
#include "device/exchange_inbox.h"
#include "device/tape.h"

// What the first rank has drawn goes to the others' token history. results: NULL on the others. Nothing
// without an exchange: then the host tells them.
void tape_tell(struct tape *t, const struct buffer *results, const struct buffer *history,
               uint32_t history_stride);
// Before recording, on devices whose queue has `prepare`: the device exchanges by itself, within what x says.
// x, or NULL, outlives t.
void tape_exchange_on_device(struct tape *t, const struct exchange *x);
uint32_t tape_n_exchanges(const struct tape *t); // all-reduces that the device plays: see struct step
// Gets ready what a play needs, where the device does that by itself: ranks wait for each other's plays.
// *at_once: a play of the whole tape is one submission. Else it may wait for the device to go on, and every
// rank needs a thread that plays.
bool tape_prepare(struct tape *t, const struct buffer *step, bool *at_once, struct err *err);
