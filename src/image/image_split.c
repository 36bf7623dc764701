// image_split.c - the tiles of Idefics3 and SmolVLM: resize so that the longer side is L, resize to whole
// tiles, cut; the last tile is the whole picture. See image.h.
//
// Sizes are quotients of quotients in double, cut to integers, as the reference computes them: integer
// arithmetic gives other grids.
#include "base/mem.h"
#include "image/image.h"

enum { PIXEL = 3 };

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

// The second: both sides become whole tiles.
static struct image_size to_tiles(const struct image_processor *p, struct image_size from)
{
    double aspect = (double)from.width / from.height;
    uint32_t width, height;

    if (from.width >= from.height) {
        width = whole_tiles(from.width, p->tile);
        height = whole_tiles((uint32_t)(width / aspect), p->tile);
    } else {
        height = whole_tiles(from.height, p->tile);
        width = whole_tiles((uint32_t)(height * aspect), p->tile);
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
    struct way w = { .longest = to_longest(p, width, height) };

    w.whole = p->split ? to_tiles(p, w.longest) : (struct image_size){ p->tile, p->tile, p->filter };
    if (w.whole.width > p->tile || w.whole.height > p->tile) {
        w.rows = w.whole.height / p->tile;
        w.cols = w.whole.width / p->tile;
    }
    return w;
}

void image_grid(const struct image_processor *p, uint32_t width, uint32_t height, uint32_t *rows,
                uint32_t *cols)
{
    struct way w = find_way(p, width, height);

    *rows = w.rows;
    *cols = w.cols;
}

static void cut(struct image_tiles *tiles, const struct picture *whole)
{
    size_t row_bytes = (size_t)tiles->side * PIXEL;
    uint8_t *to = tiles->rgb;

    for (uint32_t i = 0; i < tiles->rows * tiles->cols; i++) {
        size_t top = (size_t)(i / tiles->cols) * tiles->side, left = (size_t)(i % tiles->cols) * row_bytes;
        for (uint32_t y = 0; y < tiles->side; y++, to += row_bytes)
            memcpy(to, whole->rgb + (top + y) * whole->width * PIXEL + left, row_bytes);
    }
}

// Cuts `whole` into tiles, and makes the last tile of all of it.
static bool fill(struct image_tiles *tiles, const struct picture *whole, struct image_size tile,
                 const struct image_work *work, struct err *err)
{
    size_t tile_bytes = (size_t)tiles->side * tiles->side * PIXEL;
    struct picture last;

    tiles->rgb = mem_alloc_array(tiles->n_tiles, tile_bytes);
    if (!tiles->rgb)
        return err_memory(err, "a picture's tiles");
    cut(tiles, whole);
    if (!image_resize(&last, whole, tile, work, err))
        return false;
    memcpy(tiles->rgb + (tiles->n_tiles - 1) * tile_bytes, last.rgb, tile_bytes);
    picture_free(&last);
    return true;
}

// The second resize; the first one's result is used as it is where it is whole tiles already.
static bool make_whole(struct picture *whole, struct picture *longest, struct image_size size,
                       const struct image_work *work, struct err *err)
{
    if (longest->width != size.width || longest->height != size.height)
        return image_resize(whole, longest, size, work, err);
    *whole = *longest;
    *longest = (struct picture){ 0 };
    return true;
}

bool image_split(struct image_tiles *tiles, const struct image_processor *p, const struct picture *in,
                 const struct image_work *work, struct err *err)
{
    struct way way = find_way(p, in->width, in->height);
    struct picture longest, whole = { 0 };

    *tiles = (struct image_tiles){
        .side = p->tile, .rows = way.rows, .cols = way.cols, .n_tiles = image_n_tiles(way.rows, way.cols)
    };
    if (!image_resize(&longest, in, way.longest, work, err))
        return false;
    bool ok = make_whole(&whole, &longest, way.whole, work, err);
    picture_free(&longest);
    ok = ok && fill(tiles, &whole, (struct image_size){ p->tile, p->tile, p->filter }, work, err);
    picture_free(&whole);
    if (!ok)
        image_tiles_free(tiles);
    return ok;
}

void image_tiles_free(struct image_tiles *tiles)
{
    mem_free(tiles->rgb);
    *tiles = (struct image_tiles){ 0 };
}

void image_normal_table(const struct image_processor *p, float table[3][256])
{
    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++)
            table[c][v] = ((float)(v * p->rescale) - p->mean[c]) / p->std[c];
}
