// api_request_ollama.c - fields that only Ollama's requests have: the map of options, formats, and requests
// that only load the model.
#include <string.h>
#include "server/api/api_request.h"

bool api_request_take_options(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    const char *option;
    json_t *wanted;

    if (!json_is_object(value))
        return err_set(err, ERR_INPUT, "%s: want an object", name);
    json_object_foreach(value, option, wanted)
    {
        if (!api_request_read_field(request, DIALECT_OPTIONS, option, wanted, err))
            return err_prefix(err, "options");
    }
    return true;
}

// "json", a schema, or "" for none.
bool api_request_take_ollama_format(struct api_request *request, const char *name, json_t *value,
                                    struct err *err)
{
    const char *word = json_string_value(value);

    request->json_object = word && !strcmp(word, "json");
    request->schema = json_is_object(value) ? value : NULL;
    return request->json_object || request->schema || (word && !*word) ||
           err_set(err, ERR_INPUT, "%s: want \"json\" or a JSON Schema", name);
}

bool api_request_take_think(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    if (json_is_boolean(value))
        request->thinking = json_is_true(value) ? THINKING_ON : THINKING_OFF;
    else
        request->effort = json_string_value(value);
    return json_is_boolean(value) || request->effort ||
           err_set(err, ERR_INPUT, "%s: want true, false, or how hard in a word", name);
}

bool api_request_take_images(struct api_request *request, const char *name, json_t *value, struct err *err)
{
    request->images = value;
    return json_is_array(value) || err_set(err, ERR_INPUT, "%s: want a list of pictures in base64", name);
}

// A prompt for /api/generate becomes the only message, the user's. Without a prompt or messages the request
// only loads the model.
bool api_request_finish_ollama(struct api_request *request, struct err *err)
{
    bool chat = request->dialect == DIALECT_OLLAMA_CHAT;
    json_t *content = chat ? request->messages : request->prompt;

    request->loads_only =
        !content || (chat ? json_is_array(content) && json_array_size(content) == 0
                          : json_is_string(content) && json_string_length(content) == 0 && !request->suffix);
    request->raw |= request->suffix != NULL; // infill uses no template
    if (request->raw && json_array_size(request->images) > 0)
        return err_set(err, ERR_INPUT,
                       "images: they need a template, and go neither with raw nor with suffix");
    if (chat || request->raw || request->loads_only)
        return true;
    request->messages =
        json_pack("[{s:s, s:O, s:O*}]", "role", "user", "content", content, "images", request->images);
    return (request->messages && json_object_set_new(request->body, "messages", request->messages) == 0) ||
           err_memory(err, "a message");
}
