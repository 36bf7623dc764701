// prompt_pictures.h - pictures in a prompt: their parts in messages, the text of their image places, and
// their tiles.
//
// The template writes "<image>" where a message has a picture. Only marks that the template wrote count. Each
// is replaced by the text that the model's processor writes for a picture of that size. The same characters
// in a message stay text.
#pragma once
#include "engine/prompt.h"
#include "image/image.h"

enum { PROMPT_MOST_PICTURES = 16 };

// Whether the vocabulary has an image token. tokenizer: NULL is allowed.
bool prompt_pictures_known(const struct tokenizer *tokenizer);
// Whether there are pictures to place and this model takes pictures. The error is one sentence.
bool prompt_sees(const struct engine *e, const struct ingot_request_options *o, struct err *err);
// Where no message has a part {"type": "image"}, adds such parts for the request's pictures before the text
// of the last message.
bool prompt_pictures_to_messages(const struct ingot_request_options *o, json_t *messages, struct err *err);
// Replaces the marks in the prompt's trusted spans. In a text without marks the pictures come first.
bool prompt_pictures_place(const struct engine *e, const struct ingot_request_options *o, struct prompt *p,
                           struct err *err);
// Replaces the model's image token by INGOT_IMAGE_PLACE.
void prompt_pictures_mark(const struct engine *e, struct token_ids *ids);
// How the model reads picture i of the request.
struct image_processor prompt_picture_processor(const struct engine *e, const struct ingot_request_options *o,
                                                size_t i);
