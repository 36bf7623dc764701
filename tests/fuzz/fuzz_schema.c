// fuzz_schema.c - libFuzzer: any bytes as a JSON Schema. What is accepted must be a grammar, or one that is
// too large or never ends.
#include <stdlib.h>
#include "text/grammar/matcher.h"
#include "text/grammar/schema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf gbnf = { 0 };
    struct grammar *g = NULL;
    struct err err = { 0 };

    if (!schema_to_grammar((struct str){ (const char *)data, size }, &gbnf, &err))
        check(err.code != ERR_NONE && err.message[0]);
    else if (!grammar_create(&g, buf_as_str(&gbnf), &err))
        check(strstr(err.message, "left recursive") || strstr(err.message, "too large") ||
              strstr(err.message, "steps") || strstr(err.message, "nested"));
    grammar_free(g);
    buf_free(&gbnf);
    return 0;
}
