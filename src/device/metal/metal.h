// metal.h - an Apple GPU as a device, and what the operations give it.
//
// An operation's plan turns one command into one or more kernel launches, once, when the tape is sealed:
// kernel, function constants, grid, threadgroup memory and an argument struct. A play encodes the launches in
// order. All kernels have the same bindings:
//   buffer 0       the argument struct
//   buffer 1       the step
//   buffer 2 + i   operand i of the command; a few zero bytes where it is absent
//   buffer 18      the command's private memory, for partial results; a few zero bytes where it has none
//   threadgroup 0  `shared` bytes
// Emulator-tested, not yet run on Apple hardware.
#pragma once
#include "device/tape.h"

enum { METAL_ARGS_BYTES = 256, METAL_MAX_CONSTANTS = 12 };
enum { METAL_MAX_OPERANDS = 16 }; // of a command, the packed ones of device/fuse.h included
enum {
    METAL_AT_ARGS,
    METAL_AT_STEP,
    METAL_AT_OPERANDS,
    METAL_AT_PRIVATE = METAL_AT_OPERANDS + METAL_MAX_OPERANDS
};

struct metal_limits {
    uint32_t shared_bytes; // threadgroup memory of one threadgroup
};

struct metal_plan {
    struct metal_limits device;
    struct tape_limits tape;
    const struct command *command;
    uint64_t private_bytes; // private memory that this command wants
    struct metal *metal;
    struct metal_launch *launches; // grows
    uint32_t n_launches, capacity;
    struct err error;
};

struct metal_kernel {
    const char *name;
    uint32_t constants[METAL_MAX_CONSTANTS]; // function constants 0, 1, ... of the source file, all uint
    uint32_t n_constants;
    uint32_t grid[3]; // threadgroups
    uint32_t threads; // of each: thread_index_in_threadgroup runs to here; a multiple of 32
    uint32_t shared;
    bool beside; // may run beside the command's previous launch; else it waits for that one
};
// Adds a launch; args is copied. Errors stay in the plan.
void metal_launch_add(struct metal_plan *p, const struct metal_kernel *kernel, const void *args,
                      uint32_t args_bytes);
// A product by the vendor's library, MPSMatrixMultiplication: out [rows, n_out] = in [rows, n_cols] w [n_out,
// n_cols]^T, (+ out). It takes all rows that the tape may have. w is fp32 or fp16.
struct metal_product {
    uint32_t in, w, out; // operand numbers
    uint32_t rows;
    bool adds; // to the old value of out
};
void metal_product_add(struct metal_plan *p, const struct metal_product *product);
const struct weight *metal_weight(const struct metal_plan *p, uint32_t operand); // NULL: absent
bool metal_has(const struct metal_plan *p, uint32_t operand);

struct metal_table {
    void (*const *plans)(struct metal_plan *p); // [n_ops], by enum op; NULL: no kernel
    uint32_t n_ops, max_head_dim, product_cols;
    const struct tape_fusion *fusions; // which commands write the next one's packed input
};

enum { METAL_COMMITS = 4 }; // per play, where options leave it to the device

struct metal_options {
    uint32_t ordinal;
    uint32_t commit_every; // commands in a command buffer; 0: as many as give METAL_COMMITS per play
    const char *archive;   // file that keeps compiled pipelines from run to run, or NULL
    const struct metal_table *table;
};
struct device *metal_open(const struct metal_options *options, struct err *err);
// A Mac's system lets its GPU have about three quarters of the memory, and a model that needs more is
// refused: it would be paged in and out in every step. Says how to raise the limit, leaving an eighth to the
// system. False: it is that high already.
bool metal_more_memory(struct device *d, char *text, size_t size);
// The number of GPUs; 0 with a reason when this is not macOS or has none.
uint32_t metal_n_devices(struct err *err);

// The kernels' sources, one for each .metal file, with their #include lines expanded.
struct metal_source {
    const char *name; // "rmsnorm.metal"
    const char *text;
};
extern const struct metal_source metal_sources[];
extern const uint32_t metal_n_sources;
