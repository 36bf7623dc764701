// api_picture.c - the pictures of ingot.h: src/image behind a pointer. No engine is needed.
#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/api.h"

static struct ingot_picture *create(struct err *err)
{
    struct ingot_picture *p = mem_alloc(sizeof *p);
    struct picture_cut *cut = p ? mem_alloc(sizeof *cut) : NULL;

    if (!cut) {
        mem_free(p);
        err_memory(err, "a picture");
        return NULL;
    }
    picture_cut_create(cut);
    p->cut = cut;
    return p;
}

static struct ingot_picture *keep_if(bool ok, struct ingot_picture *p)
{
    if (ok)
        return p;
    ingot_picture_free(p);
    return NULL;
}

struct ingot_picture *ingot_picture_from_memory(const void *bytes, size_t n_bytes, struct ingot_error *error)
{
    uint64_t begun = clock_ns();
    struct ingot_picture *p = create(as_err(error));
    bool ok = p && picture_decode(&p->inner, bytes, n_bytes, as_err(error));

    if (ok)
        p->read_ms = (double)(clock_ns() - begun) * 1e-6;
    return keep_if(ok, p);
}

struct ingot_picture *ingot_picture_from_file(const char *path, struct ingot_error *error)
{
    struct buf file = { .max = PICTURE_MAX_BYTES };
    struct ingot_picture *p = NULL;

    if (str_starts(str_from(path), STR("http://")) || str_starts(str_from(path), STR("https://")))
        err_set(as_err(error), ERR_INPUT,
                "%s: nothing is fetched from the network; save the picture and name its file", path);
    else if (file_read(&file, path, PICTURE_MAX_BYTES, as_err(error))) {
        p = ingot_picture_from_memory(file.at, file.n, error);
        if (!p)
            err_prefix(as_err(error), "%s", path);
    }
    buf_free(&file);
    return p;
}

struct ingot_picture *ingot_picture_from_rgb(const uint8_t *rgb, uint32_t width, uint32_t height,
                                             size_t row_bytes, struct ingot_error *error)
{
    struct err *err = as_err(error);
    size_t n = (size_t)width * 3;

    if (row_bytes && row_bytes < n) {
        err_set(err, ERR_INPUT, "rows of %zu bytes; %u pixels take %zu", row_bytes, width, n);
        return NULL;
    }
    struct ingot_picture *p = create(err);
    if (!p || !picture_create(&p->inner, width, height, err))
        return keep_if(false, p);
    for (uint32_t y = 0; y < height; y++)
        memcpy(p->inner.rgb + y * n, rgb + y * (row_bytes ? row_bytes : n), n);
    return p;
}

void ingot_picture_size(const struct ingot_picture *picture, uint32_t *width, uint32_t *height)
{
    *width = picture->inner.width;
    *height = picture->inner.height;
}

const uint8_t *ingot_picture_rgb(const struct ingot_picture *picture)
{
    return picture->inner.rgb;
}

void ingot_picture_free(struct ingot_picture *picture)
{
    if (!picture)
        return;
    picture_free(&picture->inner);
    picture_cut_release(picture->cut);
    mem_free(picture->cut);
    mem_free(picture);
}
