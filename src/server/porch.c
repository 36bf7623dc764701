// porch.c - see porch.h.
//
// A socket whose bytes stay unread would wake poll() without end. SO_RCVLOWAT asks to be woken by one byte more than was seen.
#include "server/porch.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

enum { TICK_MS = 1000, BACKLOG = 511, FIRST_SOCKET = 2 }; // FIRST_SOCKET: behind the pipe and the listening one

struct visitor {
    int fd;
    uint64_t since_ns;
    size_t n_seen; // bytes of the head
    struct sockaddr_storage from;
    socklen_t from_bytes;
};

struct porch {
    struct porch_options options;
    pthread_t thread;
    int listening, stop[2];
    struct visitor *visitors; // [n_waiting], those who wait longest first
    struct pollfd *polled;    // [FIRST_SOCKET + n_waiting]
    u32 n;
    char *head; // [header_bytes], to look at
};

enum verdict { STAYS, IS_WHOLE, IS_LOST };

static bool has_end(struct str head)
{
    return str_find(head, STR("\r\n\r\n")) != SIZE_MAX || str_find(head, STR("\n\n")) != SIZE_MAX;
}

static enum verdict look(struct porch *p, struct visitor *v)
{
    ssize_t n = recv(v->fd, p->head, p->options.header_bytes, MSG_PEEK | MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? STAYS : IS_LOST;
    if ((size_t)n == p->options.header_bytes || has_end((struct str){ p->head, (size_t)n }))
        return IS_WHOLE;
    if ((size_t)n <= v->n_seen) // woken, and not by a byte more: nothing more will come
        return IS_LOST;
    v->n_seen = (size_t)n;
    return setsockopt(v->fd, SOL_SOCKET, SO_RCVLOWAT, &(int){ (int)n + 1 }, sizeof(int)) == 0 ? STAYS : IS_WHOLE;
}

static void hand_over(const struct porch *p, const struct visitor *v)
{
    setsockopt(v->fd, SOL_SOCKET, SO_RCVLOWAT, &(int){ 1 }, sizeof(int));
    p->options.hand_over(p->options.arg, v->fd, (const struct sockaddr *)&v->from, v->from_bytes);
}

static enum verdict judge(struct porch *p, struct visitor *v, bool stirs, uint64_t now_ns)
{
    enum verdict verdict = stirs ? look(p, v) : STAYS;

    if (verdict != STAYS || now_ns - v->since_ns <= p->options.head_s * 1000000000ull)
        return verdict;
    log_line(LOG_INFO, "server", "closing a connection: no whole request in time");
    return IS_LOST;
}

static void look_at_all(struct porch *p)
{
    uint64_t now_ns = clock_ns();
    u32 n_left = 0;

    for (u32 i = 0; i < p->n; i++) {
        struct visitor *v = &p->visitors[i];
        switch (judge(p, v, p->polled[FIRST_SOCKET + i].revents != 0, now_ns)) {
        case STAYS:
            p->visitors[n_left++] = *v;
            break;
        case IS_WHOLE:
            hand_over(p, v);
            break;
        case IS_LOST:
            close(v->fd);
            break;
        }
    }
    p->n = n_left;
}

static void drop_oldest(struct porch *p)
{
    close(p->visitors[0].fd);
    memmove(p->visitors, p->visitors + 1, --p->n * sizeof *p->visitors);
}

// Most heads come with the connection, so it is looked at before it waits.
static void let_in(struct porch *p, struct visitor *v)
{
    fcntl(v->fd, F_SETFD, FD_CLOEXEC);
    fcntl(v->fd, F_SETFL, O_NONBLOCK);
    enum verdict verdict = look(p, v);
    if (verdict == IS_WHOLE) {
        hand_over(p, v);
        return;
    }
    if (verdict == IS_LOST) {
        close(v->fd);
        return;
    }
    if (p->n == p->options.n_waiting)
        drop_oldest(p);
    p->visitors[p->n++] = *v;
}

static void accept_all(struct porch *p)
{
    for (;;) {
        struct visitor v = { .since_ns = clock_ns(), .from_bytes = sizeof v.from };
        v.fd = accept(p->listening, (struct sockaddr *)&v.from, &v.from_bytes);
        if (v.fd >= 0) {
            let_in(p, &v);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (p->n > 0)
                drop_oldest(p);
            else
                poll(NULL, 0, 10); // what is missing is held elsewhere
            return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;
        }
    }
}

static void *watch(void *arg)
{
    struct porch *p = arg;

    for (;;) {
        p->polled[0] = (struct pollfd){ .fd = p->stop[0], .events = POLLIN };
        p->polled[1] = (struct pollfd){ .fd = p->listening, .events = POLLIN };
        for (u32 i = 0; i < p->n; i++)
            p->polled[FIRST_SOCKET + i] = (struct pollfd){ .fd = p->visitors[i].fd, .events = POLLIN };
        if (poll(p->polled, FIRST_SOCKET + p->n, TICK_MS) < 0)
            continue;
        if (p->polled[0].revents)
            return NULL;
        look_at_all(p);
        if (p->polled[1].revents)
            accept_all(p);
    }
}

static int listen_on(const struct porch_options *o)
{
    int fd = socket(o->address->sa_family, SOCK_STREAM, 0);
    const int yes = 1;

    if (fd < 0)
        return -1;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (o->address->sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (bind(fd, o->address, o->address_bytes) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

static void release(struct porch *p)
{
    int why = errno;

    for (u32 i = 0; i < p->n; i++)
        close(p->visitors[i].fd);
    for (int i = 0; i < 2; i++)
        if (p->stop[i] >= 0)
            close(p->stop[i]);
    if (p->listening >= 0)
        close(p->listening);
    mem_free(p->visitors);
    mem_free(p->polled);
    mem_free(p->head);
    mem_free(p);
    errno = why;
}

struct porch *porch_open(const struct porch_options *options)
{
    struct porch *p = mem_alloc(sizeof *p);

    if (!p)
        return NULL;
    *p = (struct porch){ .options = *options, .listening = listen_on(options), .stop = { -1, -1 } };
    p->visitors = mem_alloc_array(options->n_waiting, sizeof *p->visitors);
    p->polled = mem_alloc_array(options->n_waiting + FIRST_SOCKET, sizeof *p->polled);
    p->head = mem_alloc(options->header_bytes);
    if (p->listening < 0 || !p->visitors || !p->polled || !p->head || pipe(p->stop) != 0 ||
        (errno = pthread_create(&p->thread, NULL, watch, p)) != 0) {
        release(p);
        return NULL;
    }
    return p;
}

u32 porch_port(const struct porch *porch)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a;
    socklen_t n = sizeof a;

    if (getsockname(porch->listening, &a.any, &n) != 0)
        return 0;
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

void porch_close(struct porch *porch)
{
    if (!porch)
        return;
    close(porch->stop[1]); // the thread sees the pipe's end
    porch->stop[1] = -1;
    pthread_join(porch->thread, NULL);
    release(porch);
}
