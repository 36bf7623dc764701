// hub_blob.c - see hub_pull.h: one file's bytes.
//
// The digest of all bytes decides, not what a server says of them: a part may be resumed in any later run and
// from another server. Within a run If-Range carries the ETag seen before, so that a file which changed is
// sent from its first byte instead of being mixed. After a wrong digest the file is fetched once more from
// the first byte, since the part may have been bad.
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "hub/hub_cache.h"
#include "hub/hub_pull.h"
#include "hub/hub_digest.h"

enum { READ_BYTES = 1 << 20, PROGRESS_BYTES = 1 << 20, REFUSAL_BYTES = 1 << 20, MAX_WRONG_SUMS = 2 };

struct blob {
    struct hub_job *job;
    const struct hub_file *file;
    char path[HUB_PATH], part[HUB_PATH], etag[256];
    struct buf url;
    int fd;
    uint64_t at;     // bytes in the part
    uint64_t best;   // the most bytes it had
    uint64_t before; // bytes that the job had before this file
    uint64_t n_skipped;
    struct hub_digest *digest;
    bool skip;   // the body is not the file
    bool again;  // the request was ended for another one
    bool failed; // no other attempt can help
    uint32_t n_tried, n_wrong;
    struct err *err;
};

static bool blob_path(const struct hub *hub, const char *repo, const struct hub_file *file,
                      const char *ending, char path[HUB_PATH], struct err *err)
{
    char below[HUB_OID + 32];

    snprintf(below, sizeof below, "/blobs/%s%s", file->oid, ending);
    return hub_repo_path(hub, repo, below, path, err);
}

static bool has_bytes(const char *path, uint64_t *bytes)
{
    struct stat info;
    bool there = stat(path, &info) == 0 && S_ISREG(info.st_mode);

    *bytes = there ? (uint64_t)info.st_size : 0;
    return there;
}

bool hub_blob_is_there(const struct hub *hub, const char *repo, const struct hub_file *file)
{
    char path[HUB_PATH];
    uint64_t bytes;

    return blob_path(hub, repo, file, "", path, NULL) && has_bytes(path, &bytes) && bytes == file->bytes;
}

uint64_t hub_blob_part_bytes(const struct hub *hub, const char *repo, const struct hub_file *file)
{
    char path[HUB_PATH];
    uint64_t bytes = 0;

    return blob_path(hub, repo, file, ".incomplete", path, NULL) && has_bytes(path, &bytes) &&
                   bytes <= file->bytes
               ? bytes
               : 0;
}

// ---- the part

static bool io_failed(struct blob *b, const char *verb)
{
    b->failed = true;
    return err_set(b->err, ERR_IO, "%s: cannot %s: %s", b->part, verb, strerror(errno));
}

static bool part_restart(struct blob *b)
{
    b->at = 0;
    b->job->progress.done = b->before;
    hub_digest_restart(b->digest);
    return ftruncate(b->fd, 0) == 0 || io_failed(b, "empty");
}

// Adds the bytes of the part to the digest.
static bool part_read(struct blob *b, uint64_t bytes)
{
    unsigned char *room = mem_alloc(READ_BYTES);
    ssize_t n = 1;

    if (!room)
        return err_memory(b->err, "reading a part");
    while (b->at < bytes && n > 0 && hub_job_continue(b->job)) {
        while ((n = pread(b->fd, room, READ_BYTES, (off_t)b->at)) < 0 && errno == EINTR)
            ;
        if (n > 0)
            hub_digest_add(b->digest, room, (size_t)n);
        b->at += n > 0 ? (uint64_t)n : 0;
        b->job->progress.done = b->before + b->at;
    }
    mem_free(room);
    if (n < 0)
        return io_failed(b, "read");
    return b->at == bytes || err_set(b->err, ERR_CANCELLED, "stopped");
}

static bool part_open(struct blob *b)
{
    uint64_t bytes;

    if (!hub_make_folders(b->part, b->err))
        return false;
    b->fd = open(b->part, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (b->fd < 0)
        return io_failed(b, "create");
    if (!has_bytes(b->part, &bytes) || bytes > b->file->bytes)
        return part_restart(b);
    bool ok = part_read(b, bytes);
    b->best = b->at;
    return ok;
}

static bool part_write(struct blob *b, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;

    hub_digest_add(b->digest, bytes, n);
    while (n > 0) {
        ssize_t written = pwrite(b->fd, from, n, (off_t)b->at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return io_failed(b, "write");
        from += written;
        n -= (size_t)written;
        b->at += (uint64_t)written;
        b->job->progress.received += (uint64_t)written;
    }
    b->job->progress.done = b->before + b->at;
    return true;
}

// ---- one answer

static bool stop_and_restart(struct blob *b)
{
    b->again = true;
    b->etag[0] = 0;
    part_restart(b);
    return false;
}

static bool on_head(void *arg, const struct hub_reply *r)
{
    struct blob *b = arg;

    b->skip = r->status != 200 && r->status != 206;
    if (b->skip)
        return true;
    bool same = !b->etag[0] || !r->etag[0] || !strcmp(b->etag, r->etag);
    if (r->status == 206 && (!r->ranged || r->from != b->at || r->total != b->file->bytes || !same)) {
        err_set(b->err, ERR_IO, "%.200s: asked for bytes %llu to the end of %llu, got others", b->url.at,
                (unsigned long long)b->at, (unsigned long long)b->file->bytes);
        return stop_and_restart(b);
    }
    memcpy(b->etag, r->etag, sizeof b->etag);
    return r->status == 206 || b->at == 0 || part_restart(b);
}

static bool on_body(void *arg, const void *bytes, size_t n)
{
    struct blob *b = arg;

    if (b->skip) // an error page
        return (b->n_skipped += n) <= REFUSAL_BYTES;
    if (n > b->file->bytes - b->at) {
        err_set(b->err, ERR_IO, "%.200s: more bytes than the %llu of the list", b->url.at,
                (unsigned long long)b->file->bytes);
        return stop_and_restart(b);
    }
    return part_write(b, bytes, n) && hub_job_continue(b->job);
}

static bool on_go_on(void *arg)
{
    return hub_job_continue(((struct blob *)arg)->job);
}

// One request. True: another one may follow if bytes are missing.
static bool ask(struct blob *b, uint32_t *wait_s)
{
    struct hub_get get = { b->url.at, b->at, b->etag[0] ? b->etag : NULL, on_head, on_body, on_go_on, b };
    struct hub_reply reply;
    struct err why = { 0 };

    b->skip = b->again = b->failed = false;
    b->n_skipped = 0;
    enum hub_http_result end = hub_http_get(b->job->http, &get, &reply, &why);
    *wait_s = reply.wait_s;
    if (end == HUB_HTTP_STOPPED && (b->again || b->failed))
        return !b->failed;
    if (end != HUB_HTTP_ANSWERED && !(b->skip && end == HUB_HTTP_STOPPED && b->n_skipped > REFUSAL_BYTES)) {
        *b->err = why;
        return end == HUB_HTTP_BROKEN;
    }
    if (!b->skip) {
        err_set(b->err, ERR_IO, "%.200s: %llu bytes came, of %llu", b->url.at, (unsigned long long)b->at,
                (unsigned long long)b->file->bytes);
        return true;
    }
    hub_status_err(b->job, b->url.at, &reply, b->err);
    return hub_status_is_transient(reply.status) || (reply.status == 416 && part_restart(b));
}

// A right digest: the part gets its name. A wrong one: it is emptied, once.
static bool finish(struct blob *b, bool *wrong)
{
    char oid[HUB_OID + 1];

    hub_digest_take(b->digest, oid);
    *wrong = strcmp(oid, b->file->oid) != 0;
    if (*wrong && ++b->n_wrong < MAX_WRONG_SUMS) {
        b->etag[0] = 0;
        return part_restart(b);
    }
    if (*wrong) {
        (void)unlink(b->part);
        return err_set(b->err, ERR_IO, "%.128s: the sum of what came is %s, expected %s",
                       b->job->progress.what, oid, b->file->oid);
    }
    if (!file_sync(b->fd))
        return io_failed(b, "finish");
    return rename(b->part, b->path) == 0 || io_failed(b, "rename");
}

static bool fetch_all(struct blob *b)
{
    bool wrong = false;
    uint32_t wait_s;

    for (;;) {
        if (b->at == b->file->bytes) {
            if (!finish(b, &wrong) || !wrong)
                return !wrong && !b->failed;
            continue;
        }
        if (!ask(b, &wait_s))
            return false;
        // A connection that breaks is no reason to give up as long as bytes arrive.
        if (b->at >= b->best + PROGRESS_BYTES)
            b->n_tried = 0;
        b->best = b->at > b->best ? b->at : b->best;
        if (b->at < b->file->bytes && !hub_job_retry(b->job, &b->n_tried, wait_s, b->err))
            return false;
    }
}

static bool fetch_locked(struct blob *b)
{
    const struct hub_file *f = b->file;
    struct hub_job *job = b->job;

    if (hub_blob_is_there(job->hub, job->repo, f)) // fetched by the process that held the lock
        return true;
    buf_text(&b->url, job->hub->endpoint);
    buf_printf(&b->url, "/%s/resolve/%s/", job->repo, job->commit);
    hub_url_add(&b->url, f->path.at, true);
    b->digest = hub_digest_open(f->oid, f->bytes);
    bool ok = (b->digest && !b->url.failed) || err_memory(b->err, "a file");
    ok = ok && part_open(b) && fetch_all(b);
    if (b->fd >= 0)
        close(b->fd);
    hub_digest_close(b->digest);
    buf_free(&b->url);
    return ok;
}

bool hub_blob_fetch(struct hub_job *job, const struct hub_file *file, struct err *err)
{
    struct blob b = { .job = job, .file = file, .fd = -1, .before = job->progress.done, .err = err };
    const struct hub_wait wait = { hub_job_continue, job };

    snprintf(job->progress.what, sizeof job->progress.what, "%.*s", STR_ARG(file->path));
    if (!blob_path(job->hub, job->repo, file, "", b.path, err) ||
        !blob_path(job->hub, job->repo, file, ".incomplete", b.part, err))
        return false;
    int lock = hub_lock(job->hub, job->repo, file->oid, false, &wait, err);
    bool ok = lock >= 0 && fetch_locked(&b);
    if (lock >= 0)
        close(lock);
    job->progress.done = b.before + file->bytes;
    return ok;
}
