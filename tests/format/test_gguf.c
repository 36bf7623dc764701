// test_gguf.c - the GGUF reader on good files, and on every kind of bad one that has hurt other readers.
//
// Bad files are built from a good one by changing one thing. The message must name what is wrong; the
// sanitizers see the rest.
#include "testing.h"
#include <math.h>
#include <unistd.h>
#include "format/model_file.h"
#include "gguf_builder.h"

static bool open_image(struct gguf_builder *g, struct model_file **file, struct err *err)
{
    gguf_image(g);
    return model_file_open_memory(file, g->image, g->n, "image", err);
}

static void refuse(struct gguf_builder *g, const char *part)
{
    struct err err = { 0 };
    struct model_file *file;
    assert_fails(open_image(g, &file, &err), &err, part);
    assert_null(file);
    gguf_builder_free(g);
}

// Every value type, an array of each, two tensors.
static struct gguf_builder good(uint32_t version)
{
    struct gguf_builder g = { .version = version };
    static const uint64_t dims[] = { 32, 3 };
    static const char *const words[] = { "a", "", "long enough" };
    uint64_t u = UINT64_MAX;
    int64_t i = INT64_MIN;
    double f = 0.1;
    gguf_meta_str(&g, "general.architecture", "llama");
    gguf_meta(&g, "u8", 0, "\xff", 1);
    gguf_meta(&g, "i8", 1, "\xff", 1);
    gguf_meta(&g, "u16", 2, "\x34\x12", 2);
    gguf_meta(&g, "i16", 3, "\x00\x80", 2);
    gguf_meta_u32(&g, "u32", 4000000000u);
    gguf_meta(&g, "i32", 5, "\xfe\xff\xff\xff", 4);
    gguf_meta_f32(&g, "f32", -1.5f);
    gguf_meta_bool(&g, "bool", true);
    gguf_meta(&g, "u64", 10, &u, 8);
    gguf_meta(&g, "i64", 11, &i, 8);
    gguf_meta(&g, "f64", 12, &f, 8);
    gguf_meta_strs(&g, "words", 3, words);
    gguf_meta_array(&g, "bytes", 0, 3, "\x01\x02\x03", 3);
    gguf_meta_array(&g, "shorts", 3, 2, "\xff\xff\x01\x00", 4);
    gguf_meta_array(&g, "flags", 7, 2, "\x00\x01", 2);
    gguf_meta_array(&g, "none", 5, 0, NULL, 0);
    gguf_tensor(&g, "first", 0, 2, dims, NULL, 32 * 3 * 4);
    gguf_tensor(&g, "second", 8, 2, dims, NULL, 34 * 3);
    return g;
}

static void all_value_types_are_read(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        struct gguf_builder g = good(version);
        struct model_file *f;
        struct err err = { 0 };
        assert_ok(open_image(&g, &f, &err), &err);
        assert_true(str_is(model_file_meta(f, "general.architecture")->s, "llama"));
        assert_true(model_file_meta(f, "u8")->u == 255 && model_file_meta(f, "i8")->i == -1 &&
                    model_file_meta(f, "u16")->u == 0x1234);
        assert_true(model_file_meta(f, "i16")->i == -32768 && model_file_meta(f, "u32")->u == 4000000000u);
        assert_true(model_file_meta(f, "i32")->i == -2 && model_file_meta(f, "f32")->f == -1.5 &&
                    model_file_meta(f, "bool")->b);
        assert_true(model_file_meta(f, "u64")->u == UINT64_MAX && model_file_meta(f, "i64")->i == INT64_MIN);
        assert_true(model_file_meta(f, "f64")->f == 0.1 && model_file_meta(f, "f64")->type == META_FLOAT);
        const struct meta *words = model_file_meta(f, "words"), *shorts = model_file_meta(f, "shorts");
        assert_true(words->type == META_ARRAY && words->element == META_STRING && words->n == 3);
        assert_true(str_is(meta_at(words, 2).s, "long enough") && str_is(meta_at(words, 1).s, "") &&
                    str_is(meta_at(words, 0).s, "a"));
        assert_true(shorts->element == META_INT && meta_at(shorts, 0).i == -1 && meta_at(shorts, 1).i == 1);
        assert_true(meta_at(model_file_meta(f, "bytes"), 2).u == 3 &&
                    meta_at(model_file_meta(f, "flags"), 1).b);
        assert_int_equal(model_file_meta(f, "none")->n, 0);
        assert_null(model_file_meta(f, "absent"));
        assert_int_equal(model_file_n_metas(f), 17);
        model_file_close(f);
        gguf_builder_free(&g);
    }
}

static void tensors_lie_where_the_file_says(void **state)
{
    (void)state;
    struct gguf_builder g = good(3);
    struct model_file *f;
    struct err err = { 0 };
    assert_ok(open_image(&g, &f, &err), &err);
    assert_int_equal(model_file_n_tensors(f), 2);
    const struct file_tensor *a = model_file_tensor(f, "first"), *b = model_file_tensor(f, "second");
    assert_true(a == model_file_tensor_at(f, 0) && a->n_dims == 2 && a->dims[0] == 3 && a->dims[1] == 32 &&
                a->dims[2] == 1);
    assert_true(a->format == QUANT_F32 && a->bytes == 384 && b->format == QUANT_Q8_0 && b->bytes == 102);
    assert_ptr_equal(b->data, a->data + 384);
    assert_int_equal((uintptr_t)a->data % 32, 0);
    assert_ptr_equal(b->data + b->bytes, g.image + g.n);
    assert_null(model_file_tensor(f, "third"));
    assert_true(model_file_format(f) == MODEL_GGUF && strcmp(model_file_path(f), "image") == 0);
    model_file_close(f);
    gguf_builder_free(&g);
}

static void typed_reading_names_what_was_found(void **state)
{
    (void)state;
    struct gguf_builder g = good(3);
    struct model_file *f;
    struct err err = { 0 };
    uint64_t u = 7;
    double d = 7;
    bool b = false;
    struct str s = STR("x");
    assert_ok(open_image(&g, &f, &err), &err);
    assert_true(model_file_u64(f, "absent", 0, 1, &u, &err) && u == 7 &&
                model_file_f64(f, "absent", 0, 1, &d, &err) && d == 7);
    assert_true(model_file_bool(f, "absent", &b, &err) && model_file_string(f, "absent", &s, &err) &&
                str_is(s, "x"));
    assert_true(model_file_u64(f, "u8", 1, 255, &u, &err) && u == 255);
    assert_true(model_file_f64(f, "u8", 0, 1000, &d, &err) && d == 255 &&
                model_file_bool(f, "bool", &b, &err) && b);
    assert_fails(model_file_u64(f, "u8", 1, 254, &u, &err), &err,
                 "image: u8 is 255; expected a whole number from 1 to 254");
    assert_fails(model_file_u64(f, "i8", 0, UINT64_MAX, &u, &err), &err, "i8 is -1");
    assert_fails(model_file_u64(f, "f32", 0, 10, &u, &err), &err, "f32 is -1.5");
    assert_fails(model_file_f64(f, "words", 0, 10, &d, &err), &err, "an array of 3");
    assert_fails(model_file_bool(f, "u8", &b, &err), &err, "expected true or false");
    assert_fails(model_file_string(f, "bool", &s, &err), &err, "bool is true; expected a string");
    assert_fails(model_file_u64(f, "general.architecture", 0, 10, &u, &err), &err, "the string 'llama'");
    model_file_close(f);
    gguf_builder_free(&g);
}

static void a_number_that_is_nan_is_refused(void **state)
{
    (void)state;
    struct gguf_builder g = { 0 };
    struct model_file *f;
    struct err err = { 0 };
    double d;
    gguf_meta_f32(&g, "eps", NAN);
    gguf_meta_f32(&g, "base", INFINITY);
    assert_ok(open_image(&g, &f, &err), &err);
    assert_fails(model_file_f64(f, "eps", 0, 1, &d, &err), &err, "eps is nan");
    assert_fails(model_file_f64(f, "base", 0, 1e30, &d, &err), &err, "base is inf");
    model_file_close(f);
    gguf_builder_free(&g);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    struct gguf_builder g = good(3);
    gguf_image(&g);
    for (size_t n = 0; n < g.n; n++) {
        struct model_file *file;
        struct err err = { 0 };
        // of its own size, so that a read past it is seen
        unsigned char *copy = mem_alloc_aligned(n ? n : 1, 64);
        memcpy(copy, g.image, n);
        if (model_file_open_memory(&file, copy, n, "cut", &err))
            fail_msg("opened with %zu of %zu bytes", n, g.n);
        assert_true(strncmp(err.message, "cut: ", 5) == 0);
        mem_free_aligned(copy);
    }
    gguf_builder_free(&g);
}

static void bad_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t version;
        const char *part;
    } versions[] = {
        { 1, "version 1" }, { 4, "version 4" }, { 0x03000000, "big-endian" }, { 0x02000000, "big-endian" }
    };
    struct err err = { 0 };
    struct model_file *file;
    for (size_t i = 0; i < 4; i++) {
        struct gguf_builder g = { .version = versions[i].version };
        refuse(&g, versions[i].part);
    }
    _Alignas(8) char zero_version[24] = "GGUF", html[24] = "<!DOCTYPE html><html>";
    assert_fails(model_file_open_memory(&file, zero_version, 24, "x", &err), &err, "version 0");
    assert_fails(model_file_open_memory(&file, html, 24, "x", &err), &err,
                 "not a GGUF file: it begins with bytes 3c 21 44 4f");
    assert_fails(model_file_open_memory(&file, zero_version + 1, 23, "x", &err), &err, "multiple of 8");
    static const uint64_t counts[] = { 1, (uint64_t)1 << 60, INT64_MAX, UINT64_MAX };
    for (size_t i = 0; i < 4; i++) {
        struct gguf_builder a = { .n_metas = counts[i] }, b = { .n_tensors = counts[i] };
        refuse(&a, "but only 0 bytes follow");
        refuse(&b, "but only 0 bytes follow");
    }
}

static void raw_meta(struct gguf_builder *g, uint64_t key_n, const char *key, size_t key_bytes, uint32_t type)
{
    gguf_u64(&g->metas, key_n);
    buf_append(&g->metas, key, key_bytes);
    gguf_u32(&g->metas, type);
    gguf_u64(&g->metas, 0);
    g->n_metas++;
}

static void bad_keys_are_refused(void **state)
{
    (void)state;
    struct gguf_builder g = { 0 };
    char *longest = mem_alloc(65537);
    memset(longest, 'k', 65536);
    raw_meta(&g, 0, "", 0, 10);
    refuse(&g, "a key at offset 24 has 0 bytes");
    raw_meta(&g, 65536, longest, 65536, 10);
    refuse(&g, "65536 bytes; expected 1 to 65535");
    raw_meta(&g, 65535, longest, 65535, 10);
    struct model_file *file;
    struct err err = { 0 };
    assert_ok(open_image(&g, &file, &err), &err);
    model_file_close(file);
    gguf_builder_free(&g);
    mem_free(longest);
    raw_meta(&g, 14, "k", 1, 10);
    refuse(&g, "cut short");
    raw_meta(&g, UINT64_MAX, "k", 1, 10);
    refuse(&g, "cut short");
    raw_meta(&g, 3, "a\0b", 3, 10);
    refuse(&g, "not printable");
    raw_meta(&g, 3,
             "a\xff"
             "b",
             3, 10);
    refuse(&g, "not printable");
    raw_meta(&g, 3, "\xed\xa0\x80", 3, 10); // a surrogate
    refuse(&g, "not printable");
    gguf_meta_u32(&g, "same", 1);
    gguf_meta_u32(&g, "same", 1);
    refuse(&g, "key 'same' is there twice");
}

static void bad_values_are_refused(void **state)
{
    (void)state;
    struct gguf_builder g = { 0 };
    static const uint64_t sixteen[16];
    gguf_meta(&g, "k", 13, sixteen, 8);
    refuse(&g, "key 'k' has type 13");
    gguf_meta(&g, "k", 255, sixteen, 8);
    refuse(&g, "type 255");
    gguf_meta(&g, "k", UINT32_MAX, sixteen, 8);
    refuse(&g, "type 4294967295");
    for (int b = 2; b < 256; b += 23) {
        unsigned char byte = (unsigned char)b;
        gguf_meta(&g, "k", 7, &byte, 1);
        gguf_meta_u32(&g, "pad", 0);
        refuse(&g, "holds a bool of");
    }
    gguf_meta(&g, "k", 8, "\x00\x00\x00\x40\x00\x00\x00\x00", 8); // a string of 1 GiB
    refuse(&g, "key 'k'");
    gguf_meta_array(&g, "k", 9, 1, sixteen, 128);
    refuse(&g, "array of arrays");
    gguf_meta_array(&g, "k", 77, (uint64_t)1 << 60, sixteen, 128);
    refuse(&g, "type 77");
    gguf_meta_array(&g, "k", 10, ((uint64_t)1 << 61) + 1, sixteen, 128);
    refuse(&g, "2305843009213693953 elements");
    gguf_meta_array(&g, "k", 8, UINT64_MAX, sixteen, 128);
    refuse(&g, "elements of at least 8 bytes");
    gguf_meta_array(&g, "k", 8, 2, "\x00\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff", 16);
    refuse(&g, "key 'k'");
    gguf_meta_array(&g, "k", 7, 3, "\x00\x01\x02", 3);
    gguf_meta_u32(&g, "pad", 0);
    refuse(&g, "holds a bool of 2");
}

static void tensor(struct gguf_builder *g, uint32_t type, uint32_t n_dims, uint64_t a, uint64_t b)
{
    uint64_t dims[8] = { a, b, 1, 1, 1, 1, 1, 1 };
    gguf_tensor_info(g, "t", type, n_dims > 8 ? 8 : n_dims, dims, 0);
    if (n_dims > 8)
        memcpy(g->infos.at + g->infos.n - 12 - 64 - 4, &n_dims, 4);
    for (int i = 0; i < 64; i++)
        buf_append(&g->data, "12345678", 8);
}

static void bad_shapes_are_refused(void **state)
{
    (void)state;
    struct gguf_builder g = { 0 };
    tensor(&g, 0, 0, 1, 1);
    refuse(&g, "'t' has 0 dimensions");
    tensor(&g, 0, 5, 1, 1);
    refuse(&g, "'t' has 5 dimensions");
    tensor(&g, 0, UINT32_MAX, 1, 1);
    refuse(&g, "4294967295 dimensions");
    tensor(&g, 0, 2, 0, 4);
    refuse(&g, "dimension of 0");
    tensor(&g, 0, 2, 4, UINT64_MAX);
    refuse(&g, "dimension of");
    tensor(&g, 0, 2, (uint64_t)1 << 32, (uint64_t)1 << 32);
    refuse(&g, "fewer than 2^63");
    tensor(&g, 0, 2, (uint64_t)1 << 62, 4);
    refuse(&g, "fewer than 2^63");
    tensor(&g, 0, 1, UINT64_MAX / 4, 1);
    refuse(&g, "bytes"); // 2^64 bytes, which an unchecked sum would round to nothing
    tensor(&g, 0, 1, (uint64_t)INT64_MAX, 1);
    refuse(&g, "larger than 2^64 bytes");
    tensor(&g, 12, 1, 255, 1);
    refuse(&g, "rows of 255 elements; Q4_K needs a multiple of 256");
    tensor(&g, 8, 2, 16, 2); // 32 elements, but half a block to a row
    refuse(&g, "rows of 16 elements; Q8_0");
    tensor(&g, 153, 2, 128, 2);
    refuse(&g, "rows of 128 elements; IQ2_KT needs a multiple of 256");
    tensor(&g, 155, 2, 256, (uint64_t)1 << 54); // 2^62 elements; heads make it too many bytes for the file
    refuse(&g, "'t' needs 2377900603251621888 bytes");
}

// Each row of a KT format has four bytes of its own before its blocks.
static void rows_with_heads_are_counted_with_them(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        uint64_t bytes; // of two rows of 512
    } cases[] = { { 158, 2 * (4 + 2 * 56) },
                  { 153, 2 * (4 + 2 * 68) },
                  { 154, 2 * (4 + 2 * 100) },
                  { 155, 2 * (4 + 2 * 128) } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gguf_builder g = { 0 };
        struct model_file *f;
        struct err err = { 0 };
        char message[80];
        gguf_tensor(&g, "t", cases[i].type, 2, (uint64_t[]){ 512, 2 }, NULL, cases[i].bytes);
        assert_ok(open_image(&g, &f, &err), &err);
        assert_int_equal(model_file_tensor(f, "t")->bytes, cases[i].bytes);
        model_file_close(f);
        gguf_builder_free(&g);
        g = (struct gguf_builder){ 0 }; // the second head is missing
        gguf_tensor(&g, "t", cases[i].type, 2, (uint64_t[]){ 512, 2 }, NULL, cases[i].bytes - 4);
        snprintf(message, sizeof message, "'t' needs %u bytes at data byte 0, but the file has %u",
                 (unsigned)cases[i].bytes, (unsigned)cases[i].bytes - 4);
        refuse(&g, message);
    }
}

static void bad_types_are_refused(void **state)
{
    (void)state;
    static const uint32_t types[] = { 4, 5, 31, 32, 33, 36, 37, 38, 43, 1000, UINT32_MAX };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct gguf_builder g = { 0 };
        tensor(&g, types[i], 1, 256, 1);
        refuse(&g, "unknown or removed");
    }
    struct gguf_builder g = { 0 };
    tensor(&g, 15, 1, 256, 1);
    refuse(&g, "type 15 (Q8_K), which is not read");
}

static void bad_names_and_places_are_refused(void **state)
{
    (void)state;
    struct gguf_builder g = { 0 };
    static const uint64_t four[] = { 4 };
    char name[300] = { 0 };
    memset(name, 'n', 257);
    gguf_tensor(&g, name, 0, 1, four, NULL, 16);
    refuse(&g, "257 bytes; expected 1 to 256");
    gguf_tensor(&g, "", 0, 1, four, NULL, 16);
    refuse(&g, "0 bytes");
    gguf_tensor(&g, "a\nb", 0, 1, four, NULL, 16);
    refuse(&g, "not printable");
    gguf_tensor(&g, "t", 0, 1, four, NULL, 16);
    gguf_tensor(&g, "t", 0, 1, four, NULL, 16);
    refuse(&g, "tensor 't' is there twice");
    gguf_tensor(&g, "a", 0, 1, four, NULL, 16);
    gguf_tensor_info(&g, "t", 0, 1, four, 8);
    refuse(&g, "'t' lies at data byte 8");
    gguf_tensor(&g, "a", 0, 1, four, NULL, 16);
    gguf_tensor_info(&g, "t", 0, 1, four, 32);
    refuse(&g, "'t' needs 16 bytes at data byte 32");
    gguf_tensor(&g, "a", 0, 1, four, NULL, 16);
    gguf_tensor_info(&g, "t", 0, 1, four, UINT64_MAX - 31);
    refuse(&g, "needs 16 bytes");
    gguf_tensor(&g, "a", 0, 1, four, NULL, 16);
    gguf_tensor_info(&g, "t", 0, 1, four, 0);
    refuse(&g, "overlap");
    gguf_tensor(&g, "t", 0, 1, four, NULL, 15);
    refuse(&g, "needs 16 bytes at data byte 0, but the file has 15");
}

static void bad_alignments_are_refused(void **state)
{
    (void)state;
    static const uint32_t bad[] = { 0, 1, 3, 4, 48, 1 << 17, 1u << 30, 1u << 31 };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct gguf_builder g = { 0 };
        gguf_meta_u32(&g, "general.alignment", bad[i]);
        refuse(&g, "expected a power of two from 8 to 65536");
    }
    struct gguf_builder g = { 0 };
    gguf_meta_str(&g, "general.alignment", "32");
    refuse(&g, "no unsigned integer");
    gguf_meta_f32(&g, "general.alignment", 32);
    refuse(&g, "no unsigned integer");
}

static void an_alignment_counts_wherever_it_stands(void **state)
{
    (void)state;
    static const uint64_t four[] = { 4 };
    struct gguf_builder g = { .alignment = 4096 };
    struct model_file *file;
    struct err err = { 0 };
    gguf_meta_u32(&g, "first", 1);
    gguf_meta_u32(&g, "general.alignment", 4096);
    gguf_tensor(&g, "a", 0, 1, four, NULL, 16);
    gguf_tensor(&g, "b", 0, 1, four, "0123456789abcdef", 16);
    assert_ok(open_image(&g, &file, &err), &err);
    assert_ptr_equal(model_file_tensor(file, "a")->data, g.image + 4096);
    assert_memory_equal(model_file_tensor(file, "b")->data, "0123456789abcdef", 16);
    model_file_close(file);
    gguf_builder_free(&g);
}

// Each key that the reader itself looks at, with every other type.
static void layout_keys_of_any_type_do_no_harm(void **state)
{
    (void)state;
    static const char *const keys[] = { "general.alignment", "split.count", "split.no",
                                        "split.tensors.count" };
    static const unsigned char bytes[32] = { 32 };
    for (size_t k = 0; k < 4; k++)
        for (uint32_t type = 0; type < 13; type++) {
            static const size_t sizes[] = { 1, 1, 2, 2, 4, 4, 4, 1, 32, 32, 8, 8, 8 };
            struct gguf_builder g = { 0 };
            struct model_file *file = NULL;
            struct err err = { 0 };
            gguf_meta(&g, keys[k], type, bytes, sizes[type]);
            gguf_image(&g);
            if (model_file_open_memory(&file, g.image, g.n, "x", &err))
                assert_true(type != 6 && type != 7 && type != 8 && type != 9 && type != 12);
            else
                assert_true(err.code == ERR_INPUT || err.code == ERR_UNSUPPORTED);
            model_file_close(file);
            gguf_builder_free(&g);
        }
}

static void many_tensors_are_found_quickly(void **state)
{
    (void)state;
    static const uint64_t eight[] = { 8 };
    enum { N = 100000 };
    struct gguf_builder g = { 0 };
    struct model_file *file;
    struct err err = { 0 };
    char name[64];
    for (uint64_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "blk.%llu.weight", (unsigned long long)(i * 7919 % N));
        gguf_tensor(&g, name, 0, 1, eight, (uint64_t[4]){ i }, 32);
    }
    assert_ok(open_image(&g, &file, &err), &err);
    for (uint64_t i = 0; i < N; i++) {
        snprintf(name, sizeof name, "blk.%llu.weight", (unsigned long long)(i * 7919 % N));
        const struct file_tensor *t = model_file_tensor(file, name);
        assert_true(t && memcmp(t->data, &i, sizeof i) == 0);
    }
    model_file_close(file);
    gguf_builder_free(&g);
}

// --- files and split models ---

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ingot-gguf-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void save(struct gguf_builder *g, const char *name)
{
    gguf_image(g);
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(g->image, 1, g->n, f), g->n);
    fclose(f);
    gguf_builder_free(g);
}

// Part `no` of `count`, with one tensor named after it.
static void save_part(const char *name, uint16_t no, uint16_t count, int32_t n_tensors)
{
    static const uint64_t four[] = { 4 };
    struct gguf_builder g = { 0 };
    char tensor_name[32] = { 0 };
    snprintf(tensor_name, sizeof tensor_name, "t%d", no);
    gguf_meta(&g, "split.no", 2, &no, 2);
    gguf_meta(&g, "split.count", 2, &count, 2);
    gguf_meta(&g, "split.tensors.count", 5, &n_tensors, 4);
    gguf_meta_u32(&g, no ? "later" : "first", no);
    gguf_tensor(&g, tensor_name, 0, 1, four, tensor_name, 16);
    save(&g, name);
}

static void refuse_path(const char *name, const char *part)
{
    struct err err = { 0 };
    struct model_file *file;
    assert_fails(model_file_open(&file, path_of(name), &err), &err, part);
    assert_null(file);
}

static void split_models_are_opened_by_their_first_part(void **state)
{
    (void)state;
    struct model_file *file;
    struct err err = { 0 };
    save_part("m-00001-of-00003.gguf", 0, 3, 3);
    save_part("m-00002-of-00003.gguf", 1, 3, 3);
    refuse_path("m-00001-of-00003.gguf", "part 3 of 3");
    save_part("m-00003-of-00003.gguf", 2, 3, 3);
    assert_ok(model_file_open(&file, path_of("m-00001-of-00003.gguf"), &err), &err);
    assert_int_equal(model_file_n_tensors(file), 3);
    assert_memory_equal(model_file_tensor(file, "t2")->data, "t2", 3);
    assert_memory_equal(model_file_tensor(file, "t0")->data, "t0", 3);
    assert_true(model_file_meta(file, "first") && !model_file_meta(file, "later"));
    model_file_close(file);
    refuse_path("m-00002-of-00003.gguf", "open the first part");
    save_part("m-00003-of-00003.gguf", 1, 3, 3);
    refuse_path("m-00001-of-00003.gguf", "says it is part 2 of 3; expected part 3 of 3");
    save_part("m-00003-of-00003.gguf", 2, 4, 3);
    refuse_path("m-00001-of-00003.gguf", "part 3 of 4; expected part 3 of 3");
    save_part("m-00003-of-00003.gguf", 2, 3, 3);
    save_part("m-00001-of-00003.gguf", 0, 3, 4);
    refuse_path("m-00001-of-00003.gguf", "the parts hold 3 tensors; split.tensors.count says 4");
    for (int i = 1; i <= 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "m-0000%d-of-00003.gguf", i);
        unlink(path_of(name));
    }
}

static void split_counts_that_lie_are_refused(void **state)
{
    (void)state;
    save_part("x.gguf", 0, 0, 1);
    refuse_path("x.gguf", "split.count is 0");
    save_part("x.gguf", 0, 65535, 1);
    refuse_path("x.gguf", "must be named NAME-00001-of-65535.gguf");
    unlink(path_of("x.gguf"));
    save_part("x-00001-of-65535.gguf", 0, 65535, 1);
    refuse_path("x-00001-of-65535.gguf", "part 2 of 65535");
    unlink(path_of("x-00001-of-65535.gguf"));
}

static void what_is_no_file_is_refused(void **state)
{
    (void)state;
    refuse_path("absent.gguf", "absent.gguf: cannot open");
    FILE *f = fopen(path_of("empty.gguf"), "wb");
    fclose(f);
    refuse_path("empty.gguf",
                "empty.gguf: the magic needs 4 bytes at offset 0, but the file ends after 0 more");
    unlink(path_of("empty.gguf"));
}

// Whichever allocation fails: an error, no leak (the sanitizer counts), no crash.
static void no_memory_is_an_error(void **state)
{
    (void)state;
    struct gguf_builder g = good(3);
    gguf_image(&g);
    bool opened = false;
    for (uint64_t n = 1; !opened; n++) {
        struct model_file *file;
        struct err err = { 0 };
        mem_fail_at(n, 0);
        opened = model_file_open_memory(&file, g.image, g.n, "x", &err);
        mem_fail_at(0, 0);
        assert_true(opened || err.code == ERR_MEMORY || err.code == ERR_LIMIT);
        assert_true(n < 100);
        model_file_close(file);
    }
    gguf_builder_free(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_value_types_are_read),
        cmocka_unit_test(tensors_lie_where_the_file_says),
        cmocka_unit_test(typed_reading_names_what_was_found),
        cmocka_unit_test(a_number_that_is_nan_is_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(bad_keys_are_refused),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(rows_with_heads_are_counted_with_them),
        cmocka_unit_test(bad_types_are_refused),
        cmocka_unit_test(bad_names_and_places_are_refused),
        cmocka_unit_test(bad_alignments_are_refused),
        cmocka_unit_test(an_alignment_counts_wherever_it_stands),
        cmocka_unit_test(layout_keys_of_any_type_do_no_harm),
        cmocka_unit_test(many_tensors_are_found_quickly),
        cmocka_unit_test(split_models_are_opened_by_their_first_part),
        cmocka_unit_test(split_counts_that_lie_are_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
