// exchange_cuda.h - the arguments of exchange.cu's kernels.
#pragma once
#include "base/lang.h"
#include "device/exchange_inbox.h"
#include "device/step.h"

// Blocks that a multiprocessor surely holds at once: they wait for the other rank's.
enum { EXCHANGE_THREADS = 256, EXCHANGE_FEW_BLOCKS = 4, EXCHANGE_MANY_BLOCKS = 2 };

struct exchange_peers {
    u64 to[EXCHANGE_RANKS];   // where this rank writes in each other rank's memory; 0: to nobody
    u64 from[EXCHANGE_RANKS]; // where each other rank's numbers arrive
    DEVICE_AT(u32) error;     // see struct exchange
    u32 rank, n;
};
struct all_reduce_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(float4) v; // [rows, n_cols] fp32, flat
    struct exchange_peers peers;
    u64 turn_bytes; // from one all-reduce's room to the next
    u32 index, n_cols, rows, reserved;
};
struct all_gather_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const float4) own; // [outputs, cols[rank]] fp32, flat
    DEVICE_AT(f32) whole;        // [outputs, all] fp32, of the first rank; else 0
    struct exchange_peers peers;
    u32 cols[EXCHANGE_RANKS], all, rows;
};
struct tell_params {
    DEVICE_AT(const struct step) step;
    DEVICE_AT(const u32) results; // [outputs], of the first rank; else 0
    DEVICE_AT(u32) history;       // [n_slots, history_stride]
    struct exchange_peers peers;
    u32 history_stride, reserved;
};
