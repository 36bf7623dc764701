// api_request_tools.c - the fields that shape an answer: tools, formats, logit biases. The tools of all
// dialects become those of chat completions.
#include <string.h>
#include "base/mem.h"
#include "server/api/api_request.h"

enum { MAX_TOOL_NAME = 64, MAX_BIASES = 1024 };

static bool name_is_plain(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
    return n > 0 && n <= MAX_TOOL_NAME && name[n] == 0;
}

static const char tool_keys[] = " type name description parameters input_schema strict cache_control ";

// Warns of each key that is not in the list, unless its value requests nothing.
static bool only_keys(struct api_request *request, json_t *object, const char *known, const char *where,
                      struct err *err)
{
    const char *name;
    json_t *value;

    json_object_foreach(object, name, value)
    {
        char word[64];
        snprintf(word, sizeof word, " %.60s ", name);
        if (!strstr(known, word) && !json_is_null(value) && !json_is_false(value) &&
            !api_request_warn(request, err, "%s.%.60s is not honoured", where, name))
            return false;
    }
    return true;
}

// The object that holds name, description and the schema of the arguments; in some dialects that is the tool
// itself.
static bool take_tool(struct api_request *request, json_t *tool, size_t i, struct err *err)
{
    bool anthropic = request->dialect & (DIALECT_MESSAGES | DIALECT_COUNT),
         nested = request->dialect & (DIALECT_CHAT | DIALECT_TEMPLATE | DIALECT_OLLAMA_CHAT);
    const char *type = json_string_value(json_object_get(tool, "type"));
    json_t *inner = nested ? json_object_get(tool, "function") : tool;
    json_t *schema = json_object_get(inner, anthropic ? "input_schema" : "parameters");
    const char *name = json_string_value(json_object_get(inner, "name"));

    if (type && strcmp(type, anthropic ? "custom" : "function") != 0)
        return err_set(err, ERR_UNSUPPORTED, "tools[%zu].type is \"%.40s\"; only functions are supported", i,
                       type);
    if (!name || !name_is_plain(name))
        return err_set(err, ERR_INPUT,
                       "tools[%zu]: the name is missing, or more than letters, digits, _ - . (at most 64)",
                       i);
    if (schema && !json_is_object(schema) && !json_is_null(schema))
        return err_set(err, ERR_INPUT, "tools[%zu]: the schema of the arguments is no object", i);
    if (!only_keys(request, tool, nested ? " type function cache_control " : tool_keys, "tools", err) ||
        (nested && !only_keys(request, inner, tool_keys, "tools", err)))
        return false;
    request->strict_tools |= json_is_true(json_object_get(inner, "strict"));
    json_t *parameters = json_is_object(schema) ? json_incref(schema)
                                                : json_pack("{s:s, s:{}}", "type", "object", "properties");
    json_t *description = json_object_get(inner, "description");
    json_t *function =
        json_pack("{s:s, s:o*, s:o}", "name", name, "description",
                  json_is_string(description) ? json_incref(description) : NULL, "parameters", parameters);
    return json_array_append_new(request->tools,
                                 json_pack("{s:s, s:o}", "type", "function", "function", function)) == 0 ||
           err_memory(err, "tools");
}

bool api_request_take_tools(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    json_t *tool;
    size_t i;

    if (!json_is_array(value))
        return err_set(err, ERR_INPUT, "%s: want a list", name);
    if (json_array_size(value) > API_REQUEST_MAX_TOOLS)
        return err_set(err, ERR_INPUT, "%zu tools; at most %d", json_array_size(value),
                       API_REQUEST_MAX_TOOLS);
    if (json_array_size(value) == 0)
        return true;
    request->tools = json_array();
    json_array_foreach(value, i, tool)
    {
        if (!take_tool(request, tool, i, err))
            return false;
    }
    return true;
}

// {"type": "allowed_tools", "allowed_tools": {"mode", "tools"}}; a response has mode and tools in the object
// itself.
static bool take_allowed(struct api_request *request, json_t *value, struct err *err)
{
    json_t *inner = json_object_get(value, "allowed_tools") ? json_object_get(value, "allowed_tools") : value;
    const char *mode = json_string_value(json_object_get(inner, "mode"));

    request->allowed = json_object_get(inner, "tools");
    if (!mode || (strcmp(mode, "auto") != 0 && strcmp(mode, "required") != 0))
        return err_set(err, ERR_INPUT, "tool_choice.allowed_tools.mode: want auto or required");
    if (json_array_size(request->allowed) == 0)
        return err_set(err, ERR_INPUT, "tool_choice.allowed_tools.tools: want a list with at least one tool");
    request->choice = !strcmp(mode, "required") ? CHOICE_REQUIRED : CHOICE_AUTO;
    return true;
}

bool api_request_take_choice(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    const char *type = json_string_value(json_is_object(value) ? json_object_get(value, "type") : value);
    json_t *function = json_object_get(value, "function");

    if (json_is_true(json_object_get(value, "disable_parallel_tool_use")))
        request->one_call = true;
    if (type && !strcmp(type, "none"))
        request->choice = CHOICE_NONE;
    else if (type && !strcmp(type, "auto"))
        request->choice = CHOICE_AUTO;
    else if (type && (!strcmp(type, "required") || !strcmp(type, "any")))
        request->choice = CHOICE_REQUIRED;
    else if (type && !strcmp(type, "allowed_tools"))
        return take_allowed(request, value, err);
    else if (type && json_is_object(value) && (!strcmp(type, "function") || !strcmp(type, "tool"))) {
        request->choice = CHOICE_NAMED;
        request->tool = json_string_value(json_object_get(function ? function : value, "name"));
    } else
        return err_set(err, ERR_INPUT, "%s: want none, auto, required, or a function's name in an object",
                       name);
    return request->choice != CHOICE_NAMED || request->tool ||
           err_set(err, ERR_INPUT, "tool_choice: the function's name is missing");
}

static json_t *find_tool(const struct api_request *request, const char *name)
{
    json_t *tool;
    size_t i;

    json_array_foreach(request->tools, i, tool)
    {
        if (!strcmp(name, json_string_value(json_object_get(json_object_get(tool, "function"), "name"))))
            return tool;
    }
    return NULL;
}

// Keeps the allowed tools alone: a model that does not see the others does not call them.
static bool keep_allowed(struct api_request *request, struct err *err)
{
    json_t *kept = json_array(), *named;
    size_t i;
    bool ok = true;

    json_array_foreach(request->allowed, i, named)
    {
        json_t *function = json_object_get(named, "function");
        const char *name = json_string_value(json_object_get(function ? function : named, "name"));
        json_t *tool = name ? find_tool(request, name) : NULL;
        ok = ok && (tool || err_set(err, ERR_INPUT, "tool_choice.tools[%zu]: no tool is called '%.64s'", i,
                                    name ? name : "?"));
        if (ok)
            json_array_append(kept, tool);
    }
    json_decref(request->tools);
    request->tools = kept;
    return ok;
}

bool api_request_check_tools(struct api_request *request, struct err *err)
{
    if (request->allowed && !keep_allowed(request, err))
        return false;
    if (request->choice == CHOICE_NAMED && !find_tool(request, request->tool))
        return err_set(err, ERR_INPUT, "tool_choice: no tool is called '%.64s'", request->tool);
    if (request->choice == CHOICE_REQUIRED && !request->tools)
        return err_set(err, ERR_INPUT, "tool_choice asks for a call, and there are no tools");
    if ((request->grammar != NULL) + (request->schema || request->json_object) +
            (request->choice >= CHOICE_REQUIRED) >
        1)
        return err_set(
            err, ERR_INPUT,
            "a grammar, a format of the answer and a tool that has to be called exclude each other");
    return !request->strict_tools || request->choice != CHOICE_AUTO ||
           api_request_warn(request, err,
                            "strict tools are honoured where a call is forced: tool_choice is auto");
}

bool api_request_take_format(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    bool nested = !(request->dialect & (DIALECT_CHAT | DIALECT_TEXT)); // text.format, output_config.format
    json_t *format = nested ? json_object_get(value, "format") : value;
    const char *type = json_string_value(json_object_get(format, "type"));

    if (nested && json_is_object(value) && !only_keys(request, value, " format ", name, err))
        return false;
    if (nested && json_is_object(value) && (!format || json_is_null(format)))
        return true;
    if (!type)
        return err_set(err, ERR_INPUT, "%s: want an object with a string \"type\"", name);
    if (!strcmp(type, "text"))
        return true;
    request->json_object = !strcmp(type, "json_object");
    if (request->json_object)
        return true;
    if (strcmp(type, "json_schema") != 0)
        return err_set(err, ERR_INPUT, "%s.type is \"%.40s\"; want text, json_object or json_schema", name,
                       type);
    json_t *inner = json_object_get(format, "json_schema");
    request->schema = json_object_get(inner ? inner : format, "schema");
    return json_is_object(request->schema) ||
           err_set(err, ERR_INPUT, "%s.json_schema.schema: want an object", name);
}

static bool add_bias(struct api_request *request, uint64_t token, json_t *bias)
{
    double x = json_is_false(bias) ? -1000 : json_number_value(bias); // llama.cpp: false means never

    if (token > UINT32_MAX - 1 || !(json_is_number(bias) || json_is_false(bias)) ||
        !(x >= -1000 && x <= 1000))
        return false;
    request->bias[request->n_bias++] = (struct ingot_bias){ (uint32_t)token, (float)x };
    return true;
}

// {"TOKEN": BIAS, ...}, or as llama.cpp has it [[TOKEN, BIAS], ...].
bool api_request_take_bias(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    size_t n = json_is_array(value) ? json_array_size(value) : json_object_size(value), i;
    const char *key;
    json_t *bias;
    uint64_t token;

    if (!json_is_object(value) && !json_is_array(value))
        return err_set(err, ERR_INPUT, "%s: want an object of tokens and numbers", name);
    if (n > MAX_BIASES)
        return err_set(err, ERR_INPUT, "logit_bias names %zu tokens; at most %d", n, MAX_BIASES);
    if (n == 0)
        return true;
    request->bias = mem_alloc_array(n, sizeof *request->bias);
    if (!request->bias)
        return err_memory(err, "logit_bias");
    json_object_foreach(value, key, bias)
    {
        if (!str_to_u64(str_from(key), &token) || !add_bias(request, token, bias))
            return err_set(err, ERR_INPUT,
                           "logit_bias: '%.40s': want a token's number and a bias from -1000 to 1000", key);
    }
    json_array_foreach(value, i, bias)
    {
        json_t *id = json_array_get(bias, 0);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            !add_bias(request, (uint64_t)json_integer_value(id), json_array_get(bias, 1)))
            return err_set(err, ERR_INPUT,
                           "logit_bias[%zu]: want a token's number and a bias from -1000 to 1000", i);
    }
    return true;
}

bool api_request_take_reasoning(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    if (!json_is_object(value))
        return err_set(err, ERR_INPUT, "%s: want an object", name);
    request->reasoning = value;
    return only_keys(request, value, " effort ", name, err);
}

bool api_request_take_thinking(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    const char *type = json_string_value(json_object_get(value, "type"));

    if (!type)
        return err_set(err, ERR_INPUT, "%s: want an object with a string \"type\"", name);
    request->thinking = !strcmp(type, "disabled") ? THINKING_OFF : THINKING_ON;
    return only_keys(request, value, " type display ", name, err);
}
