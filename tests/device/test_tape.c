// test_tape.c - recording, sealing and playing: hazards by byte range, scratch by last use, counters, errors,
// and the comparison of two devices.
#include "device/tape_internal.h"
#include "ops/activate/activate.h"
#include "ops/gate_up/gate_up.h"
#include "ops/matmul/matmul.h"
#include "ops/op_harness.h"
#include "ops/qkv/qkv.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/select/select.h"

static const struct cpu_options plain = { .plain = true };
static const struct tape_limits four_rows = { .max_rows = 4, .max_outputs = 2 };

struct touched_range {
    uint64_t offset, bytes;
    bool writes;
};

static struct command touching(const struct buffer *b, struct touched_range r)
{
    struct command c = { .n_operands = 2 }; // the second operand is absent
    c.operands[0] = (struct operand){ .buffer = b, .offset = r.offset, .bytes = r.bytes, .writes = r.writes };
    return c;
}

static bool conflict(struct touched_range a, struct touched_range b)
{
    static unsigned char memory[64];
    struct buffer one = { .host = memory, .bytes = 64 }, same = one; // two handles of one piece of memory
    struct command x = touching(&one, a), y = touching(&same, b);
    return hazard_between(&x, &y);
}

static void hazards_are_found_by_byte_range(void **state)
{
    (void)state;
    assert_true(conflict((struct touched_range){ 0, 8, true }, (struct touched_range){ 7, 8, false }));
    assert_true(conflict((struct touched_range){ 0, 8, false }, (struct touched_range){ 0, 1, true }));
    assert_true(conflict((struct touched_range){ 4, 1, true }, (struct touched_range){ 0, 16, true }));
    assert_false(conflict((struct touched_range){ 0, 8, true }, (struct touched_range){ 8, 8, true }));
    assert_false(conflict((struct touched_range){ 0, 8, false }, (struct touched_range){ 0, 8, false }));

    unsigned char memory[2];
    struct buffer a = { .host = &memory[0], .bytes = 1 }, b = { .host = &memory[1], .bytes = 1 };
    struct command x = touching(&a, (struct touched_range){ 0, 1, true }),
                   y = touching(&b, (struct touched_range){ 0, 1, true });
    assert_false(hazard_between(&x, &y));
}

static void a_wait_covers_everything_before_it(void **state)
{
    static unsigned char memory[64];
    struct buffer b = { .host = memory, .bytes = 64 };
    const struct touched_range ranges[] = {
        { 0, 8, true }, { 8, 8, true }, { 0, 8, false }, { 8, 8, false }, { 16, 8, true }, { 8, 8, true },
    };
    const bool waits[] = { false, false, true, false, false, true };
    struct command commands[6];

    (void)state;
    for (uint32_t i = 0; i < 6; i++)
        commands[i] = touching(&b, ranges[i]);
    assert_int_equal(hazard_mark(commands, 6), 2);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(commands[i].barrier, waits[i]);
}

static void norm(struct bench *b, struct tensor in, struct tensor out, const struct weight *scale)
{
    op_rmsnorm(b->tape, (struct rmsnorm){ .in = in, .out = out, .scale = scale, .eps = 1e-5f });
}

static void scratch_is_reused_after_the_last_use(void **state)
{
    struct bench b;
    struct tensor v[8];

    (void)state;
    bench_open(&b, &plain, four_rows);
    const struct weight *scale = bench_weight(&b, QUANT_F32, 1, 64);
    v[0] = bench_tensor(&b, 64, ROWS_STEP, NULL);
    for (int i = 1; i < 8; i++) {
        v[i] = tape_tensor(b.tape, 64, ROWS_STEP);
        norm(&b, v[i - 1], v[i], scale);
    }
    bench_seal(&b);
    assert_int_equal(tape_scratch_bytes(b.tape), 2 * 4 * 64 * 4); // never more than two are alive
    assert_int_equal(tape_n_commands(b.tape), 7);
    assert_int_equal(tape_n_barriers(b.tape), 6);
    bench_close(&b);
}

static void independent_commands_do_not_wait(void **state)
{
    struct bench b;

    (void)state;
    bench_open(&b, &plain, four_rows);
    const struct weight *scale = bench_weight(&b, QUANT_F32, 1, 64);
    struct tensor in = bench_tensor(&b, 64, ROWS_STEP, NULL);
    struct tensor x = tape_tensor(b.tape, 64, ROWS_STEP), y = tape_tensor(b.tape, 64, ROWS_STEP);
    norm(&b, in, x, scale);
    norm(&b, in, y, scale);
    op_activate(b.tape, (struct activate){ .gate = x, .up = y, .out = x });
    bench_seal(&b);
    assert_int_equal(tape_n_barriers(b.tape), 1);
    bench_close(&b);
}

static void counters_count(void **state)
{
    struct bench b;

    (void)state;
    bench_open(&b, &plain, four_rows);
    const struct weight *scale = bench_weight(&b, QUANT_F32, 1, 64);
    struct tensor in = bench_tensor(&b, 64, ROWS_STEP, NULL), out = bench_tensor(&b, 64, ROWS_STEP, NULL);
    struct tensor middle = tape_tensor(b.tape, 64, ROWS_STEP);
    norm(&b, in, middle, scale);
    norm(&b, middle, out, scale);
    bench_seal(&b);
    uint64_t buffers = b.device->counters.buffers, allocations = mem_n_allocations();
    bench_step(&b)->n_rows = 3;
    for (int i = 0; i < 5; i++)
        bench_play(&b);
    assert_int_equal(b.device->counters.plays, 5);
    assert_int_equal(b.device->counters.submissions, 5);
    assert_int_equal(b.device->counters.commands, 10);
    assert_int_equal(b.device->counters.barriers, 5);
    assert_int_equal(b.device->counters.buffers, buffers);
    assert_int_equal(b.device->counters.read_bytes, 0);
    assert_int_equal(mem_n_allocations(), allocations);
    bench_close(&b);
}

static void the_first_error_is_kept_with_its_label(void **state)
{
    struct bench b;
    struct err err = { 0 };

    (void)state;
    bench_open(&b, &plain, four_rows);
    const struct weight *scale = bench_weight(&b, QUANT_F32, 1, 64);
    struct tensor in = bench_tensor(&b, 64, ROWS_STEP, NULL), narrow = bench_tensor(&b, 32, ROWS_STEP, NULL);
    tape_label(b.tape, "layer%d.attn", 7);
    norm(&b, in, narrow, scale);
    tape_label(b.tape, "layer8.ffn");
    op_matmul(b.tape, (struct matmul){ .in = in, .out = narrow, .w = scale });
    assert_fails(tape_seal(b.tape, &err), &err, "layer7.attn: rmsnorm: in has 64 columns, scale 64, out 32");
    bench_close(&b);
}

static void reading_what_nobody_wrote_is_an_error(void **state)
{
    struct bench b;
    struct err err = { 0 };

    (void)state;
    bench_open(&b, &plain, four_rows);
    const struct weight *scale = bench_weight(&b, QUANT_F32, 1, 64);
    norm(&b, tape_tensor(b.tape, 64, ROWS_STEP), tape_tensor(b.tape, 64, ROWS_STEP), scale);
    assert_fails(tape_seal(b.tape, &err), &err, "rmsnorm reads a tensor that no command has written");
    bench_close(&b);
}

// A fused operation's definition is its parts: on the plain loops they agree to the bit.
static void play_fused(bool parts, float *result, uint32_t *n_commands)
{
    struct bench b;
    struct page_shape shape = { 2, 16, 2, KV_F32, KV_F32 };
    struct tape_limits limits = four_rows;
    float *q, *out;

    limits.parts = parts;
    bench_open(&b, &plain, limits);
    bench_seed(3);
    struct qkv m = { .pages = { .shape = shape }, .eps = 1e-5f, .pairs = ROPE_ADJACENT };
    struct gate_up g = { .activation = ACTIVATION_SILU, .eps = 1e-5f };
    m.norm = g.norm = bench_weight(&b, QUANT_F32, 1, 64);
    m.wq = bench_weight(&b, QUANT_Q8_0, 64, 64);
    m.wk = bench_weight(&b, QUANT_Q4_0, 32, 64);
    m.wv = bench_weight(&b, QUANT_Q5_1, 32, 64);
    m.bk = bench_weight(&b, QUANT_F32, 1, 32);
    g.gate = bench_weight(&b, QUANT_F16, 48, 64);
    g.up = bench_weight(&b, QUANT_BF16, 48, 64);
    m.in = g.in = bench_tensor(&b, 64, ROWS_STEP, NULL);
    m.angles = bench_tensor(&b, 16, ROWS_STEP, NULL);
    m.q = bench_tensor(&b, 64, ROWS_STEP, &q);
    g.out = bench_tensor(&b, 48, ROWS_STEP, &out);
    m.pages.k = bench_buffer(&b, 2 * 2 * 16 * 16 * 4);
    m.pages.v = bench_buffer(&b, 2 * 2 * 16 * 16 * 4);
    m.pages.table = bench_buffer(&b, 8);
    op_qkv(b.tape, m);
    op_gate_up(b.tape, g);
    bench_seal(&b);
    struct step *s = bench_step(&b);
    s->n_rows = 4;
    for (uint32_t r = 0; r < 4; r++)
        ((uint32_t *)step_positions(s))[r] = r;
    bench_play(&b);
    memcpy(result, q, 4 * 64 * 4);
    memcpy(result + 256, out, 4 * 48 * 4);
    memcpy(result + 448, m.pages.k->host, 1024 * 4);
    memcpy(result + 1472, m.pages.v->host, 1024 * 4);
    *n_commands = tape_n_commands(b.tape);
    bench_close(&b);
}

static void parts_and_fused_give_the_same_bits(void **state)
{
    static float fused[2496], parts[2496];
    uint32_t n_fused, n_parts;

    (void)state;
    play_fused(false, fused, &n_fused);
    play_fused(true, parts, &n_parts);
    assert_int_equal(n_fused, 2);
    assert_int_equal(n_parts, 9);
    assert_memory_equal(fused, parts, sizeof fused);
}

static bool note_difference(void *arg, const struct tape_difference *d)
{
    double *errors = arg;
    errors[d->command] = d->error;
    return true;
}

static void tape_diff_names_the_command_that_differs(void **state)
{
    struct bench a, b, *both[] = { &a, &b };
    double errors[3] = { -1, -1, -1 };
    struct err err = { 0 };

    (void)state;
    for (int i = 0; i < 2; i++) {
        bench_open(both[i], i ? &(struct cpu_options){ .no_repack = true } : &plain, four_rows);
        bench_seed(11);
        const struct weight *scale = bench_weight(both[i], QUANT_F32, 1, 64),
                            *w = bench_weight(both[i], QUANT_F32, 64, 64);
        struct tensor in = bench_tensor(both[i], 64, ROWS_STEP, NULL),
                      out = bench_tensor(both[i], 64, ROWS_STEP, NULL);
        struct tensor x = tape_tensor(both[i]->tape, 64, ROWS_STEP),
                      y = tape_tensor(both[i]->tape, 64, ROWS_STEP);
        if (i == 1)
            ((float *)w->buffer.host)[100] += 1; // the planted fault, in command 1 of b
        norm(both[i], in, x, scale);
        op_matmul(both[i]->tape, (struct matmul){ .in = x, .out = y, .w = w });
        norm(both[i], y, out, scale);
        bench_seal(both[i]);
        bench_step(both[i])->n_rows = 4;
    }
    const struct buffer *steps[2] = { &a.step, &b.step };
    assert_ok(tape_diff(a.tape, b.tape, steps, note_difference, errors, &err), &err);
    assert_true(errors[0] >= 0 && errors[0] < 1e-10);
    assert_true(errors[1] > 1e-6);
    assert_true(errors[2] >= 0 && errors[2] < 1e-10); // judged alone, on a's numbers
    bench_close(&a);
    bench_close(&b);
}

static void output_rows_are_picked(void **state)
{
    struct bench b;
    float *in, *out;

    (void)state;
    bench_open(&b, &plain, four_rows);
    struct tensor x = bench_tensor(&b, 8, ROWS_STEP, &in), y = bench_tensor(&b, 8, ROWS_OUTPUT, &out);
    op_select(b.tape, (struct select){ .in = x, .out = y });
    bench_seal(&b);
    struct step *s = bench_step(&b);
    s->n_rows = 4;
    s->n_outputs = 2;
    ((uint32_t *)step_outputs(s))[0] = 1;
    ((uint32_t *)step_outputs(s))[1] = 3;
    bench_play(&b);
    assert_memory_equal(out, in + 8, 32);
    assert_memory_equal(out + 8, in + 24, 32);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hazards_are_found_by_byte_range),
        cmocka_unit_test(a_wait_covers_everything_before_it),
        cmocka_unit_test(scratch_is_reused_after_the_last_use),
        cmocka_unit_test(independent_commands_do_not_wait),
        cmocka_unit_test(counters_count),
        cmocka_unit_test(the_first_error_is_kept_with_its_label),
        cmocka_unit_test(reading_what_nobody_wrote_is_an_error),
        cmocka_unit_test(parts_and_fused_give_the_same_bits),
        cmocka_unit_test(tape_diff_names_the_command_that_differs),
        cmocka_unit_test(output_rows_are_picked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
