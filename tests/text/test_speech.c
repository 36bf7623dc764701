// test_speech.c - answers taken apart: the same pieces whole, byte by byte, and cut anywhere.
#include "testing.h"
#include "text/speech.h"

// "R(...)" reasoning, "C(...)" content, "T0:name(arguments)" a call; neighbouring pieces of a kind are joined.
static void show(struct buf *out, const struct speech_piece *p, int *open)
{
    static const char marks[] = "RCTA";

    if (p->kind == PIECE_CALL_END || *open != (int)p->kind) {
        if (*open >= 0 && p->kind != PIECE_ARGUMENTS)
            buf_text(out, ")");
        *open = p->kind == PIECE_CALL_END ? -1 : (int)p->kind;
        if (p->kind == PIECE_CALL)
            buf_printf(out, "T%u:%.*s(", p->call, STR_ARG(p->text));
        else if (p->kind < PIECE_CALL)
            buf_printf(out, "%c(", marks[p->kind]);
        if (p->kind == PIECE_CALL || p->kind == PIECE_CALL_END)
            return;
    }
    if (p->kind != PIECE_CALL)
        buf_str(out, p->text);
}

static void take(struct speech *s, struct buf *out, int *open)
{
    struct speech_piece piece;
    while (speech_next(s, &piece))
        show(out, &piece, open);
}

// In two parts that meet at `cut`, or byte by byte when cut is SIZE_MAX.
static void read_cut(const struct speech_options *o, struct str text, size_t cut, struct buf *out)
{
    struct speech s = { 0 };
    int open = -1;

    speech_begin(&s, o);
    for (size_t i = 0; i < text.n;) {
        size_t n = cut == SIZE_MAX ? 1 : i == 0 && cut > 0 ? cut : text.n - i;
        speech_push(&s, str_from_to(text, i, i + n));
        take(&s, out, &open);
        i += n;
    }
    speech_finish(&s);
    take(&s, out, &open);
    if (open >= 0)
        buf_text(out, ")");
    speech_release(&s);
}

static void expect_with(const struct speech_options *o, const char *text, const char *wanted)
{
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        struct buf out = { 0 };
        read_cut(o, str_from(text), cut < strlen(text) ? cut : SIZE_MAX, &out);
        if (strcmp(buf_as_str(&out).at, wanted) != 0)
            fail_msg("%s cut at %zu\n  wanted: %s\n  found:  %s", text, cut, wanted, buf_as_str(&out).at);
        buf_free(&out);
    }
}

static void expect(enum call_style style, const char *text, const char *wanted)
{
    expect_with(&(struct speech_options){ .style = style }, text, wanted);
}

static void plain_text_is_content(void **state)
{
    (void)state;
    expect(CALLS_NONE, "Hello <tool_call> there", "C(Hello <tool_call> there)");
    expect(CALLS_NONE, " \n two ", "C( \n two )");
    expect(CALLS_NONE, "", "");
    expect(CALLS_TAGS, "a < b, <tool, [TOOL_CALLS", "C(a < b, <tool, [TOOL_CALLS)");
    expect(CALLS_NONE, "<thin", "C(<thin)");
}

static void reasoning_is_taken_out(void **state)
{
    (void)state;
    expect(CALLS_NONE, "<think>\nHm, 1 < 2.\n</think>\n\nTwo.", "R(Hm, 1 < 2.)C(Two.)");
    expect(CALLS_NONE, "<think>\n\n</think>\n\nTwo.", "C(Two.)");
    expect(CALLS_NONE, "<think>never ends </thi", "R(never ends </thi)");
    expect(CALLS_NONE, "No <think>not here</think>", "C(No <think>not here</think>)");
    expect_with(&(struct speech_options){ .reasoning_open = true }, "so\n</think>A", "R(so)C(A)");
    expect(CALLS_TAGS, "<think>x</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>", "R(x)T0:f({})");
}

static void calls_between_tags(void **state)
{
    (void)state;
    expect(CALLS_TAGS, "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>",
           "T0:get({\"a\": [1, \"}\\\"\"]})");
    expect(CALLS_TAGS,
           "Let me "
           "see.\n<tool_call>{\"arguments\":{\"x\":1},\"name\":\"late\"}</"
           "tool_call>\n\n<tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>",
           "C(Let me see.)T0:late({\"x\":1})T1:b({})");
    expect(CALLS_TAGS, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>", "T0:f({\"a\": 1})");
    expect(CALLS_TAGS, "<tool_call>{\"name\":\"f\"}</tool_call> done", "T0:f()C(done)");
    expect(CALLS_TAGS, "<tool_call>no json</tool_call>", "C(no json</tool_call>)");
    expect(CALLS_TAGS, "<tool_call>{\"nothing\": 1}</tool_call>", "C({\"nothing\": 1}</tool_call>)");
    expect(CALLS_TAGS, "<tool_call>{\"name\":\"f\",\"arguments\":{\"cut\": tr", "T0:f({\"cut\": tr)");
    expect_with(
        &(struct speech_options){ .style = CALLS_TAGS, .most_calls = 1 },
        "<tool_call>{\"name\":\"a\",\"arguments\":{}}</tool_call><tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>",
        "T0:a({})");
}

static void calls_with_marked_up_arguments(void **state)
{
    (void)state;
    expect(CALLS_TAGS,
           "<tool_call>\n<function=get>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</"
           "tool_call>",
           "T0:get({\"city\": \"Rome\", \"days\": 3})");
    expect(CALLS_TAGS,
           "So.<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>New "
           "York</arg_value>\n<arg_key>l</arg_key><arg_value>[1]</arg_value>\n</tool_call>",
           "C(So.)T0:get({\"city\": \"New York\", \"l\": [1]})");
    expect(CALLS_TAGS, "<tool_call>ping</tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
           "T0:ping({})T1:f({})");
    expect(CALLS_TAGS, "<tool_call>\n<function=get>\n<parameter=city>\nRome", "C(<function=get>\n<parameter=city>\nRome)");
}

static void calls_in_a_list(void **state)
{
    (void)state;
    expect(CALLS_LIST, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
           "T0:f({\"a\": 1})T1:g({})");
    expect(CALLS_LIST, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}]", "T0:f({})");
    expect(CALLS_LIST, "[TOOL_CALLS]look[ARGS]{\"at\": \"it\"}[TOOL_CALLS]go[ARGS]{}", "T0:look({\"at\": \"it\"})T1:go({})");
    expect(CALLS_LIST, "Sure[1] [TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}]", "C(Sure[1])T0:f({})");
    expect_with(&(struct speech_options){ .style = CALLS_LIST, .call_open = true }, "[{\"name\":\"f\",\"arguments\":{}}]",
                "T0:f({})");
}

static void naked_calls(void **state)
{
    (void)state;
    expect(CALLS_NAKED, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "T0:f({\"a\": 1})");
    expect(CALLS_NAKED, "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "T0:f({})");
    expect(CALLS_NAKED, "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}", "T0:f({})T1:g({})");
    expect(CALLS_NAKED, "{\"colour\": \"red\"}", "C({\"colour\": \"red\"})");
    expect(CALLS_NAKED, "The set {1, 2}.", "C(The set {1, 2}.)");
}

static void styles_are_found_in_templates(void **state)
{
    (void)state;
    assert_int_equal(speech_style_of(STR("x [TOOL_CALLS] y")), CALLS_LIST);
    assert_int_equal(speech_style_of(STR("x <tool_call> y")), CALLS_TAGS);
    assert_int_equal(speech_style_of(STR("Environment: ipython")), CALLS_NAKED);
    assert_int_equal(speech_style_of(STR("")), CALLS_TAGS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text_is_content),
        cmocka_unit_test(reasoning_is_taken_out),
        cmocka_unit_test(calls_between_tags),
        cmocka_unit_test(calls_with_marked_up_arguments),
        cmocka_unit_test(calls_in_a_list),
        cmocka_unit_test(naked_calls),
        cmocka_unit_test(styles_are_found_in_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
