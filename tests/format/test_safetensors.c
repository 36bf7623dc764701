// test_safetensors.c - the safetensors reader, the JSON values beside it, and every promise of the format
// broken in turn.
//
// A model is a folder in /tmp that each test fills and empties.
#include "testing.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/mem.h"
#include "base/str.h"
#include "format/model_file.h"

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ingot-st-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int empty_folder(void **state)
{
    (void)state;
    static const char *const names[] = { "model.safetensors",
                                         "a.safetensors",
                                         "b.safetensors",
                                         "config.json",
                                         "generation_config.json",
                                         "tokenizer_config.json",
                                         "preprocessor_config.json",
                                         "processor_config.json",
                                         "tokenizer.json",
                                         "chat_template.jinja",
                                         "model.safetensors.index.json",
                                         "m-00001-of-00002.safetensors",
                                         "m-00002-of-00002.safetensors" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i]));
    return rmdir(folder);
}

static void save(const char *name, const void *bytes, size_t n)
{
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void save_text(const char *name, const char *text)
{
    save(name, text, strlen(text));
}

// header_n: the declared length; SIZE_MAX: the right one.
static void save_tensors(const char *name, uint64_t header_n, const char *header, size_t data_bytes)
{
    struct buf b = { 0 };
    uint64_t n = header_n == UINT64_MAX - 1 ? strlen(header) : header_n;
    buf_append(&b, &n, 8);
    buf_text(&b, header);
    for (size_t i = 0; i < data_bytes; i++)
        buf_append(&b, &(unsigned char){ (unsigned char)i }, 1);
    save(name, b.at, b.n);
    buf_free(&b);
}

enum { RIGHT = -2 };

static void refuse(const char *part)
{
    struct err err = { 0 };
    struct model_file *file;
    assert_fails(model_file_open(&file, folder, &err), &err, part);
    assert_null(file);
}

static void refuse_header(const char *header, size_t data_bytes, const char *part)
{
    save_text("config.json", "{}");
    save_tensors("model.safetensors", (uint64_t)RIGHT, header, data_bytes);
    refuse(part);
}

static struct model_file *open_folder(void)
{
    struct err err = { 0 };
    struct model_file *file;
    assert_ok(model_file_open(&file, folder, &err), &err);
    return file;
}

#define ENTRY(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"

static void a_folder_is_read(void **state)
{
    (void)state;
    save_text("config.json", "{\"num_hidden_layers\": 2, \"rope_scaling\": {\"factor\": 8.5, \"rope_type\": "
                             "\"llama3\"}, \"tie\": true,"
                             "\"none\": null, \"eos_token_id\": [1, 2], \"eps\": 1e-05, \"negative\": -3}");
    save_text("generation_config.json", "{\"temperature\": 0.5}");
    save_text("tokenizer_config.json",
              "{\"chat_template\": \"old\", \"bos_token\": {\"content\": \"\\u003cs>\\n\"}}");
    save_text("preprocessor_config.json", "{\"size\": {\"longest_edge\": 2048}}");
    save_text("processor_config.json", "{\"image_seq_len\": 64}");
    save_text("chat_template.jinja", "new");
    save_text("tokenizer.json", "{\"model\": 1}");
    save_tensors(
        "model.safetensors", (uint64_t)RIGHT,
        "{\"__metadata__\":{\"format\":\"pt\"},\"w\":" ENTRY("BF16", "[3,4]", 0, 24) ",\"b\":" ENTRY(
            "F32", "[2]", 24, 32) ",\"h\":" ENTRY("F16", "[]", 32,
                                                  34) ",\"ids\":" ENTRY("I64", "[1]", 34,
                                                                        42) ",\"no\":" ENTRY("F32", "[0]", 42,
                                                                                             42) "}      ",
        42);
    struct model_file *f = open_folder();
    uint64_t u = 0;
    double d = 0;
    struct str s = { 0 };
    struct err err = { 0 };
    assert_true(model_file_format(f) == MODEL_SAFETENSORS && model_file_n_tensors(f) == 3);
    const struct file_tensor *w = model_file_tensor(f, "w"), *b = model_file_tensor(f, "b"),
                             *h = model_file_tensor(f, "h");
    assert_true(w->format == QUANT_BF16 && w->n_dims == 2 && w->dims[0] == 3 && w->dims[1] == 4 &&
                w->bytes == 24 && w->data[1] == 1);
    assert_true(b->format == QUANT_F32 && b->n_dims == 1 && b->dims[0] == 2 && b->data[0] == 24);
    assert_true(h->format == QUANT_F16 && h->n_dims == 1 && h->dims[0] == 1 && h->data[0] == 32);
    assert_true(model_file_u64(f, "num_hidden_layers", 1, 10, &u, &err) && u == 2);
    assert_true(model_file_f64(f, "rope_scaling.factor", 1, 10, &d, &err) && d == 8.5);
    assert_true(model_file_f64(f, "eps", 0, 1, &d, &err) && d == 1e-5);
    assert_true(model_file_meta(f, "negative")->i == -3 && model_file_meta(f, "tie")->b &&
                !model_file_meta(f, "none"));
    const struct meta *eos = model_file_meta(f, "eos_token_id");
    assert_true(eos->type == META_ARRAY && eos->n == 2 && eos->element == META_UINT &&
                meta_at(eos, 1).u == 2);
    assert_true(model_file_f64(f, "generation_config.temperature", 0, 2, &d, &err) && d == 0.5);
    assert_true(model_file_string(f, "tokenizer_config.chat_template", &s, &err) && str_is(s, "new"));
    assert_true(model_file_string(f, "tokenizer_config.bos_token.content", &s, &err) && str_is(s, "<s>\n"));
    assert_true(model_file_u64(f, "preprocessor_config.size.longest_edge", 1, 4096, &u, &err) && u == 2048);
    assert_true(model_file_u64(f, "processor_config.image_seq_len", 1, 4096, &u, &err) && u == 64);
    assert_true(str_is(model_file_tokenizer_json(f), "{\"model\": 1}"));
    model_file_close(f);
}

// The header's length is not a multiple of four: a reader that trusted it would read floats at odd addresses.
static void unaligned_tensors_are_copied(void **state)
{
    (void)state;
    save_text("config.json", "{}");
    save_tensors("model.safetensors", (uint64_t)RIGHT, "{\"w\":" ENTRY("F32", "[2]", 0, 8) "}", 8);
    struct model_file *f = open_folder();
    const struct file_tensor *w = model_file_tensor(f, "w");
    assert_int_equal((uintptr_t)w->data % 4, 0);
    assert_memory_equal(w->data, "\0\1\2\3\4\5\6\7", 8);
    model_file_close(f);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    static const char header[] =
        "{\"w\":" ENTRY("BF16", "[3,4]", 0, 24) ",\"b\":" ENTRY("F32", "[2]", 24, 32) "}";
    struct buf b = { 0 };
    uint64_t n = strlen(header);
    static const char zeros[32];
    save_text("config.json", "{}");
    buf_append(&b, &n, 8);
    buf_text(&b, header);
    buf_append(&b, zeros, 32);
    for (size_t cut = 0; cut < b.n; cut++) {
        save("model.safetensors", b.at, cut);
        refuse("model.safetensors: ");
    }
    buf_free(&b);
}

static void bad_lengths_are_refused(void **state)
{
    (void)state;
    static const uint64_t lengths[] = { 0, 1, 3, 100000001, INT64_MAX, UINT64_MAX };
    save_text("config.json", "{}");
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        save_tensors("model.safetensors", lengths[i], "{}", 0);
        refuse("the header is declared to have");
    }
    refuse_header("[]", 0, "begins with byte 5b; expected '{'");
    refuse_header(" {}", 0, "begins with byte 20");
    save_tensors("model.safetensors", 5, "{}", 3);
    refuse("header is not valid at byte 10: text after the end");
}

static void broken_json_is_refused(void **state)
{
    (void)state;
    static const char *const headers[] = {
        "{",
        "{]",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":}",
        "{\"a\":1}",
        "{,}",
        "{\"a\":{},}",
        "{\"a\":{}}",
        "{\"a\":{\"dtype\":\"F32\"}}",
        "{\"a\":{\"dtype\":1}}",
        "{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}",
        "{\"a\":{\"shape\":1}}",
        "{\"a\":{\"shape\":[-1]}}",
        "{\"a\":{\"shape\":[1.5]}}",
        "{\"a\":{\"shape\":[1,]}}",
        "{\"a\":{\"shape\":[[1]]}}",
        "{\"a\":{\"shape\":[18446744073709551616]}}",
        "{\"a\":{\"shape\":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}}",
        "{\"a\":{\"data_offsets\":[0]}}",
        "{\"a\":{\"data_offsets\":[0,1,2]}}",
        "{\"a\":{\"extra\":1}}",
        "{\"__metadata__\":1}",
        "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":{},\"__metadata__\":{}}",
        "{}x",
        "{\"\":{}}",
        "{\"a\\u0000\":{}}",
        "{\"a\\x\":{}}",
        "{\"\\ud800\":{}}",
        "{\"\\u12\":{}}",
        "{\"a\nb\":{}}",
        "{\"\xff\":{}}",
        "{'a':1}",
        "{a:1}",
        "{\"a\":tru}",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":1e}",
        "{\"a\":-}",
        "{\"a\":\"\\",
    };
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        refuse_header(headers[i], 0, "model.safetensors: ");
}

static void broken_promises_are_refused(void **state)
{
    (void)state;
    refuse_header("{\"a\":" ENTRY("F32", "[1]", 0, 4) ",\"a\":" ENTRY("F32", "[1]", 4, 8) "}", 8,
                  "tensor 'a' is there twice");
    refuse_header("{\"a\":" ENTRY("F32", "[1]", 0, 4) ",\"\\u0061\":" ENTRY("F32", "[1]", 4, 8) "}", 8,
                  "tensor 'a' is there twice");
    refuse_header("{\"a\":" ENTRY("F32", "[2]", 0, 8) ",\"b\":" ENTRY("F32", "[1]", 4, 8) "}", 8, "overlap");
    refuse_header("{\"a\":" ENTRY("F32", "[1]", 0, 4) ",\"b\":" ENTRY("F32", "[1]", 8, 12) "}", 12,
                  "begins at data byte 8; expected 4");
    refuse_header("{\"a\":" ENTRY("F32", "[1]", 4, 8) "}", 8, "expected 0");
    refuse_header("{\"a\":" ENTRY("F32", "[1]", 0, 4) "}", 5,
                  "the tensors end at data byte 4, but the file has 5");
    refuse_header("{}", 1, "the tensors end at data byte 0");
    refuse_header("{\"a\":" ENTRY("F32", "[1]", 4, 0) "}", 4, "lies at data bytes 4 to 0");
    refuse_header("{\"a\":" ENTRY("F32", "[2]", 0, 8) "}", 4, "lies at data bytes 0 to 8; the file has 4");
    refuse_header("{\"a\":" ENTRY("F32", "[2]", 0, 4) "}", 4, "its shape and dtype F32 make 64 bits");
    refuse_header("{\"a\":" ENTRY("F32", "[4294967296,4294967296]", 0, 4) "}", 4, "more than 2^64 bits");
    refuse_header("{\"a\":" ENTRY("F32", "[0,18446744073709551615,2]", 0, 4) "}", 4, "make 0 bits");
    refuse_header("{\"a\":" ENTRY("F4", "[3]", 0, 2) "}", 2, "make 12 bits");
    refuse_header("{\"a\":" ENTRY("F4", "[4]", 0, 2) "}", 2, "tensor 'a' has dtype F4, which is not read");
    refuse_header("{\"a\":" ENTRY("F8_E4M3", "[4]", 0, 4) "}", 4, "dtype F8_E4M3");
    refuse_header("{\"a\":" ENTRY("Q17", "[4]", 0, 4) "}", 4, "'a' has dtype 'Q17', which is unknown");
}

static void many_tensors_over_the_same_bytes_are_refused(void **state)
{
    (void)state;
    struct buf b = { 0 };
    buf_text(&b, "{");
    for (int i = 0; i < 100000; i++)
        buf_printf(&b, "%s\"t%d\":" ENTRY("F32", "[4]", 0, 16), i ? "," : "", i);
    buf_text(&b, "}");
    refuse_header(b.at, 16, "overlap");
    buf_free(&b);
}

static void nesting_ends_in_an_error(void **state)
{
    (void)state;
    struct buf b = { 0 };
    buf_text(&b, "{\"a\":");
    for (int i = 0; i < 100000; i++)
        buf_text(&b, "[");
    save_text("config.json", b.at);
    save_tensors("model.safetensors", (uint64_t)RIGHT, "{}", 0);
    refuse("nested deeper than 64");
    refuse_header(b.at, 0, "expected an object for each tensor");
    buf_free(&b);
}

static void bad_config_is_refused(void **state)
{
    (void)state;
    save_tensors("model.safetensors", (uint64_t)RIGHT, "{}", 0);
    refuse("no config.json in this folder");
    save_text("adapter_config.json", "{}");
    refuse("this is an adapter; give it with adapters");
    unlink(path_of("adapter_config.json"));
    static const struct {
        const char *text, *part;
    } cases[] = {
        { "", "config.json: not valid JSON at byte 0" },
        { "[]", "expected an object" },
        { "{\"a\":1,\"a\":2}", "key 'a' is there twice" },
        { "{\"a.b\":1,\"a\":{\"b\":2}}", "key 'a.b' is there twice" },
        { "{\"a\":1e999}", "out of range" },
        { "{\"a\":[1,2,1e999]}", "out of range" },
        { "{\"a\\u0001\":1}", "control byte in a key" },
        { "{\"a\":1} x", "text after the end" },
        { "{\"a\":\"\\ud800\"}", "bad escape" },
        { "{\"a\":[1,}", "closing bracket" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        save_text("config.json", cases[i].text);
        refuse(cases[i].part);
    }
    struct buf b = { 0 };
    buf_text(&b, "{\"");
    for (int i = 0; i < 300; i++)
        buf_text(&b, "k");
    buf_text(&b, "\":1}");
    save_text("config.json", b.at);
    refuse("a key longer than 200 bytes");
    b.n = 0;
    buf_text(&b, "{\"n\":");
    for (int i = 0; i < 1000000; i++)
        buf_text(&b, "1");
    buf_text(&b, "}");
    save_text("config.json", b.at);
    refuse("out of range");
    buf_free(&b);
}

static void arrays_of_a_config_keep_their_kind(void **state)
{
    (void)state;
    save_tensors("model.safetensors", (uint64_t)RIGHT, "{}", 0);
    save_text(
        "config.json",
        "{\"mixed\": [1, -2, 3], \"real\": [1, 2.5, -3, Infinity], \"text\": [\"a\\tb\", \"\", \"c\"], "
        "\"empty\": [],"
        "\"flags\": [true, false], \"list\": [{\"x\": 1}, {\"x\": 2}], \"unlike\": [\"a\", 1, null, [5, 6]],"
        "\"large\": [18446744073709551615, -1], \"pair\": \"\\ud83d\\ude00\"}");
    struct model_file *f = open_folder();
    const struct meta *m = model_file_meta(f, "mixed");
    assert_true(m->element == META_INT && meta_at(m, 1).i == -2 && meta_at(m, 2).i == 3);
    m = model_file_meta(f, "real");
    assert_true(m->element == META_FLOAT && m->n == 4 && meta_at(m, 0).f == 1 && meta_at(m, 1).f == 2.5 &&
                meta_at(m, 2).f == -3);
    assert_true(isinf(meta_at(m, 3).f));
    m = model_file_meta(f, "text");
    assert_true(m->element == META_STRING && str_is(meta_at(m, 2).s, "c") &&
                str_is(meta_at(m, 0).s, "a\tb") && meta_at(m, 1).s.n == 0);
    assert_int_equal(model_file_meta(f, "empty")->n, 0);
    m = model_file_meta(f, "flags");
    assert_true(m->element == META_BOOL && meta_at(m, 0).b && !meta_at(m, 1).b);
    m = model_file_meta(f, "large");
    assert_true(m->element == META_FLOAT && meta_at(m, 0).f == 18446744073709551616.0 &&
                meta_at(m, 1).f == -1);
    assert_true(model_file_meta(f, "list.0.x")->u == 1 && model_file_meta(f, "list.1.x")->u == 2 &&
                !model_file_meta(f, "list"));
    assert_true(str_is(model_file_meta(f, "unlike.0")->s, "a") && model_file_meta(f, "unlike.1")->u == 1);
    assert_true(!model_file_meta(f, "unlike.2") && model_file_meta(f, "unlike.3")->n == 2);
    assert_true(str_is(model_file_meta(f, "pair")->s, "\xf0\x9f\x98\x80"));
    model_file_close(f);
}

#define SHARD1 "m-00001-of-00002.safetensors"
#define SHARD2 "m-00002-of-00002.safetensors"

static void save_shards(void)
{
    save_text("config.json", "{}");
    save_tensors(SHARD1, (uint64_t)RIGHT,
                 "{\"a\":" ENTRY("F32", "[1]", 0, 4) ",\"b\":" ENTRY("F32", "[1]", 4, 8) "}", 8);
    save_tensors(SHARD2, (uint64_t)RIGHT, "{\"c\":" ENTRY("F32", "[1]", 0, 4) "}", 4);
}

static void shards_are_read_by_their_index(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct model_file *f;
    save_shards();
    save_text("model.safetensors.index.json",
              "{\"metadata\":{\"total_size\":12},\"weight_map\":{\"c\":\"" SHARD2 "\",\"a\":\"" SHARD1
              "\",\"b\":\"" SHARD1 "\"}}");
    f = open_folder();
    assert_true(model_file_n_tensors(f) == 3 && model_file_tensor(f, "c") && model_file_tensor(f, "b"));
    model_file_close(f);
    assert_ok(model_file_open(&f, path_of(SHARD2), &err), &err); // one shard stands for its folder
    assert_int_equal(model_file_n_tensors(f), 3);
    model_file_close(f);
}

static void an_index_that_lies_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *part;
    } cases[] = {
        { "{}", "weight_map is missing or empty" },
        { "{\"weight_map\":{}}", "weight_map is missing or empty" },
        { "{\"weight_map\":[]}", "weight_map must be an object" },
        { "{\"weight_map\":{\"a\":1}}", "a shard must be a string" },
        { "{\"weight_map\":{\"a\":\"../../x.safetensors\"}}",
          "a shard must be a file NAME.safetensors in the same folder" },
        { "{\"weight_map\":{\"a\":\"/etc/x.safetensors\"}}", "a shard must be a file" },
        { "{\"weight_map\":{\"a\":\"..\\\\x.safetensors\"}}", "a shard must be a file" },
        { "{\"weight_map\":{\"a\":\".x.safetensors\"}}", "a shard must be a file" },
        { "{\"weight_map\":{\"a\":\"config.json\"}}", "a shard must be a file" },
        { "{\"weight_map\":{\"a\":\"absent.safetensors\"}}", "absent.safetensors: cannot open" },
        { "{\"weight_map\":{\"a\":\"" SHARD1 "\",\"a\":\"" SHARD2 "\"}}", "tensor 'a' is there twice" },
        { "{\"weight_map\":{\"a\":\"" SHARD1 "\"}}", "tensor 'b' is not in model.safetensors.index.json" },
        { "{\"weight_map\":{\"a\":\"" SHARD1 "\",\"b\":\"" SHARD2 "\"}}", "tensor 'b' belongs into " SHARD2 },
        { "{\"weight_map\":{\"a\":\"" SHARD1 "\",\"b\":\"" SHARD1 "\",\"c\":\"" SHARD1 "\"}}",
          "tensor 'c' is not in " SHARD1 },
        { "{\"weight_map\":{\"a\":\"" SHARD1 "\"}", "model.safetensors.index.json: not valid at byte" },
    };
    save_shards();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        save_text("model.safetensors.index.json", cases[i].text);
        refuse(cases[i].part);
    }
}

static void a_folder_without_a_choice_is_refused(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct model_file *f;
    save_text("config.json", "{}");
    refuse("no .safetensors file in this folder");
    save_tensors("a.safetensors", (uint64_t)RIGHT, "{\"a\":" ENTRY("F32", "[1]", 0, 4) "}", 4);
    f = open_folder();
    model_file_close(f);
    save_tensors("b.safetensors", (uint64_t)RIGHT, "{\"b\":" ENTRY("F32", "[1]", 0, 4) "}", 4);
    refuse("2 .safetensors files and no model.safetensors.index.json");
    assert_ok(model_file_open(&f, path_of("b.safetensors"), &err), &err);
    assert_true(model_file_tensor(f, "b") && !model_file_tensor(f, "a"));
    model_file_close(f);
    assert_fails(model_file_open(&f, path_of("c.safetensors"), &err), &err, "c.safetensors: cannot open");
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    save_shards();
    save_text("config.json", "{\"a\": [\"x\", \"y\"], \"b\": \"\\n\", \"c\": 1}");
    save_text("model.safetensors.index.json",
              "{\"weight_map\":{\"c\":\"" SHARD2 "\",\"a\":\"" SHARD1 "\",\"b\":\"" SHARD1 "\"}}");
    bool opened = false;
    for (uint64_t n = 1; !opened; n++) {
        struct model_file *f;
        struct err err = { 0 };
        mem_fail_at(n, 0);
        opened = model_file_open(&f, folder, &err);
        mem_fail_at(0, 0);
        assert_true(opened || err.code != ERR_NONE);
        assert_true(n < 200);
        model_file_close(f);
    }
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, empty_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_folder_is_read),
        IN_FOLDER(unaligned_tensors_are_copied),
        IN_FOLDER(every_truncation_is_refused),
        IN_FOLDER(bad_lengths_are_refused),
        IN_FOLDER(broken_json_is_refused),
        IN_FOLDER(broken_promises_are_refused),
        IN_FOLDER(many_tensors_over_the_same_bytes_are_refused),
        IN_FOLDER(nesting_ends_in_an_error),
        IN_FOLDER(bad_config_is_refused),
        IN_FOLDER(arrays_of_a_config_keep_their_kind),
        IN_FOLDER(shards_are_read_by_their_index),
        IN_FOLDER(an_index_that_lies_is_refused),
        IN_FOLDER(a_folder_without_a_choice_is_refused),
        IN_FOLDER(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
