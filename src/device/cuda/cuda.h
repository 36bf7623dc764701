// cuda.h - an NVIDIA GPU as a device, and what the operations give it.
//
// An operation's plan turns one command into one or more kernel launches, once, when the tape is sealed:
// kernel, grid, shared memory and the argument struct. Every argument struct begins with the step's address,
// which the device fills in. The launches of all commands become the nodes of one graph, its edges the
// commands' declared reads and writes, and a step is one launch of the graph.
#pragma once
#include "device/cuda/driver.h"
#include "device/cuda/vendor.h"
#include "device/tape.h"

enum { CUDA_PARAMS_BYTES = 1024, CUDA_NAME_BYTES = 64 };

struct cuda_launch {
    cu_function function; // NULL: params is a struct vendor_product
    uint32_t grid[3], block, shared;
    uint32_t command;
    bool ends_first;
    char kernel[CUDA_NAME_BYTES];
    _Alignas(16) unsigned char params[CUDA_PARAMS_BYTES];
};

struct cuda_limits {
    uint32_t n_sms, shared_bytes, capability; // capability 90 = 9.0
};

struct cuda_plan {
    struct cuda_limits device;
    struct tape_limits tape;
    const struct command *command;
    const struct exchange *exchange; // how this rank reaches its peers; NULL: no tensor parallelism
    uint64_t private_at;    // the tape's private memory, for partial results; 0 in the first pass, which
                            // measures it
    uint64_t private_bytes; // private memory that this command wants
    uint64_t counters_at;   // the same for counters, which are zero before and after a command
    uint64_t counters_bytes;
    struct cuda *cuda;
    struct cuda_launch *launches; // grows
    uint32_t n_launches, capacity, n_products;
    struct err error;
};

struct cuda_shape {
    uint32_t grid[3], block, shared;
};
// Adds a launch; params is copied. Errors stay in the plan.
void cuda_launch_add(struct cuda_plan *p, const char *kernel, struct cuda_shape shape, const void *params,
                     uint32_t bytes);
// The launch that was added last ends before the next one begins: what it writes others take for weights,
// which a kernel may read before it waits.
void cuda_launch_ends_first(struct cuda_plan *p);
// Adds a product by the vendor's library, which is loaded on first use. A tape that has one is no graph: it
// is played launch by launch.
void cuda_product_add(struct cuda_plan *p, const struct vendor_product *product);
// Whether this device has the kernel: an image need not serve every architecture.
bool cuda_has_kernel(const struct cuda_plan *p, const char *kernel);
// A view of bf16 numbers for TMA copies, in boxes whose rows of 128 bytes are swizzled in shared memory. map:
// the TMA descriptor, 128 bytes, aligned to 64.
struct cuda_view {
    uint64_t at, dims[5], strides[4]; // strides in bytes, of all dimensions but the first
    uint32_t box[5];
};
// False: the device has no TMA.
bool cuda_view_encode(const struct cuda_plan *p, const struct cuda_view *view, void *map);
// A plan for questions about a command before its tape is planned: without memory and launches.
struct cuda_plan cuda_plan_of(struct device *d, const struct tape_limits *limits,
                              const struct command *command);
// Device address of an operand, 0 when absent.
uint64_t cuda_at(const struct cuda_plan *p, uint32_t operand);
const struct weight *cuda_weight(const struct cuda_plan *p, uint32_t operand);

// The layout of a matrix in device memory after repacking, and the kernel that repacks it.
enum { CUDA_PLANES = 4 };
struct cuda_pack {
    uint64_t bytes; // 0: the matrix stays as in the file
    struct cuda_plane {
        uint64_t at, row_bytes; // its rows follow each other; 0: there is no such plane
    } planes[CUDA_PLANES];
    const char *kernel;
    struct cuda_shape shape;
    unsigned char params[CUDA_PARAMS_BYTES];
};

struct all_reduce_params;
struct cuda_table {
    void (*const *plans)(struct cuda_plan *p); // [n_ops], by enum op
    // [n_ops]: the only compute capability that supports the operation, as in cuda_limits; 0: every one does
    const uint32_t *capabilities;
    uint32_t n_ops, max_head_dim;
    const char *row_scales; // the kernel for WEIGHT_ROW_SCALES; columns must be a multiple of row_scales_cols
    uint32_t row_scales_cols, product_cols;
    const struct tape_fusion *fusions; // which commands write the next one's packed input
    // from and to are device addresses
    void (*pack)(const struct weight_source *source, uint64_t from, uint64_t to, struct cuda_pack *pack);
    // Launches an all-reduce that writes the next command's packed input too.
    void (*reduce_packed)(struct cuda_plan *p, const struct all_reduce_params *params);
};

struct device *cuda_open(uint32_t ordinal, const struct cuda_table *table, struct err *err);
// The number of GPUs; 0 with a reason when there is no driver, no device, or no kernels in this build.
uint32_t cuda_n_devices(struct err *err);

// The kernels compiled into this build: one image per source file. n = 0: none, with the reason.
struct cuda_image {
    const char *name;
    const void *data;
};
extern const struct cuda_image cuda_images[];
extern const uint32_t cuda_n_images;
extern const char *const cuda_images_missing;
