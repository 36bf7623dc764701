// latent_sides.h - the operations of latent attention on two devices, for a device's tests: see
// device_sides.h.
#pragma once
#include "ops/device_sides.h"
#include "ops/latent_block/latent_block.h"
#include "ops/latent_prompt/latent_prompt.h"

// head_dim is the key's, n_out the latent's; the rest of a key rotates. n_cols: of a head's matrix.
static struct pages latent_pages(struct side *s, const struct op_shape *c)
{
    struct page_shape shape = { 1, c->head_dim, MAX_PAGES, (u16)c->k_format, (u16)c->k_format };
    uint32_t numbers[SLOTS * MAX_PAGES];
    struct err err = { 0 };

    for (uint32_t i = 0; i < SLOTS * MAX_PAGES; i++)
        numbers[i] = (i * 37 + 5) % (SLOTS * MAX_PAGES);
    struct buffer *k = side_page_buffer(s, c, &shape, false, numbers),
                  *table = side_buffer(s, sizeof numbers);
    assert_ok(buffer_write(table, 0, numbers, sizeof numbers, &err), &err);
    s->pages = (struct pages){ k, NULL, table, shape };
    return s->pages;
}

static inline void record_latent_store(struct side *s, const struct op_shape *c)
{
    op_latent_store(s->tape,
                    (struct latent_store){ .in = side_tensor(s, c->head_dim, ROWS_STEP),
                                           .norm = side_vector(s, c->n_out),
                                           .angles = side_tensor(s, c->head_dim - c->n_out, ROWS_STEP),
                                           .pages = latent_pages(s, c),
                                           .pairs = c->pairs,
                                           .eps = 1e-6f });
}

static inline void record_latent_project(struct side *s, const struct op_shape *c)
{
    uint32_t n_rotated = c->bias ? 12 : 0;
    struct latent_project p = { .in = side_tensor(s, c->n_heads * (c->n_cols + n_rotated), ROWS_STEP),
                                .w = side_weight(s, c->format, c->n_heads * c->n_out, c->n_cols),
                                .n_heads = c->n_heads,
                                .pairs = c->pairs };
    if (n_rotated)
        p.angles = side_tensor(s, n_rotated, ROWS_STEP);
    p.out = side_tensor(s, c->n_heads * (c->n_out + n_rotated), ROWS_STEP);
    op_latent_project(s->tape, p);
}

// Key of n_out numbers that do not rotate; a head's queries have n_cols.
static inline void record_latent_qk(struct side *s, const struct op_shape *c)
{
    uint32_t n_rotated = c->head_dim - c->n_out;
    struct latent_store store = { .in = side_tensor(s, c->head_dim, ROWS_STEP),
                                  .norm = side_vector(s, c->n_out),
                                  .angles = side_tensor(s, n_rotated, ROWS_STEP),
                                  .pages = latent_pages(s, c),
                                  .pairs = c->pairs,
                                  .eps = 1e-6f };
    struct latent_project p = { .in = side_tensor(s, c->n_heads * (c->n_cols + n_rotated), ROWS_STEP),
                                .w = side_weight(s, c->format, c->n_heads * c->n_out, c->n_cols),
                                .angles = store.angles,
                                .n_heads = c->n_heads,
                                .pairs = c->pairs };
    p.out = side_tensor(s, c->n_heads * c->head_dim, ROWS_STEP);
    op_latent_qk(s->tape, store, p);
}

// Pages first: they hold the same for any number of rows.
static inline void record_latent_attend(struct side *s, const struct op_shape *c)
{
    struct latent_attend a = { .pages = latent_pages(s, c), .latent_dims = c->n_out, .scale = 0.05f };

    a.q = side_tensor(s, c->n_heads * c->head_dim, ROWS_STEP);
    a.out = side_tensor(s, c->n_heads * c->n_out, ROWS_STEP);
    op_latent_attend(s->tape, a);
}

// A layer's attention: n_cols columns, a latent of n_out numbers; queries and values of a head have n_q and
// n_value.
static inline bool record_latent_block_of(struct side *s, const struct op_shape *c, uint32_t q_latent,
                                          uint32_t n_q, uint32_t n_value)
{
    uint32_t n_rotated = c->head_dim - c->n_out, n = c->n_heads;
    struct latent_block b = { .down = { .norm = side_vector(s, c->n_cols),
                                        .w = side_weight(s, c->format, q_latent, c->n_cols),
                                        .v = side_weight(s, c->format, c->head_dim, c->n_cols),
                                        .eps = 1e-5f },
                              .up = { .norm = side_vector(s, q_latent),
                                      .w = side_weight(s, c->format, n * n_q, q_latent),
                                      .eps = 1e-6f },
                              .store = { .norm = side_vector(s, c->n_out),
                                         .angles = side_tensor(s, n_rotated, ROWS_STEP),
                                         .pages = latent_pages(s, c),
                                         .pairs = c->pairs,
                                         .eps = 1e-6f },
                              .absorb = { .w = side_weight(s, c->format, n * c->n_out, n_q - n_rotated),
                                          .n_heads = n,
                                          .pairs = c->pairs },
                              .attend = { .latent_dims = c->n_out, .scale = 0.05f },
                              .expand = { .w = side_weight(s, c->format, n * n_value, c->n_out),
                                          .n_heads = n },
                              .out = { .w = side_weight(s, c->format, c->n_cols, n * n_value) } };
    b.down.out = b.up.in = tape_tensor(s->tape, q_latent, ROWS_STEP);
    b.down.more = b.store.in = tape_tensor(s->tape, c->head_dim, ROWS_STEP);
    b.up.out = b.absorb.in = tape_tensor(s->tape, n * n_q, ROWS_STEP);
    b.absorb.out = b.attend.q = tape_tensor(s->tape, n * c->head_dim, ROWS_STEP);
    b.attend.out = b.expand.in = tape_tensor(s->tape, n * c->n_out, ROWS_STEP);
    b.expand.out = b.out.in = tape_tensor(s->tape, n * n_value, ROWS_STEP);
    b.absorb.angles = b.store.angles;
    b.attend.pages = b.store.pages;
    b.down.in = b.out.add = b.out.out = side_tensor(s, c->n_cols, ROWS_STEP);
    return op_latent_block(s->tape, &b);
}

static inline void record_latent_block(struct side *s, const struct op_shape *c)
{
    assert_true(record_latent_block_of(s, c, 768, 256, 256));
}

static inline void record_wide_latent_block(struct side *s, const struct op_shape *c)
{
    assert_true(record_latent_block_of(s, c, 1536, 192, 128));
}

static inline void record_narrow_latent_block(struct side *s, const struct op_shape *c)
{
    assert_true(record_latent_block_of(s, c, 256, 96, 64));
}

// Queries of n_q numbers a head to values of n_value.
static inline void record_latent_prompt_of(struct side *s, const struct op_shape *c, uint32_t n_q,
                                           uint32_t n_value)
{
    uint32_t n_rotated = c->head_dim - c->n_out, n = c->n_heads;
    struct latent_prompt p = { .store = { .in = side_tensor(s, c->head_dim, ROWS_STEP),
                                          .norm = side_vector(s, c->n_out),
                                          .angles = side_tensor(s, n_rotated, ROWS_STEP),
                                          .pages = latent_pages(s, c),
                                          .pairs = c->pairs,
                                          .eps = 1e-6f },
                               .absorb = { .in = side_tensor(s, n * n_q, ROWS_STEP),
                                           .w = side_weight(s, c->format, n * c->n_out, n_q - n_rotated),
                                           .n_heads = n,
                                           .pairs = c->pairs },
                               .attend = { .latent_dims = c->n_out, .scale = 0.01f },
                               .expand = { .w = side_weight(s, c->format, n * n_value, c->n_out),
                                           .n_heads = n } };
    p.absorb.angles = p.store.angles;
    p.absorb.out = p.attend.q = tape_tensor(s->tape, n * c->head_dim, ROWS_STEP);
    p.attend.out = p.expand.in = tape_tensor(s->tape, n * c->n_out, ROWS_STEP);
    p.attend.pages = p.store.pages;
    p.expand.out = side_tensor(s, n * n_value, ROWS_STEP);
    assert_true(op_latent_prompt(s->tape, &p));
}

static inline void record_latent_prompt_256(struct side *s, const struct op_shape *c)
{
    record_latent_prompt_of(s, c, 256, 256);
}
static inline void record_latent_prompt_192(struct side *s, const struct op_shape *c)
{
    record_latent_prompt_of(s, c, 192, 128);
}
static inline void record_latent_prompt_128(struct side *s, const struct op_shape *c)
{
    record_latent_prompt_of(s, c, 128, 128);
}
static inline void record_latent_prompt_odd(struct side *s, const struct op_shape *c)
{
    record_latent_prompt_of(s, c, 96, 64);
}

static const struct {
    uint32_t key, latent, n_heads;
} sizes[] = { { 576, 512, 16 }, { 576, 512, 20 }, { 576, 512, 128 },
              { 576, 512, 1 },  { 52, 40, 3 },    { 96, 64, 5 } };
enum { N_SIZES = sizeof sizes / sizeof *sizes };
static const enum kv_format page_formats[] = { KV_BF16, KV_F16, KV_Q8_0, KV_F32 };

static inline bool format_fits(enum kv_format format, uint32_t key)
{
    return key % page_dims(format) == 0;
}
