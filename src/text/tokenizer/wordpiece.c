// wordpiece.c - WordPiece (Wu et al., 2016), as BERT has it: a word is cut from its beginning into the
// longest tokens that fit.
//
// Tokens that begin a word and tokens that go on in one are apart: tokenizer.json writes "##" before the
// latter, GGUF files U+2581 before the former. A word with a part that no token spells is unknown as a whole,
// and so is one of more than max_word characters.
#include "text/tokenizer/tokenizer_parts.h"
#include "base/mem.h"

// The longest token at the beginning of text; its length is *n. LOOKUP_NONE: none.
static uint32_t longest(const struct trie *trie, struct str text, size_t *n)
{
    uint32_t node = 0, id = LOOKUP_NONE;

    for (size_t i = 0; trie->nodes && i < text.n; i++) {
        node = trie_child(trie, node, (unsigned char)text.at[i]);
        if (node == 0)
            break;
        if (trie->nodes[node].value != LOOKUP_NONE) {
            id = trie->nodes[node].value;
            *n = i + 1;
        }
    }
    return id;
}

static bool is_long(const struct tokenizer *t, struct str word)
{
    size_t n = 0;

    for (size_t i = 0; i < word.n; i++)
        n += ((unsigned char)word.at[i] & 0xc0) != 0x80;
    return n > t->max_word;
}

bool wordpiece_encode_word(struct encode_run *run, struct str word)
{
    const struct tokenizer *t = run->t;
    size_t before = run->ids->n, n = 0;

    if (is_long(t, word))
        return encode_unknown(run, word);
    for (size_t at = 0; at < word.n; at += n) {
        uint32_t id = longest(at == 0 ? &t->pieces : &t->inner_pieces, str_from_to(word, at, word.n), &n);
        if (id == LOOKUP_NONE) {
            run->ids->n = before;
            return encode_unknown(run, word);
        }
        if (!token_ids_push(run->ids, id))
            return err_memory(run->err, "token ids");
    }
    return true;
}

struct str wordpiece_text(const struct tokenizer *t, struct str raw, bool *inner)
{
    struct str mark = t->space_mark ? STR("\xe2\x96\x81") : STR("##");
    bool marked = raw.n > mark.n && str_starts(raw, mark);

    *inner = marked != t->space_mark;
    return marked ? str_from_to(raw, mark.n, raw.n) : raw;
}

static bool build(struct tokenizer *t, bool wants_inner, struct trie_entry *entries, struct err *err)
{
    size_t n = 0;

    for (uint32_t id = 0; id < t->n_tokens; id++) {
        bool ordinary = t->kinds[id] == TOKEN_NORMAL || t->kinds[id] == TOKEN_UNUSED, inner;
        struct str text = wordpiece_text(t, t->raw[id], &inner);
        if (!ordinary || text.n == 0 || inner != wants_inner)
            continue;
        if (!tokenizer_check_text(text, id, "token", MATCHED_BYTES_MAX, err))
            return false;
        entries[n++] = (struct trie_entry){ text, id };
    }
    return trie_build(wants_inner ? &t->inner_pieces : &t->pieces, t->arena, entries, n) ||
           err_memory(err, "the vocabulary");
}

bool wordpiece_init(struct tokenizer *t, struct err *err)
{
    struct trie_entry *entries = mem_alloc_array((size_t)t->n_tokens + 1, sizeof *entries);
    bool ok = entries ? build(t, false, entries, err) && build(t, true, entries, err)
                      : err_memory(err, "the vocabulary");

    mem_free(entries);
    return ok;
}
