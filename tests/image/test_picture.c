// test_picture.c - PNG, JPEG and WebP to Pillow's pixels (pictures.txt), where ingot decides otherwise, and
// files that are cut off, damaged, too large or of another kind.
#include "testing.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "image/image.h"
#include "image/picture_codec.h"

static void load(struct buf *file, const char *name)
{
    char path[512];
    struct err err = { 0 };

    snprintf(path, sizeof path, SOURCE_DIR "/tests/fuzz/corpus/%s", name);
    *file = (struct buf){ 0 };
    assert_ok(file_read(file, path, PICTURE_MAX_BYTES, &err), &err);
}

static bool has_library(const char *name)
{
    return *name == 'p'   ? picture_png_library()
           : *name == 'j' ? picture_jpeg_library()
                          : picture_webp_library();
}

static void sum_of(const struct picture *p, char text[65])
{
    struct sha256_stream *s = sha256_open();

    sha256_add(s, p->rgb, (size_t)p->width * p->height * 3);
    struct sha256 sum = sha256_take(s);
    sha256_close(s);
    for (int i = 0; i < 32; i++)
        snprintf(text + 2 * i, 3, "%02x", sum.at[i]);
}

// Every line of pictures.txt whose format this build reads.
static void each_picture(void (*check)(const char *line, const char *name, const struct buf *file))
{
    FILE *f = fopen(SOURCE_DIR "/tests/image/pictures.txt", "r");
    char line[256], name[64];
    int n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (*line == '#' || sscanf(line, "%63s", name) != 1)
            continue;
        n++;
        if (!has_library(name))
            continue;
        struct buf file;
        load(&file, name);
        check(line, name, &file);
        buf_free(&file);
    }
    fclose(f);
    assert_int_equal(n, 94);
}

static void check_pixels(const char *line, const char *name, const struct buf *file)
{
    char expected[65], sum[65];
    unsigned width, height;
    uint32_t w = 0, h = 0;
    struct picture p;
    struct err err = { 0 };

    assert_int_equal(sscanf(line, "%*s %u %u %64s", &width, &height, expected), 3);
    if (!picture_decode(&p, file->at, file->n, &err))
        fail_msg("%s: %s", name, err.message);
    sum_of(&p, sum);
    if (p.width != width || p.height != height || strcmp(sum, expected))
        fail_msg("%s: other pixels, %u x %u", name, p.width, p.height);
    assert_true(picture_size(file->at, file->n, &w, &h, &err) && w == width && h == height);
    picture_free(&p);
}

static void pixels_are_pillows(void **state)
{
    (void)state;
    each_picture(check_pixels);
}

// The one thing a beginning may be is a whole file without the byte that pads it.
static void check_cuts(const char *line, const char *name, const struct buf *file)
{
    (void)line;
    for (size_t n = 0; n + 1 < file->n; n++) {
        uint8_t *cut = mem_alloc_aligned(n + 1, 64);
        struct picture p;
        struct err err = { 0 };
        memcpy(cut, file->at, n);
        if (picture_decode(&p, cut, n, &err))
            fail_msg("%s: decoded from the first %zu of %zu bytes", name, n, file->n);
        assert_true(err.code != ERR_NONE && err.message[0] && !strchr(err.message, '\n') && !p.rgb);
        mem_free_aligned(cut);
    }
}

static void a_file_that_is_cut_off_is_refused_at_every_byte(void **state)
{
    (void)state;
    each_picture(check_cuts);
}

static void decode_fails(const void *bytes, size_t n, enum err_code code, const char *message)
{
    struct picture p;
    struct err err = { 0 };
    uint32_t w, h;

    assert_fails(picture_decode(&p, bytes, n, &err), &err, message);
    assert_int_equal(err.code, code);
    assert_null(p.rgb);
    if (code == ERR_UNSUPPORTED)
        assert_fails(picture_size(bytes, n, &w, &h, &err), &err, message);
}

static void other_formats_are_refused_by_name(void **state)
{
    (void)state;
#define REFUSED(bytes, message) \
    decode_fails(bytes "................", sizeof(bytes) + 15, ERR_UNSUPPORTED, message)
    REFUSED("GIF89a", "the picture is GIF; PNG, JPEG and WebP are read");
    REFUSED("BM", "the picture is BMP");
    REFUSED("II*\0", "the picture is TIFF");
    REFUSED("MM\0*", "the picture is TIFF");
    REFUSED("\0\0\0\x18"
            "ftypheic",
            "the picture is HEIC");
    REFUSED("\0\0\0\x18"
            "ftypavif",
            "the picture is AVIF");
    REFUSED("\xff\x0a", "the picture is JPEG XL");
    REFUSED("<svg", "the picture is SVG");
    REFUSED("hello", "no picture that is known here");
    decode_fails("", 0, ERR_INPUT, "the picture has no bytes");
    decode_fails(NULL, 0, ERR_INPUT, "the picture has no bytes");
    decode_fails("RIFF", 4, ERR_UNSUPPORTED, "no picture that is known here");
    uint8_t *large = mem_alloc(PICTURE_MAX_BYTES + 1);
    decode_fails(large, PICTURE_MAX_BYTES + 1, ERR_LIMIT, "the picture has 20971521 bytes; at most 20971520");
    mem_free(large);
}

static void put32(char *at, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        at[i] = (char)(v >> (24 - 8 * i));
}

// Sizes that a header declares are judged before memory is taken for them.
static void a_png_header_is_judged_first(void **state)
{
    static const struct {
        uint32_t width, height;
        enum err_code code;
        const char *message;
    } cases[] = {
        { 0, 5, ERR_INPUT, "0 x 5 pixels; at least 1 x 1" },
        { 5, 0, ERR_INPUT, "5 x 0 pixels; at least 1 x 1" },
        { 20000, 20000, ERR_LIMIT, "20000 x 20000 pixels; at most 16384 a side" },
        { 10000, 10000, ERR_LIMIT, "10000 x 10000 pixels; at most 50 million" },
        { 0x7fffffff, 0x7fffffff, ERR_LIMIT, "2147483647 x 2147483647 pixels; at most 16384 a side" },
        { 0xffffffff, 1, ERR_LIMIT, "4294967295 x 1 pixels; at most 16384 a side" },
        { 13, 9, ERR_INPUT, "PNG: IHDR: CRC error" }, // as it was, but for its sum
    };
    struct buf file;

    (void)state;
    if (!picture_png_library())
        skip();
    load(&file, "png/rgb8");
    file.at[32] ^= 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        put32(file.at + 16, cases[i].width);
        put32(file.at + 20, cases[i].height);
        decode_fails(file.at, file.n, cases[i].code, cases[i].message);
    }
    buf_free(&file);
}

static void damage(const char *name, size_t at, int bits, const char *message)
{
    struct buf file;

    load(&file, name);
    file.at[at < file.n ? at : file.n - 9] ^= (char)bits;
    decode_fails(file.at, file.n, ERR_INPUT, message);
    buf_free(&file);
}

static void damage_is_told(void **state)
{
    (void)state;
    if (picture_png_library()) {
        damage("png/rgb8", 45, 255, "PNG: "); // in the pixels' stream
        damage("png/rgb8", 37, 8, "PNG: ");   // in a chunk's name
        damage("png/one", SIZE_MAX, 1, "PNG: ");
    }
    if (picture_webp_library())
        damage("webp/lossless", 20, 1, "WebP: the file is damaged");
}

static size_t find(const struct buf *file, int marker)
{
    for (size_t i = 0; i + 1 < file->n; i++)
        if ((uint8_t)file->at[i] == 0xff && (uint8_t)file->at[i + 1] == marker)
            return i;
    fail_msg("no marker %x", marker);
    return 0;
}

static void a_jpeg_header_is_judged_first(void **state)
{
    struct buf file;

    (void)state;
    if (!picture_jpeg_library())
        skip();
    load(&file, "jpeg/444");
    char *frame = file.at + find(&file, 0xc0);
    memset(frame + 5, 0xff, 4);
    decode_fails(file.at, file.n, ERR_INPUT, "JPEG: Maximum supported image dimension");
    put32(frame + 5, 20000U << 16 | 3);
    decode_fails(file.at, file.n, ERR_LIMIT, "3 x 20000 pixels; at most 16384 a side");
    put32(frame + 5, 8000U << 16 | 8000);
    decode_fails(file.at, file.n, ERR_LIMIT, "8000 x 8000 pixels; at most 50 million");
    put32(frame + 5, 37);
    decode_fails(file.at, file.n, ERR_INPUT, "JPEG: Empty JPEG image");
    put32(frame + 5, 23U << 16 | 37);
    frame[4] = 12;
    decode_fails(file.at, file.n, ERR_INPUT, "JPEG: Unsupported JPEG data precision 12");
    frame[4] = 8;
    frame[1] = (char)0xc3;
    decode_fails(file.at, file.n, ERR_INPUT, "JPEG: Unsupported JPEG process");
    buf_free(&file);
}

static void insert(struct buf *file, size_t at, const char *bytes, size_t n)
{
    char *copy = mem_alloc(n);

    memcpy(copy, bytes, n);
    assert_true(buf_append(file, copy, n));
    memmove(file->at + at + n, file->at + at, file->n - n - at);
    memcpy(file->at + at, copy, n);
    mem_free(copy);
}

// 8 x 8 pixels of grey: one scan for the means of three colours, then one for each of n coefficients, which
// are all zero.
static void many_scans(struct buf *file, int n)
{
    static const char frame[] = "\xff\xd8\xff\xdb\0\x43\0",
                      tables[] = "\xff\xc2\0\x11\x08\0\x08\0\x08\3\1\x11\0\2\x11\0\3\x11\0" // SOF2
                                 "\xff\xc4\0\x14\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                 "\xff\xc4\0\x14\x10\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
                                 "\xff\xda\0\x0c\3\1\0\2\0\3\0\0\0\0\x1f";

    *file = (struct buf){ 0 };
    buf_append(file, frame, sizeof frame - 1);
    for (int i = 0; i < 64; i++)
        buf_append(file, "\1", 1);
    buf_append(file, tables, sizeof tables - 1);
    for (int i = 0; i < n; i++) {
        const char band = (char)(1 + i / 3),
                   scan[] = { '\xff', '\xda', 0, 8, 1, (char)(1 + i % 3), 0, band, band, 0, '\x7f' };
        buf_append(file, scan, sizeof scan);
    }
    assert_true(buf_append(file, "\xff\xd9", 2));
}

// A scan of 11 bytes makes the decoder walk over a whole picture.
static void scans_are_counted(void **state)
{
    struct buf file;
    struct picture p;
    struct err err = { 0 };

    (void)state;
    if (!picture_jpeg_library())
        skip();
    many_scans(&file, 99);
    assert_ok(picture_decode(&p, file.at, file.n, &err), &err);
    assert_true(p.width == 8 && p.height == 8 && p.rgb[0] == 128 && p.rgb[191] == 128);
    picture_free(&p);
    buf_free(&file);
    many_scans(&file, 100);
    decode_fails(file.at, file.n, ERR_LIMIT, "JPEG: more than 100 scans");
    buf_free(&file);
}

static void small_damage_is_counted(void **state)
{
    struct buf file;
    struct picture p;
    struct err err = { 0 };

    (void)state;
    if (!picture_jpeg_library())
        skip();
    load(&file, "jpeg/444-progressive");
    size_t scan = find(&file, 0xda), end = scan + 2;
    while ((uint8_t)file.at[end] != 0xff || file.at[end + 1] == 0)
        end++;
    insert(&file, scan, file.at + scan, end - scan); // out of order, which harms nothing
    assert_ok(picture_decode(&p, file.at, file.n, &err), &err);
    picture_free(&p);
    for (int i = 0; i < 90; i++)
        insert(&file, scan, file.at + scan, end - scan);
    decode_fails(file.at, file.n, ERR_INPUT, "JPEG: the file is damaged in more than 100 places");
    buf_free(&file);
}

static void two_headers_are_refused(void **state)
{
    struct buf file;

    (void)state;
    if (picture_jpeg_library()) {
        load(&file, "jpeg/444");
        size_t frame = find(&file, 0xc0);
        insert(&file, frame, file.at + frame, 19);
        decode_fails(file.at, file.n, ERR_INPUT, "JPEG: Invalid JPEG file structure: two SOF markers");
        buf_free(&file);
    }
    if (picture_png_library()) {
        load(&file, "png/rgb8");
        insert(&file, 33, file.at + 8, 25);
        decode_fails(file.at, file.n, ERR_INPUT, "PNG: IHDR: out of place");
        buf_free(&file);
    }
}

static void a_webp_canvas_bounds_its_frames(void **state)
{
    struct buf file;

    (void)state;
    if (!picture_webp_library())
        skip();
    load(&file, "webp/animated-inset");
    file.at[24] = 3; // the canvas is 4 pixels wide
    decode_fails(file.at, file.n, ERR_INPUT, "WebP: the file is cut off or damaged");
    memset(file.at + 24, 0xff, 3);
    decode_fails(file.at, file.n, ERR_LIMIT, "16777216 x 15 pixels; at most 16384 a side");
    buf_free(&file);
}

static struct str bytes_of(const char *text, size_t n)
{
    return (struct str){ text, n };
}
#define EXIF(text) picture_orientation(bytes_of(text, sizeof(text) - 1))

static void odd_exif_is_upright(void **state)
{
    (void)state;
    assert_int_equal(EXIF("II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0"), 6);
    assert_int_equal(EXIF("MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\x06\0\0"), 6);
    assert_int_equal(EXIF("Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\4\0\1\0\0\0\3\0\0\0"), 3); // four bytes
    assert_int_equal(EXIF("II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\x09\0\0\0"), 1);       // no such orientation
    assert_int_equal(EXIF("II*\0\x08\0\0\0\1\0\x12\1\3\0\2\0\0\0\6\0\6\0"), 1);         // two of them
    assert_int_equal(EXIF("II*\0\x08\0\0\0\1\0\x12\1\2\0\1\0\0\0\6\0\0\0"), 1);         // a text
    assert_int_equal(EXIF("II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0"), 1);                 // cut off
    assert_int_equal(EXIF("II*\0\xff\xff\xff\xff"), 1);                                 // outside
    assert_int_equal(EXIF("II*\0\x06\0\0\0\xff\xff"), 1);                               // on itself
    assert_int_equal(EXIF("XX*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0"), 1);
    assert_int_equal(EXIF(""), 1);
}

static void white_lies_behind(void **state)
{
    const uint8_t rgba[] = { 9, 8, 7, 0, 10, 20, 30, 255, 0, 100, 255, 128 };
    uint8_t rgb[9];

    (void)state;
    picture_on_white(rgb, rgba, 3);
    assert_memory_equal(rgb, ((uint8_t[]){ 255, 255, 255, 10, 20, 30, 127, 177, 255 }), 9);
}

static void no_memory_is_an_error_and_no_leak(void **state)
{
    static const char *const names[] = { "png/rgba8-adam7", "jpeg/cmyk", "webp/lossy-alpha", "png/exif6" };

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct buf file;
        struct picture p = { 0 };
        struct err err = { 0 };
        bool ok = !has_library(names[i]);
        load(&file, names[i]);
        for (uint64_t n = 1; !ok; n++) {
            mem_fail_at(n, 0);
            ok = picture_decode(&p, file.at, file.n, &err);
            mem_fail_at(0, 0);
            assert_true(ok ? n > 2 : err.code == ERR_MEMORY && !p.rgb);
        }
        picture_free(&p);
        buf_free(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pixels_are_pillows),
        cmocka_unit_test(a_file_that_is_cut_off_is_refused_at_every_byte),
        cmocka_unit_test(other_formats_are_refused_by_name),
        cmocka_unit_test(a_png_header_is_judged_first),
        cmocka_unit_test(damage_is_told),
        cmocka_unit_test(a_jpeg_header_is_judged_first),
        cmocka_unit_test(scans_are_counted),
        cmocka_unit_test(small_damage_is_counted),
        cmocka_unit_test(two_headers_are_refused),
        cmocka_unit_test(a_webp_canvas_bounds_its_frames),
        cmocka_unit_test(odd_exif_is_upright),
        cmocka_unit_test(white_lies_behind),
        cmocka_unit_test(no_memory_is_an_error_and_no_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
