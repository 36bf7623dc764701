// emu_library.c - MTLLibrary from source, functions and their constants, pipelines, binary archives.
//
// The source text is what the host hands over. mslc compiles it once; the result is kept in a folder under a
// name made from the text and the way of compiling, so that the next process finds it. Fast math is on unless
// the host says otherwise, as on a Mac.
#include "emu.h"
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ERROR_COMPILE = 3, ERROR_NOT_FOUND = 5, OPTION_ARCHIVE_ONLY = 4, LANGUAGE_3_0 = 3 << 16 };
extern char **environ;

struct compile_options {
    struct emu_object object;
    bool told, exact; // of mathematics
    ns_uint language;
};
static void options_fast_math(struct compile_options *o, selector s, bool on)
{
    (void)s;
    o->told = true;
    o->exact = !on;
}
static void options_math_mode(struct compile_options *o, selector s, ns_int mode)
{
    (void)s;
    if (mode < 0 || mode > 2)
        emu_misuse("setMathMode: %ld", mode);
    o->told = true;
    o->exact = mode == 0;
}
static void options_language(struct compile_options *o, selector s, ns_uint version)
{
    (void)s;
    if (version >> 16 < 1 || version >> 16 > 4 || (version & 0xffff) > 4)
        emu_misuse("setLanguageVersion: 0x%lx", version);
    o->language = version;
}
EMU_CLASS(MTLCompileOptions, &class_NSObject, struct compile_options, NULL, false,
          METHOD("setFastMathEnabled:", options_fast_math), METHOD("setMathMode:", options_math_mode),
          METHOD("setLanguageVersion:", options_language))

static void library_destroy(void *o)
{
    msl_library_close(((struct library_object *)o)->library);
    emu_count(&emu_knobs.libraries, -1);
}
static void *library_names(struct library_object *l, selector s)
{
    void *names[1024];
    ns_uint n = 0;
    const struct msl_kernel *k;

    (void)s;
    while (n < 1024 && (k = msl_library_kernel_at(l->library, (int)n)))
        names[n++] = emu_string(k->name);
    void *array = emu_array(names, n);
    for (ns_uint i = 0; i < n; i++)
        emu_release(names[i]);
    return emu_autorelease(array);
}

static bool constants_fit(struct library_object *l, struct constants_object *c, const char *name,
                          void **error)
{
    for (int i = 0; c && i < c->n_values; i++) {
        const struct msl_constant *declared = msl_library_constant(l->library, c->values[i].index);
        if (!declared || declared->bytes == c->values[i].bytes)
            continue;
        emu_error(error, ERROR_COMPILE,
                  "%s: function constant %s has %u bytes; a value of MTLDataType %lu has %u", name,
                  declared->name, declared->bytes, c->types[i], c->values[i].bytes);
        return false;
    }
    return true;
}
static bool constants_are_given(struct library_object *l, const struct msl_kernel *kernel,
                                const struct constants_object *c, void **error)
{
    for (const int *used = kernel->constants; *used >= 0; used++) {
        bool given = false;
        for (int i = 0; c && i < c->n_values; i++)
            given |= c->values[i].index == *used;
        if (!given) {
            emu_error(error, ERROR_COMPILE, "%s uses function constant %s (%d), which has no value",
                      kernel->name, msl_library_constant(l->library, *used)->name, *used);
            return false;
        }
    }
    return true;
}
static void *library_function_with(struct library_object *l, selector s, struct string *name,
                                   struct constants_object *c, void **error);
static void *library_function(struct library_object *l, selector s, struct string *name)
{
    return library_function_with(l, s, name, NULL, NULL);
}
EMU_CLASS(MTLLibrary, &class_NSObject, struct library_object, library_destroy, true,
          METHOD("functionNames", library_names), METHOD("newFunctionWithName:", library_function),
          METHOD("newFunctionWithName:constantValues:error:", library_function_with))

static void function_destroy(void *o)
{
    emu_release(((struct function_object *)o)->library);
}
static void *function_name(struct function_object *f, selector s)
{
    (void)s;
    return emu_autorelease(emu_string(f->kernel->name));
}
EMU_CLASS(MTLFunction, &class_NSObject, struct function_object, function_destroy, true,
          METHOD("name", function_name))

static void *library_function_with(struct library_object *l, selector s, struct string *name,
                                   struct constants_object *c, void **error)
{
    const struct msl_kernel *kernel = msl_library_kernel(l->library, name->text);

    (void)s;
    if (!kernel) {
        emu_error(error, ERROR_NOT_FOUND, "the library has no function '%s'", name->text);
        return NULL;
    }
    if (!constants_fit(l, c, name->text, error) || !constants_are_given(l, kernel, c, error))
        return NULL;
    struct function_object *f = emu_new(&class_MTLFunction);
    f->library = emu_retain(l);
    f->kernel = kernel;
    if (c)
        memcpy(f->values, c->values, sizeof f->values);
    f->n_values = c ? c->n_values : 0;
    return f;
}

// MTLDataType: the scalars.
static uint32_t type_bytes(ns_uint type)
{
    switch (type) {
    case 3:
    case 29:
    case 33: // float, int, uint
        return 4;
    case 16:
    case 37:
    case 41: // half, short, ushort
        return 2;
    case 45:
    case 49:
    case 53: // char, uchar, bool
        return 1;
    default:
        return 0;
    }
}
static void constants_set(struct constants_object *c, selector s, const void *value, ns_uint type,
                          ns_uint index)
{
    uint32_t bytes = type_bytes(type);
    int i = 0;

    (void)s;
    if (!bytes || index > 65535 || !value) {
        emu_misuse("setConstantValue: MTLDataType %lu at index %lu", type, index);
        return;
    }
    while (i < c->n_values && c->values[i].index != (int)index)
        i++;
    if (i == 64) {
        emu_misuse("more than 64 function constants");
        return;
    }
    c->n_values += i == c->n_values;
    c->values[i].index = (int)index;
    c->values[i].bytes = bytes;
    c->types[i] = type;
    memcpy(c->values[i].value, value, bytes);
}
EMU_CLASS(MTLFunctionConstantValues, &class_NSObject, struct constants_object, NULL, false,
          METHOD("setConstantValue:type:atIndex:", constants_set))

// ---- compiling
static uint64_t hash(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h;
}

static void cache_path(char *path, size_t n, const char *text, const char *mode, unsigned version)
{
    const char *folder = getenv("METAL_EMU_CACHE");

    if (!folder)
        folder = METAL_EMU_CACHE;
    mkdir(folder, 0777);
    snprintf(path, n, "%s/%016llx-%u-%s", folder, (unsigned long long)hash(14695981039346656037u, text),
             version, mode);
}

static bool text_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    return file && fputs(text, file) >= 0 && fclose(file) == 0;
}

static void text_read(const char *path, char *text, size_t n)
{
    FILE *file = fopen(path, "r");
    size_t got = file ? fread(text, 1, n - 1, file) : 0;

    text[got] = 0;
    if (file)
        fclose(file);
}

static bool tool_run(const char *stem, const char *mode, unsigned version)
{
    char source[PATH_MAX], library[PATH_MAX], log[PATH_MAX], number[16];
    posix_spawn_file_actions_t actions;
    int status = -1;
    pid_t pid;

    snprintf(source, sizeof source, "%s.metal", stem);
    snprintf(library, sizeof library, "%s.so", stem);
    snprintf(log, sizeof log, "%s.log", stem);
    snprintf(number, sizeof number, "%u", version);
    char *arguments[] = { METAL_EMU_MSLC, source,      "-o",   library, "--mode",
                          (char *)mode,   "--version", number, NULL };
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (!posix_spawn(&pid, METAL_EMU_MSLC, &actions, NULL, arguments, environ))
        waitpid(pid, &status, 0);
    posix_spawn_file_actions_destroy(&actions);
    emu_count(&emu_knobs.compiled, 1);
    return status == 0;
}

// One process compiles, the others wait for it.
static bool compile(const char *stem, const char *text, const char *mode, unsigned version, char *error,
                    size_t n)
{
    char path[PATH_MAX];
    bool ok = true;
    int lock;

    snprintf(path, sizeof path, "%s.lock", stem);
    lock = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (lock < 0 || flock(lock, LOCK_EX)) {
        snprintf(error, n, "%.1000s cannot be written", path);
        return false;
    }
    snprintf(path, sizeof path, "%s.so", stem);
    if (access(path, R_OK)) {
        snprintf(path, sizeof path, "%s.metal", stem);
        ok = text_write(path, text) && tool_run(stem, mode, version);
        snprintf(path, sizeof path, "%s.log", stem);
        if (!ok)
            text_read(path, error, n);
    }
    close(lock);
    return ok;
}

void *library_from_source(void *device, selector s, struct string *source, void *options, void **error)
{
    const struct compile_options *o = options;
    ns_uint language = o && o->language ? o->language : LANGUAGE_3_0;
    unsigned version = (unsigned)(language >> 16) * 100 + (unsigned)(language & 0xffff) * 10;
    const char *mode = emu_knobs.check                                 ? "check"
                       : emu_knobs.fast || !o || !o->told || !o->exact ? "fast"
                                                                       : "plain";
    char stem[PATH_MAX - 16], path[PATH_MAX], why[3072] = "";

    (void)device;
    (void)s;
    cache_path(stem, sizeof stem, source->text, mode, version);
    snprintf(path, sizeof path, "%s.so", stem);
    if (access(path, R_OK) && !compile(stem, source->text, mode, version, why, sizeof why)) {
        emu_error(error, ERROR_COMPILE, "%s", why);
        return NULL;
    }
    struct msl_library *library = msl_library_open(path, why);
    if (!library) {
        emu_error(error, ERROR_COMPILE, "%s", why);
        return NULL;
    }
    struct library_object *l = emu_new(&class_MTLLibrary);
    l->library = library;
    emu_count(&emu_knobs.libraries, 1);
    return l;
}

// ---- pipelines
static void pipeline_destroy(void *o)
{
    emu_release(((struct pipeline_object *)o)->function);
}
static ns_uint pipeline_max_threads(struct pipeline_object *p, selector s)
{
    uint32_t declared = p->function->kernel->max_threads;

    (void)s;
    return declared && declared < (uint32_t)emu_knobs.max_threads ? declared : (ns_uint)emu_knobs.max_threads;
}
static ns_uint pipeline_width(void *p, selector s)
{
    (void)p;
    (void)s;
    return MSL_LANES;
}
// known only when it runs; msl_run holds it to the limit
static ns_uint pipeline_static_memory(void *p, selector s)
{
    (void)p;
    (void)s;
    return 0;
}
EMU_CLASS(MTLComputePipelineState, &class_NSObject, struct pipeline_object, pipeline_destroy, true,
          METHOD("maxTotalThreadsPerThreadgroup", pipeline_max_threads),
          METHOD("threadExecutionWidth", pipeline_width),
          METHOD("staticThreadgroupMemoryLength", pipeline_static_memory))

void *pipeline_from_function(void *device, selector s, struct function_object *f, void **error)
{
    (void)device;
    (void)s;
    (void)error;
    if (!f) {
        emu_misuse("a pipeline without a function");
        return NULL;
    }
    struct pipeline_object *p = emu_new(&class_MTLComputePipelineState);
    p->function = emu_retain(f);
    emu_count(&emu_knobs.pipelines, 1);
    return p;
}

struct pipeline_descriptor {
    struct emu_object object;
    struct function_object *function;
    struct emu_array *archives;
    bool whole_simdgroups;
};
static void descriptor_destroy(void *o)
{
    struct pipeline_descriptor *d = o;

    emu_release(d->function);
    emu_release(d->archives);
}
static void descriptor_function(struct pipeline_descriptor *d, selector s, void *f)
{
    (void)s;
    emu_retain(f);
    emu_release(d->function);
    d->function = f;
}
static void descriptor_archives(struct pipeline_descriptor *d, selector s, void *archives)
{
    (void)s;
    emu_retain(archives);
    emu_release(d->archives);
    d->archives = archives;
}
static void descriptor_whole(struct pipeline_descriptor *d, selector s, bool on)
{
    (void)s;
    d->whole_simdgroups = on;
}
static void descriptor_ignore(void *d, selector s, ns_uint value)
{
    (void)d;
    (void)s;
    (void)value;
}
EMU_CLASS(MTLComputePipelineDescriptor, &class_NSObject, struct pipeline_descriptor, descriptor_destroy,
          false, METHOD("setComputeFunction:", descriptor_function),
          METHOD("setBinaryArchives:", descriptor_archives),
          METHOD("setThreadGroupSizeIsMultipleOfThreadExecutionWidth:", descriptor_whole),
          METHOD("setMaxTotalThreadsPerThreadgroup:", descriptor_ignore),
          METHOD("setLabel:", descriptor_ignore))

// ---- archives: a text file with a line for every function and its constants
enum { ARCHIVE_BYTES = 1 << 20 };
struct archive_object {
    struct emu_object object;
    char *lines;
};
struct archive_descriptor {
    struct emu_object object;
    struct url *url;
};
#define ARCHIVE_MAGIC "emulated binary archive\n"

static void archive_descriptor_destroy(void *o)
{
    emu_release(((struct archive_descriptor *)o)->url);
}
static void archive_descriptor_url(struct archive_descriptor *d, selector s, void *url)
{
    (void)s;
    emu_retain(url);
    emu_release(d->url);
    d->url = url;
}
EMU_CLASS(MTLBinaryArchiveDescriptor, &class_NSObject, struct archive_descriptor, archive_descriptor_destroy,
          false, METHOD("setUrl:", archive_descriptor_url))

static void archive_line(char *line, size_t n, const struct function_object *f)
{
    int at = snprintf(line, n, "\n%s", f->kernel->name);

    for (int i = 0; i < f->n_values; i++) {
        uint32_t value = 0;
        memcpy(&value, f->values[i].value, f->values[i].bytes);
        at += snprintf(line + at, n - (size_t)at, " %d:%u", f->values[i].index, value);
    }
    snprintf(line + at, n - (size_t)at, "\n");
}
static bool archive_add(struct archive_object *a, selector s, struct pipeline_descriptor *d, void **error)
{
    char line[2048];

    (void)s;
    if (!d->function) {
        emu_error(error, ERROR_COMPILE, "the descriptor has no function");
        return false;
    }
    archive_line(line, sizeof line, d->function);
    if (!strstr(a->lines, line) && strlen(a->lines) + strlen(line) < ARCHIVE_BYTES)
        memcpy(a->lines + strlen(a->lines), line, strlen(line) + 1);
    return true;
}
static bool archive_write(struct archive_object *a, selector s, struct url *url, void **error)
{
    (void)s;
    if (url && text_write(url->path, a->lines))
        return true;
    emu_error(error, ERROR_COMPILE, "%s cannot be written", url ? url->path : "no URL");
    return false;
}
static void archive_destroy(void *o)
{
    free(((struct archive_object *)o)->lines);
}
EMU_CLASS(MTLBinaryArchive, &class_NSObject, struct archive_object, archive_destroy, true,
          METHOD("addComputePipelineFunctionsWithDescriptor:error:", archive_add),
          METHOD("serializeToURL:error:", archive_write))

void *archive_from_descriptor(void *device, selector s, void *descriptor, void **error)
{
    const struct archive_descriptor *d = descriptor;
    struct archive_object *a = emu_new(&class_MTLBinaryArchive);

    (void)device;
    (void)s;
    a->lines = calloc(1, ARCHIVE_BYTES);
    memcpy(a->lines, ARCHIVE_MAGIC, sizeof ARCHIVE_MAGIC);
    if (!d || !d->url)
        return a;
    text_read(d->url->path, a->lines, ARCHIVE_BYTES);
    if (!strncmp(a->lines, ARCHIVE_MAGIC, strlen(ARCHIVE_MAGIC)))
        return a;
    emu_error(error, ERROR_COMPILE, "%s is no archive of this system", d->url->path);
    emu_release(a);
    return NULL;
}

static bool archives_have(const struct pipeline_descriptor *d)
{
    char line[2048];

    archive_line(line, sizeof line, d->function);
    for (ns_uint i = 0; d->archives && i < d->archives->n_items; i++)
        if (strstr(((struct archive_object *)d->archives->items[i])->lines, line))
            return true;
    return false;
}

void *pipeline_from_descriptor(void *device, selector s, void *descriptor, ns_uint options, void **reflection,
                               void **error)
{
    struct pipeline_descriptor *d = descriptor;

    if (reflection)
        emu_misuse("reflection is not emulated");
    if (d && d->function && (options & OPTION_ARCHIVE_ONLY) && !archives_have(d)) {
        emu_error(error, ERROR_NOT_FOUND, "no archive has %s", d->function->kernel->name);
        return NULL;
    }
    struct pipeline_object *p = pipeline_from_function(device, s, d ? d->function : NULL, error);
    if (p)
        p->whole_simdgroups = d->whole_simdgroups;
    return p;
}
