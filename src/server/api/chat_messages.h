// chat_messages.h - the conversation of any dialect in the form that chat templates take: a list of {role,
// content, tool_calls, ...}.
#pragma once
#include "server/api/api_request.h"
#include "text/parsers/output_parser.h"

struct messages {
    json_t *list;   // for the template
    bool continues; // the answer continues the last message, the assistant's
};

// False: see err, and nothing to release. If the template has no tools, tools and calls are described in
// text.
bool messages_for_template(struct api_request *request, const struct ingot_template_info *template,
                           enum tool_call_style style, struct messages *to, struct err *err);
void messages_release(struct messages *m);
