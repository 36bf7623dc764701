// probe_cache.c - see probe_cache.h.
#include "engine/stage/probe_cache.h"
#include <jansson.h>
#include <unistd.h>
#include "base/buf_json.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "ingot.h"

enum { MOST_BYTES = 1 << 20, MOST_PROBES = 512, FORMAT = 2, HOST_BYTES = 256 };
static const double MOST_NUMBER = 1e18;

struct probe_cache {
    json_t *probes; // object; NULL: no memory
    char path[4096];
    bool changed;
};

// The numbers of a result, in the order of the file.
enum { N_NUMBERS = 5 * N_PROBE_STEPS + 9 };

static void to_numbers(const struct probe_speed *s, double to[N_NUMBERS])
{
    double *at = to;

    for (uint32_t i = 0; i < N_PROBE_STEPS; i++) {
        const double row[] = { s->n_rows[i], (double)s->at[i].layer_ns, (double)s->at[i].head_ns,
                               (double)s->at[i].away_ns, (double)s->at[i].stage_ns };
        memcpy(at, row, sizeof row);
        at += sizeof row / sizeof *row;
    }
    const double rest[] = { s->layer.bytes,       s->layer.operations,  s->layer.commands,
                            s->head.bytes,        s->head.operations,   s->head.commands,
                            s->limits.read_bytes, s->limits.operations, s->limits.command_ns };
    memcpy(at, rest, sizeof rest);
}

static struct probe_speed from_numbers(const double at[N_NUMBERS])
{
    struct probe_speed s = { 0 };

    for (uint32_t i = 0; i < N_PROBE_STEPS; i++, at += 5) {
        s.n_rows[i] = (uint32_t)at[0];
        s.at[i] = (struct probe_part){ (uint64_t)at[1], (uint64_t)at[2], (uint64_t)at[3], (uint64_t)at[4] };
    }
    s.layer = (struct probe_work){ at[0], at[1], at[2] };
    s.head = (struct probe_work){ at[3], at[4], at[5] };
    s.limits = (struct device_limits){ at[6], at[7], at[8] };
    return s;
}

struct probe_cache *probe_cache_parse(struct str text)
{
    struct probe_cache *c = mem_alloc(sizeof *c);
    json_t *all = c ? json_loadb(text.at, text.n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    json_t *probes = json_object_get(all, "probes");

    if (!c)
        return NULL;
    *c = (struct probe_cache){ 0 };
    if (json_is_object(probes) && json_integer_value(json_object_get(all, "format")) == FORMAT)
        c->probes = json_incref(probes);
    else
        c->probes = json_object();
    json_decref(all);
    return c;
}

struct probe_cache *probe_cache_open(const char *path)
{
    struct buf text = { 0 };
    struct err err;

    if (path && file_exists(path) && !file_read(&text, path, MOST_BYTES, &err))
        log_line(LOG_INFO, "plan", "%s; the devices are probed anew", err.message);
    struct probe_cache *c = probe_cache_parse(buf_as_str(&text));
    if (c && text.n > 0 && json_object_size(c->probes) == 0)
        log_line(LOG_INFO, "plan", "%s holds no probes; the devices are probed anew", path);
    if (c && path)
        snprintf(c->path, sizeof c->path, "%s", path);
    buf_free(&text);
    return c;
}

void probe_cache_close(struct probe_cache *c)
{
    struct err err;

    if (!c)
        return;
    json_t *all =
        c->changed && *c->path ? json_pack("{s:i, s:O}", "format", FORMAT, "probes", c->probes) : NULL;
    struct buf text = { 0 };
    bool ok = all && buf_json(&text, all, JSON_INDENT(1) | JSON_SORT_KEYS);
    if (ok && !file_save(c->path, buf_as_str(&text), &err))
        log_line(LOG_INFO, "plan", "probes are not kept: %s", err.message);
    buf_free(&text);
    json_decref(all);
    json_decref(c->probes);
    mem_free(c);
}

// ---- keys

static void add_text(struct sha256_stream *s, const char *text)
{
    sha256_add(s, text, strlen(text) + 1);
}

// NVIDIA's driver says its version there; elsewhere it came with the system, whose name has the release.
static void add_driver(struct sha256_stream *s, const struct device *d)
{
    static const char path[] = "/proc/driver/nvidia/version";
    struct buf text = { 0 };
    struct err err;

    if (str_starts(str_from(d->name), STR("cuda")) && file_exists(path) && file_read(&text, path, 4096, &err))
        sha256_add(s, text.at, text.n);
    buf_free(&text);
}

static void add_device(struct sha256_stream *s, struct device *d)
{
    struct device_info info = { 0 };

    if (d)
        d->ops->info(d, &info);
    add_text(s, d ? d->name : "");
    add_text(s, info.name);
}

static void add_place(struct sha256_stream *s, const char *what)
{
    char host[HOST_BYTES] = "";

    gethostname(host, sizeof host - 1);
    add_text(s, what);
    add_text(s, INGOT_VERSION);
    add_text(s, host);
}

struct sha256 probe_cache_key(const struct probe_request *p, const struct sha256 *model)
{
    struct sha256_stream *s = sha256_open();
    struct sha256 key = { 0 };
    const struct stage_shape *h = p->shape;
    const uint32_t numbers[] = {
        FORMAT,      h->max_rows, h->max_outputs, h->n_slots,   h->k_format,
        h->v_format, h->exact,    h->parts,       h->invariant, (uint32_t)h->gemm,
        h->n_away,   p->depth,    p->limits,      p->no_repack, p->device->uses_file
    };

    if (!s)
        return key;
    add_place(s, "layers");
    add_device(s, p->device);
    add_device(s, p->experts);
    add_driver(s, p->device);
    sha256_add(s, model, sizeof *model);
    sha256_add(s, numbers, sizeof numbers);
    key = sha256_take(s);
    sha256_close(s);
    return key;
}

struct sha256 probe_cache_link_key(struct device *from, struct device *to)
{
    struct sha256_stream *s = sha256_open();
    struct sha256 key = { 0 };

    if (!s)
        return key;
    add_place(s, "link");
    add_device(s, from);
    add_driver(s, from);
    add_device(s, to);
    add_driver(s, to);
    key = sha256_take(s);
    sha256_close(s);
    return key;
}

static bool find_numbers(const struct probe_cache *c, const struct sha256 *key, double *numbers, size_t n)
{
    char hex[SHA256_HEX_BYTES];

    sha256_hex(key, hex);
    json_t *row = c ? json_object_get(c->probes, hex) : NULL;
    if (!json_is_array(row) || json_array_size(row) != n)
        return false;
    for (size_t i = 0; i < n; i++) {
        json_t *number = json_array_get(row, i);
        numbers[i] = json_number_value(number);
        if (!json_is_number(number) || !(numbers[i] >= 0 && numbers[i] < MOST_NUMBER))
            return false;
    }
    return true;
}

static void put_numbers(struct probe_cache *c, const struct sha256 *key, const double *numbers, size_t n)
{
    char hex[SHA256_HEX_BYTES];
    json_t *row = c ? json_array() : NULL;

    if (!row)
        return;
    if (json_object_size(c->probes) >= MOST_PROBES) // of other models and versions, mostly
        json_object_clear(c->probes);
    sha256_hex(key, hex);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(row, json_real(numbers[i]));
    c->changed |= json_object_set_new(c->probes, hex, row) == 0;
}

bool probe_cache_find(const struct probe_cache *c, const struct sha256 *key, struct probe_speed *speed)
{
    double numbers[N_NUMBERS];

    if (!find_numbers(c, key, numbers, N_NUMBERS))
        return false;
    for (uint32_t i = 0; i < N_PROBE_STEPS; i++) // rows, and the time of a layer
        if (!(numbers[5 * i] >= 1 && numbers[5 * i] <= 1e6 && numbers[5 * i + 1] >= 1))
            return false;
    *speed = from_numbers(numbers);
    return true;
}

void probe_cache_put(struct probe_cache *c, const struct sha256 *key, const struct probe_speed *speed)
{
    double numbers[N_NUMBERS];

    to_numbers(speed, numbers);
    put_numbers(c, key, numbers, N_NUMBERS);
}

bool probe_cache_find_link(const struct probe_cache *c, const struct sha256 *key, struct probe_link *link)
{
    double numbers[2];

    if (!find_numbers(c, key, numbers, 2) || numbers[0] < 1)
        return false;
    *link = (struct probe_link){ numbers[0], numbers[1] };
    return true;
}

void probe_cache_put_link(struct probe_cache *c, const struct sha256 *key, const struct probe_link *link)
{
    put_numbers(c, key, (const double[]){ link->bytes, link->latency_ns }, 2);
}
