// tokenizer.h - text to token ids and back, for the four kinds of vocabulary that language models use:
// byte-level BPE, SentencePiece BPE, unigram and WordPiece, from GGUF metadata or from a Hugging Face
// tokenizer.json, with the ids the model was trained on.
//
// Text from a user never becomes a control token: control tokens are not part of the ordinary vocabulary, and
// are recognised only in text that the caller marks as trusted. Invalid UTF-8 is read as U+FFFD, one per
// ill-formed part.
// Cost: O(n log n) in the bytes of the text. Memory while encoding: at most 64 bytes per byte of text
// (normalisation forms KC and KD and the rewriting steps of a tokenizer.json may enlarge the text first),
// freed before the call returns; the ids are the caller's. Not here: chat templates (template.h), grammars.
#pragma once
#include "base/str.h"
#include "text/span.h"

struct model_file;
struct tokenizer; // read-only after loading: any number of threads

enum token_kind {
    TOKEN_NORMAL,
    TOKEN_UNKNOWN,      // replaces text that the vocabulary cannot spell
    TOKEN_CONTROL,      // never made from untrusted text; has no text of its own
    TOKEN_USER_DEFINED, // found in any text before merging, for example <think>
    TOKEN_UNUSED,
    TOKEN_BYTE, // <0xNN>
};

// From the GGUF keys tokenizer.*, or from tokenizer.json and the files beside it. The file may be closed
// afterwards.
bool tokenizer_load(struct tokenizer **t, const struct model_file *file, struct err *err);
// From the text of a tokenizer.json alone; bos, eos and pad are unknown, except those that the post-processor
// names.
bool tokenizer_load_json(struct tokenizer **t, struct str json, struct err *err);
void tokenizer_free(struct tokenizer *t); // NULL is allowed

// A growable array of ids. Zero-initialise; token_ids_free at the end.
struct token_ids {
    uint32_t *ids;
    size_t n, capacity;
};
bool token_ids_reserve(struct token_ids *ids, size_t n_more); // n_more pushes will succeed
bool token_ids_push(struct token_ids *ids, uint32_t id);
void token_ids_free(struct token_ids *ids);

struct tokenize_flags {
    bool add_special;   // BOS and EOS, or the tokens that the model puts around a text
    bool parse_special; // control tokens written in the text become ids
};

// Appends the ids of text. On failure nothing is appended.
bool tokenizer_encode(const struct tokenizer *t, struct str text, struct tokenize_flags flags,
                      struct token_ids *ids, struct err *err);

// Encodes the spans as one text. Control tokens are recognised only where all their bytes are trusted; merges
// cross the borders of spans. flags.parse_special is ignored.
bool tokenizer_encode_spans(const struct tokenizer *t, const struct text_span *spans, size_t n,
                            struct tokenize_flags flags, struct token_ids *ids, struct err *err);

// The bytes that a token adds in the middle of a text; not always whole characters (see utf8_stream.h). Empty
// for control and unknown tokens unless keep_special, and for ids out of range. Lives as long as the
// tokenizer.
struct str tokenizer_token_bytes(const struct tokenizer *t, uint32_t id, bool keep_special);

// Appends the text of a whole sequence as valid UTF-8, without the space that the tokenizer put before it.
bool tokenizer_decode(const struct tokenizer *t, const struct token_ids *ids, bool keep_special,
                      struct buf *out);

uint32_t tokenizer_n_tokens(const struct tokenizer *t);
enum token_kind tokenizer_kind(const struct tokenizer *t, uint32_t id); // TOKEN_UNUSED when out of range
struct str tokenizer_raw(const struct tokenizer *t, uint32_t id);       // as the vocabulary spells it
int64_t tokenizer_find(const struct tokenizer *t, struct str raw);      // id of that spelling, or -1

int64_t tokenizer_bos(const struct tokenizer *t); // -1: none
int64_t tokenizer_eos(const struct tokenizer *t);
// Whether the token ends an answer: EOS, end of turn and end of message as the file says, and control tokens
// with the usual names.
bool tokenizer_is_end(const struct tokenizer *t, uint32_t id);
// Fill-in-the-middle tokens: prefix, suffix, start of the answer; the project's name, a file's name.
enum fim_token { FIM_PREFIX, FIM_SUFFIX, FIM_MIDDLE, FIM_REPO, FIM_FILE, N_FIM };
int64_t tokenizer_fim(const struct tokenizer *t, enum fim_token which); // -1: none
struct str tokenizer_chat_template(const struct tokenizer *t);          // empty: none
