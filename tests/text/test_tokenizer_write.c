// test_tokenizer_write.c - a tokenizer.json written as GGUF keys gives the same ids when it is read back.
#include "text/vector_files.h"
#include <unistd.h>
#include "format/gguf_write.h"
#include "text/tokenizer/tokenizer_write.h"

static char path[64];

static int name_file(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/ingot-tokenizer-XXXXXX");
    close(mkstemp(path));
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    return unlink(path);
}

// Loads the kind's tokenizer.json, writes it, loads that.
static void there_and_back(const char *name, struct tokenizer **from, struct tokenizer **back,
                           struct model_file **file)
{
    char vectors[64];
    struct err err = { 0 };
    struct gguf_writer w;
    snprintf(vectors, sizeof vectors, "kind_%s", name);
    json_t *kind = vector_file(vectors);
    char *json = vector_tokenizer_json(kind);
    assert_ok(tokenizer_load_json(from, str_from(json), &err), &err);
    assert_ok(gguf_write_create(&w, path, &err), &err);
    gguf_write_str(&w, "general.architecture", STR("llama"));
    if (!tokenizer_write(*from, tokenizer_n_tokens(*from) + 5, &w, &err))
        fail_msg("%s: %s", name, err.message);
    gguf_write_begin(&w);
    assert_ok(gguf_write_commit(&w, &err), &err);
    assert_ok(model_file_open(file, path, &err), &err);
    assert_ok(tokenizer_load(back, *file, &err), &err);
    free(json);
    json_decref(kind);
}

static void compare(const char *name, const char *pre)
{
    struct tokenizer *a, *b;
    struct model_file *file;
    struct err err = { 0 };
    struct token_ids x = { 0 }, y = { 0 };
    struct str written = STR("");
    json_t *texts = vector_file("texts");

    there_and_back(name, &a, &b, &file);
    assert_ok(model_file_string(file, "tokenizer.ggml.pre", &written, &err), &err);
    if (!str_is(written, pre))
        fail_msg("%s was written as '%.*s', expected '%s'", name, STR_ARG(written), pre);
    assert_int_equal(tokenizer_n_tokens(b), tokenizer_n_tokens(a) + 5);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        struct tokenize_flags flags = { .add_special = i % 2, .parse_special = i % 3 };
        x.n = y.n = 0;
        assert_ok(tokenizer_encode(a, vector_text(texts, i), flags, &x, &err), &err);
        assert_ok(tokenizer_encode(b, vector_text(texts, i), flags, &y, &err), &err);
        if (x.n != y.n || (x.n && memcmp(x.ids, y.ids, x.n * sizeof *x.ids) != 0))
            fail_msg("%s: text %zu '%.*s': %zu ids, expected %zu", name, i, STR_ARG(vector_text(texts, i)),
                     y.n, x.n);
    }
    token_ids_free(&x);
    token_ids_free(&y);
    json_decref(texts);
    tokenizer_free(a);
    tokenizer_free(b);
    model_file_close(file);
}

static void byte_level_vocabularies_come_back(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        { "gpt-2", "gpt-2" },
        { "smollm", "smollm" },
        { "llama-bpe", "llama-bpe" },
        { "qwen2", "qwen2" },
        { "qwen35", "qwen35" },
        { "tekken", "tekken" },
        { "gpt-4o", "gpt-4o" },
        { "glm4", "smaug-bpe" },
        { "deepseek-llm", "deepseek-llm" },
        { "deepseek-coder", "deepseek-coder" },
        { "deepseek-v3", "deepseek-v3" },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        compare(pairs[i][0], pairs[i][1]);
}

static void sentencepiece_vocabularies_come_back(void **state)
{
    (void)state;
    compare("llama2", "");
}

static void what_gguf_cannot_say_is_refused(void **state)
{
    (void)state;
    static const char *const pairs[][2] = { { "unigram", "SentencePiece BPE" }, { "whitespace", "" } };
    for (size_t i = 0; i < 2; i++) {
        char vectors[64];
        struct tokenizer *t;
        struct gguf_writer w;
        struct err err = { 0 };
        snprintf(vectors, sizeof vectors, "kind_%s", pairs[i][0]);
        json_t *kind = vector_file(vectors);
        char *json = vector_tokenizer_json(kind);
        assert_ok(tokenizer_load_json(&t, str_from(json), &err), &err);
        assert_ok(gguf_write_create(&w, path, &err), &err);
        assert_fails(tokenizer_write(t, tokenizer_n_tokens(t), &w, &err), &err, pairs[i][1]);
        assert_fails(tokenizer_write(t, 3, &w, &err), &err, "");
        gguf_write_abort(&w);
        tokenizer_free(t);
        free(json);
        json_decref(kind);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_vocabularies_come_back),
        cmocka_unit_test(sentencepiece_vocabularies_come_back),
        cmocka_unit_test(what_gguf_cannot_say_is_refused),
    };
    return cmocka_run_group_tests(tests, name_file, remove_file);
}
