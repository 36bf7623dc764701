// io.c - see io.h.
#include "server/io.h"
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/thread_pool.h"
#include "server/connection.h"
#include "server/http.h"
#include "server/state.h"

enum word { WORD_POSTED = -1, WORD_STOP = -2 };

static bool tell(struct io *io, int what)
{
    return write(io->pipe[1], &what, sizeof what) == (ssize_t)sizeof what;
}

bool io_give(struct io_threads *threads, int fd)
{
    return tell(&threads->at[atomic_fetch_add(&threads->n_taken, 1) % threads->n], fd);
}

void io_post(struct io *io, struct exchange *x)
{
    bool first = !io->posted;

    if (x->posted) // it went on for another reason, and sleeps again
        return;
    x->posted = true;
    x->next = io->posted;
    io->posted = x;
    if (first)
        tell(io, WORD_POSTED); // a full pipe wakes it too
}

void io_forget(struct io *io, struct exchange *x)
{
    struct runner *r = &io->server->runner;

    pthread_mutex_lock(&r->lock);
    struct exchange **at = &io->posted;
    while (x->posted && *at != x)
        at = &(*at)->next;
    if (x->posted)
        *at = x->next;
    pthread_mutex_unlock(&r->lock);
}

static struct exchange *next_posted(struct io *io)
{
    struct runner *r = &io->server->runner;

    pthread_mutex_lock(&r->lock);
    struct exchange *x = io->posted;
    if (x) {
        io->posted = x->next;
        x->posted = false;
    }
    pthread_mutex_unlock(&r->lock);
    return x;
}

static void take_posted(struct io *io)
{
    for (struct exchange *x = next_posted(io); x; x = next_posted(io)) {
        x->busy = false;
        connection_go_on(x->connection);
    }
}

static void on_heard(int fd, short what, void *arg)
{
    struct io *io = arg;
    int words[64];
    ssize_t n;

    (void)what;
    while ((n = read(fd, words, sizeof words)) > 0)
        for (size_t i = 0; i < (size_t)n / sizeof *words; i++) {
            if (words[i] >= 0)
                connection_open(io, words[i]);
            io->stopping |= words[i] == WORD_STOP;
        }
    take_posted(io);
    if (io->stopping)
        event_base_loopbreak(io->base);
}

static void *run(void *arg)
{
    struct io *io = arg;

    event_base_dispatch(io->base);
    take_posted(io);
    while (io->connections)
        connection_close(io->connections);
    return NULL;
}

static bool open_one(struct io *io, struct server *s)
{
    *io = (struct io){ .server = s, .base = event_base_new(), .pipe = { -1, -1 } };
    if (!io->base || pipe(io->pipe) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        fcntl(io->pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(io->pipe[i], F_SETFD, FD_CLOEXEC);
    }
    io->heard = event_new(io->base, io->pipe[0], EV_READ | EV_PERSIST, on_heard, io);
    return io->heard && event_add(io->heard, NULL) == 0;
}

bool io_open(struct server *s)
{
    u32 n = thread_count_available() < IO_MAX_THREADS ? thread_count_available() : IO_MAX_THREADS;
    bool ok = true;

    n = n < 2 ? 2 : n;
    for (s->io.n = 0; ok && s->io.n < n; s->io.n++)
        ok = open_one(&s->io.at[s->io.n], s);
    return ok;
}

bool io_start(struct server *s)
{
    for (u32 i = 0; i < s->io.n; i++) {
        s->io.at[i].running = pthread_create(&s->io.at[i].thread, NULL, run, &s->io.at[i]) == 0;
        if (!s->io.at[i].running)
            return false;
    }
    return true;
}

static void release(struct io *io)
{
    if (io->heard)
        event_free(io->heard);
    if (io->base)
        event_base_free(io->base);
    for (int i = 0; i < 2; i++)
        if (io->pipe[i] >= 0)
            close(io->pipe[i]);
}

void io_stop(struct server *s)
{
    for (u32 i = 0; i < s->io.n; i++)
        if (s->io.at[i].running)
            while (!tell(&s->io.at[i], WORD_STOP) && (errno == EAGAIN || errno == EINTR))
                ;
    for (u32 i = 0; i < s->io.n; i++)
        if (s->io.at[i].running)
            pthread_join(s->io.at[i].thread, NULL);
    if (s->listener)
        evconnlistener_free(s->listener);
    s->listener = NULL;
    for (u32 i = 0; i < s->io.n; i++)
        release(&s->io.at[i]);
    s->io.n = 0;
}
