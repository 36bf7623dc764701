// test_serve_ollama.c - Ollama's paths: chats and prompts as lines of JSON, the map of options, formats,
// tools, thinking, what is here.
#include "server/shared.h"

#define CHAT     "/api/chat"
#define GENERATE "/api/generate"
#define FOX      "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a story about a fox.\"}]"
#define N_OF(a)  (sizeof(a) / sizeof *(a))

// The lines of a stream, each an object; the last one is returned, and what the path names in all of them
// appended to said.
static json_t *stream(const char *path, const char *body, const char *field, struct buf *said)
{
    struct response r = http_post(shared.port, path, body);
    struct buf lines = { 0 };
    json_t *last = NULL;

    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.all.at, "Content-Type: application/x-ndjson\r\n"));
    response_unchunk(&r, &lines);
    for (char *line = lines.at, *end; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        assert_non_null(end);
        *end = 0;
        assert_false(json_is_true(json_object_get(last, "done")));
        json_decref(last);
        last = json_loads(line, 0, NULL);
        assert_non_null(last);
        buf_text(said, text(last, field));
    }
    assert_true(json_is_true(json_object_get(last, "done")));
    buf_free(&lines);
    response_free(&r);
    serve_skip_log(&shared);
    return last;
}

static void a_chat_is_streamed_unless_told_otherwise(void **state)
{
    static const char options[] =
        "\"options\":{\"num_predict\":12,\"seed\":7,\"num_ctx\":2048,\"num_gpu\":1}";
    struct buf body = { 0 }, said = { 0 };

    (void)state;
    buf_printf(&body, "{" FOX ",%s,\"keep_alive\":\"5m\",\"stream\":false}", options);
    json_t *whole = post(CHAT, body.at);
    assert_string_equal(text(whole, "done_reason"), "length");
    assert_int_equal(json_integer_value(at(whole, "eval_count")), 12);
    assert_true(json_integer_value(at(whole, "prompt_eval_count")) > 5);
    assert_true(json_integer_value(at(whole, "eval_duration")) > 1000); // nanoseconds
    assert_null(at(whole, "warnings"));
    body.n = 0;
    buf_printf(&body, "{" FOX ",%s}", options);
    json_t *last = stream(CHAT, body.at, "message.content", &said);
    assert_string_equal(said.at, text(whole, "message.content"));
    assert_int_equal(json_integer_value(at(last, "eval_count")), 12);
    json_decref(last);
    said.n = 0;
    body.n = 0;
    buf_printf(&body, "{\"prompt\":\"Tell me a story about a fox.\",%s}", options);
    last = stream(GENERATE, body.at, "response", &said); // a prompt is a chat of one message
    assert_string_equal(said.at, text(whole, "message.content"));
    json_decref(last);
    json_decref(whole);
    buf_free(&body);
    buf_free(&said);
}

static void a_raw_prompt_passes_by_the_template(void **state)
{
    static const char tail[] =
        "\"prompt\":\"Once upon a time\",\"stream\":false,\"options\":{\"num_predict\":1}";
    struct buf body = { 0 };
    json_int_t n[3];

    (void)state;
    for (int i = 0; i < 3; i++) {
        body.n = 0;
        buf_printf(&body, "{%s%s}",
                   i == 0   ? "\"raw\":true,"
                   : i == 1 ? ""
                            : "\"system\":\"Be brief.\",",
                   tail);
        json_t *r = post(GENERATE, body.at);
        n[i] = json_integer_value(at(r, "prompt_eval_count"));
        json_decref(r);
    }
    assert_true(n[0] < n[1] && n[1] < n[2]);
    buf_free(&body);
}

static void nothing_to_say_loads_the_model(void **state)
{
    static const char *const bodies[] = { "{}", "{\"prompt\":\"\"}", "{\"messages\":[]}" };

    (void)state;
    for (size_t i = 0; i < N_OF(bodies); i++) {
        json_t *r = post(i == 2 ? CHAT : GENERATE, bodies[i]);
        assert_string_equal(text(r, "done_reason"), "load");
        assert_true(json_is_true(at(r, "done")));
        json_decref(r);
    }
}

#define SCHEMA \
    "{\"type\":\"object\",\"required\":[\"city\"],\"properties\":{\"city\":{\"enum\":[\"Rome\",\"Oslo\"]}}}"

static void a_format_is_kept(void **state)
{
    json_t *r = post(CHAT, "{" FOX ",\"stream\":false,\"format\":" SCHEMA "}"), *said;

    (void)state;
    said = json_loads(text(r, "message.content"), 0, NULL);
    assert_true(!strcmp(text(said, "city"), "Rome") || !strcmp(text(said, "city"), "Oslo"));
    json_decref(said);
    json_decref(r);
    r = post(CHAT, "{" FOX ",\"stream\":false,\"format\":\"json\",\"options\":{\"num_predict\":3}}");
    assert_int_equal(text(r, "message.content")[0], '{');
    json_decref(r);
}

#define ECHO "{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":" SCHEMA "}}"

// The model is free to call or not; what the last message begins it goes on with, so that a call comes for
// certain.
static void a_call_is_told_whole_and_as_an_object(void **state)
{
    static const char asked[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"Weather?\"}],\"tools\":[" ECHO "],%s"
        "\"options\":{\"num_predict\":60,\"temperature\":0}}";
    struct buf body = { 0 }, said = { 0 };

    (void)state;
    buf_printf(&body, asked, "\"stream\":false,");
    json_t *r = post(CHAT, body.at), *calls = at(r, "message.tool_calls"), *call;
    size_t i;
    json_array_foreach(calls, i, call)
    {
        assert_true(json_is_object(at(call, "function.arguments")));
    }
    body.n = 0;
    buf_printf(&body, asked, "");
    json_t *last = stream(CHAT, body.at, "message.content", &said);
    assert_string_equal(said.n ? said.at : "", text(r, "message.content"));
    json_decref(last);
    json_decref(r);
    r = post(CHAT, "{\"stream\":false,\"options\":{\"num_predict\":2,\"temperature\":0},\"messages\":[{"
                   "\"role\":\"user\",\"content\":"
                   "\"Weather?\"},"
                   "{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\",\"tool_calls\":[{"
                   "\"function\":{\"name\":\"weather\","
                   "\"arguments\":{\"city\":\"Rome\"}}}]},{\"role\":\"tool\",\"tool_name\":\"weather\","
                   "\"content\":\"sunny\"}]}");
    assert_int_equal(json_integer_value(at(r, "eval_count")), 2);
    json_decref(r);
    buf_free(&body);
    buf_free(&said);
}

static void what_is_not_here_is_said(void **state)
{
    static const struct {
        const char *path, *body, *words;
        int status;
    } cases[] = {
        { CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"images\":[\"aGk=\"]}]}", "no pictures",
          400 },
        { GENERATE, "{\"prompt\":\"x\",\"images\":[\"aGk=\"]}", "no pictures", 400 },
        { CHAT, "{" FOX ",\"options\":{\"temperature\":\"hot\"}}", "options: temperature", 400 },
        { CHAT, "{" FOX ",\"options\":3}", "options: want an object", 400 },
        { CHAT, "{" FOX ",\"format\":\"xml\"}", "format", 400 },
        { CHAT, "{" FOX ",\"think\":3}", "think", 400 },
        { CHAT, "{\"messages\":1}", "messages", 400 },
        { "/api/show", "{\"model\":\"none\"}", "'none' is not here", 404 },
        { "/api/show", "{}", "not here", 404 },
        { CHAT, "{" FOX ",\"options\":{\"mirostat\":2},\"strict\":true}", "mirostat", 400 },
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        int status;
        json_t *r = reply_of(cases[i].path, cases[i].body, &status);
        assert_int_equal(status, cases[i].status);
        if (!json_is_string(at(r, "error")) || !strstr(text(r, "error"), cases[i].words))
            fail_msg("%s: %s", cases[i].body, json_dumps(r, 0));
        json_decref(r);
    }
}

static void names_have_a_tag_or_none(void **state)
{
    struct response r = http_with(shared.port, "/api/tags", "", NULL);
    json_t *tags = json_loads(r.body, 0, NULL);
    struct buf body = { 0 };

    (void)state;
    buf_printf(&body, "{\"model\":\"%s:latest\"," FOX ",\"stream\":false,\"options\":{\"num_predict\":1}}",
               text(tags, "models.0.name"));
    json_t *answer = post(CHAT, body.at), *shown = post("/api/show", body.at);
    assert_null(at(answer, "warnings"));
    assert_string_equal(text(shown, "details.family"), text(tags, "models.0.details.family"));
    // one name with dots in it
    assert_true(json_integer_value(at(shown, "model_info.general.parameter_count")) == 0);
    assert_non_null(json_object_get(at(shown, "model_info"), "general.parameter_count"));
    json_decref(answer);
    json_decref(shown);
    json_decref(tags);
    response_free(&r);
    buf_free(&body);
    assert_int_equal(http_status(shared.port, "/api/ps"), 200);
    assert_int_equal(http_status(shared.port, "/api/version"), 200);
}

static void texts_are_embedded(void **state)
{
    json_t *r = post("/api/embed", "{\"input\":[\"A fox.\",\"A train.\"],\"keep_alive\":0}"),
           *other = post("/v1/embeddings", "{\"input\":\"A train.\"}");

    (void)state;
    assert_int_equal(json_array_size(at(r, "embeddings")), 2);
    assert_true(json_equal(at(r, "embeddings.1"), at(other, "data.0.embedding")));
    json_decref(r);
    json_decref(other);
}

static void log_probabilities_come_with_each_piece(void **state)
{
    struct buf said = { 0 };
    json_t *last = stream(GENERATE,
                          "{\"prompt\":\"Once\",\"raw\":true,\"logprobs\":true,\"top_logprobs\":2,"
                          "\"options\":{\"num_predict\":4,"
                          "\"temperature\":0}}",
                          "logprobs.0.token", &said),
           *whole = post(GENERATE, "{\"prompt\":\"Once\",\"raw\":true,\"logprobs\":true,\"stream\":false,"
                                   "\"options\":{\"num_predict\":4,"
                                   "\"temperature\":0}}");

    (void)state;
    assert_string_equal(said.at, text(whole, "response"));
    assert_int_equal(json_array_size(at(whole, "logprobs")), json_integer_value(at(whole, "eval_count")));
    json_decref(last);
    json_decref(whole);
    buf_free(&said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chat_is_streamed_unless_told_otherwise),
        cmocka_unit_test(a_raw_prompt_passes_by_the_template),
        cmocka_unit_test(nothing_to_say_loads_the_model),
        cmocka_unit_test(a_format_is_kept),
        cmocka_unit_test(a_call_is_told_whole_and_as_an_object),
        cmocka_unit_test(what_is_not_here_is_said),
        cmocka_unit_test(names_have_a_tag_or_none),
        cmocka_unit_test(texts_are_embedded),
        cmocka_unit_test(log_probabilities_come_with_each_piece),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
