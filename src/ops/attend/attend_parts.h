// attend_parts.h - the parts of a row's attention as what the product behind reads on Metal: one launch and
// one barrier less than with a kernel that merges them. attend_metal.h has their layout.
#pragma once
#include "device/fuse.h"

// Rows packed as parts in spans of ATTEND_SPAN, with room for ATTEND_MOST_PARTS; n_cols is a multiple of the
// span.
extern const struct tape_packing attend_parts;
// The command writes several parts for each row of such a tape, in spans of ATTEND_SPAN.
bool attend_has_parts(const struct command *c, const struct tape_limits *limits);
