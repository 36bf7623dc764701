// place_ranks.h - which layers each rank has.
#pragma once
#include "engine/stage/place.h"

// A range for each rank, in their order: by borders ("4,8"), or, without, such that the largest share of
// weights and KV pages is as small as can be.
bool place_ranks(struct placement *p, const char *borders, const struct model *m,
                 const struct stage_shape *shape, uint32_t n_ranks, struct err *err);
// The same for `bytes` [n_layers], with a border wherever may_begin [n_layers] says so. False: there are not
// enough borders.
struct rank_shares {
    const uint64_t *bytes;
    const bool *may_begin;
    uint32_t n_layers, n_ranks;
};
bool place_ranks_evenly(const struct rank_shares *shares, struct placement *p, struct err *err);
