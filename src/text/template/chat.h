// chat.h - renders a conversation with the model's chat template.
//
// Templates differ in what they accept: content as a string or as a list of parts, the arguments of a tool
// call as JSON text or as an object, reasoning under another name, short call ids only, empty or null content
// beside calls (some templates print "None"). A system message, or a second user message in a row, that the
// template refuses is merged into the next user message. The template's form is detected once, by rendering
// small probes. Not here: tokens (the tokeniser reads the spans), images (the caller places them where the
// template left marks).
#pragma once
#include "text/reasoning_marks.h"
#include "text/template/template.h"

struct chat; // read-only after chat_create: any number of threads

struct chat_source {
    struct str template_text;        // empty: ChatML is used, and a log line says so
    struct str bos_token, eos_token; // their text; empty when the model has none
};

struct chat_options {
    json_t *tools;     // array of tool descriptions, or NULL
    json_t *documents; // array, or NULL
    json_t *extra;     // further variables from the request (chat_template_kwargs), an object or NULL
    bool add_generation_prompt;
};

// Texts in source are copied.
bool chat_create(struct chat **chat, const struct chat_source *source, struct err *err);
void chat_destroy(struct chat *chat); // NULL is allowed

// messages: an array of {role, content, ...}; it is not changed. A message of the error names the field
// ("messages[2].role"). Free with template_output_free.
bool chat_render(const struct chat *chat, json_t *messages, const struct chat_options *options,
                 struct template_output *out, struct err *err);

bool chat_takes_parts(const struct chat *chat); // content as a list of parts, so images can be placed
bool chat_takes_tools(const struct chat *chat); // the template shows the tools to the model
bool chat_takes_calls(const struct chat *chat); // the template shows earlier calls to the model
const struct reasoning_marks *chat_reasoning_marks(const struct chat *chat); // that the template shows
bool chat_uses(const struct chat *chat, const char *variable);               // for example "enable_thinking"
