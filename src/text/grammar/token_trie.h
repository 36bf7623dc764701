// token_trie.h - the vocabulary as a tree of bytes, so that a grammar looks at a common beginning of tokens once.
//
// Control tokens have no text: they stand in it under the bytes of grammar_token, so that only a grammar that names one takes it. Tokens
// with bytes that no text in UTF-8 has are not in it. Read-only after it was made: any number of threads.
#pragma once
#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

enum { TRIE_MAX_DEPTH = 255, TRIE_NO_TOKEN = UINT32_MAX }; // bytes; longer tokens are left out

struct trie_node {
    uint32_t end;        // the next node that is not below this one
    uint32_t token;      // that ends here, or TRIE_NO_TOKEN; others with the same bytes: token_trie.same
    uint8_t byte, depth; // depth 1: the first byte of a token
};

struct token_trie {
    struct trie_node *nodes; // [n_nodes] a node comes before those below it
    uint32_t n_nodes;
    uint32_t n_tokens, *same; // [n_tokens] next token with the same bytes, or TRIE_NO_TOKEN
    uint32_t *ends, n_ends;   // tokens that end an answer
    char *names;              // of control tokens
};

// What a grammar reads for this token. room: for a control token's bytes.
struct str token_trie_bytes(const struct tokenizer *t, uint32_t token, char room[GRAMMAR_TOKEN_BYTES]);

bool token_trie_create(struct token_trie **trie, const struct tokenizer *t, struct err *err);
void token_trie_free(struct token_trie *trie); // NULL is allowed
