// ask_ollama.c - what Ollama's requests have that others lack: the map of options, formats, and prompts that only load the model.
#include <string.h>
#include "server/ask.h"

bool ask_take_options(struct ask *ask, const char *name, json_t *value, struct err *err)
{
    const char *option;
    json_t *wanted;

    if (!json_is_object(value))
        return err_set(err, ERR_INPUT, "%s: want an object", name);
    json_object_foreach(value, option, wanted)
    {
        if (!ask_read_field(ask, DIALECT_OPTIONS, option, wanted, err))
            return err_prefix(err, "options");
    }
    return true;
}

// "json", a schema, or "" for none.
bool ask_take_ollama_format(struct ask *ask, const char *name, json_t *value, struct err *err)
{
    const char *word = json_string_value(value);

    ask->json_object = word && !strcmp(word, "json");
    ask->schema = json_is_object(value) ? value : NULL;
    return ask->json_object || ask->schema || (word && !*word) ||
           err_set(err, ERR_INPUT, "%s: want \"json\" or a JSON Schema", name);
}

bool ask_take_think(struct ask *ask, const char *name, json_t *value, struct err *err)
{
    if (json_is_boolean(value))
        ask->thinking = json_is_true(value) ? THINKING_ON : THINKING_OFF;
    else
        ask->effort = json_string_value(value);
    return json_is_boolean(value) || ask->effort || err_set(err, ERR_INPUT, "%s: want true, false, or how hard in a word", name);
}

bool ask_take_images(struct ask *ask, const char *name, json_t *value, struct err *err)
{
    (void)ask;
    return json_array_size(value) == 0 || err_set(err, ERR_UNSUPPORTED, "%s: this server reads text only, no pictures", name);
}

// A prompt for /api/generate is a user's only message; without one, as without messages, the model is to be loaded.
void ask_settle_ollama(struct ask *ask)
{
    bool chat = ask->dialect == DIALECT_OLLAMA_CHAT;
    json_t *said = chat ? ask->messages : ask->prompt;

    ask->loads_only = !said || (chat ? json_is_array(said) && json_array_size(said) == 0
                                     : json_is_string(said) && json_string_length(said) == 0 && !ask->suffix);
    ask->raw |= ask->suffix != NULL; // what is filled in is no answer
    if (chat || ask->raw || ask->loads_only)
        return;
    ask->messages = json_pack("[{s:s, s:O}]", "role", "user", "content", said);
    json_object_set_new(ask->body, "messages", ask->messages);
}
