// test_output_parser.c - answers taken apart: the same pieces whole, byte by byte, and cut anywhere.
#include "testing.h"
#include "base/file.h"
#include "text/parsers/output_parser.h"

// "R(...)" reasoning, "C(...)" content, "T0:name(arguments)" a call; neighbouring pieces of a kind are
// joined.
static void show(struct buf *out, const struct output_piece *p, int *open)
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

static void take(struct output_parser *s, struct buf *out, int *open)
{
    struct output_piece piece;
    while (output_parser_next(s, &piece))
        show(out, &piece, open);
}

// In two parts that meet at `cut`, or byte by byte when cut is SIZE_MAX.
static void read_cut(const struct output_parser_options *o, struct str text, size_t cut, struct buf *out)
{
    struct output_parser s = { 0 };
    int open = -1;

    output_parser_init(&s, o);
    for (size_t i = 0; i < text.n;) {
        size_t n = cut == SIZE_MAX ? 1 : i == 0 && cut > 0 ? cut : text.n - i;
        output_parser_push(&s, str_from_to(text, i, i + n));
        take(&s, out, &open);
        i += n;
    }
    output_parser_finish(&s);
    take(&s, out, &open);
    if (open >= 0)
        buf_text(out, ")");
    output_parser_release(&s);
}

static void expect_with(const struct output_parser_options *o, const char *text, const char *wanted)
{
    for (size_t cut = 0; cut <= strlen(text); cut++) {
        struct buf out = { 0 };
        read_cut(o, str_from(text), cut < strlen(text) ? cut : SIZE_MAX, &out);
        if (strcmp(buf_as_str(&out).at, wanted) != 0)
            fail_msg("%s cut at %zu\n  wanted: %s\n  found:  %s", text, cut, wanted, buf_as_str(&out).at);
        buf_free(&out);
    }
}

static void expect(enum tool_call_style style, const char *text, const char *wanted)
{
    expect_with(&(struct output_parser_options){ .style = style }, text, wanted);
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
    expect_with(&(struct output_parser_options){ .reasoning_open = true }, "so\n</think>A", "R(so)C(A)");
    expect(CALLS_TAGS, "<think>x</think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>",
           "R(x)T0:f({})");
}

static void expect_marks(const char *chat_template, const struct output_parser_options *options,
                         const char *text, const char *wanted)
{
    struct output_parser_options o = *options;

    o.style = o.style ? tool_call_style_of(str_from(chat_template)) : CALLS_NONE;
    o.marks = reasoning_marks_of(str_from(chat_template), NULL);
    expect_with(&o, text, wanted);
}

// Marks are found in the template, as calls are.
static void reasoning_has_the_family_s_marks(void **state)
{
    static const struct output_parser_options plain,
        open = { .reasoning_open = true }, calls = { .style = CALLS_TAGS },
        open_calls = { .style = CALLS_TAGS, .reasoning_open = true };
    static const char gemma[] = "<|channel>thought\n<channel|> <|tool_call>call:",
                      mistral[] = "[THINK] [/THINK] [TOOL_CALLS] [ARGS]",
                      qwen[] = "<think> <tool_call>\n<function=example>",
                      *lfm = "<think> <|tool_call_start|>";

    (void)state;
    expect_marks(gemma, &plain, "<|channel>thought\nHm, <b>.\n<channel|>Two.", "R(Hm, <b>.)C(Two.)");
    expect_marks(gemma, &plain, "<|channel>thought\n<channel|>Two.", "C(Two.)");
    expect_marks(gemma, &plain, "<think>no</think>", "C(<think>no</think>)");
    expect_marks(gemma, &open, "so\n<channel|>A", "R(so)C(A)");
    expect_marks(gemma, &calls, "<|channel>thought\nHm.<|tool_call>call:f{}<tool_call|>", "R(Hm.)T0:f({})");
    expect_marks(mistral, &plain, "[THINK]a [/b] c[/THINK]Two.", "R(a [/b] c)C(Two.)");
    expect_marks(mistral, &plain, "[THINK]never", "R(never)");
    expect_marks(mistral, &calls, "[THINK]a[TOOL_CALLS]f[ARGS]{\"x\":1}", "R(a)T0:f({\"x\":1})");
    expect_marks(qwen, &open_calls, "I must call.\n<tool_call>\n<function=f>\n</function>\n</tool_call>",
                 "R(I must call.)T0:f({})");
    // without tools no call ends a thought
    expect_marks(qwen, &plain, "<think>a <tool_call> b</think>c", "R(a <tool_call> b)C(c)");
    expect_marks(lfm, &plain, "<think>a</think>c", "R(a)C(c)");
}

static void calls_in_braces(void **state)
{
    (void)state;
    expect(CALLS_BRACES, "<|tool_call>call:get{city:<|\"|>New \"York\"\n{x}<|\"|>,days:3}<tool_call|>",
           "T0:get({\"city\": \"New \\\"York\\\"\\n{x}\", \"days\": 3})");
    expect(CALLS_BRACES,
           "So.<|tool_call>call:f{a:{b:[1,<|\"|>t<|\"|>,null],c:{}},d:true,e:-1.5}<tool_call|>"
           "<|tool_call>call:g{}<tool_call|>",
           "C(So.)T0:f({\"a\": {\"b\": [1, \"t\", null], \"c\": {}}, \"d\": true, \"e\": -1.5})T1:g({})");
    expect(CALLS_BRACES, "<|tool_call>call:f{<|\"|>a key<|\"|>: word and more, b : [ ] }<tool_call|>ok",
           "T0:f({\"a key\": \"word and more\", \"b\": []})C(ok)");
    expect(CALLS_BRACES, "<|tool_call>call:f{\"a\": \"x\\\"<|\\\\\", \"b\": [\"y\"]}<tool_call|>",
           "T0:f({\"a\": \"x\\\"<|\\\\\", \"b\": [\"y\"]})");
    // what does not fit ends the call, whose arguments are JSON still
    expect(CALLS_BRACES, "<|tool_call>call:f{a:[1}<tool_call|>", "T0:f({\"a\": [1]})C(}<tool_call|>)");
    expect(CALLS_BRACES, "<|tool_call>call:f{a}<tool_call|>", "T0:f({\"a\": null})");
    expect(CALLS_BRACES, "<|tool_call>call:f{a:1,}<tool_call|>", "T0:f({\"a\": 1})");
    expect(CALLS_BRACES, "<|tool_call>call:f{:}", "T0:f({})C(:})");
    expect(CALLS_BRACES, "<|tool_call>call:f{a:<|\"|>cut <|", "T0:f({\"a\": \"cut <|)");
    expect(CALLS_BRACES, "<|tool_call>no call", "C(no call)");
    expect(CALLS_BRACES, "<|tool_call>call:bad name{}", "C(call:bad name{})");
    expect(CALLS_BRACES, "a <|tool b", "C(a <|tool b)");
}

static void calls_in_python_between_marks(void **state)
{
    json_t *tools = json_loads("[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\"}}]", 0, NULL);
    struct output_parser_options o = { .style = CALLS_PYTHON, .tools = tools };

    (void)state;
    expect_with(&o, "<|tool_call_start|>[f(a=\"b, c)\", n=3), g()]<|tool_call_end|>Checking.",
                "T0:f({\"a\": \"b, c)\", \"n\": 3})T1:g({})C(Checking.)");
    expect_with(&o, "So <|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"a\": 1}}]<|tool_call_end|>",
                "C(So)T0:f({\"a\": 1})");
    expect_with(&o, "<|tool_call_start|>[h(a=1)]<|tool_call_end|>", "C(h(a=1)]<|tool_call_end|>)");
    expect_with(&o, "<|tool_call_start|>text", "C(text)");
    // a list that is none is over where the next begins
    expect_with(&o, "<|tool_call_start|>[h()]<|tool_call_end|><|tool_call_start|>[g()]<|tool_call_end|>",
                "C(h()]<|tool_call_end|>)T0:g({})");
    json_decref(tools);
}

// OLMo 3: calls in Python, a line each.
static void calls_in_lines_between_marks(void **state)
{
    json_t *tools = json_loads("[{\"function\":{\"name\":\"f\"}},{\"function\":{\"name\":\"g\"}}]", 0, NULL);
    struct output_parser_options o = { .style = CALLS_LINES, .tools = tools };

    (void)state;
    expect_with(&o, "So.<function_calls>f(a=\"b, c)\\n\", n=[1, null])\ng()</function_calls>",
                "C(So.)T0:f({\"a\": \"b, c)\\n\", \"n\": [1, null]})T1:g({})");
    expect_with(&o, "<function_calls>\ng()\n</function_calls>\n\nf(1) is text", "T0:g({})C(f(1) is text)");
    expect_with(&o, "<function_calls>g()</function_calls><function_calls>f(a=true)</function_calls>",
                "T0:g({})T1:f({\"a\": true})");
    expect_with(&o,
                "<function_calls>{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n{\"name\": \"g\", "
                "\"arguments\": {}}</function_calls>",
                "T0:f({\"a\": 1})T1:g({})");
    expect_with(&o, "<function_calls>h(a=1)</function_calls>", "C(h(a=1)</function_calls>)");
    expect_with(&o, "<function_calls>g()\nh()", "T0:g({})C(h())");
    expect_with(&o, "a <function_call", "C(a <function_call)");
    json_decref(tools);
}

static void calls_between_tags(void **state)
{
    (void)state;
    expect(CALLS_TAGS,
           "<tool_call>\n{\"name\": \"get\", \"arguments\": {\"a\": [1, \"}\\\"\"]}}\n</tool_call>",
           "T0:get({\"a\": [1, \"}\\\"\"]})");
    expect(CALLS_TAGS,
           "Let me "
           "see.\n<tool_call>{\"arguments\":{\"x\":1},\"name\":\"late\"}</"
           "tool_call>\n\n<tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>",
           "C(Let me see.)T0:late({\"x\":1})T1:b({})");
    expect(CALLS_TAGS, "<tool_call>{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>",
           "T0:f({\"a\": 1})");
    expect(CALLS_TAGS, "<tool_call>{\"name\":\"f\"}</tool_call> done", "T0:f()C(done)");
    expect(CALLS_TAGS, "<tool_call>no json</tool_call>", "C(no json</tool_call>)");
    expect(CALLS_TAGS, "<tool_call>{\"nothing\": 1}</tool_call>", "C({\"nothing\": 1}</tool_call>)");
    expect(CALLS_TAGS, "<tool_call>{\"name\":\"f\",\"arguments\":{\"cut\": tr", "T0:f({\"cut\": tr)");
    expect_with(&(struct output_parser_options){ .style = CALLS_TAGS, .most_calls = 1 },
                "<tool_call>{\"name\":\"a\",\"arguments\":{}}</"
                "tool_call><tool_call>{\"name\":\"b\",\"arguments\":{}}</tool_call>",
                "T0:a({})");
}

static void calls_with_marked_up_arguments(void **state)
{
    (void)state;
    expect(CALLS_TAGS,
           "<tool_call>\n<function=get>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</"
           "parameter>\n</function>\n</"
           "tool_call>",
           "T0:get({\"city\": \"Rome\", \"days\": 3})");
    expect(CALLS_TAGS,
           "So.<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>New "
           "York</arg_value>\n<arg_key>l</arg_key><arg_value>[1]</arg_value>\n</tool_call>",
           "C(So.)T0:get({\"city\": \"New York\", \"l\": [1]})");
    expect(CALLS_TAGS, "<tool_call>ping</tool_call><tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call>",
           "T0:ping({})T1:f({})");
    expect(CALLS_TAGS, "<tool_call>\n<function=get>\n<parameter=city>\nRome", "T0:get({\"city\": \"Rome\")");
    expect(CALLS_FUNCTIONS, "<function=get>\n<parameter=a>\n<b>\n\n</parameter>\n</function>\n</tool_call>",
           "T0:get({\"a\": \"<b>\\n\"})");
    expect(CALLS_FUNCTIONS, "a <function of x", "C(a <function of x)");
    expect(CALLS_FUNCTIONS, "a <function=of x> b <function=", "C(a<function=of x> b<function=)");
    expect(
        CALLS_FUNCTIONS,
        "<tool_call><function=get></function></tool_call>\n<tool_call><function=add></function></tool_call>",
        "T0:get({})T1:add({})");
    expect(CALLS_KEYS, "<tool_call>one word</tool_call>", "C(one word</tool_call>)");
    expect(CALLS_KEYS, "<tool_call>hello\nworld", "C(hello\nworld)");
    expect(
        CALLS_TAGS,
        "<tool_call>[{\"name\":\"f\",\"arguments\":{}}, {\"name\":\"g\",\"arguments\":{}}]</tool_call>, so",
        "T0:f({})T1:g({})C(, so)");
}

static const char known_tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"city\":{\"type\":"
    "\"string\"},\"days\":{\"type\":\"integer\"},\"note\":{\"anyOf\":[{\"type\":\"string\"},{"
    "\"type\":\"null\"}]},\"any\":{}}}}}]";

// What a value is, is for the schema to say: 12 is a city's name here, and no number.
static void marked_up_values_have_the_type_of_the_schema(void **state)
{
    json_t *tools = json_loads(known_tools, 0, NULL);
    struct output_parser_options functions = { .style = CALLS_FUNCTIONS, .tools = tools },
                                 keys = { .style = CALLS_KEYS, .tools = tools };

    (void)state;
    expect_with(&functions,
                "<tool_call>\n<function=get>\n<parameter=city>\n12\n</parameter>\n<parameter=days>\n12\n</"
                "parameter>\n<parameter="
                "note>\n12\n</parameter>\n<parameter=any>\n12\n</parameter>\n</function>\n</tool_call>",
                "T0:get({\"city\": \"12\", \"days\": 12, \"note\": \"12\", \"any\": 12})");
    expect_with(&functions,
                "<tool_call><function=get><parameter=city>a "
                "\"b\"\n\n\tc\\</parameter><parameter=note>null</parameter></function>",
                "T0:get({\"city\": \"a \\\"b\\\"\\n\\n\\u0009c\\\\\", \"note\": null})");
    expect_with(&functions,
                "<tool_call><function=get><parameter=city>\n\n</parameter><parameter=days>many</parameter></"
                "function>",
                "T0:get({\"city\": \"\", \"days\": \"many\"})");
    expect_with(&functions, "<tool_call><function=get><parameter=city>\nRo </param",
                "T0:get({\"city\": \"Ro </param)");
    expect_with(&keys,
                "<tool_call>get\n<arg_key>city</arg_key>\n<arg_value>\n12\n</arg_value>\n</"
                "tool_call>\n<tool_call>get</tool_call>",
                "T0:get({\"city\": \"\\n12\\n\"})T1:get({})");
    json_decref(tools);
}

static void calls_in_a_list(void **state)
{
    (void)state;
    expect(CALLS_LIST,
           "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": 1}}, {\"name\": \"g\", \"arguments\": {}}]",
           "T0:f({\"a\": 1})T1:g({})");
    expect(CALLS_LIST, "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}]",
           "T0:f({})");
    expect(CALLS_LIST, "[TOOL_CALLS]look[ARGS]{\"at\": \"it\"}[TOOL_CALLS]go[ARGS]{}",
           "T0:look({\"at\": \"it\"})T1:go({})");
    expect(CALLS_LIST, "Sure[1] [TOOL_CALLS][{\"name\":\"f\",\"arguments\":{}}]", "C(Sure[1])T0:f({})");
    expect(CALLS_LIST, "[TOOL_CALLS]look[CALL_ID]abcdefghi[ARGS]{\"at\": 1}", "T0:look({\"at\": 1})");
    expect(CALLS_ARGS, "[TOOL_CALLS]no call at all", "C(no call at all)");
    expect(CALLS_ARGS, "[TOOL_CALLS]not a name{}", "T0:not({})");
    expect(CALLS_ARGS, "[TOOL_CALLS]{x", "C({x)");
}

static void calls_behind_a_mark_with_bars(void **state)
{
    (void)state;
    expect(
        CALLS_BARS,
        "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, {\"name\": \"g\", \"arguments\": {}}]",
        "T0:f({\"a\": [1]})T1:g({})");
    expect(CALLS_BARS,
           "Sure <|tool_call|>{\"name\": \"f\", \"arguments\": {\"a\": 1}}<|/tool_call|>"
           "<|tool_call|>{\"name\": \"g\", \"arguments\": {}}<|/tool_call|>",
           "C(Sure)T0:f({\"a\": 1})T1:g({})");
    expect(CALLS_BARS, "<|tool_call|>none", "C(none)");
    expect(CALLS_BARS, "<|tool_cal", "C(<|tool_cal)");
}

static void calls_between_marks_in_capitals(void **state)
{
    (void)state;
    expect(CALLS_CAPITALS,
           "<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, "
           "{\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>\n",
           "T0:f({\"a\": [1]})T1:g({})");
    expect(CALLS_CAPITALS, "Sure\n\n<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}]</TOOLCALL>",
           "C(Sure)T0:f({})");
    expect(CALLS_CAPITALS, "<TOOLCALL>[]</TOOLCALL>none", "C(none)");
    expect(CALLS_CAPITALS, "<TOOLCAL", "C(<TOOLCAL)");
}

static void calls_as_deepseek_writes_them(void **state)
{
    (void)state;
    expect(CALLS_FENCED,
           "Let me see.\n" CALLS_BEGIN CALL_BEGIN "function" CALL_SEP
           "get\n```json\n{\"city\": \"Rome\"}\n```" CALL_END "\n" CALL_BEGIN "function" CALL_SEP
           "add\n```json\n{\"a\": {\"b\": 1}}\n```" CALL_END CALLS_END,
           "C(Let me see.)T0:get({\"city\": \"Rome\"})T1:add({\"a\": {\"b\": 1}})");
    expect(CALLS_SEPARATED,
           CALLS_BEGIN CALL_BEGIN "get" CALL_SEP "{\"city\": \"Rome\"}" CALL_END CALL_BEGIN "add" CALL_SEP
                                  "{}" CALL_END CALLS_END,
           "T0:get({\"city\": \"Rome\"})T1:add({})");
    expect(CALLS_SEPARATED, CALL_BEGIN "get" CALL_SEP "{\"city\": \"Ro", "T0:get({\"city\": \"Ro)");
    expect(CALLS_SEPARATED, "a <｜tool▁call", "C(a <｜tool▁call)");
    expect_with(&(struct output_parser_options){ .style = CALLS_SEPARATED, .reasoning_open = true },
                "hm</think>" CALLS_BEGIN CALL_BEGIN "get" CALL_SEP "{}" CALL_END CALLS_END,
                "R(hm)T0:get({})");
}

static void python_calls_of_known_tools(void **state)
{
    json_t *tools = json_loads(known_tools, 0, NULL);
    struct output_parser_options o = { .style = CALLS_NAKED, .tools = tools };

    (void)state;
    expect_with(&o, "[get(city='Ro\\'me', days=3), get(city=\"a\\n\")]",
                "T0:get({\"city\": \"Ro'me\", \"days\": 3})T1:get({\"city\": \"a\\n\"})");
    expect_with(&o, "<|python_tag|>get.call(city=\"x\", list=[1, {'k': None}, ], ok=True)",
                "T0:get({\"city\": \"x\", \"list\": [1, {\"k\": null}], \"ok\": true})");
    expect_with(&o, "get(city='x') is how", "C(get(city='x') is how)");
    expect_with(&o, "[other(city='x')]", "C([other(city='x')])");
    expect_with(&o, "[get('x')]", "C([get('x')])");
    expect_with(&o, "[1, 2]", "C([1, 2])");
    expect_with(&o, "[get(city='x", "C([get(city='x)");
    expect_with(&o, "[get(city=os.system('x'))]", "C([get(city=os.system('x'))])");
    json_decref(tools);
}

static void naked_calls(void **state)
{
    (void)state;
    expect(CALLS_NAKED, "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "T0:f({\"a\": 1})");
    expect(CALLS_NAKED, "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}",
           "T0:f({})");
    expect(CALLS_NAKED, "{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}",
           "T0:f({})T1:g({})");
    expect(CALLS_NAKED, "{\"colour\": \"red\"}", "C({\"colour\": \"red\"})");
    expect(CALLS_NAKED, "The set {1, 2}.", "C(The set {1, 2}.)");
}

// A turn is a call if it begins with the name of a tool, a line break and an object.
static void calls_in_turns_of_their_own(void **state)
{
    static const char tools[] = "[{\"function\":{\"name\":\"get\"}},{\"function\":{\"name\":\"get_all\"}}]";
    struct output_parser_options o = { .style = CALLS_TURNS, .tools = json_loads(tools, 0, NULL) };
    struct output_parser_options one = o, open = o, without = { .style = CALLS_TURNS };

    (void)state;
    one.most_calls = 1;
    open.reasoning_open = true;
    expect_with(&o, "get\n{\"city\": \"Rome\"}", "T0:get({\"city\": \"Rome\"})");
    expect_with(&o, "\nget_all \n{\n  \"a\": {\"b\": [1, \"}\"]}\n}\n",
                "T0:get_all({\n  \"a\": {\"b\": [1, \"}\"]}\n})");
    expect_with(&o, "get\n{}<|assistant|>get_all\n{\"a\": 1}", "T0:get({})T1:get_all({\"a\": 1})");
    expect_with(&o, "get\n{}\nget\n{ }\n<|assistant|>\nDone.", "T0:get({})T1:get({ })C(Done.)");
    expect_with(&o, "\nLet me see.\n<|assistant|>get\n{}", "C(Let me see.)T0:get({})");
    expect_with(&o, "One.<|assistant|>\nTwo.<|assist", "C(One.\nTwo.<|assist)");
    expect_with(&one, "get\n{}<|assistant|>get\n{}", "T0:get({})");
    expect_with(&open, "I get\n{}\n</think>\n\nget\n{}", "R(I get\n{})T0:get({})");
    expect_with(&open, "hm</think>\n\nget on.", "R(hm)C(get on.)");
    expect_with(&o, "get\n{\"city\": \"Ro", "T0:get({\"city\": \"Ro)");
    // no tool, no object, no line, not at the beginning, and cut before it is certain
    expect_with(&o, "get_al\n{}", "C(get_al\n{})");
    expect_with(&o, "Get\n{}", "C(Get\n{})");
    expect_with(&o, "get\n{a} is a set", "C(get\n{a} is a set)");
    expect_with(&o, "get\n[1]", "C(get\n[1])");
    expect_with(&o, "get {}", "C(get {})");
    expect_with(&o, "Call get\n{}", "C(Call get\n{})");
    expect_with(&o, "Then:\nget\n{}", "C(Then:\nget\n{})");
    expect_with(&o, "get_a", "C(get_a)");
    expect_with(&o, "get\n{", "C(get\n{)");
    expect_with(&without, "get\n{}", "C(get\n{})");
    json_decref((json_t *)(uintptr_t)o.tools);
}

static void messages_on_channels(void **state)
{
    static const char tools[] = "[{\"type\":\"function\",\"function\":{\"name\":\"get\",\"parameters\":{}}}]";
    struct output_parser_options o = { .style = CALLS_CHANNELS, .tools = json_loads(tools, 0, NULL) };
    struct output_parser_options one = o, without = { .style = CALLS_CHANNELS };
    struct output_parser_options open = { .style = CALLS_CHANNELS, .reasoning_open = true };

    (void)state;
    one.most_calls = 1;
    expect_with(
        &o,
        "<|channel|>analysis<|message|>1 < 2 <|x|>.<|end|><|start|>assistant<|channel|>final<|message|>Two.",
        "R(1 < 2 <|x|>.)C(Two.)");
    expect_with(&without, "<|channel|>final<|message|>Two.\n<|return|>", "C(Two.\n)");
    expect_with(
        &o,
        "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.get "
        "<|constrain|>json<|message|>{\"a\": [\"<\"]}<|call|>",
        "R(Look.)T0:get({\"a\": [\"<\"]})");
    expect_with(&o, " to=functions.get<|channel|>commentary json<|message|>{\"a\": 1}", "T0:get({\"a\": 1})");
    expect_with(&o, "<|start|>assistant<|channel|>commentary to=get<|message|>{\"a\": tr",
                "T0:get({\"a\": tr)");
    expect_with(
        &o, "<|channel|>commentary<|message|>First.<|end|><|start|>assistant<|channel|>final<|message|>Then.",
        "C(First.\n\nThen.)");
    expect_with(
        &o,
        "<|channel|>commentary to=functions.get<|message|>{}<|call|><|start|>assistant<|channel|>commentary "
        "to=functions.get<|message|>{\"b\":2}<|call|>",
        "T0:get({})T1:get({\"b\":2})");
    expect_with(
        &one,
        "<|channel|>commentary to=functions.get<|message|>{}<|call|><|start|>assistant<|channel|>commentary "
        "to=functions.get<|message|>{\"b\":2}<|call|>",
        "T0:get({})");
    // no tool of the request, nobody's tools, an end that is missing, no header at all, and one that never
    // ends
    expect_with(&o, "<|channel|>analysis to=python<|message|>1 + 1<|call|>", "R(1 + 1)");
    expect_with(&without, "<|channel|>commentary to=functions.get<|message|>{}<|call|>", "C({})");
    expect_with(&o, "<|channel|>analysis<|message|>So.<|channel|>final<|message|>Yes.", "R(So.)C(Yes.)");
    expect_with(&o, "Just text, a <|b", "C(Just text, a <|b)");
    expect_with(&o, "<|channel|>final", "C(<|channel|>final)");
    expect_with(&open, "still thinking<|end|><|start|>assistant<|channel|>final<|message|>A",
                "R(still thinking)C(A)");
    json_decref((json_t *)(uintptr_t)o.tools);
}

static void styles_are_found_in_templates(void **state)
{
    static const struct {
        const char *name;
        enum tool_call_style style;
    } families[] = { { "qwen2.5", CALLS_TAGS },       { "qwen3", CALLS_TAGS },
                     { "qwen3.5", CALLS_FUNCTIONS },  { "glm4", CALLS_KEYS },
                     { "mistral-tools", CALLS_LIST }, { "devstral", CALLS_ARGS },
                     { "granite3", CALLS_BARS },      { "deepseek", CALLS_FENCED },
                     { "llama3-tools", CALLS_NAKED }, { "gemma4", CALLS_BRACES },
                     { "lfm2", CALLS_PYTHON },        { "gpt-oss", CALLS_CHANNELS },
                     { "olmo3", CALLS_LINES },        { "glm4-0414", CALLS_TURNS } };

    (void)state;
    assert_int_equal(tool_call_style_of(STR("x [TOOL_CALLS] y")), CALLS_LIST);
    assert_int_equal(tool_call_style_of(STR("x <tool_call> y")), CALLS_TAGS);
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct buf text = { 0 };
        struct err err;
        char path[128];
        snprintf(path, sizeof path, "tests/golden/templates/%s.jinja", families[i].name);
        assert_ok(file_read(&text, path, 1 << 20, &err), &err);
        assert_int_equal(tool_call_style_of(buf_as_str(&text)), families[i].style);
        buf_free(&text);
    }
    assert_int_equal(tool_call_style_of(STR("x <|channel|> <tool_call> y")), CALLS_CHANNELS);
    assert_int_equal(tool_call_style_of(STR("respond only with <|tool_call|> followed by")), CALLS_BARS);
    assert_int_equal(tool_call_style_of(STR("\"List of tools: [\"")), CALLS_PYTHON);
    assert_int_equal(tool_call_style_of(STR("use: <TOOLCALL>[{{\"name\": \"f\"}}]</TOOLCALL>")),
                     CALLS_CAPITALS);
    assert_int_equal(tool_call_style_of(STR("'<function_calls>' + message['function_calls']")), CALLS_LINES);
    assert_int_equal(tool_call_style_of(STR("Environment: ipython")), CALLS_NAKED);
    assert_int_equal(tool_call_style_of(STR("")), CALLS_TAGS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_text_is_content),
        cmocka_unit_test(reasoning_is_taken_out),
        cmocka_unit_test(reasoning_has_the_family_s_marks),
        cmocka_unit_test(calls_in_braces),
        cmocka_unit_test(calls_in_python_between_marks),
        cmocka_unit_test(calls_in_lines_between_marks),
        cmocka_unit_test(calls_in_turns_of_their_own),
        cmocka_unit_test(calls_between_tags),
        cmocka_unit_test(calls_with_marked_up_arguments),
        cmocka_unit_test(marked_up_values_have_the_type_of_the_schema),
        cmocka_unit_test(calls_in_a_list),
        cmocka_unit_test(calls_behind_a_mark_with_bars),
        cmocka_unit_test(calls_between_marks_in_capitals),
        cmocka_unit_test(calls_as_deepseek_writes_them),
        cmocka_unit_test(naked_calls),
        cmocka_unit_test(python_calls_of_known_tools),
        cmocka_unit_test(messages_on_channels),
        cmocka_unit_test(styles_are_found_in_templates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
