// server.c - see server.h: the order in which things start and end.
//
// Start: the socket and the I/O threads, then the engine's thread, which loads the model. End: the first stop
// ends readiness and lets answers finish; after the drain time the rest ends with an error; then the socket,
// the engine's thread, and the rest end.
#include "server/server.h"
#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "server/answer.h"
#include "server/http/auth.h"
#include "server/state.h"

enum { FLUSH_MS = 5000 }; // after the drain, for errors to reach the clients; a tenth where it was cut short

static bool on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct server *s = arg;

    atomic_store(&s->progress, total ? (unsigned)(done * 1000.0 / (double)total) : 0);
    return server_phase(s) == PHASE_LOADING;
}

static void choose_name(struct server *s)
{
    snprintf(s->model.name, sizeof s->model.name, "%s",
             s->options->name ? s->options->name : s->model.info.model_name);
    for (char *c = s->model.name; *c; c++) // other programs put names into headers: plain ASCII
        *c = *c >= 0x20 && *c < 0x7f ? *c : '?';
}

static bool open_roles(struct server *s)
{
    struct ingot_engine *engine = s->model.engine;

    return (!s->options->gives_pages ||
            ingot_pages_info(engine, &s->pages, (struct ingot_error *)&s->failure)) &&
           prefetch_start(&s->model.prefetch, engine, &s->failure);
}

static bool load(struct server *s)
{
    struct ingot_engine_options options = s->options->engine;
    uint64_t begun = clock_ns();

    options.progress = on_progress;
    options.progress_arg = s;
    s->model.engine = ingot_engine_open(&options, (struct ingot_error *)&s->failure);
    if (!s->model.engine)
        return false;
    ingot_engine_info(s->model.engine, &s->model.info);
    ingot_template_info(s->model.engine, &s->model.template);
    s->model.loaded_at = (int64_t)time(NULL);
    choose_name(s);
    s->model.thread.engine = s->model.engine;
    s->model.thread.metrics = &s->model.metrics;
    if (!open_roles(s)) {
        ingot_engine_close(s->model.engine);
        s->model.engine = NULL;
        return false;
    }
    s->model.thread.most_active = s->model.info.n_sequences + s->options->limits.n_queued;
    log_line(LOG_INFO, "server", "%s: %s, %u sequence%s of %u tokens, loaded in %.0f ms", s->model.name,
             s->model.info.format, s->model.info.n_sequences, str_plural(s->model.info.n_sequences),
             s->model.info.n_context, (double)(clock_ns() - begun) / 1e6);
    return true;
}

static void *run_engine(void *arg)
{
    struct server *s = arg;
    int loading = PHASE_LOADING;

    thread_name("ingot engine");
    if (load(s)) {
        atomic_compare_exchange_strong(&s->phase, &loading, PHASE_READY);
        engine_thread_run(&s->model.thread);
        ingot_engine_close(s->model.engine);
    } else {
        atomic_compare_exchange_strong(&s->phase, &loading, PHASE_FAILED);
    }
    close(s->wake_pipe[1]);
    s->wake_pipe[1] = -1;
    return NULL;
}

// Waits for the next stop byte. False when there was none in time, or the engine's thread has ended (*ended).
static bool wait_stop(struct server *s, int timeout_ms, bool *ended)
{
    struct pollfd fds[] = { { .fd = s->options->stop_fd, .events = POLLIN },
                            { .fd = s->wake_pipe[0], .events = POLLIN } };
    char byte;

    if (poll(fds, 2, timeout_ms) <= 0)
        return false;
    *ended = fds[1].revents != 0;
    return fds[0].revents && read(s->options->stop_fd, &byte, 1) == 1;
}

// True: a second stop came, which means at once.
static bool wait_idle(struct server *s, uint64_t until_ns)
{
    bool ended = false;

    while (atomic_load(&s->http.n_exchanges) > 0 && clock_ns() < until_ns && !ended)
        if (wait_stop(s, 20, &ended))
            return true;
    return false;
}

static void drain(struct server *s)
{
    const struct server_limits *limits = &s->options->limits;
    unsigned n = atomic_load(&s->http.n_exchanges);

    atomic_store(&s->phase, PHASE_DRAINING);
    log_line(LOG_INFO, "server", "stopping: %u request%s may take up to %u s to finish", n, str_plural(n),
             limits->drain_s);
    bool now = wait_idle(s, clock_ns() + limits->drain_s * 1000000000ull);
    if ((n = atomic_load(&s->http.n_exchanges)) > 0) {
        log_line(LOG_WARN, "server", "%u request%s cut off with an error", n, str_plural(n));
        engine_thread_cancel_all(&s->model.thread);
        wait_idle(s, clock_ns() + FLUSH_MS * (now ? 100000ull : 1000000ull));
    }
}

static bool serve(struct server *s, struct err *err)
{
    pthread_t thread;
    bool ended = false;

    if (pthread_create(&thread, NULL, run_engine, s) != 0)
        return err_set(err, ERR_MEMORY, "no thread for the engine");
    while (!ended && !wait_stop(s, -1, &ended))
        ;
    bool failed = server_phase(s) == PHASE_FAILED;
    if (!failed)
        drain(s);
    http_stop(&s->http); // ends every exchange, and with it every generation
    prefetch_stop(&s->model.prefetch);
    engine_thread_stop(&s->model.thread);
    pthread_join(thread, NULL);
    if (failed)
        *err = s->failure;
    return !failed;
}

bool server_run(const struct server_options *options, struct err *err)
{
    struct server s = { .options = options,
                        .loopback = auth_address_is_loopback(options->host),
                        .model = { .limits = &options->limits,
                                   .no_shared_prefix = options->no_shared_prefix },
                        .http = { .service = &answer_service,
                                  .limits = &options->limits,
                                  .server = &s,
                                  .lock = &s.model.thread.lock } };

    if (pipe(s.wake_pipe) != 0)
        return err_set(err, ERR_IO, "pipe: %s", strerror(errno));
    json_object_seed(0);
    engine_thread_create(&s.model.thread);
    metrics_create(&s.model.metrics);
    prefetch_create(&s.model.prefetch, options->prefetch, &s.model.thread);
    limits_log(&options->limits);
    if (!s.loopback && options->n_api_keys == 0)
        log_line(LOG_WARN, "server", "--host %s without --api-key: whoever reaches this machine may ask",
                 options->host);
    http_create(&s.http);
    bool ok = http_start(&s.http, options->host, options->port, err) && serve(&s, err);
    http_stop(&s.http);
    http_destroy(&s.http);
    prefetch_destroy(&s.model.prefetch);
    metrics_destroy(&s.model.metrics);
    engine_thread_destroy(&s.model.thread);
    close(s.wake_pipe[0]);
    if (s.wake_pipe[1] >= 0)
        close(s.wake_pipe[1]);
    if (ok)
        log_line(LOG_INFO, "server", "stopped");
    return ok;
}
