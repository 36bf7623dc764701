// tokenizer_write.h - a loaded tokeniser as the GGUF keys tokenizer.*, for converting models.
#pragma once
#include "format/gguf_write.h"
#include "text/tokenizer/tokenizer.h"

// tokenizer_load of the result gives the same ids. The vocabulary is padded with unused tokens to n_vocab,
// the rows of the embedding. An error when GGUF has no name for the pre-tokeniser, or when the model is
// unigram.
bool tokenizer_write(const struct tokenizer *t, uint32_t n_vocab, struct gguf_writer *w, struct err *err);
