// verb_doctor.c - ingot doctor: what ingot finds on this machine, and what it was built with.
#include <sys/utsname.h>
#include <unistd.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <curl/curl.h>
#include <utf8proc.h>
#ifdef INGOT_SERVER
#include <event2/event.h>
#include "server/http/message.h"
#endif
#include "ingot.h"
#include "base/bandwidth.h"
#include "base/file.h"
#include "base/thread_pool.h"
#include "device/cpu/cpu.h"
#include "device/cuda/cuda.h"
#include "device/cuda/nccl.h"
#include "device/metal/metal.h"
#include "device/link_speed.h"
#include "engine/embedded.h"
#include "engine/ranks/plugin.h"
#include "engine/stage/devices.h"
#include "image/image.h"
#include "main/settings.h"
#include "main/terminal/out.h"
#include "main/terminal/out_json.h"
#include "main/version.h"
#include "ops/cuda_table.h"
#include "ops/metal_table.h"
#include "server/page.h"
#ifdef INGOT_LIBEDIT
#include <histedit.h>
#endif

// One line of the report. Its label is also its key in JSON.
struct report {
    json_t *all; // object, in the order of the lines
};

static void add(struct report *r, const char *key, const char *format, ...) PRINTF_LIKE(3, 4);
static void add(struct report *r, const char *key, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    json_object_set_new(r->all, key, json_string(text));
}

static void add_processor(struct report *r)
{
    char features[128] = "";
    struct utsname name;
    unsigned n = thread_count_available();

    cpu_features_print(cpu_features(), features, sizeof features);
    if (uname(&name) == 0)
        add(r, "system", "%s %s, %s", name.sysname, name.release, name.machine);
    add(r, "processor", "%u thread%s for this process, %s", n, str_plural(n),
        features[0] ? features : "no vector features that ingot uses");
    double rate = bandwidth_read(n);
    if (rate > 0)
        add(r, "memory speed", "%.1f GB/s read by %u thread%s", rate * 1e-9, n, str_plural(n));
    else
        add(r, "memory speed", "not probed: too little memory");
}

static void add_memory(struct report *r)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    struct buf text = { 0 };
    struct err err;

    if (pages > 0 && page > 0)
        add(r, "memory", "%.1f GiB, pages of %ld KiB", (double)pages * (double)page / (1 << 30), page / 1024);
    // "always [madvise] never": the word in brackets holds
    const char *path = "/sys/kernel/mm/transparent_hugepage/enabled";
    if (file_exists(path) && file_read(&text, path, 65536, &err) && strchr(text.at, '[')) {
        const char *word = strchr(text.at, '[') + 1;
        int n = (int)strcspn(word, "]");
        bool never = n == 5 && !strncmp(word, "never", 5);
        add(r, "huge pages", "%.*s%s", n, word,
            never ? ": decoding would be some percent faster with madvise" : "");
    } else {
        add(r, "huge pages", "the system does not say");
    }
    buf_free(&text);
}

// The library that reads an image format, or none.
static void add_pictures(struct report *r, const char *key, const char *library, const char *format)
{
    if (library)
        add(r, key, "%s", library);
    else
        add(r, key, "not built in: %s pictures are refused", format);
}

static void add_libraries(struct report *r)
{
    char pcre2[64] = "";
    uint32_t jit = 0;

    pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    pcre2_config(PCRE2_CONFIG_JIT, &jit);
    add(r, "jansson", "%s", jansson_version_str());
    add(r, "pcre2", "%s, %s", pcre2, jit ? "with JIT" : "without JIT: tokenising is slower");
    add(r, "utf8proc", "%s", utf8proc_version());
    add(r, "libcurl", "%s", curl_version_info(CURLVERSION_NOW)->version);
    add_pictures(r, "libpng", picture_png_library(), "PNG");
    add_pictures(r, "libjpeg-turbo", picture_jpeg_library(), "JPEG");
    add_pictures(r, "libwebp", picture_webp_library(), "WebP");
#ifdef INGOT_SERVER
    add(r, "libevent", "%s", event_get_version());
    add(r, "llhttp", "%s", message_library());
    add(r, "markdown-it", "%s",
        *page_markdown_it() ? page_markdown_it() : "not built in: the chat page shows plain text");
#else
    add(r, "libevent", "not built in, for want of it or of llhttp: there is no ingot serve");
#endif
#ifdef INGOT_LIBEDIT
    add(r, "libedit", "%d.%d", LIBEDIT_MAJOR, LIBEDIT_MINOR);
#else
    add(r, "libedit", "not built in: the chat has no line editing");
#endif
}

// What carries one model over several hosts.
static void add_mpi(struct report *r)
{
    struct err why = { 0 };
    const struct mpi_plugin *mpi = plugin_open(&why);
    char library[128] = "";

    if (mpi)
        mpi->library(library, sizeof library);
    if (mpi)
        add(r, "mpi", "%s: 'mpirun -n 2 ingot serve' runs a model on two processes or hosts", library);
    else
        add(r, "mpi", "none: %s", why.message);
}

// What ranks on several NVIDIA GPUs exchange by.
static void add_nccl(struct report *r)
{
    struct err why = { 0 };
    const struct nccl_library *library = nccl_load(&why);
    char name[32] = "";

    if (library)
        nccl_library_name(library, name, sizeof name);
    if (library)
        add(r, "nccl",
            "%s: NVIDIA GPUs that do not reach each other, and those of mpirun's ranks, exchange by it",
            name + strlen("NCCL "));
    else
        add(r, "nccl", "none: %s", why.message);
}

// The line of one kind of GPU: "2; cuda:0 is ...", or why there is none.
static void add_gpu(struct report *r, const char *key, uint32_t n, struct device *d, const struct err *why)
{
    struct device_info info = { 0 };

    if (!d) {
        add(r, key, "none: %s", why->message);
        return;
    }
    d->ops->info(d, &info);
    add(r, key, "%u; %s is %s, %.1f GiB, %.1f free", n, d->name, info.name,
        (double)info.memory_bytes / (1 << 30), (double)info.free_bytes / (1 << 30));
}

// "cpu - cuda:0": a: NULL is the processor.
static void add_link(struct report *r, struct device *a, struct device *b)
{
    struct link_speed s;
    struct err err;
    char key[48];

    snprintf(key, sizeof key, "%s - %s", a ? a->name : "cpu", b->name);
    if (!link_speed_measure(a, b, &s, &err))
        add(r, key, "not probed: %s", err.message);
    else
        add(r, key, "%.1f GB/s there, %.1f back, 4 KiB in %.1f us, %s", s.there * 1e-9, s.back * 1e-9,
            s.latency_s * 1e6,
            s.direct  ? "from GPU to GPU"
            : s.sends ? "by the driver through the host"
                      : "by the processor's copies");
}

// Every GPU with the processor, and every pair of GPUs that may share a model.
static void add_links(struct report *r, struct device *const *gpus, uint32_t n)
{
    for (uint32_t b = 0; b < n; b++) {
        add_link(r, NULL, gpus[b]);
        for (uint32_t a = 0; a < b; a++)
            add_link(r, gpus[a], gpus[b]);
    }
}

static void add_gpus(struct report *r)
{
    struct metal_options options = { .table = &metal_table };
    struct err no_cuda = { 0 }, no_metal = { 0 };
    uint32_t n_cuda = cuda_n_devices(&no_cuda), n_metal = metal_n_devices(&no_metal), n = 0;
    struct device *gpus[MAX_DEVICES] = { 0 };
    struct device *cuda = n_cuda ? cuda_open(0, &cuda_table, &no_cuda) : NULL;
    struct device *metal = n_metal ? metal_open(&options, &no_metal) : NULL;
    char more[256];

    if (cuda)
        gpus[n++] = cuda;
    for (uint32_t i = 1; cuda && i < n_cuda && n < MAX_DEVICES - 1; i++)
        n += (gpus[n] = cuda_open(i, &cuda_table, &no_cuda)) != NULL;
    if (metal)
        gpus[n++] = metal;

    add(r, "devices", "cpu, cpu:plain%s%s%s%s", cuda ? ", cuda:0" : "", cuda && n_cuda > 1 ? " and more" : "",
        metal ? ", metal:0" : "", metal && n_metal > 1 ? " and more" : "");
    if (metal && metal_more_memory(metal, more, sizeof more))
        add(r, "Apple GPU memory", "%s", more);
    add_gpu(r, "NVIDIA GPUs", n_cuda, cuda, &no_cuda);
    add_gpu(r, "Apple GPUs", n_metal, metal, &no_metal);
    add_links(r, gpus, n);
    while (n > 0)
        device_close(gpus[--n]);
}

static void add_devices(struct report *r)
{
    const struct embedded *text = embedded_find(INGOT_BUILTIN), *seeing = embedded_find(INGOT_BUILTIN_EYES);

    add_gpus(r);
    add(r, "built-in models", "%s%s%s",
        text     ? text->name
        : seeing ? ""
                 : "none: name one with -m",
        text && seeing ? ", " : "", seeing ? seeing->name : "");
}

int verb_doctor(const struct verb_call *call)
{
    struct report r = { json_object() };
    const char *key;
    json_t *value;

    add(&r, "ingot", "%s, commit %s", ingot_version(), version_commit);
    add(&r, "build", "%s", version_build);
    add_processor(&r);
    add_memory(&r);
    add_devices(&r);
    add_libraries(&r);
    add_mpi(&r);
    add_nccl(&r);
    if (call->settings->json) {
        out_json(r.all, 0);
        out_text("\n");
        return out_finish();
    }
    json_object_foreach(r.all, key, value)
    {
        out_printf("%-15s %s\n", key, json_string_value(value));
    }
    json_decref(r.all);
    return out_finish();
}
