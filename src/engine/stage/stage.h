// stage.h - a range of layers on one device: weights, KV pages, and a tape per row bucket.
#pragma once
#include "base/arena.h"
#include "device/step.h"
#include "engine/kv/kv.h"
#include "device/tape.h"
#include "models/model.h"
#include "ops/sample/sample.h"

// SHARE_ROWS: of the smallest bucket for several sequences. Each step reads all weights: fewer answers are
// not divided among steps of stages that have threads.
enum { N_BUCKETS = 10, SHARE_ROWS = 8 };

struct stage_shape { // the same for all stages of an engine
    uint32_t max_rows, max_outputs;
    uint32_t n_slots, max_pages, n_pages, history_stride;
    uint32_t n_windows; // pages of layers with a window; 0: these have n_pages too
    uint32_t n_states;  // rows of every recurrent layer: one for each slot, then those that are kept
    enum kv_format k_format, v_format;
    bool exact, parts, invariant, far_rows; // far: the table of the layers' inputs is in the host's memory
    enum gemm gemm;
    float memory_share;                  // of a device's room that may be used; 0: all of it
    uint64_t eyes_weights, eyes_scratch; // bytes of a tower that will be opened on the first device
    uint64_t eyes_pool;                  // of its embeddings, for each rank of a layer but the first
    uint64_t adapter_bytes;              // of all adapters, evenly over the layers
    uint32_t adapter_ranks;              // of all adapters of one matrix
    uint32_t n_away; // of the model's last layers, whose experts are on a device of their own
    bool drafts;     // the model's layer that drafts is beside the last stage
    bool overlaps;   // stages whose links go through the host compute at the same time (engine/flight)
};

struct away;     // stage/away.h
struct adapters; // stage/adapters.h

struct stage {
    struct device *device; // borrowed
    struct stage_shape shape;
    struct model_stage parts; // what recording needs; points into the fields below
    struct weight *weights;   // [n_weights], all that this stage owns
    void **joined; // [n_weights]: bytes of a weight that the file does not hold in the needed form, or NULL
    uint32_t n_weights;
    struct thread_pool *readers;  // of what `joined` holds, while weights are taken; NULL: not needed
    struct arena *names;          // of the weights
    const struct weight **layers; // [layers, n_places]
    struct pages *pages;
    struct buffer *page_buffers; // [2 * layers]: K and V, or K and nothing, or nothing
    struct state_rows *states;
    struct buffer *state_buffers; // [layers]; nothing where there are pages
    struct buffer inputs;         // see struct model_stage
    struct buffer table, window_table, history, block, logits, results, mask_bias, step;
    struct buffer sums, head_part;      // of a rank of several, see struct model_stage
    bool borrows_block, borrows_tables; // of the stage before: the block; tables and history
    bool is_experts;                    // of the experts of its layers alone: no pages, tables or logits
    bool is_draft;                      // the layer that drafts, on what the stage before leaves in its block
    bool is_probe;                      // timed by itself: layers before it may be missing
    struct away *away;                  // the experts that another device has, or NULL
    // The other ranks of its layers (engine/group), with tables, pages and tapes of their own; borrowed. What
    // is written, moved or counted below is so on all of them, but playing and watching.
    struct stage *others;
    uint32_t n_others;
    const struct exchange *exchange; // of a rank whose device exchanges by itself, or NULL; borrowed
    struct lora_weight *loras;       // [n_loras] what adapters add to some of the weights
    struct buffer scales;            // [n_slots, n_adapters] fp32
    uint32_t n_loras, n_adapters;
    struct device *pinned_by; // the block's memory is that device's pin; or NULL
    struct tape_watch watch;  // before NULL: nobody looks at the commands
    struct bucket {
        uint32_t max_rows, max_outputs; // the key: steps up to this size
        struct tape *tape;              // NULL until first needed
    } buckets[N_BUCKETS];
};

// Called after each weight; false stops loading.
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
    const struct buffer *pool;       // rows of pictures that tokens may name, or NULL
    const struct stage *before;      // the stage whose block this one reads; NULL: none
    struct device *experts;          // runs the experts of the layers that shape->n_away counts
    bool experts_exact;              // as shape->exact, for that device
    bool is_experts;                 // this is their stage
    bool is_draft;                   // layers is the one that drafts; `before` has the head
    bool is_probe;                   // timed by itself: layers before it may be missing
    const struct adapters *adapters; // or NULL
};

struct stage_constraint { // of one output row
    const uint32_t *mask; // [sample_mask_words], or NULL
    const struct sample_bias *biases;
    uint32_t n_biases;
};

bool stage_create(struct stage *s, const struct stage_plan *plan, struct stage_progress *progress,
                  struct err *err);
void stage_release(struct stage *s);

// The bucket for a step of this size; its tape is recorded and sealed on first use. NULL: error.
struct bucket *stage_bucket(struct stage *s, uint32_t n_rows, uint32_t n_outputs, struct err *err);
// Index of a step's first id in the results; fetch: the step's, as for device_fetch.
uint32_t stage_results_at(const struct stage *s, uint32_t fetch);
uint32_t stage_bucket_index(const struct stage *s, uint32_t n_rows, uint32_t n_outputs);
// Copies the step to the device and plays it. The step was laid out for the bucket.
bool stage_play(struct stage *s, const struct step *step, struct err *err);
// The two halves of it: a segment of the bucket's tape.
bool stage_step_write(struct stage *s, const struct step *step, struct err *err);
bool stage_play_segment(struct stage *s, const struct bucket *b, uint32_t segment, struct err *err);
// Before every command of the stage, and of its experts elsewhere.
void stage_watch(struct stage *s, struct tape_watch watch);
// Writes the logit mask and biases of output row i of the next step. Last stage only.
bool stage_constraint_write(struct stage *s, uint32_t i, const struct stage_constraint *constraint,
                            struct err *err);
// Writes the entries of a slot's page table from index `from` to the device.
bool stage_table_write(struct stage *s, const struct kv *kv, uint32_t slot, uint32_t from, struct err *err);
// The same for the window pages that the slot holds.
bool stage_window_table_write(struct stage *s, const struct kv *kv, uint32_t slot, uint32_t from,
                              struct err *err);
// Of the slot's pages from `from` on, those whose window pages it holds.
struct layer_range stage_held_windows(const struct kv *kv, uint32_t slot, uint32_t from);
// The entries as numbers of pages, or of window pages: entries.last - entries.first of them.
bool stage_window_pages_write(struct stage *s, uint32_t slot, struct layer_range entries,
                              const uint32_t *pages, struct err *err);
bool stage_pages_write(struct stage *s, uint32_t slot, struct layer_range entries, const uint32_t *pages,
                       struct err *err);
// Writes the first n tokens of a slot's history: their rows are not played, since their pages are shared.
bool stage_history_write(struct stage *s, uint32_t slot, const uint32_t *tokens, uint32_t n, struct err *err);
// Copies the K and V of one page, of all layers without window pages, from or to *at, and advances *at.
typedef bool stage_mover(struct stage *s, uint32_t index, unsigned char **at, bool to_device,
                         struct err *err);
bool stage_page_move(struct stage *s, uint32_t page, unsigned char **at, bool to_device, struct err *err);
// The same for a page of these layers.
bool stage_window_move(struct stage *s, uint32_t page, unsigned char **at, bool to_device, struct err *err);
uint64_t stage_page_bytes(const struct stage *s); // of all pages, window pages included
// The pieces of such a page on the stage's device, whose bytes are at *at, which goes on behind them. Of a
// stage without others. Returns how many: at most 2 for each layer.
uint32_t stage_page_pieces(struct stage *s, uint32_t page, const unsigned char **at,
                           struct device_piece *pieces);
// The same for a row of the states.
bool stage_state_move(struct stage *s, uint32_t row, unsigned char **at, bool to_device, struct err *err);
