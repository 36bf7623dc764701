// chat_messages.c - see chat_messages.h.
//
// Templates take nearly the messages of chat completions. Anthropic's blocks are split: the result of a tool
// becomes a message of its own, and thinking becomes reasoning_content. The input of the Responses API is a
// list of items; consecutive calls become one message.
#include "server/api/chat_messages.h"
#include <string.h>
#include "base/buf_json.h"
#include "server/api/constrain.h"

static bool reject(struct err *err, const char *list, size_t i, const char *what)
{
    return err_set(err, ERR_INPUT, "%s[%zu]: %s", list, i, what);
}

static json_t *call_json(json_t *id, json_t *name, json_t *arguments)
{
    return json_pack("{s:O*, s:s, s:{s:O, s:o}}", "id", id, "type", "function", "function", "name", name,
                     "arguments", arguments);
}

// ---- chat completions

static const char *const roles[] = { "system", "developer", "user", "assistant", "tool" };

static bool role_is_known(const char *role)
{
    for (size_t r = 0; role && r < sizeof roles / sizeof *roles; r++)
        if (!strcmp(role, roles[r]))
            return true;
    return false;
}

static json_t *picture_place(void)
{
    return json_pack("{s:s}", "type", "image");
}

// A part in the form that templates take, as a new reference. The bytes of a picture stay in the request.
static json_t *part_for_template(struct api_request *request, json_t *part, struct err *err)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    json_t *text = json_object_get(part, "text"), *refusal = json_object_get(part, "refusal");

    if (pictures_is_part(part))
        return pictures_take_part(request, part, err) ? picture_place() : NULL;
    if (type && json_is_string(text) && !strcmp(type, "text"))
        return json_incref(part);
    if (type && json_is_string(text) && (!strcmp(type, "input_text") || !strcmp(type, "output_text")))
        return json_pack("{s:s, s:O}", "type", "text", "text", text);
    if (type && json_is_string(refusal) && !strcmp(type, "refusal"))
        return json_pack("{s:s, s:O}", "type", "text", "text", refusal);
    err_set(err, ERR_UNSUPPORTED, "a part of type \"%.40s\" is not supported, only text and pictures",
            type ? type : "?");
    return NULL;
}

struct message_place { // of a message in its request
    const char *list, *role;
    size_t index;
};

// The parts of a content that is a list, as a new reference. Only a user's message may have pictures. NULL:
// see err.
static json_t *parts_for_template(struct api_request *request, struct message_place at, json_t *content,
                                  struct err *err)
{
    json_t *part, *parts = json_array();
    size_t i;

    json_array_foreach(content, i, part)
    {
        bool misplaced = pictures_is_part(part) && strcmp(at.role, "user") != 0;
        json_t *made = misplaced ? NULL : part_for_template(request, part, err);
        if (misplaced)
            err_set(err, ERR_UNSUPPORTED,
                    "a picture in a message of the role %.20s; only a user's may have some", at.role);
        if (!made || json_array_append_new(parts, made) != 0) {
            err_prefix(err, "%s[%zu].content[%zu]", at.list, at.index, i);
            json_decref(parts);
            return NULL;
        }
    }
    return parts;
}

static bool has_pictures(json_t *content)
{
    json_t *part;
    size_t i;

    json_array_foreach(content, i, part)
    {
        if (pictures_is_part(part))
            return true;
    }
    return false;
}

// Ollama's pictures come before the text.
static bool take_images(struct api_request *request, struct message_place at, json_t *message,
                        struct err *err)
{
    json_t *images = json_object_get(message, "images"), *image, *parts,
           *content = json_object_get(message, "content");
    size_t i;

    if (json_array_size(images) == 0)
        return true;
    if (!json_is_string(content) || strcmp(at.role, "user") != 0)
        return err_set(err, ERR_INPUT, "%s[%zu].images: they need a user's message whose content is a string",
                       at.list, at.index);
    parts = json_array();
    json_array_foreach(images, i, image)
    {
        if (!pictures_take_base64(request, image, err)) {
            json_decref(parts);
            return err_prefix(err, "%s[%zu].images[%zu]", at.list, at.index, i);
        }
        json_array_append_new(parts, picture_place());
    }
    json_array_append_new(parts, json_pack("{s:s, s:O}", "type", "text", "text", content));
    json_object_del(message, "images");
    return json_object_set_new(message, "content", parts) == 0 || err_memory(err, "a message");
}

// A message without content is an error, except the assistant's, which may hold a refusal or tool calls, or
// be empty.
static bool check_content(json_t *message, const char *role, size_t i, struct err *err)
{
    json_t *content = json_object_get(message, "content"), *refusal = json_object_get(message, "refusal");

    if (content && !json_is_null(content))
        return true;
    if (strcmp(role, "assistant") != 0)
        return err_set(err, ERR_INPUT, "messages[%zu].content is %s; want a string or a list of parts", i,
                       content ? "null" : "missing");
    if (json_is_string(refusal))
        json_object_set(message, "content", refusal);
    else if (!json_object_get(message, "tool_calls"))
        json_object_set_new(message, "content", json_string(""));
    return true;
}

static void rename_key(json_t *object, const char *from, const char *to)
{
    json_t *value = json_object_get(object, from);

    if (!value)
        return;
    json_object_set(object, to, value);
    json_object_del(object, from);
}

static bool take_content(struct api_request *request, struct message_place at, json_t *message,
                         struct err *err)
{
    json_t *content = json_object_get(message, "content");

    if (json_is_array(content)) {
        json_t *parts = parts_for_template(request, at, content, err);
        if (!parts || json_object_set_new(message, "content", parts) != 0)
            return false;
    }
    return take_images(request, at, message, err);
}

// The text of a list of blocks, or of a string; NULL for anything else.
static json_t *text_of(json_t *content)
{
    struct buf text = { 0 };
    json_t *block, *joined;
    size_t i;

    if (json_is_string(content))
        return json_incref(content);
    if (!json_is_array(content))
        return NULL;
    json_array_foreach(content, i, block)
    {
        json_t *given = json_object_get(block, "text"),
               *piece = given ? given : json_object_get(block, "refusal");
        if (!json_is_string(piece)) {
            buf_free(&text);
            return NULL;
        }
        buf_append(&text, json_string_value(piece), json_string_length(piece));
    }
    joined = json_stringn(buf_as_str(&text).at, text.n);
    buf_free(&text);
    return joined;
}

// Mistral's parts of type thinking, whose text is a string or parts itself, become reasoning_content.
static void take_thoughts(json_t *message)
{
    json_t *content = json_object_get(message, "content"), *kept = json_array(), *part;
    struct buf thoughts = { 0 };
    size_t i;

    json_array_foreach(content, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        json_t *text = type && !strcmp(type, "thinking") ? text_of(json_object_get(part, "thinking")) : NULL;
        if (text)
            buf_text(&thoughts, json_string_value(text));
        else
            json_array_append(kept, part);
        json_decref(text);
    }
    if (thoughts.n > 0 && !json_object_get(message, "reasoning_content")) {
        json_object_set_new(message, "reasoning_content", json_stringn(thoughts.at, thoughts.n));
        json_object_set(message, "content", kept);
    }
    json_decref(kept);
    buf_free(&thoughts);
}

// Clients write the arguments of a tool that has none in many ways.
static void fill_arguments(json_t *function)
{
    json_t *arguments = json_object_get(function, "arguments");
    const char *text = json_string_value(arguments);

    if (!arguments || json_is_null(arguments) || (text && !text[strspn(text, " \t\r\n")]))
        json_object_set_new(function, "arguments", json_object());
}

static bool check_calls(json_t *message, size_t i, struct err *err)
{
    json_t *calls = json_object_get(message, "tool_calls"), *call;
    size_t j;

    if (calls && !json_is_null(calls) && !json_is_array(calls))
        return err_set(err, ERR_INPUT, "messages[%zu].tool_calls: want a list", i);
    json_array_foreach(calls, j, call)
    {
        json_t *function = json_object_get(call, "function");
        if (!json_is_string(json_object_get(function, "name")))
            return err_set(err, ERR_INPUT, "messages[%zu].tool_calls[%zu].function.name: want a string", i,
                           j);
        fill_arguments(function);
    }
    return true;
}

static bool from_chat(struct api_request *request, json_t *to, struct err *err)
{
    json_t *message;
    size_t i;

    json_array_foreach(request->messages, i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role_is_known(role))
            return err_set(err, ERR_INPUT,
                           "messages[%zu].role is %s%.40s; want system, developer, user, assistant or tool",
                           i, role ? "" : "missing", role ? role : "");
        json_t *copy = json_copy(message);
        take_thoughts(copy);
        if (!take_content(request, (struct message_place){ "messages", role, i }, copy, err)) {
            json_decref(copy);
            return false;
        }
        rename_key(copy, "tool_name", "name"); // Ollama's names
        rename_key(copy, "thinking", "reasoning_content");
        rename_key(copy, "reasoning", "reasoning_content");
        if (!check_content(copy, role, i, err) || !check_calls(copy, i, err)) {
            json_decref(copy);
            return false;
        }
        if (!strcmp(role, "developer")) // templates know no other name
            json_object_set_new(copy, "role", json_string("system"));
        json_array_append_new(to, copy);
    }
    return true;
}

// ---- Anthropic's messages

struct spread { // the blocks of one message, sorted by kind
    struct api_request *request;
    json_t *to, *parts, *calls, *reasoning;
    size_t index;
    bool takes_pictures; // it is the user's
};

static bool spread_block(struct spread *s, json_t *block, struct err *err)
{
    const char *type = json_string_value(json_object_get(block, "type"));
    json_t *content = json_object_get(block, "content");

    if (type && !strcmp(type, "text") && json_is_string(json_object_get(block, "text"))) {
        json_array_append_new(
            s->parts, json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(block, "text")));
        return true;
    }
    if (type && !strcmp(type, "image") && s->takes_pictures) {
        if (!pictures_take_part(s->request, block, err))
            return err_prefix(err, "messages[%zu].content", s->index);
        json_array_append_new(s->parts, picture_place());
        return true;
    }
    if (type && !strcmp(type, "tool_use") && json_is_string(json_object_get(block, "name")) &&
        json_is_object(json_object_get(block, "input"))) {
        json_array_append_new(s->calls,
                              call_json(json_object_get(block, "id"), json_object_get(block, "name"),
                                        json_incref(json_object_get(block, "input"))));
        return true;
    }
    if (type && !strcmp(type, "tool_result")) {
        json_t *text = content ? text_of(content) : json_string("");
        if (!text)
            return reject(err, "messages", s->index,
                          "a tool_result holds more than text, which is not supported");
        json_array_append_new(s->to, json_pack("{s:s, s:O*, s:o}", "role", "tool", "tool_call_id",
                                               json_object_get(block, "tool_use_id"), "content", text));
        return true;
    }
    if (type && !strcmp(type, "thinking")) {
        s->reasoning = json_object_get(block, "thinking");
        return true;
    }
    if (type && !strcmp(type, "redacted_thinking"))
        return true;
    return err_set(err, ERR_UNSUPPORTED, "messages[%zu].content: a block of type \"%.40s\" is not supported",
                   s->index, type ? type : "?");
}

static bool spread_message(struct spread *s, json_t *message, struct err *err)
{
    const char *role = json_string_value(json_object_get(message, "role"));
    json_t *content = json_object_get(message, "content"), *block;
    size_t i;
    bool ok = true;

    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 && strcmp(role, "system") != 0))
        return reject(err, "messages", s->index, "want the role user or assistant");
    if (!json_is_array(content)) {
        json_array_append(s->to, message);
        return true;
    }
    s->takes_pictures = strcmp(role, "user") == 0;
    s->parts = json_array();
    s->calls = json_array();
    s->reasoning = NULL;
    json_array_foreach(content, i, block)
    {
        ok = ok && spread_block(s, block, err);
    }
    if (ok && (json_array_size(s->parts) || json_array_size(s->calls))) {
        json_t *made = json_pack("{s:s, s:O*}", "role", role, "reasoning_content", s->reasoning);
        json_object_set_new(made, "content",
                            has_pictures(s->parts) ? json_incref(s->parts) : text_of(s->parts));
        if (json_array_size(s->calls))
            json_object_set(made, "tool_calls", s->calls);
        json_array_append_new(s->to, made);
    }
    json_decref(s->parts);
    json_decref(s->calls);
    return ok;
}

static bool from_anthropic(struct api_request *request, json_t *to, struct err *err)
{
    struct spread s = { .request = request, .to = to };
    json_t *message;

    json_array_foreach(request->messages, s.index, message)
    {
        if (!spread_message(&s, message, err))
            return false;
    }
    return true;
}

// ---- responses

static json_t *response_text(json_t *content)
{
    return json_is_string(content) || json_is_array(content) ? text_of(content) : NULL;
}

// Adds a call to the assistant's message before it, if there is one.
static void add_call(json_t *to, json_t *item)
{
    json_t *last = json_array_get(to, json_array_size(to) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    json_t *arguments = json_object_get(item, "arguments");

    if (!role || strcmp(role, "assistant") != 0) {
        last = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
        json_array_append_new(to, last);
    }
    if (!json_object_get(last, "tool_calls"))
        json_object_set_new(last, "tool_calls", json_array());
    json_t *call = call_json(json_object_get(item, "call_id"), json_object_get(item, "name"),
                             arguments ? json_incref(arguments) : json_object());
    fill_arguments(json_object_get(call, "function"));
    json_array_append_new(json_object_get(last, "tool_calls"), call);
}

static bool from_item(struct api_request *request, json_t *item, json_t *to, size_t i, struct err *err)
{
    const char *type = json_string_value(json_object_get(item, "type")),
               *role = json_string_value(json_object_get(item, "role"));
    json_t *text, *content = json_object_get(item, "content");

    if (type && !strcmp(type, "function_call") && json_is_string(json_object_get(item, "name"))) {
        add_call(to, item);
        return true;
    }
    if (type && !strcmp(type, "function_call_output")) {
        if (!(text = response_text(json_object_get(item, "output"))))
            return reject(err, "input", i, "the output of a call is no text");
        json_array_append_new(to, json_pack("{s:s, s:O*, s:o}", "role", "tool", "tool_call_id",
                                            json_object_get(item, "call_id"), "content", text));
        return true;
    }
    if (type && !strcmp(type, "reasoning"))
        return true; // templates leave out earlier reasoning
    if ((type && strcmp(type, "message") != 0) || !role_is_known(role))
        return err_set(err, ERR_UNSUPPORTED,
                       "input[%zu]: an item of type \"%.40s\" and role \"%.40s\" is not supported", i,
                       type ? type : "?", role ? role : "?");
    bool sees = has_pictures(content);
    text = sees ? parts_for_template(request, (struct message_place){ "input", role, i }, content, err)
                : response_text(content);
    if (!text && sees)
        return false;
    if (!text)
        return reject(err, "input", i, "the content is no text; nothing else is supported");
    json_array_append_new(
        to, json_pack("{s:s, s:o}", "role", !strcmp(role, "developer") ? "system" : role, "content", text));
    return true;
}

static bool from_response(struct api_request *request, json_t *to, struct err *err)
{
    json_t *item, *input = request->input;
    size_t i;

    if (json_is_string(input)) {
        json_array_append_new(to, json_pack("{s:s, s:O}", "role", "user", "content", input));
        return true;
    }
    json_array_foreach(input, i, item)
    {
        if (!from_item(request, item, to, i, err))
            return false;
    }
    return json_array_size(input) > 0 ||
           err_set(err, ERR_INPUT, "input: want a string, or a list with at least one item");
}

// ---- tools

// Gives results the name of their tool, which many templates need.
static void name_results(json_t *messages)
{
    json_t *message, *call, *names = json_object();
    size_t i, j;

    json_array_foreach(messages, i, message)
    {
        const char *id = json_string_value(json_object_get(message, "tool_call_id"));
        json_array_foreach(json_object_get(message, "tool_calls"), j, call)
        {
            const char *call_id = json_string_value(json_object_get(call, "id"));
            if (call_id)
                json_object_set(names, call_id, json_object_get(json_object_get(call, "function"), "name"));
        }
        if (id && !json_object_get(message, "name") && json_object_get(names, id))
            json_object_set(message, "name", json_object_get(names, id));
    }
    json_decref(names);
}

static json_t *taken(struct buf *text)
{
    json_t *value = json_stringn(buf_as_str(text).at, text->n);
    buf_free(text);
    return value;
}

// For templates without tools: describes the tools, and how to call them.
static json_t *tools_as_text(json_t *tools, enum tool_call_style style, json_t *system)
{
    struct buf text = { 0 };
    json_t *tool;
    size_t i;

    if (json_is_string(system))
        buf_printf(&text, "%s\n\n", json_string_value(system));
    buf_text(&text, "You can call these functions, each described by a JSON object:\n<tools>\n");
    json_array_foreach(tools, i, tool)
    {
        buf_json(&text, tool, 0);
        buf_text(&text, "\n");
    }
    buf_text(&text, "</tools>\nTo call one, answer with its name and arguments in this form:\n");
    constrain_example(style, &text);
    return taken(&text);
}

static json_t *calls_as_text(json_t *message, enum tool_call_style style)
{
    json_t *content = text_of(json_object_get(message, "content"));
    struct buf text = { 0 };

    if (json_string_length(content) > 0)
        buf_printf(&text, "%s\n", json_string_value(content));
    json_decref(content);
    constrain_calls_text(style, json_object_get(message, "tool_calls"), &text);
    return taken(&text);
}

// A call as GLM-4-0414's template takes it: a message with the tool's name as metadata.
static json_t *call_as_turn(json_t *call)
{
    json_t *function = json_object_get(call, "function"), *arguments = json_object_get(function, "arguments");
    struct buf text = { 0 };

    if (json_is_string(arguments))
        buf_text(&text, json_string_value(arguments));
    else
        buf_json(&text, arguments, JSON_ENCODE_ANY);
    return json_pack("{s:s, s:O, s:o}", "role", "assistant", "metadata", json_object_get(function, "name"),
                     "content", taken(&text));
}

// For that template: each call is a message of its own, behind what was said, and a result an observation.
static void calls_as_turns(json_t *messages)
{
    json_t *turns = json_array(), *message, *call;
    size_t i, j;

    json_array_foreach(messages, i, message)
    {
        json_t *calls = json_object_get(message, "tool_calls"),
               *content = text_of(json_object_get(message, "content"));
        bool is_result = !strcmp(json_string_value(json_object_get(message, "role")), "tool");
        if (is_result) {
            json_object_set_new(message, "role", json_string("observation"));
            json_object_set(message, "content", content);
        }
        if (json_array_size(calls) == 0 || json_string_length(content) > 0)
            json_array_append(turns, message);
        json_array_foreach(calls, j, call)
        {
            json_array_append_new(turns, call_as_turn(call));
        }
        json_object_del(message, "tool_calls");
        json_decref(content);
    }
    json_array_clear(messages);
    json_array_extend(messages, turns);
    json_decref(turns);
}

// Turns calls and results into text, for templates that do not render them.
static void describe_calls(json_t *messages, enum tool_call_style style)
{
    json_t *message;
    size_t i;

    if (style == CALLS_TURNS) {
        calls_as_turns(messages);
        return;
    }
    json_array_foreach(messages, i, message)
    {
        bool is_result = !strcmp(json_string_value(json_object_get(message, "role")), "tool");
        json_t *result = is_result ? text_of(json_object_get(message, "content")) : NULL;
        if (json_array_size(json_object_get(message, "tool_calls")) > 0)
            json_object_set_new(message, "content", calls_as_text(message, style));
        json_object_del(message, "tool_calls");
        if (result) {
            json_object_set_new(
                message, "content",
                json_sprintf("<tool_response>\n%s\n</tool_response>", json_string_value(result)));
            json_object_set_new(message, "role", json_string("user"));
        }
        json_decref(result);
    }
}

static void describe_tools(json_t *messages, json_t *tools, enum tool_call_style style)
{
    json_t *first = json_array_get(messages, 0);
    const char *role = json_string_value(json_object_get(first, "role"));

    if (role && !strcmp(role, "system"))
        json_object_set_new(first, "content", tools_as_text(tools, style, json_object_get(first, "content")));
    else
        json_array_insert_new(
            messages, 0,
            json_pack("{s:s, s:o}", "role", "system", "content", tools_as_text(tools, style, NULL)));
}

// ---- the last message

static bool has_text(json_t *text)
{
    return json_string_length(text) > 0;
}

// If the last message is the assistant's and has text, the answer continues it.
static bool find_prefill(struct api_request *request, struct messages *m, struct err *err)
{
    size_t n = json_array_size(m->list);
    json_t *last = json_array_get(m->list, n - 1), *reasoning = json_object_get(last, "reasoning_content");
    const char *role = json_string_value(json_object_get(last, "role"));
    bool wanted = request->continues == CONTINUE_ALWAYS ||
                  (request->continues == CONTINUE_IF_LAST && !request->no_generation_prompt);
    json_t *text = wanted && role && !strcmp(role, "assistant") && !json_object_get(last, "tool_calls")
                       ? text_of(json_object_get(last, "content"))
                       : NULL;

    m->continues = has_text(text) || (text && has_text(reasoning));
    if (m->continues)
        json_object_set(last, "content", text);
    json_decref(text);
    if (request->continues == CONTINUE_ALWAYS && !m->continues)
        return err_set(err, ERR_INPUT,
                       "continue_final_message: the last message is no text of the assistant's");
    return !m->continues || !(request->schema || request->json_object) ||
           err_set(err, ERR_INPUT,
                   "messages: the last one is the assistant's, and an answer that goes on from it has no "
                   "format of its own; leave "
                   "one of them out, or set continue_final_message to false");
}

void messages_release(struct messages *m)
{
    json_decref(m->list);
    *m = (struct messages){ 0 };
}

static bool read_conversation(struct api_request *request, json_t *to, struct err *err)
{
    bool response = request->dialect == DIALECT_RESPONSES;
    json_t *from = request->messages, *system = request->system ? text_of(request->system) : NULL;

    if (request->system && !system)
        return err_set(err, ERR_INPUT, "%s: want text", response ? "instructions" : "system");
    if (system)
        json_array_append_new(to, json_pack("{s:s, s:o}", "role", "system", "content", system));
    if (response)
        return from_response(request, to, err);
    if (!json_is_array(from) || json_array_size(from) == 0)
        return err_set(err, ERR_INPUT, "messages: want a list with at least one message");
    return request->dialect & (DIALECT_MESSAGES | DIALECT_COUNT) ? from_anthropic(request, to, err)
                                                                 : from_chat(request, to, err);
}

bool messages_for_template(struct api_request *request, const struct ingot_template_info *template,
                           enum tool_call_style style, struct messages *to, struct err *err)
{
    *to = (struct messages){ .list = json_array() };
    if (!read_conversation(request, to->list, err) || !find_prefill(request, to, err)) {
        messages_release(to);
        return false;
    }
    name_results(to->list);
    if (!template->takes_calls)
        describe_calls(to->list, style);
    if (!template->takes_tools && request->tools && request->choice != CHOICE_NONE)
        describe_tools(to->list, request->tools, style);
    return true;
}
