// embedder.h - what a file says of a model's embeddings: pooling, and the sizes of the products behind it.
#pragma once
#include "models/model.h"

// Fills m->embedder. GGUF: the key pooling_type. Checkpoints: 1_Pooling/config.json of sentence-transformers.
// Sizes are those of the tensors; config has been read.
bool embedder_read(struct model *m, struct err *err);
// Whether the model takes all that its folder has behind pooling. After its tensors are bound.
bool embedder_check(const struct model *m, struct err *err);
