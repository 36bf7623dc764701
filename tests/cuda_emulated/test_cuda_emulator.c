// test_cuda_emulator.c - the emulator of CUDA itself: kernels that are right give what a GPU would, under
// every schedule, and of kernels with a fault every one is found.
#include "run/cuda_driver.h"
#include "run/cuda_run.h"
#include "testing.h"

enum { THREADS = 64 };

struct case_params {
    uint64_t step, out;
    uint32_t n;
};

static cu_module module;

// Runs the kernel on 64 threads, with n words at `out`.
static cu_result play(const char *name, uint32_t *out, uint32_t n)
{
    const struct driver *cu = &cuda_driver_emulated;
    unsigned char room[CUDA_RUN_PARAMS_BYTES] = { 0 };
    struct case_params params = { .n = n };
    void *list[] = { room };
    cu_function function = NULL;
    cu_address at = 0;

    assert_int_equal(cu->module_load(&module, NULL), 0);
    assert_int_equal(cu->module_function(&function, module, name), 0);
    assert_int_equal(cu->alloc(&at, n * sizeof *out), 0);
    cu->clear(at, 0, n * sizeof *out, NULL);
    params.out = at;
    memcpy(room, &params, sizeof params);
    cu_result result = cu->launch(function, 1, 1, 1, THREADS, 1, 1, 0, NULL, list, NULL);
    cu->read(out, at, n * sizeof *out, NULL);
    cu->give_back(at);
    return result;
}

static void each_schedule(void (*check)(void))
{
    for (uint32_t i = 0; i < 10; i++) {
        cuda_run_settings.schedule = i < 2 ? (int)i : CUDA_RUN_RANDOM;
        cuda_run_settings.seed = i;
        check();
    }
    cuda_run_settings.schedule = CUDA_RUN_FORWARD;
}

static void check_right_kernels(void)
{
    uint32_t out[THREADS];

    assert_int_equal(play("right_sums_of_a_block", out, THREADS), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(out[i], 2016);
    assert_int_equal(play("right_counters", out, 3), 0);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(out[i], 2016 + 32);
    assert_int_equal(play("right_order_in_a_warp", out, THREADS), 0);
    for (uint32_t i = 0; i < THREADS; i++)
        assert_int_equal(out[i], i ^ 1);
    assert_int_equal(play("right_warp_functions", out, THREADS), 0);
    for (uint32_t i = 0; i < THREADS; i++) {
        uint32_t lane = i % 32, down = lane == 31 ? 31 : lane + 1, up = lane < 2 ? lane : lane - 2;
        uint32_t same = lane % 5 < 2 ? 7 : 6, expected = down * down + up * up + 49 + same;
        expected += 0x49249249u + 1;
        expected += lane < 8 ? 28 + (lane ^ 4) * (lane ^ 4) : 31;
        assert_int_equal(out[i], expected);
    }
}

static void right_kernels_give_what_a_gpu_would(void **state)
{
    (void)state;
    each_schedule(check_right_kernels);
}

static const struct {
    const char *kernel, *finding;
    uint32_t n;
} faults[] = {
    { "wrong_barrier_not_reached", "__syncthreads reached by 40 of 64", THREADS },
    { "wrong_barriers_differ", "different barriers", THREADS },
    { "wrong_lanes_do_not_come", "do not come", THREADS },
    { "wrong_lane_outside_of_its_mask", "is not in its own mask 0xffff", THREADS },
    { "wrong_shuffle_from_an_absent_lane", "reads lane 20, which does not take part", THREADS },
    { "wrong_read_beyond_a_buffer", "read of 4 bytes", 40 },
    { "wrong_write_beyond_a_buffer", "write of 4 bytes", 40 },
    { "wrong_write_to_no_buffer", "write of 4 bytes", THREADS },
    { "wrong_read_of_unwritten_shared_memory", "before it was written", THREADS },
    { "wrong_index_of_a_shared_array", "index outside of an array", THREADS },
    { "wrong_dynamic_shared_memory", "dynamic shared memory, which has 0", THREADS },
    { "wrong_race_in_a_block", "races with", THREADS },
    { "wrong_race_in_a_warp", "races with", THREADS },
    { "wrong_race_of_an_atomic", "races with", THREADS },
    { "wrong_race_in_global_memory", "races with", THREADS },
    { "wrong_order_of_reads_and_writes", "races with", THREADS },
    { "wrong_misaligned_vector", "no multiple", THREADS },
};

static void check_faults(void)
{
    uint32_t out[THREADS];

    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (play(faults[i].kernel, out, faults[i].n) == 0)
            fail_msg("%s: nothing was found", faults[i].kernel);
        if (!strstr(cuda_driver_error(), faults[i].finding) &&
            !strstr(cuda_driver_error(), "before it was written")) // a race may show as this
            fail_msg("%s: %s", faults[i].kernel, cuda_driver_error());
    }
}

static void every_fault_is_found(void **state)
{
    (void)state;
    each_schedule(check_faults);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(right_kernels_give_what_a_gpu_would),
        cmocka_unit_test(every_fault_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
