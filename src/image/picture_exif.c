// picture_exif.c - a picture's orientation from its EXIF data; see picture_codec.h. Only the first directory
// is read and no offset is followed twice, so that no data can loop.
#include "image/picture_codec.h"

enum { TAG_ORIENTATION = 0x0112, TYPE_SHORT = 3, TYPE_LONG = 4, ENTRY_BYTES = 12 };

struct tiff {
    const uint8_t *at;
    size_t n;
    bool big; // big-endian
};

// n_bytes from offset on; 0 beyond the end.
static uint32_t number(const struct tiff *t, size_t offset, uint32_t n_bytes)
{
    uint32_t value = 0;

    if (offset > t->n || t->n - offset < n_bytes)
        return 0;
    for (uint32_t i = 0; i < n_bytes; i++)
        value |= (uint32_t)t->at[offset + i] << 8 * (t->big ? n_bytes - 1 - i : i);
    return value;
}

uint32_t picture_orientation(struct str exif)
{
    uint32_t orientation = 1;

    if (str_starts(exif, STR("Exif\0\0")))
        exif = str_from_to(exif, 6, exif.n);
    struct tiff t = { (const uint8_t *)exif.at, exif.n, str_starts(exif, STR("MM\0*")) };
    if (!t.big && !str_starts(exif, STR("II*\0")))
        return 1;
    size_t directory = number(&t, 4, 4);
    uint32_t n = number(&t, directory, 2);
    for (uint32_t i = 0; i < n; i++) {
        size_t entry = directory + 2 + (size_t)i * ENTRY_BYTES;
        uint32_t type = number(&t, entry + 2, 2);
        if (number(&t, entry, 2) == TAG_ORIENTATION && (type == TYPE_SHORT || type == TYPE_LONG) &&
            number(&t, entry + 4, 4) == 1)
            orientation = number(&t, entry + 8, type == TYPE_SHORT ? 2 : 4);
    }
    return orientation >= 1 && orientation <= 8 ? orientation : 1;
}

// The source of output pixel (x, y): base + x * across + y * down.
bool picture_turn(struct picture *p, uint32_t orientation, struct err *err)
{
    ptrdiff_t w = p->width, h = p->height, last = w * h - 1, bottom = last - (w - 1);
    const struct {
        ptrdiff_t base, across, down;
    } ways[] = {
        [2] = { w - 1, -1, w },  [3] = { last, -1, -w }, [4] = { bottom, 1, -w }, [5] = { 0, w, 1 },
        [6] = { bottom, -w, 1 }, [7] = { last, -w, -1 }, [8] = { w - 1, w, -1 },
    };
    struct picture out;

    if (orientation == 1)
        return true;
    bool lies = orientation >= 5;
    if (!picture_create(&out, lies ? p->height : p->width, lies ? p->width : p->height, err))
        return false;
    uint8_t *to = out.rgb;
    for (ptrdiff_t y = 0; y < out.height; y++)
        for (ptrdiff_t x = 0; x < out.width; x++, to += 3)
            memcpy(to,
                   p->rgb + 3 * (ways[orientation].base + x * ways[orientation].across +
                                 y * ways[orientation].down),
                   3);
    picture_free(p);
    *p = out;
    return true;
}
