// test_hostile_keys.c - every key and every tensor of a small model of each architecture, changed one at a
// time: refused in one line that says so, or harmless.
//
// Sizes become 0, 1 or the largest, numbers 0, NaN, infinity or -1, and each key is absent once. A tensor
// with another name, or longer by one in any dimension, is always refused. Which words an error has is tested
// in test_hostile_experts.c, test_hostile_states.c and test_contradictions.c.
#include <dirent.h>
#include <math.h>
#include "base/file.h"
#include "base/log.h"
#include "models/model.h"
#include "testing.h"

#define GOLDEN SOURCE_DIR "/tests/golden/"

static struct buf image;
static const char *model_name;

static bool binds(struct err *err)
{
    struct model_file *file = NULL;
    struct model m;

    *err = (struct err){ 0 };
    bool ok = model_file_open_memory(&file, image.at, image.n, "hostile", err) && model_bind(&m, file, err);
    if (ok)
        model_release(&m);
    model_file_close(file);
    return ok;
}

// What stands at `at` is wrong in the way that `what` says. False: it was refused, in one line.
static bool taken(const char *what, struct str name)
{
    struct err err;

    if (binds(&err))
        return true;
    if (strlen(err.message) < 20 || strchr(err.message, '\n'))
        fail_msg("%s, %.*s %s: no clear line: '%s'", model_name, STR_ARG(name), what, err.message);
    return false;
}

// Where a name lies that its length stands before.
static char *found(struct str name)
{
    for (size_t at = 0; at < image.n; at++) {
        size_t step = str_find(str_from_to(buf_as_str(&image), at, image.n), name);
        uint64_t n;
        if (step == SIZE_MAX)
            break;
        at += step;
        memcpy(&n, image.at + at - sizeof n, sizeof n);
        if (n == name.n)
            return image.at + at;
    }
    fail_msg("%s has no %.*s", model_name, STR_ARG(name));
    return NULL;
}

static void changes_of(const struct meta *key)
{
    static const uint32_t sizes[] = { 0, 1, 0x7fffffff, 0xffffffff };
    static const float numbers[] = { 0, NAN, INFINITY, -1 };
    struct meta first = key->type == META_ARRAY ? meta_at(key, 0) : *key;
    bool number = first.type == META_FLOAT;
    size_t n = first.type == META_BOOL ? 1 : 4;
    char *name = found(key->key), kept[4];
    char *at =
        name + key->key.n + 4 + (key->type == META_ARRAY ? 12 : 0); // behind an array's type and length

    *name ^= 1;
    taken("absent", key->key);
    *name ^= 1;
    if (first.type == META_STRING)
        return;
    memcpy(kept, at, n);
    for (int i = 0; i < 4; i++) {
        memcpy(at, number ? (const void *)&numbers[i] : &sizes[i], n);
        if (taken("changed", key->key) && number && i > 0)
            fail_msg("%s: %.*s = %g was taken", model_name, STR_ARG(key->key), (double)numbers[i]);
    }
    memcpy(at, kept, n);
}

static void changes_of_tensor(const struct file_tensor *t)
{
    // a layer that drafts tokens is left alone where it does not fit, which a warning says
    bool drafts = str_starts(str_from(model_name), STR("mtp-"));
    char *name = found(t->name), *dims = name + t->name.n + 4;

    *name ^= 1;
    if (taken("under another name", t->name))
        fail_msg("%s: nobody missed %.*s", model_name, STR_ARG(t->name));
    *name ^= 1;
    for (uint32_t i = 0; i < t->n_dims; i++) {
        uint64_t kept, more;
        memcpy(&kept, dims + i * sizeof kept, sizeof kept);
        more = kept + 1;
        memcpy(dims + i * sizeof more, &more, sizeof more);
        if (taken("longer", t->name) && !drafts)
            fail_msg("%s: %.*s was taken with dimension %u of %llu", model_name, STR_ARG(t->name), i,
                     (unsigned long long)more);
        memcpy(dims + i * sizeof kept, &kept, sizeof kept);
    }
}

static void changes_of_model(const char *path)
{
    struct model_file *file;
    struct err err = { 0 };

    assert_ok(file_read(&image, path, 1 << 24, &err), &err);
    assert_ok(model_file_open(&file, path, &err), &err);
    assert_ok(binds(&err), &err);
    for (size_t i = 0; i < model_file_n_metas(file); i++)
        if (!str_starts(model_file_meta_at(file, i)->key, STR("general.")) &&
            !str_starts(model_file_meta_at(file, i)->key, STR("tokenizer.")))
            changes_of(model_file_meta_at(file, i));
    for (size_t i = 0; i < model_file_n_tensors(file); i++)
        changes_of_tensor(model_file_tensor_at(file, i));
    model_file_close(file);
    buf_free(&image);
}

static void any_change_is_refused_in_one_line_or_harmless(void **state)
{
    DIR *folder = opendir(GOLDEN);
    uint32_t n = 0;

    (void)state;
    log_level_set(LOG_ERROR);
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[512];
        snprintf(path, sizeof path, GOLDEN "%s/model.gguf", entry->d_name);
        if (!file_exists(path))
            continue;
        model_name = entry->d_name;
        changes_of_model(path);
        n++;
    }
    closedir(folder);
    assert_true(n > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(any_change_is_refused_in_one_line_or_harmless) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
