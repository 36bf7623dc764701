// picture.c - the memory of a picture and its bounds, see image.h; and transparency on white, see
// picture_codec.h.
#include "base/mem.h"
#include "image/picture_codec.h"

void picture_free(struct picture *p)
{
    mem_free(p->rgb);
    *p = (struct picture){ 0 };
}

bool picture_bounds(uint32_t width, uint32_t height, struct err *err)
{
    if (width == 0 || height == 0)
        return err_set(err, ERR_INPUT, "the picture has %u x %u pixels; at least 1 x 1 is needed", width,
                       height);
    if (width > PICTURE_MAX_SIDE || height > PICTURE_MAX_SIDE)
        return err_set(err, ERR_LIMIT, "the picture has %u x %u pixels; at most %d a side", width, height,
                       PICTURE_MAX_SIDE);
    if ((uint64_t)width * height > PICTURE_MAX_PIXELS)
        return err_set(err, ERR_LIMIT, "the picture has %u x %u pixels; at most %d million", width, height,
                       PICTURE_MAX_PIXELS / 1000000);
    return true;
}

bool picture_create(struct picture *p, uint32_t width, uint32_t height, struct err *err)
{
    *p = (struct picture){ 0 };
    if (!picture_bounds(width, height, err))
        return false;
    uint8_t *rgb = mem_alloc_filled((size_t)width * height, 3);
    if (!rgb)
        return err_memory(err, "a picture");
    *p = (struct picture){ rgb, width, height };
    return true;
}

void picture_on_white(uint8_t *rgb, const uint8_t *rgba, size_t n)
{
    for (size_t i = 0; i < n; i++, rgb += 3, rgba += 4) {
        uint32_t alpha = rgba[3];
        for (int c = 0; c < 3; c++) {
            uint32_t t = 128 * (rgba[c] * alpha + 255 * (255 - alpha)) + 16384;
            rgb[c] = (uint8_t)((((t >> 8) + t) >> 8) >> 7);
        }
    }
}
