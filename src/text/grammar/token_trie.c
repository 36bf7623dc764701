// token_trie.c - see token_trie.h. Tokens are sorted by their bytes; each adds the nodes that it does not
// share with the one before.
#include "text/grammar/token_trie.h"
#include <stdlib.h>
#include "base/mem.h"

struct trie_word {
    struct str bytes;
    uint32_t token;
};

static int by_bytes(const void *a, const void *b)
{
    const struct trie_word *x = a, *y = b;
    int order = str_order(x->bytes, y->bytes);

    return order ? order : (x->token > y->token) - (x->token < y->token);
}

static size_t n_shared(struct str a, struct str b)
{
    size_t n = 0;
    while (n < a.n && n < b.n && a.at[n] == b.at[n])
        n++;
    return n;
}

struct str token_trie_bytes(const struct tokenizer *t, uint32_t token, char room[GRAMMAR_TOKEN_BYTES])
{
    if (tokenizer_kind(t, token) != TOKEN_CONTROL)
        return tokenizer_token_bytes(t, token, false);
    grammar_token(token, room);
    return (struct str){ room, GRAMMAR_TOKEN_BYTES };
}

static bool may_be_text(struct str bytes)
{
    for (size_t i = 0; i < bytes.n; i++)
        if ((unsigned char)bytes.at[i] >= 0xf8)
            return false;
    return bytes.n > 0 && bytes.n <= TRIE_MAX_DEPTH;
}

static size_t collect(struct token_trie *trie, const struct tokenizer *t, struct trie_word *entries)
{
    char *name = trie->names;
    size_t n = 0;

    for (uint32_t i = 0; i < trie->n_tokens; i++) {
        bool control = tokenizer_kind(t, i) == TOKEN_CONTROL;
        struct str bytes = token_trie_bytes(t, i, name);
        trie->same[i] = TRIE_NO_TOKEN;
        if (tokenizer_is_end(t, i))
            trie->ends[trie->n_ends++] = i;
        else if (control || may_be_text(bytes))
            entries[n++] = (struct trie_word){ bytes, i };
        name += control ? GRAMMAR_TOKEN_BYTES : 0;
    }
    qsort(entries, n, sizeof *entries, by_bytes);
    return n;
}

// Nodes of the path to the entry before are open; those not shared with the next one end here.
static void add_all(struct token_trie *trie, const struct trie_word *entries, size_t n)
{
    uint32_t open[TRIE_MAX_DEPTH + 1] = { 0 }; // [depth]; [0] is no node, since no text is empty
    size_t depth = 0;

    for (size_t i = 0; i < n; i++) {
        size_t shared = i ? n_shared(entries[i - 1].bytes, entries[i].bytes) : 0;
        for (; depth > shared; depth--)
            trie->nodes[open[depth]].end = trie->n_nodes;
        if (i && shared == entries[i].bytes.n && shared == entries[i - 1].bytes.n) {
            trie->same[entries[i - 1].token] = entries[i].token;
            continue;
        }
        while (depth < entries[i].bytes.n) {
            uint8_t byte = (uint8_t)entries[i].bytes.at[depth++];
            open[depth] = trie->n_nodes;
            trie->nodes[trie->n_nodes++] = (struct trie_node){ 0, TRIE_NO_TOKEN, byte, (uint8_t)depth };
        }
        trie->nodes[open[depth]].token = entries[i].token;
    }
    for (; depth > 0; depth--)
        trie->nodes[open[depth]].end = trie->n_nodes;
}

static size_t n_nodes_of(const struct trie_word *entries, size_t n)
{
    size_t nodes = 0;

    for (size_t i = 0; i < n; i++)
        nodes += entries[i].bytes.n - (i ? n_shared(entries[i - 1].bytes, entries[i].bytes) : 0);
    return nodes;
}

static uint32_t n_control(const struct tokenizer *t)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < tokenizer_n_tokens(t); i++)
        n += tokenizer_kind(t, i) == TOKEN_CONTROL;
    return n;
}

bool token_trie_create(struct token_trie **out, const struct tokenizer *t, struct err *err)
{
    struct token_trie *trie = mem_alloc(sizeof *trie);
    uint32_t n_tokens = tokenizer_n_tokens(t);
    struct trie_word *entries = mem_alloc_array(n_tokens, sizeof *entries);
    bool ok = trie && entries;

    if (ok) {
        trie->n_tokens = n_tokens;
        trie->same = mem_alloc_array(n_tokens, sizeof *trie->same);
        trie->ends = mem_alloc_array(n_tokens, sizeof *trie->ends);
        trie->names = mem_alloc(((size_t)n_control(t) + 1) * GRAMMAR_TOKEN_BYTES);
        ok = trie->same && trie->ends && trie->names;
    }
    if (ok) {
        size_t n = collect(trie, t, entries);
        trie->nodes = mem_alloc_array(n_nodes_of(entries, n) + 1, sizeof *trie->nodes);
        ok = trie->nodes != NULL;
        if (ok)
            add_all(trie, entries, n);
    }
    mem_free(entries);
    if (!ok)
        token_trie_free(trie);
    *out = ok ? trie : NULL;
    return ok || err_memory(err, "the tree of tokens");
}

void token_trie_free(struct token_trie *trie)
{
    if (!trie)
        return;
    mem_free(trie->nodes);
    mem_free(trie->same);
    mem_free(trie->ends);
    mem_free(trie->names);
    mem_free(trie);
}
