// hub_repo.h - one repository in the cache, opened to list its models or to remove them.
#pragma once
#include "hub/hub_cache.h"

enum { HUB_REPO_ARENA_BYTES = 64 << 20, HUB_MAX_NAMES = 20000 };

struct hub_names { // what a folder holds, sorted
    const char **at;
    size_t n;
};

struct hub_repo {
    const struct hub *hub;
    char repo[2 * HUB_PART + 2], path[HUB_PATH];
    struct arena *arena;
    struct hub_names commits;
    struct hub_names unlinked; // object ids of the blobs that a removal took links from
    struct err *err;
};

bool hub_repo_open(struct hub_repo *r, const struct hub *hub, const char *repo, struct err *err);
void hub_repo_close(struct hub_repo *r); // in any case

struct hub_snapshot {
    struct arena *arena;
    struct hub_files files;
    struct hub_models models;
};

bool hub_snapshot_open(struct hub_snapshot *snap, const struct hub_repo *r, const char *commit);
void hub_snapshot_close(struct hub_snapshot *snap); // in any case

// Hidden files are left out. A folder that does not exist holds nothing.
bool hub_names_read(const char *folder, struct hub_names *names, struct arena *arena);
int hub_names_compare(const void *a, const void *b); // for qsort and bsearch
bool hub_path_join(const char *folder, const char *name, char path[HUB_PATH]);
uint64_t hub_file_bytes(const char *path); // 0: no regular file
