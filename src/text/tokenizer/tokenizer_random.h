// tokenizer_random.h - a made-up tokeniser, written as the GGUF keys tokenizer.*, for serving a model with
// random weights.
#pragma once
#include "format/gguf_write.h"

// n_vocab: the rows of the embedding, at least TOKENIZER_RANDOM_LEAST; the vocabulary has as many tokens. The
// template is ChatML's. pictures: marks of pictures cut into up to 4 x 4 tiles, and contents of parts.
enum { TOKENIZER_RANDOM_LEAST = 259, TOKENIZER_SYNTH_MOST = 1 << 20 };
bool tokenizer_random_write(uint32_t n_vocab, bool pictures, struct gguf_writer *w, struct err *err);
