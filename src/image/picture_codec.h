// picture_codec.h - the interface between the formats' readers and picture_decode.c, and functions that the
// readers share. Private to image/.
#pragma once
#include "image/image.h"

// The header's fields; the sizes are not yet checked.
struct picture_head {
    uint32_t width, height;
    uint32_t orientation; // EXIF's, 1 to 8
};

struct picture_codec {
    const char *name, *needs; // "PNG", "libpng"
    const char *(*library)(void);
    bool (*matches)(struct str file);
    // NULL where the build has no library. decode fills a picture of the header's size, before it is turned.
    bool (*head)(struct picture_head *head, struct str file, struct err *err);
    bool (*decode)(struct picture *p, struct str file, struct err *err);
};

extern const struct picture_codec picture_png, picture_jpeg, picture_webp;

// The orientation in EXIF data: tag 0x0112 of the first directory; 1 for anything malformed. "Exif\0\0" may
// precede the data.
uint32_t picture_orientation(struct str exif);
// Turns and mirrors p as the orientation says; 5 to 8 exchange width and height.
bool picture_turn(struct picture *p, uint32_t orientation, struct err *err);
// Puts n pixels of [r, g, b, alpha] on white, with the rounding of Pillow's alpha_composite.
void picture_on_white(uint8_t *rgb, const uint8_t *rgba, size_t n);
