// test_detokenizer.c - text that comes token by token: whole characters, and an end before a stop string.
#include "engine/detokenizer.h"
#include "testing.h"

// Pushes text in pieces of n bytes and joins what comes out.
static void run(const char *const *stops, size_t n_stops, const char *text, size_t n, char *out,
                bool *stopped)
{
    struct detokenizer a;
    struct err err = { 0 };
    struct detokenizer_options options = { 200, 8, stops, n_stops };
    size_t at = 0, n_out = 0, length = strlen(text);

    assert_ok(detokenizer_create(&a, &options, &err), &err);
    for (; at < length && !a.stopped; at += n) {
        struct str piece = detokenizer_push(&a, (struct str){ text + at, length - at < n ? length - at : n });
        assert_int_equal(piece.at[piece.n], 0);
        memcpy(out + n_out, piece.at, piece.n);
        n_out += piece.n;
    }
    *stopped = a.stopped;
    struct str rest = detokenizer_finish(&a);
    memcpy(out + n_out, rest.at, rest.n);
    out[n_out + rest.n] = 0;
    detokenizer_release(&a);
}

static void a_stop_string_ends_the_text_wherever_tokens_are_cut(void **state)
{
    (void)state;
    static const char *const stops[] = { "\n\nUser:", "END" };
    static const struct {
        const char *text, *out;
        bool stopped;
    } cases[] = {
        { "plain text", "plain text", false },
        { "a\n\nUser: hi", "a", true },
        { "a\n\nUse", "a\n\nUse", false },
        { "xENDy", "x", true },
        { "ENEND", "EN", true },
        { "\n\n\n\nUser:", "\n\n", true },
        { "END", "", true },
        { "first END\n\nUser:", "first ", true },
        { "E\xc3\xa9N\xf0\x9f\x98\x80\x45ND", "E\xc3\xa9N\xf0\x9f\x98\x80", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t n = 1; n <= 8; n++) {
            char out[128];
            bool stopped;
            run(stops, 2, cases[i].text, n, out, &stopped);
            assert_string_equal(out, cases[i].out);
            assert_int_equal(stopped, cases[i].stopped);
        }
}

static void nothing_is_held_back_without_need(void **state)
{
    (void)state;
    static const char *const stops[] = { "stop" };
    struct detokenizer_options options = { 10, 8, stops, 1 };
    struct detokenizer a;
    assert_true(detokenizer_create(&a, &options, NULL));
    assert_int_equal(detokenizer_push(&a, STR("hello")).n, 5);
    assert_int_equal(detokenizer_push(&a, STR(" s")).n, 1);
    assert_int_equal(detokenizer_push(&a, STR("t")).n, 0);
    assert_int_equal(detokenizer_push(&a, STR("ay")).n, 4);
    assert_int_equal(detokenizer_push(&a, STR("\xf0\x9f")).n, 0);
    assert_int_equal(detokenizer_push(&a, STR("\x98\x80")).n, 4);
    assert_int_equal(detokenizer_push(&a, STR("\xe2\x82")).n, 0);
    assert_int_equal(detokenizer_finish(&a).n, 3); // what never became a character is U+FFFD
    detokenizer_release(&a);
}

static void an_empty_stop_string_is_refused(void **state)
{
    (void)state;
    static const char *const stops[] = { "a", "" };
    struct detokenizer_options options = { 10, 8, stops, 2 };
    struct detokenizer a;
    struct err err = { 0 };
    assert_fails(detokenizer_create(&a, &options, &err), &err, "stop string 1 is empty");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stop_string_ends_the_text_wherever_tokens_are_cut),
        cmocka_unit_test(nothing_is_held_back_without_need),
        cmocka_unit_test(an_empty_stop_string_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
