// system_load.c - see system_load.h. The files' formats: proc(5), sysfs-class-power, thermal/sysfs-api.
#include "engine/limits/system_load.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/cgroup.h"
#include "base/file.h"

enum { PATH_BYTES = 1024, TEXT_BYTES = 65536, LOW_BATTERY = 20, MOST_TRIPS = 12, STAT_COLUMNS = 8 };

static bool read_text(const struct system_load_meter *m, const char *path, struct buf *text)
{
    char whole[PATH_BYTES];
    struct err err;

    text->n = 0;
    return (size_t)snprintf(whole, sizeof whole, "%s%s", m->root ? m->root : "", path) < sizeof whole &&
           file_exists(whole) && file_read(text, whole, TEXT_BYTES, &err) && text->n > 0;
}

// The next word, up to a blank or the line's end; empty at the end of the line.
static struct str next_word(struct str *rest)
{
    size_t from = 0, to;

    while (from < rest->n && rest->at[from] == ' ')
        from++;
    for (to = from; to < rest->n && rest->at[to] != ' ' && rest->at[to] != '\n'; to++)
        ;
    struct str word = str_from_to(*rest, from, to);
    *rest = str_from_to(*rest, to, rest->n);
    return word;
}

static uint64_t own_ns(void)
{
    struct rusage u;

    if (getrusage(RUSAGE_SELF, &u) != 0)
        return 0;
    return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000u +
           (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000u;
}

// "cpu  user nice system idle iowait irq softirq steal": ticks. What a virtual machine does not get (steal)
// counts as used by others.
static bool read_ticks(const struct system_load_meter *m, uint64_t *total, uint64_t *busy)
{
    struct buf text = { 0 };
    bool ok = read_text(m, "/proc/stat", &text);
    struct str rest = buf_as_str(&text);
    uint64_t n;

    ok = ok && str_is(next_word(&rest), "cpu");
    *total = *busy = 0;
    for (int i = 0; ok && i < STAT_COLUMNS && str_to_u64(next_word(&rest), &n); i++) {
        *total += n;
        *busy += i == 3 || i == 4 ? 0 : n; // idle, iowait
    }
    buf_free(&text);
    return ok && *total > 0;
}

static double share(double part, double whole)
{
    return part < 0 ? 0 : part > whole ? 1 : part / whole;
}

static double read_cpu(struct system_load_meter *m)
{
    long tick = sysconf(_SC_CLK_TCK);
    uint64_t total, busy;
    double result = SYSTEM_LOAD_UNKNOWN;

    if (tick <= 0 || !read_ticks(m, &total, &busy))
        return result;
    uint64_t own = (uint64_t)((double)(m->own_ns ? m->own_ns() : own_ns()) * 1e-9 * (double)tick);
    if (m->has_before && total > m->total)
        result = share((double)busy - (double)m->busy - ((double)own - (double)m->own),
                       (double)(total - m->total));
    m->total = total;
    m->busy = busy;
    m->own = own;
    m->has_before = true;
    return result;
}

// The number behind "\nNAME:", in KiB.
static bool read_field(struct str text, const char *name, uint64_t *kib)
{
    size_t at = str_find(text, str_from(name));

    if (at == SIZE_MAX)
        return false;
    struct str rest = str_from_to(text, at + strlen(name), text.n);
    return str_to_u64(next_word(&rest), kib);
}

// Resident memory that no file backs, which is what cannot be taken from us.
static uint64_t own_kib(const struct system_load_meter *m)
{
    struct buf text = { 0 };
    uint64_t size, resident = 0, shared = 0;
    long page = sysconf(_SC_PAGESIZE);
    bool ok = page > 0 && read_text(m, "/proc/self/statm", &text);
    struct str rest = buf_as_str(&text);

    ok = ok && str_to_u64(next_word(&rest), &size) && str_to_u64(next_word(&rest), &resident) &&
         str_to_u64(next_word(&rest), &shared) && resident > shared;
    buf_free(&text);
    return ok ? (resident - shared) * (uint64_t)page / 1024 : 0;
}

static double read_memory(const struct system_load_meter *m)
{
    struct buf text = { 0 };
    uint64_t total = 0, available = 0;
    bool ok = read_text(m, "/proc/meminfo", &text) && read_field(buf_as_str(&text), "MemTotal:", &total) &&
              read_field(buf_as_str(&text), "MemAvailable:", &available) && total > 0;

    buf_free(&text);
    if (!ok)
        return SYSTEM_LOAD_UNKNOWN;
    return share((double)total - (double)available - (double)own_kib(m), (double)total);
}

static uint64_t cgroup_limit(const struct system_load_meter *m)
{
    const char *root = m->root ? m->root : "";
    char membership[PATH_BYTES], mount[PATH_BYTES];

    snprintf(membership, sizeof membership, "%s/proc/self/cgroup", root);
    snprintf(mount, sizeof mount, "%s/sys/fs/cgroup", root);
    return cgroup_memory_bytes(membership, mount);
}

uint64_t system_load_available(const struct system_load_meter *m)
{
    struct buf text = { 0 };
    uint64_t bytes = 0, limit = cgroup_limit(m), own = 1024 * own_kib(m);
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    if (read_text(m, "/proc/meminfo", &text) && read_field(buf_as_str(&text), "MemAvailable:", &bytes))
        bytes *= 1024;
    else
        bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 2 : 0;
    buf_free(&text);
    if (limit == 0)
        return bytes;
    limit -= own < limit ? own : limit;
    return bytes < limit ? bytes : limit;
}

static bool read_number(const struct system_load_meter *m, const char *path, uint64_t *n)
{
    struct buf text = { 0 };
    bool ok = read_text(m, path, &text);
    struct str rest = buf_as_str(&text);

    ok = ok && str_to_u64(next_word(&rest), n);
    buf_free(&text);
    return ok;
}

static bool read_word(const struct system_load_meter *m, const char *path, const char *word)
{
    struct buf text = { 0 };
    bool ok = read_text(m, path, &text);
    struct str rest = buf_as_str(&text);

    ok = ok && str_is(next_word(&rest), word);
    buf_free(&text);
    return ok;
}

static bool battery_is_low(const struct system_load_meter *m, const char *at)
{
    char path[PATH_BYTES];
    uint64_t percent;

    snprintf(path, sizeof path, "%s/type", at);
    if (!read_word(m, path, "Battery"))
        return false;
    snprintf(path, sizeof path, "%s/status", at);
    if (!read_word(m, path, "Discharging"))
        return false;
    snprintf(path, sizeof path, "%s/capacity", at);
    return read_number(m, path, &percent) && percent < LOW_BATTERY;
}

static bool zone_is_hot(const struct system_load_meter *m, const char *at)
{
    char path[PATH_BYTES];
    uint64_t now, limit;

    snprintf(path, sizeof path, "%s/temp", at);
    if (!read_number(m, path, &now))
        return false;
    for (int i = 0; i < MOST_TRIPS; i++) {
        snprintf(path, sizeof path, "%s/trip_point_%d_type", at, i);
        if (!read_word(m, path, "passive") && !read_word(m, path, "hot"))
            continue;
        snprintf(path, sizeof path, "%s/trip_point_%d_temp", at, i);
        if (read_number(m, path, &limit) && limit > 0 && now >= limit)
            return true;
    }
    return false;
}

// Whether one of the folders in `folder` is so.
static bool any_of(const struct system_load_meter *m, const char *folder,
                   bool (*is_so)(const struct system_load_meter *m, const char *at))
{
    char whole[PATH_BYTES], at[PATH_BYTES / 2];
    struct dirent *entry;
    bool found = false;

    snprintf(whole, sizeof whole, "%s%s", m->root ? m->root : "", folder);
    DIR *all = opendir(whole);
    while (all && !found && (entry = readdir(all)))
        found = entry->d_name[0] != '.' &&
                (size_t)snprintf(at, sizeof at, "%s/%s", folder, entry->d_name) < sizeof at && is_so(m, at);
    if (all)
        closedir(all);
    return found;
}

struct system_load system_load_read(struct system_load_meter *m)
{
    return (struct system_load){ .cpu = read_cpu(m),
                                 .memory = read_memory(m),
                                 .is_hot = any_of(m, "/sys/class/thermal", zone_is_hot),
                                 .is_battery_low = any_of(m, "/sys/class/power_supply", battery_is_low) };
}
