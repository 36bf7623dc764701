// hub_remove.c - see hub_cache.h: removes models from the cache.
//
// A removal first takes away the refs and links by which a model is found, then the bytes. If the program is
// killed in between, blobs without a link stay behind; the next removal of the repository takes them along.
#include <ftw.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/file.h"
#include "hub/hub_repo.h"

enum { MAX_FOLDERS_OPEN = 16 };

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

static bool note_unlinked(struct hub_repo *r, const struct hub_file *f)
{
    if (!r->unlinked.at)
        r->unlinked.at = arena_alloc_array(r->arena, HUB_MAX_NAMES, sizeof *r->unlinked.at);
    const char *oid = r->unlinked.at ? arena_str(r->arena, str_from(f->oid)).at : NULL;
    if (oid && r->unlinked.n < HUB_MAX_NAMES)
        r->unlinked.at[r->unlinked.n++] = oid;
    return oid || err_memory(r->err, "a list of files");
}

static bool unlink_file(struct hub_repo *r, const struct hub_snapshot *snap, const struct hub_file *f)
{
    char path[HUB_PATH];

    if (!note_unlinked(r, f))
        return false;
    if (snprintf(path, sizeof path, "%s/snapshots/%s/%s", r->path, snap->files.commit, f->path.at) < HUB_PATH)
        (void)unlink(path);
    return true;
}

// Unlinks the model's files, the first one first: without it the model is not found any more.
static bool unlink_model(struct hub_repo *r, const struct hub_snapshot *snap, const struct hub_model *m)
{
    uint32_t eyes = hub_model_eyes(&snap->files, m);

    for (size_t i = 0; i < m->n_files; i++)
        if (!unlink_file(r, snap, &snap->files.at[m->files[i]]))
            return false;
    return eyes == HUB_NO_FILE || hub_model_shares_eyes(&snap->files, &snap->models, m) ||
           unlink_file(r, snap, &snap->files.at[eyes]);
}

static bool unlink_snapshot(struct hub_repo *r, const struct hub_snapshot *snap)
{
    char path[HUB_PATH];

    for (size_t i = 0; i < snap->files.n; i++) {
        if (!note_unlinked(r, &snap->files.at[i]))
            return false;
    }
    if (snprintf(path, sizeof path, "%s/snapshots/%s", r->path, snap->files.commit) < HUB_PATH)
        tree_remove(path);
    return true;
}

// Removes the model from one snapshot, or the whole snapshot when the name has no quant. *found is set if
// there was anything.
static bool remove_from(struct hub_repo *r, const char *commit, const struct hub_name *name, bool *found)
{
    struct hub_snapshot snap;
    bool ok = hub_snapshot_open(&snap, r, commit);
    const struct hub_model *m =
        ok && name->quant[0] ? hub_models_choose(&snap.files, &snap.models, name, r->err) : NULL;

    if (ok && !name->quant[0])
        ok = unlink_snapshot(r, &snap);
    else if (m)
        ok = unlink_model(r, &snap, m);
    *found |= m || !name->quant[0];
    hub_snapshot_close(&snap);
    return ok;
}

struct kept {
    const char **oids;
    size_t n, n_files;
};

// The blobs that links still lead to.
static bool find_kept(const struct hub_repo *r, struct kept *kept)
{
    kept->oids = arena_alloc_array(r->arena, HUB_MAX_NAMES, sizeof *kept->oids);
    bool ok = kept->oids != NULL;
    for (size_t i = 0; ok && i < r->commits.n; i++) {
        struct hub_snapshot snap;
        ok = hub_snapshot_open(&snap, r, r->commits.at[i]);
        kept->n_files += ok ? snap.files.n : 0;
        for (size_t k = 0; ok && k < snap.files.n && kept->n < HUB_MAX_NAMES; k++)
            ok = (kept->oids[kept->n++] = arena_str(r->arena, str_from(snap.files.at[k].oid)).at) != NULL;
        hub_snapshot_close(&snap);
    }
    if (kept->n)
        qsort(kept->oids, kept->n, sizeof *kept->oids, hub_names_compare);
    return ok || err_memory(r->err, "a list of files");
}

// Removes what is left of a repository without models.
static bool remove_rest(const struct hub_repo *r, uint64_t *freed)
{
    struct hub_names blobs;
    char folder[HUB_PATH], path[HUB_PATH];

    if (!hub_path_join(r->path, "blobs", folder) || !hub_names_read(folder, &blobs, r->arena))
        return err_memory(r->err, "a list of files");
    for (size_t i = 0; i < blobs.n; i++)
        *freed += hub_path_join(folder, blobs.at[i], path) ? hub_file_bytes(path) : 0;
    tree_remove(r->path);
    return !file_exists(r->path) || err_set(r->err, ERR_IO, "%s: cannot be removed whole", r->path);
}

// Deletes the unlinked blobs that no other link leads to.
static bool sweep(const struct hub_repo *r, bool all, uint64_t *freed)
{
    struct kept kept = { 0 };
    char path[HUB_PATH];

    if (!find_kept(r, &kept))
        return false;
    if (all || kept.n_files == 0)
        return remove_rest(r, freed);
    for (size_t i = 0; i < r->unlinked.n && kept.n < HUB_MAX_NAMES; i++) {
        bool linked =
            bsearch(&r->unlinked.at[i], kept.oids, kept.n, sizeof *kept.oids, hub_names_compare) != NULL;
        if (linked || !r->unlinked.at[i][0] ||
            snprintf(path, sizeof path, "%s/blobs/%s", r->path, r->unlinked.at[i]) >= HUB_PATH)
            continue;
        uint64_t bytes = hub_file_bytes(path);
        *freed += unlink(path) == 0 ? bytes : 0;
    }
    return true;
}

// Removes the branches and tags of a removed commit.
static void refs_remove(const struct hub_repo *r, const char *commit)
{
    struct hub_name name = { 0 };
    struct hub_names refs = { 0 };
    char folder[HUB_PATH], path[HUB_PATH], at[HUB_COMMIT + 1];

    snprintf(name.repo, sizeof name.repo, "%s", r->repo);
    if (hub_path_join(r->path, "refs", folder))
        (void)hub_names_read(folder, &refs, r->arena);
    for (size_t i = 0; i < refs.n; i++) {
        snprintf(name.revision, sizeof name.revision, "%s", refs.at[i]);
        if (hub_ref_read(r->hub, &name, at, NULL) && !strcmp(at, commit) &&
            hub_path_join(folder, refs.at[i], path))
            (void)unlink(path);
    }
}

static bool remove_locked(struct hub_repo *r, const struct hub_name *name, bool pinned, uint64_t *freed)
{
    bool all = !pinned && !name->quant[0], found = false, ok = true;
    char commit[HUB_COMMIT + 1], path[HUB_PATH];

    if (pinned && !hub_commit_find(r->hub, name, commit, r->err))
        return false;
    err_set(r->err, ERR_NOT_FOUND, "%s is not in the cache %s", r->repo, r->hub->cache);
    if (all && hub_path_join(r->path, "refs", path))
        tree_remove(path);
    for (size_t i = 0; ok && i < r->commits.n; i++) {
        if (!pinned || !strcmp(r->commits.at[i], commit))
            ok = remove_from(r, r->commits.at[i], name, &found);
    }
    if (!ok || (!found && !(all && file_exists(r->path))))
        return false;
    if (pinned && !name->quant[0])
        refs_remove(r, commit);
    return sweep(r, all, freed);
}

bool hub_remove(const struct hub *hub, const char *text, uint64_t *freed, struct err *err)
{
    struct hub_name name;
    struct hub_repo r = { 0 };
    char path[HUB_PATH];

    *freed = 0;
    if (!hub_name_read(&name, text, err) || !hub_repo_path(hub, name.repo, "", path, err))
        return false;
    if (!file_exists(path)) // before a lock makes folders
        return err_set(err, ERR_NOT_FOUND, "%s is not in the cache %s", name.repo, hub->cache);
    int lock = hub_lock(hub, name.repo, "ingot", false, NULL, err);
    bool ok = lock >= 0 && hub_repo_open(&r, hub, name.repo, err) &&
              remove_locked(&r, &name, strchr(text, '@') != NULL, freed);
    if (lock >= 0)
        close(lock);
    hub_repo_close(&r);
    return ok;
}
