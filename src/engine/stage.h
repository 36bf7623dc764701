// stage.h - a run of layers on one device: its weights, its pages, and its tapes by row bucket.
#pragma once
#include "base/arena.h"
#include "device/step.h"
#include "engine/kv.h"
#include "models/model.h"
#include "ops/sample/sample.h"

enum { N_BUCKETS = 8 };

struct stage_shape { // the same for all stages of an engine
    uint32_t max_rows, max_outputs;
    uint32_t n_slots, max_pages, n_pages, log_stride;
    enum kv_format k_format, v_format;
    bool exact, parts, invariant;
    enum gemm gemm;
};

struct stage {
    struct device *device; // borrowed
    struct stage_shape shape;
    struct model_stage parts; // what recording needs; points into the fields below
    struct weight *weights;   // [n_weights], all that this stage owns
    void **joined;            // [n_weights]: bytes that a weight uses and that are not in the file as they are needed, or NULL
    uint32_t n_weights;
    struct arena *names;          // of the weights
    const struct weight **layers; // [layers, n_places]
    struct pages *pages;
    struct buffer *page_buffers; // [2 * layers]: K and V
    struct buffer table, log, block, logits, results, limits, step;
    struct bucket {
        uint32_t max_rows, max_outputs; // the key: steps up to this size
        struct tape *tape;              // NULL until first needed
    } buckets[N_BUCKETS];
};

// Called as each weight is taken over; false stops.
struct stage_progress {
    bool (*report)(void *arg, uint64_t done_bytes, uint64_t total_bytes);
    void *arg;
    uint64_t done, total;
};

struct layer_range {
    uint32_t first, last;
};

struct stage_plan {
    const struct model *model;
    struct device *device;
    struct layer_range layers;
    const struct stage_shape *shape;
    const struct buffer *pool; // rows of pictures that tokens may name, or NULL
};

struct stage_limits {
    const uint32_t *mask; // [sample_mask_words], or NULL
    const struct sample_bias *biases;
    uint32_t n_biases;
};

bool stage_create(struct stage *s, const struct stage_plan *plan, struct stage_progress *progress, struct err *err);
void stage_release(struct stage *s);

// The bucket for a step of this size, recorded and sealed if this is the first time. NULL on failure.
struct bucket *stage_bucket(struct stage *s, uint32_t n_rows, uint32_t n_outputs, struct err *err);
uint32_t stage_bucket_index(const struct stage *s, uint32_t n_rows, uint32_t n_outputs);
// Copies the step over and plays it. The step was laid out for the bucket.
bool stage_play(struct stage *s, const struct step *step, struct err *err);
// What output row i of the next step must obey. Last stage only.
bool stage_limits_write(struct stage *s, uint32_t i, const struct stage_limits *limits, struct err *err);
// Tells the device of the entries of a slot's page table that are new, from number `from` on.
bool stage_table_write(struct stage *s, const struct kv *kv, uint32_t slot, uint32_t from, struct err *err);
// Writes the first n tokens of a slot's log: those whose rows are not played, because their pages are shared.
bool stage_log_write(struct stage *s, uint32_t slot, const uint32_t *tokens, uint32_t n, struct err *err);
// Copies one page's K and V of all layers from *at, or to it, and moves *at behind them.
bool stage_page_move(struct stage *s, uint32_t page, unsigned char **at, bool to_device, struct err *err);
uint64_t stage_page_bytes(const struct stage *s);
