// test_metal_device.c - the Metal device against the emulated runtime: memory, order, counters, faults.
//
// The kernels' numbers are the matter of test_ops_metal; here they only have to run.
#include <stdio.h>
#include <stdlib.h>
#include "device/step.h"
#include "metal_emu.h"
#include "ops/metal_table.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "testing.h"

enum { COLS = 96, ROWS = 3 };

static struct device *open_metal(uint32_t commit_every)
{
    struct metal_options options = { .table = &metal_table, .commit_every = commit_every };
    struct err err = { 0 };
    struct device *d;

    d = metal_open(&options, &err);
    if (!d)
        fail_msg("%s", err.message);
    return d;
}

static void memory_keeps_what_is_written(void **state)
{
    (void)state;
    struct device *d = open_metal(0);
    struct buffer b[2];
    struct err err = { 0 };
    uint32_t numbers[64], back[64];

    assert_ok(buffer_alloc(d, sizeof numbers, &b[0], &err), &err);
    assert_ok(buffer_alloc_local(d, sizeof numbers, &b[1], &err), &err);
    assert_non_null(b[0].host);
    assert_null(b[1].host);
    for (uint32_t i = 0; i < 64; i++)
        numbers[i] = i * 2654435761u;
    for (uint32_t i = 0; i < 2; i++) {
        assert_ok(buffer_read(&b[i], 0, back, sizeof back, &err), &err);
        for (uint32_t j = 0; j < 64; j++)
            assert_int_equal(back[j], 0);
        assert_ok(buffer_write(&b[i], 0, numbers, sizeof numbers, &err), &err);
        assert_ok(buffer_write(&b[i], 16, numbers, 8, &err), &err);
        assert_ok(buffer_read(&b[i], 4, back, 60, &err), &err);
        assert_memory_equal(back, numbers + 1, 12);
        assert_memory_equal(back + 3, numbers, 8);
        assert_memory_equal(back + 5, numbers + 6, 40);
    }
    buffer_release(&b[0]);
    buffer_release(&b[1]);
    device_close(d);
}

struct fixture {
    struct device *device;
    struct tape *tape;
    struct buffer in, out, step;
    struct weight scale;
    float *numbers;
};

// n norms, each of the one before.
static void record(struct fixture *f, uint32_t commit_every, uint32_t n)
{
    struct err err = { 0 };
    struct step step = { .n_rows = ROWS, .max_rows = ROWS, .max_outputs = 1 };

    *f = (struct fixture){ .device = open_metal(commit_every), .numbers = malloc(COLS * 4) };
    for (uint32_t i = 0; i < COLS; i++)
        f->numbers[i] = 1 + (float)i / 16;
    assert_ok(buffer_alloc(f->device, ROWS * COLS * 4, &f->in, &err), &err);
    assert_ok(buffer_alloc(f->device, ROWS * COLS * 4, &f->out, &err), &err);
    assert_ok(buffer_alloc(f->device, step_bytes(ROWS, 1), &f->step, &err), &err);
    struct weight_source source = { f->numbers, COLS * 4, 1, COLS, QUANT_F32, WEIGHT_ROWS, "scale" };
    assert_ok(weight_create(f->device, &source, &f->scale, &err), &err);
    assert_ok(buffer_write(&f->step, 0, &step, sizeof step, &err), &err);
    for (uint32_t r = 0; r < ROWS; r++)
        assert_ok(buffer_write(&f->in, r * COLS * 4, f->numbers, COLS * 4, &err), &err);
    f->tape = tape_create(f->device, (struct tape_limits){ .max_rows = ROWS, .max_outputs = 1 });
    struct tensor v = tape_tensor_bound(f->tape, COLS, ROWS_STEP, &f->in);
    for (uint32_t i = 0; i < n; i++) {
        struct tensor next = i + 1 < n ? tape_tensor(f->tape, COLS, ROWS_STEP)
                                       : tape_tensor_bound(f->tape, COLS, ROWS_STEP, &f->out);
        op_rmsnorm(f->tape, (struct rmsnorm){ .out = next, .in = v, .scale = &f->scale, .eps = 1e-5f });
        v = next;
    }
    assert_ok(tape_seal(f->tape, &err), &err);
}

static void release(struct fixture *f)
{
    tape_destroy(f->tape);
    weight_release(&f->scale);
    buffer_release(&f->in);
    buffer_release(&f->out);
    buffer_release(&f->step);
    device_close(f->device);
    free(f->numbers);
}

static void a_play_costs_few_commits_and_one_wait(void **state)
{
    (void)state;
    static const struct {
        uint32_t n, commit_every, commits;
    } cases[] = { { 10, 0, 1 }, { 48, 0, 2 }, { 156, 0, 4 }, { 400, 0, 4 }, { 100, 20, 6 }, { 12, 4, 3 } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        struct err err = { 0 };
        record(&f, cases[i].commit_every, cases[i].n);
        assert_ok(tape_play(f.tape, &f.step, &err) && f.device->ops->wait(f.device, &err), &err);
        struct device_counters before = f.device->counters, *c = &f.device->counters;
        assert_ok(tape_play(f.tape, &f.step, &err) && f.device->ops->wait(f.device, &err), &err);
        assert_int_equal(c->submissions - before.submissions, cases[i].commits);
        assert_int_equal(c->dispatches - before.dispatches, cases[i].n);
        assert_int_equal(c->barriers - before.barriers, cases[i].n - cases[i].commits);
        assert_int_equal(c->waits - before.waits, 1);
        assert_int_equal(c->buffers, before.buffers);
        assert_int_equal(c->pipelines, 1);
        release(&f);
    }
}

static void writes_keep_their_place_among_plays(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = { 0 };
    float zeros[COLS] = { 0 }, back[COLS];

    record(&f, 0, 1);
    emu_set("delay_us", 2000); // the GPU is slow: a write must not reach the play before it
    for (uint32_t i = 0; i < 8; i++) {
        assert_ok(buffer_write(&f.in, 0, f.numbers, COLS * 4, &err), &err);
        assert_ok(tape_play(f.tape, &f.step, &err), &err);
        assert_ok(buffer_read(&f.out, 0, back, sizeof back, &err), &err);
        assert_true(back[COLS - 1] > 1);
        assert_ok(tape_play(f.tape, &f.step, &err), &err);
        assert_ok(buffer_write(&f.in, 0, zeros, sizeof zeros, &err), &err);
        assert_ok(buffer_read(&f.out, 0, back, sizeof back, &err), &err);
        assert_true(back[COLS - 1] > 1);
        assert_ok(tape_play(f.tape, &f.step, &err), &err);
        assert_ok(buffer_read(&f.out, 0, back, sizeof back, &err), &err);
        assert_true(back[COLS - 1] == 0);
    }
    emu_set("delay_us", 0);
    release(&f);
}

static void results_are_fetched_behind_their_play(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = { 0 };
    float zeros[COLS] = { 0 }, first[COLS], second[COLS];

    record(&f, 0, 1);
    emu_set("delay_us", 2000);
    struct device_counters before = f.device->counters, *c = &f.device->counters;
    struct device_span all = { 0, sizeof second }, last = { sizeof first - sizeof *first, sizeof *first };
    assert_ok(tape_play(f.tape, &f.step, &err) && device_fetch(f.device, &f.out, last, 0, &err), &err);
    assert_ok(buffer_write(&f.in, 0, zeros, sizeof zeros, &err), &err);
    assert_ok(tape_play(f.tape, &f.step, &err) && device_fetch(f.device, &f.out, all, 1, &err), &err);
    assert_int_equal(c->submissions - before.submissions, 2); // nothing has waited so far
    assert_int_equal(c->waits, before.waits);
    assert_ok(device_collect(f.device, 0, &first[COLS - 1], sizeof *first, &err), &err);
    assert_ok(device_collect(f.device, 1, second, sizeof second, &err), &err);
    assert_true(first[COLS - 1] > 1 && second[COLS - 1] == 0);
    emu_set("delay_us", 0);
    release(&f);
}

static void aligned_weights_are_not_copied(void **state)
{
    (void)state;
    enum { PAGE = 16384 };
    struct device *d = open_metal(0);
    struct err err = { 0 };
    unsigned char *file = aligned_alloc(PAGE, 4 * PAGE);
    struct weight w;

    memset(file, 7, 4 * PAGE);
    for (uint32_t i = 0; i < 2; i++) { // a tensor at 32 bytes can be mapped, one at 33 cannot
        uint32_t at = PAGE + 32 + i;
        struct weight_source source = {
            file + at, PAGE - 32, 4, PAGE / 16 - 2, QUANT_F32, WEIGHT_PRODUCT, "w"
        };
        assert_ok(weight_create(d, &source, &w, &err), &err);
        assert_int_equal((unsigned char *)w.buffer.host == file + at, i == 0);
        float back;
        assert_ok(buffer_read(&w.buffer, 8, &back, 4, &err), &err);
        assert_memory_equal(&back, file, 4);
        weight_release(&w);
    }
    free(file);
    device_close(d);
}

static void a_device_that_cannot_do_it_is_refused(void **state)
{
    (void)state;
    struct metal_options options = { .ordinal = 99, .table = &metal_table };
    struct err err = { 0 };

    assert_fails(metal_open(&options, &err) != NULL, &err, "this machine has metal:0");
    if (!emu_get("page")) // the knobs below turn nothing on a real GPU
        return;
    options.ordinal = 0;
    emu_set("family", 1006);
    assert_fails(metal_open(&options, &err) != NULL, &err, "want a GPU of the family Apple7 (M1) or later");
    emu_set("family", 1009);
}

static void a_command_buffer_that_fails_fails_the_wait(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = { 0 };

    if (!emu_get("page"))
        skip();
    record(&f, 0, 156);
    emu_set("fail_command_buffer", 2);
    assert_fails(tape_play(f.tape, &f.step, &err) && f.device->ops->wait(f.device, &err), &err,
                 "the GPU gave up");
    assert_int_equal(err.code, ERR_DEVICE);
    // and nothing more is handed over
    assert_fails(tape_play(f.tape, &f.step, &err), &err, "the GPU gave up");
    emu_set("fail_command_buffer", 0);
    release(&f);
}

static void pipelines_are_kept_on_disk(void **state)
{
    (void)state;
    char path[512];
    struct metal_options options = { .archive = path, .table = &metal_table };
    struct err err = { 0 };

    snprintf(path, sizeof path, BINARY_DIR "/metal/test.archive");
    remove(path);
    for (uint32_t run = 0; run < 3; run++) {
        if (run == 2) { // one that nobody can read is made anew
            FILE *f = fopen(path, "w");
            fputs("nonsense", f);
            fclose(f);
        }
        struct device *d = metal_open(&options, &err);
        if (!d)
            fail_msg("%s", err.message);
        struct buffer b;
        struct weight w = { 0 };
        assert_ok(buffer_alloc(d, COLS * 4, &b, &err), &err);
        w = (struct weight){ .buffer = b, .bytes = COLS * 4, .n_rows = 1, .n_cols = COLS, .name = "w" };
        struct tape *t = tape_create(d, (struct tape_limits){ .max_rows = 1, .max_outputs = 1 });
        struct tensor v = tape_tensor_bound(t, COLS, ROWS_STEP, &b);
        op_rmsnorm(t, (struct rmsnorm){ .out = v, .in = v, .scale = &w, .eps = 1 });
        assert_ok(tape_seal(t, &err), &err);
        assert_int_equal(d->counters.pipelines, run != 1);
        tape_destroy(t);
        buffer_release(&b);
        device_close(d);
    }
}

static void plan_by_vendor(struct metal_plan *p)
{
    metal_product_add(
        p, &(struct metal_product){ MATMUL_IN, MATMUL_W, MATMUL_OUT, ROWS, metal_has(p, MATMUL_ADD) });
}

// out += in w^T, twice.
static void record_product(struct device *d, enum quant format, struct buffer *b, struct weight *w,
                           struct tape **t)
{
    enum { N = 3 };
    static float wide[N * COLS];
    static uint16_t halves[N * COLS];
    struct err err = { 0 };
    float numbers[ROWS * COLS];

    for (uint32_t i = 0; i < N * COLS; i++) {
        wide[i] = (float)(i % 7) - 3;
        halves[i] = quant_float_to_half(wide[i]);
    }
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        numbers[i] = (float)(i % 11) / 4;
    struct weight_source source = { format == QUANT_F32 ? (void *)wide : (void *)halves,
                                    N * COLS * (format == QUANT_F32 ? 4 : 2),
                                    N,
                                    COLS,
                                    format,
                                    WEIGHT_PRODUCT,
                                    "w" };
    assert_ok(weight_create(d, &source, w, &err), &err);
    assert_ok(buffer_alloc(d, ROWS * COLS * 4, &b[0], &err) &&
                  buffer_write(&b[0], 0, numbers, sizeof numbers, &err),
              &err);
    assert_ok(buffer_alloc(d, ROWS * N * 4, &b[1], &err) &&
                  buffer_write(&b[1], 0, numbers, ROWS * N * 4, &err),
              &err);
    *t = tape_create(d, (struct tape_limits){ .max_rows = ROWS, .max_outputs = 1 });
    struct tensor in = tape_tensor_bound(*t, COLS, ROWS_STEP, &b[0]),
                  out = tape_tensor_bound(*t, N, ROWS_STEP, &b[1]);
    op_matmul(*t, (struct matmul){ .out = out, .in = in, .w = w, .add = out });
    op_matmul(*t, (struct matmul){ .out = out, .in = in, .w = w, .add = out });
    assert_ok(tape_seal(*t, &err), &err);
}

static void the_vendor_s_products_are_products(void **state)
{
    (void)state;
    void (*plans[N_OPS])(struct metal_plan * p) = { [OP_matmul] = plan_by_vendor };
    struct metal_table table = { .plans = plans, .n_ops = N_OPS };
    struct metal_options options = { .table = &table };
    struct err err = { 0 };

    for (int half = 0; half < 2; half++) {
        struct device *d = metal_open(&options, &err);
        struct buffer b[3];
        struct weight w;
        struct tape *t;
        struct step step = { .n_rows = ROWS, .max_rows = ROWS, .max_outputs = 1 };
        float out[ROWS * 3];
        if (!d)
            fail_msg("%s", err.message);
        record_product(d, half ? QUANT_F16 : QUANT_F32, b, &w, &t);
        assert_ok(buffer_alloc(d, step_bytes(ROWS, 1), &b[2], &err) &&
                      buffer_write(&b[2], 0, &step, sizeof step, &err),
                  &err);
        assert_ok(tape_play(t, &b[2], &err) && buffer_read(&b[1], 0, out, sizeof out, &err), &err);
        for (uint32_t r = 0; r < ROWS; r++)
            for (uint32_t n = 0; n < 3; n++) {
                float sum = 0;
                for (uint32_t c = 0; c < COLS; c++)
                    sum += (float)((r * COLS + c) % 11) / 4 * ((float)((n * COLS + c) % 7) - 3);
                assert_float_equal(out[r * 3 + n], (float)((r * 3 + n) % 11) / 4 + 2 * sum, 1e-3f);
            }
        tape_destroy(t);
        weight_release(&w);
        for (int i = 0; i < 3; i++)
            buffer_release(&b[i]);
        device_close(d);
    }
}

static void more_memory_is_told_where_there_is_some(void **state)
{
    (void)state;
    struct device *d = open_metal(0);
    char text[256] = "";

    emu_set("memory_mb", 1024);
    assert_true(metal_more_memory(d, text, sizeof text));
    assert_non_null(strstr(text, "the system lets the GPU have 1.0 of "));
    assert_non_null(strstr(text, "sudo sysctl iogpu.wired_limit_mb="));
    emu_set("memory_mb", 1 << 30);
    assert_false(metal_more_memory(d, text, sizeof text));
    emu_set("memory_mb", 16384);
    device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_keeps_what_is_written),
        cmocka_unit_test(a_play_costs_few_commits_and_one_wait),
        cmocka_unit_test(writes_keep_their_place_among_plays),
        cmocka_unit_test(results_are_fetched_behind_their_play),
        cmocka_unit_test(aligned_weights_are_not_copied),
        cmocka_unit_test(a_device_that_cannot_do_it_is_refused),
        cmocka_unit_test(a_command_buffer_that_fails_fails_the_wait),
        cmocka_unit_test(pipelines_are_kept_on_disk),
        cmocka_unit_test(more_memory_is_told_where_there_is_some),
        cmocka_unit_test(the_vendor_s_products_are_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
