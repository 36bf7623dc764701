// msl_fiber.h - what the scheduler and the checker of the Metal run time know of a worker: its fibers and
// their threadgroup.
#pragma once
#include "msl_run.h"

struct msl_worker {
    struct msl_group group;
    struct msl_simd *simds;
    struct msl_lane *lanes;
    unsigned char *stacks;
    void *main_stack_pointer;
    const struct msl_dispatch *dispatch;
    uint32_t n_simds, n_done, random;
    bool failed;
    char error[MSL_ERROR_BYTES];
};
extern __thread struct msl_worker *msl_worker_self __attribute__((tls_model("initial-exec")));

enum { MSL_STACK_BYTES = 128 * 1024 };

struct msl_worker *msl_worker_create(void);
// runs one threadgroup; sets failed and error
void msl_worker_group(struct msl_worker *worker, uint32_t index);
void msl_worker_error(struct msl_worker *worker, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
