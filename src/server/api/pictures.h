// pictures.h - the pictures of a request: decoded from base64 in its body, never fetched.
#pragma once
#include <jansson.h>
#include "base/err.h"
#include "base/lang.h"
#include "ingot.h"

struct api_request;

enum { PICTURES_MOST = 16 }; // of one request

struct pictures {
    struct ingot_picture *at[PICTURES_MOST];
    bool low[PICTURES_MOST]; // its detail is "low"
    u32 n;
    u64 n_pixels;  // of all together
    bool accepted; // the model takes pictures
};

// True for a picture of chat completions ("image_url"), the Responses API ("input_image") or Anthropic
// ("image").
bool pictures_is_part(json_t *part);
// Decodes the picture of such a part.
bool pictures_take_part(struct api_request *request, json_t *part, struct err *err);
// Decodes one of Ollama's "images", which is base64 without a URL.
bool pictures_take_base64(struct api_request *request, json_t *text, struct err *err);
void pictures_release(struct pictures *p);
