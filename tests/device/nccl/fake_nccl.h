// fake_nccl.h - what tests set and read in the fake NCCL of threads; its symbol is "fake_nccl". That of
// processes has an int "fake_nccl_last": the process ends after so many receives; 0: it does not.
#pragma once
#include <stdatomic.h>

struct fake_id {
    char at[128];
};

struct fake_nccl {
    atomic_int fail, calls;  // the how manieth fails; 0: none
    atomic_int live, aborts; // communicators
    atomic_int async_result; // of all communicators
    atomic_int spoils;       // sums are wrong
    atomic_int stalls;       // joining waits until this is 0 again
    atomic_int sums, sends;
};
