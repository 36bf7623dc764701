// test_tokenizer.c - trust, added tokens, decoding, streams, Unicode: what the vectors cannot show.
#include "text/vector_files.h"
#include "base/mem.h"
#include "text/utf8_stream.h"
#include "text/unicode.h"
#include "text/utf8.h"

static struct tokenizer *load_kind(const char *file)
{
    struct tokenizer *t;
    struct err err = { 0 };
    json_t *kind = vector_file(file);
    char *json = vector_tokenizer_json(kind);
    assert_ok(tokenizer_load_json(&t, str_from(json), &err), &err);
    free(json);
    json_decref(kind);
    return t;
}

static struct token_ids encode(const struct tokenizer *t, struct str text, bool parse_special)
{
    struct token_ids ids = { 0 };
    struct err err = { 0 };
    assert_ok(
        tokenizer_encode(t, text, (struct tokenize_flags){ .parse_special = parse_special }, &ids, &err),
        &err);
    return ids;
}

static bool has(struct token_ids ids, int64_t id)
{
    for (size_t i = 0; i < ids.n; i++)
        if (ids.ids[i] == id)
            return true;
    return false;
}

static void typed_control_tokens_stay_text(void **state)
{
    (void)state;
    static const char *const FILES[] = { "kind_gpt-2", "kind_qwen2", "kind_llama2", "kind_t5",
                                         "kind_unigram" };
    for (size_t f = 0; f < sizeof FILES / sizeof FILES[0]; f++) {
        struct tokenizer *t = load_kind(FILES[f]);
        for (uint32_t id = 0; id < tokenizer_n_tokens(t); id++) {
            if (tokenizer_kind(t, id) != TOKEN_CONTROL)
                continue;
            struct token_ids typed = encode(t, tokenizer_raw(t, id), false),
                             trusted = encode(t, tokenizer_raw(t, id), true);
            assert_false(has(typed, id) && tokenizer_find(t, STR("<unk>")) != id);
            assert_true(trusted.n == 1 && trusted.ids[0] == id);
            token_ids_free(&typed);
            token_ids_free(&trusted);
        }
        tokenizer_free(t);
    }
}

static void a_control_token_needs_every_byte_trusted(void **state)
{
    (void)state;
    struct tokenizer *t = load_kind("kind_qwen2");
    int64_t end = tokenizer_find(t, STR("<|im_end|>"));
    struct str text = STR("a<|im_end|>b");
    struct token_ids ids = { 0 };
    struct err err = { 0 };

    for (size_t from = 0; from <= text.n; from++) {
        for (size_t to = from; to <= text.n; to++) { // [from, to) is what a user typed
            const struct text_span spans[] = { { str_from_to(text, 0, from), true },
                                               { str_from_to(text, from, to), false },
                                               { str_from_to(text, to, text.n), true } };
            ids.n = 0;
            assert_ok(tokenizer_encode_spans(t, spans, 3, (struct tokenize_flags){ 0 }, &ids, &err), &err);
            bool touched = from < to && from < 11 && to > 1;
            assert_int_equal(has(ids, end), !touched);
        }
    }
    token_ids_free(&ids);
    tokenizer_free(t);
}

static void merging_goes_across_span_borders(void **state)
{
    (void)state;
    struct tokenizer *t = load_kind("kind_gpt-2");
    struct str text = STR("The answer is 1234 because they're here.\n\n  <think>x</think>");
    struct token_ids whole = encode(t, text, false), parts = { 0 };
    struct err err = { 0 };

    assert_true(has(whole, tokenizer_find(t, STR("<think>"))));
    for (size_t cut = 0; cut <= text.n; cut++) {
        const struct text_span spans[] = { { str_from_to(text, 0, cut), cut % 2 },
                                           { str_from_to(text, cut, text.n), !(cut % 2) } };
        parts.n = 0;
        assert_ok(tokenizer_encode_spans(t, spans, 2, (struct tokenize_flags){ 0 }, &parts, &err), &err);
        assert_int_equal(parts.n, whole.n);
        assert_memory_equal(parts.ids, whole.ids, whole.n * sizeof *whole.ids);
    }
    token_ids_free(&whole);
    token_ids_free(&parts);
    tokenizer_free(t);
}

static void texts_come_back(void **state)
{
    (void)state;
    static const char *const FILES[] = { "kind_gpt-2", "kind_llama2", "kind_mistral", "kind_gemma",
                                         "kind_t5" };
    json_t *texts = vector_file("texts");
    for (size_t f = 0; f < sizeof FILES / sizeof FILES[0]; f++) {
        struct tokenizer *t = load_kind(FILES[f]);
        json_t *kind = vector_file(FILES[f]);
        size_t n_different = 0;
        for (size_t i = 0; i < json_array_size(texts); i++) {
            struct token_ids ids = encode(t, vector_text(texts, i), true);
            struct buf out = { 0 };
            uint32_t hash = 2166136261u;
            assert_true(tokenizer_decode(t, &ids, false, &out));
            for (size_t j = 0; j < out.n; j++)
                hash = vector_hash(hash, (unsigned char)out.at[j]);
            n_different += hash != vector_expected(kind, "decoded", i);
            if (hash != vector_expected(kind, "decoded", i) && n_different < 4)
                print_message("%s: text %zu '%.*s' is decoded as '%.*s'\n", FILES[f], i,
                              STR_ARG(vector_text(texts, i)), STR_ARG(buf_as_str(&out)));
            token_ids_free(&ids);
            buf_free(&out);
        }
        assert_int_equal(n_different, 0);
        json_decref(kind);
        tokenizer_free(t);
    }
    json_decref(texts);
}

// Token by token through a stream gives the text of the whole, and never a U+FFFD that is not in it.
static void streams_give_whole_characters(void **state)
{
    (void)state;
    struct tokenizer *t = load_kind("kind_gpt-2");
    struct str text = STR(
        "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7 \xe4\xb8\x96\xe7\x95\x8c \xd0\xaf \xf0\x90\x90\x80!");
    struct token_ids ids = encode(t, text, false);
    struct utf8_stream stream = { 0 };
    struct buf out = { 0 };

    assert_true(ids.n > 8);
    for (size_t i = 0; i < ids.n; i++) {
        assert_true(utf8_stream_push(&stream, tokenizer_token_bytes(t, ids.ids[i], false), &out));
        assert_true(utf8_is_valid(buf_as_str(&out)));
        assert_true(str_starts(text, buf_as_str(&out)));
    }
    assert_true(utf8_stream_finish(&stream, &out));
    assert_true(str_eq(buf_as_str(&out), text));
    buf_free(&out);
    token_ids_free(&ids);
    tokenizer_free(t);
}

// Any bytes in any portions give what the whole gives at once.
static void streams_agree_with_the_whole(void **state)
{
    (void)state;
    static const char BYTES[] = "a\xf0\x9f\x98\x80\xf0\x9f\xf0\x9f\x98\xed\xa0\x80\xc3\xc3\xa9\xe2\x82\xff"
                                "\x80\xf4\x90\x80\x80z\xe4\xb8";
    struct str all = { BYTES, sizeof BYTES - 1 };
    struct buf whole = { 0 };
    assert_true(utf8_append_valid(&whole, all));
    for (size_t portion = 1; portion < 7; portion++) {
        struct utf8_stream stream = { 0 };
        struct buf out = { 0 };
        for (size_t i = 0; i < all.n; i += portion)
            utf8_stream_push(&stream, str_from_to(all, i, i + portion < all.n ? i + portion : all.n), &out);
        utf8_stream_finish(&stream, &out);
        assert_true(str_eq(buf_as_str(&out), buf_as_str(&whole)));
        buf_free(&out);
    }
    buf_free(&whole);
}

static void invalid_utf8_is_replaced(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } CASES[] = { { "a\x80z", "a\xef\xbf\xbdz" },
                  { "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd" },
                  { "\xe2\x82", "\xef\xbf\xbd" },
                  { "\xf0\x9f\x98\xf0\x9f\x98\x80", "\xef\xbf\xbd\xf0\x9f\x98\x80" },
                  { "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
                  { "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd" },
                  { "\xff", "\xef\xbf\xbd" },
                  { "\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf" } };
    struct tokenizer *t = load_kind("kind_gpt-2");
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct token_ids ids = encode(t, str_from(CASES[i].in), true);
        struct buf out = { 0 };
        assert_true(tokenizer_decode(t, &ids, false, &out));
        assert_true(str_is(buf_as_str(&out), CASES[i].out));
        token_ids_free(&ids);
        buf_free(&out);
    }
    tokenizer_free(t);
}

static void normal_forms(void **state)
{
    (void)state;
    static const struct {
        enum unicode_form form;
        const char *in, *out;
    } CASES[] = { { UNICODE_NFC, "e\xcc\x81x", "\xc3\xa9x" },
                  { UNICODE_NFD, "\xc3\xa9", "e\xcc\x81" },
                  { UNICODE_NFC, "a\xcc\x81\xcc\xa3",
                    "\xe1\xba\xa1\xcc\x81" }, // marks change places: dot below first
                  { UNICODE_NFC, "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab", "\xed\x95\x9c" },
                  { UNICODE_NFD, "\xed\x95\x9c", "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab" },
                  { UNICODE_NFKC, "\xef\xac\x81\xc2\xb2", "fi2" },
                  { UNICODE_NFC, "\xef\xac\x81", "\xef\xac\x81" },
                  { UNICODE_NFC, "\xcd\x8f\xcc\x81", "\xcd\x8f\xcc\x81" } };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct buf out = { 0 };
        assert_true(unicode_normalize(&out, str_from(CASES[i].in), CASES[i].form));
        assert_true(str_is(buf_as_str(&out), CASES[i].out));
        buf_free(&out);
    }
}

// A long run of marks is sorted by counting; the result is that of sorting it in short runs by hand.
static void long_runs_of_marks_are_ordered(void **state)
{
    (void)state;
    struct buf in = { 0 }, out = { 0 }, expected = { 0 };
    for (int i = 0; i < 5000; i++)
        buf_text(&in, "\xcc\x81\xcc\x96"); // class 230, class 220
    for (int i = 0; i < 10000; i++)
        buf_text(&expected, i < 5000 ? "\xcc\x96" : "\xcc\x81");
    assert_true(unicode_normalize(&out, buf_as_str(&in), UNICODE_NFD));
    assert_true(str_eq(buf_as_str(&out), buf_as_str(&expected)));
    buf_free(&in);
    buf_free(&out);
    buf_free(&expected);
}

#define ADDED(content, more) \
    "{\"id\":3,\"content\":\"" content "\",\"special\":false,\"normalized\":false" more "}"
#define SMALL(added)                                                                    \
    "{\"added_tokens\":[" added                                                         \
    "],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\" \":1,\"b\":2},\"merges\":[]}," \
    "\"decoder\":{\"type\":\"Fuse\"}}"

static void expect_ids(const char *json, const char *text, size_t n, const uint32_t *expected)
{
    struct tokenizer *t;
    struct err err = { 0 };
    assert_ok(tokenizer_load_json(&t, str_from(json), &err), &err);
    struct token_ids ids = encode(t, str_from(text), false);
    for (size_t i = 0; ids.n != n && i < ids.n; i++)
        print_message("%s: id %u\n", text, ids.ids[i]);
    assert_int_equal(ids.n, n);
    assert_memory_equal(ids.ids, expected, n * sizeof *expected);
    token_ids_free(&ids);
    tokenizer_free(t);
}

static void added_tokens_take_spaces_and_words(void **state)
{
    (void)state;
    expect_ids(SMALL(ADDED("x", "")), "a  x  a", 7, (uint32_t[]){ 0, 1, 1, 3, 1, 1, 0 });
    expect_ids(SMALL(ADDED("x", ",\"lstrip\":true")), "a  x  a", 5, (uint32_t[]){ 0, 3, 1, 1, 0 });
    expect_ids(SMALL(ADDED("x", ",\"rstrip\":true")), "a  x  a", 5, (uint32_t[]){ 0, 1, 1, 3, 0 });
    expect_ids(SMALL(ADDED("x", ",\"single_word\":true")), "ax xa x", 5, (uint32_t[]){ 0, 1, 0, 1, 3 });
    expect_ids(SMALL(ADDED("ab", "")), "abab b", 4, (uint32_t[]){ 3, 3, 1, 2 });
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    json_t *kind = vector_file("kind_llama-bpe");
    char *json = vector_tokenizer_json(kind);
    struct tokenizer *t = NULL;
    struct err err = { 0 };
    uint64_t before = mem_n_allocations();
    assert_ok(tokenizer_load_json(&t, str_from(json), &err), &err);
    uint64_t n_load = mem_n_allocations() - before;
    tokenizer_free(t);
    for (uint64_t i = 1; i <= n_load; i += i < 40 ? 1 : 7) {
        mem_fail_at(i, 0);
        bool ok = tokenizer_load_json(&t, str_from(json), &err);
        mem_fail_at(0, 0);
        if (!ok && err.code != ERR_MEMORY)
            fail_msg("allocation %llu fails: %s", (unsigned long long)i, err.message);
        tokenizer_free(t);
    }
    assert_ok(tokenizer_load_json(&t, str_from(json), &err), &err);
    before = mem_n_allocations();
    struct str text = STR("Hello there, it's 1234 \xe4\xb8\x96\xe7\x95\x8c <think> \xff");
    struct token_ids ids = encode(t, text, true);
    uint64_t n_encode = mem_n_allocations() - before;
    for (uint64_t i = 1; i <= n_encode; i++) {
        token_ids_free(&ids);
        mem_fail_at(i, 1);
        bool ok = tokenizer_encode(t, text, (struct tokenize_flags){ .parse_special = true }, &ids, &err);
        mem_fail_at(0, 0);
        assert_false(ok);
        assert_true(ids.n == 0);
    }
    token_ids_free(&ids);
    tokenizer_free(t);
    free(json);
    json_decref(kind);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(typed_control_tokens_stay_text),
        cmocka_unit_test(a_control_token_needs_every_byte_trusted),
        cmocka_unit_test(merging_goes_across_span_borders),
        cmocka_unit_test(texts_come_back),
        cmocka_unit_test(streams_give_whole_characters),
        cmocka_unit_test(streams_agree_with_the_whole),
        cmocka_unit_test(invalid_utf8_is_replaced),
        cmocka_unit_test(normal_forms),
        cmocka_unit_test(long_runs_of_marks_are_ordered),
        cmocka_unit_test(added_tokens_take_spaces_and_words),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
