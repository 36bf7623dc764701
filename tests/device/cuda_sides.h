// cuda_sides.h - the rig of the CUDA kernels' tests: an operation on the GPU beside its plain loop, played
// one by one and as a graph.
//
// tape_diff gives both the same inputs and measures what lies between the results. Then the same tape is
// played as a graph, which must give the same bits as its commands one by one. Skipped where there is no GPU.
#pragma once
#include <fnmatch.h>
#include "device/cuda/cuda_internal.h"
#include "ops/cuda_table.h"
#include "ops/device_sides.h"

static struct device *gpu;
static uint64_t every = 1; // of so many shapes one is compared

// What the buffers hold is kept, or written back and freed.
static void keep_buffers(struct side *s, unsigned char **kept, bool back)
{
    struct err err = { 0 };

    for (uint32_t i = 0; i < s->n_buffers; i++) {
        struct buffer *b = &s->buffers[i];
        if (!back) {
            kept[i] = mem_alloc(b->bytes);
            assert_ok(buffer_read(b, 0, kept[i], b->bytes, &err), &err);
            continue;
        }
        assert_ok(buffer_write(b, 0, kept[i], b->bytes, &err), &err);
        mem_free(kept[i]);
    }
}

// The last buffer is the result. Poisoned, then written by the graph: it must be what the launches gave.
static void check_graph(struct side *s)
{
    struct buffer *out = &s->buffers[s->n_buffers - 1];
    unsigned char *once = mem_alloc(out->bytes), *again = mem_alloc(out->bytes),
                  *kept[sizeof s->buffers / sizeof *s->buffers];
    struct err err = { 0 };

    keep_buffers(s, kept, false);
    for (int i = 0; i < 2; i++) {
        if (i == 1) // an operation may leave a state where it found it
            keep_buffers(s, kept, true);
        memset(again, 0x7f, out->bytes);
        assert_ok(buffer_write(out, 0, again, out->bytes, &err), &err);
        for (uint32_t k = 0; i == 0 && k < tape_n_commands(s->tape); k++)
            assert_ok(s->device->ops->play(s->device, s->tape, &s->step, k, k + 1, &err), &err);
        assert_ok(i == 0 || tape_play(s->tape, &s->step, &err), &err);
        assert_ok(buffer_read(out, 0, i == 0 ? once : again, out->bytes, &err), &err);
    }
    assert_memory_equal(once, again, out->bytes);
    mem_free(once);
    mem_free(again);
}

static inline void compare(const char *what, const struct op_shape *c, record *recording)
{
    static uint64_t n_shapes;
    struct sides s;

    if (n_shapes++ % every != 0)
        return;
    sides_open(&s, gpu, c, recording);
    sides_compare(&s, what, c);
    check_graph(&s.fast);
    sides_close(&s);
}

static const enum quant formats[] = { QUANT_Q4_0,   QUANT_Q4_1,   QUANT_Q5_0,  QUANT_Q5_1,  QUANT_Q8_0,
                                      QUANT_Q2_K,   QUANT_Q3_K,   QUANT_Q4_K,  QUANT_Q5_K,  QUANT_Q6_K,
                                      QUANT_IQ4_NL, QUANT_IQ4_XS, QUANT_MXFP4, QUANT_Q8_16, QUANT_BF16,
                                      QUANT_F16,    QUANT_F32 };
enum { N_FORMATS = sizeof formats / sizeof *formats };

static const struct {
    uint32_t rows, most;
} row_counts[] = { { 1, 1 },     { 1, 16 },  { 5, 7 },   { 13, 16 },  { 33, 160 },
                   { 140, 300 }, { 20, 32 }, { 41, 64 }, { 100, 128 } };
enum { N_ROW_COUNTS = sizeof row_counts / sizeof *row_counts };

static void skip_without_gpu(void)
{
    if (!gpu)
        skip();
}

// PROGRAM [TESTS [N]]: the tests of that name, with * and ?, and of their shapes every Nth. For
// compute-sanitizer's racecheck, under which all of them take hours.
static int cuda_tests(const struct CMUnitTest *tests, size_t n, int argc, char **argv)
{
    struct err err = { 0 };

    gpu = cuda_open(0, &cuda_table, &err);
    if (!gpu)
        print_message("skipped: %s\n", err.message);
    if (argc > 1) {
        bool found = false;
        for (size_t i = 0; i < n; i++)
            found |= fnmatch(argv[1], tests[i].name, 0) == 0;
        if (!found) {
            fprintf(stderr, "%s: no test is called %s\n", argv[0], argv[1]);
            device_close(gpu);
            return 2;
        }
        cmocka_set_test_filter(argv[1]);
    }
    if (argc > 2 && (!str_to_u64(str_from(argv[2]), &every) || every == 0))
        return 2;
    int failed = _cmocka_run_group_tests(argv[0], tests, n, NULL, NULL);
    device_close(gpu);
    return failed;
}
