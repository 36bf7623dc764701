// test_page.c - the chat page as the build assembled it, and its policy. That the sums are right shows in a
// browser (clients/page_text.mjs).
#include "server/page.h"
#include "testing.h"

static size_t count(struct str text, struct str what)
{
    size_t n = 0;

    for (size_t at = str_find(text, what); at != SIZE_MAX; at = str_find(text, what)) {
        text = str_from_to(text, at + what.n, text.n);
        n++;
    }
    return n;
}

static void is_whole(void **state)
{
    static const char *const parts[] = { "@page.css@",    "@store.js@", "@markdown.js@",
                                         "@pictures.js@", "@page.js@",  "@markdown-it@" };
    struct str page = page_html();

    (void)state;
    assert_true(str_starts(page, STR("<!doctype html>")));
    assert_true(str_ends(page, STR("</html>\n")));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_int_equal(count(page, str_from(parts[i])), 0);
    assert_int_equal(count(page, STR("<script>")), 2);
    assert_int_equal(count(page, STR("</script>")), 2);
    assert_true(page.n > (*page_markdown_it() ? 80000 : 40000));
}

static void policy_names_each_script_and_nothing_else(void **state)
{
    struct str policy = str_from(page_policy());

    (void)state;
    assert_true(str_starts(policy, STR("default-src 'none'; script-src 'sha256-")));
    assert_int_equal(count(policy, STR(" 'sha256-")), 3);
    assert_int_equal(count(policy, STR("; style-src 'sha256-")), 1);
    assert_int_equal(count(policy, STR("; img-src data: blob:;")), 1);
    assert_int_equal(count(policy, STR("unsafe")), 0);
    assert_int_equal(count(policy, STR("require-trusted-types-for 'script'")), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_whole),
        cmocka_unit_test(policy_names_each_script_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
