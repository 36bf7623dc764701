// pipelines.c - libraries from the embedded sources, pipelines with their function constants, and the archive
// that keeps them.
//
// Everything is compiled while tapes are sealed, never in a step. A pipeline is found by comparing name and
// constants; there are some dozens. The archive is Apple's binary archive, which saves compilation in later
// runs. It is written when the device is closed, if something new was compiled. An archive that cannot be
// read is created again.
#include <stdio.h>
#include <string.h>
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "device/metal/metal_internal.h"

enum { LANES = 32, FAIL_ON_ARCHIVE_MISS = 4 }; // MTLPipelineOptionFailOnBinaryArchiveMiss

static objc_id compile_options(void)
{
    objc_id options = objc_new("MTLCompileOptions");

    mtl_set_language(options, MTL_LANGUAGE_3_0);
    if (mtl_responds(options, objc.selectors.set_math_mode)) // macOS 15
        mtl_set_math_mode(options, MTL_MATH_SAFE);
    else
        mtl_set_fast_math(options, false);
    return options;
}

static bool compile_sources(struct metal *m, struct err *err)
{
    objc_id options = compile_options();
    bool ok = true;

    for (uint32_t i = 0; i < metal_n_sources && ok; i++) {
        objc_id error = NULL;
        m->libraries[i] = mtl_library(m->gpu, objc_string(metal_sources[i].text), options, &error);
        ok = m->libraries[i] || err_set(err, ERR_DEVICE, "%s: %s does not compile: %s", m->device.name,
                                        metal_sources[i].name, objc_error(error));
    }
    mtl_release(options);
    return ok;
}

// Opens the archive file, or an empty archive where it cannot be used. NULL: no archive.
static objc_id open_archive(struct metal *m)
{
    objc_id descriptor = objc_new("MTLBinaryArchiveDescriptor"), error = NULL, archive = NULL;

    if (file_exists(m->archive_path)) {
        mtl_set_url(descriptor, mtl_url(objc.objc_getClass("NSURL"), objc_string(m->archive_path)));
        archive = mtl_archive(m->gpu, descriptor, &error);
        m->archive_loaded = archive != NULL;
        if (!archive)
            log_line(LOG_DEBUG, "metal", "%s is made anew: %s", m->archive_path, objc_error(error));
        mtl_set_url(descriptor, NULL);
    }
    if (!archive)
        archive = mtl_archive(m->gpu, descriptor, &error);
    mtl_release(descriptor);
    return archive;
}

bool metal_pipelines_open(struct metal *m, struct err *err)
{
    m->libraries = mem_alloc_array(metal_n_sources ? metal_n_sources : 1, sizeof *m->libraries);
    if (!m->libraries)
        return err_memory(err, "libraries of kernels");
    if (!compile_sources(m, err))
        return false;
    if (m->archive_path[0] && mtl_responds(m->gpu, objc.selectors.archive))
        m->archive = open_archive(m);
    return true;
}

// Written beside the file and then renamed, so that a reader never sees half an archive.
static void write_archive(struct metal *m)
{
    char fresh[sizeof m->archive_path + 8];
    objc_id error = NULL;

    snprintf(fresh, sizeof fresh, "%s.new", m->archive_path);
    if (!mtl_archive_write(m->archive, mtl_url(objc.objc_getClass("NSURL"), objc_string(fresh)), &error))
        log_line(LOG_DEBUG, "metal", "%s is not written: %s", m->archive_path, objc_error(error));
    else if (rename(fresh, m->archive_path) != 0)
        remove(fresh);
}

void metal_pipelines_close(struct metal *m)
{
    if (m->archive && m->archive_changed)
        write_archive(m);
    for (uint32_t i = 0; i < m->n_pipelines; i++) {
        mtl_release(m->pipelines[i].handle);
        mem_free((void *)m->pipelines[i].key.name);
    }
    for (uint32_t i = 0; m->libraries && i < metal_n_sources; i++)
        if (m->libraries[i])
            mtl_release(m->libraries[i]);
    if (m->archive)
        mtl_release(m->archive);
    mem_free(m->pipelines);
    mem_free(m->libraries);
}

static bool same_key(const struct metal_kernel *a, const struct metal_kernel *b)
{
    return a->n_constants == b->n_constants && strcmp(a->name, b->name) == 0 &&
           memcmp(a->constants, b->constants, a->n_constants * sizeof *a->constants) == 0;
}

// The function with its constants; the caller releases it.
static objc_id find_function(struct metal *m, const struct metal_kernel *kernel, struct err *err)
{
    objc_id name = objc_string(kernel->name), function = NULL, error = NULL;
    uint32_t i = 0;

    while (i < metal_n_sources && !mtl_contains(mtl_function_names(m->libraries[i]), name))
        i++;
    if (i == metal_n_sources) {
        err_set(err, ERR_UNSUPPORTED, "%s: this build has no kernel %s", m->device.name, kernel->name);
        return NULL;
    }
    objc_id values = objc_new("MTLFunctionConstantValues");
    for (uint32_t c = 0; c < kernel->n_constants; c++)
        mtl_set_constant(values, &kernel->constants[c], MTL_TYPE_UINT, c);
    function = mtl_function(m->libraries[i], name, values, &error);
    mtl_release(values);
    if (!function)
        err_set(err, ERR_DEVICE, "%s: kernel %s: %s", m->device.name, kernel->name, objc_error(error));
    return function;
}

// Taken from the archive if it is there, else compiled and added to it.
static objc_id make_pipeline(struct metal *m, objc_id function, objc_id *error)
{
    objc_id descriptor = objc_new("MTLComputePipelineDescriptor"), handle = NULL;

    mtl_set_function(descriptor, function);
    mtl_set_full_groups(descriptor, true);
    if (m->archive)
        mtl_set_archives(descriptor, mtl_array(objc.objc_getClass("NSArray"), m->archive));
    if (m->archive_loaded)
        handle = mtl_pipeline(m->gpu, descriptor, FAIL_ON_ARCHIVE_MISS, error);
    if (!handle) {
        handle = mtl_pipeline(m->gpu, descriptor, 0, error);
        m->device.counters.pipelines++;
        m->archive_changed |= handle && m->archive && mtl_archive_add(m->archive, descriptor, error);
    }
    mtl_release(descriptor);
    return handle;
}

static bool compile(struct metal *m, const struct metal_kernel *kernel, struct metal_pipeline *p,
                    struct err *err)
{
    objc_id function = find_function(m, kernel, err), error = NULL;

    if (!function)
        return false;
    *p = (struct metal_pipeline){ .key = *kernel, .handle = make_pipeline(m, function, &error) };
    mtl_release(function);
    if (!p->handle)
        return err_set(err, ERR_DEVICE, "%s: kernel %s does not compile: %s", m->device.name, kernel->name,
                       objc_error(error));
    p->max_threads = (uint32_t)mtl_max_threads(p->handle);
    p->static_shared = (uint32_t)mtl_static_shared(p->handle);
    log_line(LOG_DEBUG, "metal", "pipeline %s, constants %u %u %u: %u threads at most", kernel->name,
             kernel->constants[0], kernel->constants[1], kernel->constants[2], p->max_threads);
    char *name = mem_alloc(strlen(kernel->name) + 1);
    bool ok = name ? true : err_memory(err, "a kernel's name");
    if (ok)
        memcpy(name, kernel->name, strlen(kernel->name));
    p->key.name = name;
    if (ok && mtl_width(p->handle) != LANES)
        ok = err_set(err, ERR_UNSUPPORTED, "%s: kernel %s runs %lu lanes to a simdgroup; want %d",
                     m->device.name, kernel->name, mtl_width(p->handle), LANES);
    if (!ok) {
        mtl_release(p->handle);
        mem_free((void *)p->key.name);
    }
    return ok;
}

const struct metal_pipeline *metal_pipeline(struct metal *m, const struct metal_kernel *kernel,
                                            struct err *err)
{
    for (uint32_t i = 0; i < m->n_pipelines; i++)
        if (same_key(&m->pipelines[i].key, kernel))
            return &m->pipelines[i];
    if (m->n_pipelines == m->pipelines_capacity) {
        uint32_t capacity = m->pipelines_capacity ? 2 * m->pipelines_capacity : 32;
        struct metal_pipeline *grown = mem_realloc(m->pipelines, capacity * sizeof *grown);
        if (!grown) {
            err_memory(err, "pipelines");
            return NULL;
        }
        m->pipelines = grown;
        m->pipelines_capacity = capacity;
    }
    struct metal_pipeline *p = &m->pipelines[m->n_pipelines];
    if (!compile(m, kernel, p, err))
        return NULL;
    m->n_pipelines++;
    return p;
}
