// picture_png.c - PNG by libpng, as Pillow reads it: no gamma and no colour profile, 16 bits cut to the upper
// 8, an animation's own still picture. Any transparency is put on white.
//
// Only chunks with pixels are kept: texts and profiles, which can be bombs, are skipped. EXIF may stand
// before or behind the pixels, so its chunk is searched for here.
#include "image/picture_codec.h"

static const char signature[] = "\x89PNG\r\n\x1a\n";
enum { SIGNATURE_BYTES = 8 };

static bool matches(struct str file)
{
    return str_starts(file, (struct str){ signature, SIGNATURE_BYTES });
}

#ifdef INGOT_PNG
#include <png.h>
#include "base/mem.h"

struct png_reading {
    png_structp png;
    png_infop info;
    struct str file;
    size_t at;
    struct picture *p;
    uint8_t *rgba; // the rows of a picture with transparency
    struct err *err;
};

static const char *library(void)
{
    return png_get_libpng_ver(NULL);
}

static uint32_t number(const char *at)
{
    const uint8_t *b = (const uint8_t *)at;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

// The data of the first chunk of this name, walking from length to length; empty when there is none.
static struct str chunk(struct str file, const char *name)
{
    for (size_t at = SIGNATURE_BYTES; file.n - at >= 12;) {
        size_t n = number(file.at + at);
        if (n > file.n - at - 12)
            break;
        if (!memcmp(file.at + at + 4, name, 4))
            return str_from_to(file, at + 8, at + 8 + n);
        at += n + 12;
    }
    return (struct str){ 0 };
}

static bool head(struct picture_head *h, struct str file, struct err *err)
{
    if (file.n < 33 || memcmp(file.at + 12, "IHDR", 4))
        return err_set(err, ERR_INPUT, "the file ends before its header, or the header is not first");
    h->width = number(file.at + 16);
    h->height = number(file.at + 20);
    h->orientation = picture_orientation(chunk(file, "eXIf"));
    return true;
}

static void failed(png_structp png, const char *message)
{
    struct png_reading *r = png_get_error_ptr(png);

    err_set(r->err, ERR_INPUT, "%s", message);
    png_longjmp(png, 1);
}

static void warned(png_structp png, const char *message)
{
    (void)png, (void)message;
}

static void read_bytes(png_structp png, png_bytep to, size_t n)
{
    struct png_reading *r = png_get_io_ptr(png);

    if (n > r->file.n - r->at)
        png_error(png, "the file is cut off");
    memcpy(to, r->file.at + r->at, n);
    r->at += n;
}

// Converts everything to 8 bits of red, green and blue, with alpha where there is any.
static void ask_for_rgb(struct png_reading *r)
{
    png_set_strip_16(r->png);
    png_set_palette_to_rgb(r->png);
    png_set_expand_gray_1_2_4_to_8(r->png);
    if (png_get_valid(r->png, r->info, PNG_INFO_tRNS))
        png_set_tRNS_to_alpha(r->png);
    png_set_gray_to_rgb(r->png);
}

// An interlaced picture passes over all rows several times, so all of them are kept.
static void read_rgba(struct png_reading *r, int n_passes)
{
    size_t row_bytes = (size_t)r->p->width * 4;

    r->rgba = mem_alloc_array(n_passes > 1 ? r->p->height : 1, row_bytes);
    if (!r->rgba) {
        err_memory(r->err, "a picture's rows");
        png_longjmp(r->png, 1);
    }
    for (int pass = 0; pass < n_passes; pass++)
        for (uint32_t y = 0; y < r->p->height; y++) {
            uint8_t *row = r->rgba + (n_passes > 1 ? y * row_bytes : 0);
            png_read_row(r->png, row, NULL);
            if (pass == n_passes - 1)
                picture_on_white(r->p->rgb + (size_t)y * r->p->width * 3, row, r->p->width);
        }
}

static void read_rgb(struct png_reading *r, int n_passes)
{
    for (int pass = 0; pass < n_passes; pass++)
        for (uint32_t y = 0; y < r->p->height; y++)
            png_read_row(r->png, r->p->rgb + (size_t)y * r->p->width * 3, NULL);
}

// From here on libpng may longjmp out.
static void read_all(struct png_reading *r)
{
    png_set_user_limits(r->png, PICTURE_MAX_SIDE, PICTURE_MAX_SIDE);
    png_set_chunk_malloc_max(r->png, 1 << 20);
    png_set_keep_unknown_chunks(r->png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_read_fn(r->png, r, read_bytes);
    png_read_info(r->png, r->info);
    ask_for_rgb(r);
    int n_passes = png_set_interlace_handling(r->png);
    png_read_update_info(r->png, r->info);
    if (png_get_image_width(r->png, r->info) != r->p->width ||
        png_get_image_height(r->png, r->info) != r->p->height)
        png_error(r->png, "two headers that differ");
    if (png_get_channels(r->png, r->info) == 4)
        read_rgba(r, n_passes);
    else
        read_rgb(r, n_passes);
    png_read_end(r->png, NULL);
}

static bool read_or_fail(struct png_reading *r)
{
    if (setjmp(png_jmpbuf(r->png)))
        return false;
    read_all(r);
    return true;
}

static bool decode(struct picture *p, struct str file, struct err *err)
{
    struct png_reading r = { .file = file, .p = p, .err = err };

    r.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &r, failed, warned);
    r.info = r.png ? png_create_info_struct(r.png) : NULL;
    bool ok = r.info ? read_or_fail(&r) : err_memory(err, "libpng");
    png_destroy_read_struct(&r.png, &r.info, NULL);
    mem_free(r.rgba);
    return ok;
}
#else
static const char *library(void)
{
    return NULL;
}
#define head   NULL
#define decode NULL
#endif

const struct picture_codec picture_png = { "PNG", "libpng", library, matches, head, decode };
