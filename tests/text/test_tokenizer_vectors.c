// test_tokenizer_vectors.c - ids and texts against what the Rust tokenizers made of the same strings, for
// every kind.
#include "text/vector_files.h"

static const char *const KINDS[] = { "gpt-2",  "smollm",    "llama-bpe", "qwen2",        "qwen35",
                                     "tekken", "gpt-4o",    "glm4",      "deepseek-llm", "deepseek-v3",
                                     "llama2", "mistral",   "gemma",     "unknown",      "deepseek-coder",
                                     "t5",     "unigram",   "charsmap",  "pieces",       "whitespace",
                                     "bert",   "bert-cased" };

static void print_ids(const char *what, size_t i, struct str text, const struct token_ids *ids)
{
    print_message("%s: text %zu '%.*s':", what, i, STR_ARG(text));
    for (size_t j = 0; j < ids->n; j++)
        print_message(" %u", ids->ids[j]);
    print_message("\n");
}

// Where we differ on purpose: the reference reads a typed "<0x41>" as the byte token where the model is
// unigram (see unigram.c), and its charsmap takes a letter with two marks as one, and drops the second mark
// (see charsmap.c).
static bool skipped(const json_t *kind, struct str text)
{
    struct str name = str_from(json_string_value(json_object_get(kind, "name")));
    return (str_is(name, "unigram") && str_find(text, STR("<0x41>")) != SIZE_MAX) ||
           (str_is(name, "charsmap") && str_find(text, STR("e\xcc\x81\xcc\x81")) != SIZE_MAX);
}

static size_t count_differences(const struct tokenizer *t, const json_t *kind, const json_t *texts)
{
    struct token_ids ids = { 0 };
    struct err err = { 0 };
    size_t n_different = 0;

    for (size_t i = 0; i < json_array_size(texts); i++) {
        struct tokenize_flags flags = { .parse_special = true, .add_special = i % 2 };
        uint32_t hash = 2166136261u;
        if (skipped(kind, vector_text(texts, i)))
            continue;
        ids.n = 0;
        assert_ok(tokenizer_encode(t, vector_text(texts, i), flags, &ids, &err), &err);
        for (size_t j = 0; j < ids.n; j++)
            hash = vector_hash(hash, ids.ids[j]);
        if (hash != vector_expected(kind, "hashes", i) && ++n_different <= 5)
            print_ids(json_string_value(json_object_get(kind, "name")), i, vector_text(texts, i), &ids);
    }
    token_ids_free(&ids);
    return n_different;
}

static void ids_are_those_of_the_reference(void **state)
{
    (void)state;
    json_t *texts = vector_file("texts");
    struct err err = { 0 };
    size_t n_different = 0;

    assert_true(json_array_size(texts) > 1500);
    for (size_t k = 0; k < sizeof KINDS / sizeof KINDS[0]; k++) {
        char name[64];
        struct tokenizer *t;
        snprintf(name, sizeof name, "kind_%s", KINDS[k]);
        json_t *kind = vector_file(name);
        char *json = vector_tokenizer_json(kind);
        assert_ok(tokenizer_load_json(&t, str_from(json), &err), &err);
        size_t n = count_differences(t, kind, texts);
        if (n)
            print_message("%s: %zu of %zu texts differ\n", KINDS[k], n, json_array_size(texts));
        n_different += n;
        tokenizer_free(t);
        free(json);
        json_decref(kind);
    }
    json_decref(texts);
    assert_int_equal(n_different, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(ids_are_those_of_the_reference) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
