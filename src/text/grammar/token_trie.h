// token_trie.h - the vocabulary as a trie over bytes, so that a grammar matches a common prefix of tokens
// once.
//
// Control tokens have no text: the trie has them under the bytes of grammar_token, so that only a grammar
// that names one allows it. Tokens with bytes that cannot occur in UTF-8 are left out. Read-only after
// creation: any number of threads.
#pragma once
#include "text/grammar/grammar.h"
#include "text/tokenizer/tokenizer.h"

enum { TRIE_MAX_DEPTH = 255, TRIE_NO_TOKEN = UINT32_MAX }; // bytes; longer tokens are left out

struct trie_node {
    uint32_t end;        // the next node outside of this subtree
    uint32_t token;      // that ends here, or TRIE_NO_TOKEN; token_trie.same lists others with the same bytes
    uint8_t byte, depth; // depth 1: the first byte of a token
};

struct token_trie {
    struct trie_node *nodes; // [n_nodes] in preorder
    uint32_t n_nodes;
    uint32_t n_tokens, *same; // [n_tokens] next token with the same bytes, or TRIE_NO_TOKEN
    uint32_t *ends, n_ends;   // tokens that end an answer
    char *names;              // of control tokens
};

// The bytes of this token in a grammar. room: buffer for the bytes of a control token.
struct str token_trie_bytes(const struct tokenizer *t, uint32_t token, char room[GRAMMAR_TOKEN_BYTES]);

bool token_trie_create(struct token_trie **trie, const struct tokenizer *t, struct err *err);
void token_trie_free(struct token_trie *trie); // NULL is allowed
