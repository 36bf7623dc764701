// client.h - starts the program's server on a free port, and speaks HTTP to it over plain sockets, byte for
// byte as a test wants it.
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/str.h"
#include "testing.h"

struct served {
    pid_t pid;
    int port, log; // log: the end of its stderr that we read
};

struct response {
    int status; // 0: the connection was closed without one
    struct buf all;
    const char *body; // within all; chunks are not joined
};

static inline unsigned long number_in(const char *text, int base)
{
    unsigned long value = 0;
    for (; *text; text++) {
        int digit = *text >= '0' && *text <= '9'                 ? *text - '0'
                    : (*text | 32) >= 'a' && (*text | 32) <= 'f' ? (*text | 32) - 'a' + 10
                                                                 : 99;
        if (digit >= base)
            break;
        value = value * (unsigned long)base + (unsigned long)digit;
    }
    return value;
}

// The port from "listening on http://127.0.0.1:PORT".
static inline int port_from_log(int fd)
{
    char text[8192];
    size_t n = 0;
    const char *mark = "listening on http://";

    while (n + 1 < sizeof text) {
        ssize_t got = read(fd, text + n, sizeof text - 1 - n);
        if (got <= 0)
            fail_msg("the server ended before it listened: %.*s", (int)n, text);
        text[n += (size_t)got] = 0;
        const char *at = strstr(text, mark), *colon = at ? strchr(at + strlen(mark), ':') : NULL;
        if (colon && strchr(colon, '\n'))
            return (int)number_in(colon + 1, 10);
    }
    return 0;
}

static inline int http_status(int port, const char *path);

// The program in a child that goes when the test goes, however that ends: a failed test must not leave a
// server (not on a Mac, which has no such signal).
static inline pid_t serve_spawn(const char *const *argv, int err)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid)
        return pid;
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    dup2(err, 2);
    execv(INGOT_PROGRAM, (char *const *)(uintptr_t)argv);
    _exit(127);
}

// args: NULL-terminated, after "serve --port 0".
static inline struct served serve_start(const char *const *args)
{
    const char *argv[32] = { INGOT_PROGRAM, "serve", "--port", "0", "-t", "1" };
    struct served s = { 0 };
    int ends[2], n = 6;

    while (args && *args && n < 31)
        argv[n++] = *args++;
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    s.pid = serve_spawn(argv, ends[1]);
    close(ends[1]);
    s.log = ends[0];
    s.port = port_from_log(s.log);
    fcntl(s.log, F_SETFL, O_NONBLOCK);
    while (http_status(s.port, "/health") != 200)
        poll(NULL, 0, 10);
    return s;
}

static inline void serve_skip_log(const struct served *s)
{
    char skip[4096];
    while (read(s->log, skip, sizeof skip) > 0)
        ;
}

// The exit status, or -1 when it had to be killed after 20 s.
static inline int serve_wait(struct served *s)
{
    int status;

    for (int i = 0; i < 2000; i++, poll(NULL, 0, 10)) {
        serve_skip_log(s);
        if (waitpid(s->pid, &status, WNOHANG) == s->pid) {
            close(s->log);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
    }
    kill(s->pid, SIGKILL);
    waitpid(s->pid, &status, 0);
    close(s->log);
    return -1;
}

static inline int serve_stop(struct served *s)
{
    kill(s->pid, SIGTERM);
    return serve_wait(s);
}

enum { SILENCE_MS = 300000 };

static inline int http_connect(int port)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        fail_msg("connect: %s", strerror(errno));
    return fd;
}

static inline void http_send(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return; // refused before the end: the answer tells
        bytes += sent;
        n -= (size_t)sent;
    }
}

// Reads until the other side closes. It may be silent for long: on a busy machine, or while it is stopped.
static inline void http_read(int fd, struct response *r)
{
    char block[16384];
    struct pollfd p = { .fd = fd, .events = POLLIN };
    ssize_t n;

    while (poll(&p, 1, SILENCE_MS) == 1 && (n = recv(fd, block, sizeof block, 0)) > 0)
        buf_append(&r->all, block, (size_t)n);
    close(fd);
    if (r->all.n > 12 && !strncmp(r->all.at, "HTTP/1.1 ", 9))
        r->status = (int)number_in(r->all.at + 9, 10);
    const char *end = r->all.n ? strstr(r->all.at, "\r\n\r\n") : NULL;
    r->body = end ? end + 4 : "";
}

static inline struct response http_raw(int port, const char *bytes, size_t n)
{
    struct response r = { 0 };
    int fd = http_connect(port);

    http_send(fd, bytes, n);
    http_read(fd, &r);
    return r;
}

static inline void response_free(struct response *r)
{
    buf_free(&r->all);
}

// headers: whole lines, each ended by CRLF; may be "". body: NULL makes it a GET.
static inline int http_begin(int port, const char *path, const char *headers, const char *body)
{
    struct buf text = { 0 };
    int fd = http_connect(port);

    if (body)
        buf_printf(
            &text,
            "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n", path,
            headers, strlen(body));
    else
        buf_printf(&text, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", path, headers);
    buf_text(&text, body ? body : "");
    http_send(fd, text.at, text.n);
    buf_free(&text);
    return fd;
}

static inline struct response http_with(int port, const char *path, const char *headers, const char *body)
{
    struct response r = { 0 };
    http_read(http_begin(port, path, headers, body), &r);
    return r;
}

static inline struct response http_post(int port, const char *path, const char *body)
{
    return http_with(port, path, "", body);
}

static inline int http_status(int port, const char *path)
{
    struct response r = http_with(port, path, "", NULL);
    int status = r.status;
    response_free(&r);
    return status;
}

// The reply as JSON, and its status. Free with json_decref.
static inline json_t *http_json(int port, const char *path, const char *body, int *status)
{
    struct response r = http_post(port, path, body);
    json_error_t error;
    json_t *value = json_loads(r.body, 0, &error);

    *status = r.status;
    if (!value)
        fail_msg("%s: no JSON (%s): %.500s", path, error.text, r.all.n ? r.all.at : "(nothing came)");
    response_free(&r);
    return value;
}

// The data of a chunked body; free with buf_free.
static inline void response_unchunk(const struct response *r, struct buf *out)
{
    for (const char *at = r->body; *at;) {
        unsigned long n = number_in(at, 16);
        const char *data = strstr(at, "\r\n");
        if (n == 0 || !data)
            break;
        buf_append(out, data + 2, n);
        at = data + 2 + n + 2;
    }
}

// A gauge or counter from /metrics.
static inline double metric(int port, const char *name)
{
    struct response r = http_with(port, "/metrics", "", NULL);
    size_t n = strlen(name);
    double value = -1;

    for (const char *line = r.body; line && *line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (strncmp(line, name, n) != 0 || line[n] != '{')
            continue;
        value = strtod(strchr(line, '}') + 1, NULL);
        break;
    }
    response_free(&r);
    return value;
}
