// masks.c - what a grammar costs per token: processor time to move on by a token and to make the next mask.
//
// Usage: bench_masks [MODEL]. Any GGUF file with a tokeniser will do; the model inside otherwise. The text is
// a JSON document under a schema with strings, numbers and nested lists, read token by token; masks that were
// made before are found again, as in real answers.
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/mem.h"
#include "engine/embedded.h"
#include "text/grammar/matcher.h"
#include "text/grammar/schema.h"

static const char schema[] =
    "{\"type\":\"object\",\"properties\":{\"title\":{\"type\":\"string\"},\"year\":{\"type\":\"integer\","
    "\"minimum\":1900,"
    "\"maximum\":2100},"
    "\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":40}},\"price\":{\"type\":"
    "\"number\"},\"parts\":{"
    "\"type\":\"array\","
    "\"items\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":\"string\"},\"kind\":{\"enum\":["
    "\"wheel\",\"frame\","
    "\"brake\"]}},"
    "\"required\":[\"name\",\"kind\"]}}},\"required\":[\"title\",\"year\",\"tags\",\"price\",\"parts\"]}";
static const char document[] =
    "{\"title\": \"A bicycle for the mountains, with two wheels and a bell\", \"year\": 1998, "
    "\"tags\": [\"red\", \"second hand\", "
    "\"good condition\"], \"price\": 129.95, \"parts\": [{\"name\": \"front wheel\", \"kind\": "
    "\"wheel\"}, {\"name\": \"rear wheel, new\", "
    "\"kind\": \"wheel\"}, {\"name\": \"steel frame from an old workshop\", \"kind\": \"frame\"}]}";

static double processor_us(void)
{
    return (double)clock_thread_ns() / 1e3;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void need(bool ok, const struct err *err)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

int main(int argc, char **argv)
{
    struct model_file *file;
    struct tokenizer *t;
    struct token_trie *trie;
    struct grammar *g;
    struct matcher *m;
    struct buf gbnf = { 0 };
    struct token_ids ids = { 0 };
    struct err err = { 0 };
    static double us[1000];
    double sum = 0, begun = processor_us();

    need(embedded_or_file(&file, argc > 1 ? argv[1] : NULL, &err) && tokenizer_load(&t, file, &err), &err);
    begun = processor_us();
    need(token_trie_create(&trie, t, &err), &err);
    printf("%u tokens, %u nodes: %.1f ms once a model\n", tokenizer_n_tokens(t), trie->n_nodes,
           (processor_us() - begun) / 1e3);
    begun = processor_us();
    need(schema_to_grammar(str_from(schema), &gbnf, &err) && grammar_create(&g, buf_as_str(&gbnf), &err),
         &err);
    need(matcher_create(&m, g, &err), &err);
    printf("schema to grammar: %.2f ms once a request\n", (processor_us() - begun) / 1e3);
    need(tokenizer_encode(t, str_from(document), (struct tokenize_flags){ 0 }, &ids, &err), &err);
    uint32_t *mask = mem_alloc_array(tokenizer_n_tokens(t) / 32 + 1, sizeof *mask);
    for (size_t i = 0; i < ids.n && i < 1000; i++) {
        begun = processor_us();
        need(matcher_accept(m, tokenizer_token_bytes(t, ids.ids[i], false), &err) &&
                 matcher_mask(m, trie, mask, tokenizer_n_tokens(t), &err),
             &err);
        us[i] = processor_us() - begun;
        sum += us[i];
    }
    qsort(us, ids.n, sizeof *us, by_value);
    printf("%zu tokens: mean %.1f us, median %.1f us, p90 %.1f us, worst %.1f us\n", ids.n,
           sum / (double)ids.n, us[ids.n / 2], us[ids.n * 9 / 10], us[ids.n - 1]);
    return 0;
}
