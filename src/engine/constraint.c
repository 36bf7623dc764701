// constraint.c - see constraint.h.
#include "engine/constraint.h"
#include <math.h>
#include "base/mem.h"
#include "engine/engine.h"
#include "text/grammar/schema.h"

// One token trie for all requests, made for the first request that needs it.
static const struct token_trie *trie_of(struct engine *e, struct err *err)
{
    if (!e->loaded->tokenizer) {
        err_set(err, ERR_UNSUPPORTED, "a grammar needs a tokenizer, which this model lacks: %s",
                e->loaded->no_tokenizer.message);
        return NULL;
    }
    pthread_mutex_lock(&e->making);
    if (!e->trie)
        token_trie_create(&e->trie, e->loaded->tokenizer, err);
    const struct token_trie *trie = e->trie;
    pthread_mutex_unlock(&e->making);
    return trie;
}

static bool read_grammar(struct constraint *c, const struct ingot_request_options *o, struct err *err)
{
    struct buf text = { 0 };

    if (o->grammar)
        return grammar_create(&c->grammar, str_from(o->grammar), err);
    bool ok = schema_to_grammar(str_from(o->json_schema), &text, err) &&
              grammar_create(&c->grammar, buf_as_str(&text), err);
    buf_free(&text);
    return ok;
}

static bool follow_grammar(struct constraint *c, struct engine *e, const struct ingot_request_options *o,
                           struct err *err)
{
    if (o->grammar && o->json_schema)
        return err_set(err, ERR_INPUT, "grammar and json_schema exclude each other");
    if (o->ignore_eos)
        return err_set(err, ERR_INPUT,
                       "ignore_eos and a grammar exclude each other: the grammar says where an answer ends");
    c->trie = trie_of(e, err);
    c->mask = mem_alloc_array(sample_mask_words(c->n_vocab), sizeof *c->mask);
    if (!c->trie || !c->mask)
        return c->trie ? err_memory(err, "a grammar's mask") : false;
    return read_grammar(c, o, err) && matcher_create(&c->matcher, c->grammar, err) &&
           matcher_mask(c->matcher, c->trie, c->mask, c->n_vocab, err);
}

static bool take_biases(struct constraint *c, const struct ingot_request_options *o, struct err *err)
{
    if (o->n_bias > SAMPLE_MAX_BIASES)
        return err_set(err, ERR_INPUT, "%zu tokens have a bias; at most %u", o->n_bias, SAMPLE_MAX_BIASES);
    c->biases = mem_alloc_array(o->n_bias, sizeof *c->biases);
    if (!c->biases)
        return err_memory(err, "biases");
    for (size_t i = 0; i < o->n_bias; i++) {
        if (o->bias[i].token >= c->n_vocab || !isfinite(o->bias[i].bias))
            return err_set(err, ERR_INPUT, "bias %zu: token %u, bias %g; want a token below %u and a number",
                           i, o->bias[i].token, (double)o->bias[i].bias, c->n_vocab);
        c->biases[c->n_biases++] = (struct sample_bias){ o->bias[i].token, o->bias[i].bias };
    }
    return true;
}

bool constraint_create(struct constraint *c, struct engine *e, const struct ingot_request_options *o,
                       struct err *err)
{
    *c = (struct constraint){ .n_vocab = e->loaded->model.config.n_vocab };
    if ((!o->n_bias || take_biases(c, o, err)) &&
        ((!o->grammar && !o->json_schema) || follow_grammar(c, e, o, err)))
        return true;
    constraint_release(c);
    return false;
}

void constraint_release(struct constraint *c)
{
    matcher_free(c->matcher);
    grammar_free(c->grammar);
    mem_free(c->mask);
    mem_free(c->biases);
    *c = (struct constraint){ 0 };
}

bool constraint_accept(struct constraint *c, const struct tokenizer *t, uint32_t token, struct err *err)
{
    char room[GRAMMAR_TOKEN_BYTES];

    if (!c->matcher || tokenizer_is_end(t, token))
        return true;
    return matcher_accept(c->matcher, token_trie_bytes(t, token, room), err) &&
           matcher_mask(c->matcher, c->trie, c->mask, c->n_vocab, err);
}
