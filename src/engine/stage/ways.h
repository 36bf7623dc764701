// ways.h - where a model does not fit: which changes would let it, with numbers.
#pragma once
#include "engine/stage/outline.h"

enum { WAYS_BYTES = 256 };

struct ways_request {
    const struct model *model;
    const struct stage_shape *shape; // that does not fit
    const uint64_t *room;            // [n_devices] bytes, in the order in which devices take layers
    uint32_t n_devices;
    uint64_t host_bytes; // for experts: memory that is none of the devices'; 0: there is none
    const struct outline_request *outline; // of one device: scratch to the byte. NULL: the rough sum
};

// Up to three, the cheapest first: "-ctk q8_0 -ctv q8_0; or -c 4096; or --experts cpu:20". Each fits by
// itself. The empty string: not even a smaller format would do.
void ways_out(const struct ways_request *r, char to[WAYS_BYTES]);
// Whether it fits as it is: each device takes all the layers that it can.
bool ways_fit(const struct ways_request *r);
// Of how many of the last layers, at least, the experts must go to the host's memory; 0: that does not help.
uint32_t ways_fewest_away(const struct ways_request *r);
// With the devices' rooms as they are now; memory that several of them share is the first one's.
struct ways_request ways_request_of(const struct devices *d, const struct model *m,
                                    const struct stage_shape *shape, uint64_t room[MAX_DEVICES]);
