// test_kv_store.c - pages on disk: what a new engine finds there, and what it makes of files that are cut,
// changed or another model's.
#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "engine/engine.h"
#include "engine/kv/kv_store.h"
#include "engine/api/verify.h"
#include "open_engine.h"

#define MODEL(name) SOURCE_DIR "/tests/golden/" name "/model.gguf"
enum { N_PROMPT = 70, N_NEW = 4, N_COMPARED = 64 };

static char directory[64];

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof directory, "/tmp/ingot-store-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static uint32_t for_each_file(void (*each)(const char *path))
{
    DIR *dir = opendir(directory);
    char path[512];
    uint32_t n = 0;

    assert_non_null(dir);
    for (const struct dirent *d; (d = readdir(dir));) {
        if (d->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", directory, d->d_name);
        if (each)
            each(path);
        n++;
    }
    closedir(dir);
    return n;
}

static void remove_one(const char *path)
{
    assert_int_equal(unlink(path), 0);
}

static int remove_directory(void **state)
{
    (void)state;
    for_each_file(remove_one);
    return rmdir(directory);
}

static struct ingot_engine_options options(const char *model)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    o.model = model;
    o.device = "cpu";
    o.n_threads = 1;
    o.n_context = 96;
    o.cache_dir = directory;
    return o;
}

struct stored_bits {
    float logits[N_NEW][N_COMPARED];
    uint32_t n;
};

static bool record(void *arg, const struct ingot_event *event)
{
    struct stored_bits *a = arg;
    if (event->logits)
        memcpy(a->logits[a->n++], event->logits, sizeof a->logits[0]);
    return true;
}

// Opens, answers one prompt, closes. Returns how many of the prompt's tokens were found.
static uint32_t ask(const struct ingot_engine_options *o, uint32_t which, struct stored_bits *bits)
{
    struct ingot_error error = { 0 };
    struct ingot_engine *engine = open_or_fail(o);
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_result result;
    uint32_t tokens[N_PROMPT];

    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = (which * 7919 + i * 31 + 5) % 250;
    r.tokens = tokens;
    r.n_tokens = N_PROMPT;
    r.max_tokens = N_NEW;
    r.n_logits = 1;
    r.ignore_eos = true;
    memset(bits, 0, sizeof *bits);
    assert_true(ingot_generate(engine, &r, record, bits, &result, &error));
    ingot_engine_close(engine);
    return result.n_reused;
}

static void a_prompt_outlives_the_process(void **state)
{
    struct ingot_engine_options o = options(MODEL("llama3")), none = o;
    struct stored_bits cold, warm;
    (void)state;

    none.cache_dir = NULL;
    ask(&none, 1, &cold);
    assert_int_equal(for_each_file(NULL), 0);
    assert_int_equal(ask(&o, 1, &warm), 0);
    assert_memory_equal(&cold, &warm, sizeof cold);
    assert_int_equal(for_each_file(NULL), 4); // 70 + 3 tokens: four whole pages
    assert_int_equal(ask(&o, 1, &warm), 64);
    assert_memory_equal(&cold, &warm, sizeof cold);
    assert_int_equal(for_each_file(NULL), 4); // what came from there is not written again
    o.stages = "1";                           // the same numbers, cut in another place
    assert_int_equal(ask(&o, 1, &warm), 64);
    assert_memory_equal(&cold, &warm, sizeof cold);
}

static void other_settings_and_models_find_nothing(void **state)
{
    struct ingot_engine_options o = options(MODEL("llama3"));
    struct stored_bits bits;
    (void)state;

    ask(&o, 1, &bits);
    o.exact = true;
    assert_int_equal(ask(&o, 1, &bits), 0);
    o = options(MODEL("llama3"));
    o.cache_type_k = o.cache_type_v = INGOT_KV_F32;
    o.exact = false;
    assert_int_equal(ask(&o, 1, &bits), 0);
    o = options(MODEL("smollm2"));
    assert_int_equal(ask(&o, 1, &bits), 0);
}

static void cut_in_half(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size / 2), 0);
}

static void change_a_byte(const char *path)
{
    struct stat info;
    unsigned char byte;
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &info), 0);
    fseek(f, (long)info.st_size / 2, SEEK_SET);
    assert_int_equal(fread(&byte, 1, 1, f), 1);
    byte ^= 1;
    fseek(f, (long)info.st_size / 2, SEEK_SET);
    assert_int_equal(fwrite(&byte, 1, 1, f), 1);
    fclose(f);
}

static void make_longer(const char *path)
{
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(truncate(path, info.st_size + 1), 0);
}

static void make_a_link(const char *path)
{
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/etc/passwd", path), 0);
}

static void make_empty(const char *path)
{
    assert_int_equal(truncate(path, 0), 0);
}

static void damaged_files_are_not_there(void **state)
{
    static void (*const damages[])(const char *path) = { cut_in_half, change_a_byte, make_longer, make_a_link,
                                                         make_empty };
    struct ingot_engine_options o = options(MODEL("llama3"));
    struct stored_bits cold, bits;
    (void)state;

    for_each_file(remove_one);
    ask(&o, 2, &cold);
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        for_each_file(damages[i]);
        assert_int_equal(ask(&o, 2, &bits), 0);
        assert_memory_equal(&cold, &bits, sizeof cold);
        assert_int_equal(ask(&o, 2, &bits), 64); // written anew
    }
}

// Pages that make room for others are on disk before they are lost.
static void little_memory_is_enough(void **state)
{
    struct ingot_engine_options o = options(MODEL("llama3"));
    struct ingot_error error;
    (void)state;

    for_each_file(remove_one);
    o.n_kv_tokens = 96;
    struct ingot_engine *engine = ingot_engine_open(&o, &error);
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_result result;
    uint32_t tokens[N_PROMPT];
    r.tokens = tokens;
    r.n_tokens = N_PROMPT;
    r.max_tokens = 1;
    r.ignore_eos = true;
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t which = 10; which < 14; which++) {
            for (uint32_t i = 0; i < N_PROMPT; i++)
                tokens[i] = (which * 7919 + i * 31 + 5) % 250;
            assert_true(ingot_generate(engine, &r, NULL, NULL, &result, &error));
            assert_int_equal(result.n_reused, round ? 64 : 0);
        }
    assert_true(ingot_engine_save(engine, &error));
    ingot_engine_close(engine);
}

static void the_limit_holds(void **state)
{
    struct sha256 model = { "m" };
    struct kv_store_options o = { directory, model, 1000, 20000 };
    struct kv_store_page page = { .tokens = { 1 } };
    struct kv_store *store;
    struct err err = { 0 };
    (void)state;

    for_each_file(remove_one);
    assert_true(kv_store_open(&store, &o, &err));
    for (uint32_t i = 0; i < 60; i++) {
        page.key.at[0] = (unsigned char)i;
        memset(kv_store_room(store), (int)i, 1000);
        assert_true(kv_store_save(store, &page));
        struct timespec pause = { .tv_nsec = 2000000 }; // or they would be of one age
        nanosleep(&pause, NULL);
    }
    assert_in_range(for_each_file(NULL), 10, 17);
    assert_true(kv_store_load(store, &page));
    assert_int_equal(kv_store_room(store)[999], 59);
    page.key.at[0] = 3;
    assert_false(kv_store_load(store, &page));
    kv_store_close(store);
    assert_true(kv_store_open(&store, &o, &err));
    page.key.at[0] = 59;
    assert_true(kv_store_load(store, &page));
    page.tokens[0] = 2; // the name fits, the tokens do not
    assert_false(kv_store_load(store, &page));
    kv_store_close(store);
}

static void a_bad_directory_is_one_clear_line(void **state)
{
    struct ingot_engine_options o = options(MODEL("llama3"));
    struct ingot_error error = { 0 };
    (void)state;

    o.cache_dir = SOURCE_DIR "/README.md";
    assert_null(ingot_engine_open(&o, &error));
    assert_non_null(strstr(error.message, "README.md: expected a directory"));
    o.cache_dir = "/nowhere/at/all";
    assert_null(ingot_engine_open(&o, &error));
    assert_non_null(strstr(error.message, "/nowhere/at/all: cannot make the cache directory"));
    o = options(MODEL("llama3"));
    o.no_prefix_cache = true;
    assert_null(ingot_engine_open(&o, &error));
    assert_non_null(strstr(error.message, "needs the prefix cache"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_outlives_the_process),
        cmocka_unit_test(other_settings_and_models_find_nothing),
        cmocka_unit_test(damaged_files_are_not_there),
        cmocka_unit_test(little_memory_is_enough),
        cmocka_unit_test(the_limit_holds),
        cmocka_unit_test(a_bad_directory_is_one_clear_line),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
