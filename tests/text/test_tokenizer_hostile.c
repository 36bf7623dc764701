// test_tokenizer_hostile.c - files and texts made to crash, hang or exhaust: each ends in an error that names
// the place, or in ids after linear work.
#include "text/vector_files.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "text/tokenizer/pattern.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(INGOT_VALGRIND)
enum { SANITIZED = 1, PROCESSOR_SECONDS = 300 };
#else
enum { SANITIZED = 0, PROCESSOR_SECONDS = 60 };
#endif

static void expect_error(const char *json, const char *part)
{
    struct tokenizer *t;
    struct err err = { 0 };
    assert_fails(tokenizer_load_json(&t, str_from(json), &err), &err, part);
    assert_null(t);
}

#define VOCAB  "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define BEFORE "{\"pre_tokenizer\":"
#define SPLIT(regex)                                             \
    BEFORE "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" regex \
           "\"},\"behavior\":\"Isolated\",\"invert\":false}," VOCAB "}"

static void broken_files_are_refused(void **state)
{
    (void)state;
    expect_error("", "tokenizer.json line 1");
    expect_error("{", "tokenizer.json line 1");
    expect_error("[]", "model");
    expect_error("{}", "model");
    expect_error("{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}}", "expected BPE, Unigram or WordPiece");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":[],\"merges\":[]}}", "expected an object");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]}}", "a vocabulary of 0 tokens");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0}}}", "model.merges");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"a\":1},\"merges\":[]}}", "duplicate");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "same id");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4000000000},\"merges\":[]}}", "4000000000");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "id -1");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1.5},\"merges\":[]}}", "whole number");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}",
                 "with a space between");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[7]}}", "with a space between");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}",
                 "not in the vocabulary");
    expect_error("{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\",\"\"]]}}",
                 "expected two tokens");
    expect_error(
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],\"end_of_word_suffix\":\"</w>\"}}",
        "end_of_word_suffix");
    expect_error("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",NaN]]}}", "NaN");
    expect_error("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",1e999]]}}",
                 "real number overflow");
    expect_error("{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\",\"1\"]]}}",
                 "a text and a score");
    expect_error("{\"model\":{\"type\":\"Unigram\",\"unk_id\":7,\"vocab\":[[\"a\",0]]}}", "has id 7");
    expect_error(
        "{\"added_tokens\":[{\"id\":1,\"content\":\"b\"}],\"model\":{\"vocab\":{\"a\":1},\"merges\":[]}}",
        "of 'a'");
    expect_error("{\"added_tokens\":[{\"content\":\"b\"}],\"model\":{\"vocab\":{\"a\":1},\"merges\":[]}}",
                 "'b' has the id -1");
}

static void unknown_parts_are_refused(void **state)
{
    (void)state;
    expect_error(BEFORE "{\"type\":\"UnicodeScripts\"}," VOCAB "}", "pre_tokenizer of type 'UnicodeScripts'");
    expect_error(BEFORE "7," VOCAB "}", "pre_tokenizer of type ''");
    expect_error("{\"normalizer\":{\"type\":\"Nmt\"}," VOCAB "}", "normalizer of type 'Nmt'");
    expect_error("{\"decoder\":{\"type\":\"CTC\"}," VOCAB "}", "decoder of type 'CTC'");
    expect_error("{\"post_processor\":{\"type\":\"Other\"}," VOCAB "}", "post_processor of type 'Other'");
    expect_error("{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
                 "\"x\"}}]}," VOCAB "}",
                 "no ids");
    expect_error(
        "{\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"a\",0],\"sep\":[\"x\",99]}," VOCAB
        "}",
        "not in the vocabulary");
    expect_error("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}," VOCAB "}",
                 "charsmap");
    expect_error("{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA!\"}," VOCAB "}",
                 "is not base64");
    expect_error(
        BEFORE
        "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},{\"type\":\"Digits\"}]}," VOCAB
        "}",
        "after ByteLevel");
}

static void wrong_patterns_are_refused(void **state)
{
    (void)state;
    expect_error(SPLIT("("), "missing closing parenthesis");
    expect_error(SPLIT("*a"), "pattern '*a'");
    expect_error(SPLIT("[[a]b]"), "a class inside a class");
    expect_error(SPLIT("[a&&b]"), "an intersection");
    expect_error(SPLIT("a{2}+"), "a repeated repeat");
    expect_error(SPLIT("(*ACCEPT)"), "a verb");
    expect_error(SPLIT("\\\\h"), "this escape");
    expect_error(SPLIT("\\\\p{Nonsense}"), "unknown property");
    expect_error(SPLIT(""), "not empty");
}

static void deep_nesting_is_refused(void **state)
{
    (void)state;
    struct buf json = { 0 };
    for (int depth = 100; depth <= 100000; depth *= 1000) {
        json.n = 0;
        buf_text(&json, "{\"normalizer\":");
        for (int i = 0; i < depth; i++)
            buf_text(&json, "{\"type\":\"Sequence\",\"normalizers\":[");
        for (int i = 0; i < depth; i++)
            buf_text(&json, "]}");
        buf_text(&json, "," VOCAB "}");
        expect_error(json.at, depth == 100 ? "levels of Sequence" : "depth");
    }
    buf_free(&json);
}

static struct tokenizer *load(const char *json)
{
    struct tokenizer *t;
    struct err err = { 0 };
    assert_ok(tokenizer_load_json(&t, str_from(json), &err), &err);
    return t;
}

static struct tokenizer *load_kind(const char *file)
{
    json_t *kind = vector_file(file);
    char *json = vector_tokenizer_json(kind);
    struct tokenizer *t = load(json);
    free(json);
    json_decref(kind);
    return t;
}

static void a_pattern_without_end_gives_up(void **state)
{
    (void)state;
    struct tokenizer *t = load(SPLIT("(a+)+$"));
    char text[4097];
    struct token_ids ids = { 0 };
    struct err err = { 0 };
    memset(text, 'a', 4095);
    memcpy(text + 4095, "b", 2);
    assert_fails(tokenizer_encode(t, str_from(text), (struct tokenize_flags){ 0 }, &ids, &err), &err,
                 "gave up");
    assert_int_equal(ids.n, 0);
    token_ids_free(&ids);
    tokenizer_free(t);
}

static void empty_and_huge_tokens_do_no_harm(void **state)
{
    (void)state;
    struct tokenizer *t = load("{\"added_tokens\":[{\"id\":3,\"content\":\"\",\"special\":true}]," VOCAB "}");
    struct token_ids ids = { 0 };
    struct err err = { 0 };
    assert_ok(tokenizer_encode(t, STR("abab"), (struct tokenize_flags){ .parse_special = true }, &ids, &err),
              &err);
    assert_int_equal(ids.n, 2);
    tokenizer_free(t);

    struct buf json = { 0 };
    char *big = calloc(1, 1000001);
    memset(big, 'a', 1000000);
    buf_printf(&json, "{\"model\":{\"vocab\":{\"a\":0,\"%s\":1},\"merges\":[]}}", big);
    t = load(json.at);
    assert_int_equal(tokenizer_token_bytes(t, 1, false).n, 1000000);
    tokenizer_free(t);
    json.n = 0;
    buf_printf(&json, "{\"added_tokens\":[{\"id\":3,\"content\":\"%s\"}]," VOCAB "}", big);
    expect_error(json.at, "added token 3 has 1000000 bytes: at most 512");
    free(big);
    buf_free(&json);
    token_ids_free(&ids);
}

static const char *const CLASSES[] = { "A",
                                       "z",
                                       "Z",
                                       "7",
                                       ".",
                                       " ",
                                       "\n",
                                       "\xe4\xb8\x96",
                                       "\xcc\x81",
                                       "\xcc\x81\xcc\x96",
                                       "\t ",
                                       "\xf0\x9f\x91\xa9\xe2\x80\x8d",
                                       "\xff",
                                       "\xf0\x9f",
                                       "\xed\xa0\x80",
                                       "aB",
                                       "'s",
                                       "<|im_start|>",
                                       "<",
                                       "          x",
                                       "\xcd\x84" };
static const char *const KINDS[] = { "kind_gpt-2", "kind_tekken", "kind_deepseek-llm", "kind_deepseek-v3",
                                     "kind_qwen2", "kind_llama2", "kind_t5",           "kind_pieces" };
enum { N_CLASSES = sizeof CLASSES / sizeof CLASSES[0], N_KINDS = sizeof KINDS / sizeof KINDS[0] };

static char *repeat(const char *unit, size_t bytes)
{
    size_t n = strlen(unit);
    char *text = malloc(bytes + n + 1);
    for (size_t i = 0; i < bytes; i += n)
        memcpy(text + i, unit, n + 1);
    return text;
}

static const struct tokenize_flags EVERYTHING = { .parse_special = true };

static void every_kind_takes_every_class(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_KINDS; k++) {
        struct tokenizer *t = load_kind(KINDS[k]);
        for (size_t c = 0; c < N_CLASSES; c++)
            for (size_t bytes = 10000; bytes <= 200000; bytes = bytes * 4 + 3) {
                struct token_ids ids = { 0 };
                struct err err = { 0 };
                char *text = repeat(CLASSES[c], bytes);
                assert_ok(tokenizer_encode(t, (struct str){ text, bytes }, EVERYTHING, &ids, &err), &err);
                token_ids_free(&ids);
                free(text);
            }
        tokenizer_free(t);
    }
}

// A child encodes. A limit of its processor time ends work that does not grow with the text alone.
static long child_peak_kib(const struct tokenizer *t, const char *unit, size_t bytes)
{
    int status = 0;
    struct rusage usage;
    pid_t child = fork();
    if (child == 0) {
        char *text = repeat(unit, bytes);
        struct token_ids ids = { 0 };
        struct rlimit limit;
        bool ok = getrlimit(RLIMIT_CPU, &limit) == 0;
        limit.rlim_cur = PROCESSOR_SECONDS;
        ok = ok && setrlimit(RLIMIT_CPU, &limit) == 0 &&
             tokenizer_encode(t, (struct str){ text, bytes }, EVERYTHING, &ids, NULL);
        _exit(ok ? 0 : 1);
    }
    assert_true(child > 0 && wait4(child, &status, 0, &usage) == child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
        fail_msg("%zu bytes of '%s': no end after %d s", bytes, unit, PROCESSOR_SECONDS);
    assert_int_equal(status, 0);
#if defined(__APPLE__)
    return usage.ru_maxrss / 1024;
#else
    return usage.ru_maxrss;
#endif
}

// Linear work on 4 MiB takes some tenths of a second. Quadratic work, 16e12 steps, takes hours; a copy of the
// rest at each step a quarter of an hour.
static void work_and_memory_grow_with_the_text_alone(void **state)
{
    enum { BYTES = SANITIZED ? 1 << 19 : 4 << 20 };
    (void)state;
    for (size_t k = 0; k < N_KINDS; k++) {
        struct tokenizer *t = load_kind(KINDS[k]);
        long idle = child_peak_kib(t, "z", 1);
        for (size_t c = 0; c < N_CLASSES; c++) {
            long peak = child_peak_kib(t, CLASSES[c], BYTES);
            if (!SANITIZED && (peak - idle) / (BYTES / 1024) > 64)
                fail_msg("%s: '%s': %ld bytes per byte", KINDS[k], CLASSES[c],
                         (peak - idle) / (BYTES / 1024));
        }
        tokenizer_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_and_memory_grow_with_the_text_alone),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(unknown_parts_are_refused),
        cmocka_unit_test(wrong_patterns_are_refused),
        cmocka_unit_test(deep_nesting_is_refused),
        cmocka_unit_test(a_pattern_without_end_gives_up),
        cmocka_unit_test(empty_and_huge_tokens_do_no_harm),
        cmocka_unit_test(every_kind_takes_every_class),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
