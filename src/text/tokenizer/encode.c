// encode.c - text to ids: joins spans, cuts out added tokens; normalises, splits and merges the rest.
//
// Trust is a property of the bytes of the joined text, stored as a list of borders. A control token matches
// only if all its bytes are trusted; elsewhere it is treated as ordinary text.
#include "text/tokenizer/tokenizer_parts.h"
#include "base/mem.h"

enum { INPUT_MAX = 1 << 30 };

// Ranges of the joined text; neighbours differ in trust.
struct trust {
    struct trust_border {
        size_t end;
        bool trusted;
    } * at;
    size_t n;
};

struct match {
    const struct added_token *token; // NULL: none
    size_t from, to;
};

bool token_ids_reserve(struct token_ids *ids, size_t n_more)
{
    size_t wanted = ids->n + n_more, capacity = ids->capacity ? ids->capacity * 2 : 64;
    if (wanted <= ids->capacity)
        return true;
    capacity = wanted > capacity ? wanted : capacity;
    uint32_t *at = mem_realloc(ids->ids, capacity * sizeof *at);
    if (!at)
        return false;
    ids->ids = at;
    ids->capacity = capacity;
    return true;
}

bool token_ids_push(struct token_ids *ids, uint32_t id)
{
    if (!token_ids_reserve(ids, 1))
        return false;
    ids->ids[ids->n++] = id;
    return true;
}

void token_ids_free(struct token_ids *ids)
{
    mem_free(ids->ids);
    *ids = (struct token_ids){ 0 };
}

// Cells of a long text are allocated from the system, in huge pages where it has them: with small pages most
// of the time goes into page faults (measured: bench/results/2026-11-22-cpu-kernel-choices.md).
enum { PAGED_CELLS = 1 << 20 };

static void cells_free(struct encode_run *run)
{
    if (run->cells_bytes >= PAGED_CELLS)
        mem_free_pages(run->cells, run->cells_bytes);
    else
        mem_free(run->cells);
    run->cells = NULL;
    run->cells_bytes = 0;
}

bool encode_run_cells(struct encode_run *run, size_t bytes)
{
    if (bytes <= run->cells_bytes)
        return true;
    cells_free(run);
    bytes = bytes < 4096 ? 4096 : bytes;
    run->cells = bytes >= PAGED_CELLS ? mem_alloc_pages(bytes) : mem_alloc(bytes);
    run->cells_bytes = run->cells ? bytes : 0;
    return run->cells != NULL;
}

bool encode_run_patterns(struct encode_run *run)
{
    if (!run->patterns)
        run->patterns = pattern_scratch_create();
    return run->patterns || err_memory(run->err, "matching patterns");
}

void encode_run_free(struct encode_run *run)
{
    pattern_scratch_free(run->patterns);
    for (int i = 0; i < 2; i++)
        buf_free(&run->normal[i]);
    for (int i = 0; i < PRETOKEN_STEPS_MAX; i++)
        buf_free(&run->rewritten[i]);
    cells_free(run);
    merge_queue_free(&run->queue);
}

bool encode_unknown(struct encode_run *run, struct str text)
{
    const struct tokenizer *t = run->t;
    bool bytes = t->byte_fallback, ok = true;
    for (size_t i = 0; bytes && i < text.n; i++)
        bytes = t->byte_ids[(unsigned char)text.at[i]] != LOOKUP_NONE;
    for (size_t i = 0; ok && bytes && i < text.n; i++)
        ok = token_ids_push(run->ids, t->byte_ids[(unsigned char)text.at[i]]);
    if (!bytes && t->unknown >= 0)
        ok = token_ids_push(run->ids, (uint32_t)t->unknown);
    return ok || err_memory(run->err, "token ids");
}

bool encode_word(struct encode_run *run, struct str word)
{
    if (word.n == 0)
        return true;
    return run->t->model == TEXT_UNIGRAM     ? unigram_encode_word(run, word)
           : run->t->model == TEXT_WORDPIECE ? wordpiece_encode_word(run, word)
                                             : bpe_encode_word(run, word);
}

static bool is_trusted(const struct trust *trust, size_t *border, size_t from, size_t to)
{
    while (*border + 1 < trust->n && trust->at[*border].end <= from)
        ++*border;
    return *border < trust->n && trust->at[*border].trusted && trust->at[*border].end >= to;
}

static bool word_before(struct str text, size_t at)
{
    size_t back = at;
    while (back > 0 && at - back < 4 && ((unsigned char)text.at[--back] & 0xc0) == 0x80)
        ;
    uint32_t cp;
    if (at == 0)
        return false;
    utf8_read(text.at + back, at - back, &cp);
    return cp != UTF8_ILL_FORMED && unicode_is_word(cp);
}

static bool word_after(struct str text, size_t at)
{
    uint32_t cp;
    if (at == text.n)
        return false;
    utf8_read(text.at + at, text.n - at, &cp);
    return cp != UTF8_ILL_FORMED && unicode_is_word(cp);
}

// The longest acceptable added token at `from`. trust is NULL after normalisation, where no control token is
// looked for.
static struct match match_at(const struct tokenizer *t, const struct trust *trust, size_t *border,
                             struct str text, size_t from)
{
    const struct trie *trie = trust ? &t->added_raw : &t->added_normal;
    struct match best = { .from = from };
    uint32_t node = 0;

    for (size_t i = from; i < text.n; i++) {
        node = trie_child(trie, node, (unsigned char)text.at[i]);
        if (node == 0)
            break;
        if (trie->nodes[node].value == LOOKUP_NONE)
            continue;
        const struct added_token *token = &t->added[trie->nodes[node].value];
        bool control = t->kinds[token->id] == TOKEN_CONTROL || t->kinds[token->id] == TOKEN_UNKNOWN;
        if (control && !(trust && is_trusted(trust, border, from, i + 1)))
            continue;
        if (token->single_word && (word_before(text, from) || word_after(text, i + 1)))
            continue;
        best.token = token;
        best.to = i + 1;
    }
    return best;
}

static struct match next_match(const struct tokenizer *t, const struct trust *trust, size_t *border,
                               struct str text, size_t at)
{
    const struct trie *trie = trust ? &t->added_raw : &t->added_normal;
    for (size_t i = at; trie->nodes && i < text.n; i++) {
        if (!trie->root_child[(unsigned char)text.at[i]])
            continue;
        struct match match = match_at(t, trust, border, text, i);
        if (!match.token)
            continue;
        while (match.token->strip_left && match.from > at) { // the token includes the spaces before it
            size_t back = match.from - 1;
            while (back > at && ((unsigned char)text.at[back] & 0xc0) == 0x80)
                back--;
            uint32_t cp;
            utf8_read(text.at + back, text.n - back, &cp);
            if (!unicode_is_space(cp))
                break;
            match.from = back;
        }
        while (match.token->strip_right && match.to < text.n) {
            uint32_t cp, length = utf8_read(text.at + match.to, text.n - match.to, &cp);
            if (!unicode_is_space(cp))
                break;
            match.to += length;
        }
        return match;
    }
    return (struct match){ .from = text.n, .to = text.n };
}

static bool encode_stretch(struct encode_run *run, struct str text, bool at_start)
{
    struct str normal;
    size_t unused = 0;

    if (!normalize_apply(run, text, &normal))
        return false;
    for (size_t at = 0; at < normal.n;) {
        struct match match = next_match(run->t, NULL, &unused, normal, at);
        if (!pretokenize_apply(run, str_from_to(normal, at, match.from), at_start && at == 0))
            return false;
        if (match.token && !token_ids_push(run->ids, match.token->id))
            return err_memory(run->err, "token ids");
        at = match.to;
    }
    return true;
}

static bool encode_joined(struct encode_run *run, struct str text, const struct trust *trust)
{
    size_t border = 0;

    for (size_t at = 0; at < text.n;) {
        struct match match = next_match(run->t, trust, &border, text, at);
        if (match.from > at && !encode_stretch(run, str_from_to(text, at, match.from), at == 0))
            return false;
        if (match.token && !token_ids_push(run->ids, match.token->id))
            return err_memory(run->err, "token ids");
        at = match.to;
    }
    return true;
}

// A single valid span is used without a copy.
static bool join(const struct text_span *spans, size_t n, struct buf *text, struct trust *trust,
                 struct err *err)
{
    size_t total = 0;
    bool whole = n == 1 && utf8_is_valid(spans[0].text);
    for (size_t i = 0; i < n; i++)
        total = spans[i].text.n > INPUT_MAX - total ? (size_t)INPUT_MAX + 1 : total + spans[i].text.n;
    if (total > INPUT_MAX)
        return err_set(err, ERR_LIMIT, "a text of more than %d bytes cannot be tokenized in one go",
                       INPUT_MAX);
    trust->at = mem_alloc_array(n + 1, sizeof *trust->at);
    if (!trust->at || (!whole && !buf_reserve(text, total)))
        return err_memory(err, "the text");
    if (whole)
        trust->at[trust->n++] = (struct trust_border){ spans[0].text.n, spans[0].trusted };
    for (size_t i = 0; i < n && !whole; i++) {
        if (spans[i].text.n == 0)
            continue;
        if (!utf8_append_valid(text, spans[i].text))
            return err_set(err, ERR_LIMIT, "a text of %zu bytes with invalid UTF-8 is too long", total);
        if (trust->n == 0 || trust->at[trust->n - 1].trusted != spans[i].trusted)
            trust->n++;
        trust->at[trust->n - 1] = (struct trust_border){ text->n, spans[i].trusted };
    }
    return true;
}

bool tokenizer_encode_spans(const struct tokenizer *t, const struct text_span *spans, size_t n,
                            struct tokenize_flags flags, struct token_ids *ids, struct err *err)
{
    struct encode_run run = { .t = t, .ids = ids, .err = err };
    struct trust trust = { 0 };
    struct buf text = { 0 };
    size_t n_before = ids->n;

    bool ok = join(spans, n, &text, &trust, err);
    for (uint32_t i = 0; ok && flags.add_special && i < t->n_before; i++)
        ok = token_ids_push(ids, t->before[i]) || err_memory(err, "token ids");
    ok = ok && encode_joined(&run, n == 1 && text.n == 0 ? spans[0].text : buf_as_str(&text), &trust);
    for (uint32_t i = 0; ok && flags.add_special && i < t->n_after; i++)
        ok = token_ids_push(ids, t->after[i]) || err_memory(err, "token ids");
    if (!ok)
        ids->n = n_before;
    encode_run_free(&run);
    mem_free(trust.at);
    buf_free(&text);
    return ok;
}

bool tokenizer_encode(const struct tokenizer *t, struct str text, struct tokenize_flags flags,
                      struct token_ids *ids, struct err *err)
{
    const struct text_span span = { text, flags.parse_special };
    return tokenizer_encode_spans(t, &span, 1, flags, ids, err);
}
