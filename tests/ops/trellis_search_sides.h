// trellis_search_sides.h - blocks of a matrix as EXL3 on one device, for tests that compare devices: every
// one must write the same bits.
#pragma once
#include "ops/op_harness.h"
#include "ops/trellis_search/trellis_search.h"

struct search_shape {
    uint32_t n_in, n_out, bits;
    enum exl3_codebook codebook;
    uint32_t first, last; // blocks [first, last), from the last to the first
    uint32_t n;           // matrices; the second is a block behind the first, and so on
};
struct search_result {
    float *missed;   // [n, n_in, n_out]
    uint16_t *codes; // [n, n_in / 16, n_out / 16, 16 * bits]
    uint64_t missed_bytes, codes_bytes;
};

static inline void search_fill(struct buffer *b, uint64_t n, float size)
{
    float *numbers = mem_alloc_array(n, sizeof *numbers);
    struct err err = { 0 };

    for (uint64_t i = 0; i < n; i++)
        numbers[i] = bench_normal() * size;
    assert_ok(buffer_write(b, 0, numbers, n * sizeof *numbers, &err), &err);
    mem_free(numbers);
}

static inline void search_play(struct tape *t, const struct search_shape *s, struct buffer *step)
{
    struct err err = { 0 };

    for (uint32_t b = s->last; b-- > s->first;) {
        struct step header = { .n_rows = s->n, .max_rows = s->n };
        uint32_t blocks[8];
        for (uint32_t m = 0; m < s->n; m++)
            blocks[m] = (b + m) % (s->n_in / EXL3_TILE);
        assert_ok(buffer_write(step, 0, &header, sizeof header, &err), &err);
        assert_ok(buffer_write(step, 4 * step_at_positions(s->n), blocks, 4 * s->n, &err), &err);
        assert_ok(tape_play(t, step, &err), &err);
    }
}

// The same numbers on every device: what was missed behind the last block too.
static inline struct search_result search_run(struct device *d, const struct search_shape *s)
{
    const uint64_t n = (uint64_t)s->n * s->n_in * s->n_out, n_l = (uint64_t)s->n * s->n_in * s->n_in;
    struct search_result r = { .missed_bytes = 4 * n,
                               .codes_bytes = s->n * exl3_codes_bytes(s->n_in, s->n_out, s->bits) };
    struct tape *t = tape_create(d, (struct tape_limits){ .max_rows = s->n });
    struct buffer w, l, missed, codes, step;
    struct err err = { 0 };

    bench_seed(11);
    assert_ok(buffer_alloc(d, 4 * n, &w, &err) && buffer_alloc(d, 4 * n_l, &l, &err) &&
                  buffer_alloc(d, 4 * n, &missed, &err) && buffer_alloc(d, r.codes_bytes, &codes, &err) &&
                  buffer_alloc(d, step_bytes(s->n, 0), &step, &err),
              &err);
    search_fill(&w, n, 1);
    search_fill(&l, n_l, 0.1f);
    search_fill(&missed, n, 0.2f);
    op_trellis_search(t, &(struct trellis_search){ .w = &w,
                                                   .l = &l,
                                                   .missed = &missed,
                                                   .codes = &codes,
                                                   .n_in = s->n_in,
                                                   .n_out = s->n_out,
                                                   .bits = s->bits,
                                                   .codebook = s->codebook });
    assert_ok(tape_seal(t, &err), &err);
    search_play(t, s, &step);
    r.missed = mem_alloc(r.missed_bytes);
    r.codes = mem_alloc(r.codes_bytes);
    assert_ok(buffer_read(&missed, 0, r.missed, r.missed_bytes, &err) &&
                  buffer_read(&codes, 0, r.codes, r.codes_bytes, &err),
              &err);
    tape_destroy(t);
    struct buffer *const all[] = { &w, &l, &missed, &codes, &step };
    for (int i = 0; i < 5; i++)
        buffer_release(all[i]);
    return r;
}

static inline void search_free(struct search_result *r)
{
    mem_free(r->missed);
    mem_free(r->codes);
}

// Codes and what they miss: the same bits on both.
static inline void search_compare(struct device *a, struct device *b, const struct search_shape *s)
{
    struct search_result x = search_run(a, s), y = search_run(b, s);

    if (memcmp(x.codes, y.codes, x.codes_bytes) != 0 || memcmp(x.missed, y.missed, x.missed_bytes) != 0)
        fail_msg("[%u, %u], %u bits, codebook %d: %s and %s find other codes", s->n_in, s->n_out, s->bits,
                 (int)s->codebook, a->name, b->name);
    search_free(&x);
    search_free(&y);
}
