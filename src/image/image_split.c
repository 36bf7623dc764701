// image_split.c - a picture's tiles; see image.h.
//
// Idefics3 and SmolVLM: resize so that the longer side is L, resize to whole tiles, cut; the last tile is
// made of that. InternVL: resize to the grid of the nearest aspect ratio, cut; the last tile is made of the
// original.
// Sizes are quotients of quotients in double, cut to integers, as the reference computes them: integer
// arithmetic gives other grids.
#include "base/mem.h"
#include "base/thread_pool.h"
#include "image/image.h"
#include "image/image_room.h"

enum { PIXEL = 3, ALIGNMENT = 64 };

static uint32_t even(uint32_t n)
{
    return n + n % 2;
}

static uint32_t at_least_1(uint32_t n)
{
    return n ? n : 1;
}

static uint32_t whole_tiles(uint32_t n, uint32_t tile)
{
    return (n + tile - 1) / tile * tile;
}

// The first resize: the longer side becomes L, the other one is even, or 1.
static struct image_size to_longest(const struct image_processor *p, uint32_t width, uint32_t height)
{
    double aspect = (double)width / height;
    uint32_t edge = p->longest_edge;

    if (width >= height)
        return (struct image_size){ edge, at_least_1(even((uint32_t)(edge / aspect))), p->filter };
    return (struct image_size){ at_least_1(even((uint32_t)(edge * aspect))), edge, p->filter };
}

// The second: both sides become whole tiles, at least one. (1.0 / 98) * 98 is less than 1: the reference
// would resize to 0 pixels there, and fail.
static struct image_size to_tiles(const struct image_processor *p, struct image_size from)
{
    double aspect = (double)from.width / from.height;
    uint32_t width, height;

    if (from.width >= from.height) {
        width = whole_tiles(from.width, p->tile);
        height = whole_tiles(at_least_1((uint32_t)(width / aspect)), p->tile);
    } else {
        height = whole_tiles(from.height, p->tile);
        width = whole_tiles(at_least_1((uint32_t)(height * aspect)), p->tile);
    }
    return (struct image_size){ width, height, p->filter };
}

// Both sizes, and the grid that the second one is cut into.
struct way {
    struct image_size longest, whole;
    uint32_t rows, cols;
};

static struct way find_way(const struct image_processor *p, uint32_t width, uint32_t height)
{
    struct way w = { .longest = { width, height, p->filter } };

    if (p->tiling == IMAGE_BY_ASPECT) {
        image_grid_by_aspect(p, width, height, &w.rows, &w.cols);
        w.whole = (struct image_size){ w.cols * p->tile, w.rows * p->tile, p->filter };
        return w;
    }
    w.longest = to_longest(p, width, height);
    w.whole = p->split ? to_tiles(p, w.longest) : (struct image_size){ p->tile, p->tile, p->filter };
    if (w.whole.width > p->tile || w.whole.height > p->tile) {
        w.rows = w.whole.height / p->tile;
        w.cols = w.whole.width / p->tile;
    }
    return w;
}

uint32_t image_most_tiles(const struct image_processor *p)
{
    uint32_t side = p->split ? (p->longest_edge + p->tile - 1) / p->tile : 1;
    uint32_t n = p->tiling == IMAGE_BY_ASPECT ? (p->split ? p->max_tiles : 1) : side * side;

    return n > 1 ? n + 1 : 1;
}

void image_grid(const struct image_processor *p, uint32_t width, uint32_t height, uint32_t *rows,
                uint32_t *cols)
{
    struct way w = find_way(p, width, height);

    *rows = w.rows;
    *cols = w.cols;
}

struct cut_job {
    struct image_tiles *tiles;
    const struct picture *whole;
    uint32_t n_threads;
};

static void cut_some(void *arg, unsigned thread)
{
    const struct cut_job *job = arg;
    const struct image_tiles *t = job->tiles;
    size_t row_bytes = (size_t)t->side * PIXEL, whole_bytes = (size_t)job->whole->width * PIXEL;

    for (uint32_t i = thread; i < t->rows * t->cols; i += job->n_threads) {
        const uint8_t *from = job->whole->rgb + (size_t)(i / t->cols) * t->side * whole_bytes +
                              (size_t)(i % t->cols) * row_bytes;
        uint8_t *to = t->rgb + i * t->side * row_bytes;
        for (uint32_t y = 0; y < t->side; y++, to += row_bytes, from += whole_bytes)
            memcpy(to, from, row_bytes);
    }
}

static void cut(struct image_tiles *tiles, const struct picture *whole, const struct image_work *work)
{
    struct cut_job job = { tiles, whole, work->pool ? thread_pool_size(work->pool) : 1 };

    if (work->pool)
        thread_pool_run(work->pool, cut_some, &job);
    else
        cut_some(&job, 0);
}

// The last tile: all of the picture.
static bool make_last(const struct image_tiles *tiles, const struct picture *from, enum image_filter filter,
                      const struct image_work *work, struct err *err)
{
    uint8_t *last = tiles->rgb + (size_t)(tiles->n_tiles - 1) * tiles->side * tiles->side * PIXEL;

    return image_resize_to(last, from, (struct image_size){ tiles->side, tiles->side, filter }, work, err);
}

// A picture that image_room_give takes back.
static bool resize_in_room(struct picture *out, const struct picture *in, struct image_size size,
                           const struct image_work *work, struct err *err)
{
    *out = (struct picture){ .width = size.width, .height = size.height };
    if (!picture_bounds(size.width, size.height, err))
        return false;
    out->rgb = image_room_take(work->room, (size_t)size.width * size.height, PIXEL);
    return (out->rgb || err_memory(err, "a picture")) && image_resize_to(out->rgb, in, size, work, err);
}

static bool split_by_edge(struct image_tiles *tiles, const struct way *way, const struct picture *in,
                          const struct image_work *work, struct err *err)
{
    struct picture longest, second = { 0 };
    bool is_whole = way->longest.width == way->whole.width && way->longest.height == way->whole.height,
         ok = resize_in_room(&longest, in, way->longest, work, err) &&
              (is_whole || resize_in_room(&second, &longest, way->whole, work, err));
    const struct picture *whole = is_whole ? &longest : &second;

    if (ok)
        cut(tiles, whole, work);
    ok = ok && make_last(tiles, whole, way->whole.filter, work, err);
    image_room_give(work->room, longest.rgb);
    image_room_give(work->room, second.rgb);
    return ok;
}

static bool split_by_aspect(struct image_tiles *tiles, const struct way *way, const struct picture *in,
                            const struct image_work *work, struct err *err)
{
    struct picture whole = { 0 };
    bool ok = way->rows == 0 || resize_in_room(&whole, in, way->whole, work, err);

    if (ok)
        cut(tiles, &whole, work);
    image_room_give(work->room, whole.rgb);
    return ok && make_last(tiles, in, way->whole.filter, work, err);
}

bool image_split(struct image_tiles *tiles, const struct image_processor *p, const struct picture *in,
                 const struct image_work *work, struct err *err)
{
    struct way way = find_way(p, in->width, in->height);

    *tiles = (struct image_tiles){
        .side = p->tile, .rows = way.rows, .cols = way.cols, .n_tiles = image_n_tiles(way.rows, way.cols)
    };
    tiles->rgb = mem_alloc_aligned((size_t)tiles->n_tiles * p->tile * p->tile * PIXEL, ALIGNMENT);
    bool ok = tiles->rgb || err_memory(err, "a picture's tiles");
    ok = ok && (p->tiling == IMAGE_BY_ASPECT ? split_by_aspect : split_by_edge)(tiles, &way, in, work, err);
    if (!ok)
        image_tiles_free(tiles);
    return ok;
}

void image_tiles_free(struct image_tiles *tiles)
{
    mem_free_aligned(tiles->rgb);
    *tiles = (struct image_tiles){ 0 };
}

void image_normal_table(const struct image_processor *p, float table[3][256])
{
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++)
            table[c][v] = ((float)(v * p->rescale) - p->mean[c]) / p->std[c];
}
