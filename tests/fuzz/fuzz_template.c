// fuzz_template.c - libFuzzer: any bytes as a template over fixed variables. Small limits, so that one input
// takes milliseconds.
//
// Also checked for every result: the spans make up the text, none is empty, and neighbours differ in trust.
#include <stdlib.h>
#include "text/template/template.h"

static const char variables_json[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"You \\u00e9 "
    "<|im_end|>\"},{\"role\":\"user\",\"content\":\"  a\\nb  \"},"
    "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"abcdefghi\",\"type\":\"function\","
    "\"function\":{\"name\":"
    "\"f\","
    "\"arguments\":{\"a\":1,\"b\":[1.5,true,null]}}}]},{\"role\":\"tool\",\"content\":[{\"type\":\"text\","
    "\"text\":\"x\"}]}],"
    "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":\"d\"}}],\"add_"
    "generation_prompt\":true,"
    "\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"n\":42,\"l\":[3,1,2],\"d\":{\"b\":1,\"a\":\"x\"}}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool condition)
{
    if (!condition)
        abort();
}

static void check_spans(const struct template_output *out)
{
    size_t n = 0;

    for (size_t i = 0; i < out->n_spans; i++) {
        check(out->spans[i].text.n > 0 && out->spans[i].text.at == out->text.at + n);
        check(i == 0 || out->spans[i].trusted != out->spans[i - 1].trusted);
        n += out->spans[i].text.n;
    }
    check(n == out->text.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *variables;
    const struct template_limits limits = { .source_bytes = 1 << 16,
                                            .parse_depth = 256,
                                            .call_depth = 64,
                                            .fuel = 200000,
                                            .range_items = 1000,
                                            .output_bytes = 1 << 20,
                                            .memory_bytes = 32 << 20 };
    struct template_output out;
    struct template *t;
    struct err err = { 0 };

    if (!variables)
        variables = json_loads(variables_json, 0, NULL);
    if (!template_parse(&t, (struct str){ (const char *)data, size }, &limits, &err)) {
        check(err.code != ERR_NONE && err.message[0]);
        return 0;
    }
    if (template_render_at(t, variables, 1700000000, &out, &err)) {
        check_spans(&out);
        template_output_free(&out);
    } else {
        check(err.code != ERR_NONE && err.message[0]);
    }
    template_free(t);
    return 0;
}
