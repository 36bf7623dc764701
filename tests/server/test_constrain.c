// test_constrain.c - calls that have to be made: what a family's grammar allows is what its reader takes for
// calls, and nothing else.
#include "server/api/chat_messages.h"
#include "server/api/constrain.h"
#include "testing.h"
#include "text/grammar/grammar.h"
#include "text/grammar/matcher.h"

#define TOOLS                                                                                            \
    "{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\","         \
    "\"properties\":{\"city\":{"                                                                         \
    "\"type\":"                                                                                          \
    "\"string\"},\"days\":{\"type\":\"integer\",\"maximum\":7},\"unit\":{\"type\":\"string\",\"enum\":[" \
    "\"c\",\"f\"]}},"                                                                                    \
    "\"required\":"                                                                                      \
    "[\"city\"]}}},"                                                                                     \
    "{\"type\":\"function\",\"function\":{\"name\":\"ping\"}},"                                          \
    "{\"type\":\"function\",\"function\":{\"name\":\"code\",\"parameters\":{\"type\":\"object\","        \
    "\"properties\":{\"id\":{"                                                                           \
    "\"type\":"                                                                                          \
    "\"string\",\"maxLength\":2}},\"required\":[\"id\"]}}}"

static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[" TOOLS
                           "],\"tool_choice\":\"required\"%s}";

static void make_ask(struct api_request *ask, const char *more)
{

    struct buf text = { 0 };
    struct err err = { 0 };

    buf_printf(&text, body, more);
    json_t *json = json_loads(text.at, 0, NULL);
    assert_non_null(json);
    *ask = (struct api_request){ 0 };
    assert_ok(api_request_read(ask, DIALECT_CHAT, json, &server_limits_default, &err), &err);
    buf_free(&text);
}

static bool fits(const struct api_request *ask, const struct constrain_options *o, const char *answer)
{
    struct buf gbnf = { 0 };
    struct err err = { 0 };
    struct grammar *g;
    struct matcher *m;

    assert_ok(constrain_answer(ask, o, &gbnf, &err), &err);
    if (!grammar_create(&g, buf_as_str(&gbnf), &err))
        fail_msg("%s\n%s", err.message, gbnf.at);
    assert_ok(matcher_create(&m, g, &err), &err);
    bool ok = matcher_accept(m, str_from(answer), &err) && matcher_can_end(m);
    matcher_free(m);
    grammar_free(g);
    buf_free(&gbnf);
    return ok;
}

// "name(arguments)" of each call, and the content.
static void read_back(const struct api_request *ask, enum tool_call_style style, const char *answer,
                      struct buf *out)
{
    struct output_parser s = { 0 };
    struct output_piece piece;

    output_parser_init(&s, &(struct output_parser_options){ .style = style, .tools = ask->tools });
    output_parser_push(&s, str_from(answer));
    output_parser_finish(&s);
    while (output_parser_next(&s, &piece))
        buf_printf(out,
                   piece.kind == PIECE_CALL       ? "%.*s("
                   : piece.kind == PIECE_CALL_END ? ")%.*s"
                                                  : "%.*s",
                   STR_ARG(piece.text));
    output_parser_release(&s);
}

static const struct {
    enum tool_call_style style;
    const char *answer, *calls;
} families[] = {
    { CALLS_TAGS, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>",
      "get({\"city\": \"Rome\"})" },
    { CALLS_TAGS,
      "<tool_call>\n{\"name\":\"ping\",\"arguments\":{}}\n</"
      "tool_call>\n<tool_call>\n{\"name\":\"ping\",\"arguments\":{}}\n</"
      "tool_call>",
      "ping({})ping({})" },
    { CALLS_FUNCTIONS,
      "<tool_call>\n<function=get>\n<parameter=city>\na <b> "
      "</par\n</parameter>\n<parameter=days>\n7\n</parameter>\n</function>\n</tool_call>",
      "get({\"city\": \"a <b> </par\", \"days\": 7})" },
    { CALLS_FUNCTIONS,
      "<tool_call>\n<function=get>\n<parameter=city>\n\n</parameter>\n<parameter=unit>\nc\n</parameter>\n</"
      "function>\n</"
      "tool_call>",
      "get({\"city\": \"\", \"unit\": \"c\"})" },
    { CALLS_FUNCTIONS, "<tool_call>\n{\"name\":\"code\",\"arguments\":{\"id\":\"ab\"}}\n</tool_call>",
      "code({\"id\":\"ab\"})" },
    { CALLS_KEYS, "<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>12</arg_value>\n</tool_call>",
      "get({\"city\": \"12\"})" },
    { CALLS_LIST, "[TOOL_CALLS][{\"name\":\"ping\",\"arguments\":{}}, {\"name\":\"ping\",\"arguments\":{}}]",
      "ping({})ping({})" },
    { CALLS_ARGS, "[TOOL_CALLS]get[ARGS]{\"city\":\"x\"}[TOOL_CALLS]ping[ARGS]{}",
      "get({\"city\":\"x\"})ping({})" },
    { CALLS_ARGS_ID, "[TOOL_CALLS]get[CALL_ID]abcdefghi[ARGS]{\"city\":\"x\"}", "get({\"city\":\"x\"})" },
    { CALLS_FENCED,
      CALLS_BEGIN CALL_BEGIN "function" CALL_SEP "get\n```json\n{\"city\":\"x\"}\n```" CALL_END CALLS_END,
      "get({\"city\":\"x\"})" },
    { CALLS_SEPARATED,
      CALLS_BEGIN CALL_BEGIN "get" CALL_SEP "{\"city\":\"x\"}" CALL_END CALL_BEGIN "ping" CALL_SEP
                             "{}" CALL_END CALLS_END,
      "get({\"city\":\"x\"})ping({})" },
    { CALLS_NAKED,
      "{\"name\":\"ping\",\"parameters\":{}}; {\"name\":\"get\",\"parameters\":{\"city\":\"x\"}}",
      "ping({})get({\"city\":\"x\"})" },
    { CALLS_BRACES, "<|tool_call>call:get{\"city\":\"x\"}<tool_call|><|tool_call>call:ping{}<tool_call|>",
      "get({\"city\": \"x\"})ping({})" },
    { CALLS_PYTHON,
      "<|tool_call_start|>[{\"name\":\"ping\",\"arguments\":{}}, {\"name\":\"get\",\"arguments\":"
      "{\"city\":\"x\"}}]<|tool_call_end|>",
      "ping({})get({\"city\":\"x\"})" },
    { CALLS_BARS,
      "<|tool_call|>[{\"name\":\"get\",\"arguments\":{\"city\":\"x\"}}, "
      "{\"name\":\"ping\",\"arguments\":{}}]",
      "get({\"city\":\"x\"})ping({})" },
    { CALLS_CAPITALS,
      "<TOOLCALL>[{\"name\":\"get\",\"arguments\":{\"city\":\"x\"}}, "
      "{\"name\":\"ping\",\"arguments\":{}}]</TOOLCALL>",
      "get({\"city\":\"x\"})ping({})" },
    { CALLS_LINES,
      "<function_calls>{\"name\":\"get\",\"arguments\":{\"city\":\"x\"}}\n"
      "{\"name\":\"ping\",\"arguments\":{}}</function_calls>",
      "get({\"city\":\"x\"})ping({})" },
    { CALLS_TURNS, "get\n{\"city\":\"x\"}<|assistant|>ping\n{}", "get({\"city\":\"x\"})ping({})" },
    { CALLS_CHANNELS,
      "<|channel|>commentary to=functions.get <|constrain|>json<|message|>{\"city\":\"x\"}<|call|>"
      "<|start|>assistant<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}",
      "get({\"city\":\"x\"})ping({})" },
};

static void what_a_grammar_allows_is_read_back(void **state)
{
    struct api_request ask;

    (void)state;
    make_ask(&ask, "");
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct constrain_options o = { .style = families[i].style };
        struct buf read = { 0 };
        if (!fits(&ask, &o, families[i].answer))
            fail_msg("family %d does not allow %s", families[i].style, families[i].answer);
        read_back(&ask, families[i].style, families[i].answer, &read);
        assert_string_equal(read.at, families[i].calls);
        buf_free(&read);
    }
    api_request_release(&ask);
}

static void what_no_schema_allows_is_not_written(void **state)
{
    static const struct {
        enum tool_call_style style;
        const char *answer;
    } wrong[] = {
        { CALLS_FUNCTIONS, "<tool_call>\n<function=get>\n</function>\n</tool_call>" }, // city is required
        { CALLS_FUNCTIONS, "<tool_call>\n<function=get>\n<parameter=city>\nx\n</"
                           "parameter>\n<parameter=days>\n8\n</parameter>\n</"
                           "function>\n</tool_call>" },
        { CALLS_FUNCTIONS, "<tool_call>\n<function=get>\n<parameter=city>\nx\n</"
                           "parameter>\n<parameter=unit>\nk\n</parameter>\n</"
                           "function>\n</tool_call>" },
        { CALLS_FUNCTIONS,
          "<tool_call>\n<function=code>\n<parameter=id>\nx\n</parameter>\n</function>\n</tool_call>" },
        { CALLS_FUNCTIONS, "<tool_call>\n{\"name\":\"code\",\"arguments\":{\"id\":\"abc\"}}\n</tool_call>" },
        { CALLS_KEYS, "<tool_call>other\n</tool_call>" },
        { CALLS_ARGS, "[TOOL_CALLS]get[ARGS]{}" },
        { CALLS_SEPARATED, "{}" },
        { CALLS_TURNS, "get\n{}" },
        { CALLS_TURNS, "other\n{}" },
        { CALLS_TURNS, "ping {}" },
    };
    struct api_request ask;

    (void)state;
    make_ask(&ask, "");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (fits(&ask, &(struct constrain_options){ .style = wrong[i].style }, wrong[i].answer))
            fail_msg("allowed: %s", wrong[i].answer);
    api_request_release(&ask);
}

static void one_call_and_a_named_tool(void **state)
{
    struct constrain_options o = { .style = CALLS_ARGS };
    struct api_request ask;

    (void)state;
    make_ask(&ask, ",\"parallel_tool_calls\":false");
    assert_false(fits(&ask, &o, "[TOOL_CALLS]ping[ARGS]{}[TOOL_CALLS]ping[ARGS]{}"));
    api_request_release(&ask);
    make_ask(&ask, "");
    ask.choice = CHOICE_NAMED;
    ask.tool = "get";
    assert_false(fits(&ask, &o, "[TOOL_CALLS]ping[ARGS]{}"));
    assert_true(fits(&ask, &o, "[TOOL_CALLS]get[ARGS]{\"city\":\"\"}"));
    api_request_release(&ask);
}

static void reasoning_may_hold_anything_but_its_end(void **state)
{
    struct constrain_options o = { .style = CALLS_ARGS, .reasoning_open = true },
                             thinks = { .style = CALLS_ARGS, .thinks = true };
    struct api_request ask;

    (void)state;
    make_ask(&ask, "");
    assert_true(fits(&ask, &o, "a <b></th> <</thin </think>\n\n[TOOL_CALLS]ping[ARGS]{}"));
    assert_false(fits(&ask, &o, "[TOOL_CALLS]ping[ARGS]{}"));
    assert_true(fits(&ask, &thinks, "[TOOL_CALLS]ping[ARGS]{}"));
    assert_true(fits(&ask, &thinks, "<think>x</think>[TOOL_CALLS]ping[ARGS]{}"));
    thinks.marks = reasoning_marks_of(STR("[THINK]"), NULL);
    assert_true(fits(&ask, &thinks, "[THINK]a [/THIN] [[/[b[/THINK][TOOL_CALLS]ping[ARGS]{}"));
    assert_false(fits(&ask, &thinks, "[THINK]a [/THIN][TOOL_CALLS]ping[ARGS]{}"));
    thinks.marks = reasoning_marks_of(STR("<|channel>"), NULL);
    thinks.style = CALLS_BRACES;
    assert_true(
        fits(&ask, &thinks, "<|channel>thought\na <channel> b<channel|><|tool_call>call:ping{}<tool_call|>"));
    o.style = thinks.style = CALLS_CHANNELS;
    static const char call[] = "<|channel|>commentary to=functions.ping <|constrain|>json<|message|>{}";
    char answer[256];
    snprintf(answer, sizeof answer, "<|channel|>analysis<|message|>a < b<|end|><|start|>assistant%s", call);
    assert_true(fits(&ask, &thinks, call));
    assert_true(fits(&ask, &thinks, answer));
    assert_false(fits(&ask, &thinks, answer + strlen("<|channel|>analysis<|message|>")));
    assert_true(fits(&ask, &o, answer + strlen("<|channel|>analysis<|message|>")));
    api_request_release(&ask);
}

static json_t *made(const char *name, const char *arguments)
{
    return json_pack("{s:s, s:{s:s, s:s}}", "id", "abcdefghi", "function", "name", name, "arguments",
                     arguments);
}

// By the reader of the same family.
static void calls_that_were_made_are_read_back(void **state)
{
    json_t *calls =
        json_pack("[o, o]", made("get", "{\"city\": \"a \\\"b\\\"\", \"days\": 3}"), made("ping", "{}"));
    struct api_request ask;

    (void)state;
    make_ask(&ask, "");
    for (enum tool_call_style style = CALLS_TAGS; style < N_CALL_STYLES; style++) {
        struct buf text = { 0 }, read = { 0 };
        constrain_calls_text(style, calls, &text);
        read_back(&ask, style, buf_as_str(&text).at, &read);
        if (strcmp(buf_as_str(&read).at, "get({\"city\": \"a \\\"b\\\"\", \"days\": 3})ping({})") != 0)
            fail_msg("family %d: '%s' is read as '%s'", style, text.at, read.at);
        buf_free(&text);
        buf_free(&read);
    }
    api_request_release(&ask);
    json_decref(calls);
}

// Granite 3's and LFM2's templates show none.
static void earlier_calls_have_the_familys_form(void **state)
{
    json_t *calls = json_pack("[o]", made("f", "{\"a\": [true, null], \"b\": {\"\\\"c\": \"x\"}}"));
    struct buf text = { 0 };

    (void)state;
    constrain_calls_text(CALLS_PYTHON, calls, &text);
    assert_string_equal(text.at,
                        "<|tool_call_start|>[f(a=[True, None], b={\"\\\"c\": \"x\"})]<|tool_call_end|>");
    text.n = 0;
    constrain_calls_text(CALLS_BARS, calls, &text);
    assert_string_equal(text.at,
                        "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": [true, null], \"b\": "
                        "{\"\\\"c\": \"x\"}}}]");
    buf_free(&text);
    json_decref(calls);
}

// What a template that shows no calls gets in the place of these messages.
static json_t *told(const char *messages, enum tool_call_style style, struct err *err)
{
    struct ingot_template_info template = { 0 };
    struct messages told = { 0 };
    struct api_request ask = { 0 };
    struct buf text = { 0 };

    buf_printf(&text, "{\"messages\":[%s]}", messages);
    assert_ok(api_request_read(&ask, DIALECT_CHAT, json_loads(text.at, 0, NULL), &server_limits_default, err),
              err);
    messages_for_template(&ask, &template, style, &told, err);
    json_t *list = json_incref(told.list);
    messages_release(&told);
    api_request_release(&ask);
    buf_free(&text);
    return list;
}

static void expect_told(const char *messages, enum tool_call_style style, const char *content)
{
    struct err err = { 0 };
    json_t *list = told(messages, style, &err);

    assert_int_equal(err.code, ERR_NONE);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "content")), content);
    json_decref(list);
}

#define CALLS(list)     "{\"role\":\"assistant\",\"content\":\"Yes.\",\"tool_calls\":" list "}"
#define CALL(arguments) "[{\"id\":\"c\",\"function\":{\"name\":\"f\"" arguments "}}]"

static void calls_of_no_arguments_and_no_calls(void **state)
{
    static const char call[] = "Yes.\n<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]";

    (void)state;
    expect_told(CALLS(CALL("")), CALLS_BARS, call);
    expect_told(CALLS(CALL(",\"arguments\":\"\"")), CALLS_BARS, call);
    expect_told(CALLS(CALL(",\"arguments\":\" \\n\"")), CALLS_BARS, call);
    expect_told(CALLS(CALL(",\"arguments\":null")), CALLS_BARS, call);
    expect_told(CALLS("null"), CALLS_BARS, "Yes.");
    expect_told(CALLS("[]"), CALLS_PYTHON, "Yes.");
    expect_told("{\"role\":\"tool\",\"content\":[{\"type\":\"text\",\"text\":\"sunny\"}]}", CALLS_BARS,
                "<tool_response>\nsunny\n</tool_response>");
}

// GLM-4-0414's template has a place for the name of a tool, and for a result.
static void calls_become_turns_of_their_own(void **state)
{
    static const char asked[] =
        "{\"role\":\"user\",\"content\":\"w?\"},"
        "{\"role\":\"assistant\",\"content\":\"I look.\",\"tool_calls\":[{\"id\":\"a\",\"function\":{"
        "\"name\":\"get\",\"arguments\":\"{\\\"city\\\":  \\\"Rome\\\"}\"}},{\"id\":\"b\",\"function\":{"
        "\"name\":\"ping\"}}]},"
        "{\"role\":\"tool\",\"tool_call_id\":\"a\",\"content\":[{\"type\":\"text\",\"text\":\"sunny\"}]},"
        "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":{\"name\":\"get\","
        "\"arguments\":"
        "{\"city\":\"Oslo\"}}}]}";
    static const char *const turns[][3] = {
        { "user", NULL, "w?" },
        { "assistant", NULL, "I look." },
        { "assistant", "get", "{\"city\":  \"Rome\"}" },
        { "assistant", "ping", "{}" },
        { "observation", NULL, "sunny" },
        { "assistant", "get", "{\"city\": \"Oslo\"}" },
    };
    static const char *const keys[] = { "role", "metadata", "content" };
    struct err err = { 0 };
    json_t *list = told(asked, CALLS_TURNS, &err);

    (void)state;
    assert_int_equal(err.code, ERR_NONE);
    assert_int_equal(json_array_size(list), sizeof turns / sizeof *turns);
    for (size_t i = 0; i < sizeof turns / sizeof *turns; i++)
        for (size_t k = 0; k < 3; k++) {
            json_t *value = json_object_get(json_array_get(list, i), keys[k]);
            if (turns[i][k])
                assert_string_equal(json_string_value(value), turns[i][k]);
            else
                assert_null(value);
            assert_null(json_object_get(json_array_get(list, i), "tool_calls"));
        }
    json_decref(list);
}

static void what_is_no_call_is_refused(void **state)
{
    static const char *const wrong[] = { CALLS("{}"), CALLS("[5]"), CALLS("[{}]"),
                                         CALLS("[{\"function\":{\"name\":7}}]") };

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err = { 0 };
        json_decref(told(wrong[i], CALLS_TAGS, &err));
        if (err.code != ERR_INPUT || !strstr(err.message, "messages[0].tool_calls"))
            fail_msg("%s: %s", wrong[i], err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_grammar_allows_is_read_back),
        cmocka_unit_test(what_no_schema_allows_is_not_written),
        cmocka_unit_test(one_call_and_a_named_tool),
        cmocka_unit_test(calls_that_were_made_are_read_back),
        cmocka_unit_test(earlier_calls_have_the_familys_form),
        cmocka_unit_test(calls_become_turns_of_their_own),
        cmocka_unit_test(calls_of_no_arguments_and_no_calls),
        cmocka_unit_test(what_is_no_call_is_refused),
        cmocka_unit_test(reasoning_may_hold_anything_but_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
