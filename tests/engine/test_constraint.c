// test_constraint.c - answers of the shipped model under a grammar, a schema and biases: they follow, alone
// and beside others.
#include <jansson.h>
#include "ingot.h"
#include "testing.h"

static struct ingot_engine *engine;

static int start(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error = { 0 };

    (void)state;
    o.n_threads = 1;
    o.n_sequences = 4;
    engine = ingot_engine_open(&o, &error);
    return engine ? 0 : -1;
}

static int stop(void **state)
{
    (void)state;
    ingot_engine_close(engine);
    return 0;
}

static struct ingot_request_options asking(uint64_t seed)
{
    static const struct ingot_message message = { .role = "user", .content = "Tell me about a fox." };
    struct ingot_request_options r = ingot_request_defaults();

    r.messages = &message;
    r.n_messages = 1;
    r.max_tokens = 200;
    r.sampling.temperature = 1.5f; // unlikely ways too
    r.sampling.top_k = 0;
    r.sampling.top_p = 1;
    r.sampling.min_p = 0;
    r.sampling.seed = seed;
    return r;
}

// The answer; free with ingot_free.
static char *answer(const struct ingot_request_options *r, struct ingot_result *result)
{
    struct ingot_error error = { 0 };
    char *text = NULL;

    if (!ingot_generate_batch(engine, r, 1, result, &text, &error) || result->finish == INGOT_FINISH_ERROR)
        fail_msg("%s%s", error.message, result->error.message);
    return text;
}

static void refused(struct ingot_request_options r, const char *part)
{
    struct ingot_error error = { 0 };
    struct ingot_request *request = ingot_submit(engine, &r, &error);

    if (request || !strstr(error.message, part))
        fail_msg("wanted an error with: %s\n  found: %s", part, error.message);
}

static void a_grammar_is_followed_to_its_end(void **state)
{
    struct ingot_result result;

    (void)state;
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct ingot_request_options r = asking(seed);
        r.grammar = "root ::= \"It is \" (\"red\" | \"brown\" | \"\xf0\x9f\xa6\x8a\") [.!]";
        char *text = answer(&r, &result);
        bool ok = !strncmp(text, "It is ", 6) &&
                  (strstr(text, "red") || strstr(text, "brown") || strstr(text, "\xf0\x9f\xa6\x8a"));
        if (!ok || result.finish != INGOT_FINISH_EOS)
            fail_msg("%s (finish %d)", text, (int)result.finish);
        ingot_free(text);
    }
}

static void a_schema_gives_json_that_fulfils_it(void **state)
{
    struct ingot_request_options requests[4];
    struct ingot_result results[4];
    char *texts[4];

    (void)state;
    for (uint64_t i = 0; i < 4; i++) { // together, one of them free
        requests[i] = asking(i);
        if (i > 0)
            requests[i].json_schema =
                "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\",\"maxLength\":12},"
                "\"age\":"
                "{\"type\":\"integer\",\"minimum\":1,\"maximum\":30}},\"required\":[\"name\",\"age\"]}";
    }
    assert_true(ingot_generate_batch(engine, requests, 4, results, texts, NULL));
    for (int i = 1; i < 4; i++) {
        json_t *value = json_loads(texts[i], 0, NULL);
        json_int_t age = json_integer_value(json_object_get(value, "age"));
        if (!json_is_string(json_object_get(value, "name")) || age < 1 || age > 30 ||
            results[i].finish != INGOT_FINISH_EOS)
            fail_msg("%s", texts[i]);
        json_decref(value);
    }
    char *alone = answer(&requests[2], &results[0]);
    assert_string_equal(alone, texts[2]);
    ingot_free(alone);
    for (int i = 0; i < 4; i++)
        ingot_free(texts[i]);
}

static void biases_ban_and_force_tokens(void **state)
{
    struct ingot_bias bias[2] = { { 0, 1000 }, { 0, -1000 } };
    struct ingot_request_options r = asking(1);
    struct ingot_result result;
    uint32_t tokens[8];
    char *text;

    (void)state;
    assert_true(ingot_tokenize(engine, "fox", 3, false, tokens, 8, NULL) > 0);
    bias[0].token = tokens[0];
    r.bias = bias;
    r.n_bias = 1;
    r.max_tokens = 5;
    text = answer(&r, &result);
    assert_int_equal(result.n_generated, 5);
    size_t piece = strlen(text) / 5;
    assert_true(piece > 0 && strlen(text) % 5 == 0 && !strncmp(text, text + piece, 4 * piece));
    ingot_free(text);
    bias[1].token = tokens[0]; // 1000 - 1000: as if there were none
    r.n_bias = 2;
    text = answer(&r, &result);
    r.n_bias = 0;
    char *plain = answer(&r, &result);
    assert_string_equal(text, plain);
    ingot_free(text);
    ingot_free(plain);
}

static void what_cannot_be_followed_is_refused_at_once(void **state)
{
    struct ingot_request_options r = asking(0);
    struct ingot_bias bias = { 1 << 30, 1 };

    (void)state;
    r.grammar = "root ::= root";
    refused(r, "left recursive");
    r.grammar = "root ::= \"a\"";
    r.json_schema = "{}";
    refused(r, "exclude each other");
    r.grammar = NULL;
    r.json_schema = "{\"not\":{}}";
    refused(r, "'not'");
    r.json_schema = "{}";
    r.ignore_eos = true;
    refused(r, "ignore_eos");
    r = asking(0);
    r.bias = &bias;
    r.n_bias = 1;
    refused(r, "bias 0");
    r.n_bias = 1025;
    refused(r, "1025 tokens");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grammar_is_followed_to_its_end),
        cmocka_unit_test(a_schema_gives_json_that_fulfils_it),
        cmocka_unit_test(biases_ban_and_force_tokens),
        cmocka_unit_test(what_cannot_be_followed_is_refused_at_once),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
