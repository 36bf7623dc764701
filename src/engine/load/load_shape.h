// load_shape.h - the sizes of an engine's steps, and the formats of its pages, as the options ask and the
// model permits.
#pragma once
#include "engine/engine.h"

// Context, rows and outputs.
bool load_sizes_choose(struct engine_loaded *l, struct err *err);
// As the first device computes; the others may differ in what is exact.
bool load_shape_choose(const struct engine *e, struct stage_shape *shape, struct err *err);
bool load_is_exact(const struct engine_loaded *l, uint32_t device);
