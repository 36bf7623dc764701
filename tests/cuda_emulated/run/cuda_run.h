// cuda_run.h - runs CUDA kernels that were compiled as C++ (shim/cuda_emulated.hpp), block after block.
//
// Every CUDA thread is a fiber; all of a launch run on one thread of the host. Several devices launch at the
// same time, each on a thread of its own: what follows is that thread's, and a kernel that waits for another
// device's says so (cuda_run_pause). A warp function waits for the lanes of its mask, __syncthreads for the
// block. Order is promised nowhere else: which lane, warp and block runs next is the schedule's choice. With
// the checker every access to memory is looked at: bounds, races inside a block, shared memory that was never
// written. Not modelled: races between blocks, and the order of a kernel and the ones before it, which run
// one after the other. Shared by C (the run time) and C++ (the kernels). x86-64 only.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

enum {
    CUDA_RUN_LANES = 32,
    CUDA_RUN_THREADS = 1024,
    CUDA_RUN_PARAMS_BYTES = 1024,
    CUDA_RUN_ERROR_BYTES = 512,
};

struct cuda_run_uint3 {
    uint32_t x, y, z;
};

struct cuda_run_warp;
struct cuda_run_thread {
    struct cuda_run_uint3 position; // threadIdx
    uint32_t index, lane;           // in the block, in the warp
    struct cuda_run_warp *warp;
    uint32_t what, mask; // the warp function it waits at, and for whom
    uint32_t members;    // that took part in the last one
    uint32_t vote;       // what it brings to a barrier
    const void *site;    // the barrier's
    uint64_t slot;
    void *stack_pointer;
};

struct cuda_run_warp {
    uint64_t view[CUDA_RUN_LANES]; // what lanes handed over where they met last
    struct cuda_run_thread *threads;
    uint32_t index, ready, meeting, at_barrier, done; // lanes, a bit each
};

struct cuda_run_launch {
    const char *name;
    void (*function)(void);
    struct cuda_run_uint3 grid, block;
    uint32_t shared_bytes;
    unsigned char params[CUDA_RUN_PARAMS_BYTES] __attribute__((aligned(16)));
};

enum cuda_run_schedule { CUDA_RUN_FORWARD, CUDA_RUN_REVERSE, CUDA_RUN_RANDOM };
extern struct cuda_run_settings {
    int schedule; // enum cuda_run_schedule
    uint32_t seed;
} cuda_run_settings;

// What kernels did since it was cleared. An atomic collides when a lane of the same warp, between the same
// two meetings of the warp, makes its n-th atomic as the n-th too, and at the same place.
extern __thread struct cuda_run_counts {
    uint64_t launches, barriers, read_bytes, write_bytes; // of global memory
    uint64_t shared_atomics, shared_collisions, global_atomics;
} cuda_run_counts;

// Runs one launch to its end. false: `error` (CUDA_RUN_ERROR_BYTES) says what is wrong, and where.
bool cuda_run(const struct cuda_run_launch *launch, char *error);

// This thread, which ran kernels, ends: so do its shared memory and stacks.
void cuda_run_leave(void);

// ---- what kernels call. Of what they are told by value nothing looks like an access to memory.
struct cuda_run_votes { // that threads brought to a barrier
    uint32_t any, all, count;
};
__attribute__((const)) struct cuda_run_uint3 cuda_run_thread_position(void);
__attribute__((const)) struct cuda_run_uint3 cuda_run_block_position(void);
__attribute__((const)) struct cuda_run_uint3 cuda_run_block_threads(void);
__attribute__((const)) struct cuda_run_uint3 cuda_run_grid_blocks(void);
// Hands v to the other lanes of the mask; returns the lanes that took part.
uint32_t cuda_run_meet_warp(uint32_t what, uint32_t mask, uint64_t v);
uint64_t cuda_run_take(uint32_t lane); // what it handed over
struct cuda_run_votes cuda_run_meet_block(uint32_t vote);
uint64_t cuda_run_clock_ns(void);
void cuda_run_pause(void); // this lane looks again and again: other warps and devices go on
__attribute__((noreturn, format(printf, 1, 2))) void cuda_run_fail(const char *format, ...);

// ---- the checker (cuda_check.c)
extern __thread struct cuda_run_thread *cuda_run_self;
extern __thread struct cuda_run_block {
    struct cuda_run_uint3 position, threads, grid;
    struct cuda_run_votes votes; // of the last barrier
    const char *kernel;
} cuda_run_block;
void cuda_check_access(const void *at, size_t bytes, bool write);
void cuda_check_atomic(const volatile void *at, size_t bytes);
void cuda_check_block(uint32_t shared_bytes);      // a block begins
void cuda_check_barrier(void);                     // the block met
void cuda_check_warp(uint32_t warp, bool ordered); // a whole warp met; ordered: at __syncwarp
const char *cuda_check_finding(void);              // since the last call; NULL: none
// Memory that kernels may use: global buffers, shared memory, and their constants.
enum cuda_check_memory { CUDA_CHECK_GLOBAL, CUDA_CHECK_SHARED, CUDA_CHECK_CONSTANT };
void cuda_check_add(const void *at, size_t bytes, enum cuda_check_memory memory);
void cuda_check_forget(const void *at);
void cuda_check_leave(void);                                // see cuda_run_leave
void cuda_check_dynamic(const void *at, size_t most_bytes); // an `extern __shared__` array
bool cuda_run_on_stack(const void *at, uint32_t *thread);

#ifdef __cplusplus
}
#endif
