// test_grammar.c - GBNF: what fits and what does not, which tokens may come next, and that hostile grammars
// end in one clear error.
#include "testing.h"
#include "base/mem.h"
#include "text/grammar/grammar.h"
#include "text/grammar/matcher.h"

// "yes": a whole answer; "more": a beginning; "no": neither; or the error's message.
static const char *read_by(const char *gbnf, struct str text)
{
    static char message[600];
    struct grammar *g = NULL;
    struct matcher *m = NULL;
    struct err err = { 0 };
    const char *result = message;

    if (!grammar_create(&g, str_from(gbnf), &err) || !matcher_create(&m, g, &err)) {
        assert_int_not_equal(err.code, ERR_NONE);
        snprintf(message, sizeof message, "%s", err.message);
    } else if (!matcher_accept(m, text, &err)) {
        snprintf(message, sizeof message, "%s", err.message);
        result = strstr(message, "does not fit") ? "no" : message;
    } else {
        result = matcher_can_end(m) ? "yes" : "more";
    }
    matcher_free(m);
    grammar_free(g);
    return result;
}

static void expect(const char *gbnf, const char *text, const char *wanted)
{
    const char *found = read_by(gbnf, str_from(text));
    if (strcmp(found, wanted) != 0)
        fail_msg("%.200s\n  on \"%s\"\n  wanted: %s\n  found:  %s", gbnf, text, wanted, found);
}

static void refused(const char *gbnf, const char *part)
{
    const char *found = read_by(gbnf, STR(""));
    if (!strstr(found, part))
        fail_msg("%.80s\n  wanted an error with: %s\n  found: %s", gbnf, part, found);
}

static void words_choices_and_repetition(void **state)
{
    (void)state;
    expect("root ::= \"yes\" | \"no\"", "yes", "yes");
    expect("root ::= \"yes\" | \"no\"", "y", "more");
    expect("root ::= \"yes\" | \"no\"", "nope", "no");
    expect("root ::= \"a\"*", "", "yes");
    expect("root ::= \"a\"*", "aaaaaaaa", "yes");
    expect("root ::= \"a\"+", "", "more");
    expect("root ::= \"a\"? \"b\"", "b", "yes");
    expect("root ::= \"a\"? \"b\"", "aab", "no");
    expect("root ::= [0-9]{2,4}", "1", "more");
    expect("root ::= [0-9]{2,4}", "1234", "yes");
    expect("root ::= [0-9]{2,4}", "12345", "no");
    expect("root ::= [0-9]{3}", "123", "yes");
    expect("root ::= (\"ab\" | \"cd\"){2,}", "abcdab", "yes");
    expect("root ::= (\"ab\" | \"cd\"){2,}", "ab", "more");
    expect("root ::= \"a\"{0}", "", "yes");
    expect("root ::= \"x\" ([a-z] \",\")* \"y\" # a comment\n", "xa,b,y", "yes");
    expect("root ::= a |\n b\na ::= \"1\"\nb ::= (\n \"2\"\n)\n", "2", "yes");
}

static void characters_are_spelt_out_as_bytes(void **state)
{
    (void)state;
    expect("root ::= [^\"]+", "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\xa6\x8a", "yes");
    expect("root ::= [^\"]+", "\xf0\x9f", "more");
    expect("root ::= [^\"]+", "a\"", "no");
    expect("root ::= [^\"]+", "\xff", "no");
    expect("root ::= [^\"]+", "\xc0\x80", "no");         // overlong
    expect("root ::= [^\"]+", "\xed\xa0\x80", "no");     // a surrogate
    expect("root ::= [^\"]+", "\xf4\x90\x80\x80", "no"); // beyond the last one
    expect("root ::= [\xc3\xa0-\xc3\xbc]", "\xc3\xa9", "yes");
    expect("root ::= [\xc3\xa0-\xc3\xbc]", "\xc3\xbd", "no");
    expect("root ::= [\\u0400-\\u04ff]+", "\xd0\x96\xd1\x8f", "yes");
    expect("root ::= [\\u07f0-\\U00010010]", "\xe0\xa0\x80", "yes");
    expect("root ::= [\\u07f0-\\U00010010]", "\xf0\x90\x80\x90", "yes");
    expect("root ::= [\\u07f0-\\U00010010]", "\xf0\x90\x80\x91", "no");
    expect("root ::= . \"\\x41\\n\"",
           "\xe2\x82\xac"
           "A\n",
           "yes");
    expect("root ::= [a\\-\\]^]+", "a-]^", "yes");
}

static const char json_gbnf[] = "root ::= value\n"
                                "value ::= object | array | string | [0-9]+ | \"true\"\n"
                                "object ::= \"{\" (string \":\" value (\",\" string \":\" value)*)? \"}\"\n"
                                "array ::= \"[\" (value (\",\" value)*)? \"]\"\n"
                                "string ::= \"\\\"\" [^\"\\\\\\x00-\\x1f]* \"\\\"\"\n";

static void rules_call_each_other(void **state)
{
    (void)state;
    expect(json_gbnf, "{\"a\":[1,22,{\"b\":true}],\"c\":\"d\"}", "yes");
    expect(json_gbnf, "{\"a\":[1,22", "more");
    expect(json_gbnf, "{\"a\":[1,22}", "no");
    expect("root ::= \"a\" root | \"b\"", "aaaaaaab", "yes");
    expect("root ::= \"(\" root \")\" | \"\"", "((()))", "yes");
    expect("root ::= \"(\" root \")\" | \"\"", "((())", "more");
    expect("root ::= (\"a\"*)* \"b\"", "aaab", "yes"); // loops over nothing end
    expect("root ::= (a | b)* \"c\"\na ::= \"x\"?\nb ::= \"y\"*", "xyyxc", "yes");
}

static char *repeated(const char *before, const char *piece, size_t n, const char *after)
{
    size_t size = strlen(piece);
    char *text = mem_alloc(strlen(before) + n * size + strlen(after) + 1), *at = text;

    at += snprintf(at, strlen(before) + 1, "%s", before);
    for (size_t i = 0; i < n; i++, at += size)
        memcpy(at, piece, size);
    memcpy(at, after, strlen(after));
    return text;
}

static void refused_repeated(const char *before, const char *piece, size_t n, const char *after,
                             const char *part)
{
    char *text = repeated(before, piece, n, after);
    refused(text, part);
    mem_free(text);
}

static void hostile_grammars_end_in_an_error(void **state)
{
    (void)state;
    refused("", "root");
    refused("start ::= \"a\"", "no rule 'root'");
    refused("root ::= other", "'other' is not defined");
    refused("root ::= \"a\nroot ::= \"b\"", "line 1: a literal or class is not closed");
    refused("root ::= \"a\"\nroot ::= \"b\"", "defined twice");
    refused("root ::= [abc", "not closed");
    refused("root ::= []", "empty");
    refused("root ::= [z-a]", "backwards");
    refused("root ::= *", "nothing before it");
    refused("root ::= \"a\"**", "nothing before it");
    refused("root ::= \"a\"{1,2000000000}", "0 to 65536");
    refused("root ::= \"a\"{5,1}", "below m");
    refused("root ::= \"a\"{0,18446744073709551615}", "0 to 65536");
    refused("root ::= \"a\"{", "numbers");
    refused("root ::= (\"a\"", "not closed");
    refused("root ::= \"a\")", "not open");
    refused("root ::= <x>", "only control tokens");
    refused("root ::= \"\\q\"", "escape");
    refused("root ::= \"\\ud800\"", "no Unicode character");
    refused("root ::= root \"a\" | \"b\"", "left recursive");
    refused("root ::= a\na ::= b \"x\"\nb ::= \"\" a | \"y\"", "left recursive");
    refused("root ::= a\na ::= e? a \"x\" | \"y\"\ne ::= \"e\"", "left recursive");
    refused("root ::= (root)*", "left recursive");
    refused_repeated("root ::= ", "(", 60000, "", "nested more than 128");
    refused_repeated("root ::= ", "(\"a\"{60000}) ", 10, "", "too large");
    refused_repeated("root ::= \"", "a", 300000, "\"", "too large");
}

static void long_chains_of_rules_are_fine(void **state)
{
    struct buf text = { 0 };

    (void)state;
    buf_text(&text, "root ::= r0\n");
    for (int i = 0; i < 5000; i++)
        buf_printf(&text, "r%d ::= r%d\n", i, i + 1);
    buf_text(&text, "r5000 ::= \"x\"\n");
    expect(text.at, "x", "yes");
    text.n = 0;
    buf_text(&text, "root ::= r0\n");
    for (int i = 0; i < 70000; i++)
        buf_printf(&text, "r%d ::= r%d\n", i, i + 1);
    refused(text.at, "rules");
    buf_free(&text);
}

// Every "a" may belong to a call that ends in b or in c: two to the n ways.
static void ambiguity_is_bounded(void **state)
{
    const char *gbnf = "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"";
    char *text = repeated("", "a", 64, "");

    (void)state;
    expect(gbnf, "aaabcb", "yes");
    if (!strstr(read_by(gbnf, str_from(text)), "more than 8192 ways"))
        fail_msg("%s", read_by(gbnf, str_from(text)));
    mem_free(text);
    text = repeated("", "a", 100000, "");
    // ambiguous, but always in the same few ways
    expect("root ::= (\"a\" | \"aa\" | \"aaa\" | [a-z])*", text, "yes");
    expect("root ::= ((\"a\"*)*)*", text, "yes");
    mem_free(text);
}

// The caches are emptied again and again; the stack must survive it.
static void caches_are_emptied_without_losing_the_place(void **state)
{
    struct grammar *g;
    struct matcher *m;
    struct err err = { 0 };

    (void)state;
    assert_ok(grammar_create(&g, STR("root ::= \"[\" root \"]\" | n\nn ::= [0-9]{0,60000}"), &err), &err);
    assert_ok(matcher_create(&m, g, &err), &err);
    for (int i = 0; i < 100000; i++)
        assert_ok(matcher_accept(m, STR("["), &err), &err);
    for (int i = 0; i < 60000; i++)
        assert_ok(matcher_accept(m, STR("7"), &err), &err);
    assert_false(matcher_accept(m, STR("7"), &err));
    for (int i = 0; i < 100000; i++) {
        assert_false(matcher_can_end(m));
        assert_ok(matcher_accept(m, STR("]"), &err), &err);
    }
    assert_true(matcher_can_end(m));
    assert_false(matcher_accept(m, STR("]"), &err));
    matcher_free(m);
    grammar_free(g);
}

// ---- tokens

static const char vocabulary[] =
    "{\"version\":\"1.0\",\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"abc\":3,\"c\":4,"
    "\"\xc4\xa0\":5,"
    "\"\xc3\xa9\":6,\"\xc3\x83\":7,\"\xc2\xa9\":8,\"{\":9,\"}\":10,\"{}\":11},\"merges\":[]},"
    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false},\"decoder\":{"
    "\"type\":"
    "\"ByteLevel\"},"
    "\"added_tokens\":[{\"id\":12,\"content\":\"<|im_end|>\",\"special\":true},{\"id\":13,\"content\":\"<"
    "think>\",\"special\":"
    "false},{\"id\":14,\"content\":\"<|mark|>\",\"special\":true}]}";

// The ids that may come after `before`, such as "0 2 12".
static const char *allowed(const char *gbnf, const char *before)
{
    static char text[200];
    struct tokenizer *t;
    struct token_trie *trie;
    struct grammar *g;
    struct matcher *m;
    struct err err = { 0 };
    uint32_t mask[1] = { ~0u };
    int n = 0;

    assert_ok(tokenizer_load_json(&t, str_from(vocabulary), &err), &err);
    assert_ok(token_trie_create(&trie, t, &err), &err);
    assert_ok(grammar_create(&g, str_from(gbnf), &err), &err);
    assert_ok(matcher_create(&m, g, &err), &err);
    assert_ok(matcher_accept(m, str_from(before), &err), &err);
    text[0] = 0;
    for (int twice = 0; twice < 2; twice++) { // the second time from the cache
        if (!matcher_mask(m, trie, mask, 20, &err))
            n = snprintf(text, sizeof text, "%s", err.message);
        else
            n = 0;
    }
    for (int i = 0; i < 20 && !strstr(text, "grammar"); i++)
        if (mask[0] >> i & 1)
            n += snprintf(text + n, sizeof text - (size_t)n, "%s%d", n ? " " : "", i);
    matcher_free(m);
    grammar_free(g);
    token_trie_free(trie);
    tokenizer_free(t);
    return text;
}

static void control_tokens_are_named_by_number(void **state)
{
    char first[GRAMMAR_TOKEN_BYTES], room[GRAMMAR_TOKEN_BYTES];
    struct tokenizer *t;
    struct err err = { 0 };

    (void)state;
    assert_string_equal(allowed("root ::= \"a\" <[14]> \"b\"", "a"), "14");
    assert_string_equal(allowed("root ::= \"a\" (<[14]> | \"b\")", "a"), "1 14");
    assert_null(strstr(allowed("root ::= [^b]*", ""), "14"));
    assert_non_null(strstr(allowed("root ::= <[3]>", ""), "grammar")); // it has text: no control token
    refused("root ::= <[]>", "<[1234]>");
    refused("root ::= <[4294967295]>", "<[1234]>");
    refused("root ::= <[12>", "<[1234]>");
    refused("root ::= <mark>", "only control tokens");
    assert_ok(tokenizer_load_json(&t, str_from(vocabulary), &err), &err);
    grammar_token(14, first);
    struct str bytes = token_trie_bytes(t, 14, room), text = token_trie_bytes(t, 3, room);
    assert_true(bytes.n == sizeof first && !memcmp(bytes.at, first, sizeof first) && str_is(text, "abc"));
    tokenizer_free(t);
}

static void masks_hold_the_tokens_that_may_come(void **state)
{
    (void)state;
    assert_string_equal(allowed("root ::= \"abc\"", ""), "0 2 3");
    assert_string_equal(allowed("root ::= \"abc\"", "a"), "1");
    assert_string_equal(allowed("root ::= \"abc\"", "abc"), "12");
    assert_string_equal(allowed("root ::= [a-c]*", "a"), "0 1 2 3 4 12");
    assert_string_equal(allowed("root ::= [a-c]+ \" \"", ""), "0 1 2 3 4");
    assert_string_equal(allowed("root ::= [a-c]+ \" \"", "b"), "0 1 2 3 4 5");
    assert_string_equal(allowed("root ::= \"{\" root \"}\" | \"\"", "{"), "9 10 11");
    assert_string_equal(allowed("root ::= \"<think>\" .", ""), "13");
}

static void a_character_may_come_in_pieces(void **state)
{
    (void)state;
    assert_string_equal(allowed("root ::= [\\u00c0-\\u00ff]", ""), "7"); // the byte C3 alone
    assert_string_equal(allowed("root ::= [\\u00c0-\\u00ff]", "\xc3"), "8");
    assert_string_equal(allowed("root ::= \"\xe2\x82\xac\"", ""),
                        "the grammar cannot be followed any further: no token of the "
                        "vocabulary fits what it asks for");
}

static void memory_may_run_out_anywhere(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 60; n++) {
        struct grammar *g;
        struct matcher *m = NULL;
        struct err err = { 0 };
        mem_fail_at(n, 1);
        bool ok = grammar_create(&g, str_from(json_gbnf), &err) && matcher_create(&m, g, &err) &&
                  matcher_accept(m, STR("{\"a\":[1,22,{\"b\":true}]"), &err);
        mem_fail_at(0, 0);
        assert_true(ok || err.code != ERR_NONE);
        matcher_free(m);
        grammar_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_choices_and_repetition),
        cmocka_unit_test(characters_are_spelt_out_as_bytes),
        cmocka_unit_test(rules_call_each_other),
        cmocka_unit_test(hostile_grammars_end_in_an_error),
        cmocka_unit_test(long_chains_of_rules_are_fine),
        cmocka_unit_test(ambiguity_is_bounded),
        cmocka_unit_test(caches_are_emptied_without_losing_the_place),
        cmocka_unit_test(control_tokens_are_named_by_number),
        cmocka_unit_test(masks_hold_the_tokens_that_may_come),
        cmocka_unit_test(a_character_may_come_in_pieces),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
