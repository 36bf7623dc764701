// bpe.c - byte pair encoding: a word becomes symbols (bytes or characters), and neighbouring symbols are
// merged, lowest rank first, leftmost first among equals.
//
// A queue of (rank, position): O(n log n) on any word, no recursion, about 13 bytes per symbol at the peak.
// Entries are not removed when they are out of date; an entry counts if the pair that is now at its position
// makes the same token.
#include "text/tokenizer/tokenizer_parts.h"
#include "base/mem.h"

// One cell per initial symbol of the word. A merged symbol covers several cells: the first holds its id and
// LONG, the second and the last its length, and all except the first are INSIDE. That is four bytes per
// symbol; a linked list takes twelve.
enum { LONG = 1 << 30, INSIDE = 1 << 29, LENGTH = INSIDE - 1, WORD_MAX = LENGTH };

static uint32_t symbol_id(const uint32_t *cells, uint32_t at)
{
    return cells[at] & ~(uint32_t)LONG;
}

static uint32_t symbol_length(const uint32_t *cells, uint32_t at)
{
    return cells[at] & LONG ? cells[at + 1] & LENGTH : 1;
}

static uint32_t symbol_before(const uint32_t *cells, uint32_t at)
{
    return cells[at - 1] & INSIDE ? at - (cells[at - 1] & LENGTH) : at - 1;
}

static const struct pair_slot *merge_of(const struct encode_run *run, uint32_t at, uint32_t *after)
{
    const uint32_t *cells = run->cells;
    *after = at + symbol_length(cells, at);
    return *after < run->n_cells
               ? pair_map_find(&run->t->merges, symbol_id(cells, at), symbol_id(cells, *after))
               : NULL;
}

// Queues the merge of the symbol at `at` with the next symbol, if there is one.
static bool queue_pair(struct encode_run *run, uint32_t at)
{
    uint32_t after;
    const struct pair_slot *merge = merge_of(run, at, &after);
    return !merge || merge_queue_push(&run->queue, merge->rank, at) || err_memory(run->err, "merging");
}

static bool merge_at(struct encode_run *run, uint32_t rank, uint32_t at)
{
    uint32_t *cells = run->cells, after;
    if (cells[at] & INSIDE)
        return true;
    const struct pair_slot *merge = merge_of(run, at, &after);
    if (!merge || (run->t->rank_result ? merge->result != run->t->rank_result[rank] : merge->rank != rank))
        return true;
    uint32_t length = after - at + symbol_length(cells, after);
    cells[after] = INSIDE;
    cells[at] = merge->result | LONG;
    cells[at + 1] = cells[at + length - 1] = INSIDE | length;
    run->n_symbols--;
    return (at == 0 || queue_pair(run, symbol_before(cells, at))) && queue_pair(run, at);
}

static bool merge_symbols(struct encode_run *run)
{
    uint32_t rank, at, after;

    for (at = 0; at + 1 < run->n_cells; at++)
        if (!queue_pair(run, at))
            return false;
    while (merge_queue_pop(&run->queue, &rank, &at))
        if (!merge_at(run, rank, at))
            return false;
    if (!token_ids_reserve(run->ids, run->n_symbols))
        return err_memory(run->err, "token ids");
    for (at = 0; at < run->n_cells; at = after) {
        after = at + symbol_length(run->cells, at);
        run->ids->ids[run->ids->n++] = symbol_id(run->cells, at);
    }
    return true;
}

static void add_symbol(struct encode_run *run, uint32_t id)
{
    run->cells[run->n_cells++] = id;
}

static bool all_bytes_known(const struct tokenizer *t, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (t->byte_ids[(unsigned char)text.at[i]] == LOOKUP_NONE)
            return false;
    return true;
}

// A character (of a byte-level vocabulary: a byte) that has no token. *fused says that the last symbol is an
// unknown one.
static void add_unknown(struct encode_run *run, struct str text, bool *fused)
{
    const struct tokenizer *t = run->t;
    if (t->byte_fallback && all_bytes_known(t, text)) {
        for (size_t i = 0; i < text.n; i++)
            add_symbol(run, t->byte_ids[(unsigned char)text.at[i]]);
    } else if (t->unknown >= 0 && !(*fused && t->fuse_unknown)) {
        add_symbol(run, (uint32_t)t->unknown);
        *fused = true;
    }
}

static void make_symbols(struct encode_run *run, struct str word)
{
    const struct tokenizer *t = run->t;
    bool fused = false;

    run->n_cells = 0;
    for (size_t i = 0; i < word.n;) {
        uint32_t cp, length = t->byte_level ? 1 : utf8_read(word.at + i, word.n - i, &cp);
        struct str part = str_from_to(word, i, i + length);
        uint32_t id =
            t->byte_level ? t->byte_ids[(unsigned char)word.at[i]] : text_map_find(&t->by_text, part);
        if (id == LOOKUP_NONE) {
            add_unknown(run, part, &fused);
        } else {
            add_symbol(run, id);
            fused = false;
        }
        i += length;
    }
}

bool bpe_encode_word(struct encode_run *run, struct str word)
{
    if (run->t->ignore_merges) {
        uint32_t id = text_map_find(&run->t->by_text, word);
        if (id != LOOKUP_NONE)
            return token_ids_push(run->ids, id) || err_memory(run->err, "token ids");
    }
    if (word.n > WORD_MAX)
        return err_set(run->err, ERR_LIMIT, "a word of %zu bytes: at most %d", word.n, WORD_MAX);
    if (!encode_run_cells(run, word.n * sizeof *run->cells))
        return err_memory(run->err, "merging");
    make_symbols(run, word);
    run->n_symbols = run->n_cells;
    return merge_symbols(run);
}

bool bpe_init_merges(struct tokenizer *t, size_t n_merges, struct err *err)
{
    t->rank_result =
        n_merges < UINT32_MAX ? arena_alloc_array(t->arena, n_merges, sizeof *t->rank_result) : NULL;
    if (!t->rank_result || !pair_map_init(&t->merges, t->arena, n_merges))
        return err_memory(err, "the merges");
    for (size_t i = 0; i < n_merges; i++)
        t->rank_result[i] = LOOKUP_NONE;
    return true;
}

// No merge makes a control token, even if the file lists one.
static bool may_merge(const struct tokenizer *t, uint32_t id)
{
    return t->kinds[id] != TOKEN_CONTROL && t->kinds[id] != TOKEN_UNKNOWN && t->kinds[id] != TOKEN_BYTE;
}

// The token of two joined texts, or LOOKUP_NONE. False: out of memory.
static bool find_joined(const struct tokenizer *t, struct str left, struct str right, uint32_t *id)
{
    char small[256], *both = left.n + right.n <= sizeof small ? small : mem_alloc(left.n + right.n);
    if (!both)
        return false;
    memcpy(both, left.at, left.n);
    memcpy(both + left.n, right.at, right.n);
    *id = text_map_find(&t->by_raw, (struct str){ both, left.n + right.n });
    if (both != small)
        mem_free(both);
    return true;
}

bool bpe_add_merge(struct tokenizer *t, uint32_t rank, struct str left, struct str right, struct err *err)
{
    uint32_t l = text_map_find(&t->by_raw, left), r = text_map_find(&t->by_raw, right), result;

    if (left.n == 0 || right.n == 0)
        return err_set(err, ERR_INPUT, "merge %u: expected two tokens, found '%.*s' and '%.*s'", rank,
                       STR_ARG(left), STR_ARG(right));
    if (!find_joined(t, left, right, &result))
        return err_memory(err, "the merges");
    if (l == LOOKUP_NONE || r == LOOKUP_NONE || result == LOOKUP_NONE)
        return err_set(err, ERR_INPUT, "merge %u of '%.*s' and '%.*s': %s is not in the vocabulary", rank,
                       STR_ARG(left), STR_ARG(right),
                       l == LOOKUP_NONE   ? "the first"
                       : r == LOOKUP_NONE ? "the second"
                                          : "the result");
    if (may_merge(t, l) && may_merge(t, r) && may_merge(t, result)) {
        pair_map_put(&t->merges, (struct pair_slot){ .left = l, .right = r, .rank = rank, .result = result });
        t->rank_result[rank] = result;
    }
    return true;
}
