// hub_shelf.c - see hub_cache.h: the list of all models in the cache, and taking them out.
//
// What is taken out disappears in this order: the refs and links by which it is found, then the bytes.
// Whoever is killed on the way leaves bytes without a name, which the next removal of the repository takes
// along.
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "hub/hub_cache.h"

enum { SHELF_ARENA_BYTES = 64 << 20, MAX_NAMES = 20000, MAX_FOLDERS_OPEN = 16 };

// ---- folders ----------------------------------------------------------------------------------------------

struct names {
    const char **at;
    size_t n;
};

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// What a folder holds, sorted, hidden files left out. A folder that is not there holds nothing.
static bool names_read(const char *folder, struct names *names, struct arena *arena)
{
    DIR *dir = opendir(folder);
    bool ok = true;

    *names = (struct names){ arena_alloc_array(arena, dir ? MAX_NAMES : 1, sizeof *names->at), 0 };
    ok = names->at != NULL;
    for (struct dirent *d; dir && ok && names->n < MAX_NAMES && (d = readdir(dir));) {
        if (d->d_name[0] == '.')
            continue;
        ok = (names->at[names->n] = arena_str(arena, str_from(d->d_name)).at) != NULL;
        names->n += ok;
    }
    if (dir)
        closedir(dir);
    if (names->n)
        qsort(names->at, names->n, sizeof *names->at, compare_names);
    return ok;
}

static bool path_join(const char *folder, const char *name, char path[HUB_PATH])
{
    return snprintf(path, HUB_PATH, "%s/%s", folder, name) < HUB_PATH;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    (void)remove(path);
    return 0;
}

// Removes a folder and all below it; links are removed, not followed. What cannot be removed is left.
static void tree_remove(const char *path)
{
    (void)nftw(path, remove_one, MAX_FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS);
}

static uint64_t file_bytes(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
}

// ---- one repository ---------------------------------------------------------------------------------------

struct shelf {
    const struct hub *hub;
    char repo[2 * HUB_PART + 2], path[HUB_PATH];
    struct arena *arena;
    struct names commits;
    struct names gone; // blobs that links were taken from
    struct err *err;
};

static bool shelf_open(struct shelf *s, const struct hub *hub, const char *repo, struct err *err)
{
    struct names all;
    char folder[HUB_PATH];

    *s = (struct shelf){ .hub = hub, .arena = arena_create(SHELF_ARENA_BYTES), .err = err };
    snprintf(s->repo, sizeof s->repo, "%s", repo);
    if (!s->arena)
        return err_memory(err, "a list of files");
    if (!hub_repo_path(hub, repo, "", s->path, err) || !hub_repo_path(hub, repo, "/snapshots", folder, err))
        return false;
    if (!names_read(folder, &all, s->arena))
        return err_memory(err, "a list of files");
    s->commits.at = all.at;
    for (size_t i = 0; i < all.n; i++) {
        if (hub_hex(str_from(all.at[i]), HUB_COMMIT))
            s->commits.at[s->commits.n++] = all.at[i];
    }
    return true;
}

static void shelf_close(struct shelf *s)
{
    arena_destroy(s->arena);
}

struct snapshot {
    struct arena *arena;
    struct hub_files files;
    struct hub_models models;
};

static bool snapshot_open(struct snapshot *n, const struct shelf *s, const char *commit)
{
    *n = (struct snapshot){ .arena = arena_create(SHELF_ARENA_BYTES) };
    if (!n->arena)
        return err_memory(s->err, "a list of files");
    return hub_snapshot_read(s->hub, s->repo, commit, &n->files, n->arena, s->err) &&
           hub_models_find(&n->files, &n->models, n->arena, s->err);
}

static void snapshot_close(struct snapshot *n)
{
    arena_destroy(n->arena);
}

// The branch or tag that stands at a commit, "main" before others; the commit itself when there is none.
static void revision_of(const struct shelf *s, const char *commit, char revision[256])
{
    struct hub_name name = { .revision = "main" };
    struct names refs = { 0 };
    char folder[HUB_PATH], at[HUB_COMMIT + 1];
    struct err none;

    snprintf(name.repo, sizeof name.repo, "%s", s->repo);
    snprintf(revision, 256, "%s", commit);
    if (snprintf(folder, sizeof folder, "%s/refs", s->path) < HUB_PATH)
        (void)names_read(folder, &refs, s->arena);
    for (size_t i = 0; i <= refs.n; i++) { // the last turn is main's
        snprintf(name.revision, sizeof name.revision, "%s", i < refs.n ? refs.at[i] : "main");
        if (hub_path_safe(str_from(name.revision)) && hub_commit_find(s->hub, &name, at, &none) &&
            !strcmp(at, commit))
            snprintf(revision, 256, "%s", name.revision);
    }
}

// ---- list -------------------------------------------------------------------------------------------------

struct shelf_visit {
    bool (*each)(void *arg, const struct hub_entry *entry);
    void *arg;
    bool stopped;
};

static bool quant_is_unique(const struct hub_models *models, struct str quant)
{
    size_t n = 0;

    for (size_t i = 0; i < models->n; i++)
        n += str_eq(models->at[i].quant, quant);
    return n == 1 && quant.n > 0;
}

static bool list_model(struct shelf_visit *l, const struct shelf *s, const struct snapshot *n,
                       const struct hub_model *m)
{
    char revision[256];
    struct str label = quant_is_unique(&n->models, m->quant) ? m->quant : n->files.at[m->files[0]].path;
    struct hub_entry entry = { .bytes = m->bytes, .whole = true };

    revision_of(s, n->files.commit, revision);
    bool main = !strcmp(revision, "main");
    snprintf(entry.name, sizeof entry.name, "%s:%.*s%s%s", s->repo, (int)label.n, label.at, main ? "" : "@",
             main ? "" : revision);
    snprintf(entry.commit, sizeof entry.commit, "%s", n->files.commit);
    if (!hub_model_path(s->hub, s->repo, &n->files, m, entry.path, NULL))
        return true;
    return l->each(l->arg, &entry);
}

static bool list_snapshot(struct shelf_visit *l, const struct shelf *s, const char *commit)
{
    struct snapshot n;
    bool ok = snapshot_open(&n, s, commit);

    for (size_t i = 0; ok && i < n.models.n && !l->stopped; i++)
        l->stopped = n.models.at[i].whole && !list_model(l, s, &n, &n.models.at[i]);
    snapshot_close(&n);
    return ok;
}

// Bytes of pulls that did not come to their end.
static bool list_parts(struct shelf_visit *l, const struct shelf *s)
{
    struct hub_entry entry = { 0 };
    struct names blobs;
    char folder[HUB_PATH], path[HUB_PATH];

    if (!path_join(s->path, "blobs", folder) || !names_read(folder, &blobs, s->arena))
        return err_memory(s->err, "a list of files");
    for (size_t i = 0; i < blobs.n; i++) {
        if (str_ends(str_from(blobs.at[i]), STR(".incomplete")) && path_join(folder, blobs.at[i], path))
            entry.bytes += file_bytes(path);
    }
    snprintf(entry.name, sizeof entry.name, "%s", s->repo);
    snprintf(entry.path, sizeof entry.path, "%s", s->path);
    l->stopped = l->stopped || (entry.bytes && !l->each(l->arg, &entry));
    return true;
}

static bool list_repo(struct shelf_visit *l, const struct hub *hub, const char *repo, struct err *err)
{
    struct shelf s;
    bool ok = shelf_open(&s, hub, repo, err);

    for (size_t i = 0; ok && i < s.commits.n && !l->stopped; i++)
        ok = list_snapshot(l, &s, s.commits.at[i]);
    ok = ok && list_parts(l, &s);
    shelf_close(&s);
    return ok;
}

// "models--USER--REPO" gives "USER/REPO".
static bool repo_of(const char *folder, char repo[2 * HUB_PART + 2])
{
    struct hub_name name;
    struct str s = str_from(folder);
    size_t dashes = str_starts(s, STR("models--")) ? str_find(str_from_to(s, 8, s.n), STR("--")) : SIZE_MAX;

    if (dashes == SIZE_MAX || s.n > 2 * HUB_PART + 10)
        return false;
    snprintf(repo, 2 * HUB_PART + 2, "%.*s/%s", (int)dashes, folder + 8, folder + 8 + dashes + 2);
    return hub_name_read(&name, repo, NULL) && !strcmp(name.repo, repo);
}

bool hub_each(const struct hub *hub, bool (*each)(void *arg, const struct hub_entry *entry), void *arg,
              struct err *err)
{
    struct arena *arena = arena_create(SHELF_ARENA_BYTES);
    struct shelf_visit l = { each, arg, false };
    struct names folders = { 0 };
    char repo[2 * HUB_PART + 2];
    bool ok = arena && names_read(hub->cache, &folders, arena);

    if (!ok)
        err_memory(err, "a list of models");
    for (size_t i = 0; ok && i < folders.n && !l.stopped; i++) {
        if (repo_of(folders.at[i], repo))
            ok = list_repo(&l, hub, repo, err);
    }
    arena_destroy(arena);
    return ok;
}

// ---- removal ----------------------------------------------------------------------------------------------

static bool note_gone(struct shelf *s, const struct hub_file *f)
{
    if (!s->gone.at)
        s->gone.at = arena_alloc_array(s->arena, MAX_NAMES, sizeof *s->gone.at);
    const char *oid = s->gone.at ? arena_str(s->arena, str_from(f->oid)).at : NULL;
    if (oid && s->gone.n < MAX_NAMES)
        s->gone.at[s->gone.n++] = oid;
    return oid || err_memory(s->err, "a list of files");
}

// Unlinks the model's files, the first one first: without it the model is not found any more.
static bool unlink_model(struct shelf *s, const struct snapshot *n, const struct hub_model *m)
{
    char path[HUB_PATH];

    for (size_t i = 0; i < m->n_files; i++) {
        const struct hub_file *f = &n->files.at[m->files[i]];
        if (!note_gone(s, f))
            return false;
        if (snprintf(path, sizeof path, "%s/snapshots/%s/%s", s->path, n->files.commit, f->path.at) <
            HUB_PATH)
            (void)unlink(path);
    }
    return true;
}

static bool unlink_snapshot(struct shelf *s, const struct snapshot *n)
{
    char path[HUB_PATH];

    for (size_t i = 0; i < n->files.n; i++) {
        if (!note_gone(s, &n->files.at[i]))
            return false;
    }
    if (snprintf(path, sizeof path, "%s/snapshots/%s", s->path, n->files.commit) < HUB_PATH)
        tree_remove(path);
    return true;
}

// Takes the model out of one snapshot, or the snapshot where no quant is named. `found` says whether there
// was anything.
static bool remove_from(struct shelf *s, const char *commit, const struct hub_name *name, bool *found)
{
    struct snapshot n;
    bool ok = snapshot_open(&n, s, commit);
    const struct hub_model *m =
        ok && name->quant[0] ? hub_models_choose(&n.files, &n.models, name, s->err) : NULL;

    if (ok && !name->quant[0])
        ok = unlink_snapshot(s, &n);
    else if (m)
        ok = unlink_model(s, &n, m);
    *found |= m || !name->quant[0];
    snapshot_close(&n);
    return ok;
}

struct kept {
    const char **oids;
    size_t n, n_files;
};

// The blobs that links still lead to.
static bool find_kept(const struct shelf *s, struct kept *kept)
{
    kept->oids = arena_alloc_array(s->arena, MAX_NAMES, sizeof *kept->oids);
    bool ok = kept->oids != NULL;
    for (size_t i = 0; ok && i < s->commits.n; i++) {
        struct snapshot n;
        ok = snapshot_open(&n, s, s->commits.at[i]);
        kept->n_files += ok ? n.files.n : 0;
        for (size_t k = 0; ok && k < n.files.n && kept->n < MAX_NAMES; k++)
            ok = (kept->oids[kept->n++] = arena_str(s->arena, str_from(n.files.at[k].oid)).at) != NULL;
        snapshot_close(&n);
    }
    if (kept->n)
        qsort(kept->oids, kept->n, sizeof *kept->oids, compare_names);
    return ok || err_memory(s->err, "a list of files");
}

// What is left of a repository that nothing is to be found in: all of it goes.
static bool remove_rest(const struct shelf *s, uint64_t *freed)
{
    struct names blobs;
    char folder[HUB_PATH], path[HUB_PATH];

    if (!path_join(s->path, "blobs", folder) || !names_read(folder, &blobs, s->arena))
        return err_memory(s->err, "a list of files");
    for (size_t i = 0; i < blobs.n; i++)
        *freed += path_join(folder, blobs.at[i], path) ? file_bytes(path) : 0;
    tree_remove(s->path);
    return !file_exists(s->path) || err_set(s->err, ERR_IO, "%s: cannot be removed whole", s->path);
}

// Of the blobs that links were taken from, those go that no other link leads to.
static bool sweep(const struct shelf *s, bool all, uint64_t *freed)
{
    struct kept kept = { 0 };
    char path[HUB_PATH];

    if (!find_kept(s, &kept))
        return false;
    if (all || kept.n_files == 0)
        return remove_rest(s, freed);
    for (size_t i = 0; i < s->gone.n && kept.n < MAX_NAMES; i++) {
        bool linked = bsearch(&s->gone.at[i], kept.oids, kept.n, sizeof *kept.oids, compare_names) != NULL;
        if (linked || !s->gone.at[i][0] ||
            snprintf(path, sizeof path, "%s/blobs/%s", s->path, s->gone.at[i]) >= HUB_PATH)
            continue;
        uint64_t bytes = file_bytes(path);
        *freed += unlink(path) == 0 ? bytes : 0;
    }
    return true;
}

// The branches and tags that stand at a commit which is gone.
static void refs_remove(const struct shelf *s, const char *commit)
{
    struct hub_name name = { 0 };
    struct names refs = { 0 };
    char folder[HUB_PATH], path[HUB_PATH], at[HUB_COMMIT + 1];

    snprintf(name.repo, sizeof name.repo, "%s", s->repo);
    if (path_join(s->path, "refs", folder))
        (void)names_read(folder, &refs, s->arena);
    for (size_t i = 0; i < refs.n; i++) {
        snprintf(name.revision, sizeof name.revision, "%s", refs.at[i]);
        if (hub_ref_read(s->hub, &name, at, NULL) && !strcmp(at, commit) &&
            path_join(folder, refs.at[i], path))
            (void)unlink(path);
    }
}

static bool remove_locked(struct shelf *s, const struct hub_name *name, bool pinned, uint64_t *freed)
{
    bool all = !pinned && !name->quant[0], found = false, ok = true;
    char commit[HUB_COMMIT + 1], path[HUB_PATH];

    if (pinned && !hub_commit_find(s->hub, name, commit, s->err))
        return false;
    err_set(s->err, ERR_NOT_FOUND, "%s is not in the cache %s", s->repo, s->hub->cache);
    if (all && path_join(s->path, "refs", path))
        tree_remove(path);
    for (size_t i = 0; ok && i < s->commits.n; i++) {
        if (!pinned || !strcmp(s->commits.at[i], commit))
            ok = remove_from(s, s->commits.at[i], name, &found);
    }
    if (!ok || (!found && !(all && file_exists(s->path))))
        return false;
    if (pinned && !name->quant[0])
        refs_remove(s, commit);
    return sweep(s, all, freed);
}

bool hub_remove(const struct hub *hub, const char *text, uint64_t *freed, struct err *err)
{
    struct hub_name name;
    struct shelf s = { 0 };
    char path[HUB_PATH];

    *freed = 0;
    if (!hub_name_read(&name, text, err) || !hub_repo_path(hub, name.repo, "", path, err))
        return false;
    if (!file_exists(path)) // before a lock makes folders
        return err_set(err, ERR_NOT_FOUND, "%s is not in the cache %s", name.repo, hub->cache);
    int lock = hub_lock(hub, name.repo, "ingot", false, NULL, err);
    bool ok = lock >= 0 && shelf_open(&s, hub, name.repo, err) &&
              remove_locked(&s, &name, strchr(text, '@') != NULL, freed);
    if (lock >= 0)
        close(lock);
    shelf_close(&s);
    return ok;
}
