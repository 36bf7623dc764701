// http.c - see http.h. The checks are in admission.c, the replies in exchange.c; here is what libmicrohttpd calls.
#include "server/http.h"
#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/threads.h"
#include "server/admission.h"
#include "server/porch.h"
#include "server/routes.h"
#include "server/state.h"

enum { MAX_WORKERS = 4 };

static struct client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static void on_connection(void *arg, struct MHD_Connection *connection, void **context, enum MHD_ConnectionNotificationCode what)
{
    struct server *s = arg;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        if (*context)
            client_remove(&s->clients, *context);
        *context = NULL;
        return;
    }
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *context = info ? client_add(&s->clients, info->connect_fd) : NULL;
}

static struct exchange *exchange_create(struct server *s, struct MHD_Connection *connection, const char *path)
{
    struct exchange *x = mem_alloc(sizeof *x);
    size_t n = strlen(path);

    if (!x)
        return NULL;
    *x = (struct exchange){ .server = s, .connection = connection, .client = client_of(connection), .begun_ns = clock_ns() };
    x->path = mem_alloc(n + 1);
    if (!x->path || !x->client) {
        mem_free(x->path);
        mem_free(x);
        return NULL;
    }
    memcpy(x->path, path, n + 1);
    snprintf(x->id, sizeof x->id, "req_%016llx", (unsigned long long)talk_random());
    x->body.max = s->options->limits.body_bytes;
    atomic_fetch_add(&s->n_exchanges, 1);
    return x;
}

static void take_body(struct exchange *x, const char *data, size_t n)
{
    struct server *s = x->server;

    if (x->too_large || x->refused)
        return;
    if (n > s->options->limits.body_bytes - x->body.n) {
        x->too_large = true;
        n = 0;
    }
    if (atomic_fetch_add(&s->body_bytes, n) + n > s->options->limits.bodies_bytes)
        x->refused = true;
    x->n_counted += n;
    if (!x->refused && !x->too_large && !buf_append(&x->body, data, n))
        x->refused = true;
}

// The whole request is here. Called again each time the connection is resumed.
static bool answer(struct exchange *x)
{
    const struct server_limits *limits = &x->server->options->limits;

    if (x->talk)
        return exchange_go_on(x);
    if (x->too_large)
        return exchange_reply_error(x, 413, "the body is larger than %u bytes", limits->body_bytes);
    if (x->refused)
        return exchange_reply_error(x, 503, "too many large requests at once; try again");
    if (!x->route->answer(x))
        return false;
    exchange_forget_body(x);
    return x->replied || exchange_begin_talk(x);
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path, const char *method,
                                  const char *version, const char *data, size_t *n_data, void **context)
{
    struct server *s = arg;
    struct exchange *x = *context;

    (void)version;
    if (!x) {
        *context = x = exchange_create(s, connection, path);
        if (!x)
            return MHD_NO;
        client_set_phase(&s->clients, x->client, CLIENT_BODY, NULL);
        return admission_check(x, method) ? MHD_YES : x->replied ? MHD_YES : MHD_NO;
    }
    if (*n_data > 0) {
        x->n_received += *n_data;
        take_body(x, data, *n_data);
        *n_data = 0;
        return x->n_received <= 4 * (uint64_t)s->options->limits.body_bytes ? MHD_YES : MHD_NO;
    }
    if (x->replied)
        return MHD_YES;
    return answer(x) ? MHD_YES : MHD_NO;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **context, enum MHD_RequestTerminationCode code)
{
    struct server *s = arg;
    struct exchange *x = *context;

    (void)connection;
    if (!x)
        return;
    *context = NULL;
    client_set_phase(&s->clients, x->client, CLIENT_HEAD, NULL);
    exchange_log(x, code == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    metrics_answer(&s->metrics, x->status);
    exchange_forget_body(x);
    talk_end(x->talk);
    buf_free(&x->out);
    mem_free(x->path);
    mem_free(x);
    atomic_fetch_sub(&s->n_exchanges, 1);
}

// Paths stay as they were sent.
static size_t keep_escapes(void *arg, struct MHD_Connection *connection, char *text)
{
    (void)arg;
    (void)connection;
    return strlen(text);
}

static void on_log(void *arg, const char *format, va_list args)
{
    char line[300];

    (void)arg;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = 0;
    log_line(LOG_DEBUG, "http", "%s", line);
}

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool read_address(const struct server_options *o, union address *a, struct err *err)
{
    const char *host = !strcmp(o->host, "localhost") ? "127.0.0.1" : o->host;

    *a = (union address){ 0 };
    if (inet_pton(AF_INET, host, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons((uint16_t)o->port);
        return true;
    }
    if (inet_pton(AF_INET6, host, &a->v6.sin6_addr) == 1) {
        a->v6.sin6_family = AF_INET6;
        a->v6.sin6_port = htons((uint16_t)o->port);
        return true;
    }
    return err_set(err, ERR_INPUT, "--host %.100s: want an address, such as 127.0.0.1, ::1 or 0.0.0.0", o->host);
}

// As many connections as this process may open files, with some left for everything else. Half of the files are for the porch.
static u32 n_connections(const struct server_limits *limits)
{
    enum { OTHERS = 64 };
    const rlim_t wanted = 2 * (rlim_t)limits->n_connections + OTHERS;
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return limits->n_connections;
    if (files.rlim_cur < wanted) {
        files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
        setrlimit(RLIMIT_NOFILE, &files);
        getrlimit(RLIMIT_NOFILE, &files);
    }
    if (files.rlim_cur >= wanted)
        return limits->n_connections;
    u32 n = files.rlim_cur > 4 * OTHERS ? (u32)(files.rlim_cur - OTHERS) / 2 : OTHERS;
    log_line(LOG_WARN, "server", "this process may open %llu files only: at most %u connections",
             (unsigned long long)files.rlim_cur, n);
    return n;
}

static void take_connection(void *arg, int fd, const struct sockaddr *from, socklen_t from_bytes)
{
    struct server *s = arg;
    (void)MHD_add_connection(s->http, fd, from, from_bytes); // closes the socket where it fails
}

bool http_start(struct server *s, struct err *err)
{
    const struct server_limits *limits = &s->options->limits;
    union address address;
    unsigned n_workers = threads_available() < MAX_WORKERS ? threads_available() : MAX_WORKERS;
    // poll, not epoll: with its edge-triggered epoll libmicrohttpd 0.9.75 loses clients that reset their connection while it is
    // suspended. 6000 random disconnects left 2200 sockets open until their time was over; with poll none. See porch.h.
    unsigned flags =
        MHD_USE_POLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    u32 n_sockets = n_connections(limits);

    if (!read_address(s->options, &address, err))
        return false;
    // clang-format off
    s->http = MHD_start_daemon(flags, 0, NULL, NULL, on_request, s,
        MHD_OPTION_EXTERNAL_LOGGER, on_log, s,
        MHD_OPTION_THREAD_POOL_SIZE, n_workers > 1 ? n_workers : 2u,
        MHD_OPTION_CONNECTION_LIMIT, n_sockets,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)limits->header_bytes * 2,
        MHD_OPTION_CONNECTION_TIMEOUT, limits->body_s,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
        MHD_OPTION_NOTIFY_COMPLETED, on_completed, s,
        MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL,
        MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_END);
    // clang-format on
    if (!s->http)
        return err_set(err, ERR_MEMORY, "the HTTP server does not start");
    bool v6 = address.any.sa_family == AF_INET6;
    s->porch = porch_open(&(struct porch_options){ .address = &address.any,
                                                   .address_bytes = v6 ? sizeof address.v6 : sizeof address.v4,
                                                   .n_waiting = n_sockets,
                                                   .header_bytes = limits->header_bytes,
                                                   .head_s = limits->head_s,
                                                   .hand_over = take_connection,
                                                   .arg = s });
    if (!s->porch)
        return err_set(err, ERR_IO, "cannot listen on %s port %u: %s", s->options->host, s->options->port, strerror(errno));
    log_line(LOG_INFO, "server", "listening on http://%s%s%s:%u", v6 ? "[" : "", s->options->host, v6 ? "]" : "",
             porch_port(s->porch));
    return true;
}

void http_stop(struct server *s)
{
    porch_close(s->porch);
    s->porch = NULL;
    if (s->http)
        MHD_stop_daemon(s->http);
    s->http = NULL;
}
