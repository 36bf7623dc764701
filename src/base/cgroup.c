// cgroup.c - see cgroup.h.
//
// Version 2 has one hierarchy, whose file cpu.max says "QUOTA PERIOD" or "max PERIOD" in microseconds, and
// memory.max a number of bytes or "max". Version 1 has one for processors, mounted at cpu/, with
// cpu.cfs_quota_us (-1: none) and cpu.cfs_period_us, and one for memory with memory.limit_in_bytes, where no
// limit is a number near 2^63.
// A group's path is looked for from its own folder up to the mount, since each level may have a quota, and
// since in a container the mount itself is the group.
#include "base/cgroup.h"
#include <string.h>
#include "base/file.h"

enum { MAX_BYTES = 65536, MAX_PATH = 4096 };
static const uint64_t NO_LIMIT = 1ull << 62;

static bool add_text(const char *folder, const char *name, struct buf *text)
{
    char path[MAX_PATH + 64];
    struct err err;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return file_exists(path) && file_read(text, path, MAX_BYTES, &err);
}

// Takes off the text before the next `end`, or all that is left.
static struct str take_until(struct str *s, char end)
{
    const char *found = s->n ? memchr(s->at, end, s->n) : NULL;
    size_t n = found ? (size_t)(found - s->at) : s->n;
    struct str piece = str_from_to(*s, 0, n);

    *s = str_from_to(*s, n + (found != NULL), s->n);
    return piece;
}

// The limit that a folder sets; 0: none.
typedef uint64_t folder_limit(const char *folder);

// In CPUs.
static uint64_t folder_cpus(const char *folder)
{
    struct buf text = { 0 };
    uint64_t quota = 0, period = 0;

    if (!add_text(folder, "cpu.max", &text) && add_text(folder, "cpu.cfs_quota_us", &text)) {
        text.n -= text.n && text.at[text.n - 1] == '\n';
        buf_text(&text, " ");
        add_text(folder, "cpu.cfs_period_us", &text); // now as version 2 has it
    }
    struct str s = buf_as_str(&text), line = take_until(&s, '\n'), first = take_until(&line, ' ');
    bool limited = str_to_u64(first, &quota) && str_to_u64(line, &period) && quota && period;
    buf_free(&text);
    if (!limited)
        return 0;
    uint64_t n = quota / period;
    return n == 0 ? 1 : n > 65536 ? 65536 : n;
}

static uint64_t folder_bytes(const char *folder)
{
    struct buf text = { 0 };
    uint64_t bytes = 0;

    if (!add_text(folder, "memory.max", &text))
        add_text(folder, "memory.limit_in_bytes", &text);
    struct str s = buf_as_str(&text);
    bool limited = str_to_u64(take_until(&s, '\n'), &bytes) && bytes < NO_LIMIT;
    buf_free(&text);
    return limited ? bytes : 0;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a && (!b || a < b) ? a : b;
}

// The smallest limit of MOUNT/PATH and of the folders above it up to MOUNT.
static uint64_t path_limit(const char *mount, struct str path, folder_limit *limit)
{
    char folder[MAX_PATH];
    uint64_t least = 0;

    if (strlen(mount) + path.n >= sizeof folder)
        return 0;
    snprintf(folder, sizeof folder, "%s%.*s", mount, (int)path.n, path.at);
    for (;;) {
        least = least_of(limit(folder), least);
        if (strlen(folder) <= strlen(mount))
            return least;
        *strrchr(folder, '/') = 0;
    }
}

// A line is ID:CONTROLLERS:PATH; version 2 names no controllers.
static uint64_t line_limit(struct str line, const char *mount, const char *controller, folder_limit *limit)
{
    char v1[MAX_PATH];

    take_until(&line, ':');
    struct str names = take_until(&line, ':');
    if (names.n == 0)
        return path_limit(mount, line, limit);
    snprintf(v1, sizeof v1, "%s/%s", mount, controller);
    while (names.n) {
        if (str_is(take_until(&names, ','), controller))
            return path_limit(v1, line, limit);
    }
    return 0;
}

static uint64_t least_limit(const char *membership, const char *mount, const char *controller,
                            folder_limit *limit)
{
    struct buf text = { 0 };
    uint64_t least = 0;
    struct err err;

    if (file_exists(membership) && file_read(&text, membership, MAX_BYTES, &err)) {
        for (struct str rest = buf_as_str(&text); rest.n;)
            least = least_of(line_limit(take_until(&rest, '\n'), mount, controller, limit), least);
    }
    buf_free(&text);
    return least;
}

unsigned cgroup_n_cpus(const char *membership, const char *mount)
{
    return (unsigned)least_limit(membership, mount, "cpu", folder_cpus);
}

uint64_t cgroup_memory_bytes(const char *membership, const char *mount)
{
    return least_limit(membership, mount, "memory", folder_bytes);
}
