// unigram.c - SentencePiece unigram: of all ways to cut a word into tokens the one with the highest sum of
// scores (Viterbi).
//
// One step per character of the word and per token that begins there, found in a prefix tree; tokens are
// limited in length when the vocabulary is loaded, so a word of n bytes costs O(n). A character without a
// token of its own counts as unknown, at 10 below the lowest score. Sums are in double, left to right, as in
// the reference. Only ordinary tokens are found in text (in
// the reference library a typed "<0x41>" would become the byte A).
#include "text/tokenizer/tokenizer_parts.h"
#include <math.h>
#include "base/mem.h"

static const double UNKNOWN_PENALTY = 10;

struct path_end {
    double score;
    uint32_t from; // where the last token starts
    uint32_t id;   // LOOKUP_NONE: an unknown character; UNREACHED: no way leads here
};
static const uint32_t UNREACHED = UINT32_MAX - 1;

static void improve(struct path_end *end, double score, uint32_t from, uint32_t id)
{
    if (end->id == UNREACHED || score > end->score)
        *end = (struct path_end){ score, from, id };
}

static void extend_paths(const struct tokenizer *t, struct path_end *ends, struct str word, uint32_t from)
{
    uint32_t cp, length = utf8_read(word.at + from, word.n - from, &cp), node = 0;
    bool has_character = false;

    for (size_t i = from; t->pieces.nodes && i < word.n; i++) {
        node = trie_child(&t->pieces, node, (unsigned char)word.at[i]);
        if (node == 0)
            break;
        uint32_t id = t->pieces.nodes[node].value;
        if (id == LOOKUP_NONE)
            continue;
        has_character |= i + 1 - from == length;
        improve(&ends[i + 1], ends[from].score + t->scores[id], from, id);
    }
    if (!has_character)
        improve(&ends[from + length], ends[from].score + t->unknown_score, from, LOOKUP_NONE);
}

// Follows the best path back to the start, and turns its links around: ends[i].from becomes the end of the
// token that starts at i.
static void turn_around(struct path_end *ends, size_t n)
{
    uint32_t at = (uint32_t)n, to = (uint32_t)n, id = LOOKUP_NONE;
    while (at > 0) {
        struct path_end here = ends[at];
        ends[at] = (struct path_end){ .from = to, .id = id };
        to = at;
        id = here.id;
        at = here.from;
    }
    ends[0] = (struct path_end){ .from = to, .id = id };
}

bool unigram_encode_word(struct encode_run *run, struct str word)
{
    if (word.n >= UNREACHED)
        return err_set(run->err, ERR_LIMIT, "a word of %zu bytes is too long", word.n);
    if (!encode_run_cells(run, (word.n + 1) * sizeof(struct path_end)))
        return err_memory(run->err, "the best path");
    struct path_end *ends = (struct path_end *)(void *)run->cells;
    for (size_t i = 0; i <= word.n; i++)
        ends[i] = (struct path_end){ .id = UNREACHED };
    ends[0].id = LOOKUP_NONE;
    for (uint32_t i = 0; i < word.n; i++)
        if (ends[i].id != UNREACHED)
            extend_paths(run->t, ends, word, i);
    turn_around(ends, word.n);
    for (uint32_t i = 0; i < word.n;) {
        uint32_t to = ends[i].from;
        if (ends[i].id != LOOKUP_NONE) {
            if (!token_ids_push(run->ids, ends[i].id))
                return err_memory(run->err, "token ids");
        } else {
            while (to < word.n && ends[to].id == LOOKUP_NONE) // unknown neighbours count as one
                to = ends[to].from;
            if (!encode_unknown(run, str_from_to(word, i, to)))
                return false;
        }
        i = to;
    }
    return true;
}

bool unigram_init(struct tokenizer *t, struct err *err)
{
    struct trie_entry *entries = mem_alloc_array((size_t)t->n_tokens + 1, sizeof *entries);
    double lowest = 0;
    size_t n = 0;
    bool ok = entries != NULL || err_memory(err, "the vocabulary");

    for (uint32_t id = 0; ok && id < t->n_tokens; id++) {
        if (!isfinite(t->scores[id]))
            ok = err_set(err, ERR_INPUT, "score of token %u ('%.*s') is not a finite number", id,
                         STR_ARG(t->raw[id]));
        if (id == 0 || t->scores[id] < lowest)
            lowest = t->scores[id];
        bool ordinary = t->kinds[id] == TOKEN_NORMAL || t->kinds[id] == TOKEN_UNUSED;
        if (!ok || !ordinary || t->raw[id].n == 0)
            continue;
        ok = tokenizer_check_text(t->raw[id], id, "token", MATCHED_BYTES_MAX, err);
        entries[n++] = (struct trie_entry){ t->raw[id], id };
    }
    t->unknown_score = lowest - UNKNOWN_PENALTY;
    ok = ok && (trie_build(&t->pieces, t->arena, entries, n) || err_memory(err, "the vocabulary"));
    mem_free(entries);
    return ok;
}
