// test_tokenizer_gguf.c - the same vocabularies out of GGUF metadata give the same ids as out of
// tokenizer.json; what is wrong in the metadata is named.
#include "text/vector_files.h"
#include "gguf_builder.h"
#include "format/model_file.h"

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

struct twin {
    struct gguf_builder g;
    const char **tokens, **merges;
    int32_t *types;
    float *scores;
    uint32_t n_tokens, n_merges;
    struct model_file *file;
};

static void twin_tokens(struct twin *twin, const json_t *root)
{
    const json_t *vocab = json_object_get(json_object_get(root, "model"), "vocab"),
                 *added = json_object_get(root, "added_tokens");
    size_t n_max = json_object_size(vocab) + json_array_size(vocab) + json_array_size(added), i;
    const char *text;
    json_t *value;

    twin->tokens = calloc(n_max, sizeof *twin->tokens);
    twin->types = calloc(n_max, sizeof *twin->types);
    twin->scores = calloc(n_max, sizeof *twin->scores);
    json_object_foreach((json_t *)vocab, text, value) twin->tokens[json_integer_value(value)] = text;
    json_array_foreach(vocab, i, value)
    {
        twin->tokens[i] = json_string_value(json_array_get(value, 0));
        twin->scores[i] = (float)json_number_value(json_array_get(value, 1));
    }
    twin->n_tokens = (uint32_t)(json_object_size(vocab) + json_array_size(vocab));
    for (i = 0; i < twin->n_tokens; i++)
        twin->types[i] =
            strlen(twin->tokens[i]) == 6 && strncmp(twin->tokens[i], "<0x", 3) == 0 ? BYTE : NORMAL;
    json_array_foreach(added, i, value)
    {
        uint32_t id = (uint32_t)json_integer_value(json_object_get(value, "id"));
        bool special = json_is_true(json_object_get(value, "special"));
        twin->tokens[id] = json_string_value(json_object_get(value, "content"));
        twin->types[id] = strcmp(twin->tokens[id], "<unk>") == 0 ? UNKNOWN : special ? CONTROL : USER_DEFINED;
        twin->n_tokens = id >= twin->n_tokens ? id + 1 : twin->n_tokens;
    }
}

static void twin_merges(struct twin *twin, const json_t *root)
{
    const json_t *merges = json_object_get(json_object_get(root, "model"), "merges");
    size_t i;
    json_t *value;
    twin->n_merges = (uint32_t)json_array_size(merges);
    twin->merges = calloc(twin->n_merges + 1, sizeof *twin->merges);
    json_array_foreach(merges, i, value) twin->merges[i] = json_string_value(value);
}

static void twin_open(struct twin *twin)
{
    struct err err = { 0 };
    gguf_meta_str(&twin->g, "general.architecture", "llama");
    gguf_meta_strs(&twin->g, "tokenizer.ggml.tokens", twin->n_tokens, twin->tokens);
    gguf_meta_array(&twin->g, "tokenizer.ggml.token_type", 5, twin->n_tokens, twin->types,
                    twin->n_tokens * 4);
    gguf_image(&twin->g);
    assert_ok(model_file_open_memory(&twin->file, twin->g.image, twin->g.n, "twin", &err), &err);
}

static void twin_free(struct twin *twin)
{
    model_file_close(twin->file);
    gguf_builder_free(&twin->g);
    free(twin->tokens);
    free(twin->merges);
    free(twin->types);
    free(twin->scores);
}

static json_t *load_root(const json_t *kind)
{
    char *text = vector_tokenizer_json(kind);
    json_t *root = json_loads(text, JSON_ALLOW_NUL, NULL);
    free(text);
    return root;
}

// Every text with the twin and with the tokenizer.json.
static void compare(const char *name, const struct tokenizer *twin, const json_t *kind)
{
    char *json = vector_tokenizer_json(kind);
    json_t *texts = vector_file("texts");
    struct token_ids a = { 0 }, b = { 0 };
    struct tokenizer *t;
    struct err err = { 0 };

    assert_ok(tokenizer_load_json(&t, str_from(json), &err), &err);
    for (size_t i = 0; i < json_array_size(texts); i++) {
        struct tokenize_flags flags = { .add_special = i % 2, .parse_special = i % 3 };
        a.n = b.n = 0;
        assert_ok(tokenizer_encode(t, vector_text(texts, i), flags, &a, &err), &err);
        assert_ok(tokenizer_encode(twin, vector_text(texts, i), flags, &b, &err), &err);
        if (a.n != b.n || (a.n && memcmp(a.ids, b.ids, a.n * sizeof *a.ids) != 0))
            fail_msg("%s: text %zu '%.*s': %zu ids, expected %zu", name, i, STR_ARG(vector_text(texts, i)),
                     b.n, a.n);
    }
    token_ids_free(&a);
    token_ids_free(&b);
    tokenizer_free(t);
    json_decref(texts);
    free(json);
}

static void byte_level_twins_agree(void **state)
{
    (void)state;
    static const char *const NAMES[] = { "gpt-2",        "smollm",         "llama-bpe",  "qwen2",
                                         "qwen35",       "tekken",         "gpt-4o",     "glm4",
                                         "deepseek-llm", "deepseek-coder", "deepseek-v3" };
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        char file[64];
        struct twin twin = { 0 };
        struct tokenizer *t;
        struct err err = { 0 };
        snprintf(file, sizeof file, "kind_%s", NAMES[i]);
        json_t *kind = vector_file(file), *root = load_root(kind);
        twin_tokens(&twin, root);
        twin_merges(&twin, root);
        gguf_meta_str(&twin.g, "tokenizer.ggml.model", "gpt2");
        gguf_meta_str(&twin.g, "tokenizer.ggml.pre", NAMES[i]);
        gguf_meta_strs(&twin.g, "tokenizer.ggml.merges", twin.n_merges, twin.merges);
        gguf_meta_bool(&twin.g, "tokenizer.ggml.add_bos_token", strcmp(NAMES[i], "llama-bpe") == 0);
        gguf_meta_u32(&twin.g, "tokenizer.ggml.bos_token_id", twin.n_tokens - 5);
        twin_open(&twin);
        assert_ok(tokenizer_load(&t, twin.file, &err), &err);
        compare(NAMES[i], t, kind);
        tokenizer_free(t);
        twin_free(&twin);
        json_decref(root);
        json_decref(kind);
    }
}

// SentencePiece BPE by scores against the same pieces with a list of merges.
static void sentencepiece_twins_agree(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct twin twin = { 0 };
        struct tokenizer *t;
        struct err err = { 0 };
        json_t *kind = vector_file(i ? "kind_gemma" : "kind_llama2"), *root = load_root(kind);
        twin_tokens(&twin, root);
        for (uint32_t id = 0; id < twin.n_tokens; id++)
            twin.scores[id] = id < 259 ? 0 : -(float)(id - 259);
        gguf_meta_str(&twin.g, "tokenizer.ggml.model", "llama");
        gguf_meta_array(&twin.g, "tokenizer.ggml.scores", 6, twin.n_tokens, twin.scores, twin.n_tokens * 4);
        if (i) {
            gguf_meta_bool(&twin.g, "tokenizer.ggml.add_space_prefix", false);
            gguf_meta_bool(&twin.g, "tokenizer.ggml.add_bos_token", false);
        }
        twin_open(&twin);
        assert_ok(tokenizer_load(&t, twin.file, &err), &err);
        assert_int_equal(tokenizer_bos(t), 1);
        assert_int_equal(tokenizer_eos(t), 2);
        assert_true(tokenizer_is_end(t, 2) && !tokenizer_is_end(t, 1));
        compare(i ? "gemma" : "llama2", t, kind);
        tokenizer_free(t);
        twin_free(&twin);
        json_decref(root);
        json_decref(kind);
    }
}

// WordPiece as GGUF files spell it: a mark before tokens that begin a word, none before those that go on.
static void wordpiece_twins_agree(void **state)
{
    struct twin twin = { 0 };
    struct tokenizer *t;
    struct err err = { 0 };
    json_t *kind = vector_file("kind_bert"), *root = load_root(kind);
    char(*texts)[64];

    (void)state;
    twin_tokens(&twin, root);
    texts = calloc(twin.n_tokens, sizeof *texts);
    for (uint32_t id = 5; id < twin.n_tokens; id++) {
        bool inner = strncmp(twin.tokens[id], "##", 2) == 0 && twin.tokens[id][2];
        snprintf(texts[id], sizeof texts[id], "%s%s", inner ? "" : "\xe2\x96\x81",
                 twin.tokens[id] + (inner ? 2 : 0));
        twin.tokens[id] = texts[id];
    }
    gguf_meta_str(&twin.g, "tokenizer.ggml.model", "bert");
    gguf_meta_u32(&twin.g, "tokenizer.ggml.unknown_token_id", 1);
    gguf_meta_u32(&twin.g, "tokenizer.ggml.cls_token_id", 2);
    gguf_meta_u32(&twin.g, "tokenizer.ggml.seperator_token_id", 3);
    twin_open(&twin);
    assert_ok(tokenizer_load(&t, twin.file, &err), &err);
    compare("bert", t, kind);
    struct token_ids ids = { 0 };
    struct buf text = { 0 };
    assert_ok(tokenizer_encode(t, STR("The water found"), (struct tokenize_flags){ .add_special = true },
                               &ids, &err),
              &err);
    assert_true(ids.n > 4 && ids.ids[0] == 2 && ids.ids[ids.n - 1] == 3);
    assert_true(tokenizer_decode(t, &ids, false, &text));
    assert_true(str_is(buf_as_str(&text), "the water found"));
    buf_free(&text);
    token_ids_free(&ids);
    tokenizer_free(t);
    twin_free(&twin);
    free(texts);
    json_decref(root);
    json_decref(kind);
}

// Merges that are pairs become lines, as GGUF files have them.
static void join_merges(json_t *root)
{
    json_t *merges = json_object_get(json_object_get(root, "model"), "merges"), *pair;
    size_t i;

    json_array_foreach(merges, i, pair)
        json_array_set_new(merges, i,
                           json_sprintf("%s %s", json_string_value(json_array_get(pair, 0)),
                                        json_string_value(json_array_get(pair, 1))));
}

// BPE over characters by merges, whatever the scores say.
static void gemma_4_twins_agree(void **state)
{
    struct twin twin = { 0 };
    struct tokenizer *t;
    struct err err = { 0 };
    json_t *kind = vector_file("kind_gemma"), *root = load_root(kind);

    (void)state;
    twin_tokens(&twin, root);
    join_merges(root);
    twin_merges(&twin, root);
    gguf_meta_str(&twin.g, "tokenizer.ggml.model", "gemma4");
    gguf_meta_array(&twin.g, "tokenizer.ggml.scores", 6, twin.n_tokens, twin.scores, twin.n_tokens * 4);
    gguf_meta_strs(&twin.g, "tokenizer.ggml.merges", twin.n_merges, twin.merges);
    gguf_meta_u32(&twin.g, "tokenizer.ggml.unknown_token_id", 0);
    gguf_meta_u32(&twin.g, "tokenizer.ggml.eos_token_id", 2);
    gguf_meta_bool(&twin.g, "tokenizer.ggml.add_bos_token", false);
    twin_open(&twin);
    assert_ok(tokenizer_load(&t, twin.file, &err), &err);
    compare("gemma4", t, kind);
    tokenizer_free(t);
    twin_free(&twin);
    json_decref(root);
    json_decref(kind);
}

static const char *const SMALL[] = { "<unk>", "<s>", "</s>",           "\xe2\x96\x81", "a",
                                     "b",     "ab",  "\xe2\x96\201ab", "<think>" };
static const int32_t SMALL_TYPES[] = { UNKNOWN, CONTROL, CONTROL, NORMAL,      NORMAL,
                                       NORMAL,  NORMAL,  NORMAL,  USER_DEFINED };
static const float SMALL_SCORES[] = { 0, 0, 0, -3, -3, -3, -2, -1, 0 };
enum { N_SMALL = 9 };

// A file with the small vocabulary; a test changes what it wants. Keys named in `without` are left out.
static struct gguf_builder small_file(const char *model, const char *without)
{
    struct gguf_builder g = { 0 };
    gguf_meta_str(&g, "general.architecture", "llama");
    gguf_meta_str(&g, "tokenizer.ggml.model", model);
    if (!strstr(without, "tokens"))
        gguf_meta_strs(&g, "tokenizer.ggml.tokens", N_SMALL, SMALL);
    if (!strstr(without, "types"))
        gguf_meta_array(&g, "tokenizer.ggml.token_type", 5, N_SMALL, SMALL_TYPES, sizeof SMALL_TYPES);
    if (!strstr(without, "scores"))
        gguf_meta_array(&g, "tokenizer.ggml.scores", 6, N_SMALL, SMALL_SCORES, sizeof SMALL_SCORES);
    return g;
}

static void expect_error(struct gguf_builder g, const char *part)
{
    struct model_file *file;
    struct tokenizer *t;
    struct err err = { 0 };
    gguf_image(&g);
    assert_ok(model_file_open_memory(&file, g.image, g.n, "small.gguf", &err), &err);
    assert_fails(tokenizer_load(&t, file, &err), &err, part);
    assert_null(t);
    model_file_close(file);
    gguf_builder_free(&g);
}

static struct tokenizer *expect_loads(struct gguf_builder g)
{
    struct model_file *file;
    struct tokenizer *t;
    struct err err = { 0 };
    gguf_image(&g);
    assert_ok(model_file_open_memory(&file, g.image, g.n, "small.gguf", &err), &err);
    assert_ok(tokenizer_load(&t, file, &err), &err);
    model_file_close(file);
    gguf_builder_free(&g);
    return t;
}

static void the_tokenizer_outlives_its_file(void **state)
{
    (void)state;
    struct gguf_builder g = small_file("llama", "");
    gguf_meta_str(&g, "tokenizer.chat_template", "{{ messages }}");
    gguf_meta_u32(&g, "tokenizer.ggml.eot_token_id", 8);
    struct tokenizer *t = expect_loads(g);
    struct token_ids ids = { 0 };
    struct err err = { 0 };
    assert_ok(tokenizer_encode(t, STR("ab<think>ab</s>"),
                               (struct tokenize_flags){ .add_special = true, .parse_special = true }, &ids,
                               &err),
              &err);
    const uint32_t expected[] = { 1, 7, 8, 7, 2 };
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    assert_true(str_is(tokenizer_chat_template(t), "{{ messages }}"));
    assert_true(tokenizer_is_end(t, 8) && tokenizer_is_end(t, 2) && !tokenizer_is_end(t, 7));
    token_ids_free(&ids);
    tokenizer_free(t);
}

// <|end|> ends an answer, but not where <|return|> does, whatever the file says of it.
static void messages_end_within_an_answer(void **state)
{
    static const char *const tokens[] = { "<|end|>", "<|return|>", "<|call|>", "a" };
    static const int32_t kinds[] = { 3, 3, 3, 1 };
    static const float scores[] = { 0, 0, 0, 0 };

    (void)state;
    for (uint32_t n = 1; n <= 4; n += 3) {
        struct gguf_builder g = { 0 };
        gguf_meta_str(&g, "general.architecture", "llama");
        gguf_meta_str(&g, "tokenizer.ggml.model", "llama");
        gguf_meta_strs(&g, "tokenizer.ggml.tokens", n, tokens);
        gguf_meta_array(&g, "tokenizer.ggml.token_type", 5, n, kinds, n * sizeof *kinds);
        gguf_meta_array(&g, "tokenizer.ggml.scores", 6, n, scores, n * sizeof *scores);
        gguf_meta_u32(&g, "tokenizer.ggml.eos_token_id", n == 1 ? 0 : 1);
        gguf_meta_u32(&g, "tokenizer.ggml.eot_token_id", 0);
        struct tokenizer *t = expect_loads(g);
        assert_int_equal(tokenizer_is_end(t, 0), n == 1);
        assert_int_equal(tokenizer_is_end(t, 1), n == 4);
        assert_int_equal(tokenizer_is_end(t, 2), n == 4);
        tokenizer_free(t);
    }
}

static void tokens_around_a_gap_are_named_by_keys(void **state)
{
    (void)state;
    struct gguf_builder g = small_file("llama", "");
    gguf_meta_u32(&g, "tokenizer.ggml.prefix_token_id", 3); // the older name
    gguf_meta_u32(&g, "tokenizer.ggml.fim_suf_token_id", 4);
    gguf_meta_u32(&g, "tokenizer.ggml.fim_sep_token_id", 5);
    struct tokenizer *t = expect_loads(g);
    assert_int_equal(tokenizer_fim(t, FIM_PREFIX), 3);
    assert_int_equal(tokenizer_fim(t, FIM_SUFFIX), 4);
    assert_int_equal(tokenizer_fim(t, FIM_MIDDLE), -1);
    assert_int_equal(tokenizer_fim(t, FIM_FILE), 5);
    assert_true(tokenizer_is_end(t, 5) && !tokenizer_is_end(t, 3)); // another file begins
    tokenizer_free(t);
    g = small_file("llama", "");
    gguf_meta_u32(&g, "tokenizer.ggml.fim_mid_token_id", N_SMALL);
    expect_error(g, "fim_mid_token_id");
}

static void a_unigram_vocabulary_loads(void **state)
{
    (void)state;
    struct gguf_builder g = small_file("t5", "");
    gguf_meta_bool(&g, "tokenizer.ggml.remove_extra_whitespaces", true);
    gguf_meta_u32(&g, "tokenizer.ggml.unknown_token_id", 0);
    gguf_meta_u32(&g, "tokenizer.ggml.eos_token_id", 2);
    struct tokenizer *t = expect_loads(g);
    struct token_ids ids = { 0 };
    struct err err = { 0 };
    assert_ok(
        tokenizer_encode(t, STR("  ab   xyb "), (struct tokenize_flags){ .add_special = true }, &ids, &err),
        &err);
    const uint32_t expected[] = { 7, 3, 0, 5, 2 }; // one unknown for x and y, </s> behind
    assert_int_equal(ids.n, 5);
    assert_memory_equal(ids.ids, expected, sizeof expected);
    token_ids_free(&ids);
    tokenizer_free(t);
}

// Files call them user-defined; in what a user writes they are text all the same.
static void marks_of_gemma_4_are_control_tokens(void **state)
{
    static const char *const names[N_SMALL] = { "<unk>", "<s>", "</s>", "<|tool_call>", "a",
                                                "b",     "ab",  "<",    "<b>" };
    static const char *const merges[] = { "a b" };
    static const int32_t kinds[N_SMALL] = { UNKNOWN, CONTROL, CONTROL, USER_DEFINED, NORMAL,
                                            NORMAL,  NORMAL,  NORMAL,  USER_DEFINED };
    struct gguf_builder g = small_file("gemma4", "tokens types");
    struct token_ids ids = { 0 };
    struct err err = { 0 };

    (void)state;
    gguf_meta_strs(&g, "tokenizer.ggml.tokens", N_SMALL, names);
    gguf_meta_array(&g, "tokenizer.ggml.token_type", 5, N_SMALL, kinds, sizeof kinds);
    gguf_meta_strs(&g, "tokenizer.ggml.merges", 1, merges);
    gguf_meta_u32(&g, "tokenizer.ggml.unknown_token_id", 0);
    struct tokenizer *t = expect_loads(g);
    assert_ok(tokenizer_encode(t, STR("a<|tool_call>b<b>"), (struct tokenize_flags){ 0 }, &ids, &err), &err);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(ids.ids[i], 3);
    assert_int_equal(ids.ids[ids.n - 1], 8); // any other user-defined token is found in text
    ids.n = 0;
    assert_ok(tokenizer_encode(t, STR("a<|tool_call>b"), (struct tokenize_flags){ .parse_special = true },
                               &ids, &err),
              &err);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.ids[1], 3);
    token_ids_free(&ids);
    tokenizer_free(t);
}

// Digits go by threes, whatever merges there are. No vectors of a published tokenizer: see docs/models.md.
static void falcon_splits_digits_by_threes(void **state)
{
    static const char *const names[] = { "1", "2", "3", "4", "12", "123", "1234", "</s>" };
    static const char *const merges[] = { "1 2", "12 3", "123 4" };
    static const int32_t kinds[] = { NORMAL, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL, CONTROL };
    static const char *const pres[] = { "falcon", "modern-bert" }; // the second splits as gpt-2 does

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        struct gguf_builder g = small_file("gpt2", "tokens types scores");
        struct token_ids ids = { 0 };
        struct err err = { 0 };
        gguf_meta_strs(&g, "tokenizer.ggml.tokens", 8, names);
        gguf_meta_array(&g, "tokenizer.ggml.token_type", 5, 8, kinds, sizeof kinds);
        gguf_meta_strs(&g, "tokenizer.ggml.merges", 3, merges);
        gguf_meta_str(&g, "tokenizer.ggml.pre", pres[i]);
        gguf_meta_u32(&g, "tokenizer.ggml.eos_token_id", 7);
        struct tokenizer *t = expect_loads(g);
        assert_ok(tokenizer_encode(t, STR("1234"), (struct tokenize_flags){ 0 }, &ids, &err), &err);
        assert_int_equal(ids.n, i == 0 ? 2 : 1);
        assert_int_equal(ids.ids[0], i == 0 ? 5 : 6);
        token_ids_free(&ids);
        tokenizer_free(t);
    }
}

static void wrong_metadata_is_named(void **state)
{
    (void)state;
    struct gguf_builder g = { 0 };
    gguf_meta_str(&g, "general.architecture", "llama");
    expect_error(g, "has no tokenizer");
    expect_error(small_file("none", ""), "has no tokenizer");
    expect_error(small_file("rwkv", ""), "expected gpt2, llama, t5, bert or gemma4");
    expect_error(small_file("llama", "tokens"), "tokenizer.ggml.tokens");
    expect_error(small_file("llama", "scores"), "tokenizer.ggml.scores");
    expect_error(small_file("gpt2", ""), "tokenizer.ggml.merges");

    g = small_file("llama", "scores");
    gguf_meta_array(&g, "tokenizer.ggml.scores", 6, 3, SMALL_SCORES, 12);
    expect_error(g, "has 3 elements: expected 9");
    g = small_file("llama", "types");
    gguf_meta_array(&g, "tokenizer.ggml.token_type", 5, 4, SMALL_TYPES, 16);
    expect_error(g, "has 4 elements: expected 9");
    g = small_file("llama", "types");
    const int32_t kinds[N_SMALL] = { 1, 1, 1, 1, 1, 1, 1, 1, 77 };
    gguf_meta_array(&g, "tokenizer.ggml.token_type", 5, N_SMALL, kinds, sizeof kinds);
    expect_error(g, "token_type[8] is 77");
    g = small_file("llama", "types");
    gguf_meta_array(&g, "tokenizer.ggml.token_type", 6, N_SMALL, SMALL_SCORES, sizeof SMALL_SCORES);
    expect_error(g, "whole numbers");
    g = small_file("llama", "scores");
    float bad[N_SMALL] = { 0, 0, 0, -3, -3, -3, -3, 0.0f / 0.0f, 0 };
    gguf_meta_array(&g, "tokenizer.ggml.scores", 6, N_SMALL, bad, sizeof bad);
    expect_error(g, "not a finite number");
    g = small_file("llama", "");
    gguf_meta_u32(&g, "tokenizer.ggml.eos_token_id", 9);
    expect_error(g, "tokenizer.ggml.eos_token_id");
    g = small_file("llama", "");
    gguf_meta_u32(&g, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    expect_error(g, "tokenizer.ggml.bos_token_id");
    g = small_file("gpt2", "");
    gguf_meta_str(&g, "tokenizer.ggml.pre", "llama-7");
    expect_error(g, "llama-7");
}

static void wrong_merges_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *merge, *part;
    } CASES[] = { { "ab", "with a space between" }, { "", "with a space between" },
                  { "a c", "the second is not" },   { "c a", "the first is not" },
                  { "b a", "the result is not" },   { "a ", "expected two tokens" } };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct gguf_builder g = small_file("gpt2", "");
        gguf_meta_str(&g, "tokenizer.ggml.pre", "gpt-2");
        gguf_meta_strs(&g, "tokenizer.ggml.merges", 1, &CASES[i].merge);
        expect_error(g, CASES[i].part);
    }
}

static void a_broken_charsmap_is_refused(void **state)
{
    (void)state;
    static const unsigned char SHORT[] = { 1, 2, 3 }, LONG_TREE[] = { 255, 0, 0, 0, 0, 0, 0, 0, 0, 0 },
                               NO_NUL[] = { 4, 0, 0, 0, 0, 0, 0, 0, 'x', 'y' };
    struct gguf_builder g = small_file("t5", "");
    gguf_meta_array(&g, "tokenizer.ggml.precompiled_charsmap", 0, sizeof SHORT, SHORT, sizeof SHORT);
    expect_error(g, "expected at least 8");
    g = small_file("t5", "");
    gguf_meta_array(&g, "tokenizer.ggml.precompiled_charsmap", 0, sizeof LONG_TREE, LONG_TREE,
                    sizeof LONG_TREE);
    expect_error(g, "its tree has 255");
    g = small_file("t5", "");
    gguf_meta_array(&g, "tokenizer.ggml.precompiled_charsmap", 0, sizeof NO_NUL, NO_NUL, sizeof NO_NUL);
    expect_error(g, "does not end in NUL");
}

static void strange_tokens_do_no_harm(void **state)
{
    (void)state;
    static const char *const TOKENS[] = { "<0x-1>", "<0xZZ>", "<0x",    "<0x100>", "",
                                          "",       "<0x41>", "<0x41>", "a" };
    static const int32_t TYPES[] = { BYTE, BYTE, BYTE, BYTE, BYTE, USER_DEFINED, BYTE, BYTE, CONTROL };
    struct gguf_builder g = { 0 };
    gguf_meta_str(&g, "general.architecture", "llama");
    gguf_meta_str(&g, "tokenizer.ggml.model", "llama");
    gguf_meta_strs(&g, "tokenizer.ggml.tokens", N_SMALL, TOKENS);
    gguf_meta_array(&g, "tokenizer.ggml.token_type", 5, N_SMALL, TYPES, sizeof TYPES);
    gguf_meta_array(&g, "tokenizer.ggml.scores", 6, N_SMALL, SMALL_SCORES, sizeof SMALL_SCORES);
    struct tokenizer *t = expect_loads(g);
    struct token_ids ids = { 0 };
    struct err err = { 0 };
    assert_ok(tokenizer_encode(t, STR("aAb<0x41>"), (struct tokenize_flags){ 0 }, &ids, &err), &err);
    for (size_t i = 0; i < ids.n; i++)
        assert_int_not_equal(ids.ids[i], 8); // "a" is a control token here
    for (uint32_t id = 0; id < 12; id++)
        tokenizer_token_bytes(t, id, true);
    assert_true(str_is(tokenizer_token_bytes(t, 6, false), "A"));
    token_ids_free(&ids);
    tokenizer_free(t);
}

static void long_tokens_are_refused_where_they_are_matched(void **state)
{
    (void)state;
    char *big = calloc(1, 1000001);
    memset(big, 'a', 1000000);
    const char *tokens[N_SMALL];
    memcpy(tokens, SMALL, sizeof tokens);
    tokens[6] = big;
    for (int i = 0; i < 2; i++) {
        struct gguf_builder g = small_file(i ? "t5" : "llama", "tokens");
        gguf_meta_strs(&g, "tokenizer.ggml.tokens", N_SMALL, tokens);
        expect_error(g, "token 6 has 1000000 bytes: at most 512");
    }
    free(big);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_twins_agree),
        cmocka_unit_test(sentencepiece_twins_agree),
        cmocka_unit_test(gemma_4_twins_agree),
        cmocka_unit_test(wordpiece_twins_agree),
        cmocka_unit_test(the_tokenizer_outlives_its_file),
        cmocka_unit_test(messages_end_within_an_answer),
        cmocka_unit_test(tokens_around_a_gap_are_named_by_keys),
        cmocka_unit_test(a_unigram_vocabulary_loads),
        cmocka_unit_test(marks_of_gemma_4_are_control_tokens),
        cmocka_unit_test(falcon_splits_digits_by_threes),
        cmocka_unit_test(wrong_metadata_is_named),
        cmocka_unit_test(wrong_merges_are_named),
        cmocka_unit_test(a_broken_charsmap_is_refused),
        cmocka_unit_test(strange_tokens_do_no_harm),
        cmocka_unit_test(long_tokens_are_refused_where_they_are_matched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
