// infill.c - see infill.h.
//
// The order is that of llama.cpp's server: project and files, where the model has tokens for them, then the text before the gap, the text
// behind it, the mark of the gap, and what of the answer is given. Each part is tokenised alone: words do not cross the marks.
#include "server/infill.h"
#include "server/vocab.h"

static bool add_text(const struct ingot_engine *engine, struct str text, struct token_ids *ids, struct err *err)
{
    return vocab_encode(engine, text, 0, ids, err);
}

// A mark, unless the model has none, and the text behind it.
static bool add_part(const struct ingot_engine *engine, enum ingot_special mark, struct str text, struct token_ids *ids,
                     struct err *err)
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

// {"filename", "text"}; for models without a mark for files, one text after the other.
static bool add_file(const struct ingot_engine *engine, json_t *file, struct token_ids *ids, struct err *err)
{
    struct str name = text_of(json_object_get(file, "filename")), text = text_of(json_object_get(file, "text"));

    return add_part(engine, INGOT_SPECIAL_FIM_FILE, name, ids, err) && add_text(engine, STR("\n"), ids, err) &&
           add_text(engine, text, ids, err) && add_text(engine, STR("\n"), ids, err);
}

static bool add_files(const struct ingot_engine *engine, const struct ask *ask, struct token_ids *ids, struct err *err)
{
    json_t *file;
    size_t i;

    if (json_array_size(ask->files) == 0)
        return true;
    if (ingot_token_special(engine, INGOT_SPECIAL_FIM_REPO) >= 0 &&
        !add_part(engine, INGOT_SPECIAL_FIM_REPO, STR("project\n"), ids, err))
        return false;
    json_array_foreach(ask->files, i, file)
    {
        if (!json_is_string(json_object_get(file, "text")))
            return err_set(err, ERR_INPUT, "input_extra[%zu].text: want a string", i);
        if (!add_file(engine, file, ids, err))
            return false;
    }
    return ingot_token_special(engine, INGOT_SPECIAL_FIM_FILE) < 0 ||
           add_part(engine, INGOT_SPECIAL_FIM_FILE, STR("current\n"), ids, err);
}

// BOS, for a model that reads one before every text.
static bool add_start(const struct ingot_engine *engine, struct token_ids *ids, struct err *err)
{
    if (!vocab_encode(engine, STR(""), INGOT_ADD_SPECIAL, ids, err))
        return false;
    ids->n = ids->n && ids->ids[0] == ingot_token_special(engine, INGOT_SPECIAL_BOS);
    return true;
}

bool infill_prompt(const struct ingot_engine *engine, const struct ask *ask, struct token_ids *ids, struct err *err)
{
    bool own = ask->dialect == DIALECT_INFILL; // elsewhere the prompt is what stands before the gap
    struct str begun = own ? text_of(ask->prompt) : STR(""), suffix = str_from(ask->suffix ? ask->suffix : ""),
               prefix = own ? str_from(ask->prefix ? ask->prefix : "") : text_of(ask->prompt);

    for (int mark = INGOT_SPECIAL_FIM_PREFIX; mark <= INGOT_SPECIAL_FIM_MIDDLE; mark++)
        if (ingot_token_special(engine, (enum ingot_special)mark) < 0)
            return err_set(err, ERR_UNSUPPORTED,
                           "this model fills no gaps: its vocabulary has no tokens for what stands around one");
    if (ask->files && !json_is_array(ask->files))
        return err_set(err, ERR_INPUT, "input_extra: want a list of objects with filename and text");
    if (ask->prompt && !json_is_string(ask->prompt))
        return err_set(err, ERR_INPUT, "prompt: want a string beside a suffix");
    return add_start(engine, ids, err) && add_files(engine, ask, ids, err) &&
           add_part(engine, INGOT_SPECIAL_FIM_PREFIX, prefix, ids, err) &&
           add_part(engine, INGOT_SPECIAL_FIM_SUFFIX, suffix, ids, err) &&
           add_part(engine, INGOT_SPECIAL_FIM_MIDDLE, begun, ids, err);
}
