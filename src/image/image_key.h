// image_key.h - SHA-256 keys under which a tower's results may be kept: equal keys mean equal bytes in front of an equal tower.
//
// A file's or picture's key stands before decoding and resizing, a tile's before encoding: two pictures that share a tile share its
// result. SHA-256, since the keys of different clients meet in one cache. `sums` is the caller's, for one thread at a time.
#pragma once
#include "base/sha256.h"
#include "image/image.h"

// Of a file's n bytes, or of a picture's pixels, prepared by p; the two never agree.
struct sha256 image_file_key(struct sha256_stream *sums, const struct image_processor *p, const void *bytes, size_t n);
struct sha256 image_picture_key(struct sha256_stream *sums, const struct image_processor *p, const struct picture *picture);
// Of tile `index`, in front of the tower whose weights have the sum `tower`. Where the tile lies in its picture makes no difference.
struct sha256 image_tile_key(struct sha256_stream *sums, const struct sha256 *tower, const struct image_processor *p,
                             const struct image_tiles *tiles, uint32_t index);
