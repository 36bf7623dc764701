// prompt.h - a request's prompt: its text as the model reads it, and its tokens.
#pragma once
#include "engine/engine.h"
#include "text/template/chat.h"

struct prompt { // zero-initialise; prompt_free at the end
    struct template_output rendered;
    json_t *begun;           // the beginning of the answer: the last message, with continue_last. NULL: none
    struct buf plain;        // of a prompt that was given as text
    struct text_span *spans; // [n_spans], the whole text; NULL: the prompt was given as tokens
    size_t n_spans;
    struct tokenize_flags flags;
    struct buf pictures; // the texts of the image places
    bool has_pictures;
    bool is_embedded; // a text, for an embedding
    struct token_ids ids;
    enum ingot_reasoning reasoning;
    const struct reasoning_marks *marks; // of messages
};

// Built from the one source that the options set: messages through the model's template, a text, or tokens.
// Only tokens set the ids.
bool prompt_read(const struct engine *e, const struct ingot_request_options *o, struct prompt *p,
                 struct err *err);
// Encodes the prompt's text to ids.
bool prompt_encode(const struct engine *e, struct prompt *p, struct err *err);
void prompt_free(struct prompt *p);

// Both steps at once, without keeping the text.
bool prompt_tokens(const struct engine *e, const struct ingot_request_options *o, struct token_ids *ids,
                   struct err *err);
