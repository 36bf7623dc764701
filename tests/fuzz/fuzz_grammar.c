// fuzz_grammar.c - libFuzzer: a grammar, a NUL, and a text that goes through it byte by byte.
//
// Also checked: what is refused has a message, and a text in pieces ends where the whole text does.
#include <stdlib.h>
#include "text/grammar/matcher.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool condition)
{
    if (!condition)
        abort();
}

static void follow(const struct grammar *g, struct str text)
{
    struct matcher *whole, *pieces;
    struct err err = { 0 };

    if (!matcher_create(&whole, g, &err)) {
        check(err.code != ERR_NONE && err.message[0]);
        return;
    }
    check(matcher_create(&pieces, g, &err));
    bool ok = matcher_accept(whole, text, &err), all = true;
    for (size_t i = 0; all && i < text.n; i++)
        all = matcher_accept(pieces, str_from_to(text, i, i + 1), &err);
    check(!ok || (all && matcher_can_end(whole) == matcher_can_end(pieces)));
    matcher_free(whole);
    matcher_free(pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = size ? memchr(text, 0, size) : NULL;
    struct str gbnf = { text, end ? (size_t)(end - text) : size };
    struct grammar *g;
    struct err err = { 0 };

    if (!grammar_create(&g, gbnf, &err)) {
        check(err.code != ERR_NONE && err.message[0]);
        return 0;
    }
    follow(g, end ? (struct str){ end + 1, size - gbnf.n - 1 } : gbnf);
    grammar_free(g);
    return 0;
}
