// cuda_driver.c - NVIDIA's driver as the CUDA device (src/device/cuda) uses it, on the emulator: its memory
// is the process's, its kernels are those of one library that was compiled as C++, and everything is done
// when a call returns. A graph's kernels run in an order that its edges allow: under the reverse schedule the
// latest that can run is the next. The device has compute capability 8.0. Where there are several, each has
// its stream (cuda_stream.h), and they reach each other's memory.
#include "cuda_driver.h"
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_run.h"
#include "cuda_stream.h"
#include "device/cuda/cuda.h"

enum { LAUNCH_FAILED = 719, NOT_FOUND = 500, MOST_NODES = 512 };

int cuda_driver_devices = 1;

struct graph {
    uint32_t n;
    struct cuda_run_launch launches[MOST_NODES];
    unsigned char after[MOST_NODES][MOST_NODES]; // [node][the one before]
};

static struct kernel_library {
    void *handle;
    void (*tell)(void (*)(const void *, size_t)); // where shared memory of a thread is
    char error[CUDA_RUN_ERROR_BYTES];
} library;

const char *cuda_driver_error(void)
{
    return library.error;
}

static void image_add(const struct dl_phdr_info *info)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type == PT_LOAD)
            cuda_check_add((const char *)info->dlpi_addr + p->p_vaddr, p->p_memsz, CUDA_CHECK_CONSTANT);
        if (p->p_type == PT_TLS && info->dlpi_tls_data)
            cuda_check_add(info->dlpi_tls_data, p->p_memsz, CUDA_CHECK_SHARED);
    }
}

static int image_look(struct dl_phdr_info *info, size_t bytes, void *symbol)
{
    const char *at = symbol;

    (void)bytes;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        const char *base = (const char *)info->dlpi_addr + p->p_vaddr;
        if (p->p_type != PT_LOAD || at < base || at >= base + p->p_memsz)
            continue;
        image_add(info);
        return 1;
    }
    return 0;
}

// Shared memory is the library's memory of this thread, which its first use makes.
static void look_at_memory(void)
{
    library.tell(cuda_check_dynamic);
    dl_iterate_phdr(image_look, *(void **)&library.tell);
}

static cu_result load_module(cu_module *module, const void *image)
{
    (void)image;
    *module = &library;
    if (library.handle)
        return 0;
    library.handle = dlopen(CUDA_EMULATED_KERNELS, RTLD_NOW | RTLD_LOCAL);
    if (library.handle)
        *(void **)&library.tell = dlsym(library.handle, "cuda_emulated_dynamic");
    if (!library.tell) {
        snprintf(library.error, sizeof library.error, "%s", dlerror());
        fprintf(stderr, "%s\n", library.error);
        return NOT_FOUND;
    }
    look_at_memory();
    return 0;
}

static cu_result find_function(cu_function *function, cu_module module, const char *name)
{
    (void)module;
    *function = dlsym(library.handle, name);
    return *function ? 0 : NOT_FOUND;
}

// All that was launched on the stream is over.
static cu_result settle(cu_stream stream)
{
    return cuda_driver_devices == 1 ? 0 : cuda_stream_wait(stream);
}

static cu_result run(struct cuda_run_launch *l)
{
    Dl_info info;

    l->name = dladdr(*(void **)&l->function, &info) && info.dli_sname ? info.dli_sname : "?";
    library.error[0] = 0;
    if (cuda_run(l, library.error))
        return 0;
    fprintf(stderr, "CUDA emulator: %s\n", library.error);
    return LAUNCH_FAILED;
}

static struct cuda_run_launch launch_of(cu_function function, const unsigned *grid, const unsigned *block,
                                        unsigned shared_bytes, void *const *params)
{
    struct cuda_run_launch l = { .grid = { grid[0], grid[1], grid[2] },
                                 .block = { block[0], block[1], block[2] },
                                 .shared_bytes = shared_bytes };

    *(void **)&l.function = function;
    memcpy(l.params, params[0], CUDA_PARAMS_BYTES);
    return l;
}

static cu_result launch(cu_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared_bytes, cu_stream stream, void **params, void **extra)
{
    struct cuda_run_launch l =
        launch_of(function, (unsigned[]){ gx, gy, gz }, (unsigned[]){ bx, by, bz }, shared_bytes, params);
    (void)extra;
    settle(stream);
    return run(&l);
}

static cu_result graph_create(cu_graph *graph, unsigned flags)
{
    (void)flags;
    *graph = calloc(1, sizeof(struct graph));
    return *graph ? 0 : CU_OUT_OF_MEMORY;
}
static cu_result graph_kernel(cu_node *node, cu_graph graph, const cu_node *after, size_t n_after,
                              const struct cu_kernel_node *what)
{
    struct graph *g = graph;

    (void)after;
    if (g->n == MOST_NODES || n_after > 0)
        return CU_OUT_OF_MEMORY;
    g->launches[g->n] = launch_of(what->function, what->grid, what->block, what->shared_bytes, what->params);
    *node = &g->launches[g->n++];
    return 0;
}
static cu_result graph_edges(cu_graph graph, const cu_node *from, const cu_node *to,
                             const struct cu_edge *edges, size_t n)
{
    struct graph *g = graph;

    (void)edges;
    for (size_t i = 0; i < n; i++) {
        const struct cuda_run_launch *a = from[i], *b = to[i];
        g->after[b - g->launches][a - g->launches] = 1;
    }
    return 0;
}
static cu_result graph_instantiate(cu_exec *exec, cu_graph graph, unsigned long long flags)
{
    struct graph *copy = malloc(sizeof *copy);

    (void)flags;
    if (!copy)
        return CU_OUT_OF_MEMORY;
    memcpy(copy, graph, sizeof *copy);
    *exec = copy;
    return 0;
}

static bool can_run(const struct graph *g, const unsigned char *done, uint32_t node)
{
    for (uint32_t k = 0; k < g->n; k++)
        if (g->after[node][k] && !done[k])
            return false;
    return !done[node];
}

static int graph_run(void *exec)
{
    struct graph *g = exec;
    unsigned char done[MOST_NODES] = { 0 };
    cu_result result = 0;

    for (uint32_t n = 0; n < g->n && result == 0; n++) {
        uint32_t next = UINT32_MAX;
        for (uint32_t k = 0; k < g->n; k++)
            if (can_run(g, done, k) && (next == UINT32_MAX || cuda_run_settings.schedule == CUDA_RUN_REVERSE))
                next = k;
        if (next == UINT32_MAX)
            return LAUNCH_FAILED; // a circle
        done[next] = 1;
        result = run(&g->launches[next]);
    }
    return result;
}

static cu_result graph_launch(cu_exec exec, cu_stream stream)
{
    if (cuda_driver_devices == 1)
        return graph_run(exec);
    cuda_stream_add(stream, exec);
    return 0;
}

static cu_result graph_free(void *graph)
{
    free(graph);
    return 0;
}

static cu_result name_of(cu_result result, const char **name)
{
    *name = result == LAUNCH_FAILED ? library.error : "an error of the emulator";
    return 0;
}
static cu_result count_devices(int *n)
{
    *n = cuda_driver_devices;
    return 0;
}
static cu_result get_device(cu_device *device, int ordinal)
{
    *device = ordinal;
    return 0;
}
static cu_result get_name(char *name, int n, cu_device device)
{
    (void)device;
    snprintf(name, (size_t)n, "emulated CUDA device");
    return 0;
}
static cu_result get_attribute(int *value, int attribute, cu_device device)
{
    (void)device;
    *value = attribute == CU_ATTRIBUTE_SM_COUNT       ? 4
             : attribute == CU_ATTRIBUTE_MAJOR        ? 8
             : attribute == CU_ATTRIBUTE_SHARED_OPTIN ? 227 * 1024
                                                      : 0;
    return 0;
}
static cu_result retain(cu_context *context, cu_device device)
{
    (void)device;
    *context = &library;
    return 0;
}
static cu_result with_device(cu_device device)
{
    (void)device;
    return 0;
}
static cu_result with_flags(cu_device device, unsigned flags)
{
    (void)device, (void)flags;
    return 0;
}
static cu_result with_handle(void *handle)
{
    (void)handle;
    return 0;
}
static cu_result two_handles(void *a, void *b)
{
    (void)a, (void)b;
    return 0;
}
static cu_result memory_info(size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = (size_t)1 << 32;
    return 0;
}
static cu_result alloc(cu_address *at, size_t bytes)
{
    unsigned char *made =
        aligned_alloc(256, (bytes + 255) / 256 * 256 + 256); // and something between two buffers

    if (!made)
        return CU_OUT_OF_MEMORY;
    cuda_streams_wait();
    cuda_check_add(made, bytes, CUDA_CHECK_GLOBAL);
    *at = (cu_address)(uintptr_t)made;
    return 0;
}
static cu_result give_back(cu_address at)
{
    cuda_streams_wait();
    cuda_check_forget((const void *)(uintptr_t)at);
    free((void *)(uintptr_t)at);
    return 0;
}
static cu_result host_alloc(void **at, size_t bytes, unsigned flags)
{
    (void)flags;
    *at = malloc(bytes);
    return *at ? 0 : CU_OUT_OF_MEMORY;
}
static cu_result host_free(void *at)
{
    free(at);
    return 0;
}
static cu_result clear(cu_address at, unsigned char value, size_t bytes, cu_stream stream)
{
    cu_result result = settle(stream);

    memset((void *)(uintptr_t)at, value, bytes);
    return result;
}
static cu_result write_to(cu_address to, const void *from, size_t bytes, cu_stream stream)
{
    cu_result result = settle(stream);

    memcpy((void *)(uintptr_t)to, from, bytes);
    return result;
}
static cu_result read_from(void *to, cu_address from, size_t bytes, cu_stream stream)
{
    cu_result result = settle(stream);

    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return result;
}
static cu_result stream_make(cu_stream *stream, unsigned flags)
{
    (void)flags;
    *stream = cuda_driver_devices == 1 ? (void *)&library
                                       : cuda_stream_create(look_at_memory, graph_run, cuda_run_leave);
    return 0;
}
static cu_result stream_end(cu_stream stream)
{
    if (cuda_driver_devices == 1)
        return 0;
    cuda_streams_wait();
    cuda_stream_destroy(stream);
    return 0;
}
static cu_result event_make(cu_event *event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof(cu_stream));
    return *event ? 0 : CU_OUT_OF_MEMORY;
}
static cu_result event_record(cu_event event, cu_stream stream)
{
    *(cu_stream *)event = stream;
    return 0;
}
static cu_result event_wait(cu_event event)
{
    return *(cu_stream *)event ? settle(*(cu_stream *)event) : 0;
}
static cu_result stream_follow(cu_stream stream, cu_event event, unsigned flags)
{
    (void)stream, (void)flags;
    return event_wait(event);
}
static cu_result peer_can(int *can, cu_device device, cu_device other)
{
    *can = device != other;
    return 0;
}
static cu_result peer_enable(cu_context other, unsigned flags)
{
    (void)other, (void)flags;
    return 0;
}
static cu_result peer_copy(cu_address to, cu_context to_context, cu_address from, cu_context from_context,
                           size_t bytes, cu_stream stream)
{
    cu_result result = settle(stream);

    (void)to_context, (void)from_context;
    memcpy((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return result;
}
static cu_result set_function(cu_function function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return 0;
}

const struct driver cuda_driver_emulated = {
    .error_name = name_of,
    .device_count = count_devices,
    .device_get = get_device,
    .device_name = get_name,
    .device_attribute = get_attribute,
    .primary_retain = retain,
    .primary_release = with_device,
    .primary_flags = with_flags,
    .context_set = with_handle,
    .memory_info = memory_info,
    .alloc = alloc,
    .give_back = give_back,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .clear = clear,
    .write = write_to,
    .read = read_from,
    .stream_create = stream_make,
    .stream_destroy = stream_end,
    .stream_wait = settle,
    .stream_follow = stream_follow,
    .event_create = event_make,
    .event_destroy = graph_free,
    .event_record = event_record,
    .event_wait = event_wait,
    .peer_can = peer_can,
    .peer_enable = peer_enable,
    .peer_disable = with_handle,
    .peer_copy = peer_copy,
    .module_load = load_module,
    .module_unload = with_handle,
    .module_function = find_function,
    .function_set = set_function,
    .launch = launch,
    .graph_create = graph_create,
    .graph_destroy = graph_free,
    .graph_kernel = graph_kernel,
    .graph_edges = graph_edges,
    .graph_instantiate = graph_instantiate,
    .graph_upload = two_handles,
    .graph_launch = graph_launch,
    .graph_exec_destroy = graph_free,
};
