// usage_limits.c - see usage_limits.h. One table names the keys, reads and prints them.
#include "engine/limits/usage_limits.h"
#include <stddef.h>
#include <stdio.h>
#include "base/err.h"
#include "base/str.h"

static const struct {
    const char *name;
    struct usage_limits limits;
} presets[] = {
    { "conservative", { 0.5f, 0.6f, 15, LIMITS_IDLE_IO, 100, 2, 0.5f, 0.6f, 0.8f, 3, 60, false } },
    { "balanced", { 0.7f, 0.8f, 10, LIMITS_IDLE_IO, 50, 4, 0.7f, 0.8f, 0.9f, 5, 30, false } },
    { "aggressive", { 0.95f, 0.95f, 0, 4, 0, 16, 0.9f, 0.95f, 0.95f, 10, 15, false } },
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

#define AT(member) offsetof(struct usage_limits, member)
static const struct limit_key {
    const char *name;
    size_t at;
    uint32_t most; // of a whole number; 0: a share from 0 to 1
    const char *want;
} keys[] = {
    { "memory", AT(memory), 0, "a share from 0 to 1" },
    { "compute", AT(compute), 0, "a share from 0 to 1" },
    { "nice", AT(nice), 19, "0 to 19" },
    { "io", AT(io), LIMITS_IDLE_IO - 1, "idle, or 0 to 7" },
    { "interval", AT(interval_ms), 3600000, "milliseconds, at most an hour" },
    { "batch", AT(batch), 4096, "requests, at most 4096" },
    { "cpu", AT(cpu), 0, "a share from 0 to 1" },
    { "gpu", AT(gpu), 0, "a share from 0 to 1" },
    { "ram", AT(ram), 0, "a share from 0 to 1" },
    { "check", AT(check_s), 3600, "seconds, at most an hour" },
    { "pause", AT(pause_s), 3600, "seconds, at most an hour" },
};
enum { N_KEYS = sizeof keys / sizeof *keys, DEFAULT_CHECK_S = 5, DEFAULT_PAUSE_S = 30 };

static float *share_at(struct usage_limits *l, const struct limit_key *k)
{
    return (float *)(void *)((char *)l + k->at);
}

static uint32_t *number_at(struct usage_limits *l, const struct limit_key *k)
{
    return (uint32_t *)(void *)((char *)l + k->at);
}

static bool read_value(struct usage_limits *l, const struct limit_key *k, struct str value)
{
    uint64_t n;
    double x;

    if (k->most == 0) {
        if (!str_to_f64(value, &x) || !(x >= 0 && x <= 1))
            return false;
        *share_at(l, k) = (float)x;
        return true;
    }
    if (k->at == AT(io) && str_is(value, "idle"))
        n = LIMITS_IDLE_IO;
    else if (!str_to_u64(value, &n) || n > k->most)
        return false;
    *number_at(l, k) = (uint32_t)n;
    return true;
}

static bool read_pair(struct usage_limits *l, struct str pair, struct err *err)
{
    size_t sign = str_find(pair, STR("="));
    struct str name = str_from_to(pair, 0, sign == SIZE_MAX ? pair.n : sign),
               value = str_from_to(pair, sign == SIZE_MAX ? pair.n : sign + 1, pair.n);

    for (uint32_t i = 0; i < N_KEYS; i++) {
        if (!str_is(name, keys[i].name))
            continue;
        return read_value(l, &keys[i], value) ||
               err_set(err, ERR_INPUT, "%s: %s is \"%.*s\"; want %s", err_option("limits"), keys[i].name,
                       STR_ARG(value), keys[i].want);
    }
    if (str_is(name, "power") && (str_is(value, "on") || str_is(value, "off"))) {
        l->no_power = str_is(value, "off");
        return true;
    }
    return err_set(err, ERR_INPUT,
                   "%s: \"%.*s\"; want conservative, balanced or aggressive, and then any of memory, "
                   "compute, nice, io, interval, batch, cpu, gpu, ram, check, pause and power=off, as in "
                   "balanced,compute=0.5,batch=2",
                   err_option("limits"), STR_ARG(pair));
}

static bool read_preset(struct usage_limits *l, struct str name)
{
    for (uint32_t i = 0; i < N_PRESETS; i++)
        if (str_is(name, presets[i].name)) {
            *l = presets[i].limits;
            return true;
        }
    return false;
}

bool usage_limits_read(struct usage_limits *l, const char *text, struct err *err)
{
    struct str rest = str_from(text ? text : "");
    bool first = true;

    *l = (struct usage_limits){ 0 };
    while (rest.n > 0) {
        size_t comma = str_find(rest, STR(","));
        struct str word = str_from_to(rest, 0, comma == SIZE_MAX ? rest.n : comma);
        rest = str_from_to(rest, comma == SIZE_MAX ? rest.n : comma + 1, rest.n);
        if (!(first && read_preset(l, word)) && !read_pair(l, word, err))
            return false;
        first = false;
    }
    if (l->check_s == 0)
        l->check_s = DEFAULT_CHECK_S;
    if (l->pause_s == 0)
        l->pause_s = DEFAULT_PAUSE_S;
    return true;
}

bool usage_limits_watch(const struct usage_limits *l)
{
    return l->cpu > 0 || l->gpu > 0 || l->ram > 0 || (l->compute > 0 && !l->no_power);
}

bool usage_limits_any(const struct usage_limits *l)
{
    return usage_limits_watch(l) || l->memory > 0 || l->compute > 0 || l->nice || l->io || l->interval_ms ||
           l->batch;
}

static float lower_of(float a, float b)
{
    return a == 0 || (b > 0 && b < a) ? b : a;
}

struct usage_limits usage_limits_lower(const struct usage_limits *l)
{
    struct usage_limits lower = *l;
    uint32_t i = N_PRESETS - 1;

    // The highest preset whose compute share is below ours; the lowest where none is.
    while (i > 0 && l->compute > 0 && presets[i].limits.compute >= l->compute)
        i--;
    lower.compute = lower_of(l->compute, presets[i].limits.compute);
    lower.cpu = l->cpu > 0 ? lower_of(l->cpu, presets[i].limits.cpu) : 0;
    lower.gpu = l->gpu > 0 ? lower_of(l->gpu, presets[i].limits.gpu) : 0;
    lower.ram = l->ram > 0 ? lower_of(l->ram, presets[i].limits.ram) : 0;
    return lower;
}

void usage_limits_print(const struct usage_limits *l, char to[LIMITS_TEXT_BYTES])
{
    struct usage_limits own = *l;
    size_t at = 0;

    to[0] = 0;
    for (uint32_t i = 0; i < N_KEYS && at < LIMITS_TEXT_BYTES; i++) {
        const struct limit_key *k = &keys[i];
        const char *comma = at ? ", " : "";
        bool times = k->at == AT(check_s) || k->at == AT(pause_s);
        if (times && !usage_limits_watch(l))
            continue;
        if (k->most == 0 && *share_at(&own, k) > 0)
            at += (size_t)snprintf(to + at, LIMITS_TEXT_BYTES - at, "%s%s %.2f", comma, k->name,
                                   (double)*share_at(&own, k));
        else if (k->at == AT(io) && own.io == LIMITS_IDLE_IO)
            at += (size_t)snprintf(to + at, LIMITS_TEXT_BYTES - at, "%sio idle", comma);
        else if (k->most > 0 && *number_at(&own, k) > 0)
            at += (size_t)snprintf(to + at, LIMITS_TEXT_BYTES - at, "%s%s %u", comma, k->name,
                                   *number_at(&own, k));
    }
}
