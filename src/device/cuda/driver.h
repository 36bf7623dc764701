// driver.h - the part of NVIDIA's driver API that ingot uses, declared here and loaded at run time.
//
// No CUDA header is needed to build and no library to start: driver_load opens libcuda.so.1 and fills the
// table. Names, numbers and layouts are those of the driver API, version 12.3 or later. A missing function is
// an error that names it.
#pragma once
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

typedef int cu_result; // 0 is success
typedef int cu_device;
typedef uint64_t cu_address;
typedef void *cu_context;  // a handle
typedef void *cu_module;   // a handle
typedef void *cu_function; // a handle
typedef void *cu_stream;   // a handle
typedef void *cu_event;    // a handle
typedef void *cu_graph;    // a handle
typedef void *cu_node;     // a handle
typedef void *cu_exec;     // a handle

enum {
    CU_OUT_OF_MEMORY = 2,
    CU_NOT_READY = 600,
    CU_MEMORY_DEVICE = 2,
    CU_ATTRIBUTE_SM_COUNT = 16,
    CU_ATTRIBUTE_MAJOR = 75,
    CU_ATTRIBUTE_MINOR = 76,
    CU_ATTRIBUTE_SHARED_OPTIN = 97,
    CU_FUNCTION_MAX_DYNAMIC_SHARED = 8,
    CU_FUNCTION_SHARED_CARVEOUT = 9, // percent
    CU_SCHEDULE_SPIN = 1,
    CU_STREAM_NON_BLOCKING = 1,
    CU_EVENT_BLOCKING_SYNC = 1, // a thread that waits for it sleeps
    CU_EVENT_NO_TIMING = 2,
    CU_HOST_PORTABLE = 1,
    CU_EDGE_PROGRAMMATIC = 1, // the kind of an edge, and the port it leaves from
    CU_TENSOR_BF16 = 9,
    CU_TENSOR_SWIZZLE_128 = 3,
    CU_TENSOR_L2_256 = 3,
};

struct cu_kernel_node {
    cu_function function;
    unsigned grid[3], block[3], shared_bytes;
    void **params, **extra;
    void *kernel;
    cu_context context;
};

struct cu_copy_side {
    size_t x, y; // bytes and rows before the first
    int kind;    // CU_MEMORY_DEVICE
    const void *host;
    cu_address at;
    void *array;
    size_t pitch; // bytes from one row to the next
};

struct cu_copy_rows {
    struct cu_copy_side from, to;
    size_t row_bytes, n_rows;
};

struct cu_edge {
    unsigned char from_port, to_port, type, reserved[5];
};

// Each line: name in the table, name in the library, arguments.
#define CU_FUNCTIONS(F)                                                                                     \
    F(init, "cuInit", (unsigned flags))                                                                     \
    F(error_name, "cuGetErrorName", (cu_result result, const char **name))                                  \
    F(device_count, "cuDeviceGetCount", (int *n))                                                           \
    F(device_get, "cuDeviceGet", (cu_device * device, int ordinal))                                         \
    F(device_name, "cuDeviceGetName", (char *name, int n, cu_device device))                                \
    F(device_attribute, "cuDeviceGetAttribute", (int *value, int attribute, cu_device device))              \
    F(primary_retain, "cuDevicePrimaryCtxRetain", (cu_context * context, cu_device device))                 \
    F(primary_release, "cuDevicePrimaryCtxRelease_v2", (cu_device device))                                  \
    F(primary_flags, "cuDevicePrimaryCtxSetFlags_v2", (cu_device device, unsigned flags))                   \
    F(context_set, "cuCtxSetCurrent", (cu_context context))                                                 \
    F(memory_info, "cuMemGetInfo_v2", (size_t * free_bytes, size_t * total_bytes))                          \
    F(alloc, "cuMemAlloc_v2", (cu_address * at, size_t bytes))                                              \
    F(give_back, "cuMemFree_v2", (cu_address at))                                                           \
    F(host_alloc, "cuMemHostAlloc", (void **at, size_t bytes, unsigned flags))                              \
    F(host_free, "cuMemFreeHost", (void *at))                                                               \
    F(clear, "cuMemsetD8Async", (cu_address at, unsigned char value, size_t bytes, cu_stream stream))       \
    F(write, "cuMemcpyHtoDAsync_v2", (cu_address to, const void *from, size_t bytes, cu_stream stream))     \
    F(read, "cuMemcpyDtoHAsync_v2", (void *to, cu_address from, size_t bytes, cu_stream stream))            \
    F(copy_rows, "cuMemcpy2DAsync_v2", (const struct cu_copy_rows *copy, cu_stream stream))                 \
    F(stream_create, "cuStreamCreate", (cu_stream * stream, unsigned flags))                                \
    F(stream_destroy, "cuStreamDestroy_v2", (cu_stream stream))                                             \
    F(stream_wait, "cuStreamSynchronize", (cu_stream stream))                                               \
    F(stream_query, "cuStreamQuery", (cu_stream stream))                                                    \
    F(event_create, "cuEventCreate", (cu_event * event, unsigned flags))                                    \
    F(event_destroy, "cuEventDestroy_v2", (cu_event event))                                                 \
    F(event_record, "cuEventRecord", (cu_event event, cu_stream stream))                                    \
    F(stream_follow, "cuStreamWaitEvent", (cu_stream stream, cu_event event, unsigned flags))               \
    F(peer_can, "cuDeviceCanAccessPeer", (int *can, cu_device device, cu_device other))                     \
    F(peer_enable, "cuCtxEnablePeerAccess", (cu_context other, unsigned flags))                             \
    F(peer_disable, "cuCtxDisablePeerAccess", (cu_context other))                                           \
    F(peer_copy, "cuMemcpyPeerAsync",                                                                       \
      (cu_address to, cu_context to_context, cu_address from, cu_context from_context, size_t bytes,        \
       cu_stream stream))                                                                                   \
    F(event_wait, "cuEventSynchronize", (cu_event event))                                                   \
    F(event_elapsed, "cuEventElapsedTime", (float *ms, cu_event from, cu_event to))                         \
    F(module_load, "cuModuleLoadData", (cu_module * module, const void *image))                             \
    F(module_unload, "cuModuleUnload", (cu_module module))                                                  \
    F(module_function, "cuModuleGetFunction", (cu_function * function, cu_module module, const char *name)) \
    F(function_set, "cuFuncSetAttribute", (cu_function function, int attribute, int value))                 \
    F(launch, "cuLaunchKernel",                                                                             \
      (cu_function function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,  \
       unsigned shared_bytes, cu_stream stream, void **params, void **extra))                               \
    F(graph_create, "cuGraphCreate", (cu_graph * graph, unsigned flags))                                    \
    F(graph_destroy, "cuGraphDestroy", (cu_graph graph))                                                    \
    F(graph_kernel, "cuGraphAddKernelNode_v2",                                                              \
      (cu_node * node, cu_graph graph, const cu_node *after, size_t n_after,                                \
       const struct cu_kernel_node *what))                                                                  \
    F(graph_event, "cuGraphAddEventRecordNode",                                                             \
      (cu_node * node, cu_graph graph, const cu_node *after, size_t n_after, cu_event event))               \
    F(graph_edges, "cuGraphAddDependencies_v2",                                                             \
      (cu_graph graph, const cu_node *from, const cu_node *to, const struct cu_edge *edges, size_t n))      \
    F(graph_instantiate, "cuGraphInstantiateWithFlags",                                                     \
      (cu_exec * exec, cu_graph graph, unsigned long long f))                                               \
    F(graph_upload, "cuGraphUpload", (cu_exec exec, cu_stream stream))                                      \
    F(graph_launch, "cuGraphLaunch", (cu_exec exec, cu_stream stream))                                      \
    F(graph_exec_destroy, "cuGraphExecDestroy", (cu_exec exec))                                             \
    F(tensor_tiles, "cuTensorMapEncodeTiled",                                                               \
      (void *map, int type, unsigned rank, void *at, const uint64_t *dims, const uint64_t *strides,         \
       const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int l2, int fill))

struct driver {
#define CU_FIELD(name, symbol, arguments) cu_result(*name) arguments;
    CU_FUNCTIONS(CU_FIELD)
#undef CU_FIELD
};

// The process's table, loaded on first use. NULL with a reason when there is no driver or it is too old.
const struct driver *driver_load(struct err *err);
// For tests: their own driver, set before the first driver_load. The caller keeps it.
void driver_replace(const struct driver *driver);
// "CUDA_ERROR_ILLEGAL_ADDRESS"
const char *driver_error(const struct driver *cu, cu_result result);
