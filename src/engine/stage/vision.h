// vision.h - a vision tower on its device: its weights, its tapes by the number of tiles, and the pool for
// its rows of embeddings.
//
// The pool has a place for each of n_places tiles. tiles.h assigns the places.
#pragma once
#include "base/arena.h"
#include "device/step.h"
#include "models/vision/tower.h"

// Tiles of one play: 1, 2 or 4; on a GPU with room for them up to as many as a picture has, if these are 17.
enum { VISION_MOST_BUCKETS = 4, VISION_MOST_TILES = 17 };

struct vision_plan {
    const struct model_file *file;
    struct device *device;
    uint32_t n_out;    // columns of an embedding: the text model's
    uint32_t n_places; // tiles that the pool holds
    bool exact, invariant;
    bool keeps_encoded; // the encoder's output can be read: for tests
};

struct vision_times {           // milliseconds; all: of copying the pixels and of all commands
    double all, embed, connect; // embed, connect: of patch embedding and connector; 0 where not measured
};

struct vision {
    struct device *device; // borrowed
    struct tower tower;
    struct arena *names;    // and matrices that were rounded
    struct weight *weights; // [n_weights]
    uint32_t n_weights, n_places;
    struct tower_layer *layers;
    struct tower_stage parts;
    struct buffer pixels, places, pool, history, step, encoded;
    uint32_t buckets[VISION_MOST_BUCKETS], n_buckets; // tiles that a tape takes
    struct tape *tapes[VISION_MOST_BUCKETS];
    struct tower_parts tape_parts; // the same for all
    bool exact;
    bool times_parts; // measure them apart also where that means to wait for the device
    bool invariant;
    uint32_t bucket, n_played; // of what was begun: its tape, and the commands that were played
    uint32_t n_step_tiles;     // what the step on the device is for; 0: nothing
    struct vision_times times;
    struct step *host_step;
    uint32_t *host_places;
};

struct vision_tile {
    const uint8_t *rgb; // [T, T, 3]
    uint32_t place;     // in the pool
};

// Bytes that it takes beside its weights: pixels, pool, and the scratch of its tapes.
uint64_t vision_scratch_bytes(const struct vision *v);
bool vision_create(struct vision *v, const struct vision_plan *plan, struct err *err);
void vision_release(struct vision *v); // zeroed is allowed
uint64_t vision_tile_bytes(const struct vision *v);
uint32_t vision_most_tiles(const struct vision *v); // of one play
// Begins to encode up to vision_most_tiles tiles into their places. The pixels are copied. What was begun
// before and is not done is given up.
bool vision_begin(struct vision *v, const struct vision_tile *tiles, uint32_t n, struct err *err);
// Goes on for about budget_ns, but by one command at least, and waits for it; a device with a queue goes on
// to the end. *done: the embeddings are in their places, and v->times says what they took.
bool vision_continue(struct vision *v, double budget_ns, bool *done, struct err *err);
// Both to the end, without waiting: the work is queued on the device on return.
bool vision_encode(struct vision *v, const struct vision_tile *tiles, uint32_t n, struct err *err);
