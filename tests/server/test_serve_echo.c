// test_serve_echo.c - completions that tell their prompt again, with its log-probabilities, and those that
// choose the best of several.
//
// The real program with the model that ships inside. Greedy answers and a seed make every reply the same each
// time.
#include "server/shared.h"

#define TEXT   "/v1/completions"
#define PROMPT "The fox and the na\u00efve d\u00f6g went"

static void refused(const char *body)
{
    int status;
    json_decref(reply_of(TEXT, body, &status));
    assert_int_equal(status, 400);
}

static size_t n_characters(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

// What was generated has the same log-probabilities when it is read as a prompt.
static void a_prompt_s_logprobs_are_an_answer_s(void **state)
{
    char body[600];
    json_t *answer = post(TEXT, "{\"prompt\":\"" PROMPT
                                "\",\"max_tokens\":8,\"temperature\":0,\"echo\":true,\"logprobs\":2}");
    json_t *told = at(answer, "choices.0.logprobs");
    size_t n = json_array_size(at(told, "tokens"));
    (void)state;

    assert_int_equal(strncmp(text(answer, "choices.0.text"), PROMPT, strlen(PROMPT)), 0);
    assert_true(json_is_null(at(told, "token_logprobs.0")));
    assert_true(json_is_null(at(told, "top_logprobs.0")));
    assert_int_equal(n, (size_t)json_integer_value(at(answer, "usage.total_tokens")));
    json_t *prompt = json_pack("{s:O, s:i, s:b, s:i}", "prompt", at(answer, "choices.0.text"), "max_tokens",
                               0, "echo", 1, "logprobs", 2);
    size_t n_body = json_dumpb(prompt, body, sizeof body - 1, JSON_COMPACT);
    body[n_body] = 0;
    json_t *echo = post(TEXT, body), *again = at(echo, "choices.0.logprobs");
    assert_string_equal(text(echo, "choices.0.text"), text(answer, "choices.0.text"));
    assert_true(json_equal(at(again, "tokens"), at(told, "tokens")));
    assert_true(json_equal(again, told));
    assert_int_equal(json_integer_value(at(echo, "usage.completion_tokens")), 0);
    assert_string_equal(text(echo, "choices.0.finish_reason"), "length");
    json_decref(answer);
    json_decref(prompt);
    json_decref(echo);
}

// Offsets count characters, also where one is made of several tokens.
static void offsets_are_places_in_the_text(void **state)
{
    json_t *r = post(TEXT, "{\"prompt\":\"" PROMPT
                           " \u65e5\u672c \U0001f98a!\",\"max_tokens\":0,\"echo\":true,\"logprobs\":0}");
    json_t *offsets = at(r, "choices.0.logprobs.text_offset"), *tokens = at(r, "choices.0.logprobs.tokens");
    const char *whole = text(r, "choices.0.text");
    size_t n = json_array_size(offsets), last = 0;
    (void)state;

    for (size_t i = 0; i < n; i++) {
        size_t offset = (size_t)json_integer_value(json_array_get(offsets, i)), skipped = 0;
        const char *token = json_string_value(json_array_get(tokens, i)), *place = whole;
        for (; skipped < offset || (*place & 0xc0) == 0x80; place++)
            skipped += (place[1] & 0xc0) != 0x80;
        assert_true(offset >= last);
        if (!strstr(token, "\ufffd")) // a whole one
            assert_int_equal(strncmp(place, token, strlen(token)), 0);
        last = offset;
    }
    assert_int_equal(last, n_characters(whole) - 1); // the "!"
    json_decref(r);
}

static void an_echo_streams_as_it_is_told_whole(void **state)
{
    static const char *const more[] = { "", ",\"logprobs\":1" };
    (void)state;

    for (size_t i = 0; i < 2; i++) {
        char body[300];
        struct buf joined = { 0 };
        json_t *tokens = json_array();
        snprintf(body, sizeof body,
                 "{\"prompt\":\"" PROMPT "\",\"max_tokens\":5,\"temperature\":0,\"echo\":true%s}", more[i]);
        json_t *whole = post(TEXT, body);
        snprintf(body + strlen(body) - 1, 20, ",\"stream\":true}");
        struct response r = http_post(shared.port, TEXT, body);
        serve_skip_log(&shared);
        for (const char *at_line = strstr(r.all.at, "data: {"); at_line;
             at_line = strstr(at_line + 1, "data: {")) {
            json_t *event = json_loads(at_line + 6, JSON_DISABLE_EOF_CHECK, NULL);
            buf_text(&joined, text(event, "choices.0.text"));
            json_array_extend(tokens, at(event, "choices.0.logprobs.tokens"));
            json_decref(event);
        }
        assert_string_equal(joined.at, text(whole, "choices.0.text"));
        if (i == 1)
            assert_true(json_equal(tokens, at(whole, "choices.0.logprobs.tokens")));
        buf_free(&joined);
        response_free(&r);
        json_decref(tokens);
        json_decref(whole);
    }
}

static double mean_logprob(json_t *choice)
{
    json_t *values = at(choice, "logprobs.token_logprobs"), *value;
    double sum = 0;
    size_t i;

    json_array_foreach(values, i, value)
    {
        sum += json_number_value(value);
    }
    return sum / (double)json_array_size(values);
}

// Four answers alone, then the best two of the same four.
static void the_best_are_those_that_the_model_finds_likeliest(void **state)
{
#define FOUR \
    "{\"prompt\":[\"Once upon a time\",\"The moon\"],\"max_tokens\":12,\"temperature\":1.2,\"seed\":11"
    json_t *four = post(TEXT, FOUR ",\"n\":4,\"logprobs\":0}"),
           *best = post(TEXT, FOUR ",\"n\":2,\"best_of\":4}");
    json_t *all = at(four, "choices"), *told = at(best, "choices");
    (void)state;

    assert_int_equal(json_array_size(told), 4);
    for (size_t i = 0; i < 4; i++) {
        json_t *choice = json_array_get(told, i), *same = NULL;
        size_t n_better = 0, prompt = i / 2;
        for (size_t k = 4 * prompt; k < 4 * prompt + 4; k++)
            same = !strcmp(text(json_array_get(all, k), "text"), text(choice, "text"))
                       ? json_array_get(all, k)
                       : same;
        assert_non_null(same);
        for (size_t k = 4 * prompt; k < 4 * prompt + 4; k++)
            n_better += mean_logprob(json_array_get(all, k)) > mean_logprob(same);
        assert_int_equal(n_better, i % 2);
        assert_int_equal(json_integer_value(at(choice, "index")), i);
    }
    assert_true(json_is_null(at(best, "choices.0.logprobs"))); // nobody asked
    assert_int_equal(json_integer_value(at(best, "usage.completion_tokens")),
                     json_integer_value(at(four, "usage.completion_tokens"))); // all eight were made
    json_decref(four);
    json_decref(best);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    refused("{\"prompt\":\"a\",\"max_tokens\":0}");
    refused("{\"prompt\":\"a\",\"max_tokens\":0,\"echo\":false}");
    refused("{\"prompt\":\"a\",\"best_of\":3,\"stream\":true}");
    refused("{\"prompt\":\"a\",\"best_of\":17}");
    refused("{\"prompt\":[\"a\",\"b\"],\"best_of\":9}");
    refused("{\"prompt\":\"a\",\"n\":3,\"best_of\":2}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_s_logprobs_are_an_answer_s),
        cmocka_unit_test(offsets_are_places_in_the_text),
        cmocka_unit_test(an_echo_streams_as_it_is_told_whole),
        cmocka_unit_test(the_best_are_those_that_the_model_finds_likeliest),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
