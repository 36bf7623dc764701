// load_shape.h - the sizes of an engine's steps, and the formats of its pages, as the options ask and the
// model permits.
#pragma once
#include "engine/engine.h"

enum { LOAD_LEAST_ROWS = 512 }; // of a step, unless n_batch asks for fewer
// The rows of a step on GPUs where nothing is asked for: so many, up to 2,048, that their products are not
// more than those of 512 rows through 8 billion weights, or through all of the model's. A mixture multiplies
// with few of its weights and reads all of them, however many rows there are.
uint32_t load_rows_of(uint64_t n_weights, uint64_t n_active);
// Context, rows and outputs.
bool load_sizes_choose(struct engine_loaded *l, struct err *err);
// Pages, states and the index of prompts: no memory of a device.
bool load_kv_make(struct engine *e, struct err *err);
// As the first device computes; the others may differ in what is exact.
bool load_shape_choose(const struct engine *e, struct stage_shape *shape, struct err *err);
bool load_is_exact(const struct engine_loaded *l, uint32_t device);
