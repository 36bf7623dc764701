// tokenizer_random.h - a tokeniser for a model with random weights, as the GGUF keys tokenizer.*, so that it can be served and chatted with.
#pragma once
#include "format/gguf_write.h"

// n_vocab: the rows of the embedding, at least TOKENIZER_SYNTH_LEAST; the vocabulary has as many tokens. The template is ChatML's.
enum { TOKENIZER_SYNTH_LEAST = 259, TOKENIZER_SYNTH_MOST = 1 << 20 };
bool tokenizer_random_write(uint32_t n_vocab, struct gguf_writer *w, struct err *err);
