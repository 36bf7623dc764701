// place.h - placement: which layers form which stage, and the memory that they need.
#pragma once
#include "engine/stage/stage.h"

enum { MAX_STAGES = 64 };

struct placement {
    struct layer_range layers[MAX_STAGES]; // [n], rising, all layers
    uint32_t device[MAX_STAGES];           // [n], which of the engine's devices
    uint32_t n;
};

// Parses "4,8": a new stage begins at layers 4 and 8. Several devices take a stage each, in their order; one
// device takes all stages, without borders one.
bool place_stages(struct placement *p, const char *borders, uint32_t n_layers, uint32_t n_devices,
                  struct err *err);

// Bytes that an engine of this shape needs, computed before loading. Scratch is a rough sum, for choosing
// among ways; outline.h has it exactly. Weights count with their size in the file: where the device has a
// copy of its own, the file's memory is released. A range of layers counts the embedding with the first
// layer, and the last norm and the head with the last one. Experts that are away count apart.
struct place_memory {
    uint64_t weights, pages, scratch;      // pages: and the states of recurrent layers
    uint64_t copied;                       // of the weights: what no device can use as it lies in the file
    uint64_t tower_weights, tower_scratch; // of the weights and of scratch: a tower's that reads pictures
    uint64_t far; // beside the weights: a table in the host's memory (stage_shape.far_rows)
};
// Whether no layer needs what another stage has; whether a stage may begin at a layer.
bool place_borders_fit(const struct placement *p, const struct model *m, struct err *err);
bool place_border_fits(const struct model *m, uint32_t layer);
// All layers on that device; NULL: on the processor. An embedding that is also the head counts once, but
// twice on a device with its own memory, which has copies of it in two layouts.
struct place_memory place_memory(const struct model *m, const struct stage_shape *shape,
                                 const struct device *d);
struct place_memory place_range_memory(const struct model *m, const struct stage_shape *shape,
                                       struct layer_range layers);
struct place_memory place_experts_memory(const struct model *m, const struct stage_shape *shape,
                                         struct layer_range layers);
// How many window pages: what each slot's row sees and a step's rows write, and where pages are kept for
// others as much again for each slot; no more than there are pages. 0: no layer has a window.
uint32_t place_windows(const struct model *m, const struct stage_shape *shape, bool kept);
// How many states a recurrent layer has room for: one for each slot, the spare ones, and some to keep, of a
// quarter of the pages' memory at most but for a few. 0: the model has no recurrent layers.
uint32_t place_states(const struct model *m, uint32_t n_slots, uint32_t n_spare, uint32_t n_pages);
// The free memory of a device with its own queue, or the memory of the host, whose free memory counts the
// page cache as used. share: of it, 0 for all.
uint64_t place_room(struct device *d, float share);
// Fails when the need exceeds the room; the message has all figures. A device that can uses the weights as
// they lie in the file where that is what fits, and the log says so.
bool place_check(const struct place_memory *need, struct device *d, float share, struct err *err);
