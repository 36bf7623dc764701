// test_serve_private.c - what a client can learn of another's prompt from its own reply: `cached_tokens` in
// whole pages, and times.
//
// The attack: two worlds (cache salts) hold prompts of a victim that differ in one token. The same guesses
// are sent to both; whatever differs between the two replies tells the token.
#include "server/client.h"

enum { PAGE = 16, LENGTH = 64, SECRET = 40 }; // the token that differs is in the third page

static struct buf prompt_json(const char *salt, uint32_t n, uint32_t secret, uint32_t guess)
{
    struct buf text = { 0 };

    buf_text(&text, "{\"max_tokens\":1,\"temperature\":0,\"prompt\":[");
    for (uint32_t i = 0; i < n; i++)
        buf_printf(&text, "%u,", i == SECRET ? secret : 100 + i);
    buf_printf(&text, "%u],\"cache_salt\":\"%s\"}", guess, salt);
    return text;
}

static json_t *ask(int port, struct buf body)
{
    int status;
    json_t *reply = http_json(port, "/v1/completions", body.at, &status);

    assert_int_equal(status, 200);
    buf_free(&body);
    return reply;
}

// What may differ: names made for every reply, and times.
static void forget_times(json_t *reply)
{
    static const char *const times[] = { "prompt_ms",    "prompt_per_second",    "queue_ms", "first_token_ms",
                                         "predicted_ms", "predicted_per_second", "id",       "created" };

    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        json_object_del(reply, times[i]);
        json_object_del(json_object_get(reply, "timings"), times[i]);
    }
}

static json_int_t cached(json_t *reply)
{
    json_t *details = json_object_get(json_object_get(reply, "usage"), "prompt_tokens_details");
    return json_integer_value(json_object_get(details, "cached_tokens"));
}

static void a_reply_tells_no_token_of_another_prompt(void **state)
{
    static const char *const args[] = { NULL };
    struct served s = serve_start(args);
    (void)state;

    json_decref(ask(s.port, prompt_json("left", LENGTH, 7, 9)));
    json_decref(ask(s.port, prompt_json("right", LENGTH, 8, 9)));
    for (uint32_t n = 0; n <= SECRET;
         n++) { // the guess stands at every place, and is right in one world, in both or in none
        const uint32_t guesses[] = { 7, 8, 9, 100 + n };
        for (size_t i = 0; i < 4; i++) {
            json_t *left = ask(s.port, prompt_json("left", n, 7, guesses[i]));
            json_t *right = ask(s.port, prompt_json("right", n, 7, guesses[i]));
            forget_times(left);
            forget_times(right);
            if (!json_equal(left, right))
                fail_msg("after %u tokens and %u:\n%s\n%s", n, guesses[i], json_dumps(left, JSON_COMPACT),
                         json_dumps(right, JSON_COMPACT));
            assert_int_equal(cached(left), n / PAGE * PAGE);
            json_decref(left);
            json_decref(right);
            serve_skip_log(&s);
        }
    }
    assert_int_equal(serve_stop(&s), 0);
}

static void a_reply_tells_why_less_was_reused(void **state)
{
    static const char *const args[] = { NULL };
    struct served s = serve_start(args);
    json_t *first = ask(s.port, prompt_json("", LENGTH, 7, 9)),
           *again = ask(s.port, prompt_json("", LENGTH, 7, 9));
    json_t *miss = json_object_get(json_object_get(first, "timings"), "cache_miss");

    (void)state;
    assert_int_equal(json_object_size(miss), 1);
    assert_string_equal(json_string_value(json_object_get(miss, "reason")), "absent");
    assert_int_equal(cached(again), LENGTH);
    assert_true(json_is_null(json_object_get(json_object_get(again, "timings"), "cache_miss")));
    json_decref(first);
    json_decref(again);
    assert_int_equal(serve_stop(&s), 0);
}

static void without_shared_prefixes_only_a_salt_finds_its_own(void **state)
{
    static const char *const args[] = { "--no-shared-prefix", NULL };
    struct served s = serve_start(args);
    (void)state;

    for (int i = 0; i < 2; i++) {
        json_t *unsalted = ask(s.port, prompt_json("", LENGTH, 7, 9)),
               *salted = ask(s.port, prompt_json("mine", LENGTH, 7, 9));
        assert_int_equal(cached(unsalted), 0);
        assert_int_equal(cached(salted), i * LENGTH);
        json_decref(unsalted);
        json_decref(salted);
    }
    assert_int_equal(serve_stop(&s), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_tells_no_token_of_another_prompt),
        cmocka_unit_test(a_reply_tells_why_less_was_reused),
        cmocka_unit_test(without_shared_prefixes_only_a_salt_finds_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
