// exchange_ranks.h - makes what ranks exchange through (exchange_inbox.h), for devices of one kind that reach
// each other's memory and can play exchanges: different GPUs with peer access.
#pragma once
#include "device/device.h"
#include "device/exchange_inbox.h"

struct exchange_shape {
    uint32_t n, most_rows, n_cols, max_outputs; // n_cols: of what is added up
    uint32_t part_cols[EXCHANGE_RANKS];
};
struct exchange_ranks {
    uint32_t n; // 0: they cannot exchange by themselves
    struct exchange of[EXCHANGE_RANKS];
    struct buffer inboxes[EXCHANGE_RANKS];
    struct device *pinned_by;
    uint32_t *errors; // [n], pinned: the devices write them; see struct exchange
};

uint64_t exchange_inbox_bytes(const struct exchange_shape *shape, uint32_t rank);
// Leaves n 0 where it cannot be; then that is no error.
bool exchange_open(struct exchange_ranks *x, struct device *const *devices,
                   const struct exchange_shape *shape, struct err *err);
void exchange_close(struct exchange_ranks *x); // zeroed is allowed; nobody plays
// Whether all ranks have answered each other in the plays that are over.
bool exchange_check(const struct exchange_ranks *x, struct err *err);
