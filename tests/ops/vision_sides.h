// vision_sides.h - the operations of encoders, of pictures and of texts, on a device beside their plain
// loops, and a whole tower beside the reference's numbers: what the tests of devices share.
#pragma once
#include <unistd.h>
#include "engine/stage/vision.h"
#include "model_tools/random/random_tower.h"
#include "ops/attend_all/attend_all.h"
#include "ops/device_sides.h"
#include "ops/layernorm/layernorm.h"
#include "ops/patches/patches.h"
#include "ops/scale_add/scale_add.h"
#include "ops/scatter/scatter.h"
#include "ops/shuffle/shuffle.h"

enum { ACROSS = 6, PATCH = 3, SIDE = 20, SQUARE = 2, MOST_SLOTS = 6 };

// Tiles of ACROSS x ACROSS rows, the last one cut off: attention and patches do not mind.
static inline void fill_tiles(struct side *s, uint32_t n_rows)
{
    const struct tape_limits *l = tape_limits(s->tape);
    uint32_t *words = mem_alloc(step_bytes(l->max_rows, l->max_outputs)), n_outputs = 0;
    struct step head = { .n_rows = n_rows, .max_rows = l->max_rows, .max_outputs = l->max_outputs };
    struct err err = { 0 };

    memset(words, 0, step_bytes(l->max_rows, l->max_outputs));
    for (uint32_t r = 0; r < n_rows; r++) {
        uint32_t i = r % (ACROSS * ACROSS);
        words[step_at_tokens() + r] = i % 5 == 0 ? STEP_TOKEN_POOLED | (r % 7) : i % VOCABULARY;
        words[step_at_positions(l->max_rows) + r] = i;
        words[step_at_slots(l->max_rows) + r] = r / (ACROSS * ACROSS);
        if (i / ACROSS % SQUARE == 0 && i % SQUARE == 0 && r + ACROSS + 1 < n_rows &&
            n_outputs < l->max_outputs)
            words[step_at_outputs(l->max_rows) + n_outputs++] = r;
    }
    head.n_outputs = n_outputs;
    memcpy(words, &head, sizeof head);
    assert_ok(buffer_write(&s->step, 0, words, step_bytes(l->max_rows, l->max_outputs), &err), &err);
    mem_free(words);
}

// Slots of unlike numbers of rows; 0 ends the list.
static inline void fill_slots(struct side *s, const uint32_t rows[MOST_SLOTS])
{
    const struct tape_limits *l = tape_limits(s->tape);
    uint32_t *words = mem_alloc(step_bytes(l->max_rows, l->max_outputs));
    struct step head = { .max_rows = l->max_rows, .max_outputs = l->max_outputs };
    struct err err = { 0 };

    memset(words, 0, step_bytes(l->max_rows, l->max_outputs));
    for (uint32_t slot = 0; slot < MOST_SLOTS; slot++)
        for (uint32_t r = 0; r < rows[slot]; r++) {
            words[step_at_positions(l->max_rows) + head.n_rows] = r;
            words[step_at_slots(l->max_rows) + head.n_rows++] = slot;
        }
    memcpy(words, &head, sizeof head);
    assert_ok(buffer_write(&s->step, 0, words, step_bytes(l->max_rows, l->max_outputs), &err), &err);
    mem_free(words);
}

static inline void record_tower(struct side *s, const struct op_shape *c)
{
    uint32_t n = c->n_cols, max_outputs = tape_limits(s->tape)->max_outputs;
    struct buffer *places = side_buffer(s, max_outputs * 4),
                  *pixels = side_buffer(s, 4 * SIDE * SIDE * 3 + 4);
    uint32_t at[64];
    struct err err = { 0 };

    for (uint32_t i = 0; i < 64; i++)
        at[i] = (i * 5 + 3) % 64;
    assert_ok(buffer_write(places, 0, at, max_outputs * 4ull, &err), &err);
    struct tensor in = side_tensor(s, n, ROWS_STEP), normed = side_tensor(s, n, ROWS_STEP),
                  out = side_tensor(s, n, ROWS_STEP);
    struct tensor squares = side_tensor(s, n * SQUARE * SQUARE, ROWS_OUTPUT);
    op_layernorm(
        s->tape,
        (struct layernorm){
            .out = normed, .in = in, .scale = side_vector(s, n), .bias = side_vector(s, n), .eps = 1e-6f });
    op_attend_all(
        s->tape,
        (struct attend_all){
            .out = out, .q = in, .k = normed, .v = in, .n_heads = c->n_heads, .scale = 1 / sqrtf((float)n) });
    op_activate(s->tape, (struct activate){ .out = normed, .gate = out, .activation = ACTIVATION_GELU_TANH });
    op_scale_add(s->tape,
                 (struct scale_add){ .out = in, .in = normed, .add = in, .scale = side_vector(s, n) });
    op_shuffle(s->tape, (struct shuffle){ .out = squares, .in = out, .side = SQUARE, .n_across = ACROSS });
    op_activate(s->tape, (struct activate){ .out = squares, .gate = squares, .activation = ACTIVATION_GELU });
    op_scatter(s->tape, (struct scatter){ .in = squares,
                                          .pool = side_buffer(s, 64ull * n * SQUARE * SQUARE * 4),
                                          .places = places });
    op_patches(s->tape, (struct patches){ .out = side_tensor(s, 3 * PATCH * PATCH, ROWS_STEP),
                                          .pixels = pixels,
                                          .table = side_vector(s, 3 * 256),
                                          .side = SIDE,
                                          .patch = PATCH });
    op_patches(s->tape,
               (struct patches){ .out = side_tensor(s, 3 * 25 + 13, ROWS_STEP), // 4 across: rows beyond
                                 .pixels = pixels,
                                 .table = side_vector(s, 3 * 256),
                                 .side = SIDE,
                                 .patch = 5 });
    op_embed(s->tape, (struct embed){ .out = side_tensor(s, n, ROWS_STEP),
                                      .table = side_weight(s, QUANT_F16, VOCABULARY, n),
                                      .history = side_buffer(s, 4),
                                      .pool = side_buffer(s, 7ull * n * 4),
                                      .scale = 1.5f });
}

// Scores far apart, as trained models have them.
static inline void record_attend_all(struct side *s, const struct op_shape *c)
{
    uint32_t n = c->n_heads * c->head_dim;
    struct attend_all a = { .n_heads = c->n_heads, .scale = 3 / sqrtf((float)c->head_dim) };

    a.q = side_tensor(s, n, ROWS_STEP);
    a.k = side_tensor(s, n, ROWS_STEP);
    a.v = side_tensor(s, n, ROWS_STEP);
    a.out = side_tensor(s, n, ROWS_STEP);
    op_attend_all(s->tape, a);
}

// What an encoder of texts has and one of pictures has not: fewer K and V heads, a reach, rows that are added
// by position.
static const uint32_t encoder_slots[][MOST_SLOTS] = { { 1 }, { 37 }, { 5, 1, 64, 33 }, { 130, 2, 127 } };
enum { N_ENCODER_SLOTS = sizeof encoder_slots / sizeof *encoder_slots, N_ENCODER_CASES = 16 };

static inline struct op_shape encoder_case(uint32_t i)
{
    static const uint32_t heads[][3] = { { 6, 2, 20 }, { 3, 1, 64 }, { 2, 2, 64 }, { 4, 2, 131 } };
    static const enum quant tables[] = { QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0 };
    const uint32_t *head = heads[i / N_ENCODER_SLOTS], *rows = encoder_slots[i % N_ENCODER_SLOTS];
    struct op_shape c = { .n_heads = head[0],
                          .n_kv_heads = head[1],
                          .head_dim = head[2],
                          .window = i % 3 == 0 ? 0 : 17 * (i % 3), // rows to each side
                          .format = tables[i % 4],
                          .n_cols = i % 4 == 3 ? 96 : 50,
                          .limit = 1e-9 };

    for (uint32_t slot = 0; slot < MOST_SLOTS; slot++)
        c.rows += rows[slot];
    c.most_rows = c.rows + i % 2 * 9;
    return c;
}

static inline void record_encoder(struct side *s, const struct op_shape *c)
{
    struct tensor out = side_tensor(s, c->n_cols, ROWS_STEP);
    uint32_t n = c->n_heads * c->head_dim, n_kv = c->n_kv_heads * c->head_dim;
    struct attend_all a = { .n_heads = c->n_heads,
                            .scale = 3 / sqrtf((float)c->head_dim),
                            .reach = c->window };

    a.q = side_tensor(s, n, ROWS_STEP);
    a.k = side_tensor(s, n_kv, ROWS_STEP);
    a.v = side_tensor(s, n_kv, ROWS_STEP);
    a.out = side_tensor(s, n, ROWS_STEP);
    op_attend_all(s->tape, a);
    op_embed(s->tape, (struct embed){ .out = out,
                                      .table = side_weight(s, c->format, 130, c->n_cols),
                                      .by = EMBED_POSITION });
    op_embed(s->tape, (struct embed){
                          .out = out, .table = side_weight(s, c->format, 2, c->n_cols), .by = EMBED_FIRST });
}

static inline struct model_file *open_golden(const char *variant, const char *name)
{
    char path[512];
    struct model_file *file;
    struct err err = { 0 };

    snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/%s", variant, name);
    assert_ok(model_file_open(&file, path, &err), &err);
    return file;
}

struct tower_run {
    const char *variant; // in tests/golden
    uint32_t n_tiles;    // together
    bool exact;
    double limit; // of the normalised squared error of a tile
};

// A whole tower against the reference's embeddings; tiles go to places of the pool from the last one down.
static inline void check_tower(struct device *d, const struct tower_run *run)
{
    struct model_file *file = open_golden(run->variant, "mmproj.gguf"),
                      *numbers = open_golden(run->variant, "golden.safetensors");
    const uint8_t *tiles = model_file_tensor(numbers, "tiles")->data;
    const struct file_tensor *connected = model_file_tensor(numbers, "connected");
    struct vision_plan plan = { file,  d,    (uint32_t)connected->dims[1], run->n_tiles + 1, run->exact,
                                false, false };
    struct vision v;
    struct err err = { 0 };

    assert_ok(vision_create(&v, &plan, &err), &err);
    const uint32_t n = tower_rows(&v.tower) * plan.n_out;
    float *ours = mem_alloc_array(n, sizeof *ours);
    struct vision_tile all[VISION_MOST_TILES];
    for (uint32_t i = 0; i < run->n_tiles; i++)
        all[i] = (struct vision_tile){ tiles + i * vision_tile_bytes(&v), run->n_tiles - i };
    assert_ok(vision_encode(&v, all, run->n_tiles, &err), &err);
    assert_ok(d->ops->wait(d, &err), &err);
    for (uint32_t i = 0; i < run->n_tiles; i++) {
        assert_ok(buffer_read(&v.pool, (uint64_t)all[i].place * n * 4, ours, n * 4ull, &err), &err);
        double error = bench_error((const float *)(const void *)connected->data + (size_t)i * n, ours, n);
        if (!(error <= run->limit))
            fail_msg("%s, tile %u: error %.1e; want at most %.0e", run->variant, i, error, run->limit);
    }
    mem_free(ours);
    vision_release(&v);
    model_file_close(file);
    model_file_close(numbers);
}

static inline void encode_noise(struct vision *v, uint32_t n_tiles, float *to)
{
    struct vision_tile tiles[VISION_MOST_TILES];
    uint64_t bytes = vision_tile_bytes(v);
    uint8_t *rgb = mem_alloc(n_tiles * bytes);
    struct err err = { 0 };

    for (uint64_t i = 0; i < n_tiles * bytes; i++) // edges, and a slope
        rgb[i] = (uint8_t)(i / bytes * 40 + i % 191 / 3 + (i / 96 % 32 < 16 ? 120 : 0));
    for (uint32_t i = 0; i < n_tiles; i++)
        tiles[i] = (struct vision_tile){ rgb + i * bytes, i };
    assert_ok(vision_encode(v, tiles, n_tiles, &err), &err);
    assert_ok(v->device->ops->wait(v->device, &err), &err);
    assert_ok(buffer_read(&v->pool, 0, to,
                          (uint64_t)n_tiles * tower_rows(&v->tower) * v->tower.config.n_out * 4, &err),
              &err);
    mem_free(rgb);
}

// The embeddings of a tower beside its own exact ones, of four tiles.
static inline void check_tower_is_near(struct device *d, const char *path, uint32_t n_out, double limit)
{
    struct model_file *file;
    struct err err = { 0 };
    float *embeddings[2];
    size_t n = 0;

    assert_ok(model_file_open(&file, path, &err), &err);
    for (int exact = 0; exact < 2; exact++) {
        struct vision_plan plan = {
            .file = file, .device = d, .n_out = n_out, .n_places = 4, .exact = exact
        };
        struct vision v;
        assert_ok(vision_create(&v, &plan, &err), &err);
        n = (size_t)4 * tower_rows(&v.tower) * plan.n_out;
        embeddings[exact] = mem_alloc_array(n, sizeof *embeddings[exact]);
        encode_noise(&v, 4, embeddings[exact]);
        vision_release(&v);
    }
    double error = bench_error(embeddings[1], embeddings[0], n);
    print_message("squared error %.1e\n", error);
    assert_true(error <= limit);
    mem_free(embeddings[0]);
    mem_free(embeddings[1]);
    model_file_close(file);
}

// Patches of 14 pixels, 588 columns, get zeros up to a multiple of `whole`; and the tower is near the exact
// one.
static inline void check_padded_tower(struct device *d, uint32_t whole)
{
    char path[64];
    struct random_tower_file made = { .path = path, .name = "padded", .n_out = 192, .matrices = QUANT_BF16 };
    struct vision_plan plan = { .device = d, .n_out = 192, .n_places = 1 };
    uint64_t random = 14;
    struct model_file *file;
    struct vision v;
    struct err err = { 0 };

    snprintf(path, sizeof path, "/tmp/ingot-padded-%d.gguf", (int)getpid());
    assert_ok(random_tower_file(random_tower_find("toy-internvl"), &made, &random, &err), &err);
    assert_ok(model_file_open(&file, path, &err), &err);
    plan.file = file;
    assert_ok(vision_create(&v, &plan, &err), &err);
    assert_int_equal(v.parts.weights.patch->n_cols, (588 + whole - 1) / whole * whole);
    vision_release(&v);
    model_file_close(file);
    check_tower_is_near(d, path, 192, 1e-4);
    unlink(path);
}

// A layer of an encoder, whose results between its operations nobody else sees.
static inline void record_layer(struct side *s, const struct op_shape *c)
{
    uint32_t n = c->n_cols;
    struct tensor x = side_tensor(s, n, ROWS_STEP), normed = tape_tensor(s->tape, n, ROWS_STEP);
    struct matmul_three qkv = { .in = normed };
    // q and k are of the size of sqrt(n): scores of the size of 1
    struct attend_all a = { .n_heads = c->n_heads, .scale = 1 / sqrtf((float)(n / c->n_heads)) / (float)n };
    struct tensor attended = tape_tensor(s->tape, n, ROWS_STEP), between = tape_tensor(s->tape, n, ROWS_STEP),
                  again = tape_tensor(s->tape, n, ROWS_STEP), ffn = tape_tensor(s->tape, c->n_out, ROWS_STEP);

    op_layernorm(
        s->tape,
        (struct layernorm){
            .out = normed, .in = x, .scale = side_vector(s, n), .bias = side_vector(s, n), .eps = 1e-6f });
    for (uint32_t i = 0; i < 3; i++) {
        qkv.out[i] = tape_tensor(s->tape, n, ROWS_STEP);
        qkv.w[i] = side_matrix(s, c, n, n);
        qkv.bias[i] = side_vector(s, n);
    }
    op_matmul_three(s->tape, qkv);
    a.q = qkv.out[0];
    a.k = qkv.out[1];
    a.v = qkv.out[2];
    a.out = attended;
    op_attend_all(s->tape, a);
    op_matmul(s->tape, (struct matmul){ .out = between,
                                        .in = attended,
                                        .w = side_matrix(s, c, n, n),
                                        .bias = side_vector(s, n),
                                        .add = x });
    op_layernorm(s->tape, (struct layernorm){ .out = again,
                                              .in = between,
                                              .scale = side_vector(s, n),
                                              .bias = side_vector(s, n),
                                              .eps = 1e-6f });
    op_matmul_activated(
        s->tape,
        (struct matmul){
            .out = ffn, .in = again, .w = side_matrix(s, c, c->n_out, n), .bias = side_vector(s, c->n_out) },
        ACTIVATION_GELU_TANH);
    const struct weight *down = side_matrix(s, c, n, c->n_out), *bias = side_vector(s, n);
    op_matmul(s->tape,
              (struct matmul){
                  .out = side_tensor(s, n, ROWS_STEP), .in = ffn, .w = down, .bias = bias, .add = between });
}
