// clients.c - see clients.h.
#include "server/clients.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "server/http.h"
#include "server/state.h"

#ifdef POLLRDHUP
enum { WATCHED = POLLRDHUP };
#else
enum { WATCHED = POLLIN }; // a client that sends its next request early is no longer watched
#endif
enum { TICK_MS = 1000 };

struct watch {
    struct pollfd *at; // the first is the pipe that wakes the thread
    uint64_t *ids;
    size_t n, capacity;
};

static void wake(struct clients *c)
{
    ssize_t n = write(c->wake[1], "", 1);
    (void)n; // the pipe is full: the thread wakes anyway
}

struct client *client_add(struct clients *c, int fd)
{
    struct client *client = mem_alloc(sizeof *client);

    if (!client)
        return NULL;
    pthread_mutex_lock(&c->lock);
    *client = (struct client){ .id = ++c->n_ids, .fd = fd, .since_ns = clock_ns(), .next = c->first };
    if (c->first)
        c->first->before = client;
    c->first = client;
    c->n++;
    pthread_mutex_unlock(&c->lock);
    return client;
}

void client_remove(struct clients *c, struct client *client)
{
    pthread_mutex_lock(&c->lock);
    if (client->before)
        client->before->next = client->next;
    else
        c->first = client->next;
    if (client->next)
        client->next->before = client->before;
    c->n--;
    pthread_mutex_unlock(&c->lock);
    mem_free(client);
}

void client_set_phase(struct clients *c, struct client *client, enum client_phase phase, struct exchange *exchange)
{
    pthread_mutex_lock(&c->lock);
    client->phase = phase;
    client->exchange = exchange;
    client->since_ns = clock_ns();
    pthread_mutex_unlock(&c->lock);
    if (phase == CLIENT_WAITING)
        wake(c);
}

// Lock held. The waiting clients' sockets; false without memory.
static bool collect(const struct clients *c, struct watch *w)
{
    if (w->capacity < (size_t)c->n + 1) {
        size_t capacity = (size_t)c->n * 2 + 64;
        struct pollfd *at = mem_realloc(w->at, capacity * sizeof *at);
        uint64_t *ids = at ? mem_realloc(w->ids, capacity * sizeof *ids) : NULL;
        w->at = at ? at : w->at;
        if (!ids)
            return false;
        w->ids = ids;
        w->capacity = capacity;
    }
    w->at[0] = (struct pollfd){ .fd = c->wake[0], .events = POLLIN };
    w->n = 1;
    for (const struct client *client = c->first; client; client = client->next)
        if (client->phase == CLIENT_WAITING && client->exchange && !exchange_is_gone(client->exchange)) {
            w->ids[w->n] = client->id;
            w->at[w->n++] = (struct pollfd){ .fd = client->fd, .events = WATCHED };
        }
    return true;
}

// The number of a socket may by now belong to someone else, so the answer is asked for again.
static bool has_left(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

#ifdef POLLRDHUP
    struct pollfd again = { .fd = fd, .events = POLLRDHUP };
    if (n > 0) // data before the end
        return poll(&again, 1, 0) == 1 && (again.revents & (POLLRDHUP | POLLHUP | POLLERR));
#endif
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

// Lock held.
static void look_at_sockets(struct clients *c, const struct watch *w)
{
    for (size_t i = 1; i < w->n; i++) {
        if (!w->at[i].revents)
            continue;
        struct client *client = c->first;
        while (client && client->id != w->ids[i])
            client = client->next;
        if (client && client->phase == CLIENT_WAITING && client->exchange && has_left(client->fd))
            exchange_client_left(client->exchange);
    }
}

static void cut(struct client *client, const char *why)
{
    const struct linger at_once = { .l_onoff = 1 }; // what it did not take is thrown away

    log_line(LOG_INFO, "server", "closing connection %llu: %s", (unsigned long long)client->id, why);
    setsockopt(client->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    shutdown(client->fd, SHUT_RDWR);
}

// Lock held.
static void look_at_clock(struct clients *c, const struct server_limits *limits)
{
    uint64_t now = clock_ns();

    for (struct client *client = c->first; client; client = client->next) {
        double seconds = (double)(now - client->since_ns) / 1e9;
        if (client->phase == CLIENT_HEAD && seconds > limits->head_s)
            cut(client, "no whole request in time");
        else if (client->phase == CLIENT_BODY && seconds > limits->body_s)
            cut(client, "the body takes too long");
        else if (client->phase == CLIENT_WAITING && client->exchange && exchange_tick(client->exchange, now))
            cut(client, "it takes no data");
    }
}

static void *watch_clients(void *arg)
{
    struct server *server = arg;
    struct clients *c = &server->clients;
    struct watch w = { 0 };
    uint64_t last_tick = clock_ns();
    char drain[64];

    pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        bool ok = collect(c, &w);
        pthread_mutex_unlock(&c->lock);
        int n = ok ? poll(w.at, (nfds_t)w.n, TICK_MS) : poll(NULL, 0, TICK_MS);
        if (ok && n > 0 && w.at[0].revents)
            while (read(c->wake[0], drain, sizeof drain) == (ssize_t)sizeof drain)
                ;
        pthread_mutex_lock(&c->lock);
        if (ok && n > 0)
            look_at_sockets(c, &w);
        if (clock_ns() - last_tick > TICK_MS * 900000ull) {
            last_tick = clock_ns();
            look_at_clock(c, &server->options->limits);
        }
    }
    pthread_mutex_unlock(&c->lock);
    mem_free(w.at);
    mem_free(w.ids);
    return NULL;
}

bool clients_create(struct clients *c, struct server *server, struct err *err)
{
    pthread_mutex_init(&c->lock, NULL);
    c->wake[0] = c->wake[1] = -1;
    if (pipe(c->wake) != 0)
        return err_set(err, ERR_IO, "pipe: %s", strerror(errno));
    for (int i = 0; i < 2; i++)
        fcntl(c->wake[i], F_SETFL, O_NONBLOCK);
    c->running = pthread_create(&c->thread, NULL, watch_clients, server) == 0;
    return c->running || err_set(err, ERR_MEMORY, "no thread for watching clients");
}

void clients_destroy(struct clients *c)
{
    pthread_mutex_lock(&c->lock);
    c->stop = true;
    pthread_mutex_unlock(&c->lock);
    if (c->running) {
        wake(c);
        pthread_join(c->thread, NULL);
    }
    close(c->wake[0]);
    close(c->wake[1]);
    pthread_mutex_destroy(&c->lock);
}
