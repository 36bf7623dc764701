// test_serve_habits.c - what ordinary clients are used to: paths without /v1, preflights, request ids, the
// field at fault in an error, answers that go on from what the client gives, and texts that JavaScript cut in
// the middle of a character.
#include "server/model_folder.h"
#include "server/shared.h"

#define CHAT     "/v1/chat/completions"
#define RESPONSE "/v1/responses"
#define N_OF(a)  (sizeof(a) / sizeof *(a))
#define ASKED    "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a story about a fox.\"}"

static void paths_are_there_without_their_version(void **state)
{
    static const char *const paths[] = { "/chat/completions", "/completions",
                                         "/responses",        "/embeddings",
                                         "/messages",         "/models",
                                         "/models/x",         "/responses/input_tokens" };

    (void)state;
    for (size_t i = 0; i < N_OF(paths); i++) {
        char path[64];
        snprintf(path, sizeof path, "/v1%s", paths[i]);
        struct response with = http_post(shared.port, path, "{}"),
                        without = http_post(shared.port, paths[i], "{}");
        assert_int_equal(with.status, without.status);
        assert_int_not_equal(with.status, 404);
        response_free(&with);
        response_free(&without);
    }
    assert_int_equal(http_status(shared.port, "/models"), 200);
    assert_int_equal(http_status(shared.port, "/v1/health"), 404);
    assert_int_equal(http_status(shared.port, "/v1"), 404);
}

static void a_request_has_an_id(void **state)
{
    struct response a = http_post(shared.port, CHAT, "{}"), b = http_post(shared.port, CHAT, "{}"),
                    c = http_post(shared.port, "/v1/messages", "{}");
    const char *id = strstr(a.all.at, "X-Request-Id: req_"), *other = strstr(b.all.at, "X-Request-Id: req_"),
               *anthropic = strstr(c.all.at, "\r\nRequest-Id: req_");

    (void)state;
    assert_non_null(id);
    assert_non_null(other);
    assert_non_null(anthropic);
    assert_memory_not_equal(id, other, 34);
    json_t *body = json_loads(c.body, 0, NULL);
    assert_memory_equal(text(body, "request_id"), anthropic + strlen("\r\nRequest-Id: "), 20);
    json_decref(body);
    response_free(&a);
    response_free(&b);
    response_free(&c);
}

// The headers that both SDKs send from a browser, as a browser asks for them.
static void a_preflight_allows_what_is_asked_for(void **state)
{
    static const char *const args[] = { "--cors-origin", "http://app.test", "--api-key", "k", NULL };
    static const char wanted[] = "anthropic-beta,anthropic-dangerous-direct-browser-access,anthropic-version,"
                                 "authorization,content-type,openai-"
                                 "organization,"
                                 "x-api-key,x-stainless-arch,x-stainless-lang,x-stainless-os,x-stainless-"
                                 "package-version,x-stainless-retry-count,"
                                 "x-stainless-runtime,x-stainless-runtime-version,x-stainless-timeout";
    struct served s = serve_start(args);
    struct buf head = { 0 };
    char line[600];

    (void)state;
    buf_printf(&head,
               "OPTIONS " CHAT
               " HTTP/1.1\r\nHost: localhost\r\nOrigin: http://app.test\r\nConnection: close\r\n"
               "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: %s\r\n\r\n",
               wanted);
    struct response r = http_raw(s.port, head.at, head.n);
    assert_int_equal(r.status, 204);
    snprintf(line, sizeof line, "Access-Control-Allow-Headers: %s\r\n", wanted);
    assert_non_null(strstr(r.all.at, line));
    response_free(&r);
    r = http_with(s.port, "/v1/models", "Origin: http://app.test\r\nAuthorization: Bearer k\r\n", NULL);
    assert_non_null(strstr(r.all.at, "Access-Control-Expose-Headers: Request-Id, X-Request-Id"));
    response_free(&r);
    buf_free(&head);
    assert_int_equal(serve_stop(&s), 0);
}

static void an_error_names_its_field(void **state)
{
    static const struct {
        const char *path, *body, *param;
    } cases[] = {
        { CHAT, "{\"messages\":[]}", "messages" },
        { CHAT, "{" ASKED "],\"temperature\":\"hot\"}", "temperature" },
        { CHAT, "{" ASKED "],\"stop\":[\"a\",1]}", "stop" },
        { CHAT, "{\"messages\":[{\"role\":\"nobody\",\"content\":\"x\"}]}", "messages[0].role" },
        { CHAT, "{" ASKED "],\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"}}", "tool_choice" },
        { CHAT, "{\"messages\":[{\"role\":\"user\"}]}", "messages[0].content" },
        { CHAT, "{" ASKED "],\"logit_bias\":{\"99999\":1}}", "logit_bias" },
        { CHAT, "{\"messages\":[{\"role\":\"system\",\"content\":null}]}", "messages[0].content" },
        { "/v1/embeddings", "{\"input\":\"x\",\"encoding_format\":\"hex\"}", "encoding_format" },
        { "/v1/embeddings", "{\"input\":[]}", "input" },
        { "/v1/embeddings", "{\"input\":[\"x\",\"\"]}", "input" },
        { "/v1/embeddings", "{\"input\":[[5],[99999]]}", "input" },
        { "/v1/embeddings", "{\"input\":{\"text\":\"x\"}}", "input" },
        { "/v1/completions", "{\"prompt\":\"\"}", "prompt" },
        { RESPONSE, "{\"input\":[]}", "input" },
        { CHAT, "{" ASKED "],", NULL }, // the body as a whole
        { CHAT, "[]", NULL },
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        int status;
        json_t *r = reply_of(cases[i].path, cases[i].body, &status);
        assert_int_equal(status, 400);
        if (cases[i].param)
            assert_string_equal(text(r, "error.param"), cases[i].param);
        else
            assert_true(json_is_null(at(r, "error.param")));
        json_decref(r);
    }
}

static void json_is_refused_in_words_of_ours(void **state)
{
    static const struct {
        const char *body, *words;
    } cases[] = {
        { "{\"model\": \"a\", \"model\": \"b\"}", "twice in one object" },
        { "{\"model\": ", "ends too early, at byte 10 (line 1) behind '{\"model\": '" },
        { "{\"model\": \"x\"} {}", "something follows its end" },
        { "{\"model\": \"\xff\"}", "not UTF-8" },
        { "{\"model\": \"\\u0000\"}", "a NUL character" },
        { "{'model': 1}", "no valid JSON" },
        { "{\"n\": 1e999}", "too large" },
        { "null", "the body is null; want a JSON object" },
        { "\"x\"", "the body is a string; want a JSON object" },
        { "-3", "the body is an integer; want a JSON object" },
        { "{\"model\": \"\\ud83d\" \"x\"}", "no valid JSON" }, // mended, and still none
    };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        int status;
        json_t *r = reply_of(CHAT, cases[i].body, &status);
        assert_int_equal(status, 400);
        if (!strstr(text(r, "error.message"), cases[i].words))
            fail_msg("%s: %s", cases[i].body, text(r, "error.message"));
        json_decref(r);
    }
}

// The prompt that a text in JSON becomes, as tokens told as text.
static void expect_read(const char *json, const char *expected)
{
    struct buf body = { 0 };

    buf_printf(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]}", json);
    json_t *r = post("/apply-template", body.at);
    if (!strstr(text(r, "prompt"), expected))
        fail_msg("%s became %s", json, text(r, "prompt"));
    json_decref(r);
    buf_free(&body);
}

static void half_a_character_is_read_as_its_replacement(void **state)
{
    (void)state;
    expect_read("a\\ud83d", "a\xef\xbf\xbd");
    expect_read("\\uDE00b", "\xef\xbf\xbd"
                            "b");
    expect_read("\\ud83d\\ud83d\\ude00", "\xef\xbf\xbd\xf0\x9f\x98\x80");
    expect_read("\\ud83d\\u0041", "\xef\xbf\xbd"
                                  "A");
    expect_read("\\ud83d\\ude00", "\xf0\x9f\x98\x80");
    expect_read("\\\\ud83d \\ud83d", "\\ud83d \xef\xbf\xbd"); // a backslash and letters are no escape
}

static void minus_one_is_no_limit(void **state)
{
    static const char *const fields[][2] = { { CHAT, "max_tokens" },
                                             { CHAT, "max_completion_tokens" },
                                             { "/v1/completions", "max_tokens" },
                                             { RESPONSE, "max_output_tokens" },
                                             { "/v1/messages", "max_tokens" } };

    (void)state;
    for (size_t i = 0; i < N_OF(fields); i++) {
        struct buf body = { 0 };
        int status;
        buf_printf(&body,
                   "{" ASKED
                   "],\"input\":\"x\",\"prompt\":\"x\",\"stop\":\"e\",\"stop_sequences\":[\"e\"],\"%s\":-1}",
                   fields[i][1]);
        json_decref(reply_of(fields[i][0], body.at, &status));
        assert_int_equal(status, 200);
        body.n -= 2;
        buf_text(&body, "2}"); // -2
        json_decref(reply_of(fields[i][0], body.at, &status));
        assert_int_equal(status, 400);
        buf_free(&body);
    }
}

// ---- an answer that has begun

#define BEGUN ",{\"role\":\"assistant\",\"content\":\"Once upon\"}"

static char *prompt_of(const char *body)
{
    json_t *r = post("/apply-template", body);
    char *prompt = strdup(text(r, "prompt"));
    json_decref(r);
    return prompt;
}

static void the_assistants_last_message_is_continued(void **state)
{
    char *asked = prompt_of("{" ASKED "]}"), *begun = prompt_of("{" ASKED BEGUN "]}"),
         *parts = prompt_of(
             "{" ASKED
             ",{\"role\":\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"Once upon\"}]}]}"),
         *closed = prompt_of("{" ASKED BEGUN "],\"continue_final_message\":false}"),
         *whole = prompt_of("{" ASKED BEGUN "],\"add_generation_prompt\":false}"),
         *forced =
             prompt_of("{" ASKED BEGUN "],\"add_generation_prompt\":false,\"continue_final_message\":true}"),
         *bare = prompt_of("{" ASKED "],\"add_generation_prompt\":false}");
    size_t n = strlen(asked);

    (void)state;
    assert_memory_equal(begun, asked, n);
    assert_string_equal(begun + n, "Once upon");
    assert_string_equal(parts, begun);
    assert_string_equal(forced, begun);
    // the turn ends, and another begins
    assert_true(strlen(closed) > strlen(begun) && strlen(whole) < strlen(closed));
    assert_string_not_equal(whole, begun);
    assert_true(strlen(bare) < n);
    assert_memory_equal(bare, asked, strlen(bare));
    free(asked);
    free(begun);
    free(parts);
    free(closed);
    free(whole);
    free(forced);
    free(bare);
}

static void what_is_continued_is_not_told_again(void **state)
{
    json_t *whole = post(CHAT, "{" ASKED "],\"temperature\":0,\"max_tokens\":24}"), *begun;
    const char *said = text(whole, "choices.0.message.content");
    struct buf body = { 0 };
    int status;

    (void)state;
    size_t n = 0;
    for (int words = 0; words < 4; n++, words += said[n] == ' ')
        assert_true(said[n] != 0);
    json_t *half = json_stringn(said, n); // before a space, where the tokens of the whole have a border too
    char *quoted = json_dumps(half, JSON_ENCODE_ANY);
    buf_printf(&body,
               "{" ASKED ",{\"role\":\"assistant\",\"content\":%s}],\"temperature\":0,\"max_tokens\":6}",
               quoted);
    begun = post(CHAT, body.at);
    assert_memory_equal(text(begun, "choices.0.message.content"), said + n, 4);
    json_decref(begun);
    begun = post("/v1/messages", body.at);
    assert_memory_equal(text(begun, "content.0.text"), said + n, 4);
    assert_null(at(begun, "warnings"));
    json_decref(begun);
    json_decref(reply_of(
        CHAT, "{" ASKED BEGUN "],\"max_tokens\":1,\"response_format\":{\"type\":\"json_object\"}}", &status));
    assert_int_equal(status, 400); // a format is that of a whole answer
    json_decref(reply_of(CHAT, "{" ASKED "],\"max_tokens\":1,\"continue_final_message\":true}", &status));
    assert_int_equal(status, 400);
    free(quoted);
    json_decref(half);
    json_decref(whole);
    buf_free(&body);
}

// What the prompt of a model that reasons ends with, behind the generation prompt.
static void expect_begun(const struct served *s, const char *message, const char *end)
{
    struct buf body = { 0 };
    int status;

    buf_printf(&body, "{" ASKED ",{\"role\":\"assistant\",%s}]}", message);
    json_t *r = http_json(s->port, "/apply-template", body.at, &status);
    struct str prompt = str_from(text(r, "prompt")), mark = STR("<|im_start|>assistant\n");
    size_t at_ = str_find(prompt, mark);
    if (status != 200 || at_ == SIZE_MAX || strcmp(prompt.at + at_ + mark.n, end) != 0)
        fail_msg("%s: %d %s", message, status, prompt.at);
    json_decref(r);
    buf_free(&body);
    serve_skip_log(s);
}

// Whose fault it is: the template's, and no field's.
static void expect_template_refuses(const struct served *s)
{
    int status;
    json_t *r =
        http_json(s->port, CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"raise\"}]}", &status);

    assert_int_equal(status, 400);
    assert_non_null(strstr(text(r, "error.message"), "the model's chat template"));
    assert_true(json_is_null(at(r, "error.param")));
    json_decref(r);
    serve_skip_log(s);
}

static void reasoning_is_continued_too(void **state)
{
    static const char *const ends[] = {
        "", "<think>\\n"
    }; // of generation prompts, in a string of the template's
    char folder[] = "/tmp/ingot-habits-XXXXXX";
    const char *args[] = { "-m", folder, NULL };

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < N_OF(ends); i++) {
        struct buf template = { 0 };
        buf_printf(&template,
                   "{%% for m in messages %%}{{ raise_exception('no') if m.content == 'raise' }}{{ "
                   "'<|im_start|>' + m.role + "
                   "'\\n' + m.content + '<|im_end|>\\n' }}{%% endfor %%}"
                   "{%% if add_generation_prompt %%}{{ '<|im_start|>assistant\\n%s' }}{%% endif %%}",
                   ends[i]);
        model_folder_make(folder, NULL, 0, buf_as_str(&template));
        struct served s = serve_start(args);
        expect_begun(&s, "\"content\":\"So\"", i ? "<think>\n\n</think>\n\nSo" : "So");
        expect_begun(&s, "\"content\":\"So\",\"reasoning_content\":\"Hm\"", "<think>\nHm\n</think>\n\nSo");
        expect_begun(&s, "\"content\":\"\",\"reasoning_content\":\"Hm\"", "<think>\nHm"); // it thinks on
        expect_template_refuses(&s);
        assert_int_equal(serve_stop(&s), 0);
        buf_free(&template);
    }
    assert_int_equal(model_folder_remove(folder), 0);
}

// ---- tools, tokens, embeddings

#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define FLAT(name) "{\"type\":\"function\",\"name\":\"" name "\"}"
#define ALLOWED(mode)                                                                 \
    "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":{\"mode\":\"" mode \
    "\",\"tools\":[" TOOL("b") "]}}"
#define TOOLS "\"tools\":[" TOOL("a") "," TOOL("b") "," TOOL("c") "]"

static void only_allowed_tools_are_called(void **state)
{
    int status;

    (void)state;
    for (int seed = 0; seed < 4; seed++) {
        struct buf body = { 0 };
        buf_printf(&body,
                   "{" ASKED "]," TOOLS "," ALLOWED("required") ",\"seed\":%d,\"parallel_tool_calls\":false}",
                   seed);
        json_t *r = post(CHAT, body.at);
        assert_string_equal(text(r, "choices.0.message.tool_calls.0.function.name"), "b");
        json_decref(r);
        buf_free(&body);
    }
    json_t *r =
        post("/v1/responses",
             "{\"input\":\"x\",\"parallel_tool_calls\":false,\"tools\":[" FLAT("a") "," FLAT(
                 "b") "],"
                      "\"tool_choice\":{\"type\":\"allowed_tools\",\"mode\":\"required\",\"tools\":[" FLAT(
                          "b") "]}}");
    assert_string_equal(text(r, "output.0.name"), "b");
    json_decref(r);
    r = post(CHAT, "{" ASKED "]," TOOLS "," ALLOWED("auto") ",\"max_tokens\":2}");
    assert_null(at(r, "warnings"));
    json_decref(r);
    r = reply_of(CHAT, "{" ASKED "],\"tools\":[" TOOL("a") "]," ALLOWED("auto") "}", &status);
    assert_int_equal(status, 400);
    assert_non_null(strstr(text(r, "error.message"), "'b'"));
    json_decref(r);
}

static void an_assistant_may_have_said_nothing(void **state)
{
    static const char *const said[] = { "null", "\"\"" };
    char *prompts[2];

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct buf body = { 0 };
        buf_printf(&body,
                   "{" ASKED
                   ",{\"role\":\"assistant\",\"content\":%s},{\"role\":\"user\",\"content\":\"Well?\"}]}",
                   said[i]);
        prompts[i] = prompt_of(body.at);
        buf_free(&body);
    }
    assert_string_equal(prompts[0], prompts[1]);
    free(prompts[0]);
    free(prompts[1]);
}

// A client sends back what the assistant declined to do, as a part or in the place of the content.
static void a_refusal_is_told_to_the_model(void **state)
{
    static const char *const refused[] = {
        "\"content\":[{\"type\":\"refusal\",\"refusal\":\"I will not.\"}]",
        "\"content\":null,\"refusal\":\"I will not.\"",
    };

    (void)state;
    for (size_t i = 0; i < N_OF(refused); i++) {
        char body[512];
        snprintf(body, sizeof body,
                 "{" ASKED ",{\"role\":\"assistant\",%s},{\"role\":\"user\",\"content\":\"y\"}]}",
                 refused[i]);
        json_t *r = post("/apply-template", body);
        assert_non_null(strstr(text(r, "prompt"), "I will not."));
        json_decref(r);
    }
}

static void a_refusal_of_responses_is_text(void **state)
{
    (void)state;
    json_decref(
        post(RESPONSE "/input_tokens",
             "{\"input\":[{\"role\":\"user\",\"content\":\"x\"},{\"type\":\"message\",\"role\":\"assistant\","
             "\"content\":[{\"type\":\"refusal\",\"refusal\":\"No.\"}]}]}"));
}

// Of the prompt's tokens, which count once whatever n is.
static void cached_tokens_are_tokens_of_the_prompt(void **state)
{
    static const char body[] = "{" ASKED "],\"max_tokens\":1,\"n\":4}";

    (void)state;
    json_decref(post(CHAT, body));
    json_t *r = post(CHAT, body), *cached = at(r, "usage.prompt_tokens_details.cached_tokens");
    assert_true(json_integer_value(cached) > 0);
    assert_true(json_integer_value(cached) < json_integer_value(at(r, "usage.prompt_tokens")));
    json_decref(r);
}

static void a_responses_tokens_are_counted(void **state)
{
    static const char body[] =
        "{\"input\":\"Tell me a story.\",\"instructions\":\"Be brief.\",\"max_output_tokens\":1}";
    json_t *counted = post("/v1/responses/input_tokens", body), *r = post(RESPONSE, body);

    (void)state;
    assert_string_equal(text(counted, "object"), "response.input_tokens");
    assert_int_equal(json_integer_value(at(counted, "input_tokens")),
                     json_integer_value(at(r, "usage.input_tokens")));
    json_decref(counted);
    json_decref(r);
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(INGOT_VALGRIND)
enum { N_TEXTS = 256 }; // the client does not wait for more
#else
enum { N_TEXTS = 2048 };
#endif

// Texts "0" to "n - 1".
static struct buf many_texts(int n)
{
    struct buf body = { 0 };

    buf_text(&body, "{\"input\":[");
    for (int i = 0; i < n; i++)
        buf_printf(&body, "%s\"%d\"", i ? "," : "", i);
    buf_text(&body, "]}");
    return body;
}

static void many_texts_are_embedded_at_once(void **state)
{
    struct buf body = many_texts(N_TEXTS), too_many = many_texts(2049);
    int status;

    (void)state;
    json_t *r = post("/v1/embeddings", body.at), *again = post("/v1/embeddings", "{\"input\":\"255\"}");
    assert_int_equal(json_array_size(at(r, "data")), N_TEXTS);
    assert_int_equal(json_integer_value(at(r, "data.255.index")), 255);
    assert_true(json_equal(at(r, "data.255.embedding"), at(again, "data.0.embedding")));
    json_decref(r);
    json_decref(again);
    json_decref(reply_of("/v1/embeddings", too_many.at, &status));
    assert_int_equal(status, 400);
    buf_free(&body);
    buf_free(&too_many);
    // every place in the queue was given back
    assert_true(metric(shared.port, "vllm:num_requests_waiting") == 0);
}

// --limits shows in /health, /metrics and the number of sequences.
static void a_response_repeats_what_was_asked(void **state)
{
    static const char tool[] =
        "{\"type\":\"function\",\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{}}}";
    char body[512];

    (void)state;
    json_t *r = post(
        RESPONSE,
        "{\"input\":\"x\",\"max_output_tokens\":2,\"instructions\":\"Be brief.\",\"metadata\":{\"a\":\"b\"},"
        "\"text\":{\"format\":{\"type\":\"json_object\"}}}");
    assert_string_equal(text(r, "instructions"), "Be brief.");
    assert_string_equal(text(r, "metadata.a"), "b");
    assert_string_equal(text(r, "text.format.type"), "json_object");
    assert_int_equal(json_integer_value(at(r, "max_output_tokens")), 2);
    json_decref(r);
    snprintf(
        body, sizeof body,
        "{\"input\":\"x\",\"max_output_tokens\":2,\"instructions\":null,\"text\":{\"verbosity\":\"low\"},"
        "\"tool_choice\":{\"type\":\"function\",\"name\":\"f\"},\"tools\":[%s]}",
        tool);
    r = post(RESPONSE, body);
    assert_true(json_is_null(at(r, "instructions")));
    assert_string_equal(text(r, "text.format.type"), "text");
    assert_string_equal(text(r, "tools.0.name"), "f");
    assert_string_equal(text(r, "tool_choice.name"), "f");
    json_decref(r);
}

static void settings_are_told_as_they_were_written(void **state)
{
    (void)state;
    struct response r = http_with(shared.port, "/props", "", NULL);
    assert_non_null(strstr(r.body, "\"temperature\":0.8,"));
    assert_non_null(strstr(r.body, "\"top_p\":0.95,"));
    response_free(&r);
    r = http_post(shared.port, RESPONSE, "{\"input\":\"x\",\"max_output_tokens\":1,\"temperature\":0.3}");
    assert_non_null(strstr(r.body, "\"temperature\":0.3,"));
    response_free(&r);
}

static void limits_are_counted(void **state)
{
    static const char *const args[] = { "--limits", "compute=0.5,batch=2,power=off", NULL };
    struct served s = serve_start(args);
    int status;
    (void)state;
    json_decref(http_json(s.port, "/v1/completions", "{\"prompt\": \"a\", \"max_tokens\": 3}", &status));
    assert_int_equal(status, 200);
    struct response r = http_with(s.port, "/health", "", NULL);
    assert_non_null(strstr(r.body, "\"device\":\"cpu"));
    assert_non_null(strstr(r.body, "\"paused\":false"));
    response_free(&r);
    assert_true(metric(s.port, "ingot:limited_requests_total") == 1);
    assert_true(metric(s.port, "ingot:limited_steps_total") > 0);
    assert_true(metric(s.port, "ingot:load_paused") == 0);
    r = http_with(s.port, "/props", "", NULL);
    assert_non_null(strstr(r.body, "\"total_slots\":2"));
    response_free(&r);
    serve_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_are_there_without_their_version),
        cmocka_unit_test(a_request_has_an_id),
        cmocka_unit_test(a_preflight_allows_what_is_asked_for),
        cmocka_unit_test(an_error_names_its_field),
        cmocka_unit_test(json_is_refused_in_words_of_ours),
        cmocka_unit_test(half_a_character_is_read_as_its_replacement),
        cmocka_unit_test(minus_one_is_no_limit),
        cmocka_unit_test(the_assistants_last_message_is_continued),
        cmocka_unit_test(what_is_continued_is_not_told_again),
        cmocka_unit_test(reasoning_is_continued_too),
        cmocka_unit_test(only_allowed_tools_are_called),
        cmocka_unit_test(an_assistant_may_have_said_nothing),
        cmocka_unit_test(a_refusal_is_told_to_the_model),
        cmocka_unit_test(a_refusal_of_responses_is_text),
        cmocka_unit_test(cached_tokens_are_tokens_of_the_prompt),
        cmocka_unit_test(a_responses_tokens_are_counted),
        cmocka_unit_test(many_texts_are_embedded_at_once),
        cmocka_unit_test(a_response_repeats_what_was_asked),
        cmocka_unit_test(settings_are_told_as_they_were_written),
        cmocka_unit_test(limits_are_counted),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
