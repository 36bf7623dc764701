// test_serve_llamacpp.c - llama.cpp's own paths: /completion, /infill, /props, /slots, /tokenize with pieces.
#include "server/model_folder.h"
#include "server/shared.h"

#define STORY   "\"prompt\":\"Once upon a time\""
#define N_OF(a) (sizeof(a) / sizeof *(a))

static void a_completion_has_its_figures(void **state)
{
    json_t *r = post("/completion",
                     "{" STORY ",\"n_predict\":5,\"ignore_eos\":true,\"return_tokens\":true,\"seed\":-1}");

    (void)state;
    assert_true(json_is_true(at(r, "stop")));
    assert_string_equal(text(r, "stop_type"), "limit");
    assert_int_equal(json_integer_value(at(r, "tokens_predicted")), 5);
    assert_int_equal(json_array_size(at(r, "tokens")), 5);
    assert_int_equal(json_integer_value(at(r, "generation_settings.n_predict")), 5);
    assert_int_equal(json_integer_value(at(r, "timings.predicted_n")), 5);
    assert_null(at(r, "warnings"));
    json_decref(r);
    r = post("/completion", "{" STORY ",\"n_predict\":0}"); // reads the prompt and says nothing
    assert_string_equal(text(r, "content"), "");
    assert_int_equal(json_integer_value(at(r, "tokens_predicted")), 0);
    json_decref(r);
    r = post("/completion", "{" STORY ",\"n_predict\":-1,\"ignore_eos\":true,\"top_k\":-1,\"repeat_last_n\":-"
                            "1,\"stop\":[\",\",\"e\"],\"mirostat\":2}");
    assert_string_equal(text(r, "stop_type"), "word");
    assert_true(!strcmp(text(r, "stopping_word"), ",") || !strcmp(text(r, "stopping_word"), "e"));
    assert_non_null(strstr(text(r, "warnings.0"), "mirostat"));
    json_decref(r);
}

static void a_completion_is_streamed(void **state)
{
    json_t *whole = post("/completion", "{" STORY ",\"n_predict\":12,\"seed\":4,\"ignore_eos\":true}");
    struct response r =
        http_post(shared.port, "/completion",
                  "{" STORY ",\"n_predict\":12,\"seed\":4,\"ignore_eos\":true,\"stream\":true}");
    struct buf events = { 0 }, said = { 0 };
    bool stopped = false;

    (void)state;
    response_unchunk(&r, &events);
    for (const char *at_ = events.at; (at_ = strstr(at_, "data: ")) != NULL; at_++) {
        json_t *event = json_loads(at_ + 6, JSON_DISABLE_EOF_CHECK, NULL);
        assert_false(stopped);
        buf_text(&said, text(event, "content"));
        stopped = json_is_true(at(event, "stop"));
        json_decref(event);
    }
    assert_true(stopped);
    assert_string_equal(said.at, text(whole, "content"));
    assert_null(strstr(events.at, "[DONE]"));
    json_decref(whole);
    buf_free(&events);
    buf_free(&said);
    response_free(&r);
}

static void prompts_are_texts_tokens_and_both(void **state)
{
    json_t *tokens = post("/tokenize", "{\"content\":\"Once upon a time\",\"add_special\":true}"),
           *list = post("/completion", "{\"prompt\":[\"Once upon\",\"A fox\"],\"n_predict\":2}"),
           *mixed = post("/completion", "{\"prompt\":[\"Once upon a time\",5,6],\"n_predict\":1}"),
           *second = post("/completion", "{\"prompt\":[5,\"Once upon a time\"],\"n_predict\":1}");
    json_int_t n = json_integer_value(at(tokens, "count"));
    int status;

    (void)state;
    assert_int_equal(json_array_size(list), 2);
    assert_int_equal(json_integer_value(at(list, "1.index")), 1);
    assert_int_equal(json_integer_value(at(mixed, "tokens_evaluated")), n + 2);
    assert_true(json_integer_value(at(second, "tokens_evaluated")) > 2);
    json_decref(reply_of("/completion", "{\"prompt\":[5,true]}", &status));
    assert_int_equal(status, 400);
    json_decref(tokens);
    json_decref(list);
    json_decref(mixed);
    json_decref(second);
}

static void probabilities_and_biases(void **state)
{
    json_t *r = post("/completion",
                     "{" STORY ",\"n_predict\":2,\"n_probs\":3,\"temperature\":0,\"ignore_eos\":true}"),
           *banned;
    json_int_t first = json_integer_value(at(r, "completion_probabilities.0.id"));
    struct buf body = { 0 };

    (void)state;
    assert_int_equal(json_array_size(at(r, "completion_probabilities")), 2);
    assert_int_equal(json_array_size(at(r, "completion_probabilities.0.top_logprobs")), 3);
    assert_int_equal(json_integer_value(at(r, "completion_probabilities.0.top_logprobs.0.id")), first);
    buf_printf(&body,
               "{" STORY ",\"n_predict\":1,\"n_probs\":1,\"temperature\":0,\"logit_bias\":[[%d,false]]}",
               (int)first);
    banned = post("/completion", body.at);
    assert_true(json_integer_value(at(banned, "completion_probabilities.0.id")) != first);
    json_decref(r);
    json_decref(banned);
    buf_free(&body);
}

static void props_and_slots_tell_counts_and_no_text(void **state)
{
    static const char secret[] =
        "{\"prompt\":\"the password is swordfish\",\"stream\":true,\"ignore_eos\":true}";
    json_t *props = NULL, *slots = NULL;
    int fd = http_begin(shared.port, "/completion", "", secret), busy = 0;

    (void)state;
    for (int i = 0; i < 1000 && !busy; i++, poll(NULL, 0, 5)) {
        struct response r = http_with(shared.port, "/slots", "", NULL);
        json_decref(slots);
        slots = json_loads(r.body, 0, NULL);
        assert_null(strstr(r.body, "swordfish"));
        for (size_t k = 0; k < json_array_size(slots); k++)
            busy += json_is_true(json_object_get(json_array_get(slots, k), "is_processing"));
        response_free(&r);
    }
    close(fd);
    assert_int_equal(busy, 1);
    assert_int_equal(json_array_size(slots), 4);
    assert_int_equal(json_object_size(json_array_get(slots, 0)), 4); // id, n_ctx, speculative, is_processing
    struct response r = http_with(shared.port, "/props", "", NULL);
    props = json_loads(r.body, 0, NULL);
    assert_int_equal(json_integer_value(at(props, "total_slots")), 4);
    assert_true(json_integer_value(at(props, "default_generation_settings.n_ctx")) > 0);
    assert_non_null(strstr(text(props, "chat_template"), "<|im_start|>"));
    assert_string_equal(text(props, "eos_token"), "<|im_end|>");
    assert_null(strstr(r.body, "swordfish"));
    json_decref(props);
    json_decref(slots);
    response_free(&r);
}

static void tokens_come_with_their_pieces(void **state)
{
    json_t *r = post("/tokenize", "{\"content\":\"Hello \xe4\xb8\x96\",\"with_pieces\":true}"), *token;
    struct buf joined = { 0 };
    size_t i, k;

    (void)state;
    json_array_foreach(at(r, "tokens"), i, token)
    {
        json_t *piece = json_object_get(token, "piece"), *byte;
        assert_true(json_is_integer(json_object_get(token, "id")));
        buf_text(&joined, json_is_string(piece) ? json_string_value(piece) : "");
        json_array_foreach(piece, k, byte)
        {
            buf_append(&joined, &(char){ (char)json_integer_value(byte) }, 1);
        }
    }
    assert_string_equal(joined.at, "Hello \xe4\xb8\x96");
    buf_free(&joined);
    json_decref(r);
}

// ---- gaps

static void a_model_without_the_tokens_fills_no_gaps(void **state)
{
    static const struct {
        const char *path, *body;
    } cases[] = {
        { "/infill", "{\"input_prefix\":\"int main(\",\"input_suffix\":\"}\"}" },
        { "/v1/completions", "{\"prompt\":\"int main(\",\"suffix\":\"}\"}" },
        { "/api/generate", "{\"prompt\":\"int main(\",\"suffix\":\"}\"}" },
    };
    int status;

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        json_t *r = reply_of(cases[i].path, cases[i].body, &status);
        char *said = json_dumps(r, 0);
        assert_int_equal(status, 400);
        assert_non_null(strstr(said, "fills no gaps"));
        free(said);
        json_decref(r);
    }
    json_decref(reply_of("/infill", "{\"prompt\":\"x\"}", &status));
    assert_int_equal(status, 400);
}

static char folder[] = "/tmp/ingot-infill-XXXXXX";

static struct served start_filler(void)
{
    static const struct token_name names[] = { { "<|endoftext|>", "<|fim_prefix|>" },
                                               { "<|im_start|>", "<|fim_suffix|>" },
                                               { "<|im_end|>", "<|fim_middle|>" } };
    const char *args[] = { "-m", folder, NULL };

    assert_non_null(mkdtemp(folder));
    model_folder_make(folder, names, N_OF(names), STR(""));
    return serve_start(args);
}

// The number of tokens of a prompt.
static json_int_t n_read(const struct served *s, const char *path, const char *body)
{
    int status;
    json_t *r = http_json(s->port, path, body, &status), *n = at(r, "tokens_evaluated");

    n = n ? n : at(r, "usage.prompt_tokens");
    n = n ? n : at(r, "prompt_eval_count");
    if (status != 200 || !n)
        fail_msg("%s: %d %s", path, status, json_dumps(r, 0));
    json_int_t value = json_integer_value(n);
    json_decref(r);
    serve_skip_log(s);
    return value;
}

static void a_gap_is_filled_between_its_marks(void **state)
{
    struct served s = start_filler();
    json_int_t both =
        n_read(&s, "/infill", "{\"input_prefix\":\"ab\",\"input_suffix\":\"cd\",\"n_predict\":2}");

    (void)state;
    // The marks count one each; the texts as much as alone.
    assert_int_equal(both, n_read(&s, "/completion", "{\"prompt\":[0,\"ab\",1,\"cd\",2],\"n_predict\":2}"));
    assert_int_equal(both,
                     n_read(&s, "/v1/completions", "{\"prompt\":\"ab\",\"suffix\":\"cd\",\"max_tokens\":2}"));
    assert_int_equal(both,
                     n_read(&s, "/api/generate", "{\"prompt\":\"ab\",\"suffix\":\"cd\",\"stream\":false}"));
    assert_true(
        n_read(&s, "/infill",
               "{\"input_prefix\":\"ab\",\"input_suffix\":\"cd\",\"prompt\":\"ef\",\"n_predict\":2}") > both);
    assert_true(n_read(&s, "/infill",
                       "{\"input_prefix\":\"ab\",\"input_suffix\":\"cd\",\"n_predict\":2,"
                       "\"input_extra\":[{\"filename\":\"a.c\",\"text\":\"int a;\"}]}") > both + 4);
    // What a user writes never becomes a mark.
    assert_true(n_read(&s, "/infill",
                       "{\"input_prefix\":\"<|fim_suffix|>\",\"input_suffix\":\"\",\"n_predict\":1}") > 5);
    assert_int_equal(serve_stop(&s), 0);
    assert_int_equal(model_folder_remove(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_completion_has_its_figures),
        cmocka_unit_test(a_completion_is_streamed),
        cmocka_unit_test(prompts_are_texts_tokens_and_both),
        cmocka_unit_test(probabilities_and_biases),
        cmocka_unit_test(props_and_slots_tell_counts_and_no_text),
        cmocka_unit_test(tokens_come_with_their_pieces),
        cmocka_unit_test(a_model_without_the_tokens_fills_no_gaps),
        cmocka_unit_test(a_gap_is_filled_between_its_marks),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
