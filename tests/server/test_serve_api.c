// test_serve_api.c - what the server answers: OpenAI's and Anthropic's interfaces, whole and streamed, and
// what it refuses.
//
// The real program with the model that ships inside, over real sockets.
#include <sys/stat.h>
#include "server/model_folder.h"
#include "server/shared.h"

static const char *text_at(json_t *reply, const char *first, size_t index, const char *second,
                           const char *third)
{
    json_t *item = json_array_get(json_object_get(reply, first), index);
    if (second)
        item = json_object_get(item, second);
    const char *text = json_string_value(third ? json_object_get(item, third) : item);
    return text ? text : "";
}

static json_int_t number_at(json_t *reply, const char *first, const char *second)
{
    return json_integer_value(json_object_get(json_object_get(reply, first), second));
}

// The content of all chunks, joined. *n_events counts them without [DONE].
static void join_stream(const char *body, struct buf *text, size_t *n_events, bool *done)
{
    *n_events = 0;
    *done = false;
    for (const char *at = strstr(body, "data: "); at; at = strstr(at, "data: ")) {
        at += 6;
        const char *end = strstr(at, "\n\n");
        assert_non_null(end);
        if (!strncmp(at, "[DONE]", 6)) {
            *done = true;
            continue;
        }
        json_t *event = json_loadb(at, (size_t)(end - at), 0, NULL);
        if (!event)
            fail_msg("not JSON: %.*s", (int)(end - at), at);
        json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
        json_t *delta = json_object_get(json_object_get(choice, "delta"), "content");
        buf_text(text, json_is_string(delta) ? json_string_value(delta) : "");
        (*n_events)++;
        json_decref(event);
    }
}

static void refused(const char *path, const char *body)
{
    struct response r = http_post(shared.port, path, body);

    serve_skip_log(&shared); // a full pipe would stop the server
    if (r.status != 400)
        fail_msg("%s %.300s: status %d", path, body, r.status);
    response_free(&r);
}

#define FOX         "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me a short story about a fox.\"}]"
#define CHAT        "/v1/chat/completions"
#define TEXT        "/v1/completions"
#define N_OF(array) (sizeof(array) / sizeof *(array))

static void chat_answers_with_usage_and_figures(void **state)
{
    int status;
    json_t *r = http_json(shared.port, CHAT, "{" FOX ",\"max_tokens\":8,\"temperature\":0}", &status);

    (void)state;
    assert_int_equal(status, 200);
    assert_string_equal(json_string_value(json_object_get(r, "object")), "chat.completion");
    assert_true(strlen(text_at(r, "choices", 0, "message", "content")) > 0);
    assert_string_equal(text_at(r, "choices", 0, "finish_reason", NULL), "length");
    assert_int_equal(number_at(r, "usage", "completion_tokens"), 8);
    assert_int_equal(number_at(r, "usage", "total_tokens"), number_at(r, "usage", "prompt_tokens") + 8);
    assert_int_equal(number_at(r, "timings", "predicted_n"), 8);
    assert_null(json_object_get(r, "warnings"));
    json_decref(r);
}

static void a_stream_joins_to_the_whole_answer(void **state)
{
    int status;
    struct buf events = { 0 }, text = { 0 };
    size_t n;
    bool done;
    json_t *whole = http_json(shared.port, CHAT, "{" FOX ",\"max_tokens\":40,\"seed\":7}", &status);
    struct response r = http_post(
        shared.port, CHAT,
        "{" FOX ",\"max_tokens\":40,\"seed\":7,\"stream\":true,\"stream_options\":{\"include_usage\":true}}");

    (void)state;
    assert_int_equal(r.status, 200);
    assert_non_null(strstr(r.all.at, "text/event-stream"));
    response_unchunk(&r, &events);
    join_stream(events.at, &text, &n, &done);
    assert_string_equal(text.at, text_at(whole, "choices", 0, "message", "content"));
    assert_true(done && n >= 10);
    assert_non_null(strstr(events.at, "\"completion_tokens\":40"));
    buf_free(&events);
    buf_free(&text);
    response_free(&r);
    json_decref(whole);
}

static void a_seed_repeats_and_n_differs(void **state)
{
    int status;
    const char *body = "{" FOX ",\"max_tokens\":24,\"seed\":3,\"n\":3,\"temperature\":1.5}";
    json_t *a = http_json(shared.port, CHAT, body, &status), *b = http_json(shared.port, CHAT, body, &status);

    (void)state;
    assert_true(json_equal(json_object_get(a, "choices"), json_object_get(b, "choices")));
    assert_int_equal(json_array_size(json_object_get(a, "choices")), 3);
    assert_string_not_equal(text_at(a, "choices", 0, "message", "content"),
                            text_at(a, "choices", 1, "message", "content"));
    json_decref(a);
    json_decref(b);
}

static void a_stop_string_ends_the_answer_before_it(void **state)
{
    int status;
    json_t *a = http_json(shared.port, CHAT, "{" FOX ",\"max_tokens\":60,\"temperature\":0}", &status);
    const char *text = text_at(a, "choices", 0, "message", "content");
    char body[600], stop_text[8];

    (void)state;
    assert_true(strlen(text) > 30);
    snprintf(stop_text, sizeof stop_text, "%.5s", text + 20);
    snprintf(body, sizeof body, "{" FOX ",\"max_tokens\":60,\"temperature\":0,\"stop\":[\"never\",\"%s\"]}",
             stop_text);
    json_t *b = http_json(shared.port, CHAT, body, &status);
    const char *cut = text_at(b, "choices", 0, "message", "content");
    assert_string_equal(text_at(b, "choices", 0, "finish_reason", NULL), "stop");
    assert_int_equal(strncmp(cut, text, strlen(cut)), 0);
    assert_null(strstr(cut, stop_text));
    json_decref(a);
    json_decref(b);
}

static void logprobs_are_of_the_tokens_chosen(void **state)
{
    int status;
    json_t *r = http_json(shared.port, CHAT,
                          "{" FOX ",\"max_tokens\":4,\"temperature\":0,\"logprobs\":true,\"top_logprobs\":3}",
                          &status);
    json_t *logprobs = json_object_get(json_array_get(json_object_get(r, "choices"), 0), "logprobs");
    json_t *content = json_object_get(logprobs, "content");

    (void)state;
    assert_int_equal(json_array_size(content), 4);
    for (size_t i = 0; i < 4; i++) {
        json_t *entry = json_array_get(content, i),
               *top = json_array_get(json_object_get(entry, "top_logprobs"), 0);
        assert_int_equal(json_array_size(json_object_get(entry, "top_logprobs")), 3);
        // greedy takes the likeliest
        assert_true(json_equal(json_object_get(entry, "token"), json_object_get(top, "token")));
        assert_true(json_number_value(json_object_get(entry, "logprob")) <= 0);
    }
    json_decref(r);
}

static void completions_take_texts_and_tokens(void **state)
{
    int status;
    json_t *a = http_json(shared.port, TEXT,
                          "{\"prompt\":[\"One\",\"Two\"],\"max_tokens\":3,\"n\":2,\"logprobs\":2}", &status);

    (void)state;
    assert_int_equal(status, 200);
    assert_int_equal(json_array_size(json_object_get(a, "choices")), 4);
    json_decref(a);
    a = http_json(shared.port, TEXT, "{\"prompt\":[300,301,302],\"max_tokens\":3,\"echo\":true}", &status);
    assert_int_equal(status, 200);
    assert_int_equal(number_at(a, "usage", "prompt_tokens"), 3);
    json_decref(a);
}

static void anthropic_streams_in_the_order_clients_insist_on(void **state)
{
    static const char *const order[] = { "message_start",      "content_block_start", "content_block_delta",
                                         "content_block_stop", "message_delta",       "message_stop" };
    struct response r = http_post(
        shared.port, "/v1/messages",
        "{" FOX ",\"max_tokens\":6,\"stream\":true,\"system\":[{\"type\":\"text\",\"text\":\"Be brief.\"}]}");
    struct buf events = { 0 };
    char mark[64];

    (void)state;
    assert_int_equal(r.status, 200);
    response_unchunk(&r, &events);
    const char *at = events.at;
    for (size_t i = 0; i < N_OF(order); i++) {
        snprintf(mark, sizeof mark, "event: %s\n", order[i]);
        at = strstr(at, mark);
        if (!at)
            fail_msg("%s is missing or out of order", order[i]);
    }
    assert_non_null(strstr(events.at, "\"stop_reason\":\"max_tokens\""));
    buf_free(&events);
    response_free(&r);
}

static void anthropic_answers_errors_and_counts(void **state)
{
    int status;
    json_t *r = http_json(shared.port, "/v1/messages", "{" FOX ",\"max_tokens\":5}", &status);

    (void)state;
    assert_int_equal(status, 200);
    assert_string_equal(text_at(r, "content", 0, "type", NULL), "text");
    json_int_t n = number_at(r, "usage", "input_tokens") + number_at(r, "usage", "cache_read_input_tokens");
    json_decref(r);
    r = http_json(shared.port, "/v1/messages/count_tokens", "{" FOX "}", &status);
    assert_int_equal(json_integer_value(json_object_get(r, "input_tokens")), n);
    json_decref(r);
    r = http_json(shared.port, "/v1/messages", "{" FOX "}", &status);
    assert_int_equal(status, 400);
    assert_string_equal(json_string_value(json_object_get(r, "type")), "error");
    json_decref(r);
}

static void text_becomes_tokens_and_text_again(void **state)
{
    int status;
    json_t *a = http_json(shared.port, "/tokenize",
                          "{\"content\":\"A fox, <|im_start|> and \\u00e9\\ud83d\\ude00.\"}", &status);
    json_t *tokens = json_pack("{s:O}", "tokens", json_object_get(a, "tokens"));
    char *body = json_dumps(tokens, 0);
    json_t *b = http_json(shared.port, "/detokenize", body, &status);

    (void)state; // the control token was read as text: it comes back
    assert_string_equal(json_string_value(json_object_get(b, "content")),
                        "A fox, <|im_start|> and \u00e9\U0001F600.");
    free(body);
    json_decref(tokens);
    json_decref(a);
    json_decref(b);
    a = http_json(
        shared.port, "/apply-template",
        "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"x\"}]}]}",
        &status);
    assert_int_equal(status, 200);
    assert_non_null(strstr(json_string_value(json_object_get(a, "prompt")), "system"));
    json_decref(a);
}

static void a_field_that_is_not_honoured_is_told(void **state)
{
    static const char *const cases[] = {
        "\"foo\":1",
        "\"functions\":[{\"name\":\"f\"}]",
        "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"strict\":true}}]",
        "\"reasoning_effort\":\"high\"",
        "\"model\":\"someone-else\"",
        "\"stream_options\":{\"bar\":true}"
    };
    char body[800];
    int status;

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        snprintf(body, sizeof body, "{" FOX ",\"max_tokens\":1,%s}", cases[i]);
        json_t *r = http_json(shared.port, CHAT, body, &status);
        assert_int_equal(status, 200);
        assert_int_equal(json_array_size(json_object_get(r, "warnings")), 1);
        json_decref(r);
        snprintf(body, sizeof body, "{" FOX ",\"max_tokens\":1,\"strict\":true,%s}", cases[i]);
        refused(CHAT, body);
    }
}

// Every value for every field, without messages or a prompt: never a crash, never a 5xx.
static void wild_values_are_refused(void **state)
{
    static const char *const fields[] = { "n",
                                          "best_of",
                                          "max_tokens",
                                          "max_completion_tokens",
                                          "seed",
                                          "top_logprobs",
                                          "logprobs",
                                          "top_k",
                                          "top_p",
                                          "min_p",
                                          "temperature",
                                          "stop",
                                          "messages",
                                          "repeat_penalty",
                                          "presence_penalty",
                                          "frequency_penalty",
                                          "prompt",
                                          "stream",
                                          "chat_template_kwargs",
                                          "stream_options",
                                          "ignore_eos",
                                          "repeat_last_n",
                                          "response_format",
                                          "tools",
                                          "tool_choice",
                                          "logit_bias",
                                          "grammar",
                                          "json_schema",
                                          "parallel_tool_calls",
                                          "reasoning_effort",
                                          "model" };
    static const char *const values[] = {
        "-2",     "-1",   "1.5",  "2147483648", "9223372036854775807", "1e308", "[]",  "{}",
        "[\"\"]", "[[]]", "[{}]", "[-1]",       "[4294967296]",        "null",  "true"
    };
    char body[300];

    (void)state;
    for (size_t f = 0; f < N_OF(fields); f++)
        for (size_t v = 0; v < N_OF(values); v++) {
            snprintf(body, sizeof body, "{\"%s\":%s}", fields[f], values[v]);
            refused(CHAT, body);
            if (strcmp(fields[f], "prompt") != 0 || strcmp(values[v], "[4294967296]") == 0)
                refused(TEXT, body);
        }
    assert_int_equal(http_status(shared.port, "/health"), 200);
}

static void wrong_types_are_400_in_a_whole_request(void **state)
{
    static const char *const cases[] = {
        "\"n\":0",
        "\"n\":17",
        "\"n\":-1",
        "\"n\":1.5",
        "\"n\":\"3\"",
        "\"max_tokens\":0",
        "\"max_tokens\":-2",
        "\"max_tokens\":2147483648",
        "\"seed\":1.5",
        "\"seed\":9223372036854775808",
        "\"temperature\":-0.1",
        "\"temperature\":1e400",
        "\"temperature\":\"NaN\"",
        "\"top_p\":1.01",
        "\"top_k\":-2",
        "\"top_logprobs\":21",
        "\"top_logprobs\":2",
        "\"stop\":[\"\"]",
        "\"stop\":[1]",
        "\"stop\":{}",
        "\"stream\":1",
        "\"logprobs\":5",
        "\"repeat_penalty\":0",
        "\"stream_options\":1",
        "\"response_format\":{}",
        "\"chat_template_kwargs\":{\"messages\":[]}",
        "\"chat_template_kwargs\":{\"bos_token\":\"x\"}",
        ("\"stop\":[\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\",\"a\","
         "\"a\",\"a\",\"a\"]"),
    };
    char body[800];

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        snprintf(body, sizeof body, "{" FOX ",%s}", cases[i]);
        refused(CHAT, body);
    }
}

static void broken_json_is_400(void **state)
{
    static const char *const bodies[] = {
        "",
        "{",
        "[]",
        "null",
        "\"x\"",
        "{} {}",
        "\xef\xbb\xbf{}",
        "{\"messages\":[],\"messages\":[]}",
        "{\"prompt\":\"\\ud800\"}",
        "{\"prompt\":\"\xff\"}",
        "{\"prompt\":\"\\u0000\"}",
        "{\"messages\":[]}",
        "{\"messages\":{}}",
        "{\"messages\":[1]}",
        "{\"messages\":[{\"role\":\"wizard\",\"content\":\"x\"}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":5}]}",
        "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}"
    };

    (void)state;
    for (size_t i = 0; i < N_OF(bodies); i++)
        refused(CHAT, bodies[i]);
}

static void fill(struct buf *b, const char *what, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_text(b, what);
}

static void huge_json_is_400(void **state)
{
    static const struct {
        const char *first, *repeated, *last;
        size_t n;
    } cases[] = { { "{\"prompt\":", "[", "}", 100000 },
                  { "{\"prompt\":\"x\",\"seed\":", "9", "}", 1000000 },
                  { "{\"prompt\":\"x\",\"stop\":[", "\"a\",", "\"a\"]}", 100000 },
                  { "{\"prompt\":\"x\",\"stop\":\"", "aaaaaaaaaa", "\"}", 100000 },
                  { "{\"prompt\":[", "1,", "1]}", 1000000 },
                  { "{\"prompt\":[", "\"a\",", "\"a\"]}", 100000 },
                  { "{\"prompt\":\"", "word ", "\"}", 200000 } };

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        struct buf body = { 0 };
        buf_text(&body, cases[i].first);
        fill(&body, cases[i].repeated, cases[i].n);
        buf_text(&body, cases[i].last);
        refused(TEXT, body.at);
        buf_free(&body);
    }
}

static void tokens_out_of_range_are_400(void **state)
{
    static const char *const bodies[] = { "{\"prompt\":[-1]}",  "{\"prompt\":[4294967295]}",
                                          "{\"prompt\":[1.5]}", "{\"prompt\":[[1,-1]]}",
                                          "{\"prompt\":[]}",    "{\"prompt\":\"\"}" };

    (void)state;
    for (size_t i = 0; i < N_OF(bodies); i++)
        refused(TEXT, bodies[i]);
    refused("/detokenize", "{\"tokens\":[1,99999999]}");
    refused("/detokenize", "{\"tokens\":1}");
    refused("/tokenize", "{\"content\":1}");
}

static void too_long_a_prompt_tells_both_numbers(void **state)
{
    struct buf body = { 0 };
    int status;

    (void)state;
    buf_text(&body, "{\"messages\":[{\"role\":\"user\",\"content\":\"");
    fill(&body, "fox ", 5000);
    buf_text(&body, "\"}]}");
    json_t *r = http_json(shared.port, CHAT, body.at, &status);
    assert_int_equal(status, 400);
    json_t *error = json_object_get(r, "error");
    assert_string_equal(json_string_value(json_object_get(error, "code")), "context_length_exceeded");
    assert_non_null(strstr(json_string_value(json_object_get(error, "message")), "1024"));
    json_decref(r);
    buf_free(&body);
}

static json_int_t cached_tokens(const char *fields)
{
    int status;
    char body[2048];

    snprintf(body, sizeof body,
             "{\"messages\":[{\"role\":\"system\",\"content\":\"You are a guide through a museum of old "
             "ships. You know each of "
             "them by "
             "name, and the year in which it was built.\"},{\"role\":\"user\",\"content\":\"Which one is the "
             "oldest?\"}],"
             "\"max_tokens\":4%s}",
             fields);
    json_t *r = http_json(shared.port, CHAT, body, &status);
    assert_int_equal(status, 200);
    json_int_t n = number_at(json_object_get(r, "usage"), "prompt_tokens_details", "cached_tokens");
    json_decref(r);
    return n;
}

static void a_prompt_is_computed_once_for_each_salt(void **state)
{
    (void)state;
    assert_true(cached_tokens("") < 16);
    assert_true(cached_tokens("") >= 32);
    assert_int_equal(cached_tokens(",\"cache_salt\":\"mine\""), 0);
    assert_true(cached_tokens(",\"cache_salt\":\"mine\"") >= 32);
    assert_true(metric(shared.port, "ingot:kv_pages_idle") > 0);
    assert_true(metric(shared.port, "vllm:prefix_cache_hits_total") >= 64);
}

// The shipped model has no layers with a window; told of one, all of its layers have it.
static void window_pages_are_counted(void **state)
{
    char folder[] = "/tmp/ingot-windowed-XXXXXX", path[64];
    const char *args[] = { "-m", folder, NULL };
    const struct token_name window = { "\"use_cache\"", "\"sliding_window\": 64, \"use_cache\"" };
    struct buf config = { 0 };
    struct err err = { 0 };
    (void)state;

    assert_int_equal(metric(shared.port, "ingot:kv_window_pages"), 0);
    assert_non_null(mkdtemp(folder));
    model_folder_make(folder, NULL, 0, (struct str){ 0 });
    assert_ok(file_read(&config, SHIPPED "config.json", 1 << 16, &err), &err);
    model_folder_rename(&config, &window);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path); // it is a link
    model_folder_put(folder, "config.json", buf_as_str(&config));
    struct served s = serve_start(args);
    json_decref(http_json(s.port, CHAT, "{" FOX ",\"max_tokens\":40,\"ignore_eos\":true}", &(int){ 0 }));
    int n = (int)metric(s.port, "ingot:kv_window_pages"),
        n_idle = (int)metric(s.port, "ingot:kv_window_pages_idle");
    assert_true(n > 0 && n < metric(s.port, "ingot:kv_pages"));
    assert_true(n_idle > 0 && n_idle <= n);
    assert_int_equal(metric(s.port, "ingot:kv_window_pages_held"), 0);
    assert_int_equal(serve_stop(&s), 0);
    buf_free(&config);
    assert_int_equal(model_folder_remove(folder), 0);
}

static void a_deadline_is_504(void **state)
{
    int status;
    (void)state;
    json_t *r = http_json(shared.port, CHAT,
                          "{" FOX ",\"max_tokens\":900,\"ignore_eos\":true,\"deadline_ms\":20}", &status);
    assert_int_equal(status, 504);
    assert_string_equal(json_string_value(json_object_get(json_object_get(r, "error"), "code")),
                        "deadline_exceeded");
    json_decref(r);
}

static void bench_drives_a_server(void **state)
{
    char command[600], line[1024], svg[] = "/tmp/ingot-load-XXXXXX";
    int fd = mkstemp(svg);
    (void)state;

    assert_true(fd >= 0);
    snprintf(
        command, sizeof command,
        "'%s' bench --serve http://127.0.0.1:%d/v1/ --clients 1,5 --requests 17 -p 8 -n 4 -o json --svg %s",
        INGOT_PROGRAM, shared.port, svg);
    FILE *out = popen(command, "r");
    assert_non_null(out);
    for (int row = 0; row < 2; row++) {
        assert_non_null(fgets(line, sizeof line, out));
        json_t *r = json_loads(line, 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(r, "clients")), row ? 5 : 1);
        assert_int_equal(json_integer_value(json_object_get(r, "answered")), 17);
        assert_int_equal(json_integer_value(json_object_get(r, "tokens")), 17 * 4);
        assert_true(json_number_value(json_array_get(json_object_get(r, "first_token_ms_p50_p95_p99"), 0)) >
                    0);
        json_decref(r);
    }
    assert_int_equal(pclose(out), 0);
    struct stat info;
    close(fd);
    assert_int_equal(stat(svg, &info), 0);
    assert_true(info.st_size > 1000);
    unlink(svg);
    serve_skip_log(&shared);
}

static void models_and_metrics_are_told(void **state)
{
    static const char *const names[] = {
        // what vLLM's own dashboard asks for
        "vllm:num_requests_running",
        "vllm:num_requests_waiting",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        "vllm:prompt_tokens_total",
        "vllm:prefix_cache_queries_total",
        "vllm:prefix_cache_hits_total",
        "vllm:e2e_request_latency_seconds_sum",
        "vllm:request_queue_time_seconds_sum",
        "vllm:request_inference_time_seconds_sum",
        "vllm:request_prefill_time_seconds_sum",
        "vllm:request_decode_time_seconds_sum",
        "vllm:request_time_per_output_token_seconds_sum",
        "vllm:request_prompt_tokens_count",
        "vllm:request_generation_tokens_count",
    };
    struct response r = http_with(shared.port, "/v1/models", "", NULL);

    (void)state;
    assert_non_null(strstr(r.body, "\"context\":1024"));
    response_free(&r);
    r = http_with(shared.port, "/v1/models", "anthropic-version: 2023-06-01\r\n", NULL);
    assert_non_null(strstr(r.body, "display_name"));
    response_free(&r);
    assert_true(metric(shared.port, "vllm:generation_tokens_total") > 0);
    assert_true(metric(shared.port, "vllm:time_to_first_token_seconds_count") > 0);
    assert_true(metric(shared.port, "vllm:inter_token_latency_seconds_count") > 0);
    for (size_t i = 0; i < N_OF(names); i++)
        if (metric(shared.port, names[i]) < 0)
            fail_msg("no metric %s", names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chat_answers_with_usage_and_figures),
        cmocka_unit_test(a_stream_joins_to_the_whole_answer),
        cmocka_unit_test(a_seed_repeats_and_n_differs),
        cmocka_unit_test(a_stop_string_ends_the_answer_before_it),
        cmocka_unit_test(logprobs_are_of_the_tokens_chosen),
        cmocka_unit_test(completions_take_texts_and_tokens),
        cmocka_unit_test(anthropic_streams_in_the_order_clients_insist_on),
        cmocka_unit_test(anthropic_answers_errors_and_counts),
        cmocka_unit_test(text_becomes_tokens_and_text_again),
        cmocka_unit_test(a_field_that_is_not_honoured_is_told),
        cmocka_unit_test(wild_values_are_refused),
        cmocka_unit_test(wrong_types_are_400_in_a_whole_request),
        cmocka_unit_test(broken_json_is_400),
        cmocka_unit_test(huge_json_is_400),
        cmocka_unit_test(tokens_out_of_range_are_400),
        cmocka_unit_test(too_long_a_prompt_tells_both_numbers),
        cmocka_unit_test(a_prompt_is_computed_once_for_each_salt),
        cmocka_unit_test(window_pages_are_counted),
        cmocka_unit_test(a_deadline_is_504),
        cmocka_unit_test(bench_drives_a_server),
        cmocka_unit_test(models_and_metrics_are_told),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
