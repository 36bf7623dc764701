// hub_pull.c - see hub_pull.h.
#include "hub/hub_pull.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/file.h"
#include "hub/hub_cache.h"
#include "hub/hub_file_list.h"

enum { PULL_ARENA_BYTES = 64 << 20, SPARE_BYTES = 64 << 20, LONGEST_WAIT_S = 600, STEP_MS = 50 };

// ---- retries

bool hub_job_continue(void *arg)
{
    struct hub_job *job = arg;
    return !job->watch || job->watch->show(job->watch->arg, &job->progress);
}

bool hub_job_retry(struct hub_job *job, uint32_t *n_tried, uint32_t wait_s, struct err *err)
{
    uint64_t wait_ms =
        wait_s ? (uint64_t)wait_s * 1000 : (uint64_t)job->hub->retry_ms << (*n_tried < 10 ? *n_tried : 10);
    uint64_t until = clock_ns() + wait_ms * 1000000u;

    if (++*n_tried >= job->hub->n_tries)
        return err_prefix(err, "gave up after %u tries", job->hub->n_tries);
    if (wait_s > LONGEST_WAIT_S)
        return err_prefix(err, "the hub asks to wait %u s", wait_s);
    while (clock_ns() < until) {
        if (!hub_job_continue(job))
            return err_set(err, ERR_CANCELLED, "stopped");
        poll(NULL, 0, wait_ms < STEP_MS ? (int)wait_ms : STEP_MS);
    }
    return true;
}

bool hub_status_is_transient(long status)
{
    return status == 408 || status == 429 || (status >= 500 && status <= 599);
}

void hub_status_err(const struct hub_job *job, const char *what, const struct hub_reply *r, struct err *err)
{
    const char *dash = r->error[0] ? ": " : "";

    if (r->status == 401 || r->status == 403)
        err_set(err, ERR_NOT_FOUND, "%.200s: status %ld%s%.160s; no such model, or %s", what, r->status, dash,
                r->error,
                job->hub->token[0] ? "the token may not read it" : "it asks for a token: set HF_TOKEN");
    else
        err_set(err, r->status == 404 ? ERR_NOT_FOUND : ERR_IO, "%.200s: status %ld%s%.200s", what, r->status,
                dash, r->error);
}

// ---- the list

void hub_url_add(struct buf *url, const char *text, bool keep_slashes)
{
    for (const char *c = text; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
                     strchr("-._~", *c);
        if (plain || (*c == '/' && keep_slashes))
            buf_append(url, c, 1);
        else
            buf_printf(url, "%%%02X", (unsigned)(unsigned char)*c);
    }
}

struct list_body {
    struct hub_job *job;
    struct buf text;
};

static bool list_head(void *arg, const struct hub_reply *r)
{
    (void)r;
    ((struct list_body *)arg)->text.n = 0;
    return true;
}

static bool list_bytes(void *arg, const void *bytes, size_t n)
{
    return buf_append(&((struct list_body *)arg)->text, bytes, n);
}

static bool list_go_on(void *arg)
{
    return hub_job_continue(((struct list_body *)arg)->job);
}

static bool list_ask(struct hub_job *job, const char *url, struct list_body *body, struct err *err)
{
    const struct hub_get get = { url, 0, NULL, list_head, list_bytes, list_go_on, body };
    struct hub_reply reply;
    uint32_t n_tried = 0;

    do {
        enum hub_http_result end = hub_http_get(job->http, &get, &reply, err);
        if (end == HUB_HTTP_ANSWERED && reply.status == 200)
            return true;
        if (body->text.failed)
            return err_set(err, ERR_LIMIT, "%.200s: the list of files is longer than %d MiB", url,
                           HUB_FILE_LIST_BYTES >> 20);
        if (end == HUB_HTTP_STOPPED || end == HUB_HTTP_FAILED)
            return false;
        if (end == HUB_HTTP_ANSWERED)
            hub_status_err(job, job->repo, &reply, err);
        if (end == HUB_HTTP_ANSWERED && !hub_status_is_transient(reply.status))
            return false;
    } while (hub_job_retry(job, &n_tried, reply.wait_s, err));
    return false;
}

static bool list_fetch(struct hub_job *job, const struct hub_name *name, struct hub_files *files,
                       struct arena *arena, struct err *err)
{
    struct list_body body = { .job = job, .text = { .max = HUB_FILE_LIST_BYTES } };
    struct buf url = { 0 };

    snprintf(job->progress.what, sizeof job->progress.what, "asking for %.100s", job->repo);
    buf_printf(&url, "%s/api/models/%s/revision/", job->hub->endpoint, job->repo);
    hub_url_add(&url, name->revision, false);
    buf_text(&url, "?blobs=true");
    bool ok = !url.failed ? list_ask(job, url.at, &body, err) : err_memory(err, "an address");
    if (ok)
        ok = hub_file_list_read(buf_as_str(&body.text), files, arena, err) ||
             err_prefix(err, "%.200s", url.at);
    buf_free(&body.text);
    buf_free(&url);
    return ok;
}

// ---- room

static bool check_room(struct hub_job *job, const struct hub_files *files, const struct hub_model *m,
                       struct err *err)
{
    struct statvfs disk;
    uint64_t needed = 0;
    char path[HUB_PATH];

    job->progress.total = 0;
    for (size_t i = 0; i < m->n_files; i++) {
        const struct hub_file *f = &files->at[m->files[i]];
        bool there = hub_blob_is_there(job->hub, job->repo, f);
        if (__builtin_add_overflow(job->progress.total, f->bytes, &job->progress.total))
            return err_set(err, ERR_LIMIT, "%s: the sizes of its files in the list are beyond all measure",
                           job->repo);
        needed += there ? 0 : f->bytes - hub_blob_part_bytes(job->hub, job->repo, f);
    }
    if (!hub_repo_path(job->hub, job->repo, "/blobs/", path, err) || !hub_make_folders(path, err))
        return false;
    if (statvfs(path, &disk) != 0)
        return err_set(err, ERR_IO, "%s: cannot ask for free space: %s", path, strerror(errno));
    uint64_t free_bytes = (uint64_t)disk.f_bavail * disk.f_frsize, mib = 1 << 20;
    if (needed == 0 || (free_bytes > SPARE_BYTES && needed <= free_bytes - SPARE_BYTES))
        return true;
    return err_set(err, ERR_LIMIT, "%s needs %llu MiB more; %llu MiB are free in %s, of which %d stay free",
                   job->repo, (unsigned long long)(needed / mib + 1), (unsigned long long)(free_bytes / mib),
                   job->hub->cache, SPARE_BYTES >> 20);
}

// ---- links and refs

// snapshots/COMMIT/a/b.gguf -> ../../../blobs/OID
static bool link_file(const struct hub_job *job, const struct hub_file *f, struct err *err)
{
    char path[HUB_PATH], other[HUB_PATH], target[256] = "../../", found[256], below[1100];
    size_t n = strlen(target);

    for (size_t i = 0; i < f->path.n && n < sizeof target - 80; i++) {
        if (f->path.at[i] == '/')
            n += (size_t)snprintf(target + n, sizeof target - n, "../");
    }
    snprintf(target + n, sizeof target - n, "blobs/%s", f->oid);
    snprintf(below, sizeof below, "/snapshots/%s/%s", job->commit, f->path.at);
    if (!hub_repo_path(job->hub, job->repo, below, path, err) ||
        !hub_repo_path(job->hub, job->repo, "/.ingot-link", other, err) || !hub_make_folders(path, err))
        return false;
    if (symlink(target, path) == 0)
        return true;
    ssize_t had = errno == EEXIST ? readlink(path, found, sizeof found) : -1;
    if (had == (ssize_t)strlen(target) && !memcmp(found, target, (size_t)had))
        return true;
    (void)unlink(other); // left by a killed process
    if (symlink(target, other) == 0 && rename(other, path) == 0)
        return true;
    return err_set(err, ERR_IO, "%s: cannot make the link: %s", path, strerror(errno));
}

static bool write_ref(const struct hub_job *job, const struct hub_name *name, struct err *err)
{
    char path[HUB_PATH], other[HUB_PATH], below[300], at[HUB_COMMIT + 1];

    if (hub_hex(str_from(name->revision), HUB_COMMIT) ||
        (hub_ref_read(job->hub, name, at, NULL) && !strcmp(at, job->commit)))
        return true;
    snprintf(below, sizeof below, "/refs/%s", name->revision);
    if (!hub_repo_path(job->hub, job->repo, below, path, err) ||
        !hub_repo_path(job->hub, job->repo, "/.ingot-ref", other, err) || !hub_make_folders(path, err))
        return false;
    int fd = open(other, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok =
        fd >= 0 && file_write_all(fd, job->commit, HUB_COMMIT) && file_sync(fd) && rename(other, path) == 0;
    int why = errno;
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && !ok)
        (void)unlink(other);
    return ok || err_set(err, ERR_IO, "%s: cannot write: %s", path, strerror(why));
}

// The model's first file is linked last: a model that can be found is complete.
static bool name_all(const struct hub_job *job, const struct hub_name *name, const struct hub_files *files,
                     const struct hub_model *m, struct err *err)
{
    const struct hub_wait wait = { hub_job_continue, (void *)(uintptr_t)job };
    int lock = hub_lock(job->hub, job->repo, "ingot-names", false, &wait, err);
    bool ok = lock >= 0;

    for (size_t i = m->n_files; ok && i-- > 0;)
        ok = link_file(job, &files->at[m->files[i]], err);
    ok = ok && write_ref(job, name, err);
    if (lock >= 0)
        close(lock);
    return ok;
}

// ---- the pull

// The model and its eyes. NULL without memory.
static const struct hub_model *with_eyes(const struct hub_files *files, const struct hub_model *m,
                                         struct arena *arena, struct err *err)
{
    uint32_t *list = arena_alloc_array(arena, m->n_files + 1, sizeof *list), eyes = hub_model_eyes(files, m);
    struct hub_model *both = arena_alloc(arena, sizeof *both);

    if (!both || !list) {
        err_memory(err, "a list of files");
        return NULL;
    }
    *both = *m;
    memcpy(list, m->files, m->n_files * sizeof *list);
    both->files = list;
    if (eyes != HUB_NO_FILE)
        list[both->n_files++] = eyes;
    return both;
}

static bool pull_model(struct hub_job *job, const struct hub_name *name, struct arena *arena,
                       struct hub_pulled *pulled, struct err *err)
{
    struct hub_files files;
    struct hub_models models;

    if (!list_fetch(job, name, &files, arena, err) || !hub_models_find(&files, &models, arena, err))
        return false;
    const struct hub_model *chosen = hub_models_choose(&files, &models, name, err);
    const struct hub_model *m = chosen ? with_eyes(&files, chosen, arena, err) : NULL;
    memcpy(job->commit, files.commit, sizeof job->commit);
    if (!m || !check_room(job, &files, m, err))
        return false;
    for (size_t i = m->n_files; i-- > 0;) {
        if (!hub_blob_fetch(job, &files.at[m->files[i]], err))
            return false;
    }
    pulled->bytes = job->progress.total;
    pulled->received = job->progress.received;
    return name_all(job, name, &files, m, err) &&
           hub_model_path(job->hub, job->repo, &files, m, pulled->path, err);
}

bool hub_pull(const struct hub *hub, const struct hub_name *name, const struct hub_watch *watch,
              struct hub_pulled *pulled, struct err *err)
{
    struct hub_job job = { .hub = hub, .repo = name->repo, .watch = watch };
    const struct hub_wait wait = { hub_job_continue, &job };
    struct arena *arena = arena_create(PULL_ARENA_BYTES);
    bool ok = arena || err_memory(err, "a list of files");

    *pulled = (struct hub_pulled){ 0 };
    snprintf(job.progress.what, sizeof job.progress.what, "waiting for %.100s", name->repo);
    job.http = ok ? hub_http_open(hub, err) : NULL;
    int lock = job.http ? hub_lock(hub, name->repo, "ingot", true, &wait, err) : -1;
    ok = lock >= 0 && pull_model(&job, name, arena, pulled, err);
    if (lock >= 0)
        close(lock);
    hub_http_close(job.http);
    arena_destroy(arena);
    return ok;
}
