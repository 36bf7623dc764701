// exchange.c - an exchange from its head to its end, and its sleep while the engine works for it; see
// exchange.h.
//
// An exchange is woken by the engine's thread (new events), by a worker (done), or by its connection's timer
// (keep-alive of a silent stream). http->lock guards sleep and wake-up, so no wake-up is lost.
#include "server/http/exchange.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "server/http/http.h"
#include "server/http/message.h"

enum { LARGE_BODY = 256 << 10 };

// ---- begin and end

struct http_exchange *exchange_create(struct http *http, struct io_thread *io, struct connection *connection,
                                      const struct message *message)
{
    const char *target = message_target(message);
    struct http_exchange *x = mem_alloc(sizeof *x);
    size_t n = strcspn(target, "?");

    if (!x)
        return NULL;
    *x = (struct http_exchange){ .http = http,
                                 .server = http->server,
                                 .io = io,
                                 .connection = connection,
                                 .message = message,
                                 .id_header = "X-Request-Id",
                                 .begun_ns = clock_ns() };
    x->path = mem_alloc(n + 2);
    if (!x->path) {
        mem_free(x);
        return NULL;
    }
    memcpy(x->path, n ? target : "?", n ? n : 1);
    x->path[n ? n : 1] = 0;
    snprintf(x->id, sizeof x->id, "req_%016llx", (unsigned long long)random_u64());
    x->body.max = http->limits->body_bytes;
    atomic_fetch_add(&http->n_exchanges, 1);
    return x;
}

static void forget_body(struct http_exchange *x)
{
    atomic_fetch_sub(&x->http->body_bytes, x->n_counted);
    x->n_counted = 0;
    buf_free(&x->body);
}

void exchange_destroy(struct http_exchange *x, bool whole)
{
    struct http *http = x->http;

    http->service->end(x, whole);
    forget_body(x);
    io_forget(x->io, x);
    buf_free(&x->out);
    buf_free(&x->text);
    mem_free(x->path);
    mem_free(x);
    atomic_fetch_sub(&http->n_exchanges, 1);
}

bool exchange_take_body(struct http_exchange *x, const char *bytes, size_t n)
{
    const struct server_limits *limits = x->http->limits;

    x->closes = true; // if the body is rejected below
    if (n > limits->body_bytes - x->body.n)
        return !exchange_reply_error(x, 413, "the body is larger than %u bytes", limits->body_bytes);
    x->n_counted += n;
    if (atomic_fetch_add(&x->http->body_bytes, n) + n > limits->bodies_bytes ||
        !buf_append(&x->body, bytes, n))
        return !exchange_reply_error(x, 503, "too many large requests at once; try again");
    x->closes = false;
    return true;
}

void exchange_answer(struct http_exchange *x)
{
    const bool large = x->body.n > LARGE_BODY;

    if (!x->route->answer(x))
        x->replied = false;
    forget_body(x);
    if (large)
        mem_give_back(); // its JSON values took many times its size
    x->sent_ns = clock_ns();
}

// ---- sleep and wake

void exchange_wake(void *arg)
{
    struct http_exchange *x = arg;

    if (!x->suspended)
        return;
    x->suspended = false;
    io_post(x->io, x);
}

bool exchange_needs_keep_alive(struct http_exchange *x, uint64_t now_ns)
{
    const uint64_t most_ns = x->http->limits->keep_alive_s * 1000000000ull;

    if (!x->streams || now_ns - x->sent_ns < most_ns)
        return false;
    pthread_mutex_lock(x->http->lock);
    x->keep_alive_due = x->suspended;
    x->suspended = false;
    pthread_mutex_unlock(x->http->lock);
    return x->keep_alive_due;
}

enum exchange_step exchange_go_on(struct http_exchange *x)
{
    return x->replied ? EXCHANGE_DONE : x->http->service->go_on(x);
}
