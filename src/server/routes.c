// routes.c - see routes.h. Routes are compared byte for byte with the path as sent. Nothing is decoded or
// normalised, so no other spelling of a path can evade a check.
#include "server/routes.h"
#include "server/answer.h"
#include "server/api/api_response.h"
#include "server/info.h"
#include "server/page.h"
#include "server/prefill.h"
#include "server/state.h"
#include "server/tokenize.h"

static bool answer_page(struct http_exchange *x)
{
    x->policy = page_policy();
    return exchange_reply_text(x, 200, "text/html; charset=utf-8", page_html());
}

static bool device_failed(struct server *s)
{
    pthread_mutex_lock(&s->model.thread.lock);
    bool failed = s->model.thread.failure.code != ERR_NONE;
    pthread_mutex_unlock(&s->model.thread.lock);
    return failed;
}

static json_t *health_json(const struct server *s)
{
    struct ingot_engine_stats stats;
    struct ingot_engine_info info; // as of now: a lost device has left

    ingot_engine_stats(s->model.engine, &stats);
    ingot_engine_info(s->model.engine, &info);
    return json_pack("{s:s, s:s, s:b}", "status", "ok", "device", info.device, "paused", stats.is_paused);
}

static bool answer_health(struct http_exchange *x)
{
    if (device_failed(x->server))
        return exchange_reply_json(x, 503, json_pack("{s:s}", "status", "failed"));
    switch (server_phase(x->server)) {
    case PHASE_READY:
        return exchange_reply_json(x, 200, health_json(x->server));
    case PHASE_LOADING:
        return exchange_reply_json(x, 503,
                                   json_pack("{s:s, s:f}", "status", "loading", "progress",
                                             atomic_load(&x->server->progress) / 1000.0));
    case PHASE_DRAINING:
        return exchange_reply_json(x, 503, json_pack("{s:s}", "status", "stopping"));
    case PHASE_FAILED:
        break;
    }
    return exchange_reply_json(x, 503, json_pack("{s:s}", "status", "failed"));
}

static bool answer_metrics(struct http_exchange *x)
{
    struct server *s = x->server;
    struct engine_thread *t = &s->model.thread;
    struct buf text = { 0 };

    pthread_mutex_lock(&t->lock);
    uint32_t active = t->n_active;
    pthread_mutex_unlock(&t->lock);
    uint32_t running = active < s->model.info.n_sequences ? active : s->model.info.n_sequences;
    struct metrics_gauges gauges = { .model = s->model.name,
                                     .n_running = running,
                                     .n_waiting = active - running };
    ingot_engine_stats(s->model.engine, &gauges.engine);
    metrics_print(&s->model.metrics, &gauges, &text);
    bool ok = exchange_reply_text(x, 200, "text/plain; version=0.0.4; charset=utf-8", buf_as_str(&text));
    buf_free(&text);
    return ok;
}

// ---- answers

static bool start_response(struct http_exchange *x, enum dialect dialect)
{
    struct err err = { 0 };
    struct api_request request = { .strict = x->server->options->strict };

    if (server_phase(x->server) != PHASE_READY) // it may have changed while the body arrived
        return exchange_reply_error(x, 503, "the server is stopping");
    if (!api_request_read_text(&request, dialect, buf_as_str(&x->body), &x->server->options->limits, &err))
        return answer_error(x, &err);
    buf_free(&x->body);
    if (request.loads_only) {
        api_request_release(&request);
        return info_loaded(x, dialect == DIALECT_OLLAMA_CHAT);
    }
    x->response = api_response_begin(&x->server->model, &request,
                                     (struct api_response_client){ exchange_wake, x, x->key }, &err);
    return x->response || answer_error(x, &err);
}

static bool answer_chat(struct http_exchange *x)
{
    return start_response(x, DIALECT_CHAT);
}

static bool answer_text(struct http_exchange *x)
{
    return start_response(x, DIALECT_TEXT);
}

static bool answer_responses(struct http_exchange *x)
{
    return start_response(x, DIALECT_RESPONSES);
}

static bool answer_embeddings(struct http_exchange *x)
{
    return start_response(x, DIALECT_EMBED);
}

static bool answer_rerank(struct http_exchange *x)
{
    return start_response(x, DIALECT_RERANK);
}

static bool answer_messages(struct http_exchange *x)
{
    return start_response(x, DIALECT_MESSAGES);
}

static bool answer_native(struct http_exchange *x)
{
    return start_response(x, DIALECT_NATIVE);
}

static bool answer_infill(struct http_exchange *x)
{
    return start_response(x, DIALECT_INFILL);
}

static bool answer_ollama_chat(struct http_exchange *x)
{
    return start_response(x, DIALECT_OLLAMA_CHAT);
}

static bool answer_ollama_text(struct http_exchange *x)
{
    return start_response(x, DIALECT_OLLAMA_TEXT);
}

static bool answer_ollama_embed(struct http_exchange *x)
{
    return start_response(x, DIALECT_OLLAMA_EMBED);
}

static bool answer_save(struct http_exchange *x)
{
    struct ingot_error error;

    if (!x->server->options->engine.cache_dir)
        return exchange_reply_error(
            x, 400, "prompts are not kept on disk; start the server with --cache-dir DIR to save them");
    if (!ingot_engine_save(x->server->model.engine, &error))
        return exchange_reply_error(x, error.code == INGOT_INPUT ? 400 : 500, "%s", error.message);
    return exchange_reply_json(x, 200, json_pack("{s:b}", "saved", 1));
}

// clang-format off
enum { MODEL = ROUTE_MODEL, ANSWER = ROUTE_MODEL | ROUTE_GENERATES, ANTHROPIC = ROUTE_ANTHROPIC, OLLAMA = ROUTE_OLLAMA };

static const struct http_route routes[] = {
    { "GET", "/", 0, answer_page },
    { "GET", "/health", ROUTE_OPEN, answer_health },
    { "GET", "/metrics", MODEL, answer_metrics },
    { "POST", "/cache/save", MODEL, answer_save },
    { "POST", "/prefill", ANSWER, prefill_answer },
    // OpenAI's
    { "GET", "/v1/models", MODEL, info_models },
    { "GET", "/v1/models/*", MODEL, info_model },
    { "POST", "/v1/chat/completions", ANSWER, answer_chat },
    { "POST", "/v1/completions", ANSWER, answer_text },
    { "POST", "/v1/responses", ANSWER, answer_responses },
    { "POST", "/v1/responses/input_tokens", MODEL, tokenize_count_response },
    { "POST", "/v1/embeddings", ANSWER, answer_embeddings },
    { "POST", "/v1/rerank", ANSWER, answer_rerank }, // Jina's and Cohere's
    // Anthropic's
    { "POST", "/v1/messages", ANSWER | ANTHROPIC, answer_messages },
    { "POST", "/v1/messages/count_tokens", MODEL | ANTHROPIC, tokenize_count },
    // llama.cpp's server
    { "POST", "/completion", ANSWER, answer_native },
    { "POST", "/infill", ANSWER, answer_infill },
    { "POST", "/tokenize", MODEL, tokenize_text },
    { "POST", "/detokenize", MODEL, tokenize_decode },
    { "POST", "/apply-template", MODEL, tokenize_template },
    { "GET", "/props", MODEL, info_props },
    { "GET", "/slots", MODEL, info_slots },
    // Ollama's
    { "POST", "/api/chat", ANSWER | OLLAMA, answer_ollama_chat },
    { "POST", "/api/generate", ANSWER | OLLAMA, answer_ollama_text },
    { "POST", "/api/embed", ANSWER | OLLAMA, answer_ollama_embed },
    { "POST", "/api/show", MODEL | OLLAMA, info_show },
    { "GET", "/api/tags", MODEL | OLLAMA, info_tags },
    { "GET", "/api/ps", MODEL | OLLAMA, info_running },
    { "GET", "/api/version", OLLAMA, info_version },
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

const struct http_route *route_find(const char *method, const char *path, const char **other_method)
{
    *other_method = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        if (!path_matches(routes[i].path, path))
            continue;
        if (!strcmp(routes[i].method, method) ||
            (!strcmp(method, "HEAD") && !strcmp(routes[i].method, "GET")))
            return &routes[i];
        *other_method = routes[i].method;
    }
    return NULL;
}
