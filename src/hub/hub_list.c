// hub_list.c - see hub_cache.h: all models in the cache.
#include "hub/hub_repo.h"

// The branch or tag that stands at a commit, "main" before others; the commit itself when there is none.
static void revision_of(const struct hub_repo *r, const char *commit, char revision[256])
{
    struct hub_name name = { .revision = "main" };
    struct hub_names refs = { 0 };
    char folder[HUB_PATH], at[HUB_COMMIT + 1];
    struct err none;

    snprintf(name.repo, sizeof name.repo, "%s", r->repo);
    snprintf(revision, 256, "%s", commit);
    if (snprintf(folder, sizeof folder, "%s/refs", r->path) < HUB_PATH)
        (void)hub_names_read(folder, &refs, r->arena);
    for (size_t i = 0; i <= refs.n; i++) { // the last turn is main's
        snprintf(name.revision, sizeof name.revision, "%s", i < refs.n ? refs.at[i] : "main");
        if (hub_path_safe(str_from(name.revision)) && hub_commit_find(r->hub, &name, at, &none) &&
            !strcmp(at, commit))
            snprintf(revision, 256, "%s", name.revision);
    }
}

struct list_visit {
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

static bool list_model(struct list_visit *l, const struct hub_repo *r, const struct hub_snapshot *snap,
                       const struct hub_model *m)
{
    char revision[256];
    struct str label = quant_is_unique(&snap->models, m->quant) ? m->quant : snap->files.at[m->files[0]].path;
    struct hub_entry entry = { .bytes = m->bytes, .whole = true };

    revision_of(r, snap->files.commit, revision);
    bool main = !strcmp(revision, "main");
    snprintf(entry.name, sizeof entry.name, "%s:%.*s%s%s", r->repo, (int)label.n, label.at, main ? "" : "@",
             main ? "" : revision);
    snprintf(entry.commit, sizeof entry.commit, "%s", snap->files.commit);
    if (!hub_model_path(r->hub, r->repo, &snap->files, m, entry.path, NULL))
        return true;
    return l->each(l->arg, &entry);
}

static bool list_snapshot(struct list_visit *l, const struct hub_repo *r, const char *commit)
{
    struct hub_snapshot snap;
    bool ok = hub_snapshot_open(&snap, r, commit);

    for (size_t i = 0; ok && i < snap.models.n && !l->stopped; i++)
        l->stopped = snap.models.at[i].whole && !list_model(l, r, &snap, &snap.models.at[i]);
    hub_snapshot_close(&snap);
    return ok;
}

// Lists the bytes of unfinished pulls.
static bool list_parts(struct list_visit *l, const struct hub_repo *r)
{
    struct hub_entry entry = { 0 };
    struct hub_names blobs;
    char folder[HUB_PATH], path[HUB_PATH];

    if (!hub_path_join(r->path, "blobs", folder) || !hub_names_read(folder, &blobs, r->arena))
        return err_memory(r->err, "a list of files");
    for (size_t i = 0; i < blobs.n; i++) {
        if (str_ends(str_from(blobs.at[i]), STR(".incomplete")) && hub_path_join(folder, blobs.at[i], path))
            entry.bytes += hub_file_bytes(path);
    }
    snprintf(entry.name, sizeof entry.name, "%s", r->repo);
    snprintf(entry.path, sizeof entry.path, "%s", r->path);
    l->stopped = l->stopped || (entry.bytes && !l->each(l->arg, &entry));
    return true;
}

static bool list_repo(struct list_visit *l, const struct hub *hub, const char *repo, struct err *err)
{
    struct hub_repo r;
    bool ok = hub_repo_open(&r, hub, repo, err);

    for (size_t i = 0; ok && i < r.commits.n && !l->stopped; i++)
        ok = list_snapshot(l, &r, r.commits.at[i]);
    ok = ok && list_parts(l, &r);
    hub_repo_close(&r);
    return ok;
}

// "models--USER--REPO" gives "USER/REPO".
static bool repo_of(const char *folder, char repo[2 * HUB_PART + 2])
{
    struct hub_name name;
    struct str text = str_from(folder);
    size_t dashes =
        str_starts(text, STR("models--")) ? str_find(str_from_to(text, 8, text.n), STR("--")) : SIZE_MAX;

    if (dashes == SIZE_MAX || text.n > 2 * HUB_PART + 10)
        return false;
    snprintf(repo, 2 * HUB_PART + 2, "%.*s/%s", (int)dashes, folder + 8, folder + 8 + dashes + 2);
    return hub_name_read(&name, repo, NULL) && !strcmp(name.repo, repo);
}

bool hub_list(const struct hub *hub, bool (*each)(void *arg, const struct hub_entry *entry), void *arg,
              struct err *err)
{
    struct arena *arena = arena_create(HUB_REPO_ARENA_BYTES);
    struct list_visit l = { each, arg, false };
    struct hub_names folders = { 0 };
    char repo[2 * HUB_PART + 2];
    bool ok = arena && hub_names_read(hub->cache, &folders, arena);

    if (!ok)
        err_memory(err, "a list of models");
    for (size_t i = 0; ok && i < folders.n && !l.stopped; i++) {
        if (repo_of(folders.at[i], repo))
            ok = list_repo(&l, hub, repo, err);
    }
    arena_destroy(arena);
    return ok;
}
