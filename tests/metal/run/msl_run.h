// msl_run.h - runs Metal kernels that were translated to C++, with the semantics of threadgroups and
// simdgroups of 32.
//
// Every MSL thread is a fiber. A simdgroup function is a rendezvous of the live lanes of one simdgroup: each
// lane leaves its value in a slot, the last one to arrive computes, all go on. threadgroup_barrier is a
// rendezvous of the threadgroup. So the result of a kernel is what the lockstep of a GPU would give, and
// whatever depends on an order of threads that nothing promises shows under another schedule. Threadgroup
// memory starts as NaN. Shared by C (the run time) and C++ (the kernels).
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum {
    MSL_BUFFERS = 31,   // arguments of each kind
    MSL_LANES = 32,     // of a simdgroup
    MSL_THREADS = 1024, // of a threadgroup
    MSL_THREADGROUP_BYTES = 32768,
    MSL_VARIABLES = 64,  // threadgroup variables that one kernel declares
    MSL_SLOT_BYTES = 64, // what one lane can hand to a simdgroup function
};

enum msl_source { // where an argument of a kernel comes from; the generator writes these names
    MSL_BUFFER,
    MSL_THREADGROUP,
    MSL_THREAD_POSITION_IN_GRID,
    MSL_THREADGROUP_POSITION_IN_GRID,
    MSL_THREAD_POSITION_IN_THREADGROUP,
    MSL_THREADS_PER_THREADGROUP,
    MSL_DISPATCH_THREADS_PER_THREADGROUP,
    MSL_THREADGROUPS_PER_GRID,
    MSL_THREADS_PER_GRID,
    MSL_THREAD_INDEX_IN_THREADGROUP,
    MSL_THREAD_INDEX_IN_SIMDGROUP,
    MSL_SIMDGROUP_INDEX_IN_THREADGROUP,
    MSL_SIMDGROUPS_PER_THREADGROUP,
    MSL_THREADS_PER_SIMDGROUP,
};

struct msl_uint3 {
    uint32_t x, y, z;
};

struct msl_binding {
    int source; // enum msl_source
    int index;  // of a buffer or of threadgroup memory
};

struct msl_group;
struct msl_lane;
struct msl_kernel { // a row of the table `msl_kernels` that a kernel library exports
    const char *name;
    void (*call)(const struct msl_kernel *, const struct msl_group *, const struct msl_lane *);
    void (*function)(void);
    const struct msl_binding *bindings;
    const uint32_t *least_bytes; // of what a reference argument refers to; 0: unknown
    // function constants that it uses without asking whether they are defined; ends with -1
    const int *constants;
    int n_bindings;
    uint32_t max_threads; // 0: not declared
};

struct msl_constant { // a row of the table `msl_constants`: a function constant
    const char *name;
    void *value;
    bool *defined;
    uint32_t bytes;
    int index;
};

struct msl_simd { // one simdgroup; slots and results alternate, so that a fast lane cannot overwrite what a
                  // slow one reads
    unsigned char slot[2][MSL_LANES][MSL_SLOT_BYTES] __attribute__((aligned(64)));
    unsigned char result[2][256] __attribute__((aligned(64)));
    uint32_t active[2]; // lanes that took part, a bit each, as in all masks below
    uint32_t ready, meeting, at_simdgroup_barrier, at_threadgroup_barrier, done;
    void (*finish)(struct msl_simd *, int parity);
    struct msl_lane *lanes;
    uint32_t index, n_lanes;
    int parity;
};

struct msl_lane { // one thread
    void *stack_pointer;
    struct msl_simd *simd;
    uint32_t index, lane; // in the threadgroup, in the simdgroup
    uint32_t place;       // whose elements of a simdgroup_matrix this lane holds
    uint32_t what;        // the operation or the barrier's flags
    const void *site;
    struct msl_uint3 position;
};

struct msl_variable { // a threadgroup variable of the kernel that runs
    const char *name;
    uint32_t offset, bytes;
};

struct msl_group { // what the threads of one threadgroup share
    void *const *buffers;
    unsigned char *threadgroup[MSL_BUFFERS];
    struct msl_uint3 position, threads, dispatch_threads, groups, grid;
    uint32_t n_threads;
    unsigned char *memory; // threadgroup memory: first the dispatch's, then the kernel's variables
    uint32_t dispatch_bytes, memory_bytes;
    struct msl_variable variables[MSL_VARIABLES];
};

struct msl_dispatch {
    const struct msl_kernel *kernel;
    void *buffers[MSL_BUFFERS];
    size_t buffer_bytes[MSL_BUFFERS]; // from the bound offset to the end; 0 where nothing is bound
    size_t threadgroup_bytes[MSL_BUFFERS];
    uint32_t groups[3], threads[3];
    // threads of the whole grid where the last threadgroups are cut off; 0: groups * threads
    uint32_t grid[3];
    bool check; // the kernel was compiled for the checker: one worker
};

enum msl_schedule { MSL_FORWARD, MSL_REVERSE, MSL_RANDOM };

struct msl_settings {
    int schedule; // enum msl_schedule
    uint32_t seed;
    uint32_t workers;      // threads of the host; 0: one for each processor, at most 8
    bool shuffle_matrices; // which lane holds which element of a simdgroup_matrix changes with the dispatch:
                           // nobody may know it
};
extern struct msl_settings msl_settings; // read when a dispatch starts

#define MSL_ERROR_BYTES 512
// Runs one dispatch to its end. false: `error` (MSL_ERROR_BYTES) says what is wrong, with kernel, threadgroup
// and thread.
bool msl_run(const struct msl_dispatch *dispatch, char *error);

// ---- what translated kernels call
extern __thread struct msl_lane *msl_self __attribute__((tls_model("initial-exec")));

// All live lanes of the simdgroup meet; `finish` runs once with every slot filled. Returns the parity of
// slots and results.
__attribute__((noinline)) int msl_meet_simd(uint32_t what, void (*finish)(struct msl_simd *, int parity));
__attribute__((noinline)) void msl_meet_simdgroup_barrier(uint32_t flags);
__attribute__((noinline)) void msl_meet_threadgroup_barrier(uint32_t flags);
void *msl_threadgroup_variable(uint32_t slot, const char *name, size_t bytes, size_t align);
__attribute__((noreturn, format(printf, 1, 2))) void msl_fail(const char *format, ...);

// ---- the checker (msl_check.c); msl_hooks.c calls it for kernels that were compiled with -fsanitize=thread
void msl_check_begin(const struct msl_dispatch *dispatch, const struct msl_group *group);
void msl_check_group(void);
void msl_check_barrier(int simd_or_all, uint32_t flags); // a simdgroup's index, or -1
void msl_check_access(const void *at, size_t bytes, bool write);
void msl_check_atomic(const volatile void *at, size_t bytes);
const char *msl_check_finding(void); // NULL: none since msl_check_begin
// Dispatches before this call are ordered before those after it.
void msl_check_order(void);
void msl_check_forget(const void *at, size_t bytes);   // memory is given back
void msl_check_image(const void *start, size_t bytes); // a loaded library: its constants may be read
// Where a lane's stack lies; to tell a thread's own memory from shared memory.
bool msl_stack_of(const void *at, uint32_t *lane);

#ifdef __cplusplus
}
#endif
