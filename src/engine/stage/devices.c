// devices.c - see devices.h.
#include "engine/stage/devices.h"
#include <string.h>
#include <unistd.h>
#include "base/err.h"
#include "base/log.h"
#include "base/options.h"
#include "base/thread_pool.h"
#include "device/communicator.h"
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/metal/metal.h"
#include "ops/cpu_table.h"
#include "ops/cuda_table.h"
#include "ops/metal_table.h"

static struct device *open_cpu(struct str name, const struct ingot_engine_options *o, struct err *err)
{
    struct cpu_options options = { .n_threads = o->n_threads,
                                   .features = o->cpu_features,
                                   .plain = str_starts(name, STR("cpu:plain")),
                                   .parts = str_is(name, DEVICE_PLAIN_PARTS),
                                   .no_repack = o->no_repack,
                                   .table = &cpu_table };

    return cpu_open(&options, err);
}

// Parses the number in "cuda:1"; 0 when there is none.
static bool read_ordinal(struct str name, size_t kind_bytes, uint32_t *ordinal, struct err *err)
{
    uint64_t n = 0;

    if (name.n > kind_bytes &&
        (name.at[kind_bytes] != ':' || !str_to_u64(str_from_to(name, kind_bytes + 1, name.n), &n) || n > 255))
        return err_set(err, ERR_INPUT, "device \"%.*s\"; want %.*s, or %.*s:N with a device's number",
                       STR_ARG(name), (int)kind_bytes, name.at, (int)kind_bytes, name.at);
    *ordinal = (uint32_t)n;
    return true;
}

static struct device *open_cuda(struct str name, struct err *err)
{
    uint32_t ordinal = 0;
    struct device *d = NULL;

    if (read_ordinal(name, 4, &ordinal, err) && !(d = cuda_open(ordinal, &cuda_table, err)))
        err_prefix(err, "device %.*s", STR_ARG(name));
    return d;
}

static struct device *open_metal(struct str name, const struct ingot_engine_options *o, struct err *err)
{
    char archive[1024];
    struct metal_options options = { .commit_every = o->commit_every, .table = &metal_table };
    struct device *d = NULL;

    if (options_state_path("metal.archive", archive, sizeof archive))
        options.archive = archive;
    if (read_ordinal(name, 5, &options.ordinal, err) && !(d = metal_open(&options, err)))
        err_prefix(err, "device %.*s", STR_ARG(name));
    return d;
}

// The first GPU that works, else the CPU.
static struct device *open_auto(const struct ingot_engine_options *o, struct err *err)
{
    struct err no_cuda = { 0 }, no_metal = { 0 };
    struct device *d = NULL;

    if (cuda_n_devices(&no_cuda) > 0)
        d = open_cuda(STR("cuda"), &no_cuda);
    if (!d && metal_n_devices(&no_metal) > 0)
        d = open_metal(STR("metal"), o, &no_metal);
    if (d)
        return d;
    log_line(LOG_DEBUG, "load", "on the processor: %s; %s", no_cuda.message, no_metal.message);
    return open_cpu(STR("cpu"), o, err);
}

static struct device *open_one(struct str name, const struct ingot_engine_options *o, struct err *err)
{
    if (str_starts(name, STR("cuda")))
        return open_cuda(name, err);
    if (str_starts(name, STR("metal")))
        return open_metal(name, o, err);
    if (str_is(name, "cpu") || str_is(name, "cpu:plain") || str_is(name, DEVICE_PLAIN_PARTS))
        return open_cpu(name, o, err);
    if (str_is(name, "auto"))
        return open_auto(o, err);
    err_set(err, ERR_UNSUPPORTED,
            "%s \"%.*s\"; want auto, cpu, cpu:plain, cuda, cuda:N, metal or metal:N, or several of them "
            "as in cuda:0,cpu",
            err_option("device"), STR_ARG(name));
    return NULL;
}

// A CPU's name, with ":N" behind for the last N layers; the longest name that fits.
static bool read_experts(struct str text, struct str *name, uint64_t *n)
{
    static const char *const names[] = { DEVICE_PLAIN_PARTS, "cpu:plain", "cpu" };
    uint32_t i = 0;

    while (i < 3 && !str_starts(text, str_from(names[i])))
        i++;
    if (i == 3)
        return false;
    *name = str_from(names[i]);
    struct str rest = str_from_to(text, name->n, text.n);
    return rest.n == 0 || (rest.at[0] == ':' && str_to_u64(str_from_to(rest, 1, rest.n), n) && *n > 0);
}

bool devices_add_experts(struct devices *d, const struct ingot_engine_options *o, struct str name,
                         uint32_t n_away, struct err *err)
{
    d->experts = open_cpu(name, o, err);
    d->n_away = d->experts ? n_away : 0;
    return d->experts != NULL;
}

static bool open_experts(struct devices *d, const struct ingot_engine_options *o, struct err *err)
{
    struct str name;
    uint64_t n = UINT32_MAX;

    if (!read_experts(str_from(o->experts), &name, &n))
        return err_set(err, ERR_INPUT,
                       "%s \"%s\": want cpu, cpu:N for those of the last N layers, or none to keep them on "
                       "the device",
                       err_option("experts"), o->experts);
    return devices_add_experts(d, o, name, n < UINT32_MAX ? (uint32_t)n : UINT32_MAX, err);
}

// The name at an index of the list; the last one from there on.
static struct str name_at(struct str list, uint32_t index, uint32_t *n_names)
{
    struct str name = list;

    *n_names = 0;
    for (size_t comma = 0; comma != SIZE_MAX; ++*n_names) {
        comma = str_find(list, STR(","));
        if (*n_names <= index)
            name = str_from_to(list, 0, comma == SIZE_MAX ? list.n : comma);
        list = str_from_to(list, comma == SIZE_MAX ? list.n : comma + 1, list.n);
    }
    return name;
}

// Where one name stands for all of n ranks, the others follow the first.
static struct str name_of_rank(const struct devices *d, struct str name, uint32_t n, char room[16])
{
    struct err err;
    bool open = str_is(name, "auto") || str_is(name, "cuda");

    if (d->n == 0 || !open)
        return name;
    if (str_starts(str_from(d->at[0]->name), STR("cuda")) && cuda_n_devices(&err) >= n)
        snprintf(room, 16, "cuda:%u", d->n);
    else
        snprintf(room, 16, "%s", d->at[0]->name);
    return str_from(room);
}

// Ranks on one GPU wait for each other and exchange for nothing: only where its name is given for each.
static bool check_apart(const struct devices *d, bool is_named, uint32_t n, struct err *err)
{
    const struct device *last = d->at[d->n - 1];
    bool on_cuda = str_starts(str_from(last->name), STR("cuda")), again = false;
    struct err none;

    for (uint32_t i = 0; i + 1 < d->n; i++)
        again |= strcmp(d->at[i]->name, last->name) == 0;
    if (!again || !last->queue)
        return true;
    if (!is_named)
        return err_set(err, ERR_INPUT,
                       "%s %u wants %u GPUs, and %s would be several of them (found: %u); "
                       "%sleave it out",
                       err_option("n_tensor_parallel"), n, n, last->name,
                       on_cuda ? cuda_n_devices(&none) : metal_n_devices(&none),
                       on_cuda ? "name one for each, as in cuda:0,cuda:1, or " : "");
    log_line(LOG_WARN, "load", "%s has several of the %u ranks, which is slower than one device alone",
             last->name, n);
    return true;
}

// Each has its share of the processor's threads.
static bool open_ranks(struct devices *d, const struct ingot_engine_options *options, uint32_t n,
                       struct err *err)
{
    struct str list = str_from(options->device ? options->device : "auto");
    uint32_t n_names, n_threads = thread_count_capped(options->n_threads);

    name_at(list, 0, &n_names);
    if (n > MAX_DEVICES || (n_names != 1 && n_names != n))
        return err_set(err, ERR_INPUT, "devices \"%.*s\" for %u ranks; want one for each, or one for all",
                       STR_ARG(list), n);
    while (d->n < n) {
        struct ingot_engine_options own = *options;
        char room[16];
        uint32_t share = n_threads * (d->n + 1) / n - n_threads * d->n / n;
        own.n_threads = share ? share : 1;
        d->at[d->n] = open_one(name_of_rank(d, name_at(list, d->n, &n_names), n, room), &own, err);
        if (!d->at[d->n])
            return err_prefix(err, "rank %u", d->n);
        d->n++;
        if (!check_apart(d, n_names == n, n, err))
            return false;
    }
    return true;
}

bool devices_open(struct devices *d, const struct ingot_engine_options *options, struct err *err)
{
    struct str rest = str_from(options->device ? options->device : "auto");
    bool more = true;

    if (options->n_tensor_parallel > 1)
        return open_ranks(d, options, options->n_tensor_parallel, err);
    d->is_found = str_is(rest, "auto");
    while (more) {
        size_t comma = str_find(rest, STR(","));
        more = comma != SIZE_MAX;
        if (d->n == MAX_DEVICES)
            return err_set(err, ERR_INPUT, "devices \"%s\": want at most %d", options->device, MAX_DEVICES);
        d->at[d->n] = open_one(str_from_to(rest, 0, more ? comma : rest.n), options, err);
        if (!d->at[d->n])
            return false;
        d->n++;
        rest = str_from_to(rest, more ? comma + 1 : rest.n, rest.n);
    }
    return !options->experts || !*options->experts || !strcmp(options->experts, "none") ||
           open_experts(d, options, err);
}

void devices_add_gpus(struct devices *d)
{
    struct err err = { 0 };
    uint32_t n = d->n == 1 && !strcmp(d->at[0]->name, "cuda:0") ? cuda_n_devices(&err) : 0;

    for (uint32_t i = 1; i < n && d->n < MAX_DEVICES - 1; i++) {
        struct device *one = cuda_open(i, &cuda_table, &err);
        if (one)
            d->at[d->n++] = one;
        else
            log_line(LOG_WARN, "load", "cuda:%u is left out: %s", i, err.message);
    }
}

bool devices_add_cpu(struct devices *d, const struct ingot_engine_options *o, struct err *err)
{
    struct device *cpu = open_cpu(STR("cpu"), o, err);

    if (cpu)
        d->at[d->n++] = cpu;
    return cpu != NULL;
}

void devices_remove(struct devices *d, uint32_t i)
{
    device_close(d->at[i]);
    d->n--;
    memmove(&d->at[i], &d->at[i + 1], (d->n - i) * sizeof *d->at);
}

void devices_remove_experts(struct devices *d)
{
    device_close(d->experts);
    d->experts = NULL;
    d->n_away = 0;
}

void devices_close(struct devices *d)
{
    if (d->communicator)
        d->communicator->ops->close(d->communicator);
    d->communicator = NULL;
    while (d->n > 0)
        device_close(d->at[--d->n]);
    devices_remove_experts(d);
}

void devices_kind(struct device *d, char kind[DEVICE_KIND_BYTES])
{
    struct device_info info = { 0 };
    struct str name = str_from(d->name);
    bool on_gpu = str_starts(name, STR("cuda")) || str_starts(name, STR("metal"));

    if (on_gpu)
        d->ops->info(d, &info);
    snprintf(kind, DEVICE_KIND_BYTES, "%.*s%s%s%s", on_gpu ? (int)strcspn(d->name, ":") : (int)name.n,
             d->name, on_gpu ? " (" : "", info.name, on_gpu ? ")" : "");
}

bool devices_are_alike(struct device *a, struct device *b)
{
    char of_a[DEVICE_KIND_BYTES], of_b[DEVICE_KIND_BYTES];

    devices_kind(a, of_a);
    devices_kind(b, of_b);
    return strcmp(of_a, of_b) == 0;
}

bool devices_is_plain(const struct device *d)
{
    return str_is(str_from(d->name), "cpu:plain");
}

uint64_t devices_host_bytes(const struct devices *d)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    for (uint32_t i = 0; i < d->n; i++)
        if (!str_starts(str_from(d->at[i]->name), STR("cuda")))
            return 0;
    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
}

bool devices_has_own_memory(const struct device *d)
{
    return str_starts(str_from(d->name), STR("cuda"));
}

bool devices_may_have_more(const struct devices *d)
{
    char how[256];

    for (uint32_t i = 0; i < d->n; i++)
        if (strncmp(d->at[i]->name, "metal", 5) == 0 && metal_more_memory(d->at[i], how, sizeof how))
            return true;
    return false;
}

bool devices_share_memory(const struct device *a, const struct device *b)
{
    return (!devices_has_own_memory(a) && !devices_has_own_memory(b)) || strcmp(a->name, b->name) == 0;
}
