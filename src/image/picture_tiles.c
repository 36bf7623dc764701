// picture_tiles.c - see picture_tiles.h.
#include "image/picture_tiles.h"
#include "base/mem.h"

enum { MOST_THREADS = 64 };

// ---- keys: the sum of the sums of a tile's pieces, of which there are enough for every thread

enum { PIECE_BYTES = 1 << 16 };

struct hash_job {
    struct picture_tiles *t;
    struct sha256 *sums; // [n_tiles, n_pieces]
    uint32_t n_pieces, n_threads;
    bool failed[MOST_THREADS];
};

static void hash_some(void *arg, unsigned thread)
{
    struct hash_job *j = arg;
    struct sha256_stream *s = sha256_open();
    uint64_t bytes = picture_tile_bytes(j->t);

    j->failed[thread] = !s;
    for (uint32_t i = thread; s && i < j->t->tiles.n_tiles * j->n_pieces; i += j->n_threads) {
        uint64_t from = (uint64_t)(i % j->n_pieces) * PIECE_BYTES, left = bytes - from;
        sha256_add(s, j->t->tiles.rgb + i / j->n_pieces * bytes + from,
                   left < PIECE_BYTES ? left : PIECE_BYTES);
        j->sums[i] = sha256_take(s);
    }
    sha256_close(s);
}

static bool hash_sums(const struct hash_job *j)
{
    struct sha256_stream *s = sha256_open();

    for (uint32_t i = 0; s && i < j->t->tiles.n_tiles; i++) {
        sha256_add(s, j->sums + (size_t)i * j->n_pieces, j->n_pieces * sizeof *j->sums);
        j->t->keys[i] = sha256_take(s);
    }
    sha256_close(s);
    return s != NULL;
}

static bool hash_tiles(struct picture_tiles *t, const struct image_work *work)
{
    bool alone = !work->pool || thread_pool_size(work->pool) > MOST_THREADS;
    struct hash_job j = { .t = t,
                          .n_pieces = (uint32_t)((picture_tile_bytes(t) + PIECE_BYTES - 1) / PIECE_BYTES),
                          .n_threads = alone ? 1 : thread_pool_size(work->pool) };

    j.sums = mem_alloc_array((size_t)t->tiles.n_tiles * j.n_pieces, sizeof *j.sums);
    bool ok = j.sums != NULL;
    if (ok && alone)
        hash_some(&j, 0);
    else if (ok)
        thread_pool_run(work->pool, hash_some, &j);
    for (uint32_t i = 0; i < j.n_threads; i++)
        ok = ok && !j.failed[i];
    ok = ok && hash_sums(&j);
    mem_free(j.sums);
    return ok;
}

// ---- tiles

struct picture_tiles *picture_tiles_create(const struct image_processor *processor, struct image_tiles tiles,
                                           const struct image_work *work, struct err *err)
{
    struct picture_tiles *t = mem_alloc(sizeof *t);

    if (!t) {
        image_tiles_free(&tiles);
        err_memory(err, "the tiles of a picture");
        return NULL;
    }
    t->processor = *processor;
    t->tiles = tiles;
    atomic_init(&t->n_holders, 1);
    t->keys = mem_alloc_array(tiles.n_tiles, sizeof *t->keys);
    if (t->keys && hash_tiles(t, work))
        return t;
    picture_tiles_drop(t);
    err_memory(err, "the keys of a picture's tiles");
    return NULL;
}

void picture_tiles_drop(struct picture_tiles *t)
{
    if (!t || atomic_fetch_sub(&t->n_holders, 1) > 1)
        return;
    image_tiles_free(&t->tiles);
    mem_free(t->keys);
    mem_free(t);
}

// ---- the cut of a picture

void picture_cut_create(struct picture_cut *c)
{
    *c = (struct picture_cut){ 0 };
    pthread_mutex_init(&c->lock, NULL);
}

void picture_cut_release(struct picture_cut *c)
{
    picture_tiles_drop(c->last);
    pthread_mutex_destroy(&c->lock);
}

// Whether the tiles have the same pixels. Normalising comes later.
static bool cuts_alike(const struct image_processor *a, const struct image_processor *b)
{
    return a->longest_edge == b->longest_edge && a->tile == b->tile && a->split == b->split &&
           a->filter == b->filter && a->tiling == b->tiling && a->min_tiles == b->min_tiles &&
           a->max_tiles == b->max_tiles;
}

static struct picture_tiles *cut(const struct picture *picture, const struct image_processor *processor,
                                 const struct image_work *work, struct err *err)
{
    struct image_tiles tiles = { 0 };

    return image_split(&tiles, processor, picture, work, err)
               ? picture_tiles_create(processor, tiles, work, err)
               : NULL;
}

struct picture_tiles *picture_cut_take(struct picture_cut *c, const struct picture *picture,
                                       const struct image_processor *processor, const struct image_work *work,
                                       struct err *err)
{
    pthread_mutex_lock(&c->lock);
    if (!c->last || !cuts_alike(&c->last->processor, processor)) {
        picture_tiles_drop(c->last);
        c->last = cut(picture, processor, work, err);
    }
    struct picture_tiles *t = c->last;
    if (t)
        atomic_fetch_add(&t->n_holders, 1);
    pthread_mutex_unlock(&c->lock);
    return t;
}
