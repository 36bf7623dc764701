// spm.c - SentencePiece BPE, where a file gives tokens with scores and no list of merges.
//
// Two neighbours merge when their joined text is a token; highest score first, leftmost first among equals.
// That equals BPE with a merge for each split of a token into two tokens, ranked by the token's score: this
// file makes that list once, and bpe.c does the rest. Equal scores share a rank, and the position decides
// between them.
#include "text/tokenizer/tokenizer_parts.h"
#include <math.h>
#include "base/mem.h"

struct scored {
    double score;
    uint32_t id;
};

static int higher_score(const void *a, const void *b)
{
    const struct scored *x = a, *y = b;
    return (x->score < y->score) - (x->score > y->score);
}

static bool is_piece(const struct tokenizer *t, uint32_t id)
{
    return id != LOOKUP_NONE && (t->kinds[id] == TOKEN_NORMAL || t->kinds[id] == TOKEN_UNUSED);
}

// Calls for every cut of the token into two ordinary tokens; returns their number. With t->merges ready they
// are put there.
static size_t add_cuts(struct tokenizer *t, uint32_t id, uint32_t rank, bool put)
{
    struct str whole = t->raw[id];
    size_t n = 0;
    for (size_t cut = 1; cut < whole.n; cut++) {
        if (((unsigned char)whole.at[cut] & 0xc0) == 0x80)
            continue;
        uint32_t left = text_map_find(&t->by_text, str_from_to(whole, 0, cut));
        uint32_t right =
            is_piece(t, left) ? text_map_find(&t->by_text, str_from_to(whole, cut, whole.n)) : LOOKUP_NONE;
        if (!is_piece(t, right))
            continue;
        n++;
        if (put)
            pair_map_put(&t->merges,
                         (struct pair_slot){ .left = left, .right = right, .rank = rank, .result = id });
    }
    return n;
}

// The tokens that can be the result of a merge, best score first.
static bool collect(const struct tokenizer *t, struct scored *sorted, uint32_t *n, struct err *err)
{
    for (uint32_t id = 0; id < t->n_tokens; id++) {
        if (!is_piece(t, id) || t->raw[id].n == 0)
            continue;
        if (!isfinite(t->scores[id]))
            return err_set(err, ERR_INPUT, "score of token %u ('%.*s') is not a finite number", id,
                           STR_ARG(t->raw[id]));
        if (!tokenizer_check_text(t->raw[id], id, "token", MATCHED_BYTES_MAX, err))
            return false;
        if (text_map_find(&t->by_text, t->raw[id]) == id) // of two equal texts only the first is a result
            sorted[(*n)++] = (struct scored){ t->scores[id], id };
    }
    qsort(sorted, *n, sizeof *sorted, higher_score);
    return true;
}

bool spm_init_merges(struct tokenizer *t, struct err *err)
{
    struct scored *sorted = mem_alloc_array(t->n_tokens, sizeof *sorted);
    uint32_t n = 0, rank = 0;
    size_t n_merges = 0;

    if (!sorted)
        return err_memory(err, "the vocabulary");
    if (!collect(t, sorted, &n, err)) {
        mem_free(sorted);
        return false;
    }
    for (uint32_t i = 0; i < n; i++)
        n_merges += add_cuts(t, sorted[i].id, 0, false);
    bool ok = pair_map_init(&t->merges, t->arena, n_merges) || err_memory(err, "the merges");
    for (uint32_t i = 0; ok && i < n; i++) {
        rank += i > 0 && sorted[i].score < sorted[i - 1].score;
        add_cuts(t, sorted[i].id, rank, true);
    }
    mem_free(sorted);
    return ok;
}
