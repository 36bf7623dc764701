// chat_messages.h - every dialect's conversation as chat templates know it: a list of {role, content,
// tool_calls, ...}.
#pragma once
#include "server/api/api_request.h"
#include "text/parsers/output_parser.h"

struct messages {
    json_t *list;   // for the template
    bool continues; // the answer goes on from the last one, a text of the assistant's
};

// False with what is wrong, and nothing to release. Where the template knows no tools, they and what was
// called are told in words.
bool messages_for_template(struct api_request *request, const struct ingot_template_info *template,
                           enum tool_call_style style, struct messages *to, struct err *err);
void messages_release(struct messages *m);
