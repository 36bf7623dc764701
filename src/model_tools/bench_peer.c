// bench_peer.c - see bench_peer.h. The program's stderr is dropped unless it fails: then its last line is
// part of the message.
#include "model_tools/bench_peer.h"
#include <errno.h>
#include <jansson.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OUTPUT_MAX_BYTES = 1 << 22, MAX_WORDS = 24 };
extern char **environ;

// The speed of the test in the program's output: an array of objects with n_prompt, n_gen, n_depth and
// avg_ts.
static bool parse_speed(struct str json, const struct bench_test *test, double *tokens_per_second,
                        struct err *err)
{
    json_error_t where;
    json_t *rows = json_loadb(json.at, json.n, 0, &where), *row;
    size_t i;

    if (!rows)
        return err_set(err, ERR_INPUT, "the peer's output is no JSON: line %d: %s", where.line, where.text);
    json_array_foreach(rows, i, row)
    {
        const json_t *speed = json_object_get(row, "avg_ts");
        if (json_integer_value(json_object_get(row, "n_prompt")) == (json_int_t)test->n_prompt &&
            json_integer_value(json_object_get(row, "n_gen")) == (json_int_t)test->n_gen &&
            json_integer_value(json_object_get(row, "n_depth")) == (json_int_t)test->depth &&
            json_is_number(speed)) {
            *tokens_per_second = json_number_value(speed);
            json_decref(rows);
            return true;
        }
    }
    json_decref(rows);
    return err_set(err, ERR_INPUT,
                   "the peer's output has no row with n_prompt %u, n_gen %u, n_depth %u and avg_ts",
                   test->n_prompt, test->n_gen, test->depth);
}

// Reads both pipes to their ends; what exceeds the limit is dropped.
static void drain(int out, int errors, struct buf *text, struct buf *noise)
{
    struct pollfd fds[2] = { { .fd = out, .events = POLLIN }, { .fd = errors, .events = POLLIN } };
    struct buf *to[2] = { text, noise };
    char piece[4096];

    while (fds[0].fd >= 0 || fds[1].fd >= 0) {
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            return;
        for (int i = 0; i < 2; i++) {
            if (fds[i].fd < 0 || !fds[i].revents)
                continue;
            ssize_t n = read(fds[i].fd, piece, sizeof piece);
            if (n > 0)
                buf_append(to[i], piece, (size_t)n);
            else if (n == 0 || errno != EINTR)
                fds[i].fd = -1;
        }
    }
}

static bool spawn(const char **words, pid_t *pid, int out[2], int errors[2], struct err *err)
{
    posix_spawn_file_actions_t actions;
    int status;

    if (pipe(out) != 0)
        return err_set(err, ERR_IO, "pipe: %s", strerror(errno));
    if (pipe(errors) != 0) {
        close(out[0]);
        close(out[1]);
        return err_set(err, ERR_IO, "pipe: %s", strerror(errno));
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
    for (int i = 0; i < 2; i++) {
        posix_spawn_file_actions_addclose(&actions, out[i]);
        posix_spawn_file_actions_addclose(&actions, errors[i]);
    }
    status = posix_spawn(pid, "/bin/sh", &actions, NULL, (char *const *)(uintptr_t)words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    close(errors[1]);
    if (status == 0)
        return true;
    close(out[0]);
    close(errors[0]);
    return err_set(err, ERR_IO, "/bin/sh: %s", strerror(status));
}

static bool run_words(const char **words, const char *command, struct buf *text, struct err *err)
{
    struct buf noise = { .max = OUTPUT_MAX_BYTES };
    int out[2], errors[2], status = 0;
    pid_t pid;

    if (!spawn(words, &pid, out, errors, err))
        return false;
    drain(out[0], errors[0], text, &noise);
    close(out[0]);
    close(errors[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        continue;
    bool ok = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!ok) {
        while (noise.n && noise.at[noise.n - 1] == '\n')
            noise.at[--noise.n] = 0;
        const char *line = noise.n ? strrchr(noise.at, '\n') : NULL;
        err_set(err, ERR_IO, "%s: exit status %d%s%.200s", command,
                WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), noise.n ? ": " : "",
                line      ? line + 1
                : noise.n ? noise.at
                          : "");
    }
    buf_free(&noise);
    return ok;
}

bool bench_peer_run(const struct bench_peer_call *call, double *tokens_per_second, struct err *err)
{
    const struct bench_test *t = &call->test;
    struct buf text = { .max = OUTPUT_MAX_BYTES }, script = { 0 };
    char p[16], n[16], pair[32], depth[16], threads[16];
    bool both = t->n_prompt && t->n_gen;

    snprintf(p, sizeof p, "%u", both ? 0 : t->n_prompt);
    snprintf(n, sizeof n, "%u", both ? 0 : t->n_gen);
    snprintf(pair, sizeof pair, "%u,%u", t->n_prompt, t->n_gen);
    snprintf(depth, sizeof depth, "%u", t->depth);
    snprintf(threads, sizeof threads, "%u", call->n_threads);
    buf_printf(&script, "%s \"$@\"", call->command);
    const char *words[MAX_WORDS] = { "sh", "-c", script.at, "peer",  "-m", call->model, "-p", p,
                                     "-n", n,    "-t",      threads, "-r", "1",         "-o", "json" };
    size_t n_words = 16;
    if (both) {
        words[n_words++] = "-pg";
        words[n_words++] = pair;
    }
    if (t->depth) {
        words[n_words++] = "-d";
        words[n_words++] = depth;
    }
    bool ok = !script.failed && run_words(words, call->command, &text, err) &&
              parse_speed(buf_as_str(&text), t, tokens_per_second, err);
    buf_free(&text);
    buf_free(&script);
    return ok;
}
