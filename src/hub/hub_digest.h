// hub_digest.h - the digest that names a blob: SHA-256 for LFS files, git's object id (SHA-1) for the others.
#pragma once
#include "hub/hub.h"

struct hub_digest;

// The length of oid selects the algorithm: 64 digits for SHA-256, 40 for git's, which also hashes the number
// of bytes. NULL without memory.
struct hub_digest *hub_digest_open(const char *oid, uint64_t bytes);
void hub_digest_close(struct hub_digest *digest);   // NULL is allowed
void hub_digest_restart(struct hub_digest *digest); // forgets what was added
void hub_digest_add(struct hub_digest *digest, const void *bytes, size_t n);
// Writes the digest of all added bytes, and restarts.
void hub_digest_take(struct hub_digest *digest, char oid[HUB_OID + 1]);
