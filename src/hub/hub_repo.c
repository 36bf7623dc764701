// hub_repo.c - see hub_repo.h.
#include "hub/hub_repo.h"
#include <dirent.h>
#include <sys/stat.h>

// ---- folders

int hub_names_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

bool hub_names_read(const char *folder, struct hub_names *names, struct arena *arena)
{
    DIR *dir = opendir(folder);
    bool ok = true;

    *names = (struct hub_names){ arena_alloc_array(arena, dir ? HUB_MAX_NAMES : 1, sizeof *names->at), 0 };
    ok = names->at != NULL;
    for (struct dirent *d; dir && ok && names->n < HUB_MAX_NAMES && (d = readdir(dir));) {
        if (d->d_name[0] == '.')
            continue;
        ok = (names->at[names->n] = arena_str(arena, str_from(d->d_name)).at) != NULL;
        names->n += ok;
    }
    if (dir)
        closedir(dir);
    if (names->n)
        qsort(names->at, names->n, sizeof *names->at, hub_names_compare);
    return ok;
}

bool hub_path_join(const char *folder, const char *name, char path[HUB_PATH])
{
    return snprintf(path, HUB_PATH, "%s/%s", folder, name) < HUB_PATH;
}

uint64_t hub_file_bytes(const char *path)
{
    struct stat info;
    return lstat(path, &info) == 0 && S_ISREG(info.st_mode) ? (uint64_t)info.st_size : 0;
}

// ---- repository and snapshot

bool hub_repo_open(struct hub_repo *r, const struct hub *hub, const char *repo, struct err *err)
{
    struct hub_names all;
    char folder[HUB_PATH];

    *r = (struct hub_repo){ .hub = hub, .arena = arena_create(HUB_REPO_ARENA_BYTES), .err = err };
    snprintf(r->repo, sizeof r->repo, "%s", repo);
    if (!r->arena)
        return err_memory(err, "a list of files");
    if (!hub_repo_path(hub, repo, "", r->path, err) || !hub_repo_path(hub, repo, "/snapshots", folder, err))
        return false;
    if (!hub_names_read(folder, &all, r->arena))
        return err_memory(err, "a list of files");
    r->commits.at = all.at;
    for (size_t i = 0; i < all.n; i++) {
        if (hub_hex(str_from(all.at[i]), HUB_COMMIT))
            r->commits.at[r->commits.n++] = all.at[i];
    }
    return true;
}

void hub_repo_close(struct hub_repo *r)
{
    arena_destroy(r->arena);
}

bool hub_snapshot_open(struct hub_snapshot *snap, const struct hub_repo *r, const char *commit)
{
    *snap = (struct hub_snapshot){ .arena = arena_create(HUB_REPO_ARENA_BYTES) };
    if (!snap->arena)
        return err_memory(r->err, "a list of files");
    return hub_snapshot_read(r->hub, r->repo, commit, &snap->files, snap->arena, r->err) &&
           hub_models_find(&snap->files, &snap->models, snap->arena, r->err);
}

void hub_snapshot_close(struct hub_snapshot *snap)
{
    arena_destroy(snap->arena);
}
