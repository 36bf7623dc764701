// test_cuda_vision.c - the CUDA kernels of encoders, of pictures and of texts, against the plain loops, and
// whole towers, models with eyes and embedding models against the reference's numbers. Skipped where there is
// no GPU.
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "base/divide.h"
#include "device/cuda/cuda_internal.h"
#include "device/cuda_sides.h"
#include "device/fuse.h"
#include "models/golden_embed.h"
#include "models/golden_pictures.h"
#include "ops/vision_sides.h"

static void kernels_of_a_tower(void **state)
{
    static const struct {
        uint32_t rows, most, n_cols, n_heads;
        double limit;
    } cases[] = { { 36, 36, 48, 3, 1e-9 },  { 72, 144, 36, 2, 1e-9 },   { 100, 144, 130, 1, 1e-9 },
                  { 1, 36, 32, 4, 1e-9 },   { 71, 144, 1600, 5, 1e-9 }, { 100, 144, 128, 2, 5e-5 },
                  { 72, 144, 144, 2, 5e-5 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct op_shape c = { .rows = cases[i].rows,
                              .most_rows = cases[i].most,
                              .n_cols = cases[i].n_cols,
                              .n_heads = cases[i].n_heads,
                              .limit = cases[i].limit };
        struct sides s;
        sides_open(&s, gpu, &c, record_tower);
        fill_tiles(&s.plain, c.rows);
        fill_tiles(&s.fast, c.rows);
        sides_compare(&s, "tower", &c);
        check_graph(&s.fast);
        sides_close(&s);
    }
}

// Patches of eights of pixels and of others, as rows of fp32 and packed for the product behind them; in the
// last rows of a tile there are none.
static void record_patches(struct side *s, const struct op_shape *c)
{
    uint32_t n_cols = divide_up(3 * c->n_cols * c->n_cols, 64) * 64;
    struct tensor out = side_tensor(s, 3 * c->n_cols * c->n_cols + c->n_cols % 3 * 8, ROWS_STEP),
                  packed = tape_tensor(s->tape, n_cols, ROWS_STEP);
    struct patches patches = { .out = out,
                               .pixels = side_buffer(s, 4ull * c->n_out * c->n_out * 3),
                               .table = side_vector(s, 3 * 256),
                               .side = c->n_out,
                               .patch = c->n_cols };

    op_patches(s->tape, patches);
    patches.out = packed;
    op_patches(s->tape, patches);
    op_matmul(s->tape, (struct matmul){ .out = side_tensor(s, 256, ROWS_STEP),
                                        .in = packed,
                                        .w = side_weight(s, QUANT_BF16, 256, packed.n_cols) });
}

static void patches_of_every_size(void **state)
{
    static const struct op_shape shapes[] = {
        // n_out: pixels of a tile, in both directions
        { .n_cols = 16, .n_out = 96, .rows = 144, .most_rows = 144 },
        { .n_cols = 16, .n_out = 104, .rows = 131, .most_rows = 144 },
        { .n_cols = 8, .n_out = 48, .rows = 100, .most_rows = 100 },
        { .n_cols = 32, .n_out = 168, .rows = 36, .most_rows = 72 },
        { .n_cols = 16, .n_out = 97, .rows = 140, .most_rows = 144 },
        { .n_cols = 14, .n_out = 75, .rows = 77, .most_rows = 144 },
        { .n_cols = 12, .n_out = 80, .rows = 141, .most_rows = 144 },
    };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct op_shape c = shapes[i];
        struct sides s;
        c.limit = 5e-5;
        sides_open(&s, gpu, &c, record_patches);
        fill_tiles(&s.plain, c.rows);
        fill_tiles(&s.fast, c.rows);
        sides_compare(&s, "patches", &c);
        check_graph(&s.fast);
        sides_close(&s);
    }
}

// Squares that are handed on packed to the product behind them, or in columns that are not.
static void record_connector(struct side *s, const struct op_shape *c)
{
    uint32_t n = c->n_cols * SQUARE * SQUARE;
    struct tensor squares = tape_tensor(s->tape, n, ROWS_OUTPUT);

    op_shuffle(s->tape, (struct shuffle){ .out = squares,
                                          .in = side_tensor(s, c->n_cols, ROWS_STEP),
                                          .side = SQUARE,
                                          .n_across = ACROSS });
    op_matmul(s->tape, (struct matmul){ .out = side_tensor(s, 256, ROWS_OUTPUT),
                                        .in = squares,
                                        .w = side_weight(s, QUANT_BF16, 256, n) });
}

static void connectors_of_every_size(void **state)
{
    static const uint32_t columns[] = { 128, 192, 32, 1152, 48 }, rows[][2] = { { 144, 144 }, { 71, 144 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 2 * sizeof columns / sizeof *columns; i++) {
        struct op_shape c = { .n_cols = columns[i / 2],
                              .rows = rows[i % 2][0],
                              .most_rows = rows[i % 2][1],
                              .decode = 36, // outputs
                              .limit = 5e-5 };
        struct sides s;
        sides_open(&s, gpu, &c, record_connector);
        fill_tiles(&s.plain, c.rows);
        fill_tiles(&s.fast, c.rows);
        sides_compare(&s, "connector", &c);
        check_graph(&s.fast);
        assert_int_equal(fuse_packed(tape_command(s.fast.tape, 0), true) != NULL,
                         c.n_cols * SQUARE * SQUARE % 128 == 0);
        sides_close(&s);
    }
}

static const uint32_t slots[][MOST_SLOTS] = {
    { 1 }, { 64 }, { 300, 1, 64, 129, 200 }, { 127, 2, 127 }, { 1024, 1024 }
};
enum { N_SLOTS = sizeof slots / sizeof *slots };

static uint32_t rows_of_slots(const uint32_t rows[MOST_SLOTS])
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < MOST_SLOTS; i++)
        n += rows[i];
    return n;
}

// Heads of 64 and 72 in tiles, others and exact ones row by row.
static void attention_over_slots_of_any_size(void **state)
{
    static const uint32_t heads[][2] = { { 3, 64 }, { 2, 72 }, { 2, 18 }, { 1, 131 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 4 * N_SLOTS * 2; i++) {
        const uint32_t *head = heads[i % 4], *rows = slots[i / 4 % N_SLOTS], n = rows_of_slots(rows);
        struct op_shape c = { .rows = n,
                              .most_rows = n + i % 3 * 50,
                              .n_heads = head[0],
                              .head_dim = head[1],
                              .exact = i / 4 >= N_SLOTS };
        bool tiles = (head[1] == 64 || head[1] == 72) && !c.exact;
        struct sides s;
        c.n_cols = head[0] * head[1];
        c.limit = tiles ? 1e-4 : 1e-9;
        sides_open(&s, gpu, &c, record_attend_all);
        fill_slots(&s.plain, rows);
        fill_slots(&s.fast, rows);
        sides_compare(&s, "attend_all", &c);
        check_graph(&s.fast);
        sides_close(&s);
    }
}

static void kernels_of_an_encoder_of_texts(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < N_ENCODER_CASES; i++) {
        struct op_shape c = encoder_case(i);
        struct sides s;
        c.limit = c.head_dim == 64 && c.n_kv_heads == c.n_heads && c.window == 0 ? 1e-4 : c.limit;
        sides_open(&s, gpu, &c, record_encoder);
        fill_slots(&s.plain, encoder_slots[i % N_ENCODER_SLOTS]);
        fill_slots(&s.fast, encoder_slots[i % N_ENCODER_SLOTS]);
        sides_compare(&s, "encoder", &c);
        check_graph(&s.fast);
        sides_close(&s);
    }
}

// Rows that one command hands on packed, alone or beside its fp32 rows, and in formats that hand on none.
static void layers_of_an_encoder(void **state)
{
    static const struct op_shape shapes[] = {
        { .format = QUANT_BF16, .n_cols = 128, .n_heads = 2, .n_out = 384 },
        { .format = QUANT_BF16, .n_cols = 1152, .n_heads = 16, .n_out = 1280 },
        { .format = QUANT_BF16, .n_cols = 768, .n_heads = 12, .n_out = 3072 },
        { .format = QUANT_BF16, .n_cols = 192, .n_heads = 3, .n_out = 200 },
        { .format = QUANT_F16, .n_cols = 128, .n_heads = 2, .n_out = 384 },
        { .format = QUANT_Q8_0, .n_cols = 128, .n_heads = 2, .n_out = 384 },
        { .format = QUANT_Q8_0, .n_cols = 128, .n_heads = 2, .n_out = 384, .row_scales = true },
        { .format = QUANT_Q8_0, .n_cols = 768, .n_heads = 12, .n_out = 3072, .row_scales = true },
        { .format = QUANT_Q8_0, .n_cols = 1152, .n_heads = 16, .n_out = 1280, .row_scales = true },
        { .format = QUANT_Q8_0, .n_cols = 192, .n_heads = 3, .n_out = 384, .row_scales = true },
        { .format = QUANT_BF16, .n_cols = 128, .n_heads = 2, .n_out = 384, .exact = true },
        { .format = QUANT_BF16, .n_cols = 128, .n_heads = 2, .n_out = 384, .invariant = true },
    };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 2 * sizeof shapes / sizeof *shapes; i++) {
        struct op_shape c = shapes[i / 2];
        struct sides s;
        c.rows = rows_of_slots(slots[2 + i % 2]);
        c.most_rows = c.rows + 77;
        c.limit = c.exact ? 1e-9 : c.format == QUANT_Q8_0 ? 5e-4 : 5e-5;
        sides_open(&s, gpu, &c, record_layer);
        fill_slots(&s.plain, slots[2 + i % 2]);
        fill_slots(&s.fast, slots[2 + i % 2]);
        sides_compare(&s, "layer", &c);
        check_graph(&s.fast);
        sides_close(&s);
    }
}

// So many rows that products of every width of gemm_cluster's tiles go in waves, the last tile not whole.
static void layers_of_many_rows(void **state)
{
    static const struct {
        struct op_shape shape;
        uint32_t slots[MOST_SLOTS];
    } cases[] = {
        { { .format = QUANT_BF16, .n_cols = 1024, .n_heads = 16, .n_out = 2304 }, { 1024, 1024, 448 } },
        { { .format = QUANT_BF16, .n_cols = 1024, .n_heads = 16, .n_out = 2688 }, { 1024, 1024, 448 } },
        { { .format = QUANT_BF16, .n_cols = 640, .n_heads = 10, .n_out = 3072 }, { 1024, 1024, 1024, 1224 } },
        { { .format = QUANT_Q8_0, .n_cols = 768, .n_heads = 12, .n_out = 1088, .row_scales = true },
          { 1024, 1024, 1024, 1224 } },
        // whole waves of tiles that are normalised where they end, and a rest of other tiles
        { { .format = QUANT_BF16, .n_cols = 768, .n_heads = 12, .n_out = 1088 },
          { 1500, 1500, 1500, 1500, 1400, 1200 } },
    };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct op_shape c = cases[i].shape;
        struct sides s;
        c.rows = rows_of_slots(cases[i].slots);
        c.most_rows = c.rows + 77;
        c.limit = c.format == QUANT_Q8_0 ? 5e-4 : 5e-5;
        sides_open(&s, gpu, &c, record_layer);
        fill_slots(&s.plain, cases[i].slots);
        fill_slots(&s.fast, cases[i].slots);
        sides_compare(&s, "layer", &c);
        check_graph(&s.fast);
        sides_close(&s);
    }
}

// A residual, a bias or neither; activated rows that are read as they are.
static void record_products_by_row_scales(struct side *s, const struct op_shape *c)
{
    struct tensor in = side_tensor(s, c->n_cols, ROWS_STEP), add = side_tensor(s, c->n_out, ROWS_STEP);
    const struct weight *bias = side_vector(s, c->n_out);

    for (uint32_t i = 0; i < 3; i++)
        op_matmul(s->tape, (struct matmul){ .out = side_tensor(s, c->n_out, ROWS_STEP),
                                            .in = in,
                                            .w = side_matrix(s, c, c->n_out, c->n_cols),
                                            .bias = i > 0 ? bias : NULL,
                                            .add = i > 1 ? add : (struct tensor){ 0 } });
    op_matmul_activated(s->tape,
                        (struct matmul){ .out = side_tensor(s, c->n_out, ROWS_STEP),
                                         .in = in,
                                         .w = side_matrix(s, c, c->n_out, c->n_cols),
                                         .bias = bias },
                        ACTIVATION_GELU_TANH);
}

static bool launches(const struct side *s, const char *kernel)
{
    const struct cuda_plan *plan = &((const struct cuda_tape *)s->tape->native)->plan;
    bool found = false;

    for (uint32_t i = 0; i < plan->n_launches; i++)
        found |= plan->launches[i].function == cuda_function(plan->cuda, kernel);
    return found;
}

static void products_by_weights_with_one_scale_a_row(void **state)
{
    static const uint32_t rows[] = { 1, 129, 255, 256, 257, 700 }, columns[] = { 128, 256, 768, 3072 },
                          outputs[] = { 16, 128, 144, 576, 256, 768, 1024 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 6 * 4 * 2; i++) {
        struct op_shape c = { .format = QUANT_Q8_0,
                              .rows = rows[i % 6],
                              .most_rows = rows[i % 6] + 128 * (i % 2) + (i % 6 == 0 ? 128 : 0),
                              .n_cols = columns[i / 6 % 4],
                              .n_out = outputs[i % 7],
                              .row_scales = true,
                              .limit = 5e-4 };
        struct sides s;
        sides_open(&s, gpu, &c, record_products_by_row_scales);
        sides_compare(&s, "products", &c);
        check_graph(&s.fast);
        if (gpu->row_scales_cols) {
            bool stays = c.n_cols <= 768 && c.n_out % 256 == 0, wide = c.n_cols > c.n_out;
            assert_true(launches(&s.fast, wide    ? "gemm_staged_int8_wide"
                                          : stays ? "gemm_stationary_int8"
                                                  : "gemm_staged_int8"));
            assert_true(
                launches(&s.fast, stays ? "gemm_stationary_int8_activated" : "gemm_staged_int8_activated"));
        }
        sides_close(&s);
    }
}

// A number that is none makes its own row none, through norm, products and attention of its slot, and no
// other.
static void bad_rows_of_an_encoder_stay_alone(void **state)
{
    static const uint32_t rows[MOST_SLOTS] = { 100, 150, 133 };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 2; i++) {
        struct op_shape c = { .format = QUANT_Q8_0,
                              .rows = 383,
                              .most_rows = 383,
                              .n_cols = 768,
                              .n_heads = 12,
                              .n_out = 3072,
                              .row_scales = true };
        float bad = i ? INFINITY : NAN, *out = mem_alloc_array((size_t)c.rows * c.n_cols, sizeof *out);
        struct side s = { 0 };
        struct err err = { 0 };
        side_open(&s, gpu, &c, record_layer);
        fill_slots(&s, rows);
        assert_ok(buffer_write(&s.buffers[0], (100 * 768 + 5) * sizeof bad, &bad, sizeof bad, &err), &err);
        assert_ok(tape_play(s.tape, &s.step, &err), &err);
        assert_ok(buffer_read(&s.buffers[s.n_buffers - 1], 0, out, (size_t)c.rows * c.n_cols * 4, &err),
                  &err);
        for (uint32_t k = 0; k < c.rows * c.n_cols; k++)
            assert_int_equal(isfinite(out[k]), k / c.n_cols < 100 || k / c.n_cols >= 250);
        side_close(&s);
        mem_free(out);
    }
}

// The kernels that serve every other architecture, here on whatever there is.
static void attention_of_lesser_devices(void **state)
{
    skip_without_gpu();
    struct cuda *c = (struct cuda *)gpu;
    uint32_t capability = c->limits.capability;

    c->limits.capability = 80;
    attention_over_slots_of_any_size(state);
    c->limits.capability = capability;
}

static void towers_give_the_reference_embeddings(void **state)
{
    (void)state;
    skip_without_gpu();
    for (int exact = 0; exact < 2; exact++) {
        double limit = exact ? 1e-9 : 1e-4;
        check_tower(gpu, &(struct tower_run){ "smolvlm", 3, exact, limit });
        check_tower(gpu, &(struct tower_run){ "smolvlm", 6, exact, limit });
        check_tower(gpu, &(struct tower_run){ "idefics3", 3, exact, limit });
        check_tower(gpu, &(struct tower_run){ "internvl", 3, exact, limit });
    }
}

// The shipped tower's matrices are Q8_0.
static void a_tower_in_integers_is_near_the_exact_one(void **state)
{
    (void)state;
    skip_without_gpu();
    check_tower_is_near(gpu, SOURCE_DIR "/models/mmproj-ingot-eyes-q8_0.gguf", 256, 1e-3);
}

static void patches_of_14_pixels_are_padded(void **state)
{
    (void)state;
    skip_without_gpu();
    check_padded_tower(gpu, 64);
}

static void pictures_give_the_reference_logits(void **state)
{
    (void)state;
    skip_without_gpu();
    for (size_t i = 0; i < N_PICTURE_FILES; i++) {
        check_picture_logits(&picture_files[i],
                             &(struct golden_run){ .device = "cuda", .n_batch = 512, .exact = true });
        check_picture_logits(&picture_files[i], &(struct golden_run){ .device = "cuda", .n_batch = 7 });
    }
}

static void embedders_give_the_reference_vectors(void **state)
{
    static const char *const folders[] = { "embed-qwen3", "embed-bert",  "embed-bge",
                                           "embed-e5",    "embed-nomic", "embed-gemma" };
    const struct embed_way exact = { "/model.gguf", "cuda", true }, half = { "", "cuda", false };

    (void)state;
    skip_without_gpu();
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        check_embed(folders[i], &exact, INGOT_EMBED_MODEL);
        check_embed(folders[i], &half, INGOT_EMBED_MODEL);
    }
    check_embed("rerank-qwen3", &exact, INGOT_EMBED_RANK);
    check_embed("rerank-bge", &exact, INGOT_EMBED_RANK);
}

// Pixels reach the device in pieces that several threads copy.
static void large_writes_arrive_whole(void **state)
{
    static const uint64_t sizes[] = { (4 << 20) - 1, (4 << 20) + 3, (13 << 20) + 77, (16 << 20) + 5 };
    struct err err = { 0 };

    (void)state;
    skip_without_gpu();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t n = sizes[i];
        uint8_t *room = mem_alloc(n + 1), *from = room + i % 2, *back = mem_alloc(n); // at any address
        struct buffer b;
        for (uint64_t k = 0; k < n; k++)
            from[k] = (uint8_t)(k * 2654435761u >> 24);
        assert_ok(buffer_alloc(gpu, n, &b, &err), &err);
        assert_ok(buffer_write(&b, 0, from, n, &err), &err);
        assert_ok(gpu->ops->read(gpu, &b, 0, back, n, &err), &err);
        assert_memory_equal(from, back, n);
        buffer_release(&b);
        mem_free(room);
        mem_free(back);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_writes_arrive_whole),
        cmocka_unit_test(kernels_of_a_tower),
        cmocka_unit_test(patches_of_every_size),
        cmocka_unit_test(connectors_of_every_size),
        cmocka_unit_test(products_by_weights_with_one_scale_a_row),
        cmocka_unit_test(bad_rows_of_an_encoder_stay_alone),
        cmocka_unit_test(attention_over_slots_of_any_size),
        cmocka_unit_test(attention_of_lesser_devices),
        cmocka_unit_test(kernels_of_an_encoder_of_texts),
        cmocka_unit_test(layers_of_an_encoder),
        cmocka_unit_test(layers_of_many_rows),
        cmocka_unit_test(towers_give_the_reference_embeddings),
        cmocka_unit_test(a_tower_in_integers_is_near_the_exact_one),
        cmocka_unit_test(patches_of_14_pixels_are_padded),
        cmocka_unit_test(pictures_give_the_reference_logits),
        cmocka_unit_test(embedders_give_the_reference_vectors),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
