// emu_modes.h - runs tests of kernels in each mode of the emulator.
//
// What a kernel may not depend on: the order of threads, which lane holds which element of a matrix, exact
// arithmetic. And what it may not do, which the checker sees: races, places out of bounds, threadgroup memory
// that nobody wrote. The code around the kernels is the same in all modes: one is enough for
// AddressSanitizer, which sees that code alone.
#pragma once
#include "emu/emu.h"
#include "ops/metal_table.h"
#include "testing.h"

static struct device *gpu; // open while the tests run

static const struct emu_mode {
    const char *name;
    long fast, check, schedule, seed; // seed: not 0: of chance, and matrices' elements lie in other lanes
} modes[] = {
    { "forward", 0, 0, MSL_FORWARD, 0 },
    { "random, fast math", 1, 0, MSL_RANDOM, 1 },
    { "reverse, checked", 0, 1, MSL_REVERSE, 2 },
};

#ifdef __SANITIZE_ADDRESS__
enum { N_MODES = 1 };
#else
enum { N_MODES = sizeof modes / sizeof *modes };
#endif

// Returns the number of tests that failed, of all modes.
static int emu_run_in_modes(const struct CMUnitTest *tests, size_t n_tests)
{
    struct err err = { 0 };
    int failed = 0;

    for (uint32_t i = 0; i < N_MODES; i++) {
        emu_set("fast", modes[i].fast);
        emu_set("check", modes[i].check);
        emu_set("schedule", modes[i].schedule);
        emu_set("seed", modes[i].seed);
        emu_set("shuffle", modes[i].seed != 0);
        gpu = metal_open(&(struct metal_options){ .table = &metal_table }, &err);
        if (!gpu) {
            print_message("metal_open: %s\n", err.message);
            return 1;
        }
        failed += _cmocka_run_group_tests(modes[i].name, tests, n_tests, NULL, NULL);
        device_close(gpu);
    }
    return failed;
}
