// test_lora.c - what adapters add to products, on the CPU: the vector kernels against the plain loops, and
// that a row's bits depend on the row alone.
#pragma GCC diagnostic ignored "-Wunused-function" // of the recorders there, those of other operations
#include "ops/lora_sides.h"
#include "ops/activate/activate.h"

static struct device *open_cpu(uint32_t features, uint32_t n_threads)
{
    struct err err = { 0 };
    struct device *d = cpu_open(
        &(struct cpu_options){ .features = features, .n_threads = n_threads, .table = &cpu_table }, &err);

    if (!d)
        fail_msg("%s", err.message);
    return d;
}

static void vector_kernels_give_what_the_plain_loops_give(void **state)
{
    uint32_t features[8], n = bench_features(features);

    (void)state;
    for (uint32_t f = 0; f < n; f++) {
        struct device *d = open_cpu(features[f], 1 + f % 2);
        check_lora_on(d);
        device_close(d);
    }
}

struct lora_run { // one play: the rows' slots, and how the adapters of the weight are
    uint32_t n_rows, slots[9];
    uint32_t n_ranks, first_rank; // of the weight; where the adapter's 5 ranks begin
    uint32_t features;
};
enum { RANKS = 5, IN = 75, OUT = 301 };

// Rows differ by their slot alone. The adapter of slots above 0 has RANKS ranks, and others lie around it.
static float *play_lora(const struct lora_run *run)
{
    struct bench b;
    float *in, *out;
    struct lora_weight w = { .n_ranks = run->n_ranks, .n_adapters = 3 };
    static float added[RANKS][IN], times[RANKS][OUT];
    uint32_t *owners;

    bench_open(&b, &(struct cpu_options){ .features = run->features, .n_threads = 2 },
               (struct tape_limits){ .max_rows = 9, .max_outputs = 1 });
    bench_seed(3);
    for (uint32_t i = 0; i < RANKS * IN; i++)
        added[i / IN][i % IN] = bench_normal();
    for (uint32_t i = 0; i < RANKS * OUT; i++)
        times[i / OUT][i % OUT] = bench_normal();
    w.a = *bench_weight(&b, QUANT_F32, w.n_ranks, IN);
    w.b = *bench_weight(&b, QUANT_F32, w.n_ranks, OUT);
    memcpy((float *)w.a.buffer.host + run->first_rank * IN, added, sizeof added);
    memcpy((float *)w.b.buffer.host + run->first_rank * OUT, times, sizeof times);
    w.owners = *bench_buffer(&b, w.n_ranks * 4ull);
    owners = w.owners.host;
    for (uint32_t j = 0; j < w.n_ranks; j++)
        owners[j] = j < run->first_rank ? 0 : j < run->first_rank + RANKS ? 1 : 2;
    struct buffer *scales = bench_buffer(&b, sizeof(float) * 9 * 3);
    for (uint32_t slot = 1; slot < 9; slot++)
        ((float *)scales->host)[slot * 3 + 1] = (float)slot / 3;
    w.scales = scales;
    struct lora l = { .in = bench_tensor(&b, IN, ROWS_STEP, &in),
                      .targets = { { bench_tensor(&b, OUT, ROWS_STEP, &out), &w } } };
    for (uint32_t r = 0; r < run->n_rows; r++) {
        bench_seed(100 + run->slots[r]);
        for (uint32_t c = 0; c < IN; c++)
            in[r * IN + c] = bench_normal();
        for (uint32_t c = 0; c < OUT; c++)
            out[r * OUT + c] = bench_normal();
        ((uint32_t *)step_slots(bench_step(&b)))[r] = run->slots[r];
    }
    op_lora(b.tape, l);
    bench_seal(&b);
    bench_step(&b)->n_rows = run->n_rows;
    bench_play(&b);
    float *copy = mem_alloc_array((size_t)run->n_rows * OUT, 4);
    memcpy(copy, out, (size_t)run->n_rows * OUT * 4);
    bench_close(&b);
    return copy;
}

// Company, the adapters that others have, and how many the engine knows: none of it changes a bit.
static void a_row_is_the_same_alone_and_in_company(void **state)
{
    uint32_t features[8], n = bench_features(features);

    (void)state;
    for (uint32_t f = 0; f < n; f++) {
        struct lora_run all = { 9, { 4, 0, 1, 7, 0, 2, 8, 3, 5 }, 12, 3, features[f] };
        float *together = play_lora(&all);
        for (uint32_t r = 0; r < 9; r++) {
            struct lora_run one = { 1, { all.slots[r] }, RANKS, 0, features[f] };
            float *alone = play_lora(&one);
            assert_memory_equal(alone, together + (size_t)r * OUT, sizeof(float) * OUT);
            mem_free(alone);
        }
        bench_seed(100); // slot 0 has no adapter: its row is what it was
        for (uint32_t c = 0; c < IN; c++)
            bench_normal();
        for (uint32_t c = 0; c < OUT; c++)
            assert_true(together[OUT + c] == bench_normal());
        mem_free(together);
    }
}

// Only what no adapter touches is fused.
static void products_with_adapters_are_recorded_in_parts(void **state)
{
    struct bench b;
    struct lora_weight lora = { .n_ranks = 4, .n_adapters = 1 };

    (void)state;
    bench_open(&b, &(struct cpu_options){ 0 }, (struct tape_limits){ .max_rows = 2, .max_outputs = 1 });
    struct tensor in = bench_tensor(&b, 64, ROWS_STEP, NULL), out = bench_tensor(&b, 96, ROWS_STEP, NULL);
    const struct weight *norm = bench_weight(&b, QUANT_F32, 1, 64),
                        *gate = bench_weight(&b, QUANT_F16, 96, 64),
                        *up = bench_weight(&b, QUANT_F16, 96, 64);
    struct gate_up g = { out, in, norm, gate, up, ACTIVATION_SILU, 1e-5f };
    op_gate_up(b.tape, g);
    assert_int_equal(tape_n_commands(b.tape), 1);
    lora.a = *bench_weight(&b, QUANT_F32, 4, 64);
    lora.b = *bench_weight(&b, QUANT_F32, 4, 96);
    lora.owners = *bench_buffer(&b, 16);
    lora.scales = bench_buffer(&b, 4);
    struct weight adapted = *up;
    adapted.lora = &lora;
    g.up = &adapted;
    op_gate_up(b.tape, g);
    assert_int_equal(tape_n_commands(b.tape), 1 + 5);
    assert_string_equal(tape_command(b.tape, 4)->name, "lora");
    adapted.lora = NULL;
    lora.b.n_cols = 95;
    op_lora(b.tape, (struct lora){ .in = in, .targets = { { out, &lora } } });
    struct err err = { 0 };
    assert_fails(tape_seal(b.tape, &err), &err, "of 4 ranks, for 64 columns in and 96 out");
    bench_close(&b);
}

// The plain loop of a product that takes its adapters along, and the parts' plain loops.
static void compare_with_parts(const struct op_shape *c, record *recording, const char *name)
{
    struct err err = { 0 };
    struct sides s = { .cpu = cpu_open(&(struct cpu_options){ .plain = true, .table = &cpu_table }, &err) };
    struct device *parts =
        cpu_open(&(struct cpu_options){ .plain = true, .parts = true, .table = &cpu_table }, &err);
    size_t n;

    side_open(&s.plain, s.cpu, c, recording);
    side_open(&s.fast, parts, c, recording);
    assert_int_equal(tape_n_commands(s.plain.tape), 1);
    assert_string_equal(tape_command(s.plain.tape, 0)->name, name);
    assert_true(tape_n_commands(s.fast.tape) > 1);
    assert_ok(tape_play(s.plain.tape, &s.plain.step, &err), &err);
    assert_ok(tape_play(s.fast.tape, &s.fast.step, &err), &err);
    const struct buffer *out = &s.plain.buffers[s.plain.n_buffers - 1];
    n = out->bytes / sizeof(float);
    assert_true(bench_error(s.fast.buffers[s.fast.n_buffers - 1].host, out->host, n) <= 1e-11);
    for (int v = 0; v < 2 && s.plain.pages.k; v++)
        assert_true(pages_difference(&s, v) <= 1e-6); // of fp16
    side_close(&s.plain);
    side_close(&s.fast);
    device_close(parts);
    device_close(s.cpu);
}

static void one_command_gives_what_the_parts_give(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 8; i++) {
        struct op_shape c = { .format = QUANT_Q8_0,
                              .rows = 1,
                              .most_rows = 1,
                              .n_cols = 96,
                              .n_out = 33,
                              .head_dim = 16,
                              .n_heads = 4,
                              .n_kv_heads = 2,
                              .past = 5,
                              .bias = i % 2,
                              .k_format = KV_F16,
                              .v_format = KV_F16,
                              .window = 1 + 3 * i };
        compare_with_parts(&c, record_adapted_qkv, "qkv_adapted");
        compare_with_parts(&c, record_adapted_gate_up, "gate_up_adapted");
        c.head_norm = i > 5; // rows that want logits
        compare_with_parts(&c, record_adapted_matmul, "matmul_adapted");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_command_gives_what_the_parts_give),
        cmocka_unit_test(vector_kernels_give_what_the_plain_loops_give),
        cmocka_unit_test(a_row_is_the_same_alone_and_in_company),
        cmocka_unit_test(products_with_adapters_are_recorded_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
