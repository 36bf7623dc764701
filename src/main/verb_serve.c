// verb_serve.c - ingot serve: the model behind HTTP. Here are the options and the signals; the server itself
// is in src/server.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>
#include "base/log.h"
#include "main/settings.h"
#include "main/terminal/fail.h"
#include "main/terminal/signals.h"

#ifdef INGOT_SERVER
#include "engine/ranks/ranks.h"
#include "main/following.h"
#include "main/loading.h"
#include "main/prefill_client.h"
#include "server/server.h"

static int stop_pipe[2];

static void on_stop(int signal)
{
    int kept = errno;

    while (write(stop_pipe[1], "", 1) < 0 && errno == EINTR) // a full pipe holds stops enough
        ;
    if (signal == SIGTERM)
        ranks_alarm();
    errno = kept;
}

static bool catch_stops(void)
{
    struct sigaction action = { .sa_handler = on_stop };

    if (pipe(stop_pipe) != 0)
        return false;
    for (int i = 0; i < 2; i++)
        fcntl(stop_pipe[i], F_SETFD, FD_CLOEXEC);
    fcntl(stop_pipe[1], F_SETFL, O_NONBLOCK);
    sigemptyset(&action.sa_mask);
    return sigaction(SIGTERM, &action, NULL) == 0 && sigaction(SIGINT, &action, NULL) == 0;
}

static struct server_limits limits_from(const struct settings *s)
{
    struct server_limits limits = server_limits_default;

    limits.n_queued = s->n_queued;
    limits.body_bytes = s->body_mib << 20;
    limits.drain_s = s->drain_s;
    limits.keep_alive_s = s->keep_alive_s;
    limits.write_s = s->write_s;
    if (limits.bodies_bytes < limits.body_bytes)
        limits.bodies_bytes = limits.body_bytes;
    return limits;
}

// As a browser sends it: SCHEME://HOST[:PORT].
static bool is_origin(const char *text)
{
    const char *host = strstr(text, "://");

    return host ? host > text && host[3] && !strchr(host + 3, '/') : !strcmp(text, "null");
}

static int check(const struct settings *s)
{
    for (size_t i = 0; i < s->api_keys.n; i++)
        if (!*s->api_keys.at[i])
            return fail_usage("--api-key: it is empty; give a key, or leave it out");
    for (size_t i = 0; i < s->origins.n; i++)
        if (!is_origin(s->origins.at[i]))
            return fail_usage("--cors-origin: found '%.80s', expected an origin such as https://app.example",
                              s->origins.at[i]);
    return STATUS_OK;
}

static bool read_role(const struct settings *s, struct server_options *o, struct prefill_client *client,
                      struct err *err)
{
    bool decodes = !strcmp(s->role, "decode");

    o->gives_pages = !strcmp(s->role, "prefill");
    if (decodes && !s->prefill)
        return err_set(err, ERR_INPUT,
                       "--role decode needs --prefill http://HOST:PORT, the server of --role prefill");
    if (!decodes && s->prefill)
        return err_set(err, ERR_INPUT, "--prefill is for --role decode");
    if (!decodes)
        return true;
    o->prefetch = &client->options;
    return prefill_client_open(client, s, err);
}

int verb_serve(const struct verb_call *call)
{
    const struct settings *s = call->settings;
    struct prefill_client client = { 0 };
    struct server_options options = {
        .host = s->host,
        .port = s->port,
        .name = s->alias,
        .api_keys = s->api_keys.at,
        .n_api_keys = s->api_keys.n,
        .origins = s->origins.at,
        .n_origins = s->origins.n,
        .strict = s->strict,
        .no_shared_prefix = s->no_shared_prefix,
        .limits = limits_from(s),
        .engine = loading_options(s),
    };
    struct err err = { 0 };
    int status = check(s);

    if (status != STATUS_OK)
        return status;
    if (!read_role(s, &options, &client, &err))
        return fail_status(err.code == ERR_INPUT ? STATUS_USAGE : STATUS_ERROR, "%s", err.message);
    options.engine.n_sequences = s->n_parallel;
    options.engine.n_kv_tokens = s->n_kv_tokens;
    options.engine.step_stretch = s->step_stretch;
    if (log_enabled(LOG_WARN) && !log_enabled(LOG_INFO)) // one line per request unless --log error
        log_level_set(LOG_INFO);
    status = following(&options.engine);
    if (status >= 0)
        return status;
    log_line(LOG_INFO, "server", "loading %.300s",
             s->model ? s->model : "the toy inside ingot; 'ingot serve MODEL' takes a real one");
    if (!catch_stops())
        return fail("no pipe for signals");
    options.stop_fd = stop_pipe[0];
    signals_name_file(s->model);
    following_watch(stop_pipe[1]);
    bool ok = server_run(&options, &err);
    prefill_client_close(&client);
    return following_status(ok ? STATUS_OK : fail(err.message));
}
#else
int verb_serve(const struct verb_call *call)
{
    (void)call;
    return fail("this build has no server: libevent, or llhttp, was not found when it was built");
}
#endif
