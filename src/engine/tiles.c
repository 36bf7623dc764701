// tiles.c - see tiles.h.
#include "engine/tiles.h"
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/thread_pool.h"
#include "engine/api.h"
#include "engine/prompt_pictures.h"
#include "engine/request.h"

enum {
    KNOWN_TILES = 1 << 14,
    KNOWN_WAYS = 8,
    POOL_ROWS = 4096,
    LEAST_PLACES = 2 * IMAGE_MAX_TILES,
    MOST_WORKERS = 16
};

bool tiles_open(struct engine *e, const struct model_file *file, const struct stage_shape *shape,
                struct err *err)
{
    struct tile_cache *c = mem_alloc(sizeof *c);
    struct tower sizes;

    if (!c)
        return err_memory(err, "the tiles of pictures");
    e->tiles = c;
    pthread_mutex_init(&c->workers_lock, NULL);
    uint32_t n_workers = thread_count_capped(e->loaded->options.n_threads);
    // NULL: callers work alone
    c->workers = thread_pool_create(n_workers < MOST_WORKERS ? n_workers : MOST_WORKERS);
    if (!tower_bind(&sizes, file, e->loaded->model.config.n_cols, err))
        return false;
    uint32_t n = POOL_ROWS / tower_rows(&sizes);
    tower_release(&sizes);
    struct vision_plan plan = { .file = file,
                                .device = e->loaded->devices.at[e->loaded->placement.device[0]],
                                .n_out = e->loaded->model.config.n_cols,
                                .n_places = n > LEAST_PLACES ? n : LEAST_PLACES,
                                .exact = shape->exact,
                                .invariant = shape->invariant };
    c->known = mem_alloc_array(KNOWN_TILES, sizeof *c->known);
    c->places = mem_alloc_array(plan.n_places, sizeof *c->places);
    if (!c->known || !c->places)
        return err_memory(err, "the tiles of pictures");
    return vision_create(&c->vision, &plan, err);
}

const struct buffer *tiles_pool(const struct engine *e)
{
    return e->tiles ? &e->tiles->vision.pool : NULL;
}

void tiles_close(struct engine *e)
{
    if (!e->tiles)
        return;
    vision_release(&e->tiles->vision);
    thread_pool_destroy(e->tiles->workers);
    pthread_mutex_destroy(&e->tiles->workers_lock);
    mem_free(e->tiles->known);
    mem_free(e->tiles->places);
    mem_free(e->tiles);
    e->tiles = NULL;
}

struct thread_pool *tiles_work_begin(struct engine *e)
{
    struct tile_cache *c = e->tiles;

    return c->workers && pthread_mutex_trylock(&c->workers_lock) == 0 ? c->workers : NULL;
}

void tiles_work_end(struct engine *e, struct thread_pool *workers)
{
    if (workers)
        pthread_mutex_unlock(&e->tiles->workers_lock);
}

// ---- numbers

// The key's number, found in a set of KNOWN_WAYS entries or put in place of its oldest.
static uint32_t number_of(struct tile_cache *c, const struct sha256 *key, struct err *err)
{
    uint32_t set;

    memcpy(&set, key->at, sizeof set);
    struct known_tile *ways = &c->known[set % (KNOWN_TILES / KNOWN_WAYS) * KNOWN_WAYS], *oldest = ways;
    for (uint32_t i = 0; i < KNOWN_WAYS; i++) {
        if (ways[i].number && sha256_eq(&ways[i].key, key))
            return ways[i].number;
        oldest = ways[i].number < oldest->number ? &ways[i] : oldest;
    }
    if (c->n_numbers >= STEP_TOKEN_INVALID - STEP_TOKEN_POOLED - 1) {
        err_set(err, ERR_LIMIT, "this engine has seen %u tiles of pictures and takes no more; open it anew",
                c->n_numbers);
        return 0;
    }
    *oldest = (struct known_tile){ *key, ++c->n_numbers };
    return oldest->number;
}

struct hash_job {
    const uint8_t *rgb;
    uint64_t bytes; // of a tile
    struct sha256 *keys;
    uint32_t n, n_threads;
    bool failed[MOST_WORKERS];
};

static void hash_some(void *arg, unsigned thread)
{
    struct hash_job *j = arg;
    struct sha256_stream *sums = sha256_open();

    j->failed[thread] = !sums;
    for (uint32_t i = thread; sums && i < j->n; i += j->n_threads) {
        sha256_add(sums, j->rgb + i * j->bytes, j->bytes);
        j->keys[i] = sha256_take(sums);
    }
    sha256_close(sums);
}

// keys: [n]
static bool hash_tiles(struct request *r, uint32_t n, struct sha256 *keys, struct err *err)
{
    struct thread_pool *workers = tiles_work_begin(r->engine);
    struct hash_job j = { .rgb = r->tiles.rgb,
                          .bytes = vision_tile_bytes(&r->engine->tiles->vision),
                          .keys = keys,
                          .n = n,
                          .n_threads = workers ? thread_pool_size(workers) : 1 };
    bool ok = true;

    if (workers)
        thread_pool_run(workers, hash_some, &j);
    else
        hash_some(&j, 0);
    tiles_work_end(r->engine, workers);
    for (uint32_t i = 0; i < j.n_threads; i++)
        ok = ok && !j.failed[i];
    return ok || err_memory(err, "a tile's key");
}

static bool number_tiles(struct request *r, uint32_t n, struct err *err)
{
    struct engine *e = r->engine;
    struct sha256 *keys = mem_alloc_array(n, sizeof *keys);
    bool ok = keys ? hash_tiles(r, n, keys, err) : err_memory(err, "a tile's key");

    pthread_mutex_lock(&e->state);
    for (uint32_t i = 0; ok && i < n; i++) {
        r->tiles.numbers[i] = number_of(e->tiles, &keys[i], err);
        ok = r->tiles.numbers[i] != 0;
    }
    pthread_mutex_unlock(&e->state);
    mem_free(keys);
    return ok;
}

// ---- a request's tiles

// The request has the pixels already where they were cut for it.
static bool copy_tiles(struct request *r, const struct ingot_request_options *o, struct err *err)
{
    uint64_t bytes = vision_tile_bytes(&r->engine->tiles->vision);
    struct request_tiles *t = &r->tiles;
    bool own = t->rgb != NULL;

    t->rgb = own ? t->rgb : mem_alloc_array(o->n_tiles, bytes);
    t->numbers = mem_alloc_array(o->n_tiles, sizeof *t->numbers);
    t->first = mem_alloc_array(o->n_tiles, sizeof *t->first);
    t->places = mem_alloc_array(o->n_tiles, sizeof *t->places);
    if (!t->rgb || !t->numbers || !t->first || !t->places)
        return err_memory(err, "a request's pictures");
    if (!own)
        memcpy(t->rgb, o->tiles, o->n_tiles * bytes);
    memset(t->places, 0xff, o->n_tiles * sizeof *t->places); // TILE_NOT_HELD
    return true;
}

static uint32_t count_places(const struct request *r)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < r->n_prompt; i++)
        n += r->tokens[i] == INGOT_IMAGE_PLACE;
    return n;
}

// The rows of a tile are contiguous in the prompt.
static bool place_tiles(struct request *r, struct err *err)
{
    uint32_t n_rows = tower_rows(&r->engine->tiles->vision.tower), at = 0;

    for (uint32_t i = 0; i < r->tiles.n; i++, at += n_rows) {
        while (r->tokens[at] != INGOT_IMAGE_PLACE)
            at++;
        r->tiles.first[i] = at;
        for (uint32_t k = 0; k < n_rows; k++) {
            if (r->tokens[at + k] != INGOT_IMAGE_PLACE)
                return err_set(err, ERR_INPUT,
                               "tile %u of the pictures has %u places together in the prompt; want %u", i, k,
                               n_rows);
            r->tokens[at + k] = STEP_TOKEN_POOLED | r->tiles.numbers[i];
        }
    }
    return true;
}

bool tiles_refuse(struct err *err)
{
    return err_set(
        err, ERR_UNSUPPORTED,
        "this model has no eyes: it cannot take a picture; open one that sees, or give its mmproj file");
}

static bool take_tiles(struct request *r, const struct ingot_request_options *o, struct err *err)
{
    const struct engine *e = r->engine;

    if (o->n_tiles == 0)
        return true;
    if (!e->tiles)
        return tiles_refuse(err);
    if (o->n_tiles > 16 * IMAGE_MAX_TILES)
        return err_set(err, ERR_LIMIT, "%u tiles of pictures; want at most %d in a request", o->n_tiles,
                       16 * IMAGE_MAX_TILES);
    uint32_t n_places = count_places(r), n_rows = tower_rows(&e->tiles->vision.tower);
    if (n_places != o->n_tiles * n_rows)
        return err_set(err, ERR_INPUT,
                       "the prompt has %u image places; %u tiles of pictures need %u each, %u together",
                       n_places, o->n_tiles, n_rows, o->n_tiles * n_rows);
    if (!copy_tiles(r, o, err) || !number_tiles(r, o->n_tiles, err))
        return false;
    r->tiles.n = o->n_tiles;
    r->result.n_tiles = o->n_tiles;
    return place_tiles(r, err);
}

bool tiles_take(struct request *r, const struct ingot_request_options *o, struct err *err)
{
    struct ingot_request_options own = *o;
    uint64_t begun = clock_ns();

    if (o->n_pictures == 0)
        return take_tiles(r, o, err);
    if (!prompt_pictures_split(r->engine, o, &r->tiles.rgb, &own.n_tiles, err))
        return false;
    r->result.split_ms = (double)(clock_ns() - begun) / 1e6;
    for (size_t i = 0; i < o->n_pictures; i++)
        r->result.read_ms += o->pictures[i]->read_ms;
    return take_tiles(r, &own, err);
}

void tiles_release(struct request_tiles *t)
{
    mem_free(t->rgb);
    mem_free(t->numbers);
    mem_free(t->first);
    mem_free(t->places);
    *t = (struct request_tiles){ 0 };
}

// ---- places in the pool

static uint32_t find_place(const struct tile_cache *c, uint32_t number)
{
    for (uint32_t i = 0; i < c->vision.n_places; i++)
        if (c->places[i].number == number)
            return i;
    return (uint32_t)TILE_NOT_HELD;
}

static uint32_t oldest_free(const struct tile_cache *c)
{
    uint32_t best = (uint32_t)TILE_NOT_HELD;

    for (uint32_t i = 0; i < c->vision.n_places; i++)
        if (c->places[i].n_holders == 0 &&
            (best == (uint32_t)TILE_NOT_HELD || c->places[i].used < c->places[best].used))
            best = i;
    return best;
}

static void hold(struct tile_cache *c, struct request *r, uint32_t tile, uint32_t place)
{
    r->tiles.places[tile] = place;
    c->places[place].n_holders++;
    c->places[place].used = ++c->clock;
}

static void let_go(struct tile_cache *c, struct request *r, uint32_t tile)
{
    if (r->tiles.places[tile] == (uint32_t)TILE_NOT_HELD)
        return;
    c->places[r->tiles.places[tile]].n_holders--;
    r->tiles.places[tile] = (uint32_t)TILE_NOT_HELD;
}

void tiles_drop(struct request *r)
{
    for (uint32_t i = 0; i < r->tiles.n; i++)
        let_go(r->engine->tiles, r, i);
    r->tiles.n_fed = 0;
}

static void pass_fed(struct tile_cache *c, struct request *r)
{
    uint32_t n_rows = tower_rows(&c->vision.tower);

    while (r->tiles.n_fed < r->tiles.n && r->tiles.first[r->tiles.n_fed] + n_rows <= r->n_fed)
        let_go(c, r, r->tiles.n_fed++);
}

// False: it has to wait for a place in the pool, or for the next step.
static bool plan_tile(struct tile_cache *c, struct request *r, uint32_t tile, uint32_t most)
{
    uint32_t place = find_place(c, r->tiles.numbers[tile]);

    if (place == (uint32_t)TILE_NOT_HELD) {
        if (c->n_planned >= most || (place = oldest_free(c)) == (uint32_t)TILE_NOT_HELD)
            return false;
        c->places[place].number = r->tiles.numbers[tile];
        c->planned[c->n_planned] =
            (struct vision_tile){ r->tiles.rgb + tile * vision_tile_bytes(&c->vision), place };
        c->planned_for[c->n_planned++] = r;
    } else {
        r->result.n_tiles_cached++;
    }
    hold(c, r, tile, place);
    return true;
}

void tiles_plan(struct engine *e, bool beside_answers)
{
    struct tile_cache *c = e->tiles;

    if (!c)
        return;
    uint32_t most = beside_answers ? 1 : vision_most_tiles(&c->vision);
    for (struct request *r = e->first; r; r = r->next) {
        if (r->state != REQUEST_PREFILL || r->tiles.n == 0)
            continue;
        pass_fed(c, r);
        for (uint32_t i = r->tiles.n_fed; i < r->tiles.n; i++)
            if (r->tiles.places[i] == (uint32_t)TILE_NOT_HELD && !plan_tile(c, r, i, most))
                break;
    }
}

bool tiles_encode(struct engine *e, struct err *err)
{
    struct tile_cache *c = e->tiles;

    if (!c || c->n_planned == 0)
        return true;
    struct vision_times times = { 0 };
    bool ok = vision_encode(&c->vision, c->planned, c->n_planned, &times, err);
    for (uint32_t i = 0; i < c->n_planned; i++) {
        struct ingot_result *r = &c->planned_for[i]->result;
        r->encode_ms += times.all / c->n_planned;
        r->patch_ms += times.embed / c->n_planned;
        r->connect_ms += times.connect / c->n_planned;
    }
    c->n_encoded += c->n_planned;
    c->n_plays++;
    c->n_planned = 0;
    return ok;
}

bool tiles_token(struct request *r, uint32_t *token)
{
    struct request_tiles *t = &r->tiles;

    *token = r->tokens[r->n_fed];
    if (*token < STEP_TOKEN_POOLED)
        return true;
    uint32_t n_rows = tower_rows(&r->engine->tiles->vision.tower), tile = t->n_fed;
    while (t->first[tile] + n_rows <= r->n_fed)
        tile++;
    if (t->places[tile] == (uint32_t)TILE_NOT_HELD)
        return false;
    *token = STEP_TOKEN_POOLED | (t->places[tile] * n_rows + r->n_fed - t->first[tile]);
    return true;
}
