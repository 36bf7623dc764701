// fuzz_picture.h - any bytes as a picture of one format: decoded to the size that its header gives, or
// refused with a message.
//
// Pictures beyond a million pixels are left out: they take a second each and the reader's same ways.
#pragma once
#include <string.h>
#include "base/mem.h"
#include "image/image.h"

static inline void fuzz_picture(const uint8_t *data, size_t size)
{
    uint8_t *copy = mem_alloc(size ? size : 1); // exactly as long
    uint32_t width = 0, height = 0;
    struct picture p;
    struct err err = { 0 };

    if (size)
        memcpy(copy, data, size);
    bool known = picture_size(copy, size, &width, &height, &err);
    CHECK(known || (err.code != ERR_NONE && err.message[0]));
    if (!known || (uint64_t)width * height <= 1000000) {
        err = (struct err){ 0 };
        bool ok = picture_decode(&p, copy, size, &err);
        CHECK(ok ? known && p.width == width && p.height == height
                 : err.code != ERR_NONE && err.message[0] && !p.rgb);
        picture_free(&p);
    }
    mem_free(copy);
}
