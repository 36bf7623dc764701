// device.h - what a device must be able to do: memory, weights in its own layout, and playing tapes.
//
// One folder per device implements this table; nothing else knows which device it is on. A device knows no
// model. Unless said otherwise: one thread at a time per device; errors go to err and leave nothing behind.
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "device/device_queue.h"
#include "device/device_timing.h"
#include "quant/quant.h"

struct tape;
struct tape_fusion;
struct device;

// A piece of device memory. host is its address where the device shares memory with the host, else NULL.
struct buffer {
    struct device *device;
    void *host;
    uint64_t bytes;
    void *native; // for the device alone: may lie in memory that the host cannot see
    bool local;   // for the device alone: it may lie where the host cannot see it
    bool shared;  // for the device alone: better in memory that the host sees too
};

// The layout of a matrix in device memory: as in the file, in panels of 32 rows (CPU), or in planes, which
// keep quants, scales and high bits apart (CUDA); LAYOUT_ROW_SCALES: planes with one
// scale a row.
enum weight_layout { LAYOUT_FILE, LAYOUT_PANELS, LAYOUT_PLANES, LAYOUT_ROW_SCALES };

// A matrix [n_rows, n_cols], one row per output; or a vector (n_rows = 1, fp32).
struct weight {
    struct buffer buffer; // owned, unless it borrows the file's mapping
    uint64_t bytes;
    uint32_t n_rows, n_cols;
    enum quant format;
    enum weight_layout layout;
    const char *name;               // the tensor's name in the file, for messages and traces; borrowed
    const struct lora_weight *lora; // what adapters add to its products (ops/lora), or NULL
};

// How a matrix will be used; the device may choose a layout for it.
enum weight_use {
    WEIGHT_ROWS,       // single rows are read: an embedding
    WEIGHT_FAR_ROWS,   // the same, and they may lie in the host's memory
    WEIGHT_PRODUCT,    // multiplied with activations
    WEIGHT_ROW_SCALES, // the same, for many rows of activations; Q8_0 with one scale a row
};

struct weight_source {
    const void *data; // blocks in file order; stays valid as long as the weight
    uint64_t bytes;
    uint32_t n_rows, n_cols;
    enum quant format;
    enum weight_use use;
    const char *name;
};

struct device_info {
    char name[128]; // "AMD EPYC, 2 threads, AVX-512 VNNI"
    uint64_t memory_bytes, free_bytes;
};

struct device_counters { // since the device was opened
    uint64_t plays, commands, barriers, dispatches, submissions, waits, read_bytes, write_bytes, sent_bytes,
        buffers, pipelines, ahead_bytes; // ahead: of weights in files, asked for before they were read
};

struct device_ops {
    void (*close)(struct device *d);
    void (*info)(struct device *d, struct device_info *info);
    bool (*alloc)(struct device *d, uint64_t bytes, struct buffer *b, struct err *err); // zeroed
    void (*release)(struct device *d, struct buffer *b);
    bool (*write)(struct device *d, struct buffer *b, uint64_t offset, const void *from, uint64_t bytes,
                  struct err *err);
    bool (*read)(struct device *d, const struct buffer *b, uint64_t offset, void *to, uint64_t bytes,
                 struct err *err);
    // Copies a weight to the device, repacked if the device wants that. Repacking never changes a value.
    bool (*weight)(struct device *d, const struct weight_source *source, struct weight *w, struct err *err);
    // Whether there is a kernel for this operation. If not, the operation records its parts.
    bool (*supports)(struct device *d, uint32_t op);
    // Prepares a tape whose hazards and offsets are known. drop frees what seal made.
    bool (*seal)(struct device *d, struct tape *t, struct err *err);
    void (*drop)(struct device *d, struct tape *t);
    // Submits commands [first, last) with the given step. On return the work is queued (on the CPU: done).
    bool (*play)(struct device *d, struct tape *t, const struct buffer *step, uint32_t first, uint32_t last,
                 struct err *err);
    // Waits until everything played so far has finished.
    bool (*wait)(struct device *d, struct err *err);
    // Of a sealed tape: the kernel of a command's launch; NULL beyond the last one. May be NULL: a kernel is
    // chosen for all rows when the device opens.
    const char *(*kernel)(const struct tape *t, uint32_t command, uint32_t launch);
};

struct device {
    const struct device_ops *ops;
    const struct device_queue *queue;       // NULL: a play has finished when the next call needs its results
    const struct device_timing *timing;     // these two NULL: it cannot tell when a command ran
    const struct device_sampling *sampling; // or this one
    char name[16];                          // "cpu", "cuda:1"
    struct device_counters counters;
    const struct tape_fusion *fusions; // rules for tape_seal, or NULL
    uint32_t max_head_dim;             // numbers of a head that attention's kernels take at most; 0: any
    bool sleeps; // set by its user: a thread that waits for it leaves its processor to others
    bool can_use_file, uses_file; // weights may stay in the file; they do, having no room: set before them
    bool outlines; // buffers have sizes and no memory, tapes scratch and no play: engine/stage/outline.h
    // Wants WEIGHT_ROW_SCALES for matrices whose columns are a multiple of this; 0: never.
    uint32_t row_scales_cols;
    uint32_t product_cols; // products are fast where K is a multiple of this; 0: for any K
};

// native on a device of outlines: kernels are chosen by whether there is an address, and by its alignment.
#define BUFFER_OUTLINE ((void *)(uintptr_t)(1 << 20))
bool buffer_alloc(struct device *d, uint64_t bytes, struct buffer *b, struct err *err);
bool buffer_alloc_local(struct device *d, uint64_t bytes, struct buffer *b, struct err *err);  // sets local
bool buffer_alloc_shared(struct device *d, uint64_t bytes, struct buffer *b, struct err *err); // sets shared
void buffer_release(struct buffer *b); // a zeroed buffer is allowed
bool buffer_write(struct buffer *b, uint64_t offset, const void *from, uint64_t bytes, struct err *err);
bool buffer_read(const struct buffer *b, uint64_t offset, void *to, uint64_t bytes, struct err *err);
bool weight_create(struct device *d, const struct weight_source *source, struct weight *w, struct err *err);
void weight_release(struct weight *w);
// For devices with a queue.
bool device_fetch(struct device *d, const struct buffer *b, struct device_span span, uint32_t fetch,
                  struct err *err);
bool device_collect(struct device *d, uint32_t fetch, void *to, uint64_t bytes, struct err *err);
// Whether `send` of one reaches the other.
bool device_can_send(const struct device *from, const struct device *to);
bool device_send(struct device *d, const struct buffer *from, struct buffer *to, struct device_span span,
                 struct err *err);
// By `bring`, or where the device is done with each play on return, as it is.
bool device_can_bring(const struct device *d);
bool device_bring(struct device *d, const struct device_piece *pieces, uint32_t n, struct err *err);
// The other way, on any device: what all that was played before has left there.
bool device_gather(struct device *d, const struct device_piece *pieces, uint32_t n, struct err *err);
void device_close(struct device *d); // NULL is allowed
