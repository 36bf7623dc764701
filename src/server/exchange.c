// exchange.c - an exchange from its head to its end, and its sleep while the engine works for it; see http.h.
//
// It is woken by the engine's thread (news), by a preparing thread (ready), or by its connection's timer
// (time for a sign of life). What is said of both, asleep and awake, is guarded by the runner's lock, so no
// wake-up is lost.
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/http.h"
#include "server/io.h"
#include "server/routes.h"
#include "server/state.h"

enum { LARGE_BODY = 256 << 10 };

// ---- begin and end

struct exchange *exchange_create(struct server *s, struct io *io, struct connection *connection,
                                 const struct message *message)
{
    const char *target = message_target(message);
    struct exchange *x = mem_alloc(sizeof *x);
    size_t n = strcspn(target, "?");

    if (!x)
        return NULL;
    *x = (struct exchange){
        .server = s, .io = io, .connection = connection, .message = message, .begun_ns = clock_ns()
    };
    x->path = mem_alloc(n + 2);
    if (!x->path) {
        mem_free(x);
        return NULL;
    }
    memcpy(x->path, n ? target : "?", n ? n : 1);
    x->path[n ? n : 1] = 0;
    snprintf(x->id, sizeof x->id, "req_%016llx", (unsigned long long)api_response_random());
    x->body.max = s->options->limits.body_bytes;
    atomic_fetch_add(&s->n_exchanges, 1);
    return x;
}

static void forget_body(struct exchange *x)
{
    atomic_fetch_sub(&x->server->body_bytes, x->n_counted);
    x->n_counted = 0;
    buf_free(&x->body);
}

static void write_log(const struct exchange *x, bool whole);

void exchange_destroy(struct exchange *x, bool whole)
{
    struct server *s = x->server;

    write_log(x, whole);
    metrics_answer(&s->metrics, x->status);
    forget_body(x);
    api_response_end(x->response); // from here on nobody wakes it
    io_forget(x->io, x);
    buf_free(&x->out);
    buf_free(&x->text);
    mem_free(x->path);
    mem_free(x);
    atomic_fetch_sub(&s->n_exchanges, 1);
}

bool exchange_take_body(struct exchange *x, const char *bytes, size_t n)
{
    const struct server_limits *limits = &x->server->options->limits;

    x->closes = true; // in case of a refusal
    if (n > limits->body_bytes - x->body.n)
        return !exchange_reply_error(x, 413, "the body is larger than %u bytes", limits->body_bytes);
    x->n_counted += n;
    if (atomic_fetch_add(&x->server->body_bytes, n) + n > limits->bodies_bytes ||
        !buf_append(&x->body, bytes, n))
        return !exchange_reply_error(x, 503, "too many large requests at once; try again");
    x->closes = false;
    return true;
}

void exchange_answer(struct exchange *x)
{
    const bool large = x->body.n > LARGE_BODY;

    if (!x->route->answer(x))
        x->replied = false;
    forget_body(x);
    if (large)
        mem_give_back(); // its values were many
    x->offered_ns = clock_ns();
}

// ---- sleep and wake

// True: it sleeps. False: there is something to do now.
static bool sleep_unless_ready(struct exchange *x)
{
    struct runner *r = &x->server->runner;

    pthread_mutex_lock(&r->lock);
    x->suspended = !generation_is_ready(x->response->generation);
    bool sleeps = x->suspended;
    pthread_mutex_unlock(&r->lock);
    return sleeps;
}

void exchange_wake(void *arg)
{
    struct exchange *x = arg;

    if (!x->suspended)
        return;
    x->suspended = false;
    io_post(x->io, x);
}

bool exchange_tick(struct exchange *x, uint64_t now_ns)
{
    const uint64_t most_ns = x->server->options->limits.keep_alive_s * 1000000000ull;
    struct runner *r = &x->server->runner;

    if (!x->streams || now_ns - x->offered_ns < most_ns)
        return false;
    pthread_mutex_lock(&r->lock);
    x->quiet_due = x->suspended;
    x->suspended = false;
    pthread_mutex_unlock(&r->lock);
    return x->quiet_due;
}

// ---- answers

static void add_chunk(struct exchange *x, const struct buf *text)
{
    bool chunked = !x->message->is_1_0;

    if (chunked)
        buf_printf(&x->out, "%zx\r\n", text->n);
    buf_str(&x->out, buf_as_str(text));
    if (chunked)
        buf_text(&x->out, "\r\n");
    x->answer_bytes += text->n;
    x->offered_ns = clock_ns();
}

static enum exchange_step go_on_stream(struct exchange *x)
{
    bool done = false;

    do {
        x->text.n = 0;
        if (x->quiet_due)
            x->response->format->quiet(x->response, &x->text);
        x->quiet_due = false;
        api_response_pull(x->response, &x->text, &done);
        if (x->text.n > 0)
            add_chunk(x, &x->text);
        if (done && !x->message->is_1_0)
            buf_text(&x->out, "0\r\n\r\n");
        if (x->text.failed || x->out.failed)
            return EXCHANGE_BROKEN;
        if (done || x->text.n > 0)
            return done ? EXCHANGE_DONE : EXCHANGE_MORE;
    } while (!sleep_unless_ready(x));
    return EXCHANGE_SLEEPS;
}

static bool reply_whole(struct exchange *x)
{
    const struct ingot_result *bad = api_response_error(x->response);

    if (!bad)
        return exchange_reply_json(x, 200, x->response->format->whole(x->response));
    if (bad->finish == INGOT_FINISH_CANCELLED)
        return exchange_reply_error(x, 503, "the server is stopping; the answer is not complete");
    struct err err = { .code = (enum err_code)bad->error.code };
    snprintf(err.message, sizeof err.message, "%s", bad->error.message);
    return exchange_reply_err(x, &err);
}

static enum exchange_step go_on_whole(struct exchange *x)
{
    bool done;

    do {
        api_response_pull(x->response, NULL, &done);
        if (done)
            return reply_whole(x) ? EXCHANGE_DONE : EXCHANGE_BROKEN;
    } while (!sleep_unless_ready(x));
    return EXCHANGE_SLEEPS;
}

enum exchange_step exchange_go_on(struct exchange *x)
{
    if (x->replied)
        return EXCHANGE_DONE;
    if (!x->response)
        return EXCHANGE_BROKEN;
    if (!x->response->request.stream)
        return go_on_whole(x);
    const char *type = x->response->format->stream_type;
    if (!x->streams && !exchange_reply_stream(x, type ? type : "text/event-stream"))
        return EXCHANGE_BROKEN;
    return go_on_stream(x);
}

// ---- the log line

static void printable(const char *text, char *to, size_t n)
{
    size_t i = 0;

    for (; text[i] && i + 1 < n; i++)
        to[i] = text[i] > 0x20 && text[i] < 0x7f ? text[i] : '?';
    to[i] = 0;
}

static void write_log(const struct exchange *x, bool whole)
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
