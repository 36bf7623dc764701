// answer.c - see answer.h. While the engine works for a response, its exchange sleeps. The engine's thread
// wakes it, with http->lock held.
#include "server/answer.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/admission.h"
#include "server/api/api_response.h"
#include "server/prefill.h"
#include "server/state.h"
#include "text/json_memory.h"

// ---- errors

static bool reply_api_error(struct http_exchange *x, const struct api_error *error)
{
    return exchange_reply_json(x, error->status, api_error_json(error, (enum api_family)x->family, x->id));
}

static bool reply_error(struct http_exchange *x, unsigned status, const char *message)
{
    return reply_api_error(x, &(struct api_error){ status, NULL, message });
}

bool answer_error(struct http_exchange *x, const struct err *err)
{
    const struct api_error error = api_error_of(err);
    return reply_api_error(x, &error);
}

// ---- responses

bool answer_sleeps(struct http_exchange *x, const struct generation *g)
{
    pthread_mutex_lock(x->http->lock);
    x->suspended = !generation_is_ready(g);
    bool sleeps = x->suspended;
    pthread_mutex_unlock(x->http->lock);
    return sleeps;
}

static enum exchange_step go_on_stream(struct http_exchange *x)
{
    bool done = false;

    do {
        x->text.n = 0;
        if (x->keep_alive_due)
            api_response_keep_alive(x->response, &x->text);
        x->keep_alive_due = false;
        api_response_pull(x->response, &x->text, &done);
        if (json_memory_failed() || !exchange_add_chunk(x, done))
            return EXCHANGE_BROKEN;
        if (done || x->text.n > 0)
            return done ? EXCHANGE_DONE : EXCHANGE_MORE;
    } while (!answer_sleeps(x, x->response->generation));
    return EXCHANGE_SLEEPS;
}

// What memory was missing for must not look like a shorter answer.
static bool reply_result(struct http_exchange *x)
{
    json_t *reply = x->response->format->whole(x->response);
    struct err err = { 0 };

    if (!json_memory_failed() && api_response_is_whole(x->response))
        return exchange_reply_json(x, 200, reply);
    json_decref(reply);
    err_memory(&err, "an answer");
    return answer_error(x, &err);
}

static bool reply_whole(struct http_exchange *x)
{
    const struct ingot_result *bad = api_response_error(x->response);

    if (!bad)
        return reply_result(x);
    if (bad->finish == INGOT_FINISH_CANCELLED)
        return exchange_reply_error(x, 503, "the server is stopping; the answer is not complete");
    struct err err = { .code = (enum err_code)bad->error.code };
    snprintf(err.message, sizeof err.message, "%s", bad->error.message);
    return answer_error(x, &err);
}

static enum exchange_step go_on_whole(struct http_exchange *x)
{
    bool done;

    do {
        api_response_pull(x->response, NULL, &done);
        if (done)
            return reply_whole(x) ? EXCHANGE_DONE : EXCHANGE_BROKEN;
    } while (!answer_sleeps(x, x->response->generation));
    return EXCHANGE_SLEEPS;
}

static enum exchange_step go_on(struct http_exchange *x)
{
    if (x->pages)
        return prefill_go_on(x);
    if (!x->response)
        return EXCHANGE_BROKEN;
    json_memory_failed(); // what failed before is another's
    if (!x->response->request.stream)
        return go_on_whole(x);
    const char *type = x->response->format->stream_type;
    if (!x->streams && !exchange_reply_stream(x, type ? type : "text/event-stream"))
        return EXCHANGE_BROKEN;
    return go_on_stream(x);
}

// ---- the end

static void printable(const char *text, char *to, size_t n)
{
    size_t i = 0;

    for (; text[i] && i + 1 < n; i++)
        to[i] = text[i] > 0x20 && text[i] < 0x7f ? text[i] : '?';
    to[i] = 0;
}

static void write_log(const struct http_exchange *x, bool whole)
{
    double ms = (double)(clock_ns() - x->begun_ns) / 1e6;
    char path[100];

    printable(x->path, path, sizeof path);
    const struct api_response *t = x->response;
    if (!t) {
        log_line(LOG_INFO, "request", "%s %s %u %.1f ms", x->id, path, x->status, ms);
        return;
    }
    const struct ingot_result *r = &t->generation->choices[0].result;
    log_line(LOG_INFO, "request",
             "%s %s %u %.1f ms%s%s, %u prompt (%u reused), %u new, first %.1f ms, prefill %.1f ms, decode "
             "%.1f ms, %s",
             x->id, path, x->status, ms, t->request.stream ? " stream" : "", whole ? "" : " cut", t->n_prompt,
             t->n_reused, t->n_generated, r->first_token_ms, r->prefill_ms, r->decode_ms,
             generation_is_done(t->generation) ? api_response_finish_name(t, 0) : "cancelled");
}

static void end(struct http_exchange *x, bool whole)
{
    write_log(x, whole);
    metrics_answer(&x->server->model.metrics, x->status);
    api_response_end(x->response); // nothing wakes it after this
    prefill_end(x);
}

const struct http_service answer_service = { admission_check, go_on, reply_error, end };
