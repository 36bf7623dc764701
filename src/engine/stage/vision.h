// vision.h - a vision tower on its device: its weights, its tapes by the number of tiles, and the pool for
// its rows of embeddings.
//
// The pool has a place for each of n_places tiles. tiles.h assigns the places.
#pragma once
#include "base/arena.h"
#include "device/step.h"
#include "models/tower.h"

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

struct vision {
    struct device *device; // borrowed
    struct tower tower;
    struct arena *names;
    struct weight *weights; // [n_weights]
    uint32_t n_weights, n_places;
    struct tower_layer *layers;
    struct tower_stage parts;
    struct buffer pixels, places, pool, history, step, encoded;
    uint32_t buckets[VISION_MOST_BUCKETS], n_buckets; // tiles that a tape takes
    struct tape *tapes[VISION_MOST_BUCKETS];
    struct tower_parts tape_parts; // the same for all
    bool times_parts;              // measure them apart also where that means to wait for the device
    struct step *host_step;
    uint32_t *host_places;
};

struct vision_tile {
    const uint8_t *rgb; // [T, T, 3]
    uint32_t place;     // in the pool
};

bool vision_create(struct vision *v, const struct vision_plan *plan, struct err *err);
void vision_release(struct vision *v); // zeroed is allowed
uint64_t vision_tile_bytes(const struct vision *v);
uint32_t vision_most_tiles(const struct vision *v); // of one play
struct vision_times {           // milliseconds; all: from the first pixel's copy to the last embedding
    double all, embed, connect; // embed, connect: of patch embedding and connector; 0 where not measured
};
// Encodes up to vision_most_tiles tiles into their places, and waits for that if times is not NULL. Else the
// work is queued on the device on return. The pixels are copied.
bool vision_encode(struct vision *v, const struct vision_tile *tiles, uint32_t n, struct vision_times *times,
                   struct err *err);
