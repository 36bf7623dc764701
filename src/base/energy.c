// energy.c - see energy.h.
#include "base/energy.h"
#include <dlfcn.h>
#include <stdio.h>
#include "base/file.h"
#include "base/str.h"

enum { MOST_PACKAGES = 8 };

struct nvml {
    int (*start)(void);
    int (*stop)(void);
    int (*count)(unsigned *n);
    int (*device)(unsigned index, void **handle);
    int (*energy)(void *handle, unsigned long long *millijoules);
};

static bool nvml_load(void *library, struct nvml *n)
{
    static const char *const names[] = { "nvmlInit_v2", "nvmlShutdown", "nvmlDeviceGetCount_v2",
                                         "nvmlDeviceGetHandleByIndex_v2",
                                         "nvmlDeviceGetTotalEnergyConsumption" };
    void **slots = (void **)n;

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!(slots[i] = dlsym(library, names[i])))
            return false;
    return true;
}

static bool read_number(const char *path, uint64_t *number)
{
    struct buf text = { 0 };
    bool ok = file_read(&text, path, 64, NULL);

    while (ok && text.n && text.at[text.n - 1] == '\n')
        text.n--;
    ok = ok && str_to_u64(buf_as_str(&text), number);
    buf_free(&text);
    return ok;
}

// Packages are intel-rapl:0, intel-rapl:1, on AMD too; what is within one has a second colon.
static void find_packages(struct energy_meter *m, const char *folder)
{
    for (int i = 0; i < MOST_PACKAGES && m->n_sources < ENERGY_MOST_SOURCES; i++) {
        struct energy_source *s = &m->sources[m->n_sources];
        char range[128];
        *s = (struct energy_source){ .range = 0 };
        int n = snprintf(s->path, sizeof s->path, "%s/intel-rapl:%d/energy_uj", folder, i);
        snprintf(range, sizeof range, "%s/intel-rapl:%d/max_energy_range_uj", folder, i);
        if (n > 0 && n < (int)sizeof s->path && read_number(s->path, &s->last) &&
            read_number(range, &s->range))
            m->n_sources++;
    }
}

static void find_gpus(struct energy_meter *m)
{
    struct nvml nvml;
    unsigned n = 0;

    m->nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!m->nvml || !nvml_load(m->nvml, &nvml) || nvml.start() != 0)
        return;
    if (nvml.count(&n) != 0)
        n = 0;
    for (unsigned i = 0; i < n && m->n_sources < ENERGY_MOST_SOURCES; i++) {
        struct energy_source *s = &m->sources[m->n_sources];
        unsigned long long now;
        *s = (struct energy_source){ .range = 0 };
        if (nvml.device(i, &s->gpu) != 0 || nvml.energy(s->gpu, &now) != 0)
            continue;
        s->last = now;
        m->n_sources++;
    }
}

void energy_open(struct energy_meter *m, const char *folder)
{
    *m = (struct energy_meter){ 0 };
    find_packages(m, folder);
    find_gpus(m);
}

static bool read_source(const struct energy_meter *m, const struct energy_source *s, uint64_t *now)
{
    unsigned long long millijoules = 0;
    struct nvml nvml;

    if (*s->path)
        return read_number(s->path, now);
    if (!nvml_load(m->nvml, &nvml) || nvml.energy(s->gpu, &millijoules) != 0)
        return false;
    *now = millijoules;
    return true;
}

struct energy_reading energy_read(struct energy_meter *m)
{
    struct energy_reading r = { 0 };

    for (uint32_t i = 0; i < m->n_sources; i++) {
        struct energy_source *s = &m->sources[i];
        uint64_t now = s->last;
        if (read_source(m, s, &now)) {
            s->sum += now >= s->last ? now - s->last : s->range > s->last ? s->range - s->last + now : 0;
            s->last = now;
        }
        if (*s->path) {
            r.has_processor = true;
            r.processor_joules += (double)s->sum * 1e-6;
        } else {
            r.has_gpus = true;
            r.gpu_joules += (double)s->sum * 1e-3;
        }
    }
    return r;
}

void energy_close(struct energy_meter *m)
{
    struct nvml nvml;

    if (m->nvml && nvml_load(m->nvml, &nvml))
        nvml.stop();
    *m = (struct energy_meter){ 0 }; // the library stays: others in the process may use it
}
