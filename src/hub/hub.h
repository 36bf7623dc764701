// hub.h - models by name: where they lie on this machine, and what a name means.
//
// The folder is the Hugging Face hub cache, shared with every other program that uses it:
//   models--USER--REPO/blobs/OID                      a file's bytes; OID: SHA-256 (LFS) or git object id
//   models--USER--REPO/snapshots/COMMIT/path/in/repo  a symlink to a blob
//   models--USER--REPO/refs/main                      the branch's commit when it was pulled
//   .locks/models--USER--REPO/OID.lock                flock, held by the writer of that blob
//
// A blob gets its final name when its bytes are complete and its digest is right, and a ref is written after
// all links. So a reader needs no lock, and a killed writer leaves the previous state. Nothing in this folder
// knows what a tensor is.
#pragma once
#include "base/arena.h"
#include "base/str.h"

enum { HUB_PATH = 4096, HUB_COMMIT = 40, HUB_OID = 64, HUB_PART = 96 };

struct hub {
    char cache[HUB_PATH];
    char endpoint[512]; // without a slash at the end
    char token[512];    // empty: none
    bool offline;
    // Retries: attempts without progress, the first pause between them (it doubles), and the seconds of
    // silence that end an attempt.
    uint32_t n_tries, retry_ms, stall_s;
};

// From HF_HUB_CACHE, HF_HOME and the others; offline: asked for by a flag. ERR_INPUT when there is no home to
// put the cache in.
bool hub_open(struct hub *hub, bool offline, struct err *err);

// USER/REPO[:QUANT][@REVISION]; in place of QUANT a file's name ending in .gguf, or "safetensors".
struct hub_name {
    char repo[2 * HUB_PART + 2];
    char quant[256];    // empty: not given
    char revision[256]; // "main" when not given
};

bool hub_name_read(struct hub_name *name, const char *text, struct err *err);
// True if the text can be a name. The path of a file (x.gguf, ./x, /x) cannot.
bool hub_name_like(const char *text);

// Names that may become paths below a folder: relative, no empty, "." or ".." component, printable ASCII, no
// backslash.
bool hub_path_safe(struct str path);
bool hub_hex(struct str text, size_t n); // n lower-case hexadecimal digits
