// test_serve_tools.c - structured answers over HTTP: formats, grammars, tools in all dialects, responses,
// embeddings, and what is refused.
#include <math.h>
#include "server/shared.h"

#define ASKS "\"messages\":[{\"role\":\"user\",\"content\":\"What is the weather in Rome?\"}]"
#define ARGS                                                                                           \
    "{\"type\":\"object\",\"properties\":{\"city\":{\"enum\":[\"Rome\",\"Oslo\"]},\"days\":{\"type\":" \
    "\"integer\",\"minimum\":1,"                                                                       \
    "\"maximum\":7}},\"required\":[\"city\",\"days\"]}"
#define TOOLS                                                                                       \
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"description\":\"Tells " \
    "it.\",\"parameters\":" ARGS "}}]"

static void check_arguments(json_t *arguments)
{
    json_int_t days = json_integer_value(json_object_get(arguments, "days"));

    assert_true(!strcmp(text(arguments, "city"), "Rome") || !strcmp(text(arguments, "city"), "Oslo"));
    assert_in_range(days, 1, 7);
}

static void check_arguments_text(const char *arguments)
{
    json_t *value = json_loads(arguments, 0, NULL);

    if (!value)
        fail_msg("not JSON: %s", arguments);
    check_arguments(value);
    json_decref(value);
}

static void formats_are_kept(void **state)
{
    json_t *r =
        post("/v1/chat/completions", "{" ASKS ",\"seed\":1,\"response_format\":{\"type\":\"json_schema\","
                                     "\"json_schema\":{\"name\":\"a\",\"schema\":" ARGS "}}}");

    (void)state;
    check_arguments_text(text(r, "choices.0.message.content"));
    assert_string_equal(text(r, "choices.0.finish_reason"), "stop");
    json_decref(r);
    r = post("/v1/completions", "{\"prompt\":\"x\",\"seed\":1,\"json_schema\":" ARGS "}");
    check_arguments_text(text(r, "choices.0.text"));
    json_decref(r);
    r = post("/v1/chat/completions", "{" ASKS ",\"grammar\":\"root ::= \\\"yes\\\" | \\\"no\\\"\"}");
    assert_true(!strcmp(text(r, "choices.0.message.content"), "yes") ||
                !strcmp(text(r, "choices.0.message.content"), "no"));
    json_decref(r);
    r = post("/v1/chat/completions",
             "{" ASKS ",\"max_tokens\":20,\"response_format\":{\"type\":\"json_object\"}}");
    assert_int_equal(text(r, "choices.0.message.content")[0], '{');
    json_decref(r);
    r = post("/v1/responses", "{\"input\":\"x\",\"seed\":1,\"text\":{\"format\":{\"type\":\"json_schema\","
                              "\"name\":\"a\",\"schema\":" ARGS "}}}");
    check_arguments_text(text(r, "output.0.content.0.text"));
    json_decref(r);
}

static void a_tool_is_called_when_it_must_be(void **state)
{
    json_t *r =
        post("/v1/chat/completions",
             "{" ASKS "," TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"seed\":2}");

    (void)state;
    assert_string_equal(text(r, "choices.0.finish_reason"), "tool_calls");
    assert_true(json_is_null(at(r, "choices.0.message.content")));
    assert_string_equal(text(r, "choices.0.message.tool_calls.0.function.name"), "weather");
    check_arguments_text(text(r, "choices.0.message.tool_calls.0.function.arguments"));
    assert_null(at(r, "warnings"));
    json_decref(r);
    r = post(
        "/v1/responses",
        "{\"input\":\"x\",\"seed\":2,\"tools\":[{\"type\":\"function\",\"name\":\"weather\","
        "\"parameters\":" ARGS
        "}],\"tool_choice\":{\"type\":\"function\",\"name\":\"weather\"},\"parallel_tool_calls\":false}");
    assert_string_equal(text(r, "output.0.type"), "function_call");
    check_arguments_text(text(r, "output.0.arguments"));
    json_decref(r);
    r = post("/v1/messages",
             "{" ASKS ",\"max_tokens\":300,\"tools\":[{\"name\":\"weather\",\"input_schema\":" ARGS
             "}],\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}}");
    assert_string_equal(text(r, "stop_reason"), "tool_use");
    assert_string_equal(text(r, "content.0.name"), "weather");
    check_arguments(at(r, "content.0.input"));
    json_decref(r);
}

// Joins the arguments of all chunks.
static void streamed_arguments_join(void **state)
{
    struct response r = http_post(
        shared.port, "/v1/chat/completions",
        "{" ASKS "," TOOLS ",\"tool_choice\":\"required\",\"parallel_tool_calls\":false,\"stream\":true}");
    struct buf events = { 0 }, joined = { 0 };
    bool finished = false;

    (void)state;
    response_unchunk(&r, &events);
    for (const char *data = strstr(events.at, "data: {"); data; data = strstr(data + 6, "data: {")) {
        json_t *event = json_loadb(data + 6, strcspn(data + 6, "\n"), 0, NULL);
        buf_text(&joined, text(event, "choices.0.delta.tool_calls.0.function.arguments"));
        finished |= !strcmp(text(event, "choices.0.finish_reason"), "tool_calls");
        json_decref(event);
    }
    check_arguments_text(joined.at);
    assert_true(finished);
    buf_free(&events);
    buf_free(&joined);
    response_free(&r);
}

static void results_of_tools_reach_the_prompt(void **state)
{
    json_t *a = post("/apply-template",
                     "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
                     "\"content\":null,\"tool_calls\":[{"
                     "\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":\"weather\",\"arguments\":"
                     "\"{\\\"city\\\":\\\"Rome\\\"}"
                     "\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\",\"content\":\"sunny\"}]," TOOLS "}");
    const char *prompt = text(a, "prompt");

    (void)state;
    assert_non_null(strstr(prompt, "Tells it."));
    assert_non_null(strstr(prompt, "\"name\": \"weather\", \"arguments\": {\"city\":\"Rome\"}"));
    assert_non_null(strstr(prompt, "<tool_response>\nsunny"));
    json_decref(a);
    a = post(
        "/v1/messages",
        "{\"max_tokens\":2,\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\","
        "\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\",\"signature\":\"\"},{\"type\":\"tool_use\","
        "\"id\":\"c1\",\"name\":\"weather\",\"input\":{}}]},{\"role\":\"user\",\"content\":[{\"type\":"
        "\"tool_result\",\"tool_use_id\":\"c1\",\"content\":[{\"type\":\"text\",\"text\":\"sunny\"}]}]}]}");
    assert_string_equal(text(a, "type"), "message");
    json_decref(a);
    a = post("/v1/responses", "{\"max_output_tokens\":2,\"input\":[{\"role\":\"user\",\"content\":[{\"type\":"
                              "\"input_text\",\"text\":\"q\"}]},{"
                              "\"type\":\"function_call\",\"call_id\":\"c1\",\"name\":\"weather\","
                              "\"arguments\":\"{}\"},{\"type\":\"function_call_"
                              "output\",\"call_id\":\"c1\",\"output\":\"sunny\"}]}");
    assert_string_equal(text(a, "status"), "incomplete");
    json_decref(a);
}

static void a_response_streams_numbered_events(void **state)
{
    static const char *const order[] = { "response.created",           "response.in_progress",
                                         "response.output_item.added", "response.content_part.added",
                                         "response.output_text.delta", "response.output_text.done",
                                         "response.content_part.done", "response.output_item.done",
                                         "response.incomplete" };
    struct response r = http_post(shared.port, "/v1/responses",
                                  "{\"input\":\"Tell me a story.\",\"max_output_tokens\":6,\"stream\":true}");
    struct buf events = { 0 };
    json_int_t n = 0;
    size_t next = 0;

    (void)state;
    response_unchunk(&r, &events);
    for (const char *data = strstr(events.at, "data: {"); data; data = strstr(data + 6, "data: {")) {
        json_t *event = json_loadb(data + 6, strcspn(data + 6, "\n"), 0, NULL);
        assert_int_equal(json_integer_value(at(event, "sequence_number")), n++);
        if (next < 9 && !strcmp(text(event, "type"), order[next]))
            next++;
        json_decref(event);
    }
    assert_int_equal(next, 9);
    buf_free(&events);
    response_free(&r);
}

static void embeddings_have_length_one(void **state)
{
    json_t *r = post("/v1/embeddings", "{\"input\":[\"A fox.\",\"A fox.\",\"Ten trains leave at noon.\"]}"),
           *x;
    double dots[3] = { 0 };
    size_t i;

    (void)state;
    assert_int_equal(json_array_size(at(r, "data")), 3);
    json_array_foreach(at(r, "data.0.embedding"), i, x)
    {
        for (int k = 0; k < 3; k++)
            dots[k] +=
                json_real_value(x) *
                json_real_value(json_array_get(at(json_array_get(at(r, "data"), (size_t)k), "embedding"), i));
    }
    assert_true(fabs(dots[0] - 1) < 1e-5 && fabs(dots[1] - 1) < 1e-5 && dots[2] < 0.99);
    assert_true(json_integer_value(at(r, "usage.prompt_tokens")) > 10);
    json_decref(r);
    r = post("/v1/embeddings", "{\"input\":[5,6,7],\"encoding_format\":\"base64\",\"pooling\":\"last\"}");
    assert_true(strlen(text(r, "data.0.embedding")) > 100);
    json_decref(r);
}

// The first numbers, of length 1 among themselves; a list of lists of tokens is as many inputs.
static void embeddings_are_cut_and_taken_from_tokens(void **state)
{
    json_t *r = post("/v1/embeddings", "{\"input\":[[5,6,7],[8]],\"dimensions\":3,\"pooling\":\"cls\"}"),
           *whole = post("/v1/embeddings", "{\"input\":[5,6,7],\"pooling\":\"cls\"}"), *x;
    double squares = 0;
    size_t i;

    (void)state;
    assert_int_equal(json_array_size(at(r, "data")), 2);
    assert_int_equal(json_array_size(at(r, "data.1.embedding")), 3);
    assert_int_equal(json_integer_value(at(r, "usage.prompt_tokens")), 4);
    json_array_foreach(at(r, "data.0.embedding"), i, x) squares += json_real_value(x) * json_real_value(x);
    assert_true(fabs(squares - 1) < 1e-5);
    double first = json_real_value(at(whole, "data.0.embedding.0")),
           cut = json_real_value(at(r, "data.0.embedding.0")),
           second = json_real_value(at(whole, "data.0.embedding.1"));
    assert_true(fabs(cut * second - first * json_real_value(at(r, "data.0.embedding.1"))) < 1e-5);
    json_decref(r);
    json_decref(whole);
}

static void a_bias_bans_a_token(void **state)
{
    json_t *a = post("/v1/completions", "{\"prompt\":\"Once upon a\",\"max_tokens\":1,\"temperature\":0}"),
           *b, *id;
    json_t *ask = json_pack("{s:s}", "content", text(a, "choices.0.text"));
    char *asked = json_dumps(ask, 0), body[200];

    (void)state;
    id = post("/tokenize", asked);
    snprintf(body, sizeof body,
             "{\"prompt\":\"Once upon a\",\"max_tokens\":1,\"temperature\":0,\"logit_bias\":{\"%lld\":-100}}",
             (long long)json_integer_value(at(id, "tokens.0")));
    b = post("/v1/completions", body);
    assert_string_not_equal(text(a, "choices.0.text"), text(b, "choices.0.text"));
    free(asked);
    json_decref(ask);
    json_decref(a);
    json_decref(b);
    json_decref(id);
}

static void refused(const char *path, const char *body, const char *part)
{
    int status;
    json_t *r = http_json(shared.port, path, body, &status);

    serve_skip_log(&shared);
    if (status != 400 || !strstr(text(r, "error.message"), part))
        fail_msg("%s %.200s: status %d, %s", path, body, status, text(r, "error.message"));
    json_decref(r);
}

static void hostile_and_unsupported_requests_get_400(void **state)
{
    static const char chat[] = "/v1/chat/completions";
    struct buf body = { 0 };

    (void)state;
    refused(chat, "{" ASKS ",\"grammar\":\"root ::= root\"}", "left recursive");
    refused(chat, "{" ASKS ",\"grammar\":\"root ::= \\\"a\\\"{1,2000000000}\"}", "0 to 65536");
    refused(chat, "{" ASKS ",\"grammar\":\"x\"}", "::=");
    refused(chat, "{" ASKS ",\"json_schema\":{\"not\":{}}}", "'not'");
    refused(chat, "{" ASKS ",\"json_schema\":{\"$ref\":\"http://127.0.0.1/\"}}", "nothing is fetched");
    refused(chat, "{" ASKS ",\"json_schema\":{},\"grammar\":\"root ::= \\\"a\\\"\"}", "exclude each other");
    refused(chat, "{" ASKS ",\"json_schema\":{},\"ignore_eos\":true}", "ignore_eos");
    refused(chat, "{" ASKS ",\"tool_choice\":\"required\"}", "there are no tools");
    refused(chat,
            "{" ASKS "," TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"x\"}}}",
            "no tool is called 'x'");
    refused(chat, "{" ASKS ",\"tools\":[{\"type\":\"web_search\"}]}", "only functions");
    refused(chat, "{" ASKS ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\\\"\"}}]}",
            "name");
    refused(chat,
            "{" ASKS ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{"
            "\"not\":{}}}}],\"tool_"
            "choice\":\"required\"}",
            "'not'");
    refused(chat, "{" ASKS ",\"response_format\":{\"type\":\"xml\"}}", "xml");
    refused(chat, "{" ASKS ",\"logit_bias\":{\"a\":1}}", "logit_bias");
    refused(chat, "{" ASKS ",\"logit_bias\":{\"99999999\":1}}", "logit_bias: token 99999999");
    refused(chat,
            "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":"
            "\"http://127.0.0.1/"
            "\"}}]}]}",
            "fetches nothing");
    refused("/v1/responses", "{\"input\":[{\"type\":\"computer_call\"}]}", "computer_call");
    refused("/v1/responses", "{\"input\":[]}", "at least one");
    refused("/v1/embeddings", "{\"input\":\"x\",\"dimensions\":100000}", "dimensions is 100000");
    refused("/v1/embeddings", "{\"input\":\"x\",\"pooling\":\"max\"}", "mean, cls or last");
    refused("/v1/rerank", "{\"query\":\"x\",\"documents\":[\"a\"]}", "no reranker");
    refused("/v1/rerank", "{\"documents\":[\"a\"]}", "query is missing");
    refused("/v1/rerank", "{\"query\":\"x\",\"documents\":\"a\"}", "a list of texts");
    refused("/v1/rerank", "{\"query\":\"x\",\"documents\":[7]}", "want texts");
    refused("/v1/embeddings", "{\"input\":\"x\",\"encoding_format\":\"int8\"}", "int8");
    refused("/v1/embeddings", "{}", "input is missing");
    refused("/v1/messages",
            "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\"}]}]}",
            "picture");
    buf_text(&body, "{" ASKS ",\"grammar\":\"root ::= ");
    for (int i = 0; i < 60000; i++)
        buf_text(&body, "(");
    buf_text(&body, "\"}");
    refused(chat, body.at, "nested");
    buf_free(&body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_are_kept),
        cmocka_unit_test(a_tool_is_called_when_it_must_be),
        cmocka_unit_test(streamed_arguments_join),
        cmocka_unit_test(results_of_tools_reach_the_prompt),
        cmocka_unit_test(a_response_streams_numbered_events),
        cmocka_unit_test(embeddings_have_length_one),
        cmocka_unit_test(embeddings_are_cut_and_taken_from_tokens),
        cmocka_unit_test(a_bias_bans_a_token),
        cmocka_unit_test(hostile_and_unsupported_requests_get_400),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
