// record.c - see record.h.
#include "main/replay/record.h"
#include "base/buf_json.h"
#include "base/file.h"
#include "base/mem.h"
#include "engine/api/verify.h"
#include "text/json_memory.h"

enum { MOST_BYTES = 256 << 20 };

const char *record_finish_name(enum ingot_finish finish)
{
    static const char *const names[] = { "none", "eos", "stop", "length", "cancelled", "error" };
    return names[finish];
}

// ---- writing

static json_t *json_of_tokens(const uint32_t *tokens, size_t n)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer(tokens[i]));
    return list;
}

static json_t *json_of_stops(const struct ingot_request_options *o)
{
    json_t *list = json_array();

    for (size_t i = 0; i < o->n_stop; i++)
        json_array_append_new(list, json_string(o->stop[i]));
    return list;
}

static json_t *json_of_sampling(const struct ingot_sampling *s)
{
    return json_pack("{s:f, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "temperature", (double)s->temperature,
                     "top_k", (json_int_t)s->top_k, "top_p", (double)s->top_p, "min_p", (double)s->min_p,
                     "repeat_penalty", (double)s->repeat_penalty, "presence_penalty",
                     (double)s->presence_penalty, "frequency_penalty", (double)s->frequency_penalty,
                     "penalty_window", (json_int_t)s->penalty_window, "seed", (json_int_t)s->seed);
}

static json_t *json_of_request(const struct ingot_request_options *o, const uint32_t *prompt, size_t n)
{
    return json_pack("{s:o, s:o, s:o, s:I, s:b, s:b, s:s*, s:s*}", "prompt", json_of_tokens(prompt, n),
                     "sampling", json_of_sampling(&o->sampling), "stop", json_of_stops(o), "max_tokens",
                     (json_int_t)o->max_tokens, "ignore_eos", o->ignore_eos, "keep_special", o->keep_special,
                     "grammar", o->grammar, "json_schema", o->json_schema);
}

static json_t *json_of_settings(const struct settings *s, const struct ingot_engine_info *info)
{
    return json_pack("{s:s, s:i, s:i, s:b, s:b, s:i, s:i}", "device", info->device, "n_context",
                     (int)info->n_context, "n_batch", (int)info->n_batch, "exact", s->exact, "invariant",
                     s->invariant, "cache_type_k", (int)info->cache_type_k, "cache_type_v",
                     (int)info->cache_type_v);
}

static bool write_json(const char *path, const json_t *root, struct err *err)
{
    struct buf text = { 0 };
    bool ok = buf_json(&text, root, 0) && buf_text(&text, "\n") ? file_save(path, buf_as_str(&text), err)
                                                                : err_memory(err, "a record");

    buf_free(&text);
    return ok;
}

bool record_write(const struct settings *settings, const struct record_answer *what, struct err *err)
{
    struct ingot_prompt *prompt = ingot_prompt_render(what->engine, what->options, (struct ingot_error *)err);
    struct ingot_engine_info info;
    char hash[SHA256_HEX_BYTES];
    size_t n = 0;

    const uint32_t *tokens = prompt ? ingot_prompt_tokens(prompt, &n, (struct ingot_error *)err) : NULL;
    bool ok = tokens && engine_model_hash(what->engine, hash, err);
    if (ok) {
        ingot_engine_info(what->engine, &info);
        json_t *root = json_pack(
            "{s:s, s:s*, s:s, s:o, s:o, s:o, s:s}", "ingot", ingot_version(), "model", settings->model,
            "model_hash", hash, "settings", json_of_settings(settings, &info), "request",
            json_of_request(what->options, tokens, n), "answer", json_of_tokens(what->answer, what->n_answer),
            "finish", record_finish_name(what->finish));
        ok = root ? write_json(settings->record, root, err) : err_memory(err, "a record");
        json_decref(root);
    }
    ingot_prompt_free(prompt);
    return ok;
}

// ---- reading

static bool read_tokens(struct record *r, const json_t *list, struct err *err)
{
    size_t i;
    json_t *value;

    json_array_foreach(list, i, value)
    {
        json_int_t token = json_is_integer(value) ? json_integer_value(value) : -1;
        if (token < 0 || token >= UINT32_MAX)
            return err_set(err, ERR_INPUT, "token %zu is no number of a token", i);
        r->tokens[r->n_tokens++] = (uint32_t)token;
    }
    return true;
}

static bool read_stops(struct record *r, const json_t *list, struct err *err)
{
    size_t n = json_array_size(list);

    r->stop = n ? mem_alloc_array(n, sizeof *r->stop) : NULL;
    if (n && !r->stop)
        return err_memory(err, "stop strings");
    for (size_t i = 0; i < n; i++)
        if (!(r->stop[i] = json_string_value(json_array_get(list, i))))
            return err_set(err, ERR_INPUT, "stop %zu is no text", i);
    r->options.stop = r->stop;
    r->options.n_stop = n;
    return true;
}

static bool read_sampling(struct ingot_sampling *s, json_t *from, struct err *err)
{
    double temperature, top_p, min_p, repeat, presence, frequency;
    json_int_t top_k, window, seed;

    if (json_unpack(from, "{s:F, s:I, s:F, s:F, s:F, s:F, s:F, s:I, s:I}", "temperature", &temperature,
                    "top_k", &top_k, "top_p", &top_p, "min_p", &min_p, "repeat_penalty", &repeat,
                    "presence_penalty", &presence, "frequency_penalty", &frequency, "penalty_window", &window,
                    "seed", &seed))
        return err_set(err, ERR_INPUT, "sampling lacks a number");
    s->temperature = (float)temperature;
    s->top_p = (float)top_p;
    s->min_p = (float)min_p;
    s->repeat_penalty = (float)repeat;
    s->presence_penalty = (float)presence;
    s->frequency_penalty = (float)frequency;
    s->top_k = (uint32_t)top_k;
    s->penalty_window = (uint32_t)window;
    s->seed = (uint64_t)seed;
    return true;
}

static bool read_all(struct record *r, struct err *err)
{
    json_t *prompt, *sampling, *stop, *answer;
    int ignore_eos, keep_special, n_context, exact, invariant;
    json_int_t max_tokens;
    struct ingot_request_options *o = &r->options;

    if (json_unpack(
            r->root,
            "{s?s, s:s, s:s, s:o, s:{s:s, s:i, s:b, s:b}, s:{s:o, s:o, s:o, s:I, s:b, s:b, s?s, s?s}}",
            "model", &r->model, "model_hash", &r->model_hash, "finish", &r->finish, "answer", &answer,
            "settings", "device", &r->device, "n_context", &n_context, "exact", &exact, "invariant",
            &invariant, "request", "prompt", &prompt, "sampling", &sampling, "stop", &stop, "max_tokens",
            &max_tokens, "ignore_eos", &ignore_eos, "keep_special", &keep_special, "grammar", &o->grammar,
            "json_schema", &o->json_schema))
        return err_set(err, ERR_INPUT, "not a record as ingot run --record writes it");
    r->tokens = mem_alloc_array(json_array_size(prompt) + json_array_size(answer) + 1, sizeof *r->tokens);
    if (!r->tokens)
        return err_memory(err, "a record's tokens");
    if (!read_tokens(r, prompt, err))
        return false;
    r->n_prompt = r->n_tokens;
    o->tokens = r->tokens;
    o->n_tokens = r->n_prompt;
    o->max_tokens = (uint32_t)max_tokens;
    o->ignore_eos = ignore_eos;
    o->keep_special = keep_special;
    r->n_context = (uint32_t)n_context;
    r->exact = exact;
    r->invariant = invariant;
    return read_tokens(r, answer, err) && read_stops(r, stop, err) &&
           read_sampling(&o->sampling, sampling, err);
}

bool record_read(struct record *r, const char *path, struct err *err)
{
    struct buf text = { 0 };
    json_error_t wrong;

    *r = (struct record){ .options = ingot_request_defaults() };
    if (!file_read(&text, path, MOST_BYTES, err)) {
        buf_free(&text);
        return false;
    }
    r->root = json_memory_read(buf_as_str(&text), JSON_REJECT_DUPLICATES, &wrong);
    buf_free(&text);
    bool ok = r->root ? read_all(r, err)
                      : err_set(err, ERR_INPUT, "line %d: %s; want a record as ingot run --record writes it",
                                wrong.line, wrong.text);
    if (ok)
        return true;
    record_release(r);
    return err_prefix(err, "%s", path);
}

void record_release(struct record *r)
{
    json_decref(r->root);
    mem_free(r->tokens);
    mem_free(r->stop);
    *r = (struct record){ 0 };
}
