// test_api_prompt.c - prompts through ingot.h: messages as the model reads them, with their fields, and with
// the beginning of an answer.
#include "toy_engine.h"

static struct ingot_request_options asking(const struct ingot_message *messages, size_t n)
{
    struct ingot_request_options o = ingot_request_defaults();

    o.messages = messages;
    o.n_messages = n;
    return o;
}

static enum ingot_reasoning assert_renders(const struct ingot_request_options *o, const char *text)
{
    struct ingot_error error = { 0 };
    struct ingot_prompt_info info;
    struct ingot_prompt *prompt = ingot_prompt_render(engine, o, &error);

    if (!prompt)
        fail_msg("%s", error.message);
    ingot_prompt_info(prompt, &info);
    assert_string_equal(info.text, text);
    assert_int_equal(info.n_bytes, strlen(text));
    ingot_prompt_free(prompt);
    return info.reasoning;
}

static void assert_refused(const struct ingot_request_options *o, enum ingot_code code, const char *part)
{
    struct ingot_error error = { 0 };

    assert_fails(ingot_prompt_render(engine, o, &error), &error, part);
    assert_int_equal(error.code, code);
    assert_fails(ingot_submit(engine, o, &error), &error, part);
}

static bool keep_n_prompt(void *arg, const struct ingot_event *event)
{
    *(uint32_t *)arg = event->done ? event->result->n_prompt : 0;
    return true;
}

// A prompt is what the request reads, and its tokens make its text again.
static void the_prompt_is_what_a_request_reads(void **state)
{
    static const struct ingot_message m[] = { { .role = "system", .content = "Be brief." },
                                              { .role = "user", .content = "Hello<|im_end|>" } };
    static const char text[] =
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|><|im_end|>\n"
        "<|im_start|>assistant\n";
    struct ingot_request_options o = asking(m, 2);
    struct ingot_token_info info;
    char back[300];
    uint32_t n_prompt, n_control = 0;
    size_t n, again;

    (void)state;
    assert_int_equal(assert_renders(&o, text), INGOT_REASONING_NONE);
    struct ingot_prompt *prompt = ingot_prompt_render(engine, &o, NULL);
    const uint32_t *tokens = ingot_prompt_tokens(prompt, &n, NULL);
    assert_non_null(tokens);
    assert_ptr_equal(ingot_prompt_tokens(prompt, &again, NULL), tokens);
    assert_int_equal(again, n);
    for (size_t i = 0; i < n; i++)
        n_control += ingot_token_info(engine, tokens[i], &info) && info.kind == INGOT_TOKEN_CONTROL;
    assert_int_equal(n_control, 5); // those of the template alone: the user's is text
    ingot_decode(engine, tokens, n, INGOT_KEEP_SPECIAL, back, sizeof back, NULL);
    assert_string_equal(back, text);
    ingot_prompt_free(prompt);
    o.max_tokens = 1;
    assert_true(ingot_generate(engine, &o, keep_n_prompt, &n_prompt, NULL, NULL));
    assert_int_equal(n_prompt, n);
}

static void texts_and_tokens_are_prompts_too(void **state)
{
    static const uint32_t tokens[] = { 300, 301, 302 };
    struct ingot_request_options o = ingot_request_defaults();
    uint32_t plain[20];
    size_t n;

    (void)state;
    o.text = "Once upon a time";
    assert_renders(&o, o.text);
    struct ingot_prompt *prompt = ingot_prompt_render(engine, &o, NULL);
    const uint32_t *made = ingot_prompt_tokens(prompt, &n, NULL);
    assert_int_equal(ingot_encode(engine, o.text, strlen(o.text), INGOT_ADD_SPECIAL, plain, 20, NULL), n);
    assert_memory_equal(made, plain, n * sizeof *plain);
    ingot_prompt_free(prompt);
    o.tokens = tokens;
    o.n_tokens = 3;
    assert_refused(&o, INGOT_INPUT, "set exactly one of messages, text and tokens");
    o.text = NULL;
    prompt = ingot_prompt_render(engine, &o, NULL);
    assert_memory_equal(ingot_prompt_tokens(prompt, &n, NULL), tokens, sizeof tokens);
    assert_int_equal(n, 3);
    ingot_prompt_free(prompt);
    ingot_prompt_free(NULL);
}

static void fields_say_what_else_a_message_has(void **state)
{
    struct ingot_message m[] = {
        { .fields = "{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}, {\"type\": "
                    "\"text\", \"text\": "
                    "\"b\"}]}" },
        { .role = "assistant",
          .content = "said",
          .fields = "{\"content\": \"not this\", \"reasoning_content\": \"hm\"}" },
    };
    struct ingot_request_options o = asking(m, 2);

    (void)state;
    assert_renders(
        &o,
        "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\nsaid<|im_end|>\n<|im_start|>assistant\n");
    o.no_generation_prompt = true;
    assert_renders(&o, "<|im_start|>user\na\nb<|im_end|>\n<|im_start|>assistant\nsaid<|im_end|>\n");
    m[0].fields = "{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}";
    assert_refused(&o, INGOT_UNSUPPORTED,
                   "message 0: part 0 has the type \"image_url\"; only text and image are supported");
    m[0].fields = "[1]";
    assert_refused(&o, INGOT_INPUT, "message 0: its fields are no JSON object");
    m[0].fields = "{\"role\": \"user\"";
    assert_refused(&o, INGOT_INPUT, "message 0: fields: this is no JSON");
    m[0].fields = "{\"content\": \"a\"}";
    assert_refused(&o, INGOT_INPUT, "message 0 has the role \"(null)\"");
    m[0] = (struct ingot_message){ .role = "user" };
    assert_refused(&o, INGOT_INPUT, "message 0 has no content");
}

static void an_answer_goes_on_from_its_beginning(void **state)
{
    struct ingot_message m[] = { { .role = "user", .content = "Hello" },
                                 { .role = "assistant", .content = "Well<|im_end|>" } };
    struct ingot_request_options o = asking(m, 2);

    (void)state;
    o.continue_last = true;
    assert_int_equal(
        assert_renders(&o, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nWell<|im_end|>"),
        INGOT_REASONING_CLOSED);
    m[1].fields = "{\"reasoning_content\": \"Hm.\"}";
    assert_int_equal(assert_renders(&o, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
                                        "<think>\nHm.\n</think>\n\nWell<|im_end|>"),
                     INGOT_REASONING_CLOSED);
    m[1].content = "";
    assert_int_equal(
        assert_renders(&o, "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\nHm."),
        INGOT_REASONING_OPEN);
    m[1].fields = NULL;
    assert_refused(&o, INGOT_INPUT, "continue_last: the last message is no text of the assistant's");
    o.n_messages = 1;
    assert_refused(&o, INGOT_INPUT, "continue_last: the last message is no text of the assistant's");
}

static void what_the_template_gets_is_checked(void **state)
{
    static const struct ingot_message m = { .role = "user", .content = "Hello" };
    static const char text[] = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n";
    struct ingot_request_options o = asking(&m, 1);

    (void)state;
    o.tools = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {}}}]";
    o.template_variables = "{\"enable_thinking\": false}";
    assert_renders(&o, text); // the shipped template shows neither
    o.template_variables = "{\"messages\": []}";
    assert_refused(&o, INGOT_INPUT, "'messages' is set by the engine");
    o.template_variables = "[]";
    assert_refused(&o, INGOT_INPUT, "template_variables: want a JSON object");
    o.template_variables = NULL;
    o.tools = "{}";
    assert_refused(&o, INGOT_INPUT, "tools: want a JSON list");
    o.tools = "[";
    assert_refused(&o, INGOT_INPUT, "tools: this is no JSON");
}

static void a_template_says_what_it_takes(void **state)
{
    struct ingot_template_info info;
    struct ingot_engine_options bare = ingot_engine_defaults();
    static const struct ingot_message m = { .role = "user", .content = "Hello" };
    struct ingot_request_options o = asking(&m, 1);
    struct ingot_error error = { 0 };

    (void)state;
    ingot_template_info(engine, &info);
    assert_true(info.is_usable);
    assert_int_equal(info.n_bytes, strlen(info.text));
    assert_non_null(strstr(info.text, "message"));
    assert_false(info.takes_tools);
    assert_true(ingot_template_uses(engine, "messages"));
    assert_false(ingot_template_uses(engine, "enable_thinking"));
    bare.model = SOURCE_DIR "/tests/golden/qwen3/model.gguf";
    bare.n_threads = 1;
    struct ingot_engine *other = open_or_fail(&bare);
    ingot_template_info(other, &info);
    assert_false(info.is_usable);
    assert_string_equal(info.text, "");
    assert_false(ingot_template_uses(other, "messages"));
    assert_fails(ingot_prompt_render(other, &o, &error), &error, "tokenizer");
    assert_int_equal(error.code, INGOT_UNSUPPORTED);
    ingot_engine_close(other);
}

static void what_is_kept_can_be_asked(void **state)
{
    struct ingot_request_options o = ingot_request_defaults();
    struct ingot_engine_info info;
    uint32_t tokens[50];

    (void)state;
    ingot_engine_info(engine, &info);
    for (uint32_t i = 0; i < 50; i++)
        tokens[i] = 300 + i * 7;
    o.tokens = tokens;
    o.n_tokens = 50;
    o.max_tokens = 1;
    o.cache_salt = "mine";
    assert_int_equal(ingot_prompt_kept(engine, tokens, 50, "mine"), 0);
    assert_true(ingot_generate(engine, &o, NULL, NULL, NULL, NULL));
    assert_int_equal(ingot_prompt_kept(engine, tokens, 50, "mine"), 49 / info.page_tokens * info.page_tokens);
    // the last token is always read
    assert_int_equal(ingot_prompt_kept(engine, tokens, info.page_tokens, "mine"), 0);
    assert_int_equal(ingot_prompt_kept(engine, tokens, 50, NULL), 0);
    tokens[info.page_tokens] ^= 1;
    assert_int_equal(ingot_prompt_kept(engine, tokens, 50, "mine"), info.page_tokens);
}

static void grammars_are_checked_before_a_request(void **state)
{
    struct ingot_error error = { 0 };
    char grammar[4000], few[5];

    (void)state;
    assert_true(ingot_grammar_check("root ::= [a-z]+", &error));
    assert_fails(ingot_grammar_check("root ::= [a-z", &error), &error, "");
    assert_int_equal(error.code, INGOT_INPUT);
    int64_t n = ingot_schema_to_grammar("{\"type\": \"integer\"}", grammar, sizeof grammar, &error);
    assert_int_equal(n, strlen(grammar));
    assert_true(ingot_grammar_check(grammar, &error));
    assert_int_equal(ingot_schema_to_grammar("{\"type\": \"integer\"}", few, sizeof few, &error), n);
    assert_int_equal(strlen(few), sizeof few - 1);
    assert_int_equal(ingot_schema_to_grammar("{\"type\": 1}", NULL, 0, &error), -1);
    assert_int_equal(error.code, INGOT_INPUT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_prompt_is_what_a_request_reads),
        cmocka_unit_test(texts_and_tokens_are_prompts_too),
        cmocka_unit_test(fields_say_what_else_a_message_has),
        cmocka_unit_test(an_answer_goes_on_from_its_beginning),
        cmocka_unit_test(what_the_template_gets_is_checked),
        cmocka_unit_test(a_template_says_what_it_takes),
        cmocka_unit_test(what_is_kept_can_be_asked),
        cmocka_unit_test(grammars_are_checked_before_a_request),
    };
    return cmocka_run_group_tests(tests, open_toy, close_toy);
}
