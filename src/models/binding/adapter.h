// adapter.h - a LoRA adapter (Hu et al., 2021) bound to a model: what it adds to which matrix.
//
// Two kinds of files: GGUF, as llama.cpp's converter writes it (general.type adapter; NAME.lora_a [rank,
// cols], NAME.lora_b [rows, rank]), and the folder that PEFT writes. Either goes with a model of either
// format: the rows of q and k, and heads of values that lie in groups, are put into the order of the model's.
// Refused by name: what is no plain pair of matrices (DoRA, biases, whole modules), what is added to an
// embedding or to experts.
#pragma once
#include "base/sha256.h"
#include "models/arch.h"

enum { ADAPTER_MOST_RANKS = 1024 };

struct adapter_part { // what it adds to one matrix
    const struct weight_key *key;
    uint32_t layer;                  // of key; 0 outside of layers
    const struct file_tensor *a, *b; // [rank, cols], [rows of the tensor that has the matrix, rank]
    uint32_t rank;
    float factor; // alpha / rank, or over its root
};

struct adapter {
    const struct model *model; // borrowed
    struct model_file *file;   // owned
    double alpha;
    uint64_t rank; // of adapter_config.json; 0: not said
    bool by_root;  // rsLoRA (Kalajdzievski, 2023)
    struct adapter_part *parts;
    uint32_t n_parts;
    struct sha256 digest; // of all that it adds
};

// Opens the file and checks every number. The message names what is missing, misshapen or unknown.
bool adapter_open(struct adapter *a, const struct model *m, const char *path, struct err *err);
// The same of a file that is open, which belongs to *a from then on, also after a failure.
bool adapter_bind(struct adapter *a, const struct model *m, struct model_file *file, struct err *err);
void adapter_close(struct adapter *a); // a zeroed one is allowed
// What it adds to the matrix at a place of a layer, or of what is outside of layers. NULL: nothing.
const struct adapter_part *adapter_find(const struct adapter *a, bool per_layer, uint32_t layer,
                                        uint32_t place);
// The two matrices as lora wants them: down [rank, cols]; up [rank, rows of the matrix], with the factor.
bool adapter_read(const struct adapter *a, const struct adapter_part *part, float *down, float *up,
                  struct err *err);
// Rows and columns of the model's matrix.
uint32_t adapter_rows(const struct adapter *a, const struct adapter_part *part);
uint32_t adapter_cols(const struct adapter *a, const struct adapter_part *part);

// adapter_config.c: what the file says beside its tensors. False: it is no LoRA adapter of such a model, or
// one of a kind that is refused.
bool adapter_config_read(struct adapter *a, struct err *err);
// The factor of a module of this rank.
bool adapter_config_factor(const struct adapter *a, struct str module, uint32_t rank, float *factor,
                           struct err *err);
