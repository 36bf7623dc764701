// test_hub_public.c - ingot_model_find: files and names of the cache, and what it says of those that are not
// there.
#include "ingot.h"
#include "testing.h"

#define COMMIT "0123456789012345678901234567890123456789"

static char folder[] = "/tmp/ingot_find_XXXXXX";

static int make_cache(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return 1;
    shell("mkdir -p %s/models--user--repo/refs %s/models--user--repo/snapshots/" COMMIT, folder, folder);
    shell("printf " COMMIT " >%s/models--user--repo/refs/main", folder);
    shell("printf x >%s/models--user--repo/snapshots/" COMMIT "/a-Q4_K_M.gguf", folder);
    shell("printf x >%s/models--user--repo/snapshots/" COMMIT "/a-Q8_0.gguf", folder);
    return setenv("HF_HUB_CACHE", folder, 1);
}

static int remove_cache(void **state)
{
    (void)state;
    shell("rm -r %s", folder);
    return 0;
}

static void a_name_gives_its_file(void **state)
{
    (void)state;
    char path[4096], wanted[4096];
    struct ingot_error error;
    snprintf(wanted, sizeof wanted, "%s/models--user--repo/snapshots/" COMMIT "/a-Q8_0.gguf", folder);
    assert_ok(ingot_model_find("user/repo:Q8_0", path, sizeof path, &error), &error);
    assert_string_equal(path, wanted);
    assert_ok(ingot_model_find("user/repo", path, sizeof path, &error), &error);
    assert_non_null(strstr(path, "/a-Q4_K_M.gguf"));
    assert_ok(ingot_model_find(wanted, path, sizeof path, &error), &error);
    assert_string_equal(path, wanted);
}

static void what_is_not_there_is_told(void **state)
{
    (void)state;
    char path[100] = "kept";
    struct ingot_error error;
    assert_fails(ingot_model_find("user/other:Q4_K_M", path, sizeof path, &error), &error,
                 "'ingot pull user/other:Q4_K_M' gets it");
    assert_int_equal(error.code, INGOT_NOT_FOUND);
    assert_fails(ingot_model_find("user/repo:Q2_K", path, sizeof path, &error), &error, "Q8_0");
    assert_int_equal(error.code, INGOT_NOT_FOUND);
    assert_fails(ingot_model_find("no name", path, sizeof path, &error), &error, "expected a model's name");
    assert_int_equal(error.code, INGOT_INPUT);
    assert_fails(ingot_model_find("user/repo", path, 20, &error), &error, "and 20 fit");
    assert_int_equal(error.code, INGOT_LIMIT);
    assert_false(ingot_model_find("user/other", path, sizeof path, NULL));
    assert_string_equal(path, "kept");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_gives_its_file),
        cmocka_unit_test(what_is_not_there_is_told),
    };
    return cmocka_run_group_tests(tests, make_cache, remove_cache);
}
