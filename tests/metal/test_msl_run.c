// test_msl_run.c - kernels on the run time: right under every schedule, every fault found, no alarm without
// one.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "msl_library.h"
#include "testing.h"

enum { N = 64, GROUPS = 2 };
struct memory { // what the kernels of tests/metal/kernels get; room on both sides, since the faults use it
    float in_before[16], in[N], in_after[16];
    float out_before[64], out[GROUPS * N], out_after[64];
    uint32_t count;
};

static struct msl_library *library_of(const char *name, const char *mode)
{
    char path[1024], error[MSL_ERROR_BYTES] = "";

    snprintf(path, sizeof path, "%s/%s.%s.so", METAL_MADE, name, mode);
    struct msl_library *l = msl_library_open(path, error);
    if (!l)
        fail_msg("%s", error);
    return l;
}

static bool kernel_run(struct msl_library *l, const struct msl_kernel *kernel, struct memory *m, char *error)
{
    struct msl_dispatch d = { .kernel = kernel,
                              .buffers = { m->out, m->in, &m->count },
                              .buffer_bytes = { sizeof m->out, sizeof m->in, sizeof m->count },
                              .threadgroup_bytes = { 256 },
                              .groups = { GROUPS, 1, 1 },
                              .threads = { N, 1, 1 },
                              .check = msl_library_is_checked(l) };

    for (int i = 0; i < N; i++)
        m->in[i] = (float)i;
    memset(m->out, 0, sizeof m->out);
    m->count = 0;
    msl_check_order();
    return msl_run(&d, error);
}

static float expected(const char *name, const struct memory *m, int i)
{
    int simd = i / 32 * 32;

    if (!strcmp(name, "turned"))
        return 3.0f * (float)(63 - i);
    if (!strcmp(name, "summed"))
        return (float)(simd * 32 + 496 + simd + 31 + (i ^ 1));
    if (!strcmp(name, "in_turns"))
        return (float)((i + 3) % 64 + 3);
    if (!strcmp(name, "inside_a_simdgroup"))
        return (float)(simd + 31 - i % 32);
    if (!strcmp(name, "in_turns_inside_a_simdgroup"))
        return 0.0f; // both are the sum of the two
    if (!strcmp(name, "some_lanes"))
        return i % 32 < 7 ? 7.0f : 0.0f;
    if (!strcmp(name, "through_device_memory"))
        return (float)(63 - i);
    if (!strncmp(name, "converted", 9))
        return (float)(i ^ 1) * 0.5f;
    if (!strcmp(name, "product")) {
        float sum = 0;
        for (int k = 0; k < 8; k++)
            sum += m->in[i / 8 * 8 + k] * m->in[i % 8 * 8 + k];
        return sum;
    }
    return (float)i;
}

static void good_run(const char *mode)
{
    struct msl_library *l = library_of("good", mode);
    struct msl_value scale = { .index = 0, .bytes = 4, .value = { 3 } };
    const struct msl_kernel *kernel;

    for (int k = 0; (kernel = msl_library_kernel_at(l, k)); k++) {
        struct memory m;
        char error[MSL_ERROR_BYTES] = "";
        msl_library_specialize(l, &scale, 1);
        if (!kernel_run(l, kernel, &m, error))
            fail_msg("%s, schedule %d: %s", mode, msl_settings.schedule, error);
        for (int i = 0; i < GROUPS * N; i++)
            if (fabsf(m.out[i] - expected(kernel->name, &m, i % N)) > 1e-3f)
                fail_msg("%s %s, schedule %d: out[%d] is %g, expected %g", kernel->name, mode,
                         msl_settings.schedule, i, m.out[i], expected(kernel->name, &m, i % N));
        if (!strcmp(kernel->name, "counted"))
            assert_int_equal(m.count, GROUPS * N);
    }
    msl_library_close(l);
}

static void test_kernels_are_right_under_every_schedule(void **state)
{
    const char *modes[] = { "plain", "fast", "check" };

    (void)state;
    for (int schedule = MSL_FORWARD; schedule <= MSL_RANDOM; schedule++)
        for (uint32_t seed = 0; seed < (schedule == MSL_RANDOM ? 8 : 1); seed++) {
            msl_settings =
                (struct msl_settings){ .schedule = schedule, .seed = seed, .shuffle_matrices = seed % 2 };
            for (int i = 0; i < 3; i++)
                good_run(modes[i]);
        }
}

// Each alone, so that a run that missed one says which.
static void test_every_fault_of_a_kernel_is_found(void **state)
{
    struct msl_library *l = library_of("faults", "check");
    const struct msl_kernel *kernel;
    int n = 0;

    (void)state;
    for (int schedule = MSL_FORWARD; schedule <= MSL_RANDOM; schedule++)
        for (n = 0; (kernel = msl_library_kernel_at(l, n)); n++) {
            struct memory m;
            char error[MSL_ERROR_BYTES] = "";
            msl_settings = (struct msl_settings){ .schedule = schedule, .seed = 7 };
            if (kernel_run(l, kernel, &m, error))
                fail_msg("%s, schedule %d: not found", kernel->name, schedule);
            if (schedule == MSL_FORWARD)
                printf("    %s\n", error);
        }
    assert_true(n >= 31);
    msl_library_close(l);
}

static void test_a_constant_that_is_not_given_is_not_defined(void **state)
{
    struct msl_library *l = library_of("good", "plain");
    struct memory m;
    char error[MSL_ERROR_BYTES];

    (void)state;
    msl_settings = (struct msl_settings){ 0 };
    msl_library_specialize(l, NULL, 0);
    assert_true(kernel_run(l, msl_library_kernel(l, "turned"), &m, error));
    assert_true(m.out[0] == 63.0f);
    assert_null(msl_library_kernel(l, "nothing"));
    msl_library_close(l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_are_right_under_every_schedule),
        cmocka_unit_test(test_every_fault_of_a_kernel_is_found),
        cmocka_unit_test(test_a_constant_that_is_not_given_is_not_defined),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
