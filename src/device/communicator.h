// communicator.h - what ranks exchange by themselves, on devices of one kind: a device's own all-reduce and
// gather, in order with what each rank plays. No thread waits and nothing goes through the host.
//
// Each rank's thread calls for its own rank, and all ranks call the same functions in the same order. What a
// device puts behind this is its own affair; device/cuda/nccl.c is NVIDIA's library.
#pragma once
#include "device/device.h"
#include "device/exchange_inbox.h"

enum { COMMUNICATOR_ID_BYTES = 128 };

struct communicator_shape {
    uint32_t n;                         // ranks of one process
    uint32_t part_cols[EXCHANGE_RANKS]; // columns that each rank contributes to the gather
    uint32_t max_rows;                  // of it
};

struct communicator_place { // of one rank among processes
    uint32_t n, rank;
    unsigned char id[COMMUNICATOR_ID_BYTES]; // made by one of them, the same for all
};

struct communicator;

struct communicator_gather {
    const struct buffer *part; // [n_rows, the rank's part_cols] fp32
    struct buffer *whole;      // the first rank's [n_rows, all part_cols]; NULL on the others
    uint32_t n_rows;
};

// False: an error, or the exchange has ended since another rank failed; that rank's error is not repeated,
// and *err stays as it was.
struct communicator_ops {
    // In place, fp32: element i < n of the rank's b becomes the sum of element i of all ranks.
    bool (*all_reduce)(struct communicator *x, uint32_t rank, struct buffer *b, uint64_t n, struct err *err);
    bool (*gather)(struct communicator *x, uint32_t rank, const struct communicator_gather *at,
                   struct err *err);
    // Between processes: the first n fp32 numbers go to that rank's buffer, which receives as many.
    bool (*send)(struct communicator *x, const struct buffer *b, uint64_t n, uint32_t to, struct err *err);
    bool (*receive)(struct communicator *x, struct buffer *b, uint64_t n, uint32_t from, struct err *err);
    // A rank has failed: whatever the others wait for ends, and nothing is exchanged any more. Any thread.
    void (*stop)(struct communicator *x);
    // False: it was stopped; what has been computed since may be wrong. Any thread.
    bool (*check)(struct communicator *x, struct err *err);
    void (*close)(struct communicator *x); // before the devices
};

struct communicator {
    const struct communicator_ops *ops;
    char name[32]; // "NCCL 2.27.3"
};
