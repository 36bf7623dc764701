// tokenizer_random.h - a made-up tokeniser, written as the GGUF keys tokenizer.*, for serving a model with
// random weights.
#pragma once
#include "format/gguf_write.h"

// Marks of pictures, and contents of parts: of tiles in up to 4 x 4 rows and columns, as SmolVLM has them, or
// of all tiles together, as InternVL has them.
enum tokenizer_random_pictures { TOKENIZER_NO_PICTURES, TOKENIZER_ROWS_OF_TILES, TOKENIZER_TILES_TOGETHER };

// n_vocab: the rows of the embedding, at least TOKENIZER_RANDOM_LEAST, with pictures 19 more; the vocabulary
// has as many tokens. The template is ChatML's.
enum { TOKENIZER_RANDOM_LEAST = 259, TOKENIZER_SYNTH_MOST = 1 << 20 };
bool tokenizer_random_write(uint32_t n_vocab, enum tokenizer_random_pictures pictures, struct gguf_writer *w,
                            struct err *err);
