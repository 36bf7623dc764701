// tokenizer_parts.h - shared by the files of the tokeniser: the loaded tokeniser, and the state of one
// encoding.
//
// text -> added tokens are cut out -> normalisation steps -> pre-token steps (words) -> the model (ids). The
// loaders (tokenizer_json.c, tokenizer_gguf.c) fill the fields of struct tokenizer marked "loader" and call
// tokenizer_finish. All loaded data lives in the arena, except the patterns.
#pragma once
#include "text/tokenizer/lookup.h"
#include "text/tokenizer/merge_queue.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"
#include "text/utf8.h"

enum {
    NORMAL_STEPS_MAX = 24,
    PRETOKEN_STEPS_MAX = 16,
    AROUND_MAX = 16,
    TOKENS_MAX = 1 << 24,
    MATCHED_BYTES_MAX = 512
};

enum normal_kind {
    NORMAL_FORM,
    NORMAL_LOWER,
    NORMAL_STRIP_ACCENTS,
    NORMAL_PREPEND,
    NORMAL_REPLACE,
    NORMAL_STRIP,
    NORMAL_CHARSMAP,
    NORMAL_CLEAN, // see unicode_clean
    NORMAL_STRIP_NONSPACING
};
struct normal_step {
    enum normal_kind kind;
    enum unicode_form form;
    struct pattern *pattern; // replace
    struct str text;         // the inserted text: prepend, replace; the table of a charsmap
    bool left, right;        // strip
};

enum pretoken_kind { PRETOKEN_SPLIT, PRETOKEN_METASPACE, PRETOKEN_PREFIX_SPACE };
enum split_behavior { SPLIT_ISOLATED, SPLIT_REMOVED, SPLIT_CONTIGUOUS, SPLIT_WITH_PREVIOUS, SPLIT_WITH_NEXT };
enum prepend_scheme { PREPEND_ALWAYS, PREPEND_FIRST, PREPEND_NEVER };
struct pretoken_step {
    enum pretoken_kind kind;
    struct pattern *pattern; // split; may be NULL for a metaspace that does not split
    enum split_behavior behavior;
    bool invert; // exchanges matches and the text between them
    enum prepend_scheme prepend;
    struct str mark; // of a metaspace: what a space becomes
};

struct added_token {
    uint32_t id;
    bool strip_left, strip_right, single_word, normalized;
};

enum text_model { TEXT_BPE, TEXT_UNIGRAM, TEXT_WORDPIECE };

struct tokenizer {
    struct arena *arena;
    // loader: the vocabulary
    enum text_model model;
    uint32_t n_tokens;
    struct str *raw; // [n_tokens]
    uint8_t *kinds;  // [n_tokens] enum token_kind
    double *scores;  // [n_tokens] unigram, SentencePiece BPE; else NULL
    struct added_token *added;
    uint32_t n_added;
    // loader: how a text is read and written
    bool byte_level;    // tokens are spelt in GPT-2's byte alphabet
    bool byte_fallback; // text that the vocabulary cannot spell becomes <0xNN>
    bool space_mark;    // U+2581 in a token is a space
    uint32_t max_word;  // WordPiece: characters of a word at most
    bool strip_space;   // a decoded text loses its first space
    bool fuse_unknown, ignore_merges;
    int64_t unknown, bos, eos, pad; // -1: none
    int64_t fim[N_FIM];             // -1: none; tokenizer_finish looks for those that a loader leaves out
    struct normal_step normal[NORMAL_STEPS_MAX];
    uint32_t n_normal;
    struct pretoken_step pretoken[PRETOKEN_STEPS_MAX];
    uint32_t n_pretoken;
    uint32_t before[AROUND_MAX], after[AROUND_MAX]; // tokens that add_special puts around a text
    uint32_t n_before, n_after;
    struct str chat_template;
    // tokenizer_finish and the models' own set-up
    struct text_map by_raw;   // every token
    struct text_map by_text;  // ordinary tokens by the text that makes them
    struct str *bytes;        // [n_tokens] decoded
    bool *is_end;             // [n_tokens]
    uint32_t byte_ids[256];   // LOOKUP_NONE where missing
    struct pair_map merges;   // BPE
    uint32_t *rank_result;    // BPE: result of each rank; NULL where ranks are shared (SentencePiece)
    struct trie pieces;       // unigram; WordPiece: those that begin a word
    struct trie inner_pieces; // WordPiece: those that go on
    double unknown_score;     // unigram
    struct trie added_raw, added_normal; // values are indexes of added
};

struct encode_run {
    const struct tokenizer *t;
    struct token_ids *ids;
    struct err *err;
    struct pattern_scratch *patterns; // created on first use
    struct buf normal[2], rewritten[PRETOKEN_STEPS_MAX];
    uint32_t *cells; // of bpe.c; unigram.c keeps its paths there
    size_t cells_bytes;
    uint32_t n_cells, n_symbols;
    struct merge_queue queue;
};
void encode_run_free(struct encode_run *run);
// Makes cells at least that large; their contents are lost.
bool encode_run_cells(struct encode_run *run, size_t bytes);
bool encode_run_patterns(struct encode_run *run);

// `result` lives until the next call.
bool normalize_apply(struct encode_run *run, struct str text, struct str *result);
bool charsmap_check(struct str table, struct err *err);
bool charsmap_apply(struct buf *out, struct str table, struct str text);
// Calls encode_word for each word.
bool pretokenize_apply(struct encode_run *run, struct str text, bool at_start);
bool encode_word(struct encode_run *run, struct str word);
bool bpe_encode_word(struct encode_run *run, struct str word);
bool unigram_encode_word(struct encode_run *run, struct str word);
bool wordpiece_encode_word(struct encode_run *run, struct str word);
struct str wordpiece_text(const struct tokenizer *t, struct str raw, bool *inner);
bool encode_unknown(struct encode_run *run, struct str text); // bytes, or the unknown token, or nothing

struct tokenizer *tokenizer_create(struct err *err);
void tokenizer_find_fim(struct tokenizer *t);
void tokenizer_leave_message_ends(struct tokenizer *t);
bool tokenizer_finish(struct tokenizer *t, struct err *err); // maps, decoded bytes, added tokens, end tokens
bool tokenizer_check_text(struct str text, uint64_t index, const char *what, size_t max, struct err *err);
bool bpe_init_merges(struct tokenizer *t, size_t n_merges, struct err *err);
bool bpe_add_merge(struct tokenizer *t, uint32_t rank, struct str left, struct str right, struct err *err);
bool spm_init_merges(struct tokenizer *t, struct err *err);
bool unigram_init(struct tokenizer *t, struct err *err);
bool wordpiece_init(struct tokenizer *t, struct err *err);
bool normalize_add_bert(struct tokenizer *t, bool strips_accents, bool lower, struct err *err);
bool pretokenize_add_bert(struct tokenizer *t, struct err *err);
bool pretokenize_add_split(struct tokenizer *t, struct str regex, enum split_behavior behavior,
                           struct err *err);
bool pretokenize_add_published(struct tokenizer *t, struct str name, bool *add_bos, struct err *err);
bool normalize_add_replace(struct tokenizer *t, struct str pattern, bool regex, struct str text,
                           struct err *err);
uint32_t tokenizer_byte_code(unsigned char byte); // code point of GPT-2's alphabet
int tokenizer_byte_value(struct str text);        // of <0xNN>, or -1
bool tokenizer_load_gguf(struct tokenizer **t, const struct model_file *file, struct err *err);
bool tokenizer_load_files(struct tokenizer **t, const struct model_file *file, struct err *err);
