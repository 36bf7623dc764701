// test_gguf_write.c - what the writer writes, the reader reads; and what fails leaves nothing behind.
#include "testing.h"
#include <stdlib.h>
#include <unistd.h>
#include "format/gguf_write.h"
#include "gguf_builder.h"

static char path[64], part[72];

static int name_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/ingot-write-XXXXXX");
    int fd = mkstemp(path);
    snprintf(part, sizeof part, "%s.part", path);
    close(fd);
    return unlink(path);
}

static int remove_file(void **state)
{
    (void)state;
    unlink(path);
    return file_exists(part) ? -1 : 0;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    static const uint64_t matrix[] = { 3, 32 }, row[] = { 5 };
    static const struct str words[] = { { "a", 1 }, { "", 0 }, { "b\0c", 3 } };
    static const int32_t ints[] = { -1, 2 };
    static const float floats[] = { 0.5f };
    static const bool bools[] = { false, true };
    unsigned char data[102];
    struct gguf_writer w;
    struct model_file *f;
    struct err err = { 0 };
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)i;
    assert_ok(gguf_write_create(&w, path, &err), &err);
    gguf_write_str(&w, "general.architecture", STR("llama"));
    gguf_write_u32(&w, "u", 7);
    gguf_write_f32(&w, "f", 1.5f);
    gguf_write_bool(&w, "b", true);
    gguf_write_strs(&w, "words", words, 3);
    gguf_write_i32s(&w, "ints", ints, 2);
    gguf_write_f32s(&w, "floats", floats, 1);
    gguf_write_bools(&w, "bools", bools, 2);
    gguf_write_tensor(&w, STR("m"), QUANT_Q8_0, matrix, 2);
    gguf_write_tensor(&w, STR("v"), QUANT_F32, row, 1);
    gguf_write_begin(&w);
    gguf_write_data(&w, data, 100); // in pieces
    gguf_write_data(&w, data + 100, 2);
    gguf_write_data(&w, data, 20);
    assert_false(file_exists(path));
    assert_ok(gguf_write_commit(&w, &err), &err);
    assert_ok(model_file_open(&f, path, &err), &err);
    assert_true(str_is(model_file_meta(f, "general.architecture")->s, "llama") &&
                model_file_meta(f, "u")->u == 7);
    assert_true(model_file_meta(f, "f")->f == 1.5 && model_file_meta(f, "b")->b);
    const struct meta *m = model_file_meta(f, "words");
    assert_true(m->n == 3 && str_eq(meta_at(m, 2).s, words[2]) && meta_at(m, 1).s.n == 0);
    assert_true(meta_at(model_file_meta(f, "ints"), 0).i == -1 &&
                meta_at(model_file_meta(f, "floats"), 0).f == 0.5);
    m = model_file_meta(f, "bools");
    assert_true(m->n == 2 && !meta_at(m, 0).b && meta_at(m, 1).b);
    const struct file_tensor *a = model_file_tensor(f, "m"), *b = model_file_tensor(f, "v");
    assert_true(a->format == QUANT_Q8_0 && a->n_dims == 2 && a->dims[0] == 3 && a->dims[1] == 32 &&
                b->dims[0] == 5);
    assert_memory_equal(a->data, data, 102);
    assert_memory_equal(b->data, data, 20);
    model_file_close(f);
}

// Copying the values of a GGUF file gives the same bytes, so no type is widened.
static void copied_values_keep_their_types(void **state)
{
    (void)state;
    struct gguf_builder g = { 0 };
    static const char *const words[] = { "x", "yz" };
    struct model_file *f;
    struct gguf_writer w;
    struct err err = { 0 };
    struct buf written = { 0 };
    static const size_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    for (uint32_t type = 0; type < 13; type++) {
        char name[8] = { 'k', (char)('a' + type), 0 };
        if (sizes[type])
            gguf_meta(&g, name, type, "\1\0\0\0\0\0\0\0", sizes[type]);
        name[0] = 'n';
        if (sizes[type])
            gguf_meta_array(&g, name, type, 2, "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 2 * sizes[type]);
    }
    gguf_meta_strs(&g, "words", 2, words);
    gguf_meta_str(&g, "word", "w");
    gguf_image(&g);
    assert_ok(model_file_open_memory(&f, g.image, g.n, "x", &err), &err);
    assert_ok(gguf_write_create(&w, path, &err), &err);
    for (size_t i = 0; i < model_file_n_metas(f); i++)
        gguf_write_meta(&w, model_file_meta_at(f, i));
    gguf_write_begin(&w);
    assert_ok(gguf_write_commit(&w, &err), &err);
    assert_ok(file_read(&written, path, 1 << 20, &err), &err);
    assert_true(written.n >= g.n);
    assert_memory_equal(written.at, g.image, g.n);
    buf_free(&written);
    model_file_close(f);
    gguf_builder_free(&g);
}

static void an_aborted_file_leaves_nothing(void **state)
{
    (void)state;
    static const uint64_t row[] = { 5 };
    struct gguf_writer w;
    struct err err = { 0 };
    assert_ok(gguf_write_create(&w, path, &err), &err);
    gguf_write_u32(&w, "u", 7);
    gguf_write_tensor(&w, STR("v"), QUANT_F32, row, 1);
    gguf_write_begin(&w);
    gguf_write_data(&w, "abcd", 4);
    assert_true(file_exists(part));
    gguf_write_abort(&w);
    gguf_write_abort(&w);
    assert_false(file_exists(path) || file_exists(part));
    assert_fails(gguf_write_create(&w, "/tmp/no/such/folder/x.gguf", &err), &err, "cannot create");
    gguf_write_abort(&w);
}

// Each allocation fails once; the failure arrives at commit, and no file stays.
static void no_memory_is_an_error(void **state)
{
    (void)state;
    static const uint64_t row[] = { 5 };
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        struct gguf_writer w;
        struct err err = { 0 };
        mem_fail_at(n, 0);
        done = gguf_write_create(&w, path, &err);
        if (done) {
            gguf_write_u32(&w, "u", 7);
            gguf_write_tensor(&w, STR("v"), QUANT_F32, row, 1);
            gguf_write_begin(&w);
            gguf_write_data(&w, "01234567890123456789", 20);
            done = gguf_write_commit(&w, &err);
        }
        mem_fail_at(0, 0);
        assert_true(done || err.code == ERR_MEMORY);
        assert_true(done == file_exists(path) && !file_exists(part));
        assert_true(n < 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_written_is_read, name_file, remove_file),
        cmocka_unit_test_setup_teardown(copied_values_keep_their_types, name_file, remove_file),
        cmocka_unit_test_setup_teardown(an_aborted_file_leaves_nothing, name_file, remove_file),
        cmocka_unit_test_setup_teardown(no_memory_is_an_error, name_file, remove_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
