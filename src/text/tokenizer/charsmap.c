// charsmap.c - SentencePiece's compiled normalisation table: a double-array prefix tree from byte strings to
// their replacement.
//
// Layout: the tree's size in bytes (u32), the tree as u32 units, then the replacements, each ended by NUL. At
// each position the longest entry is replaced; a character without an entry is copied. This is
// SentencePiece's rule; the Rust tokenizers use grapheme clusters and differ on rare sequences of marks.
// Every index is checked, because the table comes from a file.
#include "text/tokenizer/tokenizer_parts.h"

enum { PREFIX_MAX = 64 };

static uint32_t unit_at(struct str table, uint32_t index, bool *ok)
{
    uint32_t n_units =
        (uint32_t)((unsigned char)table.at[0] | (unsigned char)table.at[1] << 8 |
                   (unsigned char)table.at[2] << 16 | (uint32_t)(unsigned char)table.at[3] << 24) /
        4;
    if (index >= n_units) {
        *ok = false;
        return 0;
    }
    const unsigned char *at = (const unsigned char *)table.at + 4 + (size_t)index * 4;
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint32_t unit_offset(uint32_t unit)
{
    return (unit >> 10) << ((unit & 0x200) >> 6);
}

static size_t tree_bytes(struct str table)
{
    const unsigned char *at = (const unsigned char *)table.at;
    return at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
}

bool charsmap_check(struct str table, struct err *err)
{
    if (table.n < 8)
        return err_set(err, ERR_INPUT,
                       "the normalisation table (charsmap) has %zu bytes: expected at least 8", table.n);
    size_t tree = tree_bytes(table);
    if (tree % 4 != 0 || tree == 0 || tree >= table.n - 4)
        return err_set(err, ERR_INPUT,
                       "the normalisation table (charsmap) of %zu bytes says that its tree has %zu", table.n,
                       tree);
    if (table.at[table.n - 1] != 0)
        return err_set(err, ERR_INPUT, "the normalisation table (charsmap) does not end in NUL");
    return true;
}

// The length of the longest entry that is a prefix of the text (0: none), and the offset of its replacement.
static size_t longest_entry(struct str table, struct str text, size_t *replacement)
{
    bool ok = true;
    uint32_t node = unit_offset(unit_at(table, 0, &ok));
    size_t longest = 0;

    for (size_t i = 0; i < text.n && i < PREFIX_MAX; i++) {
        unsigned char c = (unsigned char)text.at[i];
        node ^= c;
        uint32_t unit = unit_at(table, node, &ok);
        if (!ok || (unit & 0x800000ff) != c)
            break;
        node ^= unit_offset(unit);
        if (!(unit >> 8 & 1))
            continue;
        size_t at = 4 + tree_bytes(table) + (unit_at(table, node, &ok) & 0x7fffffff);
        if (!ok || at >= table.n)
            break;
        longest = i + 1;
        *replacement = at;
    }
    return longest;
}

bool charsmap_apply(struct buf *out, struct str table, struct str text)
{
    while (text.n && !out->failed) {
        size_t replacement = 0, n = longest_entry(table, text, &replacement);
        uint32_t cp;
        if (n) {
            buf_text(out, table.at + replacement);
        } else {
            n = utf8_read(text.at, text.n, &cp);
            buf_append(out, text.at, n);
        }
        text = str_from_to(text, n, text.n);
    }
    return !out->failed;
}
