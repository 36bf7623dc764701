// logits_file.h - the logits of a model over a text, kept for comparisons: `ingot eval --save-logits` and
// `--kl`.
//
// For each scored position of the text the log-probability of every token, 2 bytes each (logits_code.h).
// Little-endian:
//   "ingotlg1"                              another layout gets another number
//   u32 n_vocab, n_chunk, n_chunks, 0       as in struct eval_text
//   SHA-256 of the vocabulary
//   u32 tokens [n_chunks, n_chunk]
//   SHA-256 of all that is above
//   for each chunk: u16 codes [eval_text_scored, n_vocab], and their SHA-256
// The size is known from the head, so that a file that was cut is found at once; a damaged chunk when it is
// read.
#pragma once
#include "base/file.h"
#include "model_tools/eval_text.h"

struct logits_file {
    struct file_map map;
    struct eval_text text; // its tokens lie in the map
    const unsigned char *chunks;
    uint64_t chunk_bytes; // with the sum
    struct sha256_stream *sum;
    uint32_t checked; // chunks whose sum was found right: those before this one
};

bool logits_file_open(struct logits_file *f, const char *path, struct err *err);
// Any bytes as such a file. They outlive f. False: f needs no closing.
bool logits_file_parse(struct logits_file *f, struct str bytes, struct err *err);
// The codes of a chunk, [eval_text_scored, n_vocab]. NULL: damaged.
const uint16_t *logits_file_chunk(struct logits_file *f, uint32_t chunk, struct err *err);
void logits_file_close(struct logits_file *f); // a zeroed one is allowed

struct logits_file_writer {
    struct file_writer out;
    struct sha256_stream *sum;
};
// Writes the head. Then the codes of all chunks must follow, in pieces of any size, each chunk ended by
// logits_file_end_chunk.
bool logits_file_create(struct logits_file_writer *w, const char *path, const struct eval_text *text,
                        struct err *err);
void logits_file_add(struct logits_file_writer *w, const uint16_t *codes, size_t n);
void logits_file_end_chunk(struct logits_file_writer *w);
bool logits_file_commit(struct logits_file_writer *w, struct err *err);
void logits_file_abort(struct logits_file_writer *w); // also after commit: does nothing
