// hub_cache.h - the cache on disk: finding, listing and removing models. Layout: hub.h. Writing: hub_pull.h.
#pragma once
#include "hub/hub_files.h"

// "CACHE/models--USER--REPO" and what follows it, such as "/blobs". False when it is too long.
bool hub_repo_path(const struct hub *hub, const char *repo, const char *below, char path[HUB_PATH],
                   struct err *err);
// The commit in refs/REVISION. ERR_NOT_FOUND when it was never pulled.
bool hub_ref_read(const struct hub *hub, const struct hub_name *name, char commit[HUB_COMMIT + 1],
                  struct err *err);
// The commit that a revision stands for here: itself, its ref's, or for main without a ref the only
// snapshot's.
bool hub_commit_find(const struct hub *hub, const struct hub_name *name, char commit[HUB_COMMIT + 1],
                     struct err *err);
// The complete files of one snapshot, and their blobs. A missing folder gives none.
bool hub_snapshot_read(const struct hub *hub, const char *repo, const char *commit, struct hub_files *files,
                       struct arena *arena, struct err *err);

// The path of a model of these files: its first file, or the snapshot's folder.
bool hub_model_path(const struct hub *hub, const char *repo, const struct hub_files *files,
                    const struct hub_model *m, char path[HUB_PATH], struct err *err);
// The file or folder of a model in the cache, for a program to open. ERR_NOT_FOUND lists the models that are
// there.
bool hub_find(const struct hub *hub, const struct hub_name *name, char path[HUB_PATH], struct err *err);

// A model in the cache, for a list.
struct hub_entry {
    char name[512]; // as -m takes it
    char path[HUB_PATH];
    char commit[HUB_COMMIT + 1];
    uint64_t bytes;
    bool whole; // false: an unfinished pull; name is the repository's
};
// Calls `each` for every model, in the order of their names. False from `each` ends the list.
bool hub_list(const struct hub *hub, bool (*each)(void *arg, const struct hub_entry *entry), void *arg,
              struct err *err);

// Removes a model, or the whole repository when the name has no quant; with a revision, from that one alone.
// Blobs that have no link any more are deleted; *freed is their size. ERR_LIMIT during a pull of the
// repository.
bool hub_remove(const struct hub *hub, const char *text, uint64_t *freed, struct err *err);

// Locks a repository: pulls share the lock, a removal has it alone. wait is called about ten times a second
// while another process holds it; false from it gives ERR_CANCELLED. Returns a descriptor to close, or -1.
struct hub_wait {
    bool (*go_on)(void *arg);
    void *arg;
};
int hub_lock(const struct hub *hub, const char *repo, const char *what, bool shared,
             const struct hub_wait *wait, struct err *err);
bool hub_make_folders(char *path, struct err *err); // all folders of a path up to its last slash
