// test_models.c - models by name, without network: what is in the cache runs, is listed, and goes. Pulling:
// tests/hub.
#include "program.h"

#define OLD "1111111111111111111111111111111111111111"
#define NEW "2222222222222222222222222222222222222222"

static char cache[128];

static struct outcome expect(const char *words, int status, const char *out_part, const char *err_part)
{
    struct outcome o = run_with(words, "");

    if (o.status != status)
        fail_msg("%s: status %d, expected %d; stderr: %s", words, o.status, status, o.err.at);
    if (!strstr(o.out.at, out_part))
        fail_msg("%s: stdout '%s' lacks '%s'", words, o.out.at, out_part);
    if (!strstr(o.err.at, err_part))
        fail_msg("%s: stderr '%s' lacks '%s'", words, o.err.at, err_part);
    return o;
}

static void check(const char *words, int status, const char *out_part, const char *err_part)
{
    struct outcome o = expect(words, status, out_part, err_part);
    outcome_free(&o);
}

// A file of a snapshot, as Hugging Face's programs leave it: a link to the blob. `like`: the file it is a
// copy of.
static void put(const char *repo, const char *commit, const char *path, const char *like)
{
    shell("cd %s && mkdir -p models--%s/blobs models--%s/snapshots/%s models--%s/refs && oid=$(sha256sum %s "
          "| cut -c1-64) && "
          "cp %s models--%s/blobs/$oid && ln -sf ../../blobs/$oid models--%s/snapshots/%s/%s && printf %s > "
          "models--%s/refs/main",
          cache, repo, repo, commit, repo, like, like, repo, repo, commit, path, commit, repo);
}

static int make_cache(void **state)
{
    static const char *const files[] = { "config.json", "model.safetensors", "tokenizer.json",
                                         "tokenizer_config.json" };
    char from[256];

    make_home(state);
    snprintf(cache, sizeof cache, "%s/hub", home);
    assert_int_equal(mkdir(cache, 0700), 0);
    setenv("HF_HUB_CACHE", cache, 1);
    setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1); // nobody answers there
    setenv("no_proxy", "*", 1);
    unsetenv("HF_HUB_OFFLINE");
    for (int i = 0; i < 4; i++) {
        snprintf(from, sizeof from, "%s/%s", model, files[i]);
        put("tiny--folder", OLD, files[i], from);
    }
    shell(PROGRAM " quantize %s %s/q8.gguf Q8_0 -q && " PROGRAM " quantize %s %s/f16.gguf F16 -q", model,
          home, model, home);
    snprintf(from, sizeof from, "%s/q8.gguf", home);
    put("tiny--gguf", OLD, "tiny-Q8_0.gguf", from);
    snprintf(from, sizeof from, "%s/f16.gguf", home);
    put("tiny--gguf", NEW, "tiny-f16.gguf", from);
    put("tiny--gguf", NEW, "other-f16.gguf", "/dev/null");
    return 0;
}

static void a_cached_model_runs_by_its_name(void **state)
{
    (void)state;
    struct outcome by_path = run_with("run -m @ -p hello -n 8 --temp 0 --ignore-eos -q", "");
    check("run -m tiny/folder -p hello -n 8 --temp 0 --ignore-eos -q", 0, by_path.out.at, "");
    check("run tiny/folder -p hello -n 8 --temp 0 --ignore-eos -q", 0, by_path.out.at, "");
    check("run -hf tiny/folder -p hello -n 8 --temp 0 --ignore-eos -q --offline", 0, by_path.out.at, "");
    check("tokenize -m tiny/folder -p a --ids", 0, "[97]", "");
    check("inspect tiny/gguf:tiny-Q8_0.gguf@" OLD, 0, "GGUF", "");
    check("inspect -m tiny/gguf:Q8_0@" OLD, 0, "GGUF", "");
    check("pull --offline tiny/folder", 0, "/models--tiny--folder/snapshots/" OLD "\n", "");
    outcome_free(&by_path);
}

static void what_is_not_in_the_cache_is_told(void **state)
{
    (void)state;
    check("run --offline -m no/body -p x", 1, "", "no/body@main is not in the cache");
    check("run --offline -m tiny/gguf:Q2_K -p x", 1, "", "no Q2_K; there is ");
    check("run --offline -m tiny/gguf:F16 -p x", 1, "", "name one: other-f16.gguf, tiny-f16.gguf");
    check("run -m no/body -p x", 1, "",
          "'no/body' is no file here; as a model's name: http://127.0.0.1:1/api/models/no/body");
    check("inspect -m tiny/folder -hf no/body --offline", 1, "", "no/body@main is not in the cache");
    check("run -hf nonsense -p x", 2, "", "expected a model's name such as user/repo");
    check("run -m nowhere/model.gguf -p x", 1, "", "nowhere/model.gguf: no such file or folder");
    check("run Folder -p x", 1, "",
          "'Folder' is no file here and no model's name; is tiny/folder:safetensors from the cache meant?");
    check("run fold -p x", 1, "", "'ingot ls' lists");
    check("run folder:8b -p x", 1, "", "is tiny/folder:safetensors from the cache meant?");
    check("pull", 2, "", "expected one");
    check("rm no/body", 1, "", "no/body is not in the cache");
}

static void a_file_wins_over_a_name(void **state)
{
    (void)state;
    shell("mkdir -p %s/tiny && ln -s %s %s/tiny/folder", home, model, home);
    assert_int_equal(chdir(home), 0);
    setenv("HF_HUB_CACHE", "/nowhere", 1);
    check("run --offline -m tiny/folder -p hello -n 1 -q", 0, "", "");
    setenv("HF_HUB_CACHE", cache, 1);
    assert_int_equal(chdir(SOURCE_DIR), 0);
}

static void ls_names_what_m_takes(void **state)
{
    (void)state;
    check("ls", 0, "  tiny/folder:safetensors\n", "models, ");
    check("ls", 0, "  tiny/gguf:Q8_0@" OLD "\n", "");
    check("ls", 0, "  tiny/gguf:tiny-f16.gguf\n", "");
    check("ls", 0, "  tiny/gguf:other-f16.gguf\n", "");
    shell("mv %s/models--tiny--folder/refs %s", cache, cache); // as programs leave it that write none
    check("ls", 0, "  tiny/folder:safetensors\n", "");
    check("pull --offline tiny/folder", 0, "/snapshots/" OLD "\n", "");
    shell("mv %s/refs %s/models--tiny--folder", cache, cache);
    check("ls --json", 0, "\"name\": \"tiny/gguf:tiny-f16.gguf\"", "");
    shell("echo part > %s/models--tiny--gguf/blobs/x.incomplete; mkdir -p %s/models--a--b %s/datasets--c--d",
          cache, cache, cache);
    check("ls", 0, "       5 B  tiny/gguf (a pull that was stopped)\n", "");
    setenv("HF_HUB_CACHE", "/nowhere/at/all", 1);
    check("ls", 0, "", "0 models");
    setenv("HF_HUB_CACHE", cache, 1);
}

// Last: it empties the cache.
static void rm_takes_out_what_is_named(void **state)
{
    (void)state;
    check("rm tiny/gguf:Q4_0", 1, "", "no Q4_0; there is ");
    check("rm tiny/gguf:tiny-f16.gguf", 0, "", "KiB freed");
    // Q8_0, and the empty file
    shell("test $(ls %s/models--tiny--gguf/blobs | grep -c -v incomplete) = 2", cache);
    check("inspect tiny/gguf:Q8_0@" OLD, 0, "GGUF", "");
    check("rm tiny/gguf@" OLD, 0, "", "KiB freed");
    shell("test ! -e %s/models--tiny--gguf/snapshots/" OLD, cache);
    check("rm tiny/gguf@" NEW, 0, "", "freed");
    shell("test ! -e %s/models--tiny--gguf", cache); // nothing was left in it
    put("tiny--gguf", OLD, "a.gguf", "/dev/null");
    put("tiny--gguf", NEW, "b.gguf", "/dev/null");
    check("rm tiny/gguf@" NEW, 0, "", "freed");
    shell("test -e %s/models--tiny--gguf && test ! -e %s/models--tiny--gguf/refs/main", cache, cache);
    check("rm tiny/gguf tiny/folder", 0, "", "tiny/folder: ");
    shell("test ! -e %s/models--tiny--gguf && test ! -e %s/models--tiny--folder && test -e %s/datasets--c--d",
          cache, cache, cache);
    check("run --offline -m tiny/folder -p x", 1, "", "tiny/folder@main is not in the cache");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cached_model_runs_by_its_name), cmocka_unit_test(what_is_not_in_the_cache_is_told),
        cmocka_unit_test(a_file_wins_over_a_name),         cmocka_unit_test(ls_names_what_m_takes),
        cmocka_unit_test(rm_takes_out_what_is_named),
    };
    return cmocka_run_group_tests(tests, make_cache, remove_home);
}
