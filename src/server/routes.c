// routes.c - see routes.h. Routes are compared byte for byte with the path as sent: nothing is decoded or normalised, so there is no
// second spelling of a path that could slip past a check.
#include "server/routes.h"
#include <time.h>
#include "base/mem.h"
#include "server/page.h"
#include "server/prompts.h"
#include "server/state.h"

static bool answer_page(struct exchange *x)
{
    return exchange_reply_text(x, 200, "text/html; charset=utf-8", page_html());
}

static bool device_failed(struct server *s)
{
    pthread_mutex_lock(&s->runner.lock);
    bool failed = s->runner.failure.code != ERR_NONE;
    pthread_mutex_unlock(&s->runner.lock);
    return failed;
}

static bool answer_health(struct exchange *x)
{
    if (device_failed(x->server))
        return exchange_reply_json(x, 503, json_pack("{s:s}", "status", "failed"));
    switch (server_phase(x->server)) {
    case PHASE_READY:
        return exchange_reply_json(x, 200, json_pack("{s:s}", "status", "ok"));
    case PHASE_LOADING:
        return exchange_reply_json(
            x, 503, json_pack("{s:s, s:f}", "status", "loading", "progress", atomic_load(&x->server->progress) / 1000.0));
    case PHASE_DRAINING:
        return exchange_reply_json(x, 503, json_pack("{s:s}", "status", "stopping"));
    case PHASE_FAILED:
        break;
    }
    return exchange_reply_json(x, 503, json_pack("{s:s}", "status", "failed"));
}

static json_t *model_json(const struct server *s, enum api_family family)
{
    char when[32] = "1970-01-01T00:00:00Z";
    time_t at = (time_t)s->loaded_at;
    struct tm tm;

    if (family == API_ANTHROPIC) {
        if (gmtime_r(&at, &tm))
            strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
        return json_pack("{s:s, s:s, s:s, s:s}", "type", "model", "id", s->name, "display_name", s->name, "created_at", when);
    }
    return json_pack("{s:s, s:s, s:I, s:s, s:{s:s, s:s, s:i, s:i, s:I, s:I, s:s, s:[s]}}", "id", s->name, "object", "model",
                     "created", (json_int_t)s->loaded_at, "owned_by", "ingot", "meta", "architecture", s->info.architecture,
                     "quantization", s->info.format, "context", (int)s->info.n_context, "sequences", (int)s->info.n_sequences,
                     "parameters", (json_int_t)s->info.n_parameters, "weight_bytes", (json_int_t)s->info.weight_bytes, "device",
                     s->info.device, "modalities", "text");
}

static bool answer_models(struct exchange *x)
{
    const struct server *s = x->server;

    if (x->family == API_ANTHROPIC)
        return exchange_reply_json(x, 200,
                                   json_pack("{s:[o], s:b, s:s, s:s}", "data", model_json(s, API_ANTHROPIC), "has_more", 0,
                                             "first_id", s->name, "last_id", s->name));
    return exchange_reply_json(x, 200, json_pack("{s:s, s:[o]}", "object", "list", "data", model_json(s, API_OPENAI)));
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// A name as a client writes it into a path: "org%2Fname" or "org/name".
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

static bool answer_model(struct exchange *x)
{
    const char *asked = strstr(x->path, "/models/") + strlen("/models/");

    if (!path_names(asked, x->server->name))
        return exchange_reply_error(x, 404, "model '%.100s' is not here; GET /v1/models lists what is", asked);
    return exchange_reply_json(x, 200, model_json(x->server, x->family));
}

static bool answer_metrics(struct exchange *x)
{
    struct server *s = x->server;
    struct runner *r = &s->runner;
    struct buf text = { 0 };

    pthread_mutex_lock(&r->lock);
    uint32_t active = r->n_active;
    pthread_mutex_unlock(&r->lock);
    uint32_t running = active < s->info.n_sequences ? active : s->info.n_sequences;
    struct metrics_gauges gauges = { .model = s->name, .n_running = running, .n_waiting = active - running };
    ingot_engine_stats(s->engine, &gauges.engine);
    metrics_print(&s->metrics, &gauges, &text);
    bool ok = exchange_reply_text(x, 200, "text/plain; version=0.0.4; charset=utf-8", buf_as_str(&text));
    buf_free(&text);
    return ok;
}

// ---- text and tokens

static bool answer_tokenize(struct exchange *x)
{
    const struct server *s = x->server;
    struct token_ids ids = { 0 };
    struct err err = { 0 };
    json_t *body = ask_parse(buf_as_str(&x->body), &err), *list = json_array();
    json_t *text = json_object_get(body, "content") ? json_object_get(body, "content") : json_object_get(body, "prompt");
    struct tokenize_flags flags = { json_is_true(json_object_get(body, "add_special")),
                                    json_is_true(json_object_get(body, "parse_special")) };
    bool ok = body != NULL;

    if (ok && !json_is_string(text))
        ok = err_set(&err, ERR_INPUT, "content: want a string");
    if (ok && !s->tokenizer)
        ok = err_set(&err, ERR_UNSUPPORTED, "this model has no tokenizer");
    ok = ok &&
         tokenizer_encode(s->tokenizer, (struct str){ json_string_value(text), json_string_length(text) }, flags, &ids, &err);
    for (size_t i = 0; i < ids.n; i++)
        json_array_append_new(list, json_integer(ids.ids[i]));
    if (ok)
        ok = exchange_reply_json(
            x, 200,
            json_pack("{s:O, s:I, s:i}", "tokens", list, "count", (json_int_t)ids.n, "max_model_len", (int)s->info.n_context));
    else
        ok = exchange_reply_err(x, &err);
    token_ids_free(&ids);
    json_decref(list);
    json_decref(body);
    return ok;
}

static bool read_ids(const struct server *s, json_t *list, struct token_ids *ids, struct err *err)
{
    json_t *item;
    size_t i;

    if (!json_is_array(list))
        return err_set(err, ERR_INPUT, "tokens: want a list of integers");
    json_array_foreach(list, i, item)
    {
        json_int_t id = json_integer_value(item);
        if (!json_is_integer(item) || id < 0 || id >= (json_int_t)s->info.n_vocab)
            return err_set(err, ERR_INPUT, "tokens[%zu]: want an integer from 0 to %u", i, s->info.n_vocab - 1);
        if (!token_ids_push(ids, (uint32_t)id))
            return err_memory(err, "tokens");
    }
    return s->tokenizer || err_set(err, ERR_UNSUPPORTED, "this model has no tokenizer");
}

static bool answer_detokenize(struct exchange *x)
{
    struct token_ids ids = { 0 };
    struct buf text = { 0 };
    struct err err = { 0 };
    json_t *body = ask_parse(buf_as_str(&x->body), &err);
    bool ok = body && read_ids(x->server, json_object_get(body, "tokens"), &ids, &err);

    if (ok && !tokenizer_decode(x->server->tokenizer, &ids, json_is_true(json_object_get(body, "keep_special")), &text))
        ok = err_memory(&err, "the text");
    if (ok) {
        json_t *value = json_stringn(buf_as_str(&text).at, text.n);
        ok = exchange_reply_json(x, 200, json_pack("{s:O, s:o}", "content", value, "prompt", value));
    } else {
        ok = exchange_reply_err(x, &err);
    }
    buf_free(&text);
    token_ids_free(&ids);
    json_decref(body);
    return ok;
}

static bool read_conversation(struct exchange *x, enum dialect dialect, struct ask *ask, struct err *err)
{
    json_t *body = ask_parse(buf_as_str(&x->body), err);

    *ask = (struct ask){ .strict = x->server->options->strict };
    return body && ask_read(ask, dialect, body, &x->server->options->limits, err);
}

static bool answer_template(struct exchange *x)
{
    struct ask ask;
    struct buf text = { 0 };
    struct err err = { 0 };

    if (!read_conversation(x, DIALECT_TEMPLATE, &ask, &err))
        return exchange_reply_err(x, &err);
    bool ok = prompts_render(x->server, &ask, &text, &err);
    if (ok) {
        json_t *reply = json_pack("{s:o}", "prompt", json_stringn(buf_as_str(&text).at, text.n));
        if (json_array_size(ask.warnings))
            json_object_set(reply, "warnings", ask.warnings);
        ok = exchange_reply_json(x, 200, reply);
    } else {
        ok = exchange_reply_err(x, &err);
    }
    buf_free(&text);
    ask_release(&ask);
    return ok;
}

static bool count_tokens(struct exchange *x, enum dialect dialect)
{
    struct ask ask;
    struct token_ids *prompts = NULL;
    uint32_t n = 0;
    struct err err = { 0 };

    if (!read_conversation(x, dialect, &ask, &err))
        return exchange_reply_err(x, &err);
    bool ok = prompts_make(x->server, &ask, &prompts, &n, &err);
    if (ok) {
        json_t *reply = json_pack("{s:I}", "input_tokens", (json_int_t)prompts[0].n);
        if (dialect == DIALECT_RESPONSES)
            json_object_set_new(reply, "object", json_string("response.input_tokens"));
        ok = exchange_reply_json(x, 200, reply);
    } else {
        ok = exchange_reply_err(x, &err);
    }
    for (uint32_t i = 0; i < n; i++)
        token_ids_free(&prompts[i]);
    mem_free(prompts);
    ask_release(&ask);
    return ok;
}

static bool answer_count(struct exchange *x)
{
    return count_tokens(x, DIALECT_COUNT);
}

static bool answer_response_count(struct exchange *x)
{
    return count_tokens(x, DIALECT_RESPONSES);
}

// ---- answers

static bool start_talk(struct exchange *x, enum dialect dialect)
{
    struct err err = { 0 };

    if (server_phase(x->server) != PHASE_READY) // it may have changed while the body came
        return exchange_reply_error(x, 503, "the server is stopping");
    x->talk = talk_begin(x->server, dialect, buf_as_str(&x->body), (struct talk_client){ exchange_wake, x, x->key }, &err);
    buf_free(&x->body);
    return x->talk || exchange_reply_err(x, &err);
}

static bool answer_chat(struct exchange *x)
{
    return start_talk(x, DIALECT_CHAT);
}

static bool answer_text(struct exchange *x)
{
    return start_talk(x, DIALECT_TEXT);
}

static bool answer_responses(struct exchange *x)
{
    return start_talk(x, DIALECT_RESPONSES);
}

static bool answer_embeddings(struct exchange *x)
{
    return start_talk(x, DIALECT_EMBED);
}

static bool answer_messages(struct exchange *x)
{
    return start_talk(x, DIALECT_MESSAGES);
}

static bool answer_save(struct exchange *x)
{
    struct ingot_error error;

    if (!ingot_engine_save(x->server->engine, &error))
        return exchange_reply_error(x, error.code == INGOT_INPUT ? 400 : 500, "%s", error.message);
    return exchange_reply_json(x, 200, json_pack("{s:b}", "saved", 1));
}

// clang-format off
static const struct route routes[] = {
    { "GET", "/", 0, answer_page },
    { "GET", "/health", ROUTE_OPEN, answer_health },
    { "GET", "/metrics", ROUTE_MODEL, answer_metrics },
    { "GET", "/v1/models", ROUTE_MODEL, answer_models },
    { "GET", "/v1/models/*", ROUTE_MODEL, answer_model },
    { "POST", "/v1/chat/completions", ROUTE_MODEL | ROUTE_GENERATES, answer_chat },
    { "POST", "/v1/completions", ROUTE_MODEL | ROUTE_GENERATES, answer_text },
    { "POST", "/v1/responses", ROUTE_MODEL | ROUTE_GENERATES, answer_responses },
    { "POST", "/v1/responses/input_tokens", ROUTE_MODEL, answer_response_count },
    { "POST", "/v1/embeddings", ROUTE_MODEL | ROUTE_GENERATES, answer_embeddings },
    { "POST", "/v1/messages", ROUTE_MODEL | ROUTE_GENERATES | ROUTE_ANTHROPIC, answer_messages },
    { "POST", "/v1/messages/count_tokens", ROUTE_MODEL | ROUTE_ANTHROPIC, answer_count },
    { "POST", "/cache/save", ROUTE_MODEL, answer_save },
    { "POST", "/tokenize", ROUTE_MODEL, answer_tokenize },
    { "POST", "/detokenize", ROUTE_MODEL, answer_detokenize },
    { "POST", "/apply-template", ROUTE_MODEL, answer_template },
};
// clang-format on

static bool path_is(const char *pattern, const char *path)
{
    size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? !strncmp(pattern, path, n - 1) && path[n - 1] : !strcmp(pattern, path);
}

static bool path_matches(const char *pattern, const char *path)
{
    return path_is(pattern, path) || (!strncmp(pattern, "/v1/", 4) && path_is(pattern + 3, path));
}

const struct route *route_find(const char *method, const char *path, const char **other_method)
{
    *other_method = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!path_matches(routes[i].path, path))
            continue;
        if (!strcmp(routes[i].method, method) || (!strcmp(method, "HEAD") && !strcmp(routes[i].method, "GET")))
            return &routes[i];
        *other_method = routes[i].method;
    }
    return NULL;
}
