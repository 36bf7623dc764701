// picture_decode.c - finds the reader of a picture's bytes, checks the limits before it, and turns the
// picture after it; see image.h.
#include "image/picture_codec.h"

static const struct picture_codec *const codecs[] = { &picture_png, &picture_jpeg, &picture_webp };
enum { N_CODECS = sizeof codecs / sizeof codecs[0] };

// Formats that are known but not read, by bytes at an offset.
static const struct {
    size_t at;
    struct str bytes;
    const char *name;
} others[] = {
    { 0, { "GIF8", 4 }, "GIF" },         { 0, { "BM", 2 }, "BMP" },
    { 0, { "II*\0", 4 }, "TIFF" },       { 0, { "MM\0*", 4 }, "TIFF" },
    { 4, { "ftypheic", 8 }, "HEIC" },    { 4, { "ftypheix", 8 }, "HEIC" },
    { 4, { "ftypmif1", 8 }, "HEIC" },    { 4, { "ftypavif", 8 }, "AVIF" },
    { 4, { "ftypavis", 8 }, "AVIF" },    { 0, { "\xff\x0a", 2 }, "JPEG XL" },
    { 4, { "JXL \r\n", 6 }, "JPEG XL" }, { 4, { "jP  \r\n", 6 }, "JPEG 2000" },
    { 0, { "<svg", 4 }, "SVG" },         { 0, { "<?xml", 5 }, "SVG" },
    { 0, { "%PDF", 4 }, "PDF" },
};

static bool refuse(struct str file, struct err *err)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (file.n >= others[i].at && str_starts(str_from_to(file, others[i].at, file.n), others[i].bytes))
            return err_set(err, ERR_UNSUPPORTED, "the picture is %s; PNG, JPEG and WebP are read",
                           others[i].name);
    return err_set(err, file.n ? ERR_UNSUPPORTED : ERR_INPUT, "%s; PNG, JPEG and WebP are read",
                   file.n ? "the bytes are no picture that is known here" : "the picture has no bytes");
}

static const struct picture_codec *find(struct str file, struct err *err)
{
    if (file.n > PICTURE_MAX_BYTES) {
        err_set(err, ERR_LIMIT, "the picture has %zu bytes; at most %d", file.n, PICTURE_MAX_BYTES);
        return NULL;
    }
    for (int i = 0; i < N_CODECS; i++) {
        if (!codecs[i]->matches(file))
            continue;
        if (codecs[i]->head)
            return codecs[i];
        err_set(err, ERR_UNSUPPORTED, "the picture is %s, and this ingot was built without %s",
                codecs[i]->name, codecs[i]->needs);
        return NULL;
    }
    refuse(file, err);
    return NULL;
}

static bool read_head(const struct picture_codec *codec, struct picture_head *head, struct str file,
                      struct err *err)
{
    *head = (struct picture_head){ .orientation = 1 };
    if (!codec->head(head, file, err))
        return err_prefix(err, "%s", codec->name);
    return picture_bounds(head->width, head->height, err);
}

bool picture_size(const void *bytes, size_t n, uint32_t *width, uint32_t *height, struct err *err)
{
    struct str file = { bytes, n };
    const struct picture_codec *codec = find(file, err);
    struct picture_head head;

    if (!codec || !read_head(codec, &head, file, err))
        return false;
    *width = head.orientation >= 5 ? head.height : head.width;
    *height = head.orientation >= 5 ? head.width : head.height;
    return true;
}

bool picture_decode(struct picture *p, const void *bytes, size_t n, struct err *err)
{
    struct str file = { bytes, n };
    const struct picture_codec *codec = find(file, err);
    struct picture_head head;

    *p = (struct picture){ 0 };
    if (!codec || !read_head(codec, &head, file, err) || !picture_create(p, head.width, head.height, err))
        return false;
    if (!codec->decode(p, file, err)) {
        picture_free(p);
        return err_prefix(err, "%s", codec->name);
    }
    if (picture_turn(p, head.orientation, err))
        return true;
    picture_free(p);
    return false;
}

const char *picture_png_library(void)
{
    return picture_png.library();
}

const char *picture_jpeg_library(void)
{
    return picture_jpeg.library();
}

const char *picture_webp_library(void)
{
    return picture_webp.library();
}
