// tokenizer_json.h - between the two files that read tokenizer.json.
#pragma once
#include <jansson.h>
#include "text/tokenizer/tokenizer_parts.h"

struct str json_text(const json_t *object, const char *key); // at = NULL: absent or not a text
bool json_flag(const json_t *object, const char *key, bool otherwise);

// Reads normalizer, pre_tokenizer, decoder.
bool json_steps_read(struct tokenizer *t, const json_t *root, struct err *err);
// Reads post_processor; after the vocabulary.
bool json_around_read(struct tokenizer *t, const json_t *post_processor, struct err *err);
