// test_sse.c - the text of an event is escaped as the JSON library escapes it.
#include "server/http/sse.h"
#include "testing.h"

static void text_is_escaped_as_the_library_does_it(void **state)
{
    char text[300];
    size_t n = 0;
    (void)state;
    for (int c = 0; c < 0x80; c++)
        text[n++] = (char)c;
    for (int i = 0; i < 3; i++) // two, three and four bytes
        n += (size_t)snprintf(text + n, sizeof text - n, "%s",
                              (const char *[]){ "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\xa6\x8a" }[i]);
    for (size_t from = 0; from <= n; from = from < 0x80 ? from + 1 : n + 1) {
        struct buf expected = { 0 }, found = { 0 };
        sse_json(&expected, json_pack("[s%]", text + from, n - from));
        buf_text(&found, "[\"");
        sse_escape(&found, (struct str){ text + from, n - from });
        buf_text(&found, "\"]");
        assert_string_equal(found.at, expected.at);
        buf_free(&expected);
        buf_free(&found);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(text_is_escaped_as_the_library_does_it) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
