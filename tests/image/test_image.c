// test_image.c - resizing, tiles and their prompt against Pillow's bytes (vectors.txt), by every loop and
// with threads; how a model's files say what they want.
#include "testing.h"
#include <unistd.h>
#include "base/mem.h"
#include "base/sha256.h"
#include "device/cpu/cpu.h"
#include "format/model_file.h"
#include "gguf_builder.h"
#include "image/image.h"
#include "image/image_pass.h"
#include "image/image_room.h"

static struct sha256_stream *sums;
static struct thread_pool *pool;
static struct image_room room; // what one picture leaves there, the next one finds

static int begin(void **state)
{
    (void)state;
    sums = sha256_open();
    pool = thread_pool_create(3);
    return sums && pool ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    sha256_close(sums);
    thread_pool_destroy(pool);
    image_room_release(&room);
    return 0;
}

static void assert_sum(const void *bytes, size_t n, const char *expected, const char *line)
{
    char text[65];

    sha256_add(sums, bytes, n);
    struct sha256 sum = sha256_take(sums);
    for (int i = 0; i < 32; i++)
        snprintf(text + 2 * i, 3, "%02x", sum.at[i]);
    if (strcmp(text, expected))
        fail_msg("%s: other bytes, %s", line, text);
}

// The patterns of tools/golden/picture_vectors.py.
static struct picture draw(const char *pattern, uint32_t width, uint32_t height)
{
    uint32_t state = (width * 65537 + height) | 1;
    struct picture p;
    struct err err;

    assert_ok(picture_create(&p, width, height, &err), &err);
    for (uint32_t i = 0; i < width * height * 3; i++) {
        uint32_t x = i / 3 % width, y = i / 3 / width, c = i % 3;
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        p.rgb[i] = (uint8_t)(*pattern == 'n'   ? state >> 24
                             : *pattern == 'c' ? (x + y + c) % 2 * 255
                                               : x * 7 + y * 13 + c * 85);
    }
    return p;
}

static const struct image_work *work_at(int i)
{
    static struct image_work ways[3];

    ways[1].plain = true;
    ways[2].pool = pool;
    ways[2].room = &room;
    return &ways[i];
}
enum { N_WAYS = 3 };

static void check_resize(const char *line)
{
    static const char *const filters[] = { "bilinear", "bicubic", "lanczos" };
    char pattern[16], filter[16], sum[65];
    struct image_size to = { 0 };
    uint32_t width, height;
    struct err err = { 0 };

    assert_int_equal(sscanf(line, "resize %15s %u %u %15s %u %u %64s", pattern, &width, &height, filter,
                            &to.width, &to.height, sum),
                     7);
    for (int i = 0; i < 3; i++)
        if (!strcmp(filter, filters[i]))
            to.filter = (enum image_filter)i;
    struct picture in = draw(pattern, width, height), out;
    for (int i = 0; i < N_WAYS; i++) {
        assert_ok(image_resize(&out, &in, to, work_at(i), &err), &err);
        assert_true(out.width == to.width && out.height == to.height);
        assert_sum(out.rgb, (size_t)out.width * out.height * 3, sum, line);
        picture_free(&out);
    }
    picture_free(&in);
}

// The loops of lesser CPUs too. One more than whole vectors, and lines behind the last one are not read.
static void every_pass_gives_the_same_bytes(void **state)
{
    static const struct image_axis axes[] = { { 64, 200, IMAGE_LANCZOS },
                                              { 200, 64, IMAGE_LANCZOS },
                                              { 5, 3, IMAGE_BICUBIC },
                                              { 3, 64, IMAGE_BILINEAR } };
    static const uint32_t features[] = { CPU_AVX2, CPU_AVX2 | CPU_AVX512 | CPU_AVX512_VNNI, CPU_NEON };
    enum { MOST = 200, LINE = 64 + 32 + 1 };
    uint8_t plain[LINE], fast[LINE];
    struct err err = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof axes / sizeof *axes; i++) {
        struct picture in = draw(i % 2 ? "checks" : "noise", LINE, MOST);
        struct image_weights w;
        assert_ok(image_weights_create(&w, &axes[i], NULL, &err), &err);
        const uint8_t *lines = in.rgb + (size_t)(MOST * 3 - axes[i].n_in) * LINE;
        for (uint32_t out = 0; out < axes[i].n_out; out++)
            for (size_t f = 0; f < sizeof features / sizeof *features; f++) {
                image_pass_choose(0)(&w, out, lines, LINE, plain);
                image_pass_choose(features[f] & cpu_features())(&w, out, lines, LINE, fast);
                assert_memory_equal(plain, fast, LINE);
            }
        image_weights_free(&w);
        picture_free(&in);
    }
}

static void check_split(const char *line)
{
    struct image_processor p = { .tokens_a_tile = 64, .filter = IMAGE_LANCZOS };
    char pattern[16], sum[65], prompt_sum[65];
    uint32_t width, height, rows, cols, split, r, c;
    struct image_tiles tiles;
    struct err err = { 0 };
    struct buf text = { 0 };

    assert_int_equal(sscanf(line, "split %15s %u %u %u %u %u %u %u %64s %64s", pattern, &width, &height,
                            &p.longest_edge, &p.tile, &split, &rows, &cols, sum, prompt_sum),
                     10);
    p.split = split;
    image_grid(&p, width, height, &r, &c);
    assert_true(r == rows && c == cols);
    struct picture in = draw(pattern, width, height);
    for (int i = 0; i < N_WAYS; i++) {
        assert_ok(image_split(&tiles, &p, &in, work_at(i), &err), &err);
        assert_true(tiles.rows == rows && tiles.cols == cols && tiles.n_tiles == rows * cols + 1 &&
                    tiles.side == p.tile);
        assert_sum(tiles.rgb, (size_t)tiles.n_tiles * p.tile * p.tile * 3, sum, line);
        image_tiles_free(&tiles);
    }
    assert_true(image_prompt(&text, &p, rows, cols));
    assert_sum(text.at, text.n, prompt_sum, line);
    buf_free(&text);
    picture_free(&in);
}

static void check_lines(const char *kind, void (*check)(const char *line), int n_expected)
{
    FILE *f = fopen(SOURCE_DIR "/tests/image/vectors.txt", "r");
    char line[512];
    int n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, kind, strlen(kind)))
            continue;
        line[strcspn(line, "\n")] = 0;
        check(line);
        n++;
    }
    fclose(f);
    assert_int_equal(n, n_expected);
}

static void resizing_gives_pillows_bytes(void **state)
{
    (void)state;
    check_lines("resize ", check_resize, 270);
}

static void tiles_and_prompts_are_the_processors(void **state)
{
    (void)state;
    check_lines("split ", check_split, 44);
}

static void a_byte_is_normalised_as_in_the_reference(void **state)
{
    struct image_processor p = { .rescale = 1 / 255.0, .mean = { 0.5F, 0, 0.25F }, .std = { 0.5F, 1, 2 } };
    float table[3][256];

    (void)state;
    image_normal_table(&p, table);
    assert_true(table[0][0] == -1 && table[0][255] == 1 && table[1][255] == 1 && table[2][0] == -0.125F);
    for (int v = 0; v < 256; v++)
        assert_true(table[0][v] == ((float)(v * 0.00392156862745098) - 0.5F) / 0.5F &&
                    table[1][v] == (float)(v / 255.0));
}

static void sizes_have_bounds(void **state)
{
    struct picture p, in = draw("ramp", 2, 2);
    struct err err = { 0 };

    (void)state;
    assert_fails(picture_create(&p, 0, 5, &err), &err, "0 x 5 pixels; at least 1 x 1");
    assert_fails(picture_create(&p, 16385, 1, &err), &err, "16385 x 1 pixels; at most 16384 a side");
    assert_fails(picture_create(&p, 8000, 8000, &err), &err, "8000 x 8000 pixels; at most 50 million");
    assert_fails(image_resize(&p, &in, (struct image_size){ 8000, 8000, IMAGE_LANCZOS }, work_at(0), &err),
                 &err, "at most 50 million");
    assert_true(err.code == ERR_LIMIT);
    picture_free(&in);
}

static void check_line_of_pixels(const struct image_processor *p, uint32_t most)
{
    uint32_t side = (p->longest_edge + p->tile - 1) / p->tile, rows, cols;
    const uint32_t long_side = side > 1 ? side : 0, short_side = side > 1;

    image_grid(p, 1, most, &rows, &cols);
    if (rows != long_side || cols != short_side)
        fail_msg("edge %u, tile %u: 1 x %u is %u x %u", p->longest_edge, p->tile, most, rows, cols);
    image_grid(p, most, 1, &rows, &cols);
    if (rows != short_side || cols != long_side)
        fail_msg("edge %u, tile %u: %u x 1 is %u x %u", p->longest_edge, p->tile, most, rows, cols);
}

// 1.0 / edge times edge may be less than 1 (98 * (1.0 / 98)): still a column of tiles, where the reference's
// resize to 0 pixels fails.
static void a_line_of_pixels_has_a_line_of_tiles(void **state)
{
    static const uint32_t tiles[] = { 364, 384, 512, 336, 49, 98 };
    static const struct image_processor small = {
        .longest_edge = 196, .tile = 98, .split = true, .filter = IMAGE_LANCZOS
    };
    struct image_processor p = small;
    struct image_tiles cut;
    struct picture line;
    struct err err = { 0 };
    (void)state;

    for (p.longest_edge = 2; p.longest_edge <= IMAGE_MAX_EDGE; p.longest_edge += 2) {
        for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
            p.tile = tiles[i];
            check_line_of_pixels(&p, 300);
            check_line_of_pixels(&p, PICTURE_MAX_SIDE);
        }
        p.tile = p.longest_edge < IMAGE_MAX_TILE ? p.longest_edge : IMAGE_MAX_TILE;
        check_line_of_pixels(&p, PICTURE_MAX_SIDE);
    }
    assert_ok(picture_create(&line, 1, 300, &err), &err);
    memset(line.rgb, 200, 300 * 3);
    assert_ok(image_split(&cut, &small, &line, &(struct image_work){ 0 }, &err), &err);
    assert_true(cut.rows == 2 && cut.cols == 1 && cut.n_tiles == 3);
    for (size_t i = 0; i < (size_t)3 * 98 * 98 * 3; i++)
        assert_int_equal(cut.rgb[i], 200);
    image_tiles_free(&cut);
    picture_free(&line);
}

static void memory_stays_between_pictures(void **state)
{
    struct image_room kept = { 0 };

    (void)state;
    void *small = image_room_take(&kept, 10, 100), *large = image_room_take(&kept, 1000, 100);
    assert_true(small && large && small != large);
    image_room_give(&kept, large);
    image_room_give(&kept, small);
    uint64_t n = mem_n_allocations();
    assert_ptr_equal(image_room_take(&kept, 9, 100), small);
    assert_ptr_equal(image_room_take(&kept, 9, 100), large);
    assert_int_equal(mem_n_allocations(), n);
    void *grown = image_room_take(&kept, 2, ROOM_KEPT_BYTES);
    assert_non_null(grown);
    image_room_give(&kept, grown); // too large to stay
    assert_null(kept.blocks[2].memory);
    for (int i = 2; i < ROOM_BLOCKS; i++)
        assert_non_null(image_room_take(&kept, 1, 1));
    void *beyond = image_room_take(&kept, 1, 1);
    assert_non_null(beyond);
    image_room_give(&kept, beyond);
    image_room_release(&kept);
    image_room_give(NULL, image_room_take(NULL, 1, 1));
}

static void no_memory_is_an_error_and_no_leak(void **state)
{
    struct image_processor p = { .longest_edge = 128, .tile = 64, .split = true, .filter = IMAGE_LANCZOS };
    struct picture in = draw("ramp", 97, 31);
    struct image_tiles tiles;
    struct err err = { 0 };
    int n = 1;

    (void)state;
    for (;; n++) {
        mem_fail_at((uint64_t)n, 0);
        bool ok = image_split(&tiles, &p, &in, work_at(0), &err);
        mem_fail_at(0, 0);
        if (ok)
            break;
        assert_true(err.code == ERR_MEMORY && !tiles.rgb);
    }
    assert_in_range(n, 20, 60);
    image_tiles_free(&tiles);
    picture_free(&in);
}

// ---- how a model says what it wants ----

static char folder[] = "/tmp/ingot_image_XXXXXX";

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void save(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static bool read_folder(struct image_processor *p, const char *config, const char *preparation,
                        const char *processor, struct err *err)
{
    static const char tensors[] = "\x08\0\0\0\0\0\0\0{}      ";
    struct model_file *file;

    save("model.safetensors", tensors, 16);
    save("config.json", config, strlen(config));
    save("preprocessor_config.json", preparation, strlen(preparation));
    save("processor_config.json", processor, strlen(processor));
    assert_ok(model_file_open(&file, folder, err), err);
    bool ok = image_processor_read(p, file, err);
    model_file_close(file);
    return ok;
}

#define VISION   "{\"scale_factor\": 4, \"vision_config\": {\"image_size\": 512, \"patch_size\": 16}}"
#define PREPARED "\"size\": {\"longest_edge\": 2048}, \"max_image_size\": {\"longest_edge\": 512}"

static void a_folder_says_what_it_wants(void **state)
{
    struct image_processor p;
    struct err err = { 0 };

    (void)state;
    assert_ok(read_folder(&p, VISION, "{" PREPARED "}", "{\"image_seq_len\": 64}", &err), &err);
    assert_true(p.longest_edge == 2048 && p.tile == 512 && p.split && p.filter == IMAGE_LANCZOS &&
                p.tokens_a_tile == 64);
    assert_true(p.rescale == 1 / 255.0 && p.mean[2] == 0.5F && p.std[0] == 0.5F);
    assert_ok(
        read_folder(
            &p, VISION,
            "{" PREPARED
            ", \"image_processor_type\": \"SmolVLMImageProcessorFast\", \"do_image_splitting\": false,"
            "\"resample\": 3, \"image_mean\": [0.1, 0.2, 0.3], \"image_std\": 2, \"rescale_factor\": 0.5}",
            "{}", &err),
        &err);
    assert_true(!p.split && p.filter == IMAGE_BICUBIC && p.mean[1] == 0.2F && p.std[2] == 2 &&
                p.rescale == 0.5);
    // transformers 5
    assert_ok(read_folder(&p, VISION, "{}", "{\"image_processor\": {" PREPARED "}}", &err), &err);
    assert_true(p.longest_edge == 2048 && p.tile == 512);
}

static void a_folder_that_asks_for_more_is_refused(void **state)
{
    static const struct {
        const char *config, *preparation, *processor, *message;
    } cases[] = {
        { VISION, "{}", "{}", "no preprocessor_config.json in this folder" },
        { VISION, "{\"do_resize\": false, " PREPARED "}", "{}",
          "preprocessor_config.do_resize is false; expected true" },
        { VISION, "{\"image_processor_type\": \"Qwen2VLImageProcessor\"}", "{}",
          "is 'Qwen2VLImageProcessor'; expected Idefics3" },
        { VISION, "{\"resample\": 4, " PREPARED "}", "{}", "a whole number from 1 to 3" },
        { VISION, "{\"image_mean\": [0.5, 0.5], " PREPARED "}", "{}", "3 numbers, one a channel" },
        { VISION, "{\"image_std\": [0.5, 0.5, 0], " PREPARED "}", "{}", "3 numbers, one a channel" },
        { VISION, "{\"size\": {\"longest_edge\": 4097}}", "{}", "a whole number from 1 to 4096" },
        { VISION, "{\"size\": {\"longest_edge\": 2047}, \"max_image_size\": {\"longest_edge\": 512}}", "{}",
          "expected an even number" },
        { VISION, "{\"max_image_size\": {\"longest_edge\": 364}, \"do_pad\": true}", "{}",
          "tiles of 364 pixels and vision_config" },
        { VISION, "{" PREPARED "}", "{\"image_seq_len\": 81}", "image_seq_len is 81; expected 64" },
        { "{\"scale_factor\": 3, \"vision_config\": {\"image_size\": 512, \"patch_size\": 16}}",
          "{" PREPARED "}", "{}", "is 32 patches wide; expected a multiple of 3" },
        { "{\"scale_factor\": 1, \"vision_config\": {\"image_size\": 32, \"patch_size\": 4}}",
          "{\"size\": {\"longest_edge\": 1024}, \"max_image_size\": {\"longest_edge\": 32}}", "{}",
          "at most 65 tiles" },
    };
    struct image_processor p;
    struct err err = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(read_folder(&p, cases[i].config, cases[i].preparation, cases[i].processor, &err), &err,
                     cases[i].message);
}

static bool read_mmproj(struct image_processor *p, uint32_t preproc, const char *projector, struct err *err)
{
    const float means[3] = { 0.5F, 0.25F, 0.5F };
    struct gguf_builder g = { .version = 3 };
    struct model_file *file;

    gguf_meta_str(&g, "general.architecture", "clip");
    gguf_meta_str(&g, "clip.projector_type", projector);
    gguf_meta_u32(&g, "clip.vision.image_size", 384);
    gguf_meta_u32(&g, "clip.vision.patch_size", 14);
    gguf_meta_u32(&g, "clip.vision.projector.scale_factor", 3);
    gguf_meta_array(&g, "clip.vision.image_mean", 6, 3, means, sizeof means);
    if (preproc)
        gguf_meta_u32(&g, "clip.vision.preproc_image_size", preproc);
    gguf_image(&g);
    assert_ok(model_file_open_memory(&file, g.image, g.n, "mmproj", err), err);
    bool ok = image_processor_read(p, file, err);
    model_file_close(file);
    gguf_builder_free(&g);
    return ok;
}

// The nearest aspect ratio, by get_optimal_tiled_canvas of transformers' GotOcr2 processor.
static void a_grid_has_the_nearest_aspect_ratio(void **state)
{
    static const uint32_t cases[][7] = {
        // width, height; tile, tiles at least and at most; columns, rows
        { 1, 1, 448, 1, 12, 1, 1 },       { 448, 448, 448, 1, 12, 1, 1 },   { 900, 900, 448, 1, 12, 2, 2 },
        { 1400, 1400, 448, 1, 12, 3, 3 }, { 1920, 1080, 448, 1, 12, 4, 2 }, { 3024, 4032, 448, 1, 12, 3, 4 },
        { 4000, 1, 448, 1, 12, 12, 1 },   { 1, 4000, 448, 1, 12, 1, 12 },   { 640, 480, 448, 1, 12, 4, 3 },
        { 800, 400, 448, 1, 12, 2, 1 },   { 1300, 650, 448, 1, 12, 4, 2 },  { 1800, 900, 448, 1, 12, 4, 2 },
        { 500, 1000, 448, 1, 12, 1, 2 },  { 513, 511, 448, 1, 12, 1, 1 },   { 1024, 683, 448, 1, 12, 3, 2 },
        { 60, 40, 30, 1, 12, 3, 2 },      { 60, 40, 30, 4, 6, 3, 2 },       { 7, 100, 30, 1, 3, 1, 3 },
        { 2000, 1250, 448, 1, 12, 3, 2 }, { 600, 240, 448, 1, 12, 5, 2 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint32_t *c = cases[i];
        struct image_processor p = {
            .tiling = IMAGE_BY_ASPECT, .tile = c[2], .min_tiles = c[3], .max_tiles = c[4], .split = true
        };
        uint32_t rows, cols, one = c[5] * c[6] == 1;
        image_grid(&p, c[0], c[1], &rows, &cols);
        if (rows != (one ? 0 : c[6]) || cols != (one ? 0 : c[5]))
            fail_msg("%u x %u: %u columns, %u rows", c[0], c[1], cols, rows);
        p.split = false;
        image_grid(&p, c[0], c[1], &rows, &cols);
        assert_true(rows == 0 && cols == 0);
    }
}

// Tiles of the picture in the grid's size, and the whole straight from the picture.
static void tiles_by_aspect_are_parts_of_one_resize(void **state)
{
    struct image_processor p = { .tiling = IMAGE_BY_ASPECT,
                                 .tile = 30,
                                 .min_tiles = 1,
                                 .max_tiles = 6,
                                 .tokens_a_tile = 2,
                                 .split = true,
                                 .filter = IMAGE_BICUBIC };
    struct picture in = draw("noise", 61, 40), grid, whole;
    struct image_tiles tiles;
    struct buf text = { 0 };
    struct err err = { 0 };

    (void)state;
    assert_ok(image_split(&tiles, &p, &in, work_at(0), &err), &err);
    assert_true(tiles.cols == 3 && tiles.rows == 2 && tiles.n_tiles == 7 && image_most_tiles(&p) == 7);
    assert_ok(image_resize(&grid, &in, (struct image_size){ 90, 60, p.filter }, work_at(0), &err), &err);
    assert_ok(image_resize(&whole, &in, (struct image_size){ 30, 30, p.filter }, work_at(0), &err), &err);
    for (uint32_t i = 0; i < 6 * 30; i++)
        assert_memory_equal(tiles.rgb + (size_t)i * 90,
                            grid.rgb + ((i / 30 / 3 * 30 + i % 30) * 90 + i / 30 % 3 * 30) * 3, 90);
    assert_memory_equal(tiles.rgb + 6 * 2700, whole.rgb, 2700);
    assert_true(image_prompt(&text, &p, 0, 0));
    assert_string_equal(text.at, "<img><IMG_CONTEXT><IMG_CONTEXT></img>");
    assert_true(image_prompt(&text, &p, 1, 2) && text.n == 37 + 11 + 6 * 13);
    buf_free(&text);
    image_tiles_free(&tiles);
    picture_free(&whole);
    picture_free(&grid);
    picture_free(&in);
}

static void internvl_is_read_from_both_files(void **state)
{
    static const char config[] = "{\"downsample_ratio\": 0.5, \"image_seq_length\": 256, \"vision_config\": "
                                 "{\"image_size\": [448, 448], \"patch_size\": [14, 14]}}";
    static const char prepared[] =
        "{\"image_processor_type\": \"GotOcr2ImageProcessorFast\", \"crop_to_patches\": false, "
        "\"max_patches\": "
        "9, \"size\": {\"height\": 448, \"width\": 448}, \"image_mean\": [0.485, 0.456, 0.406]}";
    struct image_processor p;
    struct err err = { 0 };

    (void)state;
    assert_ok(read_folder(&p, config, prepared, "{}", &err), &err);
    assert_true(p.tiling == IMAGE_BY_ASPECT && p.tile == 448 && p.min_tiles == 1 && p.max_tiles == 9 &&
                p.split && p.filter == IMAGE_BICUBIC && p.tokens_a_tile == 256 && p.patch == 14 &&
                p.scale == 2);
    assert_fails(
        read_folder(&p, config,
                    "{\"image_processor_type\": \"GotOcr2ImageProcessor\", \"size\": {\"height\": 448, "
                    "\"width\": 224}}",
                    "{}", &err),
        &err, "tiles of 224 x 448 pixels; expected squares");
    assert_fails(read_folder(&p, "{\"vision_config\": {\"image_size\": [448, 224]}}", prepared, "{}", &err),
                 &err, "vision_config.image_size is an array of something else; expected two equal numbers");
    assert_fails(
        read_folder(&p, config,
                    "{\"image_processor_type\": \"GotOcr2ImageProcessor\", \"max_patches\": 65, \"size\": "
                    "{\"height\": 448, \"width\": 448}}",
                    "{}", &err),
        &err, "at most 65 tiles");
    assert_ok(read_mmproj(&p, 0, "internvl", &err), &err);
    assert_true(p.tiling == IMAGE_BY_ASPECT && p.max_tiles == 12 && p.filter == IMAGE_BICUBIC &&
                p.scale == 3);
}

static void an_mmproj_file_says_what_it_wants(void **state)
{
    struct image_processor p;
    struct err err = { 0 };

    (void)state;
    assert_ok(read_mmproj(&p, 0, "idefics3", &err), &err);
    assert_true(p.tile == 384 && p.longest_edge == 1536 && p.tokens_a_tile == 81 && p.mean[1] == 0.25F &&
                p.std[1] == 0.5F && p.split);
    assert_ok(read_mmproj(&p, 768, "idefics3", &err), &err);
    assert_int_equal(p.longest_edge, 768);
    assert_fails(read_mmproj(&p, 0, "qwen2vl", &err), &err,
                 "clip.projector_type is 'qwen2vl'; expected idefics3");
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    static const char *const names[] = { "model.safetensors", "config.json", "preprocessor_config.json",
                                         "processor_config.json" };

    (void)state;
    for (int i = 0; i < 4; i++)
        unlink(path_of(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pass_gives_the_same_bytes),
        cmocka_unit_test(resizing_gives_pillows_bytes),
        cmocka_unit_test(tiles_and_prompts_are_the_processors),
        cmocka_unit_test(a_grid_has_the_nearest_aspect_ratio),
        cmocka_unit_test(tiles_by_aspect_are_parts_of_one_resize),
        cmocka_unit_test(a_byte_is_normalised_as_in_the_reference),
        cmocka_unit_test(sizes_have_bounds),
        cmocka_unit_test(a_line_of_pixels_has_a_line_of_tiles),
        cmocka_unit_test(memory_stays_between_pictures),
        cmocka_unit_test(no_memory_is_an_error_and_no_leak),
        cmocka_unit_test_setup_teardown(a_folder_says_what_it_wants, make_folder, NULL),
        cmocka_unit_test(internvl_is_read_from_both_files),
        cmocka_unit_test_setup_teardown(a_folder_that_asks_for_more_is_refused, NULL, drop_folder),
        cmocka_unit_test(an_mmproj_file_says_what_it_wants),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
