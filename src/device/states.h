// states.h - the memory of layers that carry a state from row to row in place of keys and values.
//
// Each such layer has one buffer [n_states][n_words] of fp32. A row of it is the state of one sequence behind
// one of its tokens; what lies in it is the operations' own. The first rows are the slots' own, the others
// keep states behind earlier tokens (engine/kv/state.h). A step says for each of its rows where the state
// before it comes from and where the state behind it goes: an operation knows neither slots nor positions.
// The rows of a sequence are neighbours in a step, ascending. No row of the buffer is written twice in a
// step, or read by a sequence that did not write it there in an earlier step.
#pragma once
#include "base/lang.h"

#ifdef HOST_C
#include "device/tape.h"

// One layer's states, as operations record them.
struct state_rows {
    const struct buffer *buffer; // NULL: the layer has pages
    uint32_t n_words;
};
#endif
