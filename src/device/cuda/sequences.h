// sequences.h - which blocks of a grid find the beginnings of sequences among a step's rows, for operations
// whose states a block carries from row to row. Decode rows come first in a step, at most one for each
// output: there each row has a block, and behind them 32 rows have one, since sequences are long.
#pragma once
#include "device/step.h"

// n_single: rows with a block of their own.
SHARED_INLINE u32 sequence_singles(u32 max_rows, u32 max_outputs)
{
    return max_rows <= 64 || max_outputs > max_rows ? max_rows : max_outputs;
}
SHARED_INLINE u32 sequence_blocks(u32 max_rows, u32 n_single)
{
    return n_single + (max_rows - n_single + 31) / 32;
}

#ifdef __CUDACC__
static __device__ __forceinline__ bool sequence_goes_on(const struct step *step, u32 row)
{
    return row < step->n_rows && step_states_from(step)[row] == STATE_NEXT;
}

// Which of n rows from `row` on, 32 at most, begin the rows of a sequence, a bit each. The same in all lanes
// of a warp.
static __device__ __forceinline__ u32 sequence_begins(const struct step *step, u32 row, u32 n)
{
    u32 lane = threadIdx.x & 31;
    return __ballot_sync(~0u, lane < n && row + lane < step->n_rows && !sequence_goes_on(step, row + lane));
}

// sequence_begins() of the rows that block `at` of sequence_blocks() has. Sets `first`, its first row.
static __device__ __forceinline__ u32 sequence_begins_of(const struct step *step, u32 at, u32 n_single,
                                                         u32 &first)
{
    bool single = at < n_single;
    first = single ? at : n_single + (at - n_single) * 32;
    return sequence_begins(step, first, single ? 1 : 32);
}
#endif
