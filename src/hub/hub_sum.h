// hub_sum.h - the sum by which the hub names a file's bytes: SHA-256 for LFS files, git's object id (SHA-1)
// for the others.
#pragma once
#include "hub/hub.h"

struct hub_sum;

// oid: 64 digits for SHA-256, 40 for git's of a file of so many bytes. NULL without memory.
struct hub_sum *hub_sum_open(const char *oid, uint64_t bytes);
void hub_sum_close(struct hub_sum *sum);   // NULL is allowed
void hub_sum_restart(struct hub_sum *sum); // forgets what was added
void hub_sum_add(struct hub_sum *sum, const void *bytes, size_t n);
// Writes the sum of all that was added, and begins anew.
void hub_sum_take(struct hub_sum *sum, char oid[HUB_OID + 1]);
