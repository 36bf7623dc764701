// image.h - from the bytes of a picture to the tiles that a vision tower reads, bit for bit as Pillow and the
// Idefics3 processor compute them.
//
// decode: PNG, JPEG or WebP in memory to RGB of 8 bits, upright. resize: Pillow's filters in its integers.
// split: the tiles of Idefics3 and SmolVLM, and the text of their image places in a prompt. Where the
// references differ among themselves: a picture becomes RGB before it is resized; transparency is put on
// white; EXIF's orientation always counts; 16 bits are cut to the upper 8, grey pictures included. Nothing
// here reads a file, fetches an address or knows a tokeniser.
//
// Any number of threads, each with its own picture.
#pragma once
#include "base/str.h"
#include "base/thread_pool.h"

struct model_file;

// RGB, 8 bits: [height, width, 3] without padding. The picture owns the bytes. Zero-initialised it is empty.
struct picture {
    uint8_t *rgb;
    uint32_t width, height;
};

// Bounds on a header's sizes, checked before memory is allocated.
enum { PICTURE_MAX_BYTES = 20 << 20, PICTURE_MAX_SIDE = 16384, PICTURE_MAX_PIXELS = 50000000 };

void picture_free(struct picture *p); // an empty one is allowed
// Checks that a picture of this size is within bounds: ERR_LIMIT beyond the bounds above, ERR_INPUT for no
// pixels.
bool picture_bounds(uint32_t width, uint32_t height, struct err *err);
// A zeroed picture of this size, if picture_bounds allows it.
bool picture_create(struct picture *p, uint32_t width, uint32_t height, struct err *err);
// The first bytes tell the format. An animation gives its first frame. ERR_INPUT: damaged or truncated;
// ERR_LIMIT: too large; ERR_UNSUPPORTED: another format, named where it is known, or one that this build has
// no library for.
bool picture_decode(struct picture *p, const void *bytes, size_t n, struct err *err);
// Width and height that picture_decode would give, from the header alone, without memory for pixels.
bool picture_size(const void *bytes, size_t n, uint32_t *width, uint32_t *height, struct err *err);
// The version of a format's library (libpng, libjpeg-turbo, libwebp); NULL where the build has no such
// library.
const char *picture_png_library(void);
const char *picture_jpeg_library(void);
const char *picture_webp_library(void);

// How to compute. Zeroed: on the caller's thread, with the CPU's vectors. No choice changes a byte.
struct image_work {
    struct thread_pool *pool; // splits the rows; NULL: none. Not used by anyone else meanwhile
    struct image_room *room;  // memory that stays between pictures; NULL: none. As the pool
    bool plain;               // the plain loops, which define the result
};

enum image_filter { IMAGE_BILINEAR, IMAGE_BICUBIC, IMAGE_LANCZOS };
struct image_size {
    uint32_t width, height; // 1 to PICTURE_MAX_SIDE
    enum image_filter filter;
};
// Pillow's Image.resize (12.2 and later) for RGB. out is created here and must not be in.
bool image_resize(struct picture *out, const struct picture *in, struct image_size size,
                  const struct image_work *work, struct err *err);

enum { IMAGE_MAX_TILES = 65, IMAGE_MAX_EDGE = 4096, IMAGE_MAX_TILE = 1024 };

// How a picture is cut: Idefics3 and SmolVLM, by the longest edge; InternVL, by the nearest aspect ratio.
enum image_tiling { IMAGE_BY_EDGE, IMAGE_BY_ASPECT };

// A model's settings for pictures. A copy may be changed for one request: `split` off, or a smaller
// `longest_edge`. image_most_tiles is at most IMAGE_MAX_TILES.
struct image_processor {
    enum image_tiling tiling;
    uint32_t longest_edge; // L, by edge: the longer side becomes this, up and down; at most IMAGE_MAX_EDGE
    uint32_t min_tiles, max_tiles; // by aspect: of the grid
    uint32_t tile;                 // T: side of a tile in pixels; at most IMAGE_MAX_TILE
    uint32_t patch, scale;         // pixels of a patch; scale x scale patches become one place
    uint32_t tokens_a_tile;        // N: places in the prompt per tile
    bool split;                    // false: the whole picture as one tile
    enum image_filter filter;
    double rescale;        // 1/255, rounded to a decimal number
    float mean[3], std[3]; // per channel, after rescaling
};

// Reads it from a safetensors folder (config.json, preprocessor_config.json, processor_config.json) or from
// the mmproj GGUF file. ERR_UNSUPPORTED or ERR_INPUT names the key, what was found and what was expected.
bool image_processor_read(struct image_processor *p, const struct model_file *file, struct err *err);
// table[c][v]: the normalised value of byte v of channel c, in fp32 as the reference computes it.
void image_normal_table(const struct image_processor *p, float table[3][256]);

// The tiles of one picture: first rows * cols, row by row, and last the whole picture as one tile. rows =
// cols = 0: only the last.
struct image_tiles {
    uint8_t *rgb; // [n_tiles, side, side, 3]
    uint32_t n_tiles, side, rows, cols;
};

// Tiles of a picture at most.
uint32_t image_most_tiles(const struct image_processor *p);
// What a template writes where a picture stands: "<image>" or "<IMG_CONTEXT>".
const char *image_mark(const struct image_processor *p);

// The grid of a picture of this size; no pixels needed.
void image_grid(const struct image_processor *p, uint32_t width, uint32_t height, uint32_t *rows,
                uint32_t *cols);
bool image_split(struct image_tiles *tiles, const struct image_processor *p, const struct picture *in,
                 const struct image_work *work, struct err *err);
void image_tiles_free(struct image_tiles *tiles); // zeroed is allowed

// The text of a picture's image places, for this grid: "<fake_token_around_image><row_1_col_1><image>..." as
// SmolVLM's processor writes it, or "<img><IMG_CONTEXT>...</img>" as InternVL's, tokenised as trusted
// template text. It has image_n_tiles(rows, cols) * tokens_a_tile times image_mark.
bool image_prompt(struct buf *out, const struct image_processor *p, uint32_t rows, uint32_t cols);
static inline uint32_t image_n_tiles(uint32_t rows, uint32_t cols)
{
    return rows * cols + 1;
}

// For image_split.c: image_resize into [size.height, size.width, 3] of the caller, and the grid by the
// nearest aspect ratio.
bool image_resize_to(uint8_t *rgb, const struct picture *in, struct image_size size,
                     const struct image_work *work, struct err *err);
void image_grid_by_aspect(const struct image_processor *p, uint32_t width, uint32_t height, uint32_t *rows,
                          uint32_t *cols);
