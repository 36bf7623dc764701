// model_eyes.h - the eyes of a model, found as an engine finds them, without loading them.
#pragma once
#include "format/model_file.h"
#include "models/vision/tower.h"

struct model_eyes {
    struct model_file *file; // of their own; NULL: the model's, or there are none
    struct tower tower;      // bound only when `known`
    bool known;
    struct err unknown; // why eyes that are there cannot be used; an empty message: there are none
};

// Those of the model at `path`, opened as `file`: in the same file, inside the library, or in the mmproj file
// beside it. n_out: the model's width; 0: the file is an mmproj file itself, or a model that cannot be run.
void model_eyes_find(struct model_eyes *e, const char *path, const struct model_file *file, uint32_t n_out);
void model_eyes_close(struct model_eyes *e); // zeroed is allowed
