// test_schema.c - JSON Schema as a grammar: texts that fulfil a schema fit, others do not, and what is not
// supported is refused by name.
#include "testing.h"
#include <jansson.h>
#include "base/buf_json.h"
#include "base/mem.h"
#include "text/grammar/matcher.h"
#include "text/grammar/schema.h"

// The schema's grammar; NULL, and the error's message.
static struct grammar *compile(const char *schema, char message[600])
{
    struct buf gbnf = { 0 };
    struct grammar *g = NULL;
    struct err err = { 0 };

    if (!schema_to_grammar(str_from(schema), &gbnf, &err) || !grammar_create(&g, buf_as_str(&gbnf), &err)) {
        assert_int_not_equal(err.code, ERR_NONE);
        snprintf(message, 600, "%s", err.message);
    }
    buf_free(&gbnf);
    return g;
}

static const char *match(const struct grammar *g, const char *text)
{
    struct matcher *m;
    struct err err = { 0 };
    const char *result;

    assert_ok(matcher_create(&m, g, &err), &err);
    if (matcher_accept(m, str_from(text), &err))
        result = matcher_can_end(m) ? "yes" : "more";
    else
        result = strstr(err.message, "does not fit") ? "no" : "limit";
    matcher_free(m);
    return result;
}

static const char *check(const char *schema, const char *text)
{
    static char message[600];
    struct grammar *g = compile(schema, message);
    const char *result = g ? match(g, text) : message;

    grammar_free(g);
    return result;
}

static void expect(const char *schema, const char *text, const char *wanted)
{
    const char *found = check(schema, text);
    if (strcmp(found, wanted) != 0)
        fail_msg("%.300s\n  on %s\n  wanted: %s\n  found:  %s", schema, text, wanted, found);
}

static void all(const char *schema, const char *const *yes, const char *const *no)
{
    for (; *yes; yes++)
        expect(schema, *yes, "yes");
    for (; *no; no++)
        if (!strcmp(check(schema, *no), "yes"))
            fail_msg("%.300s\n  takes %s", schema, *no);
}
#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })

static void refused(const char *schema, const char *part)
{
    const char *found = check(schema, "");
    if (!strstr(found, part))
        fail_msg("%.100s\n  wanted an error with: %s\n  found: %s", schema, part, found);
}

static void plain_types(void **state)
{
    (void)state;
    all("{}", LIST("1", "\"a\"", "[1, {\"a\": null}]", "{}", "-1.5e3", "true"),
        LIST("", "01", "[1,]", "{a:1}", "\"\\q\""));
    all("true", LIST("null"), LIST("nul"));
    all("{\"type\":\"string\"}", LIST("\"\"", "\"\\u00e9\\n\xc3\xa9\"", "\"\\ud83e\\udd8a\""),
        LIST("1", "\"\\ud83e\"", "\"\n\"", "\"\\u12\""));
    all("{\"type\":\"integer\"}", LIST("0", "-12", "999"), LIST("00", "1.5", "\"1\"", "-"));
    all("{\"type\":\"number\"}", LIST("0", "-12.5", "1e5"), LIST(".5", "1."));
    all("{\"type\":\"boolean\"}", LIST("true", "false"), LIST("1"));
    all("{\"type\":\"null\"}", LIST("null"), LIST("0"));
    all("{\"type\":[\"string\",\"null\"],\"minLength\":2}", LIST("null", "\"ab\""), LIST("\"a\"", "1"));
    all("{\"type\":\"integer\",\"nullable\":true}", LIST("null", "7"), LIST("\"\""));
    all("{\"enum\":[\"red\",2,null,{\"a\":[1]}]}", LIST("\"red\"", "2", "null", "{\"a\":[1]}"),
        LIST("\"blue\"", "3"));
    all("{\"type\":\"string\",\"enum\":[\"a\",1]}", LIST("\"a\""), LIST("1"));
    all("{\"const\":\"x\\\"y\"}", LIST("\"x\\\"y\""), LIST("\"xy\""));
}

static const char person[] = "{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"age\":{"
                             "\"type\":\"integer\",\"minimum\":0},"
                             "\"tags\":{\"type\":\"array\",\"items\":{\"enum\":[\"a\",\"b\"]}}},\"required\":"
                             "[\"name\"],\"additionalProperties\":false}";

static void objects_hold_their_properties_in_order(void **state)
{
    (void)state;
    all(person,
        LIST("{\"name\":\"x\"}", "{\"name\": \"x\", \"age\": 3}", "{\"name\":\"x\",\"tags\":[]}",
             "{\n  \"name\": \"x\",\n  \"age\": 0,\n  \"tags\": [\"a\", \"b\"]\n}"),
        LIST("{}", "{\"age\":1}", "{\"name\":\"x\",}", "{\"name\":\"x\",\"age\":-1}",
             "{\"name\":\"x\",\"other\":1}", "{\"name\":\"x\",\"tags\":[\"c\"]}",
             "{\"age\":1,\"name\":\"x\"}"));
    all("{\"type\":\"object\"}", LIST("{}", "{\"a\":{\"b\":[]}}"), LIST("[]"));
    all("{\"properties\":{\"a\":{},\"b\":{}}}", LIST("{}", "{\"b\":1}", "{\"a\":1,\"b\":2}"),
        LIST("{\"c\":1}"));
    all("{\"type\":\"object\",\"required\":[\"z\"]}", LIST("{\"z\":[1]}"), LIST("{}"));
    all("{\"type\":\"object\",\"additionalProperties\":{\"type\":\"integer\"}}",
        LIST("{}", "{\"a\":1,\"b\":2}"), LIST("{\"a\":\"x\"}"));
}

static void other_properties_have_other_names(void **state)
{
    const char *schema = "{\"properties\":{\"ab\":{\"type\":\"integer\"},\"abc\":{\"type\":\"null\"},"
                         "\"\xc3\xa9\":{\"const\":1}},"
                         "\"required\":[\"ab\"],\"additionalProperties\":{\"type\":\"string\"}}";
    (void)state;
    all(schema,
        LIST("{\"ab\":1}", "{\"ab\":1,\"a\":\"x\"}", "{\"ab\":1,\"abd\":\"x\",\"abcd\":\"y\"}",
             "{\"ab\":1,\"\":\"x\"}", "{\"ab\":1,\"abc\":null,\"\xc3\xa8\":\"x\"}"),
        LIST("{\"ab\":1,\"ab\":\"x\"}", "{\"ab\":1,\"abc\":\"x\"}", "{\"ab\":1,\"\xc3\xa9\":\"x\"}",
             "{\"ab\":1,\"x\":1}"));
}

static void arrays_have_their_lengths(void **state)
{
    (void)state;
    all("{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"minItems\":2,\"maxItems\":3}",
        LIST("[1,2]", "[1, 2, 3]"), LIST("[]", "[1]", "[1,2,3,4]", "[1,\"a\"]"));
    all("{\"type\":\"array\",\"maxItems\":1}", LIST("[]", "[{}]"), LIST("[1,2]"));
    all("{\"type\":\"array\",\"maxItems\":0}", LIST("[]"), LIST("[1]"));
    all("{\"type\":\"array\",\"prefixItems\":[{\"type\":\"integer\"},{\"type\":\"string\"}],\"items\":{"
        "\"type\":\"null\"}}",
        LIST("[1,\"a\"]", "[1,\"a\",null,null]"), LIST("[1]", "[1,\"a\",2]", "[\"a\",1]"));
    all("{\"items\":[{\"const\":1}],\"additionalItems\":false}", LIST("[1]"), LIST("[]", "[1,1]"));
}

static void strings_have_lengths_patterns_and_formats(void **state)
{
    (void)state;
    all("{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
        LIST("\"ab\"", "\"\xf0\x9f\xa6\x8a\\n\xc3\xa9\""), LIST("\"a\"", "\"abcd\""));
    all("{\"type\":\"string\",\"pattern\":\"^[A-Z]{2}-\\\\d+(\\\\.\\\\d)?$\"}",
        LIST("\"AB-12\"", "\"AB-1.5\""), LIST("\"A-1\"", "\"AB-1.\""));
    all("{\"type\":\"string\",\"pattern\":\"^a{2}b{1,}c{0,1}d{,2}$\"}",
        LIST("\"aabbd{,2}\"", "\"aabcd{,2}\""), LIST("\"abcd{,2}\"", "\"aabccd{,2}\""));
    all("{\"type\":\"string\",\"pattern\":\"a.c\"}", LIST("\"abc\"", "\"xxa\\\"cyy\""),
        LIST("\"ac\"", "\"abd\""));
    all("{\"type\":\"string\",\"pattern\":\"^(foo|ba[rz])[^a-z\\\\\\\\]\\\\w\\\\s*$\"}",
        LIST("\"foo!x\"", "\"baz\\\"_ \\t\""), LIST("\"fooax\"", "\"bat!x\""));
    all("{\"type\":\"string\",\"pattern\":\"^\\\\\\\\$\"}", LIST("\"\\\\\""), LIST("\"\\\\\\\\\""));
    all("{\"type\":\"string\",\"format\":\"date\"}", LIST("\"2024-02-29\""),
        LIST("\"2024-13-01\"", "\"24-01-01\""));
    all("{\"type\":\"string\",\"format\":\"time\"}", LIST("\"23:59:59Z\"", "\"00:00:00.5+02:00\""),
        LIST("\"24:00:00Z\"", "\"12:00:00\""));
    all("{\"type\":\"string\",\"format\":\"date-time\"}", LIST("\"2024-01-31T12:00:00Z\""),
        LIST("\"2024-01-31\""));
    all("{\"type\":\"string\",\"format\":\"uuid\"}", LIST("\"123e4567-e89b-12d3-a456-426614174000\""),
        LIST("\"123e4567\""));
    all("{\"type\":\"string\",\"format\":\"email\"}", LIST("\"a.b@example.org\""),
        LIST("\"a@b\"", "\"@b.org\""));
    all("{\"type\":\"string\",\"format\":\"ipv4\"}", LIST("\"192.168.0.255\""),
        LIST("\"256.1.1.1\"", "\"1.1.1\""));
    all("{\"type\":\"string\",\"format\":\"uri\"}", LIST("\"https://example.org/a?b=c\""),
        LIST("\"example.org\""));
    all("{\"type\":\"string\",\"format\":\"hostname\"}", LIST("\"a.b-c.org\""), LIST("\"-a\"", "\"a..b\""));
}

// Every integer near the bounds is in the range or not, as arithmetic says.
static void integers_keep_their_bounds(void **state)
{
    static const int64_t bounds[] = {
        -1234567890123, -1000, -999,         -101, -100, -11, -10, -1, 0, 1, 9, 10, 11, 99, 100, 105,
        1999,           20000, 1234567890123
    };
    enum { N = sizeof bounds / sizeof *bounds };
    char schema[200], text[40];

    (void)state;
    for (int low = -1; low < N; low++)
        for (int high = low < 0 ? 0 : low; high <= N; high++) {
            int n = snprintf(schema, sizeof schema, "{\"type\":\"integer\"");
            if (low >= 0)
                n += snprintf(schema + n, sizeof schema - (size_t)n, ",\"minimum\":%lld",
                              (long long)bounds[low]);
            if (high < N)
                n += snprintf(schema + n, sizeof schema - (size_t)n, ",\"maximum\":%lld",
                              (long long)bounds[high]);
            snprintf(schema + n, sizeof schema - (size_t)n, "}");
            for (int i = 0; i < N; i++)
                for (int d = -1; d <= 1; d++) {
                    int64_t x = bounds[i] + d;
                    bool in = (low < 0 || x >= bounds[low]) && (high == N || x <= bounds[high]);
                    snprintf(text, sizeof text, "%lld", (long long)x);
                    if (!strcmp(check(schema, text), "yes") != in)
                        fail_msg("%s on %s", schema, text);
                }
        }
    all("{\"type\":\"integer\",\"exclusiveMinimum\":3,\"exclusiveMaximum\":6}", LIST("4", "5"),
        LIST("3", "6"));
    all("{\"type\":\"integer\",\"minimum\":2.5,\"maximum\":4.5}", LIST("3", "4"), LIST("2", "5"));
}

static void numbers_keep_whole_bounds(void **state)
{
    (void)state;
    all("{\"type\":\"number\",\"minimum\":0}", LIST("0", "0.5", "12.25"), LIST("-1", "-0.5"));
    all("{\"type\":\"number\",\"exclusiveMinimum\":0}", LIST("0.5", "0.001", "3"), LIST("0", "0.0", "-1"));
    all("{\"type\":\"number\",\"minimum\":-2,\"maximum\":10}",
        LIST("-2", "-1.5", "-0.5", "9.9", "10", "10.0"), LIST("-2.5", "10.1", "11"));
    all("{\"type\":\"number\",\"maximum\":-3}", LIST("-3", "-3.5", "-100"), LIST("-2.9", "0", "3"));
    all("{\"type\":\"number\",\"exclusiveMaximum\":1,\"minimum\":0}", LIST("0", "0.99"),
        LIST("1", "1.0", "-0.1"));
}

static void references_and_combinations(void **state)
{
    const char *tree =
        "{\"$defs\":{\"node\":{\"type\":\"object\",\"properties\":{\"v\":{\"type\":\"integer\"},\"next\":{"
        "\"anyOf\":"
        "[{\"$ref\":\"#/$defs/node\"},{\"type\":\"null\"}]}},\"required\":[\"v\",\"next\"]}},\"$ref\":\"#/"
        "$defs/node\"}";
    (void)state;
    all(tree,
        LIST("{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":{\"v\":3,\"next\":null}}}"),
        LIST("{\"v\":1}", "{\"v\":1,\"next\":{}}"));
    all("{\"type\":\"object\",\"properties\":{\"sub\":{\"$ref\":\"#\"}}}",
        LIST("{}", "{\"sub\":{\"sub\":{}}}"), LIST("{\"sub\":1}"));
    all("{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"array\",\"items\":{\"type\":\"integer\"}}]}",
        LIST("1", "[1]"), LIST("\"a\""));
    all("{\"allOf\":[{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"}},\"required\":[\"a\"]}"
        ",{\"$ref\":\"#/"
        "$defs/b\"}],"
        "\"$defs\":{\"b\":{\"properties\":{\"b\":{\"type\":\"null\"}},\"required\":[\"b\"]}}}",
        LIST("{\"a\":1,\"b\":null}"), LIST("{\"a\":1}", "{\"b\":null}"));
    all("{\"$ref\":\"#/definitions/a~1b\",\"definitions\":{\"a/b\":{\"const\":1}}}", LIST("1"), LIST("2"));
}

static void what_is_not_supported_is_refused_by_name(void **state)
{
    (void)state;
    refused("{\"not\":{\"minimum\":3}}", "'not'");
    refused("{\"not\":{\"properties\":{\"a\":{}}}}", "'not'");
    refused("{\"type\":\"number\",\"not\":{\"const\":1}}", "'not' with numbers");
    refused("{\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", "no integers");
    refused("{\"type\":\"object\",\"not\":{\"const\":{}}}", "'not' with objects");
    refused("{\"type\":\"array\",\"uniqueItems\":true}", "'uniqueItems'");
    refused("{\"type\":\"array\",\"contains\":{}}", "'contains'");
    refused("{\"type\":\"object\",\"minProperties\":2}", "minProperties");
    refused("{\"type\":\"object\",\"dependentRequired\":{\"a\":[\"b\"]}}", "'dependentRequired'");
    refused("{\"type\":\"object\",\"propertyNames\":{\"anyOf\":[{\"const\":\"a\"}]}}", "propertyNames");
    refused("{\"if\":{},\"then\":{}}", "'if'");
    refused("{\"$dynamicRef\":\"#x\"}", "'$dynamicRef'");
    refused("{\"type\":\"integer\",\"multipleOf\":104729}", "too many remainders");
    refused("{\"type\":\"integer\",\"multipleOf\":0}", "above 0");
    refused("{\"type\":\"number\",\"allOf\":[{\"multipleOf\":2},{\"multipleOf\":3}]}",
            "two different multipleOf");
    refused("{\"enum\":[[1]],\"maxItems\":3}", "beside keywords");
    refused("{\"type\":\"string\",\"format\":\"regex\"}", "'regex'");
    refused("{\"$ref\":\"http://127.0.0.1/x\"}", "nothing is fetched");
    refused("{\"$ref\":\"#/nowhere\"}", "names nothing");
    refused("{\"type\":123}", "type");
    refused("{\"type\":\"something\"}", "'something'");
    refused("\"text\"", "want an object");
    refused("null", "want an object");
    refused("false", "allows nothing");
    refused("{", "not JSON");
    refused("{\"enum\":[]}", "enum");
    refused("{\"type\":\"integer\",\"minimum\":5,\"maximum\":4}", "no number");
    refused("{\"type\":\"array\",\"maxItems\":1.5}", "maxItems");
    refused("{\"type\":\"array\",\"minItems\":2147483648}", "minItems");
    refused("{\"type\":\"string\",\"minLength\":-1}", "minLength");
    refused("{\"type\":\"string\",\"minLength\":5,\"maxLength\":4}", "minLength");
    refused("{\"$ref\":\"#\"}", "without end");
    refused(
        "{\"$defs\":{\"a\":{\"$ref\":\"#/$defs/b\"},\"b\":{\"$ref\":\"#/$defs/a\"}},\"$ref\":\"#/$defs/a\"}",
        "without end");
    refused("{\"anyOf\":[{\"$ref\":\"#\"},{\"type\":\"null\"}]}", "left recursive");
    refused("{\"allOf\":[{\"$ref\":\"#\"}]}", "without end");
    refused("{\"type\":\"string\",\"pattern\":\"(?<=x)a\"}", "look-behind");
    refused("{\"type\":\"string\",\"pattern\":\"((?=a)a)*\"}", "repetition without end");
    refused("{\"type\":\"string\",\"pattern\":\"a*^b\"}", "at the beginning only");
    refused("{\"type\":\"string\",\"pattern\":\"*a\"}", "nothing to repeat");
    refused("{\"type\":\"string\",\"pattern\":\"a**\"}", "quantifier");
    refused("{\"type\":\"string\",\"pattern\":\"a{88888888888888888888888888888884}\"}", "0 to 65536");
    refused("{\"type\":\"string\",\"pattern\":\"a{1,65537}\"}", "0 to 65536");
    refused("{\"type\":\"string\",\"pattern\":\"a{3,2}\"}", "n below m");
    refused("{\"type\":\"string\",\"pattern\":\"\\\\p{L}\"}", "\\p");
    refused("{\"type\":\"string\",\"pattern\":\"\\\\bx\"}", "\\b");
    refused("{\"type\":\"string\",\"pattern\":\"(a\"}", "not closed");
    refused("{\"type\":\"string\",\"pattern\":\"[a\"}", "not closed");
    refused("{\"type\":\"string\",\"pattern\":\"a)\"}", "not open");
}

// before, then n times `piece`, then n times `closing`, then after.
static char *nested(const char *before, const char *piece, size_t n, const char *closing, const char *after)
{
    struct buf text = { 0 };

    buf_text(&text, before);
    for (size_t i = 0; i < n; i++)
        buf_text(&text, piece);
    for (size_t i = 0; i < n; i++)
        buf_text(&text, closing);
    buf_text(&text, after);
    return text.at;
}

static void hostile_schemas_end_in_an_error(void **state)
{
    static const struct {
        const char *before, *piece, *closing, *after, *part;
        size_t n;
    } cases[] = {
        { "{\"a\":", "{\"items\":", "}", "}", "not JSON", 100000 },
        { "", "{\"items\":[", "]}", "", "nested", 1000 },
        { "{\"type\":\"string\",\"pattern\":\"", "(", ")", "\"}", "at most 8192", 100000 },
        { "{\"type\":\"string\",\"pattern\":\"", "(", ")", "\"}", "nested", 1000 },
        { "{\"type\":\"string\",\"pattern\":\"", "((?=a)", "){64}", "\"}", "too large", 20 },
        { "{\"type\":\"string\",\"maxLength\":99,\"pattern\":\"", "(a|b)*a(a|b){40}", "", "\"}", "states",
          1 },
        { "{\"type\":\"array\",\"items\":", "{\"anyOf\":[{},{\"pattern\":\"^a\"}],\"allOf\":[", "]}", "}",
          "50000 parts", 20 },
        { "{\"type\":\"string\",\"pattern\":\"", "(", "+)", "\"}", "nothing to repeat", 20 },
        { "{\"enum\":[0", ",\"abcdefgh\"", "", "]}", "too large", 1000000 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = nested(cases[i].before, cases[i].piece, cases[i].n, cases[i].closing, cases[i].after);
        refused(text, cases[i].part);
        mem_free(text);
    }
    expect("{\"type\":\"string\",\"pattern\":\"^(a+)+$\"}",
           "\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"", "no");
    expect("{\"type\":\"string\",\"maxLength\":65536}", "\"", "more");
    struct buf many = { 0 };
    buf_text(&many, "{\"enum\":[0");
    for (int i = 0; i < 5000; i++)
        buf_printf(&many, ",\"value %d\"", i * 7919 % 100000);
    buf_text(&many, "]}");
    expect(many.at, "\"value 7919\"", "yes");
    expect(many.at, "\"value 7918\"", "no");
    buf_free(&many);
}

#define KIND(type)                                                                   \
    "{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"" type "\"},\"" type \
    "\":{}},\"required\":[\"kind\"]}"

static void one_of_is_exact_or_refused(void **state)
{
    (void)state;
    all("{\"oneOf\":[" KIND("cat") "," KIND("dog") "]}",
        LIST("{\"kind\":\"cat\",\"cat\":1}", "{\"kind\":\"dog\"}"),
        LIST("{\"kind\":\"cow\"}", "{\"kind\":\"cat\",\"dog\":1}"));
    all("{\"$defs\":{\"a\":" KIND("a") ",\"b\":" KIND(
            "b") "},\"oneOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/b\"},{\"type\":\"null\"}],"
                 "\"discriminator\":{\"propertyName\":\"kind\"}}",
        LIST("{\"kind\":\"a\"}", "null"), LIST("{\"kind\":\"c\"}"));
    all("{\"oneOf\":[{\"enum\":[\"a\",\"b\"]},{\"const\":\"c\"},{\"type\":\"boolean\"}]}",
        LIST("\"a\"", "\"c\"", "true"), LIST("\"d\""));
    all("{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"type\":"
        "\"object\",\"properties\":{"
        "\"b\":{}},"
        "\"required\":[\"b\"]}]}",
        LIST("{\"a\":1}", "{\"b\":1}"), LIST("{\"a\":1,\"b\":1}"));
    all("{\"oneOf\":[{\"anyOf\":[{\"type\":\"string\"},{\"type\":\"null\"}]},{\"type\":\"number\"}]}",
        LIST("1.5", "null"), LIST("[]"));
    refused("{\"oneOf\":[{\"type\":\"integer\"},{\"type\":\"number\"}]}",
            "oneOf: a text may fit both schema 0 and 1");
    refused("{\"oneOf\":[{\"type\":\"null\"},{\"enum\":[1,2]},{\"const\":1.0}]}", "both schema 1 and 2");
    refused("{\"oneOf\":[{\"type\":\"string\",\"maxLength\":5},{\"type\":\"string\",\"minLength\":3}]}",
            "oneOf");
    refused("{\"oneOf\":[{},{\"type\":\"string\"}]}", "oneOf");
    refused("{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}}},{\"type\":\"object\",\"properties\":"
            "{\"b\":{}},"
            "\"required\":[\"b\"]}]}",
            "oneOf"); // {"b":1} fits both
    refused("{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"a\":{}},\"required\":[\"a\"]},{\"type\":"
            "\"object\","
            "\"properties\":{\"b\":{}},"
            "\"required\":[\"b\"],\"additionalProperties\":true}]}",
            "oneOf");
    refused("{\"$defs\":{\"a\":{\"oneOf\":[{\"$ref\":\"#/$defs/a\"},{\"$ref\":\"#/$defs/a\"}]}},\"$ref\":\"#/"
            "$defs/a\"}",
            "oneOf");
    expect("{\"oneOf\":[{\"type\":[\"string\",\"number\"]}]}", "1", "yes");
}

static void what_contradicts_itself_is_refused(void **state)
{
    (void)state;
    refused("{\"type\":\"string\",\"const\":1}", "const");
    refused("{\"enum\":[1],\"const\":2}", "const");
    refused("{\"not\":{}}", "allows nothing");
    refused("{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false,\"properties\":{}}",
            "required");
    refused("{\"type\":\"array\",\"items\":false,\"minItems\":1}", "false");
    refused("{\"allOf\":[{\"type\":\"string\"},{\"type\":\"integer\"}]}", "no type");
    refused("{\"type\":\"string\",\"pattern\":\"^a{3}$\",\"maxLength\":2}", "no string");
    refused("{\"type\":\"string\",\"allOf\":[{\"pattern\":\"^a\"},{\"pattern\":\"^b\"}]}", "no string");
    refused("{\"type\":\"object\",\"properties\":{\"a\":{}},\"minProperties\":2}", "minProperties");
    refused("{\"type\":\"object\",\"required\":[\"a\",\"b\"],\"maxProperties\":1}", "maxProperties");
    refused("{\"type\":\"integer\",\"multipleOf\":50,\"minimum\":51,\"maximum\":99}", "multiple");
    refused("{\"type\":\"boolean\",\"not\":{\"enum\":[true,false]}}", "excludes all");
    all("{\"anyOf\":[{\"type\":\"string\",\"not\":{}},{\"const\":1}]}", LIST("1"), LIST("\"a\""));
    all("{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":{\"type\":\"integer\"}}",
        LIST("{\"a\":1}"), LIST("{\"a\":\"x\"}", "{}"));
}

// Within a minute's worth of schemas: what is shared, chosen and looked ahead at does not multiply without
// end.
static void sizes_are_bounded(void **state)
{
    struct buf many = { 0 };

    (void)state;
    buf_text(&many, "{\"type\":\"object\",\"allOf\":[");
    for (int i = 0; i < 20; i++)
        buf_printf(&many, "%s{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]}", i ? "," : "",
                   i, i);
    buf_text(&many, "]}");
    refused(many.at, "50000 parts");
    buf_free(&many);
    many = (struct buf){ 0 };
    buf_text(&many, "{\"type\":\"object\",\"properties\":{");
    for (int i = 0; i < 300; i++)
        buf_printf(
            &many,
            "%s\"p%d\":{\"type\":\"string\",\"pattern\":\"^(?=.*a{%d})(?=.*b{9}).*$\",\"maxLength\":90}",
            i ? "," : "", i, i + 1);
    buf_text(&many, "}}");
    refused(many.at, "schema: ");
    buf_free(&many);
}

static void memory_may_run_out_anywhere(void **state)
{
    static const char schema[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"string\",\"pattern\":\"^(?!x)[a-z]+\\\\d$\","
        "\"maxLength\":5},"
        "\"b\":{\"enum\":[\"x\",\"yy\"],\"maxLength\":1},\"c\":{\"multipleOf\":0.07}},\"patternProperties\":{"
        "\"^z\":{\"$ref\":\"#"
        "\"}},"
        "\"additionalProperties\":{\"anyOf\":[{\"type\":\"null\"},{\"minItems\":1}]}}";
    bool ok = false;

    (void)state;
    for (uint64_t n = 1; !ok; n++) {
        struct buf gbnf = { 0 };
        struct err err = { 0 };
        assert_true(n < 2000);
        mem_fail_at(n, 1);
        ok = schema_to_grammar(str_from(schema), &gbnf, &err);
        mem_fail_at(0, 0);
        assert_true(ok || err.code != ERR_NONE);
        buf_free(&gbnf);
    }
}

static size_t count_wrong(const char *name, const struct grammar *g, json_t *texts, bool fit)
{
    json_t *text;
    size_t i, n_wrong = 0;

    json_array_foreach(texts, i, text)
    {
        const char *found = match(g, json_string_value(text));
        bool wrong = fit ? strcmp(found, "yes") : strcmp(found, "no") && strcmp(found, "more");
        if (wrong)
            print_error("%s: %s: %s\n", name, json_string_value(text), found);
        n_wrong += wrong;
    }
    return n_wrong;
}

// Every schema of the file is taken; its valid texts fit, its invalid ones do not.
static void schemas_of_clients_hold(void **state)
{
    json_t *file = json_load_file("tests/text/vectors/schemas.json", 0, NULL),
           *cases = json_object_get(file, "cases"), *item;
    char message[600];
    size_t i, n_wrong = 0;

    (void)state;
    assert_true(json_array_size(cases) > 100);
    json_array_foreach(cases, i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        struct buf schema = { 0 };
        assert_true(buf_json(&schema, json_object_get(item, "schema"), 0));
        struct grammar *g = compile(schema.at, message);
        if (!g)
            fail_msg("%s: %s", name, message);
        n_wrong += count_wrong(name, g, json_object_get(item, "valid"), true);
        n_wrong += count_wrong(name, g, json_object_get(item, "invalid"), false);
        grammar_free(g);
        buf_free(&schema);
    }
    json_decref(file);
    assert_int_equal(n_wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_types),
        cmocka_unit_test(objects_hold_their_properties_in_order),
        cmocka_unit_test(other_properties_have_other_names),
        cmocka_unit_test(arrays_have_their_lengths),
        cmocka_unit_test(strings_have_lengths_patterns_and_formats),
        cmocka_unit_test(integers_keep_their_bounds),
        cmocka_unit_test(numbers_keep_whole_bounds),
        cmocka_unit_test(references_and_combinations),
        cmocka_unit_test(what_is_not_supported_is_refused_by_name),
        cmocka_unit_test(hostile_schemas_end_in_an_error),
        cmocka_unit_test(one_of_is_exact_or_refused),
        cmocka_unit_test(what_contradicts_itself_is_refused),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(schemas_of_clients_hold),
        cmocka_unit_test(memory_may_run_out_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
