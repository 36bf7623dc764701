// picture_tiles.h - the tiles of a picture, cut once and shared.
//
// A picture keeps the tiles that it was last cut into, and requests hold them too: several answers about a
// picture, and a conversation that shows it again, cut and hash it once. They are freed with the last holder.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include "base/sha256.h"
#include "image/image.h"

struct picture_tiles {
    atomic_uint n_holders;
    struct image_processor processor; // that cut them
    struct image_tiles tiles;
    struct sha256 *keys; // [tiles.n_tiles] of their pixels, by pieces
};

struct picture_cut { // what a picture keeps
    pthread_mutex_t lock;
    struct picture_tiles *last; // NULL: it was not cut yet
};

void picture_cut_create(struct picture_cut *c);
void picture_cut_release(struct picture_cut *c);
// The tiles of the picture, cut now where the last cut was another. Give them back with picture_tiles_drop.
// Any thread. NULL: *err says why.
struct picture_tiles *picture_cut_take(struct picture_cut *c, const struct picture *picture,
                                       const struct image_processor *processor, const struct image_work *work,
                                       struct err *err);
// Takes the tiles, with one holder, and adds their keys.
struct picture_tiles *picture_tiles_create(const struct image_processor *processor, struct image_tiles tiles,
                                           const struct image_work *work, struct err *err);
void picture_tiles_drop(struct picture_tiles *t); // NULL is allowed
static inline uint64_t picture_tile_bytes(const struct picture_tiles *t)
{
    return (uint64_t)t->tiles.side * t->tiles.side * 3;
}
