// prompt_pictures.h - pictures in a prompt: their parts in messages, the text that stands for them, and their
// tiles.
//
// The template writes "<image>" where a message has a picture. Only its own marks count, and each becomes
// what the model's processor writes for a picture of that size; the same characters in somebody's message
// stay text.
#pragma once
#include "engine/prompt.h"

// The vocabulary has the mark of a picture. tokenizer: NULL is allowed.
bool prompt_pictures_known(const struct tokenizer *tokenizer);
// Are there pictures to place, and can this model see them? An error is one sentence.
bool prompt_sees(const struct engine *e, const struct ingot_request_options *o, struct err *err);
// Gives messages whose contents have no parts {"type": "image"} those of the request, before the text of the
// last message.
bool prompt_pictures_to_messages(const struct ingot_request_options *o, json_t *messages, struct err *err);
// Replaces the marks in the prompt's trusted spans; a text without marks gets the pictures in front.
bool prompt_pictures_place(const struct engine *e, const struct ingot_request_options *o, struct prompt *p,
                           struct err *err);
// The model's token of an image place becomes INGOT_IMAGE_PLACE.
void prompt_pictures_mark(const struct engine *e, struct token_ids *ids);
// All tiles of the request's pictures, [*n_tiles, side, side, 3]; free with mem_free.
bool prompt_pictures_split(const struct engine *e, const struct ingot_request_options *o, uint8_t **rgb,
                           uint32_t *n_tiles, struct err *err);
