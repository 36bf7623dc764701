// api_grammar.c - the functions of ingot.h about grammars and schemas, for checking before a request whether
// they are supported.
#include "engine/api.h"
#include "text/grammar/grammar.h"
#include "text/grammar/schema.h"

bool ingot_grammar_check(const char *grammar, struct ingot_error *error)
{
    struct grammar *g = NULL;
    bool ok = grammar_create(&g, str_from(grammar), as_err(error));

    grammar_free(g);
    return ok;
}

int64_t ingot_schema_to_grammar(const char *json_schema, char *grammar, size_t capacity,
                                struct ingot_error *error)
{
    struct buf text = { 0 };
    int64_t n = -1;

    if (schema_to_grammar(str_from(json_schema), &text, as_err(error))) {
        size_t stored = text.n < capacity ? text.n : capacity - 1;
        n = (int64_t)text.n;
        if (capacity) {
            memcpy(grammar, buf_as_str(&text).at, stored);
            grammar[stored] = 0;
        }
    }
    buf_free(&text);
    return n;
}
