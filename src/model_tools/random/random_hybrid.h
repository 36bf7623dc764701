// random_hybrid.h - the recurrent layers of random models that have some.
#pragma once
#include "format/gguf_write.h"

struct random_hybrid {
    const char *name;                   // of the shape
    uint32_t attention;                 // bit l: layer l has attention; 0: every fourth layer
    uint32_t n_k_heads, n_v_heads, dim; // of a delta net; 0: a short convolution instead
    uint32_t kernel;
    bool drafts; // behind its layers lies one with attention that drafts
};

enum { RANDOM_HYBRID_TENSORS = 9 };
struct random_hybrid_tensor {
    const char *part;        // behind "blk.N."
    uint64_t n_rows, n_cols; // n_rows 0: a vector
};

const struct random_hybrid *random_hybrid_find(const char *name); // NULL: the shape has no recurrent layers
bool random_hybrid_attends(const struct random_hybrid *h, uint32_t l);
// Layers up to the first with attention, where the file lists them; else 1.
uint32_t random_hybrid_fewest(const struct random_hybrid *h);
// What a layer that drafts has beside what the others have.
uint32_t random_hybrid_draft(uint64_t n_cols, struct random_hybrid_tensor tensors[RANDOM_HYBRID_TENSORS]);
// The tensors of a recurrent layer, in place of attention's; returns how many.
uint32_t random_hybrid_tensors(const struct random_hybrid *h, uint64_t n_cols,
                               struct random_hybrid_tensor tensors[RANDOM_HYBRID_TENSORS]);
// The keys of arch; n_kv_heads: of layers with attention; n_rotated: places of a head that turn.
void random_hybrid_keys(const struct random_hybrid *h, struct gguf_writer *w, const char *arch,
                        uint32_t n_layers, uint32_t n_kv_heads, uint32_t n_rotated);
