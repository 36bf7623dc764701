// safetensors.h - reads safetensors files and the JSON beside them into a model_file. Private to format/.
#pragma once
#include "format/directory.h"

// file->path: a folder, or one .safetensors file in it.
bool safetensors_open(struct model_file *file, struct err *err);
// file->path: a folder with adapter_config.json and adapter_model.safetensors, or such a file in one.
bool safetensors_open_adapter(struct model_file *file, struct err *err);

// Called for each tensor of a header, before it is added; false ends the reading.
struct safetensors_visit {
    bool (*tensor)(void *owner, struct str name, struct err *err); // NULL: none
    void *owner;
    struct str prefix; // that the tensors' names get
};
// The tensors of one file's bytes.
bool safetensors_read(struct model_file *file, struct str bytes, struct safetensors_visit visit,
                      struct err *err);
