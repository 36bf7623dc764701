// msl_library.h - kernels that mslc compiled, loaded into the process, and the values of their function
// constants.
#pragma once
#include "msl_run.h"

struct msl_library;
struct msl_value { // of a function constant
    int index;
    uint32_t bytes;
    unsigned char value[16];
};

// NULL: `error` (MSL_ERROR_BYTES) says why.
struct msl_library *msl_library_open(const char *path, char *error);
void msl_library_close(struct msl_library *library);
bool msl_library_is_checked(const struct msl_library *library); // compiled with --mode check
// NULL: there is none
const struct msl_kernel *msl_library_kernel(const struct msl_library *library, const char *name);
// NULL: past the last one
const struct msl_kernel *msl_library_kernel_at(const struct msl_library *library, int i);
// NULL: there is none
const struct msl_constant *msl_library_constant(const struct msl_library *library, int index);
// Sets all function constants for the next dispatch; those not listed become undefined and zero.
void msl_library_specialize(struct msl_library *library, const struct msl_value *values, int n_values);
