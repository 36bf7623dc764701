// image_key.c - see image_key.h. A key begins with what kind it is of, then numbers in 4 and 8 bytes each, which are therefore in no
// struct with holes; what has a length comes last.
#include "image/image_key.h"

enum key_kind { KEY_FILE = 1, KEY_PICTURE, KEY_TILE };

static void add_u32(struct sha256_stream *sums, uint32_t value)
{
    sha256_add(sums, &value, sizeof value);
}

// What turns bytes into the tower's numbers.
static void add_numbers(struct sha256_stream *sums, const struct image_processor *p)
{
    sha256_add(sums, &p->rescale, sizeof p->rescale);
    sha256_add(sums, p->mean, sizeof p->mean);
    sha256_add(sums, p->std, sizeof p->std);
}

static void add_processor(struct sha256_stream *sums, const struct image_processor *p)
{
    add_u32(sums, p->longest_edge);
    add_u32(sums, p->tile);
    add_u32(sums, p->tokens_a_tile);
    add_u32(sums, p->split);
    add_u32(sums, p->filter);
    add_numbers(sums, p);
}

struct sha256 image_file_key(struct sha256_stream *sums, const struct image_processor *p, const void *bytes, size_t n)
{
    add_u32(sums, KEY_FILE);
    add_processor(sums, p);
    sha256_add(sums, bytes, n);
    return sha256_take(sums);
}

struct sha256 image_picture_key(struct sha256_stream *sums, const struct image_processor *p, const struct picture *picture)
{
    add_u32(sums, KEY_PICTURE);
    add_processor(sums, p);
    add_u32(sums, picture->width);
    add_u32(sums, picture->height);
    sha256_add(sums, picture->rgb, (size_t)picture->width * picture->height * 3);
    return sha256_take(sums);
}

struct sha256 image_tile_key(struct sha256_stream *sums, const struct sha256 *tower, const struct image_processor *p,
                             const struct image_tiles *tiles, uint32_t index)
{
    size_t tile_bytes = (size_t)tiles->side * tiles->side * 3;

    add_u32(sums, KEY_TILE);
    add_u32(sums, tiles->side);
    add_numbers(sums, p);
    sha256_add(sums, tower->at, sizeof tower->at);
    sha256_add(sums, tiles->rgb + index * tile_bytes, tile_bytes);
    return sha256_take(sums);
}
