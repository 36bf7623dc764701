// exchange.c - replies, and connections that sleep while the engine works for them; see http.h.
//
// A suspended connection is resumed by the engine's thread (news), by the watching thread (the client left, or it is time for a sign of
// life), never by a timer of its own. The flags are guarded by the runner's lock, so no wake-up is lost.
#include <microhttpd.h>
#include "base/clock.h"
#include "base/log.h"
#include "server/http.h"
#include "server/page.h"
#include "server/routes.h"
#include "server/sse.h"
#include "server/state.h"

enum { STREAM_BLOCK = 16 << 10 };

// ---- replies

static void add_headers(const struct exchange *x, struct MHD_Response *response, unsigned status)
{
    char text[32];

    if (status == 429 || status == 503) {
        snprintf(text, sizeof text, "%u", x->server->options->limits.retry_after_s);
        MHD_add_response_header(response, "Retry-After", text);
    }
    if (status == 401)
        MHD_add_response_header(response, "WWW-Authenticate", x->path[1] ? "Bearer" : "Basic realm=\"ingot\"");
    if (x->closes)
        MHD_add_response_header(response, "Connection", "close");
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(response, x->family == API_ANTHROPIC ? "Request-Id" : "X-Request-Id", x->id);
    if (!x->origin)
        return;
    MHD_add_response_header(response, "Access-Control-Allow-Origin", x->origin);
    MHD_add_response_header(response, "Access-Control-Expose-Headers", "Request-Id, X-Request-Id, Retry-After");
    MHD_add_response_header(response, "Vary", "Origin, Access-Control-Request-Headers");
    if (status == 204) {
        MHD_add_response_header(response, "Access-Control-Allow-Methods", "GET, POST");
        MHD_add_response_header(response, "Access-Control-Allow-Headers",
                                x->asked_headers ? x->asked_headers : "authorization, content-type");
        MHD_add_response_header(response, "Access-Control-Max-Age", "600");
    }
}

static bool queue(struct exchange *x, unsigned status, const char *type, struct MHD_Response *response)
{
    if (!response)
        return false;
    x->status = status;
    MHD_add_response_header(response, "Content-Type", type);
    add_headers(x, response, status);
    x->replied = MHD_queue_response(x->connection, status, response) == MHD_YES;
    MHD_destroy_response(response);
    return x->replied;
}

bool exchange_reply_text(struct exchange *x, unsigned status, const char *type, struct str text)
{
    x->answer_bytes = text.n;
    struct MHD_Response *r = MHD_create_response_from_buffer(text.n, (void *)(uintptr_t)text.at, MHD_RESPMEM_MUST_COPY);
    if (r && !x->path[1] && status == 200) // the page runs what it brings along and nothing else
        MHD_add_response_header(r, "Content-Security-Policy", page_policy());
    return queue(x, status, type, r);
}

bool exchange_reply_json(struct exchange *x, unsigned status, json_t *value)
{
    struct buf text = { 0 };

    sse_json(&text, value);
    buf_text(&text, "\n");
    bool ok = !text.failed && exchange_reply_text(x, status, "application/json", buf_as_str(&text));
    buf_free(&text);
    return ok;
}

void exchange_forget_body(struct exchange *x)
{
    atomic_fetch_sub(&x->server->body_bytes, x->n_counted);
    x->n_counted = 0;
    buf_free(&x->body);
}

// ---- sleep and wake

// True: the connection sleeps. False: there is something to do now.
static bool sleep_unless_ready(struct exchange *x)
{
    struct runner *r = &x->server->runner;

    pthread_mutex_lock(&r->lock);
    bool sleeps = !x->gone && !x->quiet_due && !generation_is_ready(x->talk->generation);
    if (sleeps) {
        x->suspended = true;
        MHD_suspend_connection(x->connection);
    }
    pthread_mutex_unlock(&r->lock);
    return sleeps;
}

void exchange_wake(void *arg)
{
    struct exchange *x = arg;

    if (!x->suspended)
        return;
    x->suspended = false;
    x->offered_ns = clock_ns();
    MHD_resume_connection(x->connection);
}

bool exchange_is_gone(struct exchange *x)
{
    struct runner *r = &x->server->runner;

    pthread_mutex_lock(&r->lock);
    bool gone = x->gone;
    pthread_mutex_unlock(&r->lock);
    return gone;
}

void exchange_client_left(struct exchange *x)
{
    struct runner *r = &x->server->runner;

    generation_cancel(x->talk->generation);
    pthread_mutex_lock(&r->lock);
    x->gone = true;
    exchange_wake(x);
    pthread_mutex_unlock(&r->lock);
}

// A stream that sleeps has nothing to say; one that is awake waits for its reader, who asks for more as soon as it took what it has.
bool exchange_tick(struct exchange *x, uint64_t now)
{
    const struct server_limits *limits = &x->server->options->limits;
    struct runner *r = &x->server->runner;

    if (!x->talk->ask.stream)
        return false;
    pthread_mutex_lock(&r->lock);
    uint64_t offered = x->offered_ns, quiet_ns = now > offered ? now - offered : 0;
    bool stuck = !x->suspended && quiet_ns > limits->write_s * 1000000000ull;
    if (x->suspended && quiet_ns > limits->keep_alive_s * 1000000000ull) {
        x->quiet_due = true;
        exchange_wake(x);
    }
    pthread_mutex_unlock(&r->lock);
    return stuck;
}

// ---- answers

static bool take_quiet(struct exchange *x)
{
    struct runner *r = &x->server->runner;

    pthread_mutex_lock(&r->lock);
    bool due = x->quiet_due;
    x->quiet_due = false;
    pthread_mutex_unlock(&r->lock);
    return due;
}

static void refill(struct exchange *x)
{
    bool done;

    x->out.n = x->out_at = 0;
    if (take_quiet(x))
        x->talk->voice->quiet(x->talk, &x->out);
    talk_pull(x->talk, &x->out, &done);
    x->out_ended = done;
}

static ssize_t read_stream(void *arg, uint64_t position, char *to, size_t most)
{
    struct exchange *x = arg;

    (void)position;
    x->offered_ns = clock_ns();
    while (x->out_at == x->out.n) {
        if (x->out.failed || exchange_is_gone(x))
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (x->out_ended)
            return MHD_CONTENT_READER_END_OF_STREAM;
        refill(x);
        if (x->out_at == x->out.n && !x->out_ended && sleep_unless_ready(x))
            return 0;
    }
    size_t n = x->out.n - x->out_at < most ? x->out.n - x->out_at : most;
    memcpy(to, x->out.at + x->out_at, n);
    x->out_at += n;
    x->answer_bytes += n;
    return (ssize_t)n;
}

static bool begin_stream(struct exchange *x)
{
    const char *type = x->talk->voice->stream_type;
    struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, x, NULL);

    if (response) {
        MHD_add_response_header(response, "Cache-Control", "no-cache");
        MHD_add_response_header(response, "X-Accel-Buffering", "no");
    }
    return queue(x, 200, type ? type : "text/event-stream", response);
}

static bool reply_whole(struct exchange *x)
{
    const struct ingot_result *bad = talk_error(x->talk);

    if (!bad)
        return exchange_reply_json(x, 200, x->talk->voice->whole(x->talk));
    if (bad->finish == INGOT_FINISH_CANCELLED)
        return exchange_reply_error(x, 503, "the server is stopping; the answer is not complete");
    struct err err = { .code = (enum err_code)bad->error.code };
    snprintf(err.message, sizeof err.message, "%s", bad->error.message);
    return exchange_reply_err(x, &err);
}

bool exchange_go_on(struct exchange *x)
{
    bool done = false;

    if (x->talk->ask.stream)
        return true;
    while (!done) {
        if (exchange_is_gone(x))
            return false;
        talk_pull(x->talk, NULL, &done);
        if (!done && sleep_unless_ready(x))
            return true;
    }
    return reply_whole(x);
}

bool exchange_begin_talk(struct exchange *x)
{
    x->offered_ns = clock_ns();
    client_set_phase(&x->server->clients, x->client, CLIENT_WAITING, x);
    return x->talk->ask.stream ? begin_stream(x) : exchange_go_on(x);
}

// ---- the log line

static void printable(const char *text, char *to, size_t n)
{
    size_t i = 0;

    for (; text[i] && i + 1 < n; i++)
        to[i] = text[i] > 0x20 && text[i] < 0x7f ? text[i] : '?';
    to[i] = 0;
}

void exchange_log(const struct exchange *x, bool whole)
{
    double ms = (double)(clock_ns() - x->begun_ns) / 1e6;
    char path[100];

    printable(x->path, path, sizeof path);
    const struct talk *t = x->talk;
    if (!t) {
        log_line(LOG_INFO, "request", "%s %s %u %.1f ms", x->id, path, x->status, ms);
        return;
    }
    const struct ingot_result *r = &t->generation->choices[0].result;
    log_line(LOG_INFO, "request",
             "%s %s %u %.1f ms%s%s, %u prompt (%u reused), %u new, first %.1f ms, prefill %.1f ms, decode %.1f ms, %s", x->id,
             path, x->status, ms, t->ask.stream ? " stream" : "", whole ? "" : " cut", t->n_prompt, t->n_reused, t->n_generated,
             r->first_token_ms, r->prefill_ms, r->decode_ms,
             generation_is_done(t->generation) ? talk_finish_name(t, 0) : "cancelled");
}
