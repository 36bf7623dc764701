// io.c - see io.h.
#include "server/http/io.h"
#include <errno.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/thread_pool.h"
#include "server/http/connection.h"
#include "server/http/http.h"

enum io_signal { SIGNAL_POSTED = -1, SIGNAL_STOP = -2 };
enum { MORE_TRIES = 3 };

// A number that is not sent leaves a client without an answer.
static bool send_number(struct io_thread *io, int number)
{
    ssize_t n = write(io->pipe[1], &number, sizeof number);

    for (int tries = 0; n < 0 && errno != EAGAIN && (errno == EINTR || tries < MORE_TRIES); tries++)
        n = write(io->pipe[1], &number, sizeof number);
    return n == (ssize_t)sizeof number;
}

bool io_assign(struct io_threads *threads, int fd)
{
    return send_number(&threads->at[atomic_fetch_add(&threads->n_taken, 1) % threads->n], fd);
}

void io_post(struct io_thread *io, struct http_exchange *x)
{
    bool first = !io->posted;

    if (x->posted) // it went on for another reason, and sleeps again; its place in the list stays
        return;
    x->posted = true;
    x->next = io->posted;
    io->posted = x;
    if (first) // should the pipe be full, what is in it wakes the thread
        send_number(io, SIGNAL_POSTED);
}

void io_forget(struct io_thread *io, struct http_exchange *x)
{
    pthread_mutex_lock(io->http->lock);
    struct http_exchange **at = &io->posted;
    while (x->posted && *at != x)
        at = &(*at)->next;
    if (x->posted)
        *at = x->next;
    pthread_mutex_unlock(io->http->lock);
}

static struct http_exchange *next_posted(struct io_thread *io)
{
    pthread_mutex_lock(io->http->lock);
    struct http_exchange *x = io->posted;
    if (x) {
        io->posted = x->next;
        x->posted = false;
    }
    pthread_mutex_unlock(io->http->lock);
    return x;
}

static void take_posted(struct io_thread *io)
{
    for (struct http_exchange *x = next_posted(io); x; x = next_posted(io)) {
        x->busy = false;
        connection_go_on(x->connection);
    }
}

static void on_wakeup(int fd, short what, void *arg)
{
    struct io_thread *io = arg;
    int numbers[64];
    ssize_t n;

    (void)what;
    while ((n = read(fd, numbers, sizeof numbers)) > 0 || (n < 0 && errno == EINTR))
        for (size_t i = 0; n > 0 && i < (size_t)n / sizeof *numbers; i++) {
            if (numbers[i] >= 0)
                connection_open(io, numbers[i]);
            io->stopping |= numbers[i] == SIGNAL_STOP;
        }
    take_posted(io);
    if (io->stopping)
        event_base_loopbreak(io->base);
}

static void *run(void *arg)
{
    struct io_thread *io = arg;

    thread_name("ingot http");
    event_base_dispatch(io->base);
    take_posted(io);
    while (io->connections)
        connection_close(io->connections);
    return NULL;
}

static bool open_one(struct io_thread *io, struct http *http)
{
    *io = (struct io_thread){ .http = http, .base = event_base_new(), .pipe = { -1, -1 } };
    if (!io->base || pipe(io->pipe) != 0)
        return false;
    for (int i = 0; i < 2; i++) {
        fcntl(io->pipe[i], F_SETFL, O_NONBLOCK);
        fcntl(io->pipe[i], F_SETFD, FD_CLOEXEC);
    }
    io->wakeup = event_new(io->base, io->pipe[0], EV_READ | EV_PERSIST, on_wakeup, io);
    return io->wakeup && event_add(io->wakeup, NULL) == 0;
}

bool io_open(struct http *http)
{
    u32 n = thread_count_available() < IO_MAX_THREADS ? thread_count_available() : IO_MAX_THREADS;
    bool ok = true;

    n = n < 2 ? 2 : n;
    for (http->io.n = 0; ok && http->io.n < n; http->io.n++)
        ok = open_one(&http->io.at[http->io.n], http);
    return ok;
}

bool io_start(struct http *http)
{
    for (u32 i = 0; i < http->io.n; i++) {
        http->io.at[i].running = pthread_create(&http->io.at[i].thread, NULL, run, &http->io.at[i]) == 0;
        if (!http->io.at[i].running)
            return false;
    }
    return true;
}

static void release(struct io_thread *io)
{
    if (io->wakeup)
        event_free(io->wakeup);
    if (io->base)
        event_base_free(io->base);
    for (int i = 0; i < 2; i++)
        if (io->pipe[i] >= 0)
            close(io->pipe[i]);
}

void io_stop(struct http *http)
{
    for (u32 i = 0; i < http->io.n; i++)
        if (http->io.at[i].running)
            while (!send_number(&http->io.at[i], SIGNAL_STOP) && (errno == EAGAIN || errno == EINTR))
                ;
    for (u32 i = 0; i < http->io.n; i++)
        if (http->io.at[i].running)
            pthread_join(http->io.at[i].thread, NULL);
    if (http->listener)
        evconnlistener_free(http->listener);
    http->listener = NULL;
    for (u32 i = 0; i < http->io.n; i++)
        release(&http->io.at[i]);
    http->io.n = 0;
}
