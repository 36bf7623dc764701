// metal_internal.h - the Metal device's inside.
//
// submission.c owns the order of work. Everything that the GPU does goes through command buffers with rising
// serial numbers; their completion handlers report progress. Only metal_sync waits.
#pragma once
#include <pthread.h>
#include "device/metal/metal.h"
#include "device/metal/objc.h"
#include "device/tape_internal.h"

enum { METAL_IN_FLIGHT = 64, METAL_BUCKETS = 40, METAL_SLOTS = METAL_AT_PRIVATE + 1 };

// buffer.native
struct metal_buffer {
    objc_id handle;
    uint64_t offset; // of the first byte: a weight in the file's mapping begins anywhere in a page
    uint64_t used;   // serial of the last command buffer known to use it
    bool is_step;    // played as a step: `used` is exact; any command buffer may use other buffers
};

// Shared memory through which private memory is written and read: in power-of-two buckets, reused when its
// command buffer has finished.
struct metal_staging {
    objc_id handle;
    unsigned char *at;
    uint64_t busy_until; // serial
    struct metal_staging *next;
};

struct metal_copy { // goes into the next command buffer
    objc_id from;   // NULL: zeros
    objc_id to;
    uint64_t from_at, to_at, bytes;
};

struct metal_pipeline {
    struct metal_kernel key; // name is owned; grid and threads are not part of it
    objc_id handle;
    uint32_t max_threads, static_shared;
};

struct metal_submission {
    struct objc_block block;
    struct metal *metal;
    uint64_t serial;
};

struct metal_encoding {        // one command buffer being filled
    objc_id commands, encoder; // retained
    bool empty;                // nothing was dispatched yet: no barrier is needed
    objc_id pipeline;
    uint32_t shared; // threadgroup memory that is set
    objc_id bound[METAL_SLOTS];
    uint64_t offsets[METAL_SLOTS];
};

struct metal {
    struct device device;
    const struct metal_table *table;
    struct metal_options options;
    objc_id gpu, queue, residency; // residency: NULL before macOS 15
    objc_id *libraries;            // [metal_n_sources]
    objc_id archive;
    bool archive_loaded, archive_changed;
    char archive_path[1024]; // empty: none
    struct metal_pipeline *pipelines;
    uint32_t n_pipelines, pipelines_capacity;
    struct metal_limits limits;
    struct metal_buffer nothing; // bound where an operand is absent
    struct metal_staging *pool[METAL_BUCKETS];
    struct metal_staging fetched;     // DEVICE_FETCHES places
    uint64_t fetches[DEVICE_FETCHES]; // serials
    struct metal_copy *copies;
    uint32_t n_copies, copies_capacity;
    struct metal_submission submissions[METAL_IN_FLIGHT];
    uint64_t committed; // serial of the last committed command buffer
    // The last command buffer of a play stays open, so that what follows (a fetch of its results, writes)
    // needs no other one.
    struct metal_encoding open;
    bool is_open;
    bool has_products; // Metal Performance Shaders need command buffers that retain their resources
    pthread_mutex_t lock;
    pthread_cond_t progress;
    uint64_t completed; // guarded by lock
    struct err failure; // guarded by lock
};

// submission.c Opens a new m->open. What was open is committed; pending copies go first.
bool metal_begin(struct metal *m, struct err *err);
void metal_end_encoder(struct metal *m);
bool metal_flush(struct metal *m, struct err *err); // commits what is open, and pending copies
uint64_t metal_last(const struct metal *m);         // serial of the last command buffer, open or committed
// Waits for the serial. Fails if the device has failed.
bool metal_sync(struct metal *m, uint64_t serial, struct err *err);
// Adds the copy to the last command buffer, or to a new one.
bool metal_add_copy(struct metal *m, struct metal_copy copy, struct err *err);
uint64_t metal_completed(struct metal *m);

// metal_memory.c
bool metal_alloc(struct device *d, uint64_t bytes, struct buffer *b, struct err *err);
void metal_release(struct device *d, struct buffer *b);
bool metal_write(struct device *d, struct buffer *b, uint64_t offset, const void *from, uint64_t bytes,
                 struct err *err);
bool metal_read(struct device *d, const struct buffer *b, uint64_t offset, void *to, uint64_t bytes,
                struct err *err);
bool metal_weight_take(struct device *d, const struct weight_source *source, struct weight *w,
                       struct err *err);
bool metal_fetch(struct device *d, const struct buffer *b, struct device_span span, uint32_t fetch,
                 struct err *err);
bool metal_collect(struct device *d, uint32_t fetch, void *to, uint64_t bytes, struct err *err);
bool metal_pool_open(struct metal *m, struct err *err);
void metal_pool_free(struct metal *m);

// pipelines.c
bool metal_pipelines_open(struct metal *m, struct err *err);
void metal_pipelines_close(struct metal *m);
// The kernel's pipeline, compiled on first use. NULL on failure.
const struct metal_pipeline *metal_pipeline(struct metal *m, const struct metal_kernel *kernel,
                                            struct err *err);

// One launch of a tape: a kernel, or a product by the vendor's library.
struct metal_launch {
    objc_id pipeline;   // NULL: a product
    const char *kernel; // borrowed from the pipeline; of a product a literal
    struct mtl_size grid, threads;
    uint32_t shared, args_bytes;
    bool barrier; // before it
    _Alignas(16) unsigned char args[METAL_ARGS_BYTES];
    objc_id product, matrices[3]; // left, right, result
};

// vendor_product.c
void metal_product_free(struct metal_launch *l);

// metal_play.c
struct metal_launch *metal_launch_new(struct metal_plan *p); // zeroed; NULL after an error
bool metal_seal(struct device *d, struct tape *t, struct err *err);
void metal_drop(struct device *d, struct tape *t);
const char *metal_tape_kernel(const struct tape *t, uint32_t command, uint32_t launch);
bool metal_play(struct device *d, struct tape *t, const struct buffer *step, uint32_t first, uint32_t last,
                struct err *err);
