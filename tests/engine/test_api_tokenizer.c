// test_api_tokenizer.c - the tokenizer through ingot.h: there and back, counted, with and without control
// tokens.
#include "toy_engine.h"

enum { ROOM = 64 };

static int64_t encode(const char *text, unsigned flags, uint32_t *tokens, size_t capacity)
{
    struct ingot_error error = { 0 };
    int64_t n = ingot_encode(engine, text, strlen(text), flags, tokens, capacity, &error);

    if (n < 0)
        fail_msg("%s", error.message);
    return n;
}

static void text_survives_the_way_to_tokens_and_back(void **state)
{
    static const char text[] = "Once upon a time, 12 + 30 \xe2\x9c\x93 caf\xc3\xa9";
    uint32_t tokens[ROOM];
    char back[200], few[6];

    (void)state;
    int64_t n = encode(text, 0, tokens, ROOM);
    assert_true(n > 4 && n < ROOM);
    assert_int_equal(encode(text, 0, NULL, 0), n); // counts
    assert_int_equal(ingot_decode(engine, tokens, (size_t)n, 0, back, sizeof back, NULL), strlen(text));
    assert_string_equal(back, text);
    assert_int_equal(ingot_decode(engine, tokens, (size_t)n, 0, few, sizeof few, NULL), strlen(text));
    assert_string_equal(few, "Once ");
    uint32_t first[2] = { 0, 77 };
    assert_int_equal(ingot_encode(engine, text, strlen(text), 0, first, 1, NULL), n);
    assert_int_equal(first[0], tokens[0]);
    assert_int_equal(first[1], 77);
    assert_int_equal(ingot_tokenize(engine, text, strlen(text), false, tokens, ROOM, NULL), n);
    assert_int_equal(ingot_detokenize(engine, tokens, (size_t)n, back, sizeof back, NULL), strlen(text));
    assert_string_equal(back, text);
}

static void control_tokens_are_text_unless_asked_for(void **state)
{
    uint32_t plain[ROOM], parsed[ROOM];
    struct ingot_token_info info;
    char text[100];

    (void)state;
    int64_t eos = ingot_token_special(engine, INGOT_SPECIAL_EOS);
    assert_true(eos >= 0);
    assert_true(ingot_token_info(engine, (uint32_t)eos, &info));
    assert_int_equal(info.kind, INGOT_TOKEN_CONTROL);
    assert_true(info.ends_answer);
    assert_int_equal(ingot_token_find(engine, info.spelling, info.n_spelling), eos);
    snprintf(text, sizeof text, "a%.*sb", (int)info.n_spelling, info.spelling);
    int64_t n_plain = encode(text, 0, plain, ROOM),
            n_parsed = encode(text, INGOT_PARSE_SPECIAL, parsed, ROOM);
    assert_true(n_plain > n_parsed);
    assert_int_equal(parsed[1], eos);
    for (int64_t i = 0; i < n_plain; i++)
        assert_int_not_equal(plain[i], eos);
    char back[100];
    ingot_decode(engine, parsed, (size_t)n_parsed, INGOT_KEEP_SPECIAL, back, sizeof back, NULL);
    assert_string_equal(back, text);
    ingot_decode(engine, parsed, (size_t)n_parsed, 0, back, sizeof back, NULL);
    assert_string_equal(back, "ab");
}

static void the_bytes_of_tokens_make_their_text(void **state)
{
    static const char text[] = "tea and caf\xc3\xa9";
    uint32_t tokens[ROOM];
    struct ingot_engine_info engine_info;
    struct ingot_token_info info;
    char joined[100] = "";
    size_t n_joined = 0;

    (void)state;
    int64_t n = encode(text, 0, tokens, ROOM);
    for (int64_t i = 0; i < n; i++) {
        assert_true(ingot_token_info(engine, tokens[i], &info));
        assert_int_equal(info.kind, INGOT_TOKEN_NORMAL);
        assert_false(info.ends_answer);
        assert_int_equal(ingot_token_find(engine, info.spelling, info.n_spelling), tokens[i]);
        memcpy(joined + n_joined, info.bytes, info.n_bytes);
        n_joined += info.n_bytes;
    }
    assert_string_equal(joined, text);
    ingot_engine_info(engine, &engine_info);
    assert_true(engine_info.has_tokenizer);
    assert_false(ingot_token_info(engine, engine_info.n_vocab, &info));
    assert_int_equal(ingot_token_find(engine, "no such token", 13), -1);
    assert_int_equal(ingot_token_special(engine, (enum ingot_special)99), -1);
}

static void a_shorter_info_is_filled_as_far_as_it_goes(void **state)
{
    struct ingot_token_info info;

    (void)state;
    memset(&info, 0xff, sizeof info);
    assert_true(ingot_token_info_fill(engine, 300, &info, offsetof(struct ingot_token_info, n_bytes)));
    assert_true(info.n_spelling > 0 && info.n_spelling < 100);
    assert_true(info.n_bytes == SIZE_MAX);
}

static void a_model_without_a_tokenizer_says_so(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_engine_info engine_info;
    struct ingot_token_info info;
    struct ingot_error error = { 0 };
    uint32_t token = 1;
    char text[8];

    (void)state;
    o.model = SOURCE_DIR "/tests/golden/qwen3/model.gguf";
    o.n_threads = 1;
    struct ingot_engine *bare = open_or_fail(&o);
    ingot_engine_info(bare, &engine_info);
    assert_false(engine_info.has_tokenizer);
    assert_int_equal(ingot_encode(bare, "a", 1, 0, &token, 1, &error), -1);
    assert_int_equal(error.code, INGOT_UNSUPPORTED);
    assert_non_null(strstr(error.message, "no tokenizer"));
    assert_int_equal(ingot_decode(bare, &token, 1, 0, text, sizeof text, &error), -1);
    assert_false(ingot_token_info(bare, 1, &info));
    assert_int_equal(ingot_token_find(bare, "a", 1), -1);
    assert_int_equal(ingot_token_special(bare, INGOT_SPECIAL_BOS), -1);
    ingot_engine_close(bare);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_survives_the_way_to_tokens_and_back),
        cmocka_unit_test(control_tokens_are_text_unless_asked_for),
        cmocka_unit_test(the_bytes_of_tokens_make_their_text),
        cmocka_unit_test(a_shorter_info_is_filled_as_far_as_it_goes),
        cmocka_unit_test(a_model_without_a_tokenizer_says_so),
    };
    return cmocka_run_group_tests(tests, open_toy, close_toy);
}
