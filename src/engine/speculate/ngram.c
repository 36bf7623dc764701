// ngram.c - see ngram.h.
#include "engine/speculate/ngram.h"
#include "base/mem.h"

enum { PLACES_MOST = 32 }; // that are compared

bool ngram_create(struct ngram *g, uint32_t capacity, struct err *err)
{
    uint32_t n = 64;

    while (n < capacity && n < 1u << 30)
        n *= 2;
    *g = (struct ngram){ .mask = n - 1, .capacity = capacity };
    g->last = mem_alloc_array(n, sizeof *g->last);
    g->before = mem_alloc_array((size_t)capacity + 1, sizeof *g->before);
    if (g->last && g->before)
        return true;
    ngram_release(g);
    return err_memory(err, "the index of a request's tokens");
}

void ngram_release(struct ngram *g)
{
    mem_free(g->last);
    mem_free(g->before);
    *g = (struct ngram){ 0 };
}

// Of the run that ends before position n.
static uint32_t *bucket_of(const struct ngram *g, const uint32_t *tokens, uint32_t n)
{
    uint32_t hash = 0;

    for (uint32_t i = n - NGRAM_LEAST; i < n; i++)
        hash = (hash ^ tokens[i]) * 0x9E3779B1u;
    return &g->last[(hash ^ hash >> 15) & g->mask];
}

static void index_up_to(struct ngram *g, const uint32_t *tokens, uint32_t n)
{
    for (; g->n_known < n; g->n_known++) {
        if (g->n_known < NGRAM_LEAST)
            continue;
        uint32_t *last = bucket_of(g, tokens, g->n_known);
        g->before[g->n_known] = *last;
        *last = g->n_known;
    }
}

static uint32_t n_equal_before(const uint32_t *tokens, uint32_t a, uint32_t b)
{
    uint32_t n = 0;

    while (n < NGRAM_MOST && n < a && tokens[a - 1 - n] == tokens[b - 1 - n])
        n++;
    return n;
}

struct ngram_match ngram_find(struct ngram *g, const uint32_t *tokens, uint32_t n)
{
    struct ngram_match best = { 0 };

    CHECK(n <= g->capacity);
    if (n < NGRAM_LEAST)
        return best;
    index_up_to(g, tokens, n);
    uint32_t at = *bucket_of(g, tokens, n);
    for (uint32_t i = 0; i < PLACES_MOST && at > 0 && best.length < NGRAM_MOST; i++, at = g->before[at]) {
        uint32_t length = n_equal_before(tokens, at, n);
        if (length >= NGRAM_LEAST && length > best.length)
            best = (struct ngram_match){ at, length };
    }
    return best;
}
