// mirror.h - a hub on this machine that behaves as it is told: the server of the tests of pulling.
//
// One thread, one connection at a time, each closed after its answer. Files are bytes made from a seed. What
// goes wrong is a queue of faults, one for every request of a file; when it is empty all goes well. Every
// request is noted.
#pragma once
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/str.h"
#include "hub/hub_digest.h"
#include "testing.h"

enum fault {
    FINE,
    CUT,          // half of the body, then the end
    SHORT_LENGTH, // half of the body, and Content-Length says so
    LONG,         // more bytes than there are
    FLIPPED,      // the right number of wrong bytes
    NO_LENGTH,    // all of it, without Content-Length
    STALL,        // half of it, then silence
    SLOW,         // all of it, with pauses
    WHOLE,        // 200 and all of it, whatever was asked for
    WRONG_RANGE,  // 206 with other bytes than asked for
    OTHER_TAG,    // from now on the file has another ETag
    BLIND,        // OTHER_TAG, and If-Range is not understood
    STATUS,       // + n: that status, such as STATUS + 503
};
enum { LOOP = STATUS + 302, AWAY = STATUS + 307, MAX_FILES = 16, MAX_FAULTS = 64, MAX_NOTES = 512 };

struct mirror_file {
    char path[128], oid[HUB_OID + 1];
    unsigned char *bytes;
    size_t n;
    bool lfs;
};

struct note {
    char path[256], range[64], if_range[96], authorization[96];
};

struct mirror {
    int fd, port, away; // away: the port that AWAY leads to
    pthread_t thread;
    pthread_mutex_t lock;
    struct mirror_file files[MAX_FILES];
    size_t n_files;
    const char *listing; // instead of the true one
    size_t listing_bytes;
    int faults[MAX_FAULTS];
    size_t n_faults, next_fault;
    int list_status; // of the list; 0: 200
    const char *retry_after;
    unsigned tag;
    struct note notes[MAX_NOTES];
    size_t n_notes;
    char commit[HUB_COMMIT + 1];
};

// ---- answers ----------------------------------------------------------------------------------------------

static bool send_all(int fd, const void *bytes, size_t n)
{
    const char *at = bytes;

    while (n > 0) {
        ssize_t sent = send(fd, at, n, MSG_NOSIGNAL);
        if (sent <= 0)
            return false;
        at += sent;
        n -= (size_t)sent;
    }
    return true;
}

static bool send_head(int fd, const char *status, const char *format, ...) PRINTF_LIKE(3, 4);
static bool send_head(int fd, const char *status, const char *format, ...)
{
    char head[1024], fields[800];
    va_list args;

    va_start(args, format);
    vsnprintf(fields, sizeof fields, format, args);
    va_end(args);
    int n = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nConnection: close\r\n%s\r\n", status, fields);
    return send_all(fd, head, (size_t)n);
}

static void wait_for_close(int fd)
{
    struct pollfd p = { fd, POLLIN, 0 };
    char skip[256];

    while (poll(&p, 1, 10000) > 0 && read(fd, skip, sizeof skip) > 0)
        ;
}

static void send_body(int fd, const unsigned char *at, size_t n, int fault)
{
    static const unsigned char more[4096];
    unsigned char *wrong = NULL;

    if (fault == FLIPPED) {
        wrong = malloc(n + 1);
        memcpy(wrong, at, n);
        wrong[n / 2] ^= 1;
        at = wrong;
    }
    size_t part = fault == CUT || fault == STALL || fault == SHORT_LENGTH ? n / 2 : n;
    for (size_t sent = 0; sent < part;) {
        size_t take = fault != SLOW ? part : part - sent < 16384 ? part - sent : 16384;
        if (!send_all(fd, at + sent, take))
            break;
        sent += take;
        if (fault == SLOW)
            poll(NULL, 0, 2);
    }
    if (fault == LONG)
        send_all(fd, more, sizeof more);
    if (fault == STALL)
        wait_for_close(fd);
    free(wrong);
}

static void send_file(struct mirror *m, int fd, const struct mirror_file *f, const struct note *note,
                      int fault)
{
    unsigned long from = 0;
    char tag[32], length[64] = "";
    bool ranged = sscanf(note->range, "bytes=%lu-", &from) == 1 && fault != WHOLE;

    m->tag += fault == OTHER_TAG || fault == BLIND;
    snprintf(tag, sizeof tag, "\"tag-%u\"", m->tag);
    if (note->if_range[0] && strcmp(note->if_range, tag) != 0 && fault != BLIND)
        ranged = false;
    from = ranged ? from : 0;
    size_t n = f->n - from, told = fault == LONG ? n + 4096 : fault == SHORT_LENGTH ? n / 2 : n;
    if (fault != NO_LENGTH)
        snprintf(length, sizeof length, "Content-Length: %zu\r\n", told);
    if (ranged && fault == WRONG_RANGE)
        send_head(fd, "206 Partial", "ETag: %s\r\n%sContent-Range: bytes %lu-%zu/%zu\r\n", tag, length,
                  from - 1, f->n - 2, f->n);
    else if (ranged)
        send_head(fd, "206 Partial", "ETag: %s\r\n%sContent-Range: bytes %lu-%zu/%zu\r\n", tag, length, from,
                  f->n - 1, f->n);
    else
        send_head(fd, "200 OK", "ETag: %s\r\n%s", tag, length);
    send_body(fd, f->bytes + from, n, fault);
}

static void send_status(struct mirror *m, int fd, int status, const char *path)
{
    char line[32], wait[64] = "";

    snprintf(line, sizeof line, "%d Status", status);
    if (m->retry_after)
        snprintf(wait, sizeof wait, "Retry-After: %s\r\n", m->retry_after);
    if (status == LOOP - STATUS)
        send_head(fd, line, "Location: %s\r\nContent-Length: 0\r\n", path);
    else if (status == AWAY - STATUS)
        send_head(fd, line, "Location: http://127.0.0.1:%d%s\r\nContent-Length: 0\r\n", m->away, path);
    else
        send_head(fd, line, "X-Error-Message: told by the hub\r\n%sContent-Length: 5\r\n", wait);
    if (status != LOOP - STATUS && status != AWAY - STATUS)
        send_all(fd, "sorry", 5);
}

static void send_list(struct mirror *m, int fd, const char *path)
{
    struct buf b = { 0 };

    if (m->list_status) {
        send_status(m, fd, m->list_status, path);
        return;
    }
    buf_printf(&b, "{\"id\":\"a/b\",\"sha\":\"%s\",\"siblings\":[", m->commit);
    for (size_t i = 0; i < m->n_files; i++) {
        const struct mirror_file *f = &m->files[i];
        buf_printf(&b, "%s{\"rfilename\":\"%s\",\"size\":%zu,\"blobId\":\"%s\"", i ? "," : "", f->path, f->n,
                   f->lfs ? "0123456789012345678901234567890123456789" : f->oid);
        if (f->lfs)
            buf_printf(&b, ",\"lfs\":{\"sha256\":\"%s\",\"size\":%zu,\"pointerSize\":135}", f->oid, f->n);
        buf_text(&b, "}");
    }
    buf_text(&b, "]}");
    const char *text = m->listing ? m->listing : b.at;
    size_t n = !m->listing ? b.n : m->listing_bytes ? m->listing_bytes : strlen(m->listing);
    if (send_head(fd, "200 OK", "Content-Length: %zu\r\n", n))
        send_all(fd, text, n);
    buf_free(&b);
}

// ---- requests ---------------------------------------------------------------------------------------------

static void read_field(const char *head, const char *name, char *value, size_t n)
{
    const char *at = strcasestr(head, name);

    value[0] = 0;
    if (at)
        snprintf(value, n, "%.*s", (int)strcspn(at + strlen(name), "\r\n"), at + strlen(name));
}

static bool read_request(int fd, struct note *note)
{
    char head[8192];
    size_t n = 0;

    do {
        ssize_t got = n + 1 < sizeof head ? read(fd, head + n, sizeof head - 1 - n) : 0;
        if (got <= 0)
            return false;
        head[n += (size_t)got] = 0;
    } while (!strstr(head, "\r\n\r\n"));
    snprintf(note->path, sizeof note->path, "%.*s", (int)strcspn(head + 4, " "), head + 4);
    read_field(head, "\r\nRange: ", note->range, sizeof note->range);
    read_field(head, "\r\nIf-Range: ", note->if_range, sizeof note->if_range);
    read_field(head, "\r\nAuthorization: ", note->authorization, sizeof note->authorization);
    return true;
}

// "/a/b/resolve/COMMIT/PATH"
static const struct mirror_file *file_of(const struct mirror *m, const char *path)
{
    const char *at = strstr(path, "/resolve/");

    for (size_t i = 0; at && i < m->n_files; i++) {
        if (strlen(at) > 9 + HUB_COMMIT + 1 && !strcmp(at + 9 + HUB_COMMIT + 1, m->files[i].path))
            return &m->files[i];
    }
    return NULL;
}

static void answer(struct mirror *m, int fd)
{
    struct note note = { 0 };

    if (!read_request(fd, &note))
        return;
    pthread_mutex_lock(&m->lock);
    if (m->n_notes < MAX_NOTES)
        m->notes[m->n_notes++] = note;
    const struct mirror_file *f = file_of(m, note.path);
    int fault = f && m->next_fault < m->n_faults ? m->faults[m->next_fault++] : FINE;
    pthread_mutex_unlock(&m->lock);
    if (strstr(note.path, "/api/models/"))
        send_list(m, fd, note.path);
    else if (!f)
        send_status(m, fd, 404, note.path);
    else if (fault >= STATUS)
        send_status(m, fd, fault - STATUS, note.path);
    else
        send_file(m, fd, f, &note, fault);
}

static void *mirror_thread(void *arg)
{
    struct mirror *m = arg;

    for (int fd; (fd = accept(m->fd, NULL, NULL)) >= 0;) {
        answer(m, fd);
        shutdown(fd, SHUT_WR);
        close(fd);
    }
    return NULL;
}

// ---- for tests --------------------------------------------------------------------------------------------

static void mirror_start(struct mirror *m)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t n = sizeof at;

    *m = (struct mirror){ .tag = 1, .commit = "c0ffee0000000000000000000000000000000001" };
    pthread_mutex_init(&m->lock, NULL);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    m->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(m->fd >= 0);
    assert_int_equal(bind(m->fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(m->fd, 64), 0);
    assert_int_equal(getsockname(m->fd, (struct sockaddr *)&at, &n), 0);
    m->port = ntohs(at.sin_port);
    assert_int_equal(pthread_create(&m->thread, NULL, mirror_thread, m), 0);
}

static void mirror_stop(struct mirror *m)
{
    shutdown(m->fd, SHUT_RDWR);
    pthread_join(m->thread, NULL);
    close(m->fd);
    for (size_t i = 0; i < m->n_files; i++)
        free(m->files[i].bytes);
    pthread_mutex_destroy(&m->lock);
}

// bytes: from malloc, kept.
static struct mirror_file *mirror_add_bytes(struct mirror *m, const char *path, unsigned char *bytes,
                                            size_t n, bool lfs)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    struct mirror_file *f = &m->files[m->n_files++];

    assert_true(m->n_files <= MAX_FILES);
    *f = (struct mirror_file){ .n = n, .lfs = lfs, .bytes = bytes };
    snprintf(f->path, sizeof f->path, "%s", path);
    struct hub_digest *sum = hub_digest_open(lfs ? zeros : "", n);
    assert_non_null(sum);
    hub_digest_add(sum, bytes, n);
    hub_digest_take(sum, f->oid);
    hub_digest_close(sum);
    return f;
}

static struct mirror_file *mirror_add(struct mirror *m, const char *path, size_t n, bool lfs)
{
    unsigned long long x = 88172645463325253ull + m->n_files + n;
    unsigned char *bytes = malloc(n + 1);

    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        bytes[i] = (unsigned char)x;
    }
    return mirror_add_bytes(m, path, bytes, n, lfs);
}

// faults: ends with -1.
static void mirror_faults(struct mirror *m, const int *faults)
{
    pthread_mutex_lock(&m->lock);
    m->n_faults = m->next_fault = m->n_notes = 0;
    while (faults && faults[m->n_faults] >= 0) {
        m->faults[m->n_faults] = faults[m->n_faults];
        m->n_faults++;
    }
    pthread_mutex_unlock(&m->lock);
}

// What one side wrote before, the other sees after: before a pull and before its notes are read.
static void mirror_sync(struct mirror *m)
{
    pthread_mutex_lock(&m->lock);
    pthread_mutex_unlock(&m->lock);
}

static size_t mirror_n_files_asked(struct mirror *m)
{
    size_t n = 0;

    mirror_sync(m);
    for (size_t i = 0; i < m->n_notes; i++)
        n += strstr(m->notes[i].path, "/resolve/") != NULL;
    return n;
}
