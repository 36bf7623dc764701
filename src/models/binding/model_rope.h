// model_rope.h - the tables of angles of a bound model.
#pragma once
#include "models/model.h"

// Makes m->frequencies and m->angle_scale, for a context of m->config.n_context tokens.
bool model_rope_make(struct model *m, struct err *err);
// One of the two lists of a checkpoint with ROPE_LONG. Free with mem_free.
bool model_rope_list(const struct model *m, bool is_long, float **list, struct err *err);
