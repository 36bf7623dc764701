// hub_cache.c - see hub_cache.h: reading the cache.
//
// Other programs write this folder too: a link may lead nowhere, and a folder may hold anything.
#include "hub/hub_cache.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"

enum { MAX_DEPTH = 8, LIST_ARENA_BYTES = 64 << 20 };

// ---- places

bool hub_repo_path(const struct hub *hub, const char *repo, const char *below, char path[HUB_PATH],
                   struct err *err)
{
    const char *slash = strchr(repo, '/');
    int n = snprintf(path, HUB_PATH, "%s/models--%.*s--%s%s", hub->cache, (int)(slash - repo), repo,
                     slash + 1, below);

    return n < HUB_PATH ||
           err_set(err, ERR_INPUT, "%s: the cache's path is longer than %d bytes", repo, HUB_PATH - 1);
}

bool hub_make_folders(char *path, struct err *err)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        bool ok = mkdir(path, 0777) == 0 || errno == EEXIST;
        if (!ok)
            err_set(err, ERR_IO, "%s: cannot make the folder: %s", path, strerror(errno));
        *slash = '/';
        if (!ok)
            return false;
    }
    return true;
}

bool hub_ref_read(const struct hub *hub, const struct hub_name *name, char commit[HUB_COMMIT + 1],
                  struct err *err)
{
    char path[HUB_PATH], below[300];
    struct buf text = { 0 };

    snprintf(below, sizeof below, "/refs/%s", name->revision);
    if (!hub_repo_path(hub, name->repo, below, path, err))
        return false;
    if (!file_exists(path))
        return err_set(err, ERR_NOT_FOUND, "%s@%s is not in the cache %s", name->repo, name->revision,
                       hub->cache);
    bool ok = file_read(&text, path, 256, err);
    struct str found = { text.at ? text.at : "", text.at ? strcspn(text.at, " \r\n") : 0 };
    if (ok && !hub_hex(found, HUB_COMMIT))
        ok = err_set(err, ERR_INPUT, "%s: expected a commit of %d hexadecimal digits", path, HUB_COMMIT);
    snprintf(commit, HUB_COMMIT + 1, "%.*s", ok ? HUB_COMMIT : 0, found.at);
    buf_free(&text);
    return ok;
}

// The only snapshot: some programs write no ref.
static bool only_snapshot(const struct hub *hub, const char *repo, char commit[HUB_COMMIT + 1])
{
    char path[HUB_PATH];
    DIR *dir = hub_repo_path(hub, repo, "/snapshots", path, NULL) ? opendir(path) : NULL;
    size_t n = 0;

    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (hub_hex(str_from(d->d_name), HUB_COMMIT) && n++ == 0)
            memcpy(commit, d->d_name, HUB_COMMIT + 1);
    }
    if (dir)
        closedir(dir);
    return n == 1;
}

bool hub_commit_find(const struct hub *hub, const struct hub_name *name, char commit[HUB_COMMIT + 1],
                     struct err *err)
{
    if (hub_hex(str_from(name->revision), HUB_COMMIT)) {
        memcpy(commit, name->revision, HUB_COMMIT + 1);
        return true;
    }
    return hub_ref_read(hub, name, commit, err) ||
           (!strcmp(name->revision, "main") && only_snapshot(hub, name->repo, commit));
}

// ---- snapshots

struct cache_walk {
    struct hub_files *files;
    struct arena *arena;
    size_t root, depth; // bytes of the snapshot's path and its slash
    struct err *err;
};

static bool add_file(struct cache_walk *w, const char *path, const struct stat *info)
{
    char target[HUB_PATH];
    ssize_t n = readlink(path, target, sizeof target - 1);
    struct hub_file f = { .path = arena_str(w->arena, str_from(path + w->root)),
                          .bytes = (uint64_t)info->st_size };

    target[n > 0 ? n : 0] = 0;
    const char *slash = strrchr(target, '/');
    if (slash && strlen(slash + 1) <= HUB_OID)
        memcpy(f.oid, slash + 1, strlen(slash + 1) + 1);
    if (!f.path.at)
        return err_memory(w->err, "a list of files");
    if (hub_path_safe(f.path))
        w->files->at[w->files->n++] = f;
    return true;
}

static bool walk_folder(struct cache_walk *w, const char *path);

static bool walk_entry(struct cache_walk *w, const char *folder, const char *name)
{
    char path[HUB_PATH];
    struct stat info;

    if (!strcmp(name, ".") || !strcmp(name, "..") || w->files->n == HUB_MAX_FILES ||
        snprintf(path, sizeof path, "%s/%s", folder, name) >= HUB_PATH)
        return true;
    if (lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return walk_folder(w, path);
    return stat(path, &info) != 0 || !S_ISREG(info.st_mode) || add_file(w, path, &info);
}

static bool walk_folder(struct cache_walk *w, const char *path)
{
    DIR *dir = w->depth < MAX_DEPTH ? opendir(path) : NULL;
    bool ok = true;

    w->depth++;
    for (struct dirent *d; dir && ok && (d = readdir(dir));)
        ok = walk_entry(w, path, d->d_name);
    w->depth--;
    if (dir)
        closedir(dir);
    return ok;
}

bool hub_snapshot_read(const struct hub *hub, const char *repo, const char *commit, struct hub_files *files,
                       struct arena *arena, struct err *err)
{
    struct cache_walk w = { .files = files, .arena = arena, .err = err };
    char path[HUB_PATH], below[64];

    *files = (struct hub_files){ .at = arena_alloc_array(arena, HUB_MAX_FILES, sizeof *files->at) };
    if (!files->at)
        return err_memory(err, "a list of files");
    snprintf(files->commit, sizeof files->commit, "%s", commit);
    snprintf(below, sizeof below, "/snapshots/%s", commit);
    if (!hub_repo_path(hub, repo, below, path, err))
        return false;
    w.root = strlen(path) + 1;
    bool ok = walk_folder(&w, path);
    hub_files_sort(files);
    return ok;
}

// ---- finding

bool hub_model_path(const struct hub *hub, const char *repo, const struct hub_files *files,
                    const struct hub_model *m, char path[HUB_PATH], struct err *err)
{
    struct str first = m->folder ? (struct str){ "", 0 } : files->at[m->files[0]].path;
    char below[1100];

    snprintf(below, sizeof below, "/snapshots/%s%s%.*s", files->commit, m->folder ? "" : "/", (int)first.n,
             first.at);
    return hub_repo_path(hub, repo, below, path, err);
}

static bool find_in(const struct hub *hub, const struct hub_name *name, char path[HUB_PATH],
                    struct arena *arena, struct err *err)
{
    struct hub_files files;
    struct hub_models models;
    char commit[HUB_COMMIT + 1];

    if (!hub_commit_find(hub, name, commit, err) ||
        !hub_snapshot_read(hub, name->repo, commit, &files, arena, err) ||
        !hub_models_find(&files, &models, arena, err))
        return false;
    const struct hub_model *m = hub_models_choose(&files, &models, name, err);
    if (!m)
        return err_prefix(err, "in the cache %s", hub->cache);
    return hub_model_path(hub, name->repo, &files, m, path, err);
}

bool hub_find(const struct hub *hub, const struct hub_name *name, char path[HUB_PATH], struct err *err)
{
    struct arena *arena = arena_create(LIST_ARENA_BYTES);
    bool ok = arena ? find_in(hub, name, path, arena, err) : err_memory(err, "a list of files");

    arena_destroy(arena);
    return ok;
}

// ---- locks

int hub_lock(const struct hub *hub, const char *repo, const char *what, bool shared,
             const struct hub_wait *wait, struct err *err)
{
    char path[HUB_PATH];
    const char *slash = strchr(repo, '/');
    int n = snprintf(path, sizeof path, "%s/.locks/models--%.*s--%s/%s.lock", hub->cache, (int)(slash - repo),
                     repo, slash + 1, what);

    if (n >= HUB_PATH) {
        err_set(err, ERR_INPUT, "%s: the cache's path is longer than %d bytes", repo, HUB_PATH - 1);
        return -1;
    }
    if (!hub_make_folders(path, err))
        return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        err_set(err, ERR_IO, "%s: cannot open: %s", path, strerror(errno));
        return -1;
    }
    while (flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
        int why = errno;
        bool busy = why == EWOULDBLOCK || why == EINTR;
        if (busy && wait && wait->go_on(wait->arg)) {
            poll(NULL, 0, 100);
            continue;
        }
        close(fd);
        if (!busy)
            err_set(err, ERR_IO, "%s: cannot lock: %s", path, strerror(why));
        else if (wait)
            err_set(err, ERR_CANCELLED, "stopped");
        else
            err_set(err, ERR_LIMIT, "%s is in use by a pull; try again when that is done", repo);
        return -1;
    }
    return fd;
}
