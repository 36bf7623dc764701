// chat.h - a conversation as the model wants to read it: messages through the model's own template.
//
// What an OpenAI-style request holds and what templates expect differ: content may be a string or a list of parts, the arguments of a tool
// call may be JSON text or an object, a call's id may have to be short, and a message with calls may or may not have an empty content
// (left as null, some templates print "None"). A template that refuses a system message, or two of a user's in a row, gets them within the
// next of the user's. What this template takes is found out once, by rendering small
// probes. Not here: tokens (the tokeniser reads the spans), images (the caller puts them where the template left their marks).
#pragma once
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

// messages: an array of {role, content, ...}; it is not changed. A message of the error names the field ("messages[2].role").
// Free with template_output_free.
bool chat_render(const struct chat *chat, json_t *messages, const struct chat_options *options, struct template_output *out,
                 struct err *err);

bool chat_takes_parts(const struct chat *chat);                // content as a list of parts, so images can be placed
bool chat_takes_tools(const struct chat *chat);                // it tells the model of them
bool chat_takes_calls(const struct chat *chat);                // it shows the model what it called
bool chat_uses(const struct chat *chat, const char *variable); // for example "enable_thinking"
