// picture_jpeg.c - JPEG by libjpeg-turbo with its defaults, as Pillow reads it; CMYK is taken as inverted,
// which is Adobe's way and the only one in use.
//
// A file that ends early is an error, other small damage is not. A progressive file can cost a pass over all
// coefficients for every few bytes: the number of scans is bounded, and so is the library's memory.
#include "image/picture_codec.h"

static bool matches(struct str file)
{
    return str_starts(file, STR("\xff\xd8\xff"));
}

#ifdef INGOT_JPEG
#include <setjmp.h>
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>
#include "base/mem.h"

enum {
    MAX_SCANS = 100,
    MAX_WARNINGS = 100,
    EXIF_MARKER = JPEG_APP0 + 1,
    FIXED_BYTES = 64 << 20,
    COEFFICIENT_BYTES = 8
};

struct jpeg_reading {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf back;
    struct picture *p;
    uint8_t *cmyk; // one row
    struct err *err;
};

#define TEXT(macro)     TEXT_OF(macro)
#define TEXT_OF(tokens) #tokens
static const char *library(void)
{
    return TEXT(LIBJPEG_TURBO_VERSION);
}

_Noreturn static void fail(struct jpeg_reading *r, enum err_code code, const char *message)
{
    err_set(r->err, code, "%s", message);
    longjmp(r->back, 1);
}

static void failed(j_common_ptr jpeg)
{
    char message[JMSG_LENGTH_MAX];

    jpeg->err->format_message(jpeg, message);
    fail(jpeg->client_data, ERR_INPUT, message);
}

static void noted(j_common_ptr jpeg, int level)
{
    struct jpeg_reading *r = jpeg->client_data;

    if (level >= 0)
        return;
    if (jpeg->err->msg_code == JWRN_JPEG_EOF || jpeg->err->msg_code == JWRN_HIT_MARKER)
        fail(r, ERR_INPUT, "the file is cut off");
    if (++jpeg->err->num_warnings > MAX_WARNINGS)
        fail(r, ERR_INPUT, "the file is damaged in more than 100 places");
}

static void count_scans(j_common_ptr jpeg)
{
    struct jpeg_reading *r = jpeg->client_data;

    if (r->jpeg.input_scan_number > MAX_SCANS)
        fail(r, ERR_LIMIT, "more than 100 scans");
}

static struct str exif_of(const struct jpeg_decompress_struct *jpeg)
{
    for (jpeg_saved_marker_ptr m = jpeg->marker_list; m; m = m->next) {
        struct str data = { (const char *)m->data, m->data_length };
        if (m->marker == EXIF_MARKER && str_starts(data, STR("Exif\0\0")))
            return data;
    }
    return (struct str){ 0 };
}

// From here on the library may longjmp out.
static void read_header(struct jpeg_reading *r, struct str file)
{
    jpeg_create_decompress(&r->jpeg);
    jpeg_save_markers(&r->jpeg, EXIF_MARKER, 0xffff);
    jpeg_mem_src(&r->jpeg, (const unsigned char *)file.at, file.n);
    jpeg_read_header(&r->jpeg, TRUE);
    if (r->jpeg.data_precision != 8)
        fail(r, ERR_UNSUPPORTED, "the samples are not of 8 bits");
    if (r->jpeg.num_components != 1 && r->jpeg.num_components != 3 && r->jpeg.num_components != 4)
        fail(r, ERR_UNSUPPORTED, "neither 1, 3 nor 4 colours");
}

// (255 - c) * (255 - k) / 255 of values that the file holds as 255 - value.
static void rgb_of_cmyk(uint8_t *rgb, const uint8_t *cmyk, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++, rgb += 3, cmyk += 4)
        for (int c = 0; c < 3; c++) {
            uint32_t light = cmyk[3], t = (255U - cmyk[c]) * light + 128;
            rgb[c] = (uint8_t)(light - ((t + (t >> 8)) >> 8));
        }
}

static void read_rows(struct jpeg_reading *r)
{
    struct jpeg_decompress_struct *jpeg = &r->jpeg;
    bool four = jpeg->num_components == 4;

    jpeg->out_color_space = four ? JCS_CMYK : JCS_RGB;
    jpeg->mem->max_memory_to_use =
        (long)(FIXED_BYTES + (uint64_t)jpeg->image_width * jpeg->image_height * COEFFICIENT_BYTES);
    r->progress.progress_monitor = count_scans;
    jpeg->progress = &r->progress;
    jpeg_start_decompress(jpeg);
    if (jpeg->output_width != r->p->width || jpeg->output_height != r->p->height)
        fail(r, ERR_INPUT, "two headers that differ");
    if (four && !(r->cmyk = mem_alloc_array(r->p->width, 4)))
        fail(r, ERR_MEMORY, "out of memory for a row");
    while (jpeg->output_scanline < r->p->height) {
        uint8_t *rgb = r->p->rgb + (size_t)jpeg->output_scanline * r->p->width * 3;
        JSAMPROW row = four ? r->cmyk : rgb;
        jpeg_read_scanlines(jpeg, &row, 1);
        if (four)
            rgb_of_cmyk(rgb, row, r->p->width);
    }
    jpeg_finish_decompress(jpeg);
}

static struct jpeg_reading *open_jpeg(struct picture *p, struct err *err)
{
    // On the heap: locals that change before a longjmp are undefined after it.
    struct jpeg_reading *r = mem_alloc(sizeof *r);

    if (!r) {
        err_memory(err, "libjpeg");
        return NULL;
    }
    r->p = p;
    r->err = err;
    r->jpeg.err = jpeg_std_error(&r->errors);
    r->errors.error_exit = failed;
    r->errors.emit_message = noted;
    r->jpeg.client_data = r;
    return r;
}

static void close_jpeg(struct jpeg_reading *r)
{
    jpeg_destroy_decompress(&r->jpeg);
    mem_free(r->cmyk);
    mem_free(r);
}

// The header into h, or all of it into p.
static bool read_jpeg(struct picture_head *h, struct picture *p, struct str file, struct err *err)
{
    struct jpeg_reading *r = open_jpeg(p, err);

    if (!r)
        return false;
    if (setjmp(r->back)) {
        close_jpeg(r);
        return false;
    }
    read_header(r, file);
    if (h)
        *h = (struct picture_head){ r->jpeg.image_width, r->jpeg.image_height,
                                    picture_orientation(exif_of(&r->jpeg)) };
    else
        read_rows(r);
    close_jpeg(r);
    return true;
}

static bool head(struct picture_head *h, struct str file, struct err *err)
{
    return read_jpeg(h, NULL, file, err);
}

static bool decode(struct picture *p, struct str file, struct err *err)
{
    return read_jpeg(NULL, p, file, err);
}
#else
static const char *library(void)
{
    return NULL;
}
#define head   NULL
#define decode NULL
#endif

const struct picture_codec picture_jpeg = { "JPEG", "libjpeg-turbo", library, matches, head, decode };
