// hub_pull.h - brings a model from the hub into the cache.
//
// One request lists the files with their sizes and sums; then every file that is not there is fetched into
// blobs/OID.incomplete, which a later pull goes on with, and gets its name when its sum is right. Links come
// when all files are there, the one that makes the model a model last, then the ref. A kill at any moment
// leaves what was there before, and parts.
// Two pulls of one file: the second waits and finds it done (the lock is the one that Hugging Face's programs
// take).
#pragma once
#include "hub/hub_http.h"
#include "hub/hub_files.h"

struct hub_progress {
    char what[128];       // is being done: a file's name, mostly
    uint64_t done, total; // bytes of the model; total 0: not known yet
    uint64_t received;    // from the network so far, whatever became of them
};

// Called with every piece that comes, and at least once a second; false ends the pull, and its parts stay.
struct hub_watch {
    bool (*show)(void *arg, const struct hub_progress *progress);
    void *arg;
};

struct hub_pulled {
    char path[HUB_PATH]; // of the file or folder to open
    uint64_t bytes;      // of the model
    uint64_t received;   // of them now
};

// ERR_NOT_FOUND: no such model, file or quant, and what there is instead. ERR_LIMIT: no room. ERR_IO:
// connection, disk, wrong bytes.
bool hub_pull(const struct hub *hub, const struct hub_name *name, const struct hub_watch *watch,
              struct hub_pulled *pulled, struct err *err);

// ---- for hub_pull.c and hub_blob.c ----

struct hub_job {
    const struct hub *hub;
    const char *repo;
    char commit[HUB_COMMIT + 1];
    const struct hub_watch *watch;
    struct hub_http *http;
    struct hub_progress progress;
};

bool hub_job_go_on(void *job); // shows, and asks whether to go on
// After a failure that err tells of: waits, and says whether there is a further try. wait_s: what the hub
// asked for.
bool hub_job_again(struct hub_job *job, uint32_t *n_tried, uint32_t wait_s, struct err *err);
bool hub_status_passes(long status); // may be another one in a while
// Fills err with what a status that is no success means.
void hub_status_err(const struct hub_job *job, const char *what, const struct hub_reply *reply,
                    struct err *err);

// Fetches one file unless it is there.
bool hub_blob_fetch(struct hub_job *job, const struct hub_file *file, struct err *err);
bool hub_blob_is_there(const struct hub *hub, const char *repo, const struct hub_file *file);
uint64_t hub_blob_part_bytes(const struct hub *hub, const char *repo, const struct hub_file *file);
// The address of a file or list: "ENDPOINT/a/b/c", everything but letters, digits and -._~ as %XX, and '/'
// too where it is not kept.
void hub_url_add(struct buf *url, const char *text, bool keep_slashes);
