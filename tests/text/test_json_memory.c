// test_json_memory.c - a document that is read without memory is whole, or there is none.
#include "text/json_memory.h"
#include "base/mem.h"
#include "testing.h"

static void a_document_is_whole_or_absent(void **state)
{
    static const char text[] =
        "{\"a long name of a member, longer than a small buffer\": [1, 2.5, \"a text of which no byte "
        "may be missing, \\u00e9 included\"], \"b\": {\"c\": null, \"d\": "
        "\"0123456789abcdefghijklmnopqrstuvwxyz\"}}";
    struct str json = str_from(text);
    json_error_t where;
    json_t *whole = json_memory_read(json, JSON_REJECT_DUPLICATES, &where);
    uint32_t n_absent = 0;

    (void)state;
    assert_non_null(whole);
    for (uint64_t at = 1;; at++) {
        mem_fail_at(at, 0);
        uint64_t first = mem_n_allocations();
        json_t *value = json_memory_read(json, JSON_REJECT_DUPLICATES, &where);
        bool struck = mem_n_allocations() - first >= at;
        mem_fail_at(0, 0);
        assert_int_equal(struck, !value);
        assert_int_equal(struck, json_memory_failed());
        if (!struck) {
            assert_true(json_equal(value, whole));
            json_decref(value);
            break;
        }
        assert_string_equal(where.text, "out of memory");
        n_absent++;
    }
    assert_in_range(n_absent, 10, 1000);
    json_decref(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_document_is_whole_or_absent),
    };
    json_memory_watch();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
