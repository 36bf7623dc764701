// picture.c - the memory of a picture; see image.h. Decoders ask here before they take any.
#include "base/mem.h"
#include "image/image.h"

void picture_free(struct picture *p)
{
    mem_free(p->rgb);
    *p = (struct picture){ 0 };
}

bool picture_bounds(uint32_t width, uint32_t height, struct err *err)
{
    if (width == 0 || height == 0)
        return err_set(err, ERR_INPUT, "the picture has %u x %u pixels; at least 1 x 1 is needed", width, height);
    if (width > PICTURE_MAX_SIDE || height > PICTURE_MAX_SIDE)
        return err_set(err, ERR_LIMIT, "the picture has %u x %u pixels; at most %d a side", width, height, PICTURE_MAX_SIDE);
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
    uint8_t *rgb = mem_alloc_array((size_t)width * height, 3);
    if (!rgb)
        return err_memory(err, "a picture");
    *p = (struct picture){ rgb, width, height };
    return true;
}
