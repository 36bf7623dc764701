// bpe.c - byte pair encoding: a word becomes symbols (bytes or characters), and neighbouring symbols are merged, lowest rank first,
// leftmost first among equals.
//
// A queue of (rank, position) and a linked list of symbols: O(n log n) on any word, no recursion, 28 bytes per symbol at the peak.
// The queue is a heap with eight children per node, one cache line, because a word of 10 MiB has a queue of 80 MiB. Entries are not
// removed when they are overtaken; an entry counts if the pair that stands there now makes the same token.
#include "text/tokenizer_parts.h"
#include "base/mem.h"

enum { CHILDREN = 8 };
static const uint32_t NOBODY = UINT32_MAX;

struct symbol {
    uint32_t id; // LOOKUP_NONE: merged into the one before
    uint32_t before, after;
};

struct merge_queue {
    uint64_t *at; // rank << 32 | position
    size_t n;
};

static void queue_sift_up(struct merge_queue *queue, size_t i, uint64_t entry)
{
    for (; i > 0; i = (i - 1) / CHILDREN) {
        uint64_t parent = queue->at[(i - 1) / CHILDREN];
        if (parent <= entry)
            break;
        queue->at[i] = parent;
    }
    queue->at[i] = entry;
}

static void queue_sift_down(struct merge_queue *queue, size_t i, uint64_t entry)
{
    for (;;) {
        size_t first = i * CHILDREN + 1, end = first + CHILDREN < queue->n ? first + CHILDREN : queue->n, least = first;
        if (first >= queue->n)
            break;
        for (size_t child = first + 1; child < end; child++)
            if (queue->at[child] < queue->at[least])
                least = child;
        if (queue->at[least] >= entry)
            break;
        queue->at[i] = queue->at[least];
        i = least;
    }
    queue->at[i] = entry;
}

static uint64_t queue_pop(struct merge_queue *queue)
{
    uint64_t top = queue->at[0], last = queue->at[--queue->n];
    if (queue->n)
        queue_sift_down(queue, 0, last);
    return top;
}

static bool queue_push(struct encode_run *run, struct merge_queue *queue, uint64_t entry)
{
    if (!encode_run_grow(&run->heap, &run->heap_bytes, (queue->n + 1) * sizeof entry))
        return err_memory(run->err, "merging");
    queue->at = run->heap;
    queue_sift_up(queue, queue->n++, entry);
    return true;
}

// Puts the merge of the symbol at `position` and the next one into the queue, if there is one.
static bool queue_pair(struct encode_run *run, struct merge_queue *queue, uint32_t position)
{
    const struct symbol *symbols = run->symbols;
    uint32_t after = symbols[position].after;
    const struct pair_slot *merge =
        after == NOBODY ? NULL : pair_map_find(&run->t->merges, symbols[position].id, symbols[after].id);
    return !merge || queue_push(run, queue, (uint64_t)merge->rank << 32 | position);
}

static bool merge_top(struct encode_run *run, struct merge_queue *queue, uint64_t top)
{
    struct symbol *symbols = run->symbols;
    uint32_t position = (uint32_t)top, rank = (uint32_t)(top >> 32);
    struct symbol *left = &symbols[position];

    if (left->id == LOOKUP_NONE || left->after == NOBODY)
        return true;
    struct symbol *right = &symbols[left->after];
    const struct pair_slot *merge = pair_map_find(&run->t->merges, left->id, right->id);
    if (!merge || (run->t->rank_result ? merge->result != run->t->rank_result[rank] : merge->rank != rank))
        return true;
    left->id = merge->result;
    left->after = right->after;
    right->id = LOOKUP_NONE;
    if (left->after != NOBODY)
        symbols[left->after].before = position;
    return (left->before == NOBODY || queue_pair(run, queue, left->before)) && queue_pair(run, queue, position);
}

static bool merge_symbols(struct encode_run *run, size_t n)
{
    const struct symbol *symbols = run->symbols;
    struct merge_queue queue = { .at = run->heap };

    for (uint32_t i = 0; i + 1 < n; i++)
        if (!queue_pair(run, &queue, i))
            return false;
    while (queue.n)
        if (!merge_top(run, &queue, queue_pop(&queue)))
            return false;
    for (uint32_t i = 0; i != NOBODY; i = symbols[i].after)
        if (!token_ids_push(run->ids, symbols[i].id))
            return err_memory(run->err, "token ids");
    return true;
}

static void add_symbol(struct encode_run *run, size_t *n, uint32_t id)
{
    struct symbol *symbols = run->symbols;
    symbols[*n] = (struct symbol){ .id = id, .before = *n ? (uint32_t)*n - 1 : NOBODY, .after = NOBODY };
    if (*n)
        symbols[*n - 1].after = (uint32_t)*n;
    *n += 1;
}

static bool all_bytes_known(const struct tokenizer *t, struct str text)
{
    for (size_t i = 0; i < text.n; i++)
        if (t->byte_ids[(unsigned char)text.at[i]] == LOOKUP_NONE)
            return false;
    return true;
}

// A character (of a byte-level vocabulary: a byte) that has no token. *fused says that the last symbol is an unknown one.
static void add_unknown(struct encode_run *run, size_t *n, struct str text, bool *fused)
{
    const struct tokenizer *t = run->t;
    if (t->byte_fallback && all_bytes_known(t, text)) {
        for (size_t i = 0; i < text.n; i++)
            add_symbol(run, n, t->byte_ids[(unsigned char)text.at[i]]);
    } else if (t->unknown >= 0 && !(*fused && t->fuse_unknown)) {
        add_symbol(run, n, (uint32_t)t->unknown);
        *fused = true;
    }
}

static size_t make_symbols(struct encode_run *run, struct str word)
{
    const struct tokenizer *t = run->t;
    bool fused = false;
    size_t n = 0;

    for (size_t i = 0; i < word.n;) {
        uint32_t cp, length = t->byte_level ? 1 : utf8_read(word.at + i, word.n - i, &cp);
        struct str part = str_from_to(word, i, i + length);
        uint32_t id = t->byte_level ? t->byte_ids[(unsigned char)word.at[i]] : text_map_find(&t->by_text, part);
        if (id == LOOKUP_NONE) {
            add_unknown(run, &n, part, &fused);
        } else {
            add_symbol(run, &n, id);
            fused = false;
        }
        i += length;
    }
    return n;
}

bool bpe_encode_word(struct encode_run *run, struct str word)
{
    if (run->t->ignore_merges) {
        uint32_t id = text_map_find(&run->t->by_text, word);
        if (id != LOOKUP_NONE)
            return token_ids_push(run->ids, id) || err_memory(run->err, "token ids");
    }
    if (!encode_run_grow(&run->symbols, &run->symbols_bytes, word.n * sizeof(struct symbol)))
        return err_memory(run->err, "merging");
    size_t n = make_symbols(run, word);
    return n == 0 || merge_symbols(run, n);
}

bool bpe_init_merges(struct tokenizer *t, size_t n_merges, struct err *err)
{
    t->rank_result = n_merges < UINT32_MAX ? arena_alloc_array(t->arena, n_merges, sizeof *t->rank_result) : NULL;
    if (!t->rank_result || !pair_map_init(&t->merges, t->arena, n_merges))
        return err_memory(err, "the merges");
    for (size_t i = 0; i < n_merges; i++)
        t->rank_result[i] = LOOKUP_NONE;
    return true;
}

// Control tokens are made by no merge, whatever the file says.
static bool may_merge(const struct tokenizer *t, uint32_t id)
{
    return t->kinds[id] != TOKEN_CONTROL && t->kinds[id] != TOKEN_UNKNOWN && t->kinds[id] != TOKEN_BYTE;
}

bool bpe_add_merge(struct tokenizer *t, uint32_t rank, struct str left, struct str right, struct err *err)
{
    struct buf both = { 0 };
    buf_str(&both, left);
    buf_str(&both, right);
    uint32_t l = text_map_find(&t->by_raw, left), r = text_map_find(&t->by_raw, right);
    uint32_t result = both.failed ? LOOKUP_NONE : text_map_find(&t->by_raw, buf_as_str(&both));

    buf_free(&both);
    if (left.n == 0 || right.n == 0)
        return err_set(err, ERR_INPUT, "merge %u: expected two tokens, found '%.*s' and '%.*s'", rank, STR_ARG(left),
                       STR_ARG(right));
    if (l == LOOKUP_NONE || r == LOOKUP_NONE || result == LOOKUP_NONE)
        return err_set(err, ERR_INPUT, "merge %u of '%.*s' and '%.*s': %s is not in the vocabulary", rank, STR_ARG(left),
                       STR_ARG(right),
                       l == LOOKUP_NONE   ? "the first"
                       : r == LOOKUP_NONE ? "the second"
                                          : "the result");
    if (may_merge(t, l) && may_merge(t, r) && may_merge(t, result)) {
        pair_map_put(&t->merges, (struct pair_slot){ .left = l, .right = r, .rank = rank, .result = result });
        t->rank_result[rank] = result;
    }
    return true;
}
