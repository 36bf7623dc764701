// tiles.c - see tiles.h.
#include "engine/tiles.h"
#include <math.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/thread_pool.h"
#include "engine/api.h"
#include "engine/group/group.h"
#include "engine/kv_persist.h"
#include "engine/prompt_pictures.h"
#include "engine/request.h"
#include "engine/stage/outline.h"

enum {
    KNOWN_TILES = 1 << 14,
    KNOWN_WAYS = 8,
    POOL_ROWS = 4096,
    LEAST_PLACES = 2 * IMAGE_MAX_TILES,
    MOST_WORKERS = 16
};

// ---- numbers

// Finds it in a set of KNOWN_WAYS entries, or puts it in place of their oldest.
uint32_t tiles_number(struct tile_cache *c, const struct sha256 *key, struct err *err)
{
    uint32_t set;

    memcpy(&set, key->at, sizeof set);
    struct known_tile *ways = &c->known[set % (KNOWN_TILES / KNOWN_WAYS) * KNOWN_WAYS], *oldest = ways;
    for (uint32_t i = 0; i < KNOWN_WAYS; i++) {
        if (ways[i].number && sha256_eq(&ways[i].key, key)) {
            c->latest[ways[i].number % KNOWN_TILES] = ways[i];
            return ways[i].number;
        }
        oldest = ways[i].number < oldest->number ? &ways[i] : oldest;
    }
    if (c->n_numbers >= STEP_TOKEN_INVALID - STEP_TOKEN_POOLED - 1) {
        err_set(err, ERR_LIMIT, "this engine has seen %u tiles of pictures and takes no more; open it anew",
                c->n_numbers);
        return 0;
    }
    *oldest = (struct known_tile){ *key, ++c->n_numbers };
    c->latest[oldest->number % KNOWN_TILES] = *oldest;
    return oldest->number;
}

bool tiles_key(const struct tile_cache *c, uint32_t number, struct sha256 *key)
{
    const struct known_tile *k = &c->latest[number % KNOWN_TILES];

    *key = k->key;
    return k->number == number;
}

// Of a tile that was forgotten: a key that no page on disk has.
static struct sha256 key_of_token(void *cache, uint32_t token)
{
    struct tile_cache *c = cache;
    uint32_t number = token - STEP_TOKEN_POOLED;
    struct sha256 key;

    if (!tiles_key(c, number, &key)) {
        key = c->identity;
        memcpy(key.at, &c->secret, sizeof c->secret);
        memcpy(key.at + sizeof c->secret, &number, sizeof number);
    }
    return key;
}

// ---- opening

// All that an embedding depends on but the pixels and the device.
static bool identify(struct tile_cache *c, const struct model_file *file, struct err *err)
{
    const struct image_processor *p = &c->vision.tower.config.processor;
    struct sha256_stream *s = sha256_open();
    bool ok = s ? kv_persist_identity_of_file(file, &c->identity, err) : err_memory(err, "a tower's digest");

    if (ok) {
        sha256_add(s, c->identity.at, sizeof c->identity.at);
        sha256_add(s, &p->rescale, sizeof p->rescale);
        sha256_add(s, p->mean, sizeof p->mean);
        sha256_add(s, p->std, sizeof p->std);
        c->identity = sha256_take(s);
    }
    sha256_close(s);
    return ok;
}

static uint32_t count_pool_places(const struct tower *t)
{
    uint32_t n = POOL_ROWS / tower_rows(t);
    return n > LEAST_PLACES ? n : LEAST_PLACES;
}

bool tiles_scratch_need(struct vision_plan plan, uint64_t *bytes, struct err *err)
{
    struct tower t;

    if (!tower_bind(&t, plan.file, plan.n_out, err))
        return false;
    plan.n_places = count_pool_places(&t);
    tower_release(&t);
    return outline_vision(&plan, bytes, err);
}

uint64_t tiles_pool_need(const struct tower *t, uint32_t n_cols)
{
    return (uint64_t)count_pool_places(t) * tower_rows(t) * n_cols * sizeof(float);
}

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
    uint32_t n_places = count_pool_places(&sizes);
    tower_release(&sizes);
    struct vision_plan plan = { .file = file,
                                .device = e->loaded->devices.at[e->loaded->placement.device[0]],
                                .n_out = e->loaded->model.config.n_cols,
                                .n_places = n_places,
                                .exact = shape->exact,
                                .invariant = shape->invariant };
    c->known = mem_alloc_array(KNOWN_TILES, sizeof *c->known);
    c->latest = mem_alloc_array(KNOWN_TILES, sizeof *c->latest);
    c->places = mem_alloc_array(plan.n_places, sizeof *c->places);
    if (!c->known || !c->latest || !c->places)
        return err_memory(err, "the tiles of pictures");
    c->secret = random_u64();
    e->kv.tile_key = key_of_token;
    e->kv.tile_key_arg = c;
    return vision_create(&c->vision, &plan, err) && identify(c, file, err);
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
    image_room_release(&e->tiles->room);
    pthread_mutex_destroy(&e->tiles->workers_lock);
    mem_free(e->tiles->known);
    mem_free(e->tiles->latest);
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

// ---- a request's tiles

static bool cut_pictures(struct request *r, const struct ingot_request_options *o, struct err *err)
{
    struct request_tiles *t = &r->tiles;
    struct thread_pool *workers = tiles_work_begin(r->engine);
    struct image_work work = { .pool = workers, .room = workers ? &r->engine->tiles->room : NULL };
    bool ok = true;

    t->pictures = mem_alloc_array(o->n_pictures, sizeof(struct picture_tiles *));
    ok = t->pictures || err_memory(err, "a request's pictures");
    for (size_t i = 0; ok && i < o->n_pictures; i++) {
        const struct ingot_picture *p = o->pictures[i];
        struct image_processor processor = prompt_picture_processor(r->engine, o, i);
        t->pictures[i] = picture_cut_take(p->cut, &p->inner, &processor, &work, err);
        ok = t->pictures[i] != NULL;
        t->n_pictures += ok;
        t->n += ok ? t->pictures[i]->tiles.n_tiles : 0;
    }
    tiles_work_end(r->engine, workers);
    return ok;
}

static bool make_lists(struct request_tiles *t, struct err *err)
{
    t->rgb = mem_alloc_array(t->n, sizeof *t->rgb);
    t->numbers = mem_alloc_array(t->n, sizeof *t->numbers);
    t->first = mem_alloc_array(t->n, sizeof *t->first);
    t->places = mem_alloc_array(t->n, sizeof *t->places);
    if (!t->rgb || !t->numbers || !t->first || !t->places)
        return err_memory(err, "a request's pictures");
    memset(t->places, 0xff, t->n * sizeof *t->places); // TILE_NOT_HELD
    return true;
}

// Its number is that of the tower's key for these pixels.
static bool number_tile(struct tile_cache *c, struct sha256_stream *s, const struct sha256 *pixels,
                        uint32_t *number, struct err *err)
{
    sha256_add(s, c->identity.at, sizeof c->identity.at);
    sha256_add(s, pixels->at, sizeof pixels->at);
    struct sha256 key = sha256_take(s);
    *number = tiles_number(c, &key, err);
    return *number != 0;
}

static bool number_tiles(struct request *r, struct err *err)
{
    struct request_tiles *t = &r->tiles;
    struct engine *e = r->engine;
    struct sha256_stream *s = sha256_open();
    bool ok = s || err_memory(err, "a tile's key");

    pthread_mutex_lock(&e->state);
    for (uint32_t i = 0, at = 0; ok && i < t->n_pictures; i++)
        for (uint32_t k = 0; ok && k < t->pictures[i]->tiles.n_tiles; k++, at++) {
            t->rgb[at] = t->pictures[i]->tiles.rgb + k * picture_tile_bytes(t->pictures[i]);
            ok = number_tile(e->tiles, s, &t->pictures[i]->keys[k], &t->numbers[at], err);
        }
    pthread_mutex_unlock(&e->state);
    sha256_close(s);
    return ok;
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

static bool check_places(const struct request *r, struct err *err)
{
    uint32_t n_places = count_places(r), n_rows = tower_rows(&r->engine->tiles->vision.tower),
             n_tiles = r->tiles.n;

    return n_places == n_tiles * n_rows ||
           err_set(err, ERR_INPUT,
                   "the prompt has %u image places; %u tiles of pictures need %u each, %u together", n_places,
                   n_tiles, n_rows, n_tiles * n_rows);
}

bool tiles_take(struct request *r, const struct ingot_request_options *o, struct err *err)
{
    uint64_t begun = clock_ns();

    if (o->n_pictures == 0)
        return true;
    if (!cut_pictures(r, o, err) || !check_places(r, err) || !make_lists(&r->tiles, err) ||
        !number_tiles(r, err))
        return false;
    r->result.n_tiles = r->tiles.n;
    r->result.split_ms = (double)(clock_ns() - begun) / 1e6;
    for (size_t i = 0; i < o->n_pictures; i++)
        r->result.read_ms += o->pictures[i]->read_ms;
    return place_tiles(r, err);
}

void tiles_release(struct request_tiles *t)
{
    for (uint32_t i = 0; i < t->n_pictures; i++)
        picture_tiles_drop(t->pictures[i]);
    mem_free(t->pictures);
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
    struct pool_place *place = &c->places[r->tiles.places[tile]];
    if (--place->n_holders == 0 && !r->engine->kv.prefix) // every prompt is computed anew
        place->number = 0;
    r->tiles.places[tile] = (uint32_t)TILE_NOT_HELD;
}

void tiles_drop(struct request *r)
{
    struct tile_cache *c = r->engine->tiles;

    for (uint32_t i = 0; c && i < c->n_planned; i++)
        c->planned_for[i] = c->planned_for[i] == r ? NULL : c->planned_for[i];
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
        c->places[place].ready = isinf(c->budget_ns);
        c->planned[c->n_planned] = (struct vision_tile){ r->tiles.rgb[tile], place };
        c->planned_for[c->n_planned++] = r;
    } else {
        r->result.n_tiles_cached++;
    }
    hold(c, r, tile, place);
    return true;
}

// Gives up what was begun for requests that have all ended since.
static void give_up_unwanted(struct tile_cache *c)
{
    uint32_t n_holders = 0;

    for (uint32_t i = 0; i < c->n_planned; i++)
        n_holders += c->places[c->planned[i].place].n_holders;
    if (n_holders > 0)
        return;
    for (uint32_t i = 0; i < c->n_planned; i++)
        c->places[c->planned[i].place].number = 0;
    c->n_planned = 0;
    c->is_begun = false;
}

static bool is_planned_for(const struct tile_cache *c, const struct request *r)
{
    bool is = false;

    for (uint32_t i = 0; i < c->n_planned; i++)
        is |= c->planned_for[i] == r;
    return is;
}

// Whether a prompt could be read that does not wait for what is being encoded.
static bool others_read(const struct engine *e)
{
    for (const struct request *r = e->first; r; r = r->next)
        if (r->state == REQUEST_PREFILL && !is_planned_for(e->tiles, r))
            return true;
    return false;
}

static void plan_tiles(struct engine *e, struct tile_cache *c, uint32_t most)
{
    for (struct request *r = e->first; r; r = r->next) {
        if (r->state != REQUEST_PREFILL || r->tiles.n == 0)
            continue;
        pass_fed(c, r);
        for (uint32_t i = r->tiles.n_fed; i < r->tiles.n; i++)
            if (r->tiles.places[i] == (uint32_t)TILE_NOT_HELD && !plan_tile(c, r, i, most))
                break;
    }
}

bool tiles_plan(struct engine *e, uint32_t n_decode)
{
    struct tile_cache *c = e->tiles;

    if (!c)
        return true;
    give_up_unwanted(c);
    // a device with a queue encodes a tile in about a step
    c->budget_ns = c->vision.device->queue ? INFINITY : prefill_budget_ns(&e->prefill_budget, n_decode);
    plan_tiles(e, c, c->n_planned ? 0 : n_decode ? 1 : vision_most_tiles(&c->vision));
    for (uint32_t i = 0; i < c->n_planned && isinf(c->budget_ns); i++)
        c->places[c->planned[i].place].ready = true;
    if (c->n_planned == 0 || isinf(c->budget_ns))
        return true;
    if (others_read(e) && e->n_steps % 2) // they take turns
        c->budget_ns = 0;
    return c->budget_ns == 0;
}

static void note_encoded(struct tile_cache *c)
{
    const struct vision_times *t = &c->vision.times;

    for (uint32_t i = 0; i < c->n_planned; i++) {
        struct request *r = c->planned_for[i];
        c->places[c->planned[i].place].ready = true;
        if (!r)
            continue;
        r->result.encode_ms += t->all / c->n_planned;
        r->result.patch_ms += t->embed / c->n_planned;
        r->result.connect_ms += t->connect / c->n_planned;
    }
    c->n_encoded += c->n_planned;
    c->n_plays++;
    c->n_planned = 0;
    c->is_begun = false;
}

// Where ranks have a part of every layer each, the first one has encoded, and all of them read.
static bool share(const struct engine *e, struct err *err)
{
    const struct tile_cache *c = e->tiles;
    uint64_t bytes = (uint64_t)tower_rows(&c->vision.tower) * e->loaded->model.config.n_cols * sizeof(float);

    for (uint32_t i = 0; i < c->n_planned && e->loaded->group; i++)
        if (!group_share_pool(e->loaded->group, c->planned[i].place * bytes, bytes, err))
            return false;
    return true;
}

bool tiles_encode(struct engine *e, struct err *err)
{
    struct tile_cache *c = e->tiles;
    bool done = false;

    if (!tiles_in_step(e))
        return true;
    if (!c->is_begun && !vision_begin(&c->vision, c->planned, c->n_planned, err))
        return false;
    c->is_begun = true;
    bool ok = vision_continue(&c->vision, c->budget_ns, &done, err);
    ok = ok && (!done || share(e, err));
    if (ok && done)
        note_encoded(c);
    return ok;
}

bool tiles_in_step(const struct engine *e)
{
    return e->tiles && e->tiles->n_planned > 0 && e->tiles->budget_ns > 0;
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
    if (t->places[tile] == (uint32_t)TILE_NOT_HELD || !r->engine->tiles->places[t->places[tile]].ready)
        return false;
    *token = STEP_TOKEN_POOLED | (t->places[tile] * n_rows + r->n_fed - t->first[tile]);
    return true;
}
