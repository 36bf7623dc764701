// probe_cache.h - what probes found, kept on disk, so that the next start need not play layers again.
//
// One JSON file of the user: by a digest of all that a result depends on (ingot's version, host, device and
// driver, model, formats, rows, depth), its numbers. A file that cannot be read, or that holds anything else,
// is as good as none: devices are probed and it is written anew, whole. Two programs that write at the same
// time lose one's results, and probe again.
#pragma once
#include "base/sha256.h"
#include "engine/stage/probe.h"

struct probe_cache;

// NULL path, or no memory: an empty one that is not written.
struct probe_cache *probe_cache_open(const char *path);
void probe_cache_close(struct probe_cache *c); // writes what is new; NULL is allowed
// Of text from a file, for tests and fuzzing.
struct probe_cache *probe_cache_parse(struct str text);

// `model`: digest of its weights and numbers.
struct sha256 probe_cache_key(const struct probe_request *p, const struct sha256 *model);
bool probe_cache_find(const struct probe_cache *c, const struct sha256 *key, struct probe_speed *speed);
void probe_cache_put(struct probe_cache *c, const struct sha256 *key, const struct probe_speed *speed);
// The same for links.
struct sha256 probe_cache_link_key(struct device *from, struct device *to);
bool probe_cache_find_link(const struct probe_cache *c, const struct sha256 *key, struct probe_link *link);
void probe_cache_put_link(struct probe_cache *c, const struct sha256 *key, const struct probe_link *link);
