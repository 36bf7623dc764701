// test_pages.c - the formats of KV pages: what is written is read back, within the format's precision, and
// nothing else is touched.
#include "device/pages.h"
#include "op_harness.h"

enum { HEADS = 3, PAGES = 2, DIM = 64, BYTES = PAGES * HEADS * PAGE_TOKENS * DIM * 4 };

struct page_place {
    struct page_shape shape;
    unsigned char *bytes;
    uint32_t format;
    bool is_v;
};

static struct page_token token_at(const struct page_place *p, uint32_t i)
{
    return (struct page_token){ &p->shape,       p->bytes, i / PAGE_TOKENS / HEADS, i / PAGE_TOKENS % HEADS,
                                i % PAGE_TOKENS, p->is_v };
}

static void for_every_format(void (*check)(const struct page_place *p))
{
    for (uint32_t i = 0; i < N_KV_FORMATS * 2; i++) {
        struct page_place p = { .format = i / 2, .is_v = i % 2, .bytes = mem_alloc_aligned(BYTES, 64) };
        p.shape = (struct page_shape){ HEADS, DIM, 1, (u16)(p.is_v ? KV_F16 : p.format),
                                       (u16)(p.is_v ? p.format : KV_F16) };
        memset(p.bytes, 0xff, BYTES);
        check(&p);
        mem_free_aligned(p.bytes);
    }
}

// Relative squared error of rounding: 2^-2(b+1) / 3 and a little; for 8 bits with a common scale more.
static void check_round_trip(const struct page_place *p)
{
    static const double limits[N_KV_FORMATS] = { 0, 1e-7, 6e-6, 6e-5 };
    static float want[PAGES * HEADS * PAGE_TOKENS][DIM], got[PAGES * HEADS * PAGE_TOKENS][DIM];
    uint32_t n = PAGES * HEADS * PAGE_TOKENS;

    bench_seed(11);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = i * 7 % n; // in no order: tokens that share 4 bytes do not harm each other
        struct page_token t = token_at(p, at);
        for (uint32_t d = 0; d < DIM; d++)
            want[at][d] = bench_normal() * (float)(1 + at);
        page_write(&t, want[at]);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct page_token t = token_at(p, i);
        page_read(&t, got[i]);
    }
    double error = bench_error(want[0], got[0], (size_t)n * DIM);
    if (!(error <= limits[p->format]))
        fail_msg("format %u, %s: error %.2e", p->format, p->is_v ? "V" : "K", error);
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    for_every_format(check_round_trip);
}

static void check_extremes(const struct page_place *p)
{
    float row[DIM] = { 0 }, got[DIM];
    struct page_token t = token_at(p, 21);

    page_write(&t, row);
    page_read(&t, got);
    assert_memory_equal(got, row, sizeof row);
    row[40] = NAN;
    page_write(&t, row);
    page_read(&t, got);
    assert_true(isnan(got[40]));
    row[40] = INFINITY;
    page_write(&t, row);
    page_read(&t, got);
    assert_false(isfinite(got[40]));
    row[40] = 1e-30f; // below what an fp16 scale can express
    page_write(&t, row);
    page_read(&t, got);
    assert_true(fabsf(got[40]) <= 2e-30f);
}

static void zeros_infinities_and_nan_are_seen(void **state)
{
    (void)state;
    for_every_format(check_extremes);
}

static void check_bounds(const struct page_place *p)
{
    uint32_t n = HEADS * page_head_bytes(p->format, DIM), untouched = 0;
    float row[DIM] = { 0 };

    for (uint32_t i = 0; i < HEADS * PAGE_TOKENS; i++) { // all of page 0, nothing of page 1
        struct page_token t = token_at(p, i);
        page_write(&t, row);
    }
    for (uint32_t i = 0; i < BYTES; i++)
        untouched += p->bytes[i] != 0;
    assert_int_equal(untouched, BYTES - n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(p->bytes[i], 0);
}

static void a_page_ends_where_the_next_begins(void **state)
{
    (void)state;
    for_every_format(check_bounds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(zeros_infinities_and_nan_are_seen),
        cmocka_unit_test(a_page_ends_where_the_next_begins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
