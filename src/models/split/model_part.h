// model_part.h - the part of every layer that one of several ranks has.
//
// A part is a model like the whole, with fewer heads, hidden numbers and rows of the head: the rows of q, k,
// v, gate, up and the head, the columns of o and down, of each expert too. The embedding, norms, routers and
// all that is small stay whole. Recording (blocks.h) puts a border where ranks add up. Matrices are cut where
// the blocks of their columns end, heads never: parts differ by such a piece where pieces do not divide
// evenly. Of latent attention a rank has its heads, and the latents of all.
#pragma once
#include "models/model.h"

// Rank `rank` of n_ranks, which are 2 or more. The whole must outlive it. The message names what cannot be
// cut.
bool model_part_make(struct model *part, const struct model *whole, uint32_t rank, uint32_t n_ranks,
                     struct err *err);
void model_part_release(struct model *part); // zeroed is allowed

struct part_window { // of a matrix of the whole
    uint32_t first_row, n_rows, first_col, n_cols;
};
// Of one of the part's matrices. False: it was not cut.
bool model_part_window(const struct model *part, const struct file_tensor *t, struct part_window *w);
