// hub_files.h - the files of a repository, whether the hub listed them or the cache holds them, and the
// models among them.
//
// A GGUF file is a model of its own, the parts of a split one together; a safetensors folder is one, with its
// JSON files. File names alone decide which files are a model. Names are not trusted: only those that
// hub_path_safe allows are kept.
#pragma once
#include "hub/hub.h"

enum { HUB_MAX_FILES = 20000 };
#define HUB_NO_FILE UINT32_MAX

struct hub_file {
    struct str path;
    char oid[HUB_OID + 1]; // SHA-256 (64 digits) or git's object id (40)
    uint64_t bytes;
};

struct hub_files {
    char commit[HUB_COMMIT + 1];
    struct hub_file *at;
    size_t n;
};

// Sorts by path, as the other functions expect; of two files with the same path one stays.
void hub_files_sort(struct hub_files *files);

struct hub_model {
    struct str quant; // "Q4_K_M", upper case; "safetensors"; empty when the name has none
    bool folder;      // the model is the folder, not the first file
    bool whole;       // no part of a split model is missing
    uint32_t *files;  // by index; the one that a program opens, or that makes the folder a model, comes first
    size_t n_files;
    uint64_t bytes;
};

struct hub_models {
    struct hub_model *at;
    size_t n;
};

// Everything lives in the arena. False without memory.
bool hub_models_find(const struct hub_files *files, struct hub_models *models, struct arena *arena,
                     struct err *err);

// The model that a name selects: its quant or file; without either Q4_K_M, else the only GGUF file, else the
// safetensors folder where there is no GGUF file. NULL: ERR_NOT_FOUND, and the message lists the models.
const struct hub_model *hub_models_choose(const struct hub_files *files, const struct hub_models *models,
                                          const struct hub_name *name, struct err *err);

// The vision projector (mmproj) of a GGUF model, by index: one for all models of its folder, since an engine
// takes the only mmproj*.gguf beside a model. HUB_NO_FILE: there is none.
uint32_t hub_model_eyes(const struct hub_files *files, const struct hub_model *model);
// Whether another GGUF model of the folder has the same.
bool hub_model_shares_eyes(const struct hub_files *files, const struct hub_models *models,
                           const struct hub_model *model);
