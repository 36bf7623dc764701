// test_vision_tower.c - the towers against the reference's numbers: the encoder's output and the connector's,
// from both file formats; and files that lie.
//
// tools/golden/vision_models.py makes the models, make_vision_golden.py the numbers, with transformers in
// fp32; make_internvl_golden.py makes both of InternVL, in fp64.
#include "device/cpu/cpu.h"
#include "engine/stage/vision.h"
#include "ops/op_harness.h"

struct golden_tower {
    struct model_file *file, *numbers;
    const uint8_t *tiles;
    const float *encoded, *connected;
    uint32_t n_tiles, n_out;
};

static struct model_file *open_file(const char *variant, const char *name)
{
    char path[512];
    struct model_file *file;
    struct err err = { 0 };

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s%s", variant, name);
    assert_ok(model_file_open(&file, path, &err), &err);
    return file;
}

static struct golden_tower open_golden(const char *variant, const char *name)
{
    struct golden_tower g = { .file = open_file(variant, name),
                              .numbers = open_file(variant, "/golden.safetensors") };
    const struct file_tensor *tiles = model_file_tensor(g.numbers, "tiles"),
                             *connected = model_file_tensor(g.numbers, "connected");

    g.tiles = tiles->data;
    g.n_tiles = *(const uint32_t *)(const void *)model_file_tensor(g.numbers, "n_tiles")->data;
    g.encoded = (const float *)(const void *)model_file_tensor(g.numbers, "encoded")->data;
    g.connected = (const float *)(const void *)connected->data;
    g.n_out = (uint32_t)connected->dims[1];
    return g;
}

static void close_golden(struct golden_tower *g)
{
    model_file_close(g->file);
    model_file_close(g->numbers);
}

static struct device *open_cpu(bool plain)
{
    struct err err = { 0 };
    struct device *d =
        cpu_open(&(struct cpu_options){ .plain = plain, .n_threads = 2, .table = &cpu_table }, &err);

    if (!d)
        fail_msg("cpu_open: %s", err.message);
    return d;
}

// Tiles in groups of `together`, to places of the pool from the last one down.
static void check_tower(const char *variant, const char *name, bool plain, uint32_t together)
{
    struct golden_tower g = open_golden(variant, name);
    struct device *d = open_cpu(plain);
    struct vision v;
    struct vision_plan plan = { g.file, d, g.n_out, g.n_tiles + 2, true, false, true };
    struct err err = { 0 };

    assert_ok(vision_create(&v, &plan, &err), &err);
    const uint32_t n_encoded = tower_tile_rows(&v.tower) * v.tower.config.n_cols,
                   n_connected = tower_rows(&v.tower) * g.n_out;
    for (uint32_t at = 0, n; at < g.n_tiles; at += n) {
        struct vision_tile tiles[VISION_MOST_TILES];
        n = g.n_tiles - at < together ? g.n_tiles - at : together;
        for (uint32_t i = 0; i < n; i++)
            tiles[i] = (struct vision_tile){ g.tiles + (at + i) * vision_tile_bytes(&v), g.n_tiles - at - i };
        assert_ok(vision_encode(&v, tiles, n, &err), &err);
        for (uint32_t i = 0; i < n; i++) {
            const float *encoded = (const float *)v.encoded.host + (size_t)i * n_encoded;
            const float *connected = (const float *)v.pool.host + (size_t)tiles[i].place * n_connected;
            double a = bench_error(g.encoded + (size_t)(at + i) * n_encoded, encoded, n_encoded);
            double b = bench_error(g.connected + (size_t)(at + i) * n_connected, connected, n_connected);
            if (!(a <= 1e-9 && b <= 1e-9))
                fail_msg("%s%s, tile %u, %s: encoder %.1e, connector %.1e", variant, name, at + i,
                         plain ? "plain" : "fast", a, b);
        }
    }
    vision_release(&v);
    device_close(d);
    close_golden(&g);
}

static void towers_give_the_reference_numbers(void **state)
{
    static const char *const files[][2] = { { "smolvlm", "" },
                                            { "smolvlm", "/mmproj.gguf" },
                                            { "smolvlm", "/mmproj-old.gguf" },
                                            { "idefics3", "" },
                                            { "idefics3", "/mmproj.gguf" },
                                            { "internvl", "" },
                                            { "internvl", "/mmproj.gguf" } };

    (void)state;
    for (uint32_t i = 0; i < sizeof files / sizeof *files; i++)
        for (uint32_t together = 1; together <= 4; together++) {
            check_tower(files[i][0], files[i][1], true, together);
            check_tower(files[i][0], files[i][1], false, together);
        }
}

// A tile's embeddings have the same bits alone and beside others.
static void a_tile_has_the_same_bits_in_any_company(void **state)
{
    struct golden_tower g = open_golden("smolvlm", "/mmproj.gguf");
    struct device *d = open_cpu(false);
    struct vision v;
    struct vision_plan plan = { g.file, d, g.n_out, 16, false, false, false };
    struct err err = { 0 };

    (void)state;
    assert_ok(vision_create(&v, &plan, &err), &err);
    const uint64_t bytes = tower_rows(&v.tower) * g.n_out * 4ull;
    for (uint32_t i = 0; i < g.n_tiles; i++)
        assert_ok(vision_encode(&v, &(struct vision_tile){ g.tiles + i * vision_tile_bytes(&v), i }, 1, &err),
                  &err);
    const uint32_t most = vision_most_tiles(&v);
    for (uint32_t first = 0; first + most <= g.n_tiles; first++) {
        struct vision_tile tiles[VISION_MOST_TILES];
        for (uint32_t i = 0; i < most; i++)
            tiles[i] = (struct vision_tile){ g.tiles + (first + i) * vision_tile_bytes(&v), 8 + i };
        assert_ok(vision_encode(&v, tiles, most, &err), &err);
        for (uint32_t i = 0; i < most; i++)
            assert_memory_equal((const char *)v.pool.host + (first + i) * bytes,
                                (const char *)v.pool.host + (8 + i) * bytes, bytes);
    }
    vision_release(&v);
    device_close(d);
    close_golden(&g);
}

// A patch embedding in fp32 is multiplied as bf16, unless products shall be exact.
static void matrices_in_fp32_are_rounded(void **state)
{
    struct golden_tower g = open_golden("smolvlm", "/mmproj.gguf");
    struct device *d = open_cpu(false);
    struct err err = { 0 };

    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        struct vision v;
        struct vision_plan plan = { g.file, d, g.n_out, 1, exact, false, false };
        assert_ok(vision_create(&v, &plan, &err), &err);
        assert_int_equal(v.tower.tensors[0]->format, QUANT_F32);
        assert_int_equal(v.parts.weights.patch->format, exact ? QUANT_F32 : QUANT_BF16);
        assert_int_equal(v.parts.weights.position->format, QUANT_F32);
        vision_release(&v);
    }
    device_close(d);
    close_golden(&g);
}

// In slices of one command, and given up in the middle for others.
static void slices_give_the_bits_of_the_whole(void **state)
{
    struct golden_tower g = open_golden("internvl", "/mmproj.gguf");
    struct device *d = open_cpu(false);
    struct vision v;
    struct vision_plan plan = { g.file, d, g.n_out, 16, false, false, false };
    struct err err = { 0 };
    bool done = false;

    (void)state;
    assert_ok(vision_create(&v, &plan, &err), &err);
    const uint64_t bytes = tower_rows(&v.tower) * g.n_out * 4ull;
    const struct vision_tile whole[2] = { { g.tiles, 0 }, { g.tiles + vision_tile_bytes(&v), 1 } },
                             sliced[2] = { { g.tiles, 2 }, { g.tiles + vision_tile_bytes(&v), 3 } },
                             unwanted = { g.tiles + 2 * vision_tile_bytes(&v), 4 };
    assert_ok(vision_encode(&v, whole, 2, &err), &err);
    assert_ok(vision_begin(&v, &unwanted, 1, &err) && vision_continue(&v, 0, &done, &err), &err);
    assert_false(done);
    assert_ok(vision_begin(&v, sliced, 2, &err), &err);
    uint32_t n = tape_n_commands(v.tapes[v.bucket]);
    for (uint32_t i = 0; i < n; i++) {
        assert_false(done);
        assert_ok(vision_continue(&v, 0, &done, &err), &err);
        assert_int_equal(v.n_played, i + 1);
    }
    assert_true(done && v.times.all > v.times.embed + v.times.connect && v.times.connect > 0);
    assert_memory_equal(v.pool.host, (const char *)v.pool.host + 2 * bytes, 2 * bytes);
    vision_release(&v);
    device_close(d);
    close_golden(&g);
}

static void expect_refusal(const char *variant, const char *name, uint32_t n_out, const char *part)
{
    struct model_file *file = open_file(variant, name);
    struct tower t;
    struct err err = { 0 };

    assert_false(tower_bind(&t, file, n_out, &err));
    if (!strstr(err.message, part) || strchr(err.message, '\n'))
        fail_msg("\"%s\" should say \"%s\" in one line", err.message, part);
    model_file_close(file);
}

static void wrong_files_get_one_line(void **state)
{
    (void)state;
    expect_refusal("smolvlm", "/mmproj.gguf", 57, "they do not belong together");
    expect_refusal("smolvlm", "", 57, "this tower needs [57, 432]");
    expect_refusal("smolvlm", "/text.gguf", 56, "clip.projector_type is missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(towers_give_the_reference_numbers),
        cmocka_unit_test(a_tile_has_the_same_bits_in_any_company),
        cmocka_unit_test(matrices_in_fp32_are_rounded),
        cmocka_unit_test(slices_give_the_bits_of_the_whole),
        cmocka_unit_test(wrong_files_get_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
