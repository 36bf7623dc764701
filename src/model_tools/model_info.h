// model_info.h - the contents of a model file and the memory it will need, found without loading it.
#pragma once
#include "format/model_file.h"
#include "engine/stage/place.h"
#include "model_tools/model_eyes.h"

struct model_info {
    struct model_file *file;
    struct model model; // bound only when `known`
    bool known;         // the architecture is supported and every tensor is there
    struct err unknown; // else: why not
    struct model_eyes eyes;
    // The rest only when known.
    uint64_t n_active;          // parameters that one token uses: the chosen experts, a row of the embedding
    uint32_t n_context;         // context that the memory is computed for
    uint64_t read_bytes;        // of weights, for one token
    uint64_t kv_bytes;          // of one position's K and V in F16
    struct place_memory memory; // of an engine with one sequence and F16 pages
};

// path NULL: the built-in model for text. n_context 0: as the engine chooses. False when the file cannot be
// read at all.
bool model_info_open(struct model_info *s, const char *path, uint32_t n_context, struct err *err);
void model_info_close(struct model_info *s);
