// cuda_internal.h - the CUDA device's inside, for cuda.c, graph.c and the bench of single operations.
#pragma once
#include <pthread.h>
#include "base/thread_pool.h"
#include "device/cuda/cuda.h"
#include "device/tape_internal.h"

enum { STAGING_BYTES = 16 << 20, STATIC_SHARED_BYTES = 2048 };

// For copies beside what is played; what it consists of is made when it is first used.
struct cuda_beside {
    pthread_mutex_t lock; // of all of it
    cu_stream stream;
    cu_event behind, done;
    unsigned char *room; // pinned
    uint64_t used;
};

struct cuda {
    struct device device;
    const struct driver *cu;
    const struct cuda_table *table;
    cu_device ordinal;
    cu_context context;
    cu_stream stream;
    cu_module *modules; // one an image, [n_modules]
    uint32_t n_modules;
    struct cuda_limits limits;
    struct vendor *vendor;  // loaded when a tape asks for it
    unsigned char *staging; // pinned: a ring for small writes, then the places of fetches
    uint64_t staging_used;
    struct thread_pool
        *copiers; // into it, of large writes; NULL before the first one, or for want of threads
    cu_event fetched[DEVICE_FETCHES];
    const unsigned char *results[DEVICE_FETCHES]; // where that is, in the host's memory
    cu_event reached;                             // by the stream, when another device was to follow
    cu_event asleep; // device.sleeps: a blocking event, for which a thread waits without spinning
    bool retained;
    struct cuda_beside beside;
};

// A tape's native form.
struct cuda_tape {
    struct cuda_plan plan;
    uint32_t *first_launch; // [n_commands + 1]
    bool *uses_private;     // [n_commands]
    struct buffer private_memory;
    cu_exec *graphs;              // [n_segments], NULL before their first play
    cu_address step;              // the step buffer that they were built for
    struct cuda_samples *samples; // cuda_sampling.c; NULL until a play was sampled
};

bool cuda_check(const struct cuda *c, cu_result result, const char *what, struct err *err);
bool cuda_use(const struct cuda *c, struct err *err);        // by this thread, from now on
cu_function cuda_function(struct cuda *c, const char *name); // NULL: no image has it

bool cuda_pack_run(struct cuda *c, struct cuda_pack *pack, struct err *err);

// far_rows.c: pinned memory as the weight's buffer, for the final bytes; false: none can be had. Then fills
// it.
bool cuda_far_rows_pin(struct cuda *c, const struct weight_source *source, struct weight *w);
bool cuda_far_rows_fill(struct cuda *c, const struct weight_source *source, struct weight *w,
                        struct err *err);

// staging.c: at most STAGING_BYTES; they may change on return.
bool cuda_staging_write(struct cuda *c, cu_address to, const void *from, uint64_t bytes, struct err *err);

// bring.c: entries of struct device_queue
bool cuda_bring(struct device *d, const struct device_piece *pieces, uint32_t n, struct err *err);
bool cuda_gather(struct device *d, const struct device_piece *pieces, uint32_t n, struct err *err);
void cuda_beside_close(struct cuda *c); // its context is the thread's

// peer.c: entries of struct device_queue
bool cuda_send(struct device *d, const struct buffer *from, struct buffer *to, struct device_span span,
               struct err *err);
bool cuda_connect(struct device *from, struct device *to, bool *direct, struct err *err);

// exchange_plan.c: the launches of a TAPE_ALL_REDUCE, TAPE_ALL_GATHER or TAPE_TELL that is no border.
void cuda_plan_exchange(struct cuda_plan *p);

bool cuda_tape_seal(struct device *d, struct tape *t, struct err *err);
void cuda_tape_drop(struct device *d, struct tape *t);
const char *cuda_tape_kernel(const struct tape *t, uint32_t command, uint32_t launch);
bool cuda_tape_ready(struct device *d, struct tape *t, const struct buffer *step, struct err *err);
void cuda_tape_step_set(struct cuda_tape *n, cu_address step); // in the arguments of all launches
bool cuda_tape_play(struct device *d, struct tape *t, const struct buffer *step, uint32_t first,
                    uint32_t last, struct err *err);

// Makes sure that the launches' arguments and the segment's graph are for this step buffer.
bool cuda_tape_prepare(struct cuda *c, struct tape *t, uint32_t segment, cu_address step, struct err *err);

// A segment's launches and which follow which, as pairs of launches.
struct cuda_edges {
    struct tape_segment of;
    cu_node *nodes; // [n_launches]
    uint32_t *from, *to;
    uint32_t n, capacity;
    uint32_t *n_out, *n_in; // [n_launches] edges that leave and enter
};
bool cuda_edges_find(const struct tape *t, uint32_t segment, struct cuda_edges *e, struct err *err);
void cuda_edges_free(struct cuda_edges *e); // also after an error
// Adds the kernels, into e->nodes; an edge between them; and makes the graph ready to be launched.
bool cuda_graph_kernels(struct cuda *c, struct cuda_tape *n, cu_graph graph, const struct cuda_edges *e,
                        struct err *err);
bool cuda_graph_edge(struct cuda *c, cu_graph graph, const struct cuda_edges *e, uint32_t edge,
                     struct err *err);
bool cuda_graph_finish(struct cuda *c, cu_graph graph, cu_exec *exec, struct err *err);

extern const struct device_sampling cuda_sampling;
void cuda_samples_drop(struct cuda *c, struct cuda_samples *samples); // NULL is allowed
