// tiles.h - tiles of pictures: the tiles that the engine knows, the pool with their encoded rows, and a
// request's tiles.
//
// Each distinct tile has a number, found by its key: the SHA-256 of its pixels and of the tower that reads
// it, by which pages and sessions on disk know it. In a request's tokens an image place is STEP_TOKEN_POOLED
// with that number, so that every comparison of tokens (pages, sessions, the index) tells pictures apart
// exactly. A number is never reused: a tile that was forgotten gets a new one, and its old pages are just not
// found. A request holds its tiles' places in the pool from planning until their rows have been fed. Guarded
// by the engine's state lock, except tiles_number.
#pragma once
#include <pthread.h>
#include "base/sha256.h"
#include "engine/stage/vision.h"
#include "image/image_room.h"

struct engine;
struct request;
struct stage_shape;
struct picture_tiles;
struct ingot_request_options;

struct known_tile {
    struct sha256 key;
    uint32_t number; // 0: empty
};

struct pool_place {
    uint32_t number, n_holders; // number 0: empty
    bool ready;                 // its rows can be read in this step
    uint64_t used;              // time of last use; the least recently used is overwritten first
};

struct tile_cache {
    struct vision vision;
    struct known_tile *known;  // [KNOWN_TILES] by key
    struct known_tile *latest; // [KNOWN_TILES] by number
    uint32_t n_numbers;
    struct sha256 identity;    // of the tower
    uint64_t secret;           // of this process
    struct pool_place *places; // [vision.n_places]
    uint64_t clock;
    // What is encoded next, or was begun: beside answers it takes several steps. A request that has ended is
    // NULL.
    struct vision_tile planned[VISION_MOST_TILES];
    struct request *planned_for[VISION_MOST_TILES];
    uint32_t n_planned;
    bool is_begun;
    double budget_ns;            // of this step; 0: nothing is encoded
    struct thread_pool *workers; // resize and hash; whoever finds them busy works alone
    struct image_room room;      // of whoever has the workers
    pthread_mutex_t workers_lock;
    uint64_t n_encoded, n_plays; // since the engine was opened
};

// A request's tiles, in the order of their places in the prompt.
struct request_tiles {
    struct picture_tiles **pictures; // [n_pictures]
    const uint8_t **rgb;             // [n] of one of the pictures, [T, T, 3]
    uint32_t *numbers;               // [n]
    uint32_t *first;                 // [n] position of the first row
    uint32_t *places;                // [n] in the pool, TILE_NOT_HELD
    uint32_t n_pictures, n, n_fed;   // n_fed: tiles whose last row has been fed, or was found in pages
};
enum { TILE_NOT_HELD = -1 };

// Bytes that the tower of plan.file would take beside its weights; the number of places is chosen here. The
// device is nobody else's meanwhile.
bool tiles_scratch_need(struct vision_plan plan, uint64_t *bytes, struct err *err);
uint64_t tiles_pool_need(const struct tower *t, uint32_t n_cols); // of that, the pool's
// Opens the tower of the file on the engine's device.
bool tiles_open(struct engine *e, const struct model_file *file, const struct stage_shape *shape,
                struct err *err);
const struct buffer *tiles_pool(const struct engine *e); // NULL: the model takes no pictures
void tiles_close(struct engine *e);

// Threads for the caller alone until tiles_work_end; or none, where somebody else has them.
struct thread_pool *tiles_work_begin(struct engine *e);
void tiles_work_end(struct engine *e, struct thread_pool *workers);

// Cuts the request's pictures into tiles; the tokens hold INGOT_IMAGE_PLACE at their places, which become the
// tiles' numbers. An error names what was found and what was expected; a model without a vision tower refuses
// here. The state lock is not held.
bool tiles_take(struct request *r, const struct ingot_request_options *o, struct err *err);
void tiles_release(struct request_tiles *t);
bool tiles_refuse(struct err *err); // says that this model takes no pictures

// The number of the tile with this key; a new one for a key that is not known. 0: *err says why.
uint32_t tiles_number(struct tile_cache *c, const struct sha256 *key, struct err *err);
// The key of the tile with this number. False: it was forgotten, as many others came after it.
bool tiles_key(const struct tile_cache *c, uint32_t number, struct sha256 *key);

// What comes next in this step: holds tiles that are in the pool, and plans more for encoding: one beside
// answers, else as many as a play takes. Beside answers the encoder may add to a step what prompts may.
// False: this step has no time left for prompts.
bool tiles_plan(struct engine *e, uint32_t n_decode);
// Encodes what was planned, as far as the step's time allows. The state lock is not held; stepping is.
bool tiles_encode(struct engine *e, struct err *err);
bool tiles_in_step(const struct engine *e); // whether this step encodes: its time says nothing of its rows
// The step's token for the request's next row. False: its tile is not in the pool yet.
bool tiles_token(struct request *r, uint32_t *token);
void tiles_drop(struct request *r); // releases all places
