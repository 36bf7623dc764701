// tokenizer_write.c - see tokenizer_write.h.
//
// A GGUF file names its pre-tokeniser. The name is found by comparing the matches of this tokeniser's
// patterns with those of each published pre-tokeniser, on a text where these differ. SentencePiece
// vocabularies get scores: the lower the rank of the first merge that makes a token, the higher its score.
#include "text/tokenizer/tokenizer_write.h"
#include <stdlib.h>
#include "text/tokenizer/tokenizer_parts.h"

static const char *const published[] = { "gpt-2",        "smollm",         "llama-bpe",   "smaug-bpe",
                                         "qwen2",        "qwen35",         "tekken",      "gpt-4o",
                                         "deepseek-llm", "deepseek-coder", "deepseek-v3", "default" };

static const char probe[] =
    "Hello, World! I'm sure you'LL see that we've DONE it's 'Sx 'd. CamelCase iPhone HTTPServer ABCdef "
    "x1y22z333 4444 55555 "
    "666666 "
    "3.14159 1,000,000 a/b//c\\d https://x.y/z?q=1&r=[2]#3 foo_bar __init__ (a+b)*c==d; /* note */ <tag/> $5 "
    "100% ~!@^`|{}\n"
    "  two  spaces\n\n\nlines \n \t\ttabs\t\r\nend   \n    indented\r\n\r\n   \xe3\x80\x80 wide  "
    "\xc2\xa0no-break\n"
    "na\xc3\xafve Stra\xc3\x9f"
    "e \xc3\x84rger \xc3\xa9t\xc3\xa9 e\xcc\x81t\xcc\x88"
    "e \xc7\x85"
    "a \xce\xb1\xce\xb2\xce\x93 \xd0\x9f\xd1\x80\xd0\xb8\xd0\xb2\xd0\xb5\xd1\x82 "
    "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82\xe3\x81\x93\xe3\x82\x93\xe3\x83"
    "\x8b\xe3\x83\x81\xe3"
    "\x83\xbc \xec\x95\x88\xeb\x85\x95 "
    "\xd8\xb3\xd9\x84\xd8\xa7\xd9\x85\xd9\x8b "
    "\xe0\xa4\xa8\xe0\xa4\xae\xe0\xa4\xb8\xe0\xa5\x8d\xe0\xa4\xa4\xe0\xa5\x87 "
    "\xe0\xb8\xaa\xe0\xb8\xa7\xe0\xb8\xb1\xe0\xb8\xaa \xd9\xa1\xd9\xa2\xd9\xa3\xd9\xa4 "
    "\xc2\xb2\xc2\xbd \xe2\x85\xa3 \xf0\x9f\x98\x80\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9 \xe2\x82\xac"
    "5 \xe2\x88\x91x \xe2\x80\x9cq\xe2\x80\x9d \xe2\x80\x94 \xe2\x80\xa6 tail  ";

static bool same_matches(const struct pattern *a, const struct pattern *b, struct pattern_scratch *scratch)
{
    struct str text = { probe, sizeof probe - 1 };

    for (size_t at = 0; at < text.n;) {
        size_t from_a = at, from_b = at, to_a, to_b;
        if (!pattern_next(a, scratch, text, &from_a, &to_a, NULL) ||
            !pattern_next(b, scratch, text, &from_b, &to_b, NULL) || from_a != from_b || to_a != to_b)
            return false;
        at = to_a;
    }
    return true;
}

static bool same_steps(const struct tokenizer *a, const struct tokenizer *b, struct pattern_scratch *scratch)
{
    if (a->n_pretoken != b->n_pretoken || a->n_normal != b->n_normal)
        return false;
    for (uint32_t i = 0; i < a->n_normal; i++)
        if (a->normal[i].kind != NORMAL_FORM || b->normal[i].kind != NORMAL_FORM ||
            a->normal[i].form != b->normal[i].form)
            return false;
    for (uint32_t i = 0; i < a->n_pretoken; i++) {
        const struct pretoken_step *x = &a->pretoken[i], *y = &b->pretoken[i];
        // Matches and the text between them become words.
        bool plain = x->kind == PRETOKEN_SPLIT && x->behavior == SPLIT_ISOLATED && y->kind == PRETOKEN_SPLIT;
        if (!plain || !same_matches(x->pattern, y->pattern, scratch))
            return false;
    }
    return true;
}

// How well a published pre-tokeniser fits: 0: not; 1: except for ignore_merges; 2: fully. -1: out of memory.
static int fits(const struct tokenizer *t, const char *name, struct pattern_scratch *scratch)
{
    struct tokenizer *other = tokenizer_create(NULL);
    struct err err = { 0 };
    bool add_bos;
    int fit = 0;

    if (!other || !pretokenize_add_published(other, str_from(name), &add_bos, &err))
        fit = !other || err.code == ERR_MEMORY ? -1 : 0;
    else if (same_steps(t, other, scratch))
        fit = 1 + (t->ignore_merges == other->ignore_merges);
    tokenizer_free(other);
    return fit;
}

static bool write_pretokenizer(const struct tokenizer *t, struct gguf_writer *w, struct err *err)
{
    struct pattern_scratch *scratch = pattern_scratch_create();
    const char *best = NULL;
    int best_fit = 0, fit = scratch ? 0 : -1;

    for (size_t i = 0; fit >= 0 && i < sizeof published / sizeof published[0]; i++) {
        fit = fits(t, published[i], scratch);
        if (fit > best_fit)
            best = published[i];
        best_fit = fit > best_fit ? fit : best_fit;
    }
    pattern_scratch_free(scratch);
    if (fit < 0)
        return err_memory(err, "patterns");
    if (!best)
        return err_set(err, ERR_UNSUPPORTED,
                       "the pre-tokeniser of tokenizer.json is none of those that GGUF files can name");
    gguf_write_str(w, "tokenizer.ggml.pre", str_from(best));
    return true;
}

static bool write_tokens(const struct tokenizer *t, uint32_t n_vocab, struct gguf_writer *w,
                         struct arena *arena)
{
    static const int32_t types[] = { [TOKEN_NORMAL] = 1,       [TOKEN_UNKNOWN] = 2, [TOKEN_CONTROL] = 3,
                                     [TOKEN_USER_DEFINED] = 4, [TOKEN_UNUSED] = 5,  [TOKEN_BYTE] = 6 };
    struct str *tokens = arena_alloc_array(arena, n_vocab, sizeof *tokens);
    int32_t *kinds = arena_alloc_array(arena, n_vocab, sizeof *kinds);

    if (!tokens || !kinds)
        return false;
    for (uint32_t id = 0; id < n_vocab; id++) {
        bool real = id < t->n_tokens && t->raw[id].n;
        char *filler = real ? NULL : arena_printf(arena, "[PAD%u]", id);
        if (!real && !filler)
            return false;
        tokens[id] = real ? t->raw[id] : str_from(filler);
        kinds[id] = real ? types[t->kinds[id]] : types[TOKEN_UNUSED];
    }
    gguf_write_strs(w, "tokenizer.ggml.tokens", tokens, n_vocab);
    gguf_write_i32s(w, "tokenizer.ggml.token_type", kinds, n_vocab);
    return true;
}

static int by_rank(const void *a, const void *b)
{
    const struct pair_slot *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

// All merges, lowest rank first. NULL without memory.
static struct pair_slot *sorted_merges(const struct tokenizer *t, struct arena *arena, uint64_t *n)
{
    struct pair_slot *merges;

    *n = 0;
    for (uint64_t i = 0; t->merges.slots && i <= t->merges.mask; i++)
        *n += t->merges.slots[i].result != LOOKUP_NONE;
    merges = arena_alloc_array(arena, *n + 1, sizeof *merges);
    *n = 0;
    for (uint64_t i = 0; merges && t->merges.slots && i <= t->merges.mask; i++)
        if (t->merges.slots[i].result != LOOKUP_NONE)
            merges[(*n)++] = t->merges.slots[i];
    if (merges && *n)
        qsort(merges, *n, sizeof *merges, by_rank);
    return merges;
}

static bool write_merges(const struct tokenizer *t, struct gguf_writer *w, struct arena *arena)
{
    uint64_t n;
    struct pair_slot *merges = sorted_merges(t, arena, &n);
    struct str *lines = arena_alloc_array(arena, n, sizeof *lines);

    if (!merges || !lines)
        return false;
    for (uint64_t i = 0; i < n; i++) {
        struct str left = t->raw[merges[i].left], right = t->raw[merges[i].right];
        char *line = arena_alloc(arena, left.n + right.n + 1);
        if (!line)
            return false;
        memcpy(line, left.at, left.n);
        line[left.n] = ' ';
        memcpy(line + left.n + 1, right.at, right.n);
        lines[i] = (struct str){ line, left.n + right.n + 1 };
    }
    gguf_write_strs(w, "tokenizer.ggml.merges", lines, n);
    return true;
}

static bool write_scores(const struct tokenizer *t, uint32_t n_vocab, struct gguf_writer *w,
                         struct arena *arena)
{
    uint64_t n;
    struct pair_slot *merges = sorted_merges(t, arena, &n);
    float *scores = arena_alloc_array(arena, n_vocab, sizeof *scores);

    if (!merges || !scores)
        return false;
    for (uint32_t id = 0; id < n_vocab; id++)
        // tokens that no merge makes
        scores[id] = id < t->n_tokens && t->kinds[id] == TOKEN_NORMAL ? -1e9f : 0;
    for (uint64_t i = n; i-- > 0;)
        scores[merges[i].result] = -(float)i; // the first merge is written last and stays
    gguf_write_f32s(w, "tokenizer.ggml.scores", scores, n_vocab);
    return true;
}

static bool puts_space_first(const struct tokenizer *t)
{
    for (uint32_t i = 0; i < t->n_normal; i++)
        if (t->normal[i].kind == NORMAL_PREPEND)
            return true;
    for (uint32_t i = 0; i < t->n_pretoken; i++)
        if (t->pretoken[i].kind == PRETOKEN_METASPACE && t->pretoken[i].prepend != PREPEND_NEVER)
            return true;
    return false;
}

static void write_id(struct gguf_writer *w, const char *key, int64_t id)
{
    if (id >= 0)
        gguf_write_u32(w, key, (uint32_t)id);
}

static bool write_special(const struct tokenizer *t, struct gguf_writer *w, struct err *err)
{
    static const char *const end_keys[] = { "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id" };
    int64_t bos = t->n_before == 1 ? (int64_t)t->before[0] : t->bos,
            eos = t->n_after == 1 ? (int64_t)t->after[0] : t->eos;
    uint32_t n_ends = 0;

    if (t->n_before > 1 || t->n_after > 1 || (t->n_after && t->eos >= 0 && eos != t->eos))
        return err_set(err, ERR_UNSUPPORTED,
                       "tokenizer.json puts %u tokens before and %u after a text; GGUF can say one each",
                       t->n_before, t->n_after);
    write_id(w, "tokenizer.ggml.bos_token_id", bos);
    write_id(w, "tokenizer.ggml.eos_token_id", eos);
    write_id(w, "tokenizer.ggml.unknown_token_id", t->unknown);
    write_id(w, "tokenizer.ggml.padding_token_id", t->pad);
    for (uint32_t id = 0; id < t->n_tokens && n_ends < 2; id++)
        if (t->is_end[id] && (int64_t)id != eos)
            gguf_write_u32(w, end_keys[n_ends++], id);
    gguf_write_bool(w, "tokenizer.ggml.add_bos_token", t->n_before == 1);
    gguf_write_bool(w, "tokenizer.ggml.add_eos_token", t->n_after == 1);
    if (t->chat_template.n)
        gguf_write_str(w, "tokenizer.chat_template", t->chat_template);
    return true;
}

static bool write_vocabulary(const struct tokenizer *t, uint32_t n_vocab, struct gguf_writer *w,
                             struct err *err)
{
    struct arena *arena = arena_create((size_t)1 << 30);
    bool ok = arena && write_tokens(t, n_vocab, w, arena) &&
              (t->byte_level ? write_merges(t, w, arena) : write_scores(t, n_vocab, w, arena));

    arena_destroy(arena);
    return ok ? true : err_memory(err, "the vocabulary");
}

bool tokenizer_write(const struct tokenizer *t, uint32_t n_vocab, struct gguf_writer *w, struct err *err)
{
    if (t->model != TEXT_BPE || (!t->byte_level && !t->space_mark))
        return err_set(err, ERR_UNSUPPORTED,
                       "only byte-level and SentencePiece BPE vocabularies are converted");
    if (t->n_tokens > n_vocab)
        return err_set(err, ERR_INPUT, "tokenizer.json has %u tokens; the embedding has rows for %u",
                       t->n_tokens, n_vocab);
    gguf_write_str(w, "tokenizer.ggml.model", t->byte_level ? STR("gpt2") : STR("llama"));
    if (t->byte_level && !write_pretokenizer(t, w, err))
        return false;
    if (!t->byte_level)
        gguf_write_bool(w, "tokenizer.ggml.add_space_prefix", puts_space_first(t));
    return write_vocabulary(t, n_vocab, w, err) && write_special(t, w, err);
}
