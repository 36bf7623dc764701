// test_fuse.c - packed rows that one command hands to the next: the plain definition of the packings, what
// tape_seal decides, what --trace prints, and that tape_diff judges what a device has packed. The last test
// asks CUDA's table, with a fake driver: no GPU is needed.
#include "device/cuda/cuda_internal.h"
#include "device/fuse.h"
#include "ops/activate/activate.h"
#include "ops/attend/attend_parts.h"
#include "ops/attend_all/attend_all.h"
#include "ops/cuda_table.h"
#include "ops/gate_up/gate_up.h"
#include "ops/layernorm/layernorm.h"
#include "ops/op_harness.h"
#include "ops/shuffle/shuffle.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"

enum { ROWS = 5, COLUMNS = 128 };

static double round_trip(const struct tape_packing *packing, float *rows, const float *norm)
{
    float expected[ROWS * COLUMNS], back[ROWS * COLUMNS];
    struct packed_rows from = { rows, norm, ROWS, COLUMNS }, to = { back, norm, ROWS, COLUMNS };
    void *packed = mem_alloc(packing->bytes(ROWS, COLUMNS, norm != NULL));

    packing->pack(&from, packed);
    packing->unpack(packed, &to);
    mem_free(packed);
    for (uint32_t r = 0; r < ROWS; r++) {
        float squares = 0, *row = rows + r * COLUMNS;
        for (uint32_t i = 0; i < COLUMNS; i++)
            squares += row[i] * row[i];
        for (uint32_t i = 0; i < COLUMNS; i++)
            expected[r * COLUMNS + i] = norm ? row[i] * norm[i] / sqrtf(squares / COLUMNS) : row[i];
    }
    return bench_error(expected, back, ROWS * COLUMNS);
}

static void packings_keep_the_numbers(void **state)
{
    float rows[ROWS * COLUMNS], norm[COLUMNS];

    (void)state;
    bench_seed(3);
    for (uint32_t i = 0; i < ROWS * COLUMNS; i++)
        rows[i] = bench_normal() * (float)(1 + i % 7);
    for (uint32_t i = 0; i < COLUMNS; i++)
        norm[i] = 1 + 0.1f * bench_normal();
    assert_true(round_trip(&attend_parts, rows, NULL) < 1e-12);
    assert_true(round_trip(&gemm_packing_bf16, rows, NULL) < 1e-5);
    assert_true(round_trip(&gemm_packing_mma, rows, NULL) < 1e-5);
    assert_true(round_trip(&gemm_packing_int8, rows, NULL) < 1e-4);
    assert_true(round_trip(&gemm_packing_int8, rows, norm) < 1e-4);
    memset(rows, 0, 32 * sizeof *rows); // a block of zeros
    assert_true(round_trip(&gemm_packing_int8, rows, NULL) < 1e-4);
    assert_true(round_trip(&gemm_packing_int8_tiles, rows, NULL) < 1e-4);
    assert_true(round_trip(&gemm_packing_int8_wide, rows, NULL) < 1e-4);
    rows[40] = NAN; // marks its block of 32 and no other
    float back[ROWS * COLUMNS];
    unsigned char packed[8 * COLUMNS / 32 * 320];
    gemm_packing_int8.pack(&(struct packed_rows){ rows, NULL, ROWS, COLUMNS }, packed);
    gemm_packing_int8.unpack(packed, &(struct packed_rows){ back, NULL, ROWS, COLUMNS });
    assert_true(isnan(back[33]) && !isnan(back[31]) && !isnan(back[64]));
}

// A CPU that claims to hand on what it activates as int8. It packs after the command, by the plain
// definition, or forgets to.
static const struct tape_packing *always_int8(struct device *d, const struct tape_limits *limits,
                                              const struct command *from, const struct command *to)
{
    (void)d, (void)limits, (void)from, (void)to;
    return &gemm_packing_int8;
}
static const struct tape_fusion rules[] = {
    { OP_activate, 2, OP_matmul, MATMUL_IN, 0, always_int8, FUSE_ROWS_TOO }, { 0 }
};
static const struct device_ops *cpu_ops;
static bool forgets;

static bool play_and_pack(struct device *d, struct tape *t, const struct buffer *step, uint32_t first,
                          uint32_t last, struct err *err)
{
    if (!cpu_ops->play(d, t, step, first, last, err))
        return false;
    for (uint32_t i = first; i < last && !forgets; i++) {
        const struct command *c = &t->commands[i];
        const struct operand *packed = fuse_packed(c, true),
                             *rows = packed ? &c->operands[packed->rows] : NULL;
        if (packed)
            packed->packing->pack(
                &(struct packed_rows){ (float *)((unsigned char *)rows->buffer->host + rows->offset), NULL,
                                       t->limits.max_rows, COLUMNS },
                (unsigned char *)packed->buffer->host + packed->offset);
    }
    return true;
}

static bool note_difference(void *arg, const struct tape_difference *d)
{
    double *errors = arg;
    errors[d->command] = d->error;
    return true;
}

static void record_two(struct bench *b)
{
    bench_seed(11);
    struct tensor gate = bench_tensor(b, COLUMNS, ROWS_STEP, NULL),
                  up = bench_tensor(b, COLUMNS, ROWS_STEP, NULL);
    struct tensor x = tape_tensor(b->tape, COLUMNS, ROWS_STEP), y = bench_tensor(b, 8, ROWS_STEP, NULL);
    const struct weight *w = bench_weight(b, QUANT_F32, 8, COLUMNS);

    op_activate(b->tape,
                (struct activate){ .out = x, .gate = gate, .up = up, .activation = ACTIVATION_SILU });
    op_matmul(b->tape, (struct matmul){ .in = x, .out = y, .w = w });
    bench_seal(b);
    bench_step(b)->n_rows = 3;
}

static void diff(struct bench *a, struct bench *b, double *errors)
{
    const struct buffer *steps[2] = { &a->step, &b->step };
    struct err err = { 0 };

    assert_ok(tape_diff(a->tape, b->tape, steps, note_difference, errors, &err), &err);
}

static void seal_decides_trace_prints_and_diff_judges(void **state)
{
    const struct cpu_options plain = { .plain = true };
    const struct tape_limits limits = { .max_rows = 4, .max_outputs = 1 };
    struct bench a, b;
    double errors[2] = { -1, -1 };
    char *text = NULL;
    size_t n_text = 0;

    (void)state;
    bench_open(&a, &plain, limits);
    bench_open(&b, &plain, limits);
    struct device_ops ops = *(cpu_ops = b.device->ops);
    ops.play = play_and_pack;
    b.device->ops = &ops;
    b.device->fusions = rules;
    record_two(&a);
    record_two(&b);
    const struct operand *out = fuse_packed(&b.tape->commands[0], true),
                         *in = fuse_packed(&b.tape->commands[1], false);
    assert_non_null(out);
    assert_non_null(in);
    assert_true(out->offset == in->offset && out->bytes == in->bytes && out->rows == 2 &&
                in->rows == MATMUL_IN);
    assert_null(fuse_packed(&a.tape->commands[0], true));
    FILE *to = open_memstream(&text, &n_text);
    tape_print(b.tape, to);
    fclose(to);
    assert_non_null(strstr(text, "writes packed int8\n"));
    assert_non_null(strstr(text, "reads packed int8\n"));
    free(text);
    diff(&a, &b, errors);
    assert_true(errors[0] >= 0 && errors[0] < 1e-10);
    assert_true(errors[1] >= 0 && errors[1] < 1e-10);
    forgets = true;
    memset((unsigned char *)out->buffer->host + out->offset, 0, out->bytes);
    diff(&a, &b, errors);
    assert_true(errors[0] > 0.5); // nothing was packed
    bench_close(&a);
    bench_close(&b);
}

static cu_result fake_alloc(cu_address *at, size_t bytes)
{
    *at = (cu_address)(uintptr_t)calloc(1, bytes);
    return *at ? 0 : CU_OUT_OF_MEMORY;
}
static cu_result fake_free(cu_address at)
{
    free((void *)(uintptr_t)at);
    return 0;
}
static cu_result fake_context(cu_context context)
{
    (void)context;
    return 0;
}
static cu_result fake_function(cu_function *function, cu_module module, const char *name)
{
    (void)module;
    *function = (void *)(uintptr_t)name;
    return 0;
}
static cu_result fake_set(cu_function function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return 0;
}
static int fake_tiles(void *map, int type, uint32_t n_dims, void *at, const uint64_t *dims,
                      const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,
                      int swizzle, int l2, int fill)
{
    (void)map, (void)type, (void)n_dims, (void)at, (void)dims, (void)strides, (void)box, (void)steps;
    (void)interleave, (void)swizzle, (void)l2, (void)fill;
    return 0;
}
static bool take_memory(struct device *d, uint64_t bytes, struct buffer *b, struct err *err)
{
    cu_address at;

    (void)err;
    if (fake_alloc(&at, bytes) != 0)
        return false;
    *b = (struct buffer){ .device = d, .bytes = bytes, .native = (void *)(uintptr_t)at };
    return true;
}
static void give_memory(struct device *d, struct buffer *b)
{
    (void)d;
    fake_free((cu_address)(uintptr_t)b->native);
}
static bool supports_all(struct device *d, uint32_t op)
{
    (void)d, (void)op;
    return true;
}

// gate_up, and the product of its result: which launches, and what is packed. Kernels are known by name.
static struct tape *plan_two(struct cuda *cuda, uint32_t rows, enum quant q, struct weight *weights)
{
    struct tape *t = tape_create(&cuda->device, (struct tape_limits){ .max_rows = rows, .max_outputs = 1 });
    const struct quant_info *info = quant_info(q);
    uint32_t shapes[][2] = { { 1, 4096 }, { 2048, 4096 }, { 2048, 4096 }, { 4096, 2048 } };
    struct err err = { 0 };

    for (int i = 0; i < 4; i++) {
        uint32_t n = shapes[i][0], k = shapes[i][1];
        uint64_t bytes = i ? (uint64_t)n * k / info->block_elements * info->block_bytes : k * 4;
        weights[i] = (struct weight){
            .bytes = bytes, .n_rows = n, .n_cols = k, .format = i ? q : QUANT_F32, .name = "w"
        };
        assert_true(take_memory(&cuda->device, 64, &weights[i].buffer, &err));
    }
    static struct buffer input = { .bytes = 1 << 30 };
    struct tensor in = tape_tensor_bound(t, 4096, ROWS_STEP, &input), ffn = tape_tensor(t, 2048, ROWS_STEP);
    struct tensor x = tape_tensor(t, 4096, ROWS_STEP);
    op_gate_up(t, (struct gate_up){ .out = ffn,
                                    .in = in,
                                    .norm = &weights[0],
                                    .gate = &weights[1],
                                    .up = &weights[2],
                                    .eps = 1e-5f });
    op_matmul(t, (struct matmul){ .out = x, .in = ffn, .w = &weights[3] });
    op_gate_up(
        t,
        (struct gate_up){
            .out = ffn, .in = x, .norm = &weights[0], .gate = &weights[1], .up = &weights[2], .eps = 1e-5f });
    assert_ok(tape_seal(t, &err), &err);
    return t;
}

static const char *first_kernel(const struct tape *t, uint32_t command)
{
    const struct cuda_tape *n = t->native;
    return (const char *)n->plan.launches[n->first_launch[command]].function;
}

static const struct driver driver = { .alloc = fake_alloc,
                                      .give_back = fake_free,
                                      .context_set = fake_context,
                                      .stream_wait = fake_context,
                                      .module_function = fake_function,
                                      .function_set = fake_set,
                                      .tensor_tiles = fake_tiles };
static const struct device_ops fake_ops = { .alloc = take_memory,
                                            .release = give_memory,
                                            .supports = supports_all,
                                            .seal = cuda_tape_seal,
                                            .drop = cuda_tape_drop,
                                            .kernel = cuda_tape_kernel };

static struct cuda fake_hopper(void)
{
    static cu_module none;

    return (struct cuda){ .device = { .ops = &fake_ops, .name = "cuda:0", .fusions = cuda_fusions },
                          .cu = &driver,
                          .table = &cuda_table,
                          .modules = &none,
                          .n_modules = 1,
                          .limits = { 132, 230400, 90 } };
}

// --trace names all kernels of a command, behind its label.
static void expect_in_trace(const struct tape *t, uint32_t command)
{
    const struct cuda_tape *n = t->native;
    char *text = NULL, line[256];
    size_t n_text = 0;
    FILE *to = open_memstream(&text, &n_text);

    tape_print(t, to);
    fclose(to);
    snprintf(line, sizeof line, "%5u ", command);
    const char *at = strstr(text, line), *end = at ? strchr(at, '\n') : NULL;
    assert_non_null(end);
    for (uint32_t l = n->first_launch[command]; l < n->first_launch[command + 1]; l++) {
        snprintf(line, sizeof line, "%s%s", l > n->first_launch[command] ? " + " : "bytes, by ",
                 (const char *)n->plan.launches[l].function);
        at = strstr(at, line);
        assert_true(at && at < end);
    }
    free(text);
}

static void cuda_hands_on_what_the_next_kernel_reads(void **state)
{
    struct cuda cuda = fake_hopper();
    static const struct {
        uint32_t rows;
        const char *gate_up, *down, *next; // the first kernel of each command
        const struct tape_packing *handed; // from down to the next
    } cases[] = { { 1, "gemv_pipeline_alone_q4_0", "gemv_pipeline_q4_0", "gemv_pipeline_alone_q4_0", NULL },
                  { 4, "pack_int8_split", "pack_int8_split", "gemm_int8_gated_q4_0", &gemm_packing_int8 },
                  { 16, "pack_int8", "pack_int8", "pack_int8", NULL },
                  { 64, "pack_mma", "gemm_hopper_64_q4_0", "pack_mma", NULL },
                  { 256, "pack_mma", "gemm_hopper_128_q4_0", "pack_mma", NULL },
                  { 512, "pack_mma", "gemm_hopper_256_q4_0", "pack_mma", NULL } };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct weight weights[4];
        struct tape *t = plan_two(&cuda, cases[i].rows, QUANT_Q4_0, weights);
        assert_string_equal(first_kernel(t, 0), cases[i].gate_up);
        assert_string_equal(first_kernel(t, 1), cases[i].down);
        assert_string_equal(first_kernel(t, 2), cases[i].next);
        for (uint32_t c = 0; c < 3; c++)
            expect_in_trace(t, c);
        const struct operand *handed = fuse_packed(&t->commands[1], true);
        assert_true((handed ? handed->packing : NULL) == cases[i].handed);
        assert_true(!handed || handed->norm == &weights[0]);
        assert_true(!!handed == !!fuse_packed(&t->commands[2], false));
        tape_destroy(t);
        for (int w = 0; w < 4; w++)
            give_memory(&cuda.device, &weights[w].buffer);
    }
}

static const struct weight *fake_weight(struct cuda *cuda, struct weight *w, uint32_t n, uint32_t k)
{
    enum quant q = n > 1 ? QUANT_BF16 : QUANT_F32;
    struct err err = { 0 };

    *w = (struct weight){
        .bytes = (uint64_t)n * k * (n > 1 ? 2 : 4), .n_rows = n, .n_cols = k, .format = q, .name = "w"
    };
    assert_true(take_memory(&cuda->device, 64, &w->buffer, &err));
    return w;
}

enum { LAYER_WEIGHTS = 8, LAYER_COLUMNS = 768, LAYER_FFN = 3072 };

// A layer of an encoder without biases: norm, q, k, v, attention, out, norm, up, down.
static struct tape *plan_layer(struct cuda *cuda, struct tape_limits limits, enum quant format,
                               struct weight *w)
{
    static struct buffer stream = { .bytes = 1 << 30, .native = (void *)4096 };
    struct tape *t = tape_create(&cuda->device, limits);
    const uint32_t n = LAYER_COLUMNS;
    struct tensor x = tape_tensor_bound(t, n, ROWS_STEP, &stream), normed = tape_tensor(t, n, ROWS_STEP),
                  attended = tape_tensor(t, n, ROWS_STEP), again = tape_tensor(t, n, ROWS_STEP),
                  ffn = tape_tensor(t, LAYER_FFN, ROWS_STEP);
    const struct weight *norm = fake_weight(cuda, &w[0], 1, n), *ones = fake_weight(cuda, &w[1], 1, n);
    struct matmul_three qkv = { .in = normed };
    struct err err = { 0 };

    op_layernorm(t, (struct layernorm){ .out = normed, .in = x, .scale = norm, .bias = ones, .eps = 1e-6f });
    for (uint32_t i = 0; i < 3; i++) {
        qkv.out[i] = tape_tensor(t, n, ROWS_STEP);
        qkv.w[i] = fake_weight(cuda, &w[2 + i], n, n);
    }
    op_matmul_three(t, qkv);
    op_attend_all(t, (struct attend_all){ .out = attended,
                                          .q = qkv.out[0],
                                          .k = qkv.out[1],
                                          .v = qkv.out[2],
                                          .n_heads = 12,
                                          .scale = 0.125f });
    op_matmul(t, (struct matmul){ .out = x, .in = attended, .w = fake_weight(cuda, &w[5], n, n), .add = x });
    op_layernorm(t, (struct layernorm){ .out = again, .in = x, .scale = norm, .bias = ones, .eps = 1e-6f });
    op_matmul_activated(
        t, (struct matmul){ .out = ffn, .in = again, .w = fake_weight(cuda, &w[6], LAYER_FFN, n) },
        ACTIVATION_GELU_TANH);
    op_matmul(t,
              (struct matmul){ .out = x, .in = ffn, .w = fake_weight(cuda, &w[7], n, LAYER_FFN), .add = x });
    for (uint32_t i = 2; i < LAYER_WEIGHTS; i++) {
        w[i].format = format;
        w[i].layout = format == QUANT_Q8_0 ? LAYOUT_ROW_SCALES : LAYOUT_FILE;
    }
    assert_ok(tape_seal(t, &err), &err);
    return t;
}

// The squares of 17 tiles go to the product behind them as rows of bf16 alone.
static void a_connector_is_two_launches(void **state)
{
    static struct buffer stream = { .bytes = 1 << 30 };
    struct cuda cuda = fake_hopper();
    struct weight weight;
    struct err err = { 0 };

    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        struct tape_limits limits = { .max_rows = 17 * 1024, .max_outputs = 17 * 64, .exact = exact };
        struct tape *t = tape_create(&cuda.device, limits);
        struct tensor in = tape_tensor_bound(t, LAYER_COLUMNS, ROWS_STEP, &stream),
                      squares = tape_tensor(t, 16 * LAYER_COLUMNS, ROWS_OUTPUT),
                      out = tape_tensor_bound(t, 576, ROWS_OUTPUT, &stream);
        op_shuffle(t, (struct shuffle){ .out = squares, .in = in, .side = 4, .n_across = 32 });
        op_matmul(t, (struct matmul){ .out = out,
                                      .in = squares,
                                      .w = fake_weight(&cuda, &weight, 576, 16 * LAYER_COLUMNS) });
        assert_ok(tape_seal(t, &err), &err);
        const struct operand *handed = fuse_packed(&t->commands[0], true);
        assert_true((handed ? handed->packing : NULL) == (exact ? NULL : &gemm_packing_bf16));
        assert_true(!handed || handed->bytes == gemm_packing_bf16.bytes(17 * 64, 16 * LAYER_COLUMNS, false));
        assert_true(!handed == !!t->commands[0].operands[SHUFFLE_OUT].buffer);
        assert_true(exact || ((struct cuda_tape *)t->native)->plan.n_launches == 2);
        tape_destroy(t);
        give_memory(&cuda.device, &weight.buffer);
    }
}

// One launch a command, and of bf16 others for the rows that whole waves of tiles leave; between them go rows
// of bf16, or of int8 to products of Q8_0, and nothing else but the residual stream is written.
static void an_encoders_layer_is_few_launches(void **state)
{
    static const struct {
        const char *kernel;
        const struct tape_packing *packing; // of what it hands on alone
    } all[2][7] = { {
                        { "layernorm_warp_768", &gemm_packing_bf16 },
                        { "gemm_staged_packed_192", &gemm_packing_rows }, // q, k and v
                        { "attend_all_hopper_64", &gemm_packing_bf16 },
                        { "gemm_staged_128", NULL },
                        { "layernorm_warp_768", &gemm_packing_bf16 },
                        { "gemm_staged_activated_192", &gemm_packing_bf16 },
                        { "gemm_cluster_waves_192", NULL },
                    },
                    {
                        { "layernorm_warp_768", &gemm_packing_int8_wide },
                        { "gemm_stationary_int8_packed", &gemm_packing_rows },
                        { "attend_all_hopper_64", &gemm_packing_int8_tiles },
                        { "gemm_stationary_int8", NULL },
                        { "layernorm_warp_768", &gemm_packing_int8_wide },
                        { "gemm_stationary_int8_activated", &gemm_packing_int8_wide },
                        { "gemm_staged_int8_wide", NULL },
                    } };
    enum { N = sizeof all[0] / sizeof *all[0], N_RESTS = 1 };
    struct cuda cuda = fake_hopper();
    struct weight weights[LAYER_WEIGHTS];

    (void)state;
    for (int i = 0; i < 4; i++) {
        bool q8 = i / 2, exact = i % 2;
        struct tape_limits limits = { .max_rows = 17 * 1024, .max_outputs = 1, .exact = exact };
        struct tape *t = plan_layer(&cuda, limits, q8 ? QUANT_Q8_0 : QUANT_BF16, weights);
        assert_int_equal(t->n_commands, N);
        for (uint32_t c = 0; c < N; c++) {
            const struct operand *handed = fuse_packed(&t->commands[c], true);
            uint32_t n_results = t->commands[c].op == OP_matmul_three ? 3 : 1;
            if (exact) {
                assert_null(handed);
                continue;
            }
            assert_string_equal(first_kernel(t, c), all[q8][c].kernel);
            assert_true((handed ? handed->packing : NULL) == all[q8][c].packing);
            for (uint32_t k = 0; handed && k < n_results; k++) {
                assert_true(handed[k].writes && handed[k].packing == all[q8][c].packing);
                assert_null(t->commands[c].operands[handed[k].rows].buffer);
            }
        }
        assert_true(exact || ((struct cuda_tape *)t->native)->plan.n_launches == N + (q8 ? 0 : N_RESTS));
        tape_destroy(t);
        for (int w = 0; w < LAYER_WEIGHTS; w++)
            give_memory(&cuda.device, &weights[w].buffer);
    }
}

// One or two products of normed rows, in formats that share a launch and in others.
static void products_of_normed_rows_are_launches_of_some_blocks(void **state)
{
    static const enum quant formats[] = { QUANT_F32, QUANT_BF16, QUANT_Q4_0, QUANT_Q3_K, QUANT_Q8_0 };
    static const uint32_t rows[] = { 1, 7, 16, 32, 64, 300 };
    struct cuda cuda = fake_hopper();

    (void)state;
    for (uint32_t i = 0; i < 5 * 6 * 6 * 3; i++) {
        uint32_t second = i / 5 % 6, mode = i / 180, n_cols = rows[i / 30 % 6] > 16 ? 768 : 2048;
        struct tape_limits limits = {
            .max_rows = rows[i / 30 % 6], .max_outputs = 1, .exact = mode == 1, .invariant = mode == 2
        };
        struct tape *t = tape_create(&cuda.device, limits);
        static struct buffer input = { .bytes = 1 << 30 };
        struct weight weights[3];
        struct err err = { 0 };
        for (uint32_t w = 0; w < 3; w++) {
            fake_weight(&cuda, &weights[w], w ? 32 + 6 * w : 1, n_cols);
            weights[w].format = w ? formats[w > 1 && second < 5 ? second : i % 5] : QUANT_F32;
        }
        struct matmul_normed m = { .in = tape_tensor_bound(t, n_cols, ROWS_STEP, &input),
                                   .norm = &weights[0],
                                   .w = &weights[1],
                                   .out = tape_tensor(t, weights[1].n_rows, ROWS_STEP),
                                   .eps = 1e-5f };
        if (second < 5) {
            m.v = &weights[2];
            m.more = tape_tensor(t, weights[2].n_rows, ROWS_STEP);
        }
        op_matmul_normed(t, m);
        assert_ok(tape_seal(t, &err), &err);
        const struct cuda_plan *plan = &((struct cuda_tape *)t->native)->plan;
        for (uint32_t l = 0; l < plan->n_launches; l++) {
            const struct cuda_launch *launch = &plan->launches[l];
            if (!(launch->grid[0] * launch->grid[1] * launch->grid[2] > 0 && launch->block > 0))
                fail_msg("%s: %u x %u x %u blocks of %u; rows %u, formats %u %u, mode %u",
                         (const char *)launch->function, launch->grid[0], launch->grid[1], launch->grid[2],
                         launch->block, limits.max_rows, weights[1].format,
                         second < 5 ? weights[2].format : 0, mode);
        }
        tape_destroy(t);
        for (uint32_t w = 0; w < 3; w++)
            give_memory(&cuda.device, &weights[w].buffer);
    }
}

// Blocks of narrow products leave room on an SM for another's; however long their rows are, a stage holds a
// pair.
static void products_of_one_row_fit_their_blocks(void **state)
{
    struct cuda cuda = fake_hopper();
    static const struct {
        uint32_t rows, cols, format;
        const char *kernel;
        uint32_t grid, block;
    } cases[] = { { 576, 1536, QUANT_Q4_0, "gemv_pipeline_q4_0", 132, 288 },
                  { 2048, 2048, QUANT_Q4_0, "gemv_pipeline_q4_0", 128, 288 },
                  { 2048, 2048, QUANT_Q8_0, "gemv_pipeline_alone_q8_0", 132, 544 },
                  { 2048, 5632, QUANT_Q4_0, "gemv_pipeline_q4_0", 132, 288 },
                  { 2560, 9728, QUANT_Q4_0, "gemv_pipeline_alone_q4_0", 132, 544 },
                  { 49152, 576, QUANT_Q4_0, "gemv_pipeline_alone_q4_0", 132, 544 },
                  { 64, 16384, QUANT_Q4_0, "gemv_pipeline_q4_0", 32, 288 },
                  { 64, 28672, QUANT_Q4_0, "gemv_pipeline_alone_q4_0", 32, 544 } };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct buffer input = { .bytes = 1 << 30, .native = (void *)4096 };
        struct tape *t = tape_create(&cuda.device, (struct tape_limits){ .max_rows = 1, .max_outputs = 1 });
        struct tensor in = tape_tensor_bound(t, cases[i].cols, ROWS_STEP, &input),
                      out = tape_tensor_bound(t, cases[i].rows, ROWS_STEP, &input);
        struct weight w;
        struct err err = { 0 };
        fake_weight(&cuda, &w, cases[i].rows, cases[i].cols);
        w.format = cases[i].format;
        op_matmul(t, (struct matmul){ .out = out, .in = in, .w = &w });
        assert_ok(tape_seal(t, &err), &err);
        const struct cuda_launch *launch = ((struct cuda_tape *)t->native)->plan.launches;
        assert_string_equal((const char *)launch->function, cases[i].kernel);
        assert_int_equal(launch->block, cases[i].block);
        assert_int_equal(launch->grid[0], cases[i].grid);
        assert_true(launch->shared > 0 &&
                    launch->shared <= cuda.limits.shared_bytes / (launch->block < 544 ? 2 : 1));
        tape_destroy(t);
        give_memory(&cuda.device, &w.buffer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packings_keep_the_numbers),
        cmocka_unit_test(seal_decides_trace_prints_and_diff_judges),
        cmocka_unit_test(cuda_hands_on_what_the_next_kernel_reads),
        cmocka_unit_test(an_encoders_layer_is_few_launches),
        cmocka_unit_test(a_connector_is_two_launches),
        cmocka_unit_test(products_of_normed_rows_are_launches_of_some_blocks),
        cmocka_unit_test(products_of_one_row_fit_their_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
