// http.c - see http.h. Here: the address, the listening socket, and the order in which the threads behind it
// start and end.
#include "server/http/http.h"
#include <arpa/inet.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/log.h"

enum { BACKLOG = 511 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool read_address(const char *host, u32 port, union address *a, struct err *err)
{
    const char *number = !strcmp(host, "localhost") ? "127.0.0.1" : host;

    *a = (union address){ 0 };
    if (inet_pton(AF_INET, number, &a->v4.sin_addr) == 1) {
        a->v4.sin_family = AF_INET;
        a->v4.sin_port = htons((uint16_t)port);
        return true;
    }
    if (inet_pton(AF_INET6, number, &a->v6.sin6_addr) == 1) {
        a->v6.sin6_family = AF_INET6;
        a->v6.sin6_port = htons((uint16_t)port);
        return true;
    }
    return err_set(err, ERR_INPUT, "--host %.100s: want an address, such as 127.0.0.1, ::1 or 0.0.0.0", host);
}

static socklen_t address_bytes(const union address *a)
{
    return a->any.sa_family == AF_INET6 ? sizeof a->v6 : sizeof a->v4;
}

// The number of connections that the limit of open files allows, with some files left for everything else.
static u32 n_connections(const struct server_limits *limits)
{
    enum { OTHERS = 64 };
    const rlim_t wanted = (rlim_t)limits->n_connections + OTHERS;
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
    u32 n = files.rlim_cur > 2 * OTHERS ? (u32)(files.rlim_cur - OTHERS) : OTHERS;
    log_line(LOG_WARN, "server", "this process may open %llu files only: at most %u connections",
             (unsigned long long)files.rlim_cur, n);
    return n;
}

static int listen_on(const union address *a)
{
    int fd = socket(a->any.sa_family, SOCK_STREAM, 0);
    const int yes = 1;

    if (fd < 0)
        return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (a->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (bind(fd, &a->any, address_bytes(a)) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static u32 port_of(int fd)
{
    union address a;
    socklen_t n = sizeof a;

    if (getsockname(fd, &a.any, &n) != 0)
        return 0;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

static void on_connection(struct evconnlistener *listener, int fd, struct sockaddr *from, int n, void *arg)
{
    struct http *http = arg;

    (void)listener;
    (void)from;
    (void)n;
    if (!io_assign(&http->io, fd))
        close(fd);
}

static void on_no_connection(struct evconnlistener *listener, void *arg)
{
    (void)listener;
    (void)arg;
    poll(NULL, 0, 10); // no descriptor or no memory: wait until others release some
}

static bool accept_connections(struct http *http, int fd)
{
    http->listener = evconnlistener_new(http->io.at[0].base, on_connection, http,
                                        LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fd);
    if (http->listener)
        evconnlistener_set_error_cb(http->listener, on_no_connection);
    return http->listener;
}

void http_create(struct http *http)
{
    workers_create(http);
}

void http_destroy(struct http *http)
{
    workers_destroy(http);
}

bool http_start(struct http *http, const char *host, u32 port, struct err *err)
{
    union address address;

    signal(SIGPIPE, SIG_IGN); // write() reports a client that left
    http->io.most_connections = n_connections(http->limits);
    if (!read_address(host, port, &address, err))
        return false;
    int fd = listen_on(&address);
    if (fd < 0)
        return err_set(err, ERR_IO, "cannot listen on %s port %u: %s", host, port, strerror(errno));
    bool v6 = address.any.sa_family == AF_INET6;
    u32 bound = port_of(fd);
    if (!io_open(http) || !accept_connections(http, fd) || !workers_start(http) || !io_start(http)) {
        if (!http->listener)
            close(fd);
        return err_set(err, ERR_MEMORY, "the HTTP server does not start");
    }
    log_line(LOG_NOTICE, "server", "listening on http://%s%s%s:%u", v6 ? "[" : "", host, v6 ? "]" : "",
             bound);
    return true;
}

void http_stop(struct http *http)
{
    workers_stop(http);
    io_stop(http);
}
