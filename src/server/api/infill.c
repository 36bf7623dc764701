// infill.c - see infill.h.
//
// The order is that of llama.cpp's server: project and files, if the model has tokens for them, then the
// prefix, the suffix, the middle mark, and the given beginning of the answer. Each part is tokenized alone:
// no token crosses a mark.
#include "server/api/infill.h"
#include "server/generation/vocab.h"

static bool add_text(const struct ingot_engine *engine, struct str text, struct token_ids *ids,
                     struct err *err)
{
    return vocab_encode(engine, text, 0, ids, err);
}

// Adds a mark, unless the model has none, and the text after it.
static bool add_part(const struct ingot_engine *engine, enum ingot_special mark, struct str text,
                     struct token_ids *ids, struct err *err)
{
    int64_t id = ingot_token_special(engine, mark);

    if (id >= 0 && !token_ids_push(ids, (uint32_t)id))
        return err_memory(err, "the prompt");
    return add_text(engine, text, ids, err);
}

static struct str text_of(const json_t *text)
{
    return json_is_string(text) ? (struct str){ json_string_value(text), json_string_length(text) } : STR("");
}

// Adds a {"filename", "text"}; without a mark for files the texts follow one another.
static bool add_file(const struct ingot_engine *engine, json_t *file, struct token_ids *ids, struct err *err)
{
    struct str name = text_of(json_object_get(file, "filename")),
               text = text_of(json_object_get(file, "text"));

    return add_part(engine, INGOT_SPECIAL_FIM_FILE, name, ids, err) &&
           add_text(engine, STR("\n"), ids, err) && add_text(engine, text, ids, err) &&
           add_text(engine, STR("\n"), ids, err);
}

static bool add_files(const struct ingot_engine *engine, const struct api_request *request,
                      struct token_ids *ids, struct err *err)
{
    json_t *file;
    size_t i;

    if (json_array_size(request->files) == 0)
        return true;
    if (ingot_token_special(engine, INGOT_SPECIAL_FIM_REPO) >= 0 &&
        !add_part(engine, INGOT_SPECIAL_FIM_REPO, STR("project\n"), ids, err))
        return false;
    json_array_foreach(request->files, i, file)
    {
        if (!json_is_string(json_object_get(file, "text")))
            return err_set(err, ERR_INPUT, "input_extra[%zu].text: want a string", i);
        if (!add_file(engine, file, ids, err))
            return false;
    }
    return ingot_token_special(engine, INGOT_SPECIAL_FIM_FILE) < 0 ||
           add_part(engine, INGOT_SPECIAL_FIM_FILE, STR("current\n"), ids, err);
}

// Adds BOS, if the model reads one before every text.
static bool add_start(const struct ingot_engine *engine, struct token_ids *ids, struct err *err)
{
    if (!vocab_encode(engine, STR(""), INGOT_ADD_SPECIAL, ids, err))
        return false;
    ids->n = ids->n && ids->ids[0] == ingot_token_special(engine, INGOT_SPECIAL_BOS);
    return true;
}

bool infill_prompt(const struct ingot_engine *engine, const struct api_request *request,
                   struct token_ids *ids, struct err *err)
{
    bool own = request->dialect == DIALECT_INFILL; // in other dialects the prompt is the prefix
    struct str begun = own ? text_of(request->prompt) : STR(""),
               suffix = str_from(request->suffix ? request->suffix : ""),
               prefix = own ? str_from(request->prefix ? request->prefix : "") : text_of(request->prompt);

    for (int mark = INGOT_SPECIAL_FIM_PREFIX; mark <= INGOT_SPECIAL_FIM_MIDDLE; mark++)
        if (ingot_token_special(engine, (enum ingot_special)mark) < 0)
            return err_set(
                err, ERR_UNSUPPORTED,
                "this model fills no gaps: its vocabulary has no tokens for what stands around one");
    if (request->files && !json_is_array(request->files))
        return err_set(err, ERR_INPUT, "input_extra: want a list of objects with filename and text");
    if (request->prompt && !json_is_string(request->prompt))
        return err_set(err, ERR_INPUT, "prompt: want a string beside a suffix");
    return add_start(engine, ids, err) && add_files(engine, request, ids, err) &&
           add_part(engine, INGOT_SPECIAL_FIM_PREFIX, prefix, ids, err) &&
           add_part(engine, INGOT_SPECIAL_FIM_SUFFIX, suffix, ids, err) &&
           add_part(engine, INGOT_SPECIAL_FIM_MIDDLE, begun, ids, err);
}
