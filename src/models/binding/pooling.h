// pooling.h - how a model makes a vector or a score of a text's rows.
#pragma once
#include <stdint.h>

// How an embedding model makes one vector of a text's rows, as its file says. RANK: a score, from the last
// row or an encoder's first one.
enum model_pooling { POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST, POOLING_RANK };
struct model_embedder {
    enum model_pooling pooling; // NONE: the file says nothing
    uint32_t n_labels;          // rows of a reranker's last product; 0: it has none
    uint32_t n_hidden;          // numbers between the two products behind pooling; 0: there are none
    uint32_t n_vector;          // numbers of an embedding
};
