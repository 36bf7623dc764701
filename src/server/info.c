// info.c - see info.h. Nothing here reveals the requests of other clients, except their number.
#include "server/info.h"
#include <time.h>
#include "server/answer.h"
#include "server/api/api_request.h"
#include "server/state.h"
#include "text/reasoning_marks.h"

static const char *loaded_at(const struct server *s, char when[32])
{
    time_t at = (time_t)s->model.loaded_at;
    struct tm tm;

    if (!gmtime_r(&at, &tm) || !strftime(when, 32, "%Y-%m-%dT%H:%M:%SZ", &tm))
        snprintf(when, 32, "1970-01-01T00:00:00Z");
    return when;
}

static json_t *model_json(const struct server *s, enum api_family family, const char *name)
{
    char when[32];

    if (family == API_ANTHROPIC)
        return json_pack("{s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:n, s:n, s:n, s:n}", "type", "model", "id",
                         name, "display_name", name, "created_at", loaded_at(s, when), "lifecycle", "active",
                         "max_input_tokens", (int)s->model.info.n_context, "max_tokens",
                         (int)s->model.info.n_context, "capabilities", "deprecated_at", "line", "retires_at");
    return json_pack("{s:s, s:s, s:I, s:s, s:{s:s, s:s, s:i, s:i, s:I, s:I, s:s, s:I, s:[s,s*]}}", "id", name,
                     "object", "model", "created", (json_int_t)s->model.loaded_at, "owned_by", "ingot",
                     "meta", "architecture", s->model.info.architecture, "quantization", s->model.info.format,
                     "context", (int)s->model.info.n_context, "sequences", (int)s->model.info.n_sequences,
                     "parameters", (json_int_t)s->model.info.n_parameters, "weight_bytes",
                     (json_int_t)s->model.info.weight_bytes, "device", s->model.info.device, "body_bytes",
                     (json_int_t)s->options->limits.body_bytes, "modalities", "text",
                     s->model.info.takes_pictures ? "image" : NULL);
}

// The model, then the model with each adapter: a name, or false behind the last.
static bool name_at(const struct server *s, uint32_t index, char name[SERVED_NAME_BYTES])
{
    if (index > 0)
        return served_model_adapter(&s->model, index - 1, name);
    snprintf(name, SERVED_NAME_BYTES, "%s", s->model.name);
    return true;
}

bool info_models(struct http_exchange *x)
{
    const struct server *s = x->server;
    json_t *list = json_array();
    char name[SERVED_NAME_BYTES], last[SERVED_NAME_BYTES] = "";

    for (uint32_t i = 0; name_at(s, i, name); i++) {
        json_array_append_new(list, model_json(s, x->family, name));
        memcpy(last, name, sizeof last);
    }
    if (x->family == API_ANTHROPIC)
        return exchange_reply_json(x, 200,
                                   json_pack("{s:o, s:b, s:s, s:s}", "data", list, "has_more", 0, "first_id",
                                             s->model.name, "last_id", last));
    return exchange_reply_json(x, 200, json_pack("{s:s, s:o}", "object", "list", "data", list));
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

// Compares a name with its form in a path: "org%2Fname" or "org/name".
static bool path_names(const char *path, const char *name)
{
    for (; *path; path++, name++) {
        char c = *path;
        if (c == '%' && hex_value(path[1]) >= 0 && hex_value(path[2]) >= 0) {
            c = (char)(hex_value(path[1]) * 16 + hex_value(path[2]));
            path += 2;
        }
        if (c != *name || c == 0)
            return false;
    }
    return *name == 0;
}

bool info_model(struct http_exchange *x)
{
    const char *asked = strstr(x->path, "/models/") + strlen("/models/");

    char name[SERVED_NAME_BYTES];
    for (uint32_t i = 0; name_at(x->server, i, name); i++)
        if (path_names(asked, name))
            return exchange_reply_json(x, 200, model_json(x->server, x->family, name));
    return exchange_reply_error(x, 404, "model '%.100s' is not here; GET /v1/models lists what is", asked);
}

// ---- llama.cpp's server

static json_t *text_json(struct str text)
{
    json_t *value = json_stringn(text.at, text.n);
    return value ? value : json_string("");
}

static json_t *special_json(const struct server *s, enum ingot_special which)
{
    int64_t id = ingot_token_special(s->model.engine, which);
    struct ingot_token_info info;

    return id >= 0 && ingot_token_info(s->model.engine, (uint32_t)id, &info)
               ? text_json((struct str){ info.spelling, info.n_spelling })
               : json_string("");
}

static struct str template_of(const struct server *s)
{
    return (struct str){ s->model.template.text, s->model.template.n_bytes };
}

bool info_props(struct http_exchange *x)
{
    const struct server *s = x->server;
    const struct ingot_sampling d = ingot_request_defaults().sampling;
    json_t *settings = json_pack(
        "{s:i, s:{s:f, s:i, s:f, s:f, s:f, s:i, s:i}}", "n_ctx", (int)s->model.info.n_context, "params",
        "temperature", api_request_number(d.temperature), "top_k", (int)d.top_k, "top_p",
        api_request_number(d.top_p), "min_p", api_request_number(d.min_p), "repeat_penalty",
        api_request_number(d.repeat_penalty), "repeat_last_n", (int)d.penalty_window, "n_predict", -1);

    return exchange_reply_json(
        x, 200,
        json_pack("{s:o, s:i, s:s, s:s, s:o, s:o, s:o, s:s, s:{s:b, s:b}}", "default_generation_settings",
                  settings, "total_slots", (int)s->model.info.n_sequences, "model_alias", s->model.name,
                  "model_path", s->model.name, "chat_template", text_json(template_of(s)), "bos_token",
                  special_json(s, INGOT_SPECIAL_BOS), "eos_token", special_json(s, INGOT_SPECIAL_EOS),
                  "build_info", "ingot-" INGOT_VERSION, "modalities", "vision", s->model.info.takes_pictures,
                  "audio", 0));
}

// One slot for each sequence, the busy ones first. Which request has which slot is not revealed.
bool info_slots(struct http_exchange *x)
{
    const struct server *s = x->server;
    struct ingot_engine_stats stats;
    json_t *list = json_array();

    ingot_engine_stats(s->model.engine, &stats);
    for (uint32_t i = 0; i < s->model.info.n_sequences; i++)
        json_array_append_new(list, json_pack("{s:i, s:i, s:b, s:b}", "id", (int)i, "n_ctx",
                                              (int)s->model.info.n_context, "speculative", 0, "is_processing",
                                              i < stats.n_running));
    return exchange_reply_json(x, 200, list);
}

// ---- Ollama

// "7.3M", "8.0B".
static json_t *size_text(uint64_t n)
{
    static const char letters[] = " KMBT";
    double x = (double)n;
    int i = 0;

    for (; x >= 1000 && letters[i + 1]; i++)
        x /= 1000;
    return json_sprintf("%.1f%.*s", x, i > 0, &letters[i]);
}

static json_t *details_json(const struct server *s)
{
    const char *path = s->options->engine.model;
    bool gguf = !path || str_ends(str_from(path), STR(".gguf")); // the embedded model is one too

    return json_pack("{s:s, s:s, s:s, s:[s], s:o, s:s}", "parent_model", "", "format",
                     gguf ? "gguf" : "safetensors", "family", s->model.info.architecture, "families",
                     s->model.info.architecture, "parameter_size", size_text(s->model.info.n_parameters),
                     "quantization_level", s->model.info.format);
}

static json_t *ollama_model(const struct server *s, const char *name)
{
    char when[32];

    return json_pack("{s:s, s:s, s:s, s:I, s:s, s:o}", "name", name, "model", name, "modified_at",
                     loaded_at(s, when), "size", (json_int_t)s->model.info.weight_bytes, "digest", "",
                     "details", details_json(s));
}

bool info_tags(struct http_exchange *x)
{
    json_t *list = json_array();
    char name[SERVED_NAME_BYTES];

    for (uint32_t i = 0; name_at(x->server, i, name); i++)
        json_array_append_new(list, ollama_model(x->server, name));
    return exchange_reply_json(x, 200, json_pack("{s:o}", "models", list));
}

bool info_running(struct http_exchange *x)
{
    const struct server *s = x->server;
    json_t *model = ollama_model(s, s->model.name);
    bool gpu = !str_starts(str_from(s->model.info.device), STR("cpu"));

    json_object_set_new(model, "expires_at", json_string("9999-12-31T23:59:59Z")); // the model stays loaded
    json_object_set_new(model, "size_vram", json_integer(gpu ? (json_int_t)s->model.info.weight_bytes : 0));
    return exchange_reply_json(x, 200, json_pack("{s:[o]}", "models", model));
}

// Clients reject an old Ollama. This is the release whose API is implemented.
bool info_version(struct http_exchange *x)
{
    return exchange_reply_json(x, 200, json_pack("{s:s}", "version", "0.9.0"));
}

static json_t *model_info(const struct server *s)
{
    const struct ingot_engine_info *i = &s->model.info;
    const struct {
        const char *key;
        uint32_t value;
    } rows[] = { { "context_length", i->n_context },
                 { "embedding_length", i->n_embedding },
                 { "block_count", i->n_layers } };
    json_t *info = json_pack("{s:s, s:I}", "general.architecture", i->architecture, "general.parameter_count",
                             (json_int_t)i->n_parameters);

    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        char key[80];
        snprintf(key, sizeof key, "%s.%s", i->architecture, rows[k].key);
        json_object_set_new(info, key, json_integer(rows[k].value));
    }
    return info;
}

static json_t *capabilities(const struct server *s)
{
    json_t *list = s->model.info.is_encoder ? json_pack("[s]", "embedding")
                                            : json_pack("[s, s, s]", "completion", "tools", "embedding");
    bool thinks = false;

    reasoning_marks_of(template_of(s), &thinks);
    if (thinks || str_find(template_of(s), STR("<|channel|>")) != SIZE_MAX)
        json_array_append_new(list, json_string("thinking"));
    if (s->model.info.takes_pictures)
        json_array_append_new(list, json_string("vision"));
    if (ingot_token_special(s->model.engine, INGOT_SPECIAL_FIM_MIDDLE) >= 0)
        json_array_append_new(list, json_string("insert"));
    return list;
}

bool info_show(struct http_exchange *x)
{
    const struct server *s = x->server;
    struct err err = { 0 };
    json_t *body = api_request_parse(buf_as_str(&x->body), &err),
           *asked = json_object_get(body, "model") ? json_object_get(body, "model")
                                                   : json_object_get(body, "name");
    char when[32];
    bool ok;

    if (!body)
        ok = answer_error(x, &err);
    else if (!json_is_string(asked) || !served_model_find(&s->model, json_string_value(asked)).is_here)
        ok = exchange_reply_error(x, 404, "model '%.100s' is not here; GET /api/tags lists what is",
                                  json_is_string(asked) ? json_string_value(asked) : "");
    else
        ok = exchange_reply_json(x, 200,
                                 json_pack("{s:s, s:s, s:s, s:s, s:[], s:o, s:o, s:o, s:o, s:s}", "license",
                                           "", "modelfile", "", "parameters", "", "system", "", "messages",
                                           "template", text_json(template_of(s)), "details", details_json(s),
                                           "model_info", model_info(s), "capabilities", capabilities(s),
                                           "modified_at", loaded_at(s, when)));
    json_decref(body);
    return ok;
}

bool info_loaded(struct http_exchange *x, bool chat)
{
    char when[32];
    json_t *reply = json_pack("{s:s, s:s, s:b, s:s}", "model", x->server->model.name, "created_at",
                              loaded_at(x->server, when), "done", 1, "done_reason", "load");

    if (chat)
        json_object_set_new(reply, "message", json_pack("{s:s, s:s}", "role", "assistant", "content", ""));
    else
        json_object_set_new(reply, "response", json_string(""));
    return exchange_reply_json(x, 200, reply);
}
