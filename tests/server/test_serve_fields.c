// test_serve_fields.c - every field of a request, one by one: honoured, or told of in warnings and refused
// with "strict", or refused.
//
// Nothing is ignored in silence. What "honoured" means for a field is tested elsewhere; here it means no
// warning.
#include "server/shared.h"

#define CHAT     "/v1/chat/completions"
#define TEXT     "/v1/completions"
#define MESSAGES "/v1/messages"
#define RESPONSE "/v1/responses"
#define FUNCTION "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"

static const struct tested_dialect {
    const char *path, *body; // without the closing brace
} dialects[] = {
    { CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1" },
    { TEXT, "{\"prompt\":\"x\",\"max_tokens\":1" },
    { MESSAGES, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1" },
    { RESPONSE, "{\"input\":\"x\",\"max_output_tokens\":1" },
};

enum fate { HONOURED, WARNED, REFUSED };

static const struct tested_field {
    const char *path, *field;
    enum fate fate;
} fields[] = {
    // OpenAI's chat completions
    { CHAT, "\"temperature\":0", HONOURED },
    { CHAT, "\"temperature\":-1", REFUSED },
    { CHAT, "\"temperature\":\"1\"", REFUSED },
    { CHAT, "\"top_p\":0.5", HONOURED },
    { CHAT, "\"top_p\":1.5", REFUSED },
    { CHAT, "\"n\":2,\"seed\":3", HONOURED },
    { CHAT, "\"n\":0", REFUSED },
    { CHAT, "\"n\":1000", REFUSED },
    { CHAT, "\"n\":1.5", REFUSED },
    { CHAT, "\"seed\":-7", HONOURED },
    { CHAT, "\"seed\":\"7\"", REFUSED },
    { CHAT, "\"stop\":\"a\"", HONOURED },
    { CHAT, "\"stop\":[\"a\",\"b\",\"c\",\"d\"]", HONOURED },
    { CHAT, "\"stop\":null", HONOURED },
    { CHAT, "\"stop\":[]", HONOURED },
    { CHAT, "\"stop\":\"\"", REFUSED },
    { CHAT, "\"stop\":[1]", REFUSED },
    { CHAT, "\"max_completion_tokens\":1", HONOURED },
    { CHAT, "\"max_completion_tokens\":2", REFUSED }, // max_tokens is 1
    { CHAT, "\"presence_penalty\":1,\"frequency_penalty\":1", HONOURED },
    { CHAT, "\"repeat_penalty\":1.1,\"repetition_penalty\":1.2", REFUSED },
    { CHAT, "\"repeat_last_n\":4,\"top_k\":5,\"min_p\":0.1", HONOURED },
    { CHAT, "\"logit_bias\":{\"5\":-100}", HONOURED },
    { CHAT, "\"logit_bias\":{\"x\":1}", REFUSED },
    { CHAT, "\"logit_bias\":{\"99999999\":1}", REFUSED },
    { CHAT, "\"logprobs\":true", HONOURED },
    { CHAT, "\"logprobs\":true,\"top_logprobs\":20", HONOURED },
    { CHAT, "\"logprobs\":true,\"top_logprobs\":21", REFUSED },
    { CHAT, "\"top_logprobs\":2", REFUSED },
    { CHAT, "\"stream_options\":{\"include_usage\":true}", HONOURED },
    { CHAT, "\"stream_options\":{\"other\":true}", WARNED },
    { CHAT, "\"tools\":[" FUNCTION "],\"tool_choice\":\"none\"", HONOURED },
    { CHAT, "\"tools\":[" FUNCTION "],\"parallel_tool_calls\":false", HONOURED },
    { CHAT, "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}]", WARNED },
    { CHAT, "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"colour\":1}}]", WARNED },
    { CHAT, "\"tools\":[{\"type\":\"custom\",\"custom\":{\"name\":\"f\"}}]", REFUSED },
    { CHAT, "\"tool_choice\":\"required\"", REFUSED },
    { CHAT, "\"tools\":[" FUNCTION "],\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"g\"}}",
      REFUSED },
    { CHAT, "\"tools\":[" FUNCTION "],\"tool_choice\":{\"type\":\"allowed_tools\"}", REFUSED },
    { CHAT, "\"response_format\":{\"type\":\"text\"}", HONOURED },
    { CHAT, "\"response_format\":{\"type\":\"xml\"}", REFUSED },
    { CHAT,
      "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":\"integer\"}}}",
      HONOURED },
    { CHAT, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"not\":{}}}}",
      REFUSED },
    { CHAT, "\"response_format\":{\"type\":\"json_object\"},\"json_schema\":{}", REFUSED },
    { CHAT, "\"grammar\":\"root ::= [0-9]\"", HONOURED },
    { CHAT, "\"grammar\":\"root ::= (\"", REFUSED },
    { CHAT, "\"reasoning_effort\":\"high\"", WARNED }, // this model's template knows nothing of it
    { CHAT, "\"reasoning_effort\":\"none\"", HONOURED },
    { CHAT, "\"chat_template_kwargs\":{\"a\":1}", HONOURED },
    { CHAT, "\"chat_template_kwargs\":{\"messages\":[]}", REFUSED },
    { CHAT,
      "\"user\":\"u\",\"metadata\":{\"a\":\"b\"},\"safety_identifier\":\"s\",\"prompt_cache_key\":\"k\"",
      HONOURED },
    { CHAT, "\"store\":false,\"service_tier\":\"auto\",\"modalities\":[\"text\"]", HONOURED },
    { CHAT, "\"store\":true", WARNED },
    { CHAT, "\"service_tier\":\"priority\"", WARNED },
    { CHAT, "\"modalities\":[\"text\",\"audio\"]", WARNED },
    { CHAT, "\"audio\":{\"voice\":\"a\"}", WARNED },
    { CHAT, "\"prediction\":{\"type\":\"content\",\"content\":\"x\"}", HONOURED },
    { CHAT, "\"verbosity\":\"low\"", WARNED },
    { CHAT, "\"web_search_options\":{}", HONOURED }, // asks for nothing
    { CHAT, "\"web_search_options\":{\"a\":1}", WARNED },
    { CHAT, "\"functions\":[{\"name\":\"f\"}],\"function_call\":\"auto\"", WARNED },
    { CHAT, "\"echo\":true", WARNED }, // a completion's
    { CHAT, "\"dry_multiplier\":0.8", WARNED },
    { CHAT, "\"model\":\"other\"", WARNED },
    { CHAT, "\"priority\":1,\"deadline_ms\":60000,\"cache_salt\":\"s\",\"ignore_eos\":true", HONOURED },
    { CHAT, "\"messages2\":1", WARNED },
    // completions
    { TEXT, "\"echo\":true", HONOURED },
    { TEXT, "\"echo\":true,\"logprobs\":1", HONOURED },
    { TEXT, "\"logprobs\":5", HONOURED },
    { TEXT, "\"logprobs\":true", REFUSED },
    { TEXT, "\"suffix\":\"\"", HONOURED },
    { TEXT, "\"suffix\":\"x\"", REFUSED }, // this model fills no gaps
    { TEXT, "\"best_of\":1", HONOURED },
    { TEXT, "\"best_of\":2", HONOURED },
    { TEXT, "\"best_of\":2,\"stream\":true", REFUSED },
    { TEXT, "\"n\":2,\"best_of\":1", REFUSED },
    { TEXT, "\"tools\":[]", WARNED },
    // Anthropic's messages
    { MESSAGES, "\"system\":\"s\"", HONOURED },
    { MESSAGES, "\"system\":[{\"type\":\"text\",\"text\":\"s\",\"cache_control\":{\"type\":\"ephemeral\"}}]",
      HONOURED },
    { MESSAGES, "\"system\":1", REFUSED },
    { MESSAGES, "\"stop_sequences\":[\"a\"],\"temperature\":1,\"top_k\":3,\"top_p\":0.9", HONOURED },
    { MESSAGES, "\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"standard_only\"", HONOURED },
    { MESSAGES, "\"thinking\":{\"type\":\"disabled\"}", HONOURED },
    { MESSAGES, "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}", WARNED },
    { MESSAGES, "\"thinking\":true", REFUSED },
    { MESSAGES,
      "\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\"}}],\"tool_choice\":{\"type\":"
      "\"auto\"}",
      HONOURED },
    { MESSAGES, "\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"web_search\"}]", REFUSED },
    { MESSAGES, "\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"integer\"}}}",
      HONOURED },
    { MESSAGES, "\"output_config\":{\"effort\":\"low\"}", WARNED },
    { MESSAGES, "\"container\":\"c\"", WARNED },
    { MESSAGES, "\"mcp_servers\":[{\"url\":\"http://x\"}]", WARNED },
    { MESSAGES, "\"n\":2", WARNED },
    // responses
    { RESPONSE,
      "\"instructions\":\"s\",\"metadata\":{\"a\":\"b\"},\"store\":false,\"truncation\":\"disabled\"",
      HONOURED },
    { RESPONSE, "\"text\":{\"format\":{\"type\":\"text\"}}", HONOURED },
    { RESPONSE, "\"text\":{\"verbosity\":\"low\"}", WARNED },
    { RESPONSE, "\"reasoning\":{\"effort\":\"none\"}", HONOURED },
    { RESPONSE, "\"reasoning\":{\"effort\":\"none\",\"summary\":\"auto\"}", WARNED },
    { RESPONSE, "\"include\":[]", HONOURED },
    { RESPONSE, "\"include\":[\"message.output_text.logprobs\"]", WARNED },
    { RESPONSE, "\"previous_response_id\":\"r\"", WARNED },
    { RESPONSE, "\"background\":true", WARNED },
    { RESPONSE, "\"truncation\":\"auto\"", HONOURED },
    { RESPONSE, "\"max_tool_calls\":1", WARNED },
    { RESPONSE, "\"conversation\":\"c\"", WARNED },
};

static const char *body_of(const char *path)
{
    for (size_t i = 0; i < sizeof dialects / sizeof *dialects; i++)
        if (!strcmp(dialects[i].path, path))
            return dialects[i].body;
    return NULL;
}

static void expect(const struct tested_field *f, bool strict)
{
    struct buf body = { 0 };
    int status;

    buf_printf(&body, "%s,%s%s}", body_of(f->path), f->field, strict ? ",\"strict\":true" : "");
    json_t *r = reply_of(f->path, body.at, &status);
    bool refused = f->fate == REFUSED || (f->fate == WARNED && strict);
    bool warned = json_array_size(json_object_get(r, "warnings")) > 0;
    if (status != (refused ? 400 : 200) || warned != (f->fate == WARNED && !strict))
        fail_msg("%s %s%s: %d %s", f->path, f->field, strict ? " (strict)" : "", status,
                 json_dumps(r, JSON_COMPACT));
    json_decref(r);
    buf_free(&body);
}

static void nothing_is_ignored_in_silence(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        expect(&fields[i], false);
        expect(&fields[i], true);
    }
}

static void a_seed_gives_the_same_answers_and_each_its_own(void **state)
{
    static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Tell a "
                               "story.\"}],\"max_tokens\":12,\"n\":3,\"seed\":5}";
    json_t *a = post(CHAT, body), *b = post(CHAT, body);

    (void)state;
    for (int i = 0; i < 3; i++) {
        char path[40];
        snprintf(path, sizeof path, "choices.%d.message.content", i);
        assert_string_equal(text(a, path), text(b, path));
    }
    assert_true(strcmp(text(a, "choices.0.message.content"), text(a, "choices.1.message.content")) != 0);
    json_decref(a);
    json_decref(b);
}

static void images_are_refused_and_not_left_out(void **state)
{
    static const char *const bodies[][2] = {
        { CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{"
                "\"url\":\"data:image/"
                "png;base64,\"}}]}]}" },
        { MESSAGES, "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\","
                    "\"source\":{}}]}]}" },
        { RESPONSE,
          "{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"image_url\":\"x\"}]}]}" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        int status;
        json_t *r = reply_of(bodies[i][0], bodies[i][1], &status);
        assert_int_equal(status, 400);
        json_decref(r);
    }
}

// ---- Anthropic

#define ASKS                                                                  \
    "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a story about a " \
    "fox.\"}],\"max_tokens\":60,\"seed\":1"

static void a_stop_sequence_is_named(void **state)
{
    json_t *r = post(MESSAGES, "{" ASKS ",\"stop_sequences\":[\"zebra\",\" \",\"giraffe\"]}");

    (void)state;
    assert_string_equal(text(r, "stop_reason"), "stop_sequence");
    assert_string_equal(text(r, "stop_sequence"), " ");
    json_decref(r);
    struct response s =
        http_post(shared.port, MESSAGES, "{" ASKS ",\"stream\":true,\"stop_sequences\":[\"zebra\",\" \"]}");
    struct buf events = { 0 };
    response_unchunk(&s, &events);
    assert_non_null(strstr(events.at, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\" \""));
    buf_free(&events);
    response_free(&s);
    r = post(MESSAGES, "{" ASKS ",\"stop_sequences\":[\"zebra\"]}");
    assert_true(json_is_null(at(r, "stop_sequence")));
    json_decref(r);
}

#define USED                                                                                             \
    "{\"role\":\"assistant\",\"content\":[{\"type\":\"tool_use\",\"id\":\"toolu_1\",\"name\":\"get\","   \
    "\"input\":{\"a\":1}}]},"                                                                            \
    "{\"role\":\"user\",\"content\":[{\"type\":\"tool_result\",\"tool_use_id\":\"toolu_1\",\"content\":" \
    "\"fine\"}]}"

static json_int_t count(const char *more)
{
    struct buf body = { 0 };

    buf_printf(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}%s}", more);
    json_t *r = post("/v1/messages/count_tokens", body.at);
    json_int_t n = json_integer_value(at(r, "input_tokens"));
    json_decref(r);
    buf_free(&body);
    return n;
}

static void everything_in_a_prompt_is_counted(void **state)
{
    json_int_t bare = count("]"),
               more = count(
                   ",{\"role\":\"assistant\",\"content\":\"y\"},{\"role\":\"user\",\"content\":\"z\"}]");

    (void)state;
    assert_true(bare > 0 && more > bare);
    assert_true(count("],\"system\":\"Be kind.\"") > bare);
    assert_true(count("],\"tools\":[{\"name\":\"get\",\"description\":\"Gets.\",\"input_schema\":{\"type\":"
                      "\"object\"}}]") > bare + 10);
    assert_true(count("," USED "]") > bare);
    json_t *r = post(MESSAGES, "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}");
    assert_int_equal(json_integer_value(at(r, "usage.input_tokens")) +
                         json_integer_value(at(r, "usage.cache_read_input_tokens")),
                     bare);
    json_decref(r);
}

static void errors_have_the_shape_of_the_dialect(void **state)
{
    int status;
    json_t *r = reply_of(MESSAGES, "{\"messages\":[]}", &status);

    (void)state;
    assert_int_equal(status, 400);
    assert_string_equal(text(r, "type"), "error");
    assert_string_equal(text(r, "error.type"), "invalid_request_error");
    assert_non_null(strstr(text(r, "error.message"), "max_tokens"));
    json_decref(r);
    r = reply_of(CHAT, "{\"messages\":[]}", &status);
    assert_int_equal(status, 400);
    assert_string_equal(text(r, "error.type"), "invalid_request_error");
    assert_null(at(r, "type"));
    assert_true(json_object_get(json_object_get(r, "error"), "param") != NULL);
    json_decref(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_ignored_in_silence),
        cmocka_unit_test(a_seed_gives_the_same_answers_and_each_its_own),
        cmocka_unit_test(images_are_refused_and_not_left_out),
        cmocka_unit_test(a_stop_sequence_is_named),
        cmocka_unit_test(everything_in_a_prompt_is_counted),
        cmocka_unit_test(errors_have_the_shape_of_the_dialect),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
