// tiles.h - tiles of pictures: the tiles that the engine knows, the pool with their encoded rows, and a
// request's tiles.
//
// Each distinct tile has a number, found by the SHA-256 of its pixels. In a request's tokens an image place
// is STEP_TOKEN_POOLED with that number, so that every comparison of tokens (pages, sessions, the index)
// tells pictures apart exactly. A number is never reused: a tile that was forgotten gets a new one, and its
// old pages are just not found. A request holds its tiles' places in the pool from planning until their rows
// have been fed. Guarded by the engine's state lock, except tiles_number.
#pragma once
#include <pthread.h>
#include "base/sha256.h"
#include "engine/stage/vision.h"

struct engine;
struct request;
struct stage_shape;
struct ingot_request_options;

struct known_tile {
    struct sha256 key;
    uint32_t number; // 0: empty
};

struct pool_place {
    uint32_t number, n_holders; // number 0: empty
    uint64_t used;              // time of last use; the least recently used is overwritten first
};

struct tile_cache {
    struct vision vision;
    struct known_tile *known; // [KNOWN_TILES]
    uint32_t n_numbers;
    struct pool_place *places; // [vision.n_places]
    uint64_t clock;
    struct vision_tile planned[VISION_MOST_TILES]; // of this step
    struct request *planned_for[VISION_MOST_TILES];
    uint32_t n_planned;
    struct thread_pool *workers; // resize and hash; whoever finds them busy works alone
    pthread_mutex_t workers_lock;
    uint64_t n_encoded, n_plays; // since the engine was opened
};

// A request's tiles, in the order of their places in the prompt.
struct request_tiles {
    uint8_t *rgb;      // [n, T, T, 3]
    uint32_t *numbers; // [n]
    uint32_t *first;   // [n] position of the first row
    uint32_t *places;  // [n] in the pool, TILE_NOT_HELD
    uint32_t n, n_fed; // n_fed: tiles whose last row has been fed, or was found in pages
};
enum { TILE_NOT_HELD = -1 };

// Opens the tower of the file on the engine's device.
bool tiles_open(struct engine *e, const struct model_file *file, const struct stage_shape *shape,
                struct err *err);
const struct buffer *tiles_pool(const struct engine *e); // NULL: the model takes no pictures
void tiles_close(struct engine *e);

// Threads for the caller alone until tiles_work_end; or none, where somebody else has them.
struct thread_pool *tiles_work_begin(struct engine *e);
void tiles_work_end(struct engine *e, struct thread_pool *workers);

// Takes the request's tiles, or cuts its pictures into tiles; the tokens hold INGOT_IMAGE_PLACE at their
// places, which become the tiles' numbers. An error names what was found and what was expected; a model
// without a vision tower refuses here. The state lock is not held.
bool tiles_take(struct request *r, const struct ingot_request_options *o, struct err *err);
void tiles_release(struct request_tiles *t);
bool tiles_refuse(struct err *err); // says that this model takes no pictures

// What comes next in this step: holds tiles that are in the pool, and plans more for encoding: one beside
// answers, else as many as a play takes.
void tiles_plan(struct engine *e, bool beside_answers);
// Encodes what was planned. The state lock is not held; stepping is.
bool tiles_encode(struct engine *e, struct err *err);
// The step's token for the request's next row. False: its tile has no place yet.
bool tiles_token(struct request *r, uint32_t *token);
void tiles_drop(struct request *r); // releases all places
