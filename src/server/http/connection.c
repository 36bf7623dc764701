// connection.c - see connection.h.
#include "server/http/connection.h"
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/http/http.h"
#include "server/http/message.h"

enum { MOST_UNREAD = 64 << 10, MOST_UNSENT = 64 << 10, READ_BYTES = 64 << 10, DISCARD_BODIES = 4 };
enum { WRITE_BYTES = 1 << 20 }; // at once: pages of prompts are many MiB

enum connection_phase {
    CONNECTION_HEAD,   // waits for a request, or has a part of its head
    CONNECTION_BODY,   // has the head
    CONNECTION_ANSWER, // has the request; the exchange is replied, with a worker, or asleep
    CONNECTION_FLUSH,  // the response is complete, and not sent in full
    CONNECTION_LINGER, // discards what the client still sends
    CONNECTION_LOST,   // to be closed when nothing uses it
    CONNECTION_CLOSED, // only a worker still has the exchange
};

struct connection {
    struct io_thread *io;
    struct connection *next, *before; // of the thread
    struct bufferevent *socket;
    struct event *timer;
    struct message message;
    struct http_exchange *exchange; // NULL: between requests
    enum connection_phase phase;
    uint64_t since_ns; // of the phase
    size_t n_discarded;
    bool half_closed; // the client sends nothing more, but may still read
};

static struct evbuffer *input_of(const struct connection *c)
{
    return bufferevent_get_input(c->socket);
}

static struct evbuffer *output_of(const struct connection *c)
{
    return bufferevent_get_output(c->socket);
}

static const struct server_limits *limits_of(const struct connection *c)
{
    return c->io->http->limits;
}

static void set_phase(struct connection *c, enum connection_phase phase, u32 seconds)
{
    c->phase = phase;
    c->since_ns = clock_ns();
    if (seconds)
        event_add(c->timer, &(struct timeval){ .tv_sec = seconds });
    else
        event_del(c->timer);
}

// ---- the end

static void release(struct connection *c)
{
    struct io_thread *io = c->io;

    if (c->before)
        c->before->next = c->next;
    else
        io->connections = c->next;
    if (c->next)
        c->next->before = c->before;
    message_destroy(&c->message);
    mem_free(c);
}

void connection_close(struct connection *c)
{
    bool busy = c->exchange && c->exchange->busy;

    if (c->phase != CONNECTION_CLOSED) {
        event_free(c->timer);
        bufferevent_free(c->socket);
        atomic_fetch_sub(&c->io->http->io.n_connections, 1);
        c->phase = CONNECTION_CLOSED;
    }
    if (busy)
        return;
    if (c->exchange)
        exchange_destroy(c->exchange, false);
    release(c);
}

static void mark_lost(struct connection *c)
{
    c->phase = CONNECTION_LOST;
}

// Ends every callback: only here may the connection be freed.
static void close_if_lost(struct connection *c)
{
    if (c->phase == CONNECTION_LOST)
        connection_close(c);
}

// Resets the connection: bytes that the client did not take are discarded.
static void abort_connection(struct connection *c, const char *why)
{
    const struct linger at_once = { .l_onoff = 1 };

    log_line(LOG_INFO, "server", "closing a connection: %s", why);
    setsockopt(bufferevent_getfd(c->socket), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    mark_lost(c);
}

// The response was sent, and the connection ends. Closing a socket with unread bytes would reset it and lose
// the response, so they are discarded first.
static void finish_sending(struct connection *c)
{
    if (c->half_closed || (c->message.state == MESSAGE_COMPLETE && evbuffer_get_length(input_of(c)) == 0)) {
        mark_lost(c);
        return;
    }
    shutdown(bufferevent_getfd(c->socket), SHUT_WR);
    evbuffer_drain(input_of(c), evbuffer_get_length(input_of(c)));
    set_phase(c, CONNECTION_LINGER, limits_of(c)->body_s);
}

static void discard(struct connection *c)
{
    size_t n = evbuffer_get_length(input_of(c));

    evbuffer_drain(input_of(c), n);
    c->n_discarded += n;
    if (c->n_discarded > (uint64_t)DISCARD_BODIES * limits_of(c)->body_bytes)
        mark_lost(c);
}

// ---- answers

// Hands the response to the socket for as long as the client reads it.
static void send_response(struct connection *c)
{
    struct http_exchange *x = c->exchange;
    enum exchange_step step = EXCHANGE_MORE;

    while (step == EXCHANGE_MORE && evbuffer_get_length(output_of(c)) < MOST_UNSENT) {
        step = exchange_go_on(x);
        if (evbuffer_add(output_of(c), x->out.at, x->out.n) != 0)
            step = EXCHANGE_BROKEN;
        x->out.n = 0;
    }
    if (step == EXCHANGE_BROKEN) {
        log_line(LOG_WARN, "server", "closing a connection: out of memory for an answer");
        mark_lost(c);
    } else if (step == EXCHANGE_DONE)
        set_phase(c, CONNECTION_FLUSH, 0);
}

static void begin_answer(struct connection *c)
{
    struct http_exchange *x = c->exchange;
    bool by_worker = !x->replied && !strcmp(x->route->method, "POST");

    set_phase(c, CONNECTION_ANSWER, limits_of(c)->keep_alive_s);
    if (by_worker && workers_add(c->io->http, x))
        return;
    if (by_worker)
        exchange_reply_error(x, 429, "all sequences and the queue are taken; try again");
    else if (!x->replied)
        exchange_answer(x);
    send_response(c);
}

void connection_go_on(struct connection *c)
{
    if (c->phase == CONNECTION_CLOSED) {
        connection_close(c);
        return;
    }
    send_response(c);
    close_if_lost(c);
}

// ---- requests

static bool on_head(void *arg)
{
    struct connection *c = arg;

    c->exchange = exchange_create(c->io->http, c->io, c, &c->message);
    set_phase(c, CONNECTION_BODY, limits_of(c)->body_s);
    return c->exchange && c->io->http->service->admit(c->exchange);
}

static bool on_body(void *arg, const char *bytes, size_t n)
{
    struct connection *c = arg;
    return exchange_take_body(c->exchange, bytes, n);
}

static const struct message_reader reader = { on_head, on_body };

// The bytes are no request, or an ambiguous one.
static void reject(struct connection *c)
{
    const struct message *m = &c->message;

    if (!c->exchange)
        c->exchange = exchange_create(c->io->http, c->io, c, m);
    struct http_exchange *x = c->exchange;
    if (!x)
        return;
    x->closes = true;
    if (m->state == MESSAGE_LARGE)
        exchange_reply_error(x, 431, "the head is larger than %u bytes", limits_of(c)->header_bytes);
    else
        exchange_reply_error(x, 400, "the request is not plain HTTP: %s", m->problem);
}

static bool expects_continue(const struct connection *c)
{
    const char *expects = message_field(&c->message, "expect", NULL);
    return expects && !strcasecmp(expects, "100-continue") && c->exchange->body.n == 0;
}

// Acts on the state of the message after a read.
static void handle_message(struct connection *c, bool in_head)
{
    bool bad = c->message.state == MESSAGE_BAD || c->message.state == MESSAGE_LARGE;

    if (bad && !(c->exchange && c->exchange->replied))
        reject(c);
    if (bad && !(c->exchange && c->exchange->replied))
        mark_lost(c);
    else if (bad || c->message.state == MESSAGE_COMPLETE)
        begin_answer(c);
    else if (in_head && c->phase == CONNECTION_BODY && expects_continue(c))
        evbuffer_add_printf(output_of(c), "HTTP/1.1 100 Continue\r\n\r\n");
}

static void read_requests(struct connection *c)
{
    size_t n;

    while ((c->phase == CONNECTION_HEAD || c->phase == CONNECTION_BODY) &&
           (n = evbuffer_get_contiguous_space(input_of(c))) > 0) {
        bool in_head = c->phase == CONNECTION_HEAD;
        size_t taken =
            message_read(&c->message, (const char *)evbuffer_pullup(input_of(c), (ev_ssize_t)n), n);
        evbuffer_drain(input_of(c), taken);
        handle_message(c, in_head);
    }
}

// ---- called for the socket and the clock

// The socket has the whole response.
static void finish_response(struct connection *c)
{
    bool closes = c->exchange->closes;

    exchange_destroy(c->exchange, true);
    c->exchange = NULL;
    if (closes) {
        finish_sending(c);
        return;
    }
    message_next(&c->message);
    set_phase(c, CONNECTION_HEAD, limits_of(c)->head_s);
    read_requests(c);
    if (c->half_closed && (c->phase == CONNECTION_HEAD || c->phase == CONNECTION_BODY))
        mark_lost(c);
}

static void on_readable(struct bufferevent *socket, void *arg)
{
    struct connection *c = arg;

    (void)socket;
    if (c->phase == CONNECTION_LINGER)
        discard(c);
    else
        read_requests(c);
    close_if_lost(c);
}

static void on_written(struct bufferevent *socket, void *arg)
{
    struct connection *c = arg;

    (void)socket;
    if (c->phase == CONNECTION_FLUSH)
        finish_response(c);
    else if (c->phase == CONNECTION_ANSWER && c->exchange->streams)
        send_response(c);
    close_if_lost(c);
}

static void on_event(struct bufferevent *socket, short what, void *arg)
{
    struct connection *c = arg;

    (void)socket;
    if (what & BEV_EVENT_EOF)
        c->half_closed = true;
    if (what & BEV_EVENT_TIMEOUT)
        abort_connection(c, "it takes no data");
    else if (!(what & BEV_EVENT_EOF) || c->phase != CONNECTION_FLUSH)
        mark_lost(c);
    close_if_lost(c);
}

static void on_time(int fd, short what, void *arg)
{
    struct connection *c = arg;

    (void)fd;
    (void)what;
    switch (c->phase) {
    case CONNECTION_HEAD:
        abort_connection(c, "no whole request in time");
        break;
    case CONNECTION_BODY:
        abort_connection(c, "the body takes too long");
        break;
    case CONNECTION_ANSWER:
        if (!c->exchange->busy && exchange_needs_keep_alive(c->exchange, clock_ns()))
            send_response(c);
        if (c->phase == CONNECTION_ANSWER)
            event_add(c->timer, &(struct timeval){ .tv_sec = limits_of(c)->keep_alive_s });
        break;
    default:
        mark_lost(c);
    }
    close_if_lost(c);
}

// ---- the beginning

// Closes the connection that has waited longest without a complete head.
static bool close_oldest(struct io_thread *io)
{
    struct connection *oldest = NULL;

    for (struct connection *c = io->connections; c; c = c->next)
        if (c->phase == CONNECTION_HEAD && (!oldest || c->since_ns < oldest->since_ns))
            oldest = c;
    if (oldest)
        connection_close(oldest);
    return oldest;
}

static bool open_socket(struct connection *c, int fd)
{
    struct event_base *base = c->io->base;
    const struct timeval write_time = { .tv_sec = limits_of(c)->write_s };

    c->timer = evtimer_new(base, on_time, c);
    c->socket = c->timer ? bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;
    if (!c->socket)
        return false;
    bufferevent_setcb(c->socket, on_readable, on_written, on_event, c);
    bufferevent_set_timeouts(c->socket, NULL, &write_time);
    bufferevent_setwatermark(c->socket, EV_READ, 0, MOST_UNREAD);
    bufferevent_set_max_single_read(c->socket, READ_BYTES);
    bufferevent_set_max_single_write(c->socket, WRITE_BYTES);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int));
    return bufferevent_enable(c->socket, EV_READ | EV_WRITE) == 0;
}

// False: the descriptor is still the caller's.
static bool add_connection(struct io_thread *io, int fd)
{
    struct connection *c = mem_alloc(sizeof *c);

    if (!c)
        return false;
    *c = (struct connection){ .io = io };
    if (!message_create(&c->message, &reader, limits_of(c)->header_bytes, c) || !open_socket(c, fd)) {
        if (c->timer)
            event_free(c->timer);
        message_destroy(&c->message);
        mem_free(c);
        return false;
    }
    c->next = io->connections;
    if (c->next)
        c->next->before = c;
    io->connections = c;
    set_phase(c, CONNECTION_HEAD, limits_of(c)->head_s);
    return true;
}

void connection_open(struct io_thread *io, int fd)
{
    struct io_threads *threads = &io->http->io;
    bool room = atomic_fetch_add(&threads->n_connections, 1) < threads->most_connections || close_oldest(io);

    if (room && add_connection(io, fd))
        return;
    if (room)
        log_line(LOG_WARN, "server", "closing a connection: out of memory for its requests");
    atomic_fetch_sub(&threads->n_connections, 1);
    close(fd);
}
