// vocab.h - the engine's tokenizer over the server's slices and buffers.
#pragma once
#include "base/err.h"
#include "ingot.h"
#include "text/tokenizer/tokenizer.h"

// Appends; flags are ingot_text_flags. On failure nothing is appended.
bool vocab_encode(const struct ingot_engine *engine, struct str text, unsigned flags, struct token_ids *ids,
                  struct err *err);
// Appends the text of a whole sequence. False without memory.
bool vocab_decode(const struct ingot_engine *engine, const struct token_ids *ids, unsigned flags,
                  struct buf *text);
// The bytes that a token adds within a text, of a control token its spelling; empty for what is no token.
struct str vocab_bytes(const struct ingot_engine *engine, uint32_t token);
