// vocab.h - the engine's tokenizer with str, buf and token_ids.
#pragma once
#include "base/err.h"
#include "ingot.h"
#include "text/tokenizer/tokenizer.h"

// Appends tokens. flags: ingot_text_flags. On failure nothing is appended.
bool vocab_encode(const struct ingot_engine *engine, struct str text, unsigned flags, struct token_ids *ids,
                  struct err *err);
// Appends the text of a whole sequence. False without memory.
bool vocab_decode(const struct ingot_engine *engine, const struct token_ids *ids, unsigned flags,
                  struct buf *text);
// The bytes of a token within a text; the spelling of a control token; empty if there is no such token.
struct str vocab_bytes(const struct ingot_engine *engine, uint32_t token);
