// hub.h - models by name: where they lie on this machine, and what a name means.
//
// The folder is the Hugging Face hub cache, shared with every other program that uses it:
//   models--USER--REPO/blobs/OID                      a file's bytes; OID is its SHA-256 (LFS) or its git
//   object id models--USER--REPO/snapshots/COMMIT/path/in/repo  a symlink to a blob
//   models--USER--REPO/refs/main                      the commit that a branch stood at when it was pulled
//   .locks/models--USER--REPO/OID.lock                flock: who writes that blob
// A blob has its final name only when all its bytes are there and their sum is right; a ref is written when
// all the links are. So a reader needs no lock, and whoever is killed leaves what was there before. Nothing
// in this folder knows what a tensor is.
#pragma once
#include "base/arena.h"
#include "base/str.h"

enum { HUB_PATH = 4096, HUB_COMMIT = 40, HUB_OID = 64, HUB_PART = 96 };

struct hub {
    char cache[HUB_PATH];
    char endpoint[512]; // without a slash at the end
    char token[512];    // empty: none
    bool offline;
    // Patience: tries without progress, the first pause between them (it doubles), seconds of silence that
    // end a try.
    uint32_t n_tries, retry_ms, stall_s;
};

// From HF_HUB_CACHE, HF_HOME and the others; offline: asked for by a flag. ERR_INPUT when there is no home to
// put the cache in.
bool hub_open(struct hub *hub, bool offline, struct err *err);

// USER/REPO[:QUANT][@REVISION]; in place of QUANT a file's name ending in .gguf, or "safetensors".
struct hub_name {
    char repo[2 * HUB_PART + 2];
    char quant[256];    // empty: not said
    char revision[256]; // "main" when not said
};

bool hub_name_read(struct hub_name *name, const char *text, struct err *err);
// The same as a yes or no: may this be a name? What looks like a file (x.gguf, ./x, /x) is none.
bool hub_name_like(const char *text);

// Names that may become paths below a folder: relative, no empty, "." or ".." component, printable ASCII, no
// backslash.
bool hub_path_safe(struct str path);
bool hub_hex(struct str text, size_t n); // n lower-case hexadecimal digits
