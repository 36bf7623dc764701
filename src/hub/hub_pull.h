// hub_pull.h - brings a model from the hub into the cache.
//
// With a GGUF model comes the vision projector in its folder (mmproj). One request lists the files with their
// sizes and digests. Each missing file is fetched into
// blobs/OID.incomplete, which a later pull resumes, and renamed when its digest is right. Links are made when
// all files are complete, that of the model's first file last, then the ref. A kill at any moment leaves the
// previous state and the parts. A second pull of the same file waits and finds it complete; the lock is the
// one that Hugging Face's programs take.
#pragma once
#include "hub/hub_http.h"
#include "hub/hub_files.h"

struct hub_progress {
    char what[128];       // the current activity, mostly a file's name
    uint64_t done, total; // bytes of the model; total 0: not known yet
    uint64_t received;    // bytes from the network so far, discarded ones included
};

// Called for every piece that arrives, and at least once a second. False ends the pull; its parts stay.
struct hub_watch {
    bool (*show)(void *arg, const struct hub_progress *progress);
    void *arg;
};

struct hub_pulled {
    char path[HUB_PATH]; // of the file or folder to open
    uint64_t bytes;      // of the model
    uint64_t received;   // of them in this pull
};

// ERR_NOT_FOUND: no such model, file or quant; the message lists the models. ERR_LIMIT: no room on the disk.
// ERR_IO: connection, disk, wrong bytes.
bool hub_pull(const struct hub *hub, const struct hub_name *name, const struct hub_watch *watch,
              struct hub_pulled *pulled, struct err *err);

// ---- for hub_pull.c and hub_blob.c

struct hub_job {
    const struct hub *hub;
    const char *repo;
    char commit[HUB_COMMIT + 1];
    const struct hub_watch *watch;
    struct hub_http *http;
    struct hub_progress progress;
};

bool hub_job_continue(void *job); // reports the progress. False: stop
// After a failure that err describes: waits before the next attempt. False: no attempt is left, or the pull
// was stopped. wait_s: Retry-After.
bool hub_job_retry(struct hub_job *job, uint32_t *n_tried, uint32_t wait_s, struct err *err);
bool hub_status_is_transient(long status); // a retry may help: 408, 429, 5xx
// Fills err with the meaning of an error status.
void hub_status_err(const struct hub_job *job, const char *what, const struct hub_reply *reply,
                    struct err *err);

// Fetches one file unless the cache has it.
bool hub_blob_fetch(struct hub_job *job, const struct hub_file *file, struct err *err);
bool hub_blob_is_there(const struct hub *hub, const char *repo, const struct hub_file *file);
uint64_t hub_blob_part_bytes(const struct hub *hub, const char *repo, const struct hub_file *file);
// The address of a file or list: "ENDPOINT/a/b/c", everything but letters, digits and -._~ as %XX, and '/'
// too unless keep_slashes.
void hub_url_add(struct buf *url, const char *text, bool keep_slashes);
