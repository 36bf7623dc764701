// test_base.c - err, arena, str, buf, file, sums, base64, hash tables.
#include "testing.h"
#include <openssl/crypto.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/base64.h"
#include "base/file.h"
#include "base/hash_index.h"
#include "base/mem.h"
#include "base/sha256.h"

static void numbers_are_strict(void **state)
{
    (void)state;
    uint64_t u;
    int64_t i;
    double f;
    assert_true(str_to_u64(STR("18446744073709551615"), &u) && u == UINT64_MAX);
    assert_false(str_to_u64(STR("18446744073709551616"), &u));
    assert_false(str_to_u64(STR(""), &u) || str_to_u64(STR("1 "), &u) || str_to_u64(STR("-1"), &u));
    assert_true(str_to_i64(STR("-9223372036854775808"), &i) && i == INT64_MIN);
    assert_false(str_to_i64(STR("9223372036854775808"), &i) || str_to_i64(STR("-"), &i));
    assert_true(str_to_f64(STR("-1.5e3"), &f) && f == -1500);
    assert_false(str_to_f64(STR(" 1"), &f) || str_to_f64(STR("1x"), &f) || str_to_f64(STR("1e999"), &f));
}

static void texts_have_an_order(void **state)
{
    const struct str sorted[] = { { NULL, 0 }, STR("a"), STR("a\0"), STR("ab"), STR("b"), STR("\xff") };

    (void)state;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 6; j++)
            assert_int_equal(str_order(sorted[i], sorted[j]), (i > j) - (i < j));
}

static void a_buffer_keeps_its_maximum(void **state)
{
    (void)state;
    struct buf b = { .max = 10 };
    assert_true(buf_text(&b, "12345") && buf_printf(&b, "%d", 67890));
    assert_false(buf_text(&b, "x"));
    assert_false(buf_text(&b, ""));
    assert_true(str_is(buf_as_str(&b), "1234567890"));
    buf_free(&b);
}

static void an_arena_keeps_its_limit(void **state)
{
    (void)state;
    struct arena *a = arena_create(100);
    assert_non_null(arena_alloc(a, 60));
    assert_null(arena_alloc(a, 41));
    assert_non_null(arena_alloc(a, 40));
    assert_null(arena_alloc_array(a, SIZE_MAX / 2, 3));
    arena_destroy(a);
}

static void a_message_stays_one_harmless_line(void **state)
{
    (void)state;
    struct err err = { 0 };

    err_set(&err, ERR_INPUT, "found \"%s\"", "two\nlines\t\x1b[31mred\x7f \xc2\x9bm \xc3\xa9");
    assert_string_equal(err.message, "found \"two?lines??[31mred? ??m \xc3\xa9\"");
    err_prefix(&err, "a\nb");
    assert_string_equal(err.message, "a?b: found \"two?lines??[31mred? ??m \xc3\xa9\"");
}

static void a_file_appears_whole_or_not_at_all(void **state)
{
    (void)state;
    char path[] = "/tmp/ingot-test-XXXXXX", again[64];
    struct file_writer w;
    struct err err = { 0 };
    struct buf b = { 0 };
    close(mkstemp(path));
    unlink(path);
    snprintf(again, sizeof again, "%s.part", path);
    assert_ok(file_create(&w, path, &err), &err);
    file_write(&w, "abc", 3);
    assert_false(file_exists(path));
    file_abort(&w);
    assert_false(file_exists(path) || file_exists(again));
    assert_ok(file_create(&w, path, &err), &err);
    file_write(&w, "abc", 3);
    assert_ok(file_commit(&w, &err), &err);
    assert_ok(file_read(&b, path, 10, &err), &err);
    assert_true(str_is(buf_as_str(&b), "abc"));
    assert_fails(file_read(&b, path, 2, &err), &err, "at most 2");
    assert_fails(file_create(&w, "/nowhere/x", &err), &err, "/nowhere/x");
    assert_fails(file_create(&w, "/dev/null", &err), &err,
                 "/dev/null: not a regular file; give another name");
    buf_free(&b);
    unlink(path);
}

static void what_is_no_regular_file_is_refused_at_once(void **state)
{
    (void)state;
    char path[] = "/tmp/ingot-test-XXXXXX";
    struct file_map map;
    struct err err = { 0 };
    close(mkstemp(path));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(file_map_open(&map, path, &err), &err, "not a regular file");
    assert_fails(file_map_open(&map, "/tmp", &err), &err, "not a regular file");
    unlink(path);
}

static void allocations_can_fail(void **state)
{
    (void)state;
    mem_fail_at(2, 0);
    void *a = mem_alloc(1), *b = mem_alloc(1), *c = mem_alloc(1);
    mem_fail_at(0, 0);
    assert_true(a && !b && c);
    mem_free(a);
    mem_free(c);
}

static void *no_memory(size_t n, const char *file, int line)
{
    (void)n, (void)file, (void)line;
    return NULL;
}

static void *no_more_memory(void *p, size_t n, const char *file, int line)
{
    (void)p, (void)n, (void)file, (void)line;
    return NULL;
}

static void nothing_to_free(void *p, const char *file, int line)
{
    (void)p, (void)file, (void)line;
}

// Also where the library has no memory.
static void sha256_gives_the_standard_s_sums(void **state)
{
    (void)state;
    assert_int_equal(CRYPTO_set_mem_functions(no_memory, no_more_memory, nothing_to_free), 1);
    static const char abc[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    struct sha256_stream *s = sha256_open();
    char hex[65];
    assert_non_null(s);
    for (int again = 0; again < 2; again++) {
        sha256_add(s, "a", 1);
        sha256_add(s, "bc", 2);
        struct sha256 sum = sha256_take(s);
        for (int i = 0; i < 32; i++)
            snprintf(hex + 2 * i, 3, "%02x", sum.at[i]);
        assert_string_equal(hex, abc);
    }
    sha256_close(s);
    mem_fail_at(1, 0);
    assert_null(sha256_open());
    mem_fail_at(0, 0);
}

// The vectors of RFC 4648, section 10, and what is no base64.
static void base64_is_strict(void **state)
{
    (void)state;
    static const char *const pairs[][2] = { { "", "" },
                                            { "f", "Zg==" },
                                            { "fo", "Zm8=" },
                                            { "foo", "Zm9v" },
                                            { "foob", "Zm9vYg==" },
                                            { "fooba", "Zm9vYmE=" },
                                            { "foobar", "Zm9vYmFy" } };
    static const char *const bad[] = { "Z",    "Zg",   "Zg=",  "Zg===", "=",      "====",     "Zg==Zm8=",
                                       "Z===", "Zm=v", " Zm9", "Zm9\n", "Zm9v\n", " Zm9v",    "Zm 9",
                                       "Zm9-", "Zm9_", "Zh==", "Zm9=",  "Zm9vZ",  "Zm9v    ", "Zm9\xff" };
    char room[8];
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct buf text = { 0 };
        base64_append(&text, str_from(pairs[i][0]));
        assert_true(!text.failed && str_is(buf_as_str(&text), pairs[i][1]));
        assert_true(str_is(base64_decode(buf_as_str(&text), room, sizeof room), pairs[i][0]));
        buf_free(&text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_null(base64_decode(str_from(bad[i]), room, sizeof room).at);
    assert_null(base64_decode(STR("Zm9\0"), room, sizeof room).at);
    assert_null(base64_decode(STR("Zm9vYmFy"), room, 5).at);
    assert_non_null(base64_decode(STR("Zm9vYmFy"), room, 6).at);
    mem_fail_at(1, 0);
    struct buf text = { 0 };
    base64_append(&text, STR("foo"));
    mem_fail_at(0, 0);
    assert_true(text.failed);
}

static uint32_t hash_find(const struct hash_index *x, const uint64_t *hashes, uint64_t hash)
{
    for (struct hash_probe p = { 0 }; hash_index_next(x, hash, &p);)
        if (hashes[p.number] == hash)
            return p.number;
    return UINT32_MAX;
}

// Hashes that share their lower bits, or the lower 32; a table that grows, fails to grow, and is emptied.
static void a_hash_index_finds_what_was_added(void **state)
{
    (void)state;
    enum { N = 1000 };
    static uint64_t hashes[N];
    struct hash_index x = { 0 };
    assert_int_equal(hash_find(&x, hashes, 0), UINT32_MAX);
    for (uint32_t i = 0; i < N; i++) {
        hashes[i] = i % 3 == 0 ? i : i % 3 == 1 ? (uint64_t)i << 32 | 5 : (uint64_t)i << 20;
        assert_int_equal(hash_find(&x, hashes, hashes[i]), UINT32_MAX);
        assert_true(hash_index_reserve(&x));
        hash_index_add(&x, hashes[i], i);
    }
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(hash_find(&x, hashes, hashes[i]), i);
    while (2 * x.n < x.size) {
        assert_true(hash_index_reserve(&x));
        hash_index_add(&x, 7, 0);
    }
    mem_fail_at(1, 0);
    assert_false(hash_index_reserve(&x));
    mem_fail_at(0, 0);
    assert_int_equal(hash_find(&x, hashes, hashes[N - 1]), N - 1);
    hash_index_clear(&x);
    assert_int_equal(hash_find(&x, hashes, hashes[N - 1]), UINT32_MAX);
    hash_index_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_stays_one_harmless_line),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(texts_have_an_order),
        cmocka_unit_test(a_buffer_keeps_its_maximum),
        cmocka_unit_test(an_arena_keeps_its_limit),
        cmocka_unit_test(a_file_appears_whole_or_not_at_all),
        cmocka_unit_test(what_is_no_regular_file_is_refused_at_once),
        cmocka_unit_test(allocations_can_fail),
        cmocka_unit_test(sha256_gives_the_standard_s_sums),
        cmocka_unit_test(base64_is_strict),
        cmocka_unit_test(a_hash_index_finds_what_was_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
