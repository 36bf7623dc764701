// test_cuda_experts.c - the CUDA kernels of route, experts_up, experts_down and moe against their plain
// loops: rules, ties, formats, modes, models.
#include "device/cuda_sides.h"
#include "ops/experts_sides.h"

static void routers_of_every_rule(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < N_ROUTERS; i++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
            struct op_shape c = { .format = QUANT_F32,
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_cols = i % 2 ? 322 : 2048,
                                  .bias = i % 3 == 2,
                                  .limit = 1e-10 };
            experts_shape = routers[i];
            compare("route", &c, record_route);
        }
    for (uint32_t i = 0; i < 2 * N_ROW_COUNTS; i++) { // as checkpoints have them
        struct op_shape c = { .format = i % 2 ? QUANT_F16 : QUANT_BF16,
                              .rows = row_counts[i / 2].rows,
                              .most_rows = row_counts[i / 2].most,
                              .n_cols = i % 3 ? 2048 : 322,
                              .invariant = i % 4 == 3,
                              .limit = 1e-10 };
        experts_shape = routers[i % 4];
        compare("route", &c, record_route);
    }
    for (uint32_t f = 0; f < N_FORMATS; f++) {
        struct op_shape c = {
            .format = formats[f], .rows = 11, .most_rows = 16, .n_cols = 512, .limit = 1e-10
        };
        experts_shape = routers[f % 4];
        compare("route", &c, record_route);
    }
}

// A router of zeros chooses 0, 1, ...; a row with a NaN too, and has no weights.
static void routers_with_ties_and_bad_rows(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < N_ROUTERS; i++)
        for (uint32_t bad = 0; bad < 2; bad++) {
            struct op_shape c = {
                .format = QUANT_F32, .rows = 3, .most_rows = 4, .n_cols = 64, .limit = 1e-12
            };
            struct sides s;
            struct err err = { 0 };
            float nan = NAN, *zeros = mem_alloc_array(3 * 64, sizeof *zeros);
            uint32_t n_ids = 3 * routers[i].n_slots;
            float ids[2][96];
            experts_shape = routers[i];
            experts_shape.select_bias = false;
            experts_shape.rule.rank = ROUTE_BEST;
            sides_open(&s, gpu, &c, record_route);
            memset(zeros, 0, 3 * 64 * sizeof *zeros);
            for (uint32_t k = 0; k < 2; k++) {
                struct side *side = k ? &s.fast : &s.plain;
                struct buffer *in = &side->buffers[0];
                assert_ok(bad ? buffer_write(in, 65 * sizeof nan, &nan, sizeof nan, &err)
                              : buffer_write(in, 0, zeros, (uint64_t)3 * 64 * sizeof *zeros, &err),
                          &err);
                assert_ok(tape_play(side->tape, &side->step, &err), &err);
                assert_ok(
                    buffer_read(&side->buffers[side->n_buffers - 2], 0, ids[k], n_ids * sizeof(float), &err),
                    &err);
            }
            assert_memory_equal(ids[0], ids[1], n_ids * sizeof(float));
            sides_compare(&s, bad ? "route, NaN" : "route, ties", &c);
            sides_close(&s);
            mem_free(zeros);
        }
}

static void compare_experts(struct op_shape *c, double up_limit, double down_limit)
{
    c->limit = up_limit;
    compare("experts_up", c, record_experts_up);
    c->limit = down_limit;
    compare("experts_down", c, record_experts_down);
}

static void experts_of_every_format(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
            struct op_shape c = { .format = formats[f],
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_cols = 512,
                                  .n_out = 75 };
            experts_shape = (struct experts_shape){ .n_experts = 7,
                                                    .n_slots = 3,
                                                    .shared = formats[(f + r) % N_FORMATS] };
            experts_shape.n_shared = r % 2 ? 256 : 0;
            experts_shape.limit = f % 3 == 0 ? 40 : 0;
            experts_shape.one_for_all = r % 4 == 3;
            c.bias = f % 2;
            compare_experts(&c, 5e-3, 5e-4);
        }
}

static void experts_in_every_mode(void **state)
{
    static const uint32_t widths[] = { 1, 7, 40, 104, 1056 };

    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++) {
        struct op_shape c = { .format = formats[f],
                              .rows = 3,
                              .most_rows = 40,
                              .n_cols = 512,
                              .n_out = 37,
                              .exact = true,
                              .bias = true };
        experts_shape = (struct experts_shape){
            .n_experts = 5, .n_slots = 2, .n_shared = 256, .shared = formats[(f + 3) % N_FORMATS]
        };
        compare_experts(&c, 1e-11, 1e-11);
        experts_shape.limit = 1.5f;
        compare_experts(&c, 1e-10, 1e-11);
        experts_shape.limit = 0;
        c.exact = false;
        c.invariant = true;
        compare_experts(&c, 5e-3, 5e-4);
        c.invariant = false;
        c.other = formats[(f + 1) % N_FORMATS]; // gate and up in unlike ones
        compare_experts(&c, 5e-3, 5e-4);
    }
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r += 2) {
            enum quant q = i % 3 == 0 ? QUANT_F32 : i % 3 == 1 ? QUANT_F16 : QUANT_BF16;
            struct op_shape c = { .format = q,
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_cols = widths[i],
                                  .n_out = 19 };
            experts_shape =
                (struct experts_shape){ .n_experts = 40, .n_slots = 5, .n_shared = i * 7, .shared = q };
            compare_experts(&c, 5e-4, 5e-5);
        }
}

static const struct {
    enum quant format;
    uint32_t n_cols, n_ffn;
    struct experts_shape shape;
    bool bias;
} expert_models[] = {
    { QUANT_Q4_0, 2048, 768, { .n_experts = 128, .n_slots = 8 }, false },             // Qwen3-30B-A3B
    { QUANT_Q4_K, 2048, 1024, { .n_experts = 64, .n_slots = 8 }, false },             // OLMoE-1B-7B
    { QUANT_MXFP4, 2880, 2880, { .n_experts = 32, .n_slots = 4, .limit = 7 }, true }, // gpt-oss-20b
    { QUANT_Q4_0,
      2048,
      1536,
      { .n_experts = 64, .n_slots = 4, .n_shared = 1536, .shared = QUANT_Q8_0 },
      false }, // GLM-4.7-Flash
};

static void experts_of_real_models(void **state)
{
    static const uint32_t rows[][2] = { { 1, 1 }, { 3, 16 }, { 6, 64 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof expert_models / sizeof *expert_models; i++)
        for (uint32_t r = 0; r < sizeof rows / sizeof *rows; r++) {
            struct op_shape c = { .format = expert_models[i].format,
                                  .rows = rows[r][0],
                                  .most_rows = rows[r][1],
                                  .n_cols = expert_models[i].n_cols,
                                  .n_out = expert_models[i].n_ffn,
                                  .bias = expert_models[i].bias,
                                  .limit = 5e-3 };
            experts_shape = expert_models[i].shape;
            compare("experts_up", &c, record_experts_up);
            c.n_cols = expert_models[i].n_ffn;
            c.n_out = expert_models[i].n_cols;
            c.limit = 5e-4;
            compare("experts_down", &c, record_experts_down);
        }
}

// The step's first `rows` rows; the result's first row.
static void play_rows(struct side *s, struct op_shape c, uint32_t rows, float *out)
{
    uint64_t bytes = step_bytes(c.most_rows, 8);
    struct step *step = mem_alloc(bytes);
    struct err err = { 0 };

    c.rows = rows;
    fill_step(&c, step, c.most_rows, 8);
    assert_ok(buffer_write(&s->step, 0, step, bytes, &err), &err);
    assert_ok(tape_play(s->tape, &s->step, &err), &err);
    assert_ok(buffer_read(&s->buffers[s->n_buffers - 1], 0, out, c.n_out * sizeof *out, &err), &err);
    mem_free(step);
}

static void a_row_has_the_same_bits_in_any_company(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 4 * N_FORMATS; i++) {
        struct op_shape c = { .format = formats[i / 4],
                              .rows = 13,
                              .most_rows = i % 2 ? 16 : 64,
                              .exact = i / 2 % 2,
                              .n_cols = 512,
                              .n_out = 75 };
        float many[256], alone[256];
        struct side s = { 0 };
        experts_shape = (struct experts_shape){
            .n_experts = 7, .n_slots = 3, .n_shared = 256, .shared = formats[i % N_FORMATS]
        };
        side_open(&s, gpu, &c, i % 3 ? record_experts_down : record_experts_up);
        play_rows(&s, c, 13, many);
        play_rows(&s, c, 1, alone);
        assert_memory_equal(many, alone, c.n_out * sizeof *alone);
        side_close(&s);
    }
}

// --- the whole block in one operation ---

enum { BY_PARTS, BY_ROW, BY_FEW, BY_MANY }; // kernels of the whole block

static int taken_by(const struct side *s)
{
    const struct cuda_plan *plan = &((const struct cuda_tape *)s->tape->native)->plan;

    for (uint32_t i = 0; i < plan->n_launches; i++)
        if (plan->launches[i].function == cuda_function(plan->cuda, "moe_sum"))
            return BY_MANY;
    if (plan->launches[0].function == cuda_function(plan->cuda, "moe_few_route"))
        return BY_FEW;
    return plan->n_launches == 1 ? BY_ROW : BY_PARTS;
}

// What was chosen stays in the workspace, of all kernels (src/engine/api/step_spread.h reads it there).
static void read_choice(const struct side *s, uint32_t n_ids, float *ids)
{
    struct command parts[MOE_N_PARTS];
    struct err err = { 0 };

    moe_parts(tape_command(s->tape, 0), parts);
    const struct operand *o = &parts[MOE_EXPERTS_UP].operands[EXPERTS_UP_IDS];
    assert_ok(buffer_read(o->buffer, o->offset, ids, n_ids * sizeof *ids, &err), &err);
}

static void compare_choices(const struct sides *s, const struct op_shape *c)
{
    float ids[2][4096];
    uint32_t n_ids = c->rows * experts_shape.n_slots;

    assert_true(n_ids <= 4096);
    read_choice(&s->plain, n_ids, ids[0]);
    read_choice(&s->fast, n_ids, ids[1]);
    assert_memory_equal(ids[0], ids[1], n_ids * sizeof(float));
}

static void compare_moe(const struct op_shape *c, int by)
{
    static float plain[4096], in[4096];
    struct sides s;
    struct err err = { 0 };
    double added = 0, before = 0;

    sides_open(&s, gpu, c, record_moe);
    side_scale_input(&s.plain, 1e-8f);
    side_scale_input(&s.fast, 1e-8f);
    for (int i = 0; i < 3; i++) // what one launch leaves behind the next one finds
        sides_compare(&s, "moe", c);
    compare_choices(&s, c);
    check_graph(&s.fast);
    assert_int_equal(taken_by(&s.fast), by);
    assert_ok(buffer_read(&s.plain.buffers[0], 0, in, c->n_cols * sizeof *in, &err), &err);
    assert_ok(buffer_read(&s.plain.buffers[s.plain.n_buffers - 1], 0, plain, c->n_cols * sizeof *plain, &err),
              &err);
    for (uint32_t i = 0; i < c->n_cols; i++) {
        before += (double)in[i] * in[i];
        added += ((double)plain[i] - in[i]) * ((double)plain[i] - in[i]);
    }
    assert_true(added > 10 * before);
    sides_close(&s);
}

static void blocks_of_every_format(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++)
        for (uint32_t i = 0; i < N_ROUTERS; i++) {
            struct op_shape c = { .format = formats[f],
                                  .rows = 1,
                                  .most_rows = 1,
                                  .n_cols = i % 2 ? 1024 : 512,
                                  .n_out = 256,
                                  .limit = 1e-3 };
            bool quantised = formats[f] > QUANT_BF16, grouped = routers[i].rule.n_groups > 1;
            experts_shape = routers[i];
            experts_shape.n_experts = routers[i].n_experts > 64 && !grouped ? 64 : routers[i].n_experts;
            experts_shape.limit = i / 3 % 2 ? 0 : 0.5f;
            experts_shape.n_shared = i / 2 % 3 * 256;
            experts_shape.shared = formats[i % 5 == 0 ? (f + 1) % N_FORMATS : f];
            bool alike = experts_shape.n_shared == 0 || experts_shape.shared == formats[f];
            c.bias = i % 4 == 1;
            experts_shape.biases = (f + i) % 2;
            experts_shape.own_norm = i % 4 >= 2;
            experts_shape.alone = (f + i) % 5 == 3;
            experts_shape.activation = f % 2 ? ACTIVATION_GELU_TANH : ACTIVATION_SILU;
            if (experts_shape.n_experts > 160 || (f + i) % 3)
                continue; // the plain loop's time: every format with a third of the routers
            bool taken = quantised && alike && !grouped &&
                         (experts_shape.rule.scores == ROUTE_SIGMOID || !experts_shape.select_bias);
            compare_moe(&c, taken ? BY_ROW : BY_PARTS);
        }
}

static void blocks_of_many_rows(void **state)
{
    static const enum quant taken[] = { QUANT_Q4_0, QUANT_Q8_0, QUANT_Q4_K,
                                        QUANT_Q5_K, QUANT_Q6_K, QUANT_MXFP4 };

    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
            struct op_shape c = { .format = formats[f],
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_cols = 256,
                                  .n_out = f % 2 ? 256 : 512,
                                  .bias = r % 2,
                                  .limit = 1e-3 };
            int by = BY_PARTS;
            for (uint32_t i = 0; i < sizeof taken / sizeof *taken; i++)
                by = taken[i] == formats[f] && c.most_rows >= 64 ? BY_MANY : by;
            experts_shape = routers[(f + r) % 4];
            // more rows of an expert than a tile takes, and few
            experts_shape.n_experts = f % 3 == 0 ? 5 : 40;
            experts_shape.n_slots = 3;
            experts_shape.n_shared = r % 4 == 3 ? 256 : 0;
            experts_shape.shared = formats[(f + r) % N_FORMATS];
            experts_shape.limit = f % 2 && experts_shape.n_shared == 0 ? 40 : 0;
            bool alike = experts_shape.n_shared == 0 || experts_shape.shared == formats[f];
            if (c.most_rows <= 16 && alike && formats[f] > QUANT_BF16)
                by = BY_FEW;
            if (c.most_rows > 1)
                compare_moe(&c, by);
        }
}

// Columns that are a multiple of 64, and rows of experts of all widths of tiles.
static void blocks_of_many_rows_and_odd_widths(void **state)
{
    static const uint32_t widths[][2] = { { 320, 192 }, { 256, 704 }, { 448, 256 } };

    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < 3; f++)
        for (uint32_t i = 0; i < 6; i++) {
            struct op_shape c = { .format = f == 0   ? QUANT_MXFP4
                                            : f == 1 ? QUANT_Q4_0
                                                     : QUANT_Q8_0,
                                  .rows = 100 + 67 * i,
                                  .most_rows = 512,
                                  .n_cols = widths[(f + i) % 3][0],
                                  .n_out = widths[(f + i) % 3][1],
                                  .bias = i % 2,
                                  .limit = 1e-3 };
            experts_shape = routers[i % 4];
            experts_shape.n_experts = i % 2 ? 3 : 9;
            experts_shape.n_slots = 2;
            experts_shape.biases = f == 0;
            experts_shape.limit = f == 0 ? 7 : 0;
            compare_moe(&c, BY_MANY);
        }
}

// Whose experts have few bytes enough, or whose weights take turns in a block's memory.
static void blocks_of_real_models(void **state)
{
    static const struct {
        uint32_t model; // Qwen3-30B-A3B, OLMoE-1B-7B, GLM-4.7-Flash, gpt-oss-20b
        struct route_rule rule;
        bool select_bias, biases;
    } blocks[] = { { 0, { ROUTE_SOFTMAX, 1, 1, ROUTE_BEST, 1, 0, 1 }, false, false },
                   { 1, { ROUTE_SOFTMAX, 1, 1, ROUTE_BEST, 0, 0, 1 }, false, false },
                   { 3, { ROUTE_SIGMOID, 1, 1, ROUTE_TWO_BEST, 1, 1e-20f, 1.8f }, true, false },
                   { 2, { ROUTE_CHOSEN, 1, 1, ROUTE_BEST, 0, 0, 1 }, false, true } };

    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        enum quant format = blocks[i].biases ? QUANT_MXFP4 : QUANT_Q4_0;
        struct op_shape c = { .format = format,
                              .rows = 1,
                              .most_rows = 1,
                              .n_cols = expert_models[blocks[i].model].n_cols,
                              .n_out = expert_models[blocks[i].model].n_ffn,
                              .bias = blocks[i].biases,
                              .limit = 1e-3 };
        experts_shape = expert_models[blocks[i].model].shape;
        experts_shape.shared = format;
        experts_shape.rule = blocks[i].rule;
        experts_shape.select_bias = blocks[i].select_bias;
        experts_shape.biases = blocks[i].biases;
        compare_moe(&c, BY_ROW);
        c.rows = c.most_rows = 8;
        compare_moe(&c, BY_FEW);
        c.rows = c.most_rows = 1;
        c.format = experts_shape.shared = QUANT_Q8_0;
        compare_moe(&c, c.n_cols > 2048 ? BY_PARTS : BY_ROW); // two rounds of 2,880 columns have no room
        c.format = experts_shape.shared = format;
        c.exact = true;
        c.limit = 1e-10;
        compare_moe(&c, BY_PARTS);
    }
}

// clang-format off
#define SOFTMAX_RULE { ROUTE_SOFTMAX, 1, 1, ROUTE_BEST, 1, 0, 1 }
#define GEMMA4(experts) { .n_experts = experts, .n_slots = 8, .rule = SOFTMAX_RULE, .expert_scale = true, \
        .own_norm = true, .alone = true, .gain = 0.0188f, .activation = ACTIVATION_GELU_TANH }
// Forms that once left the kernel for one row.
static const struct {
    enum quant format, down; // down 0: the same
    uint32_t n_cols, n_ffn;
    struct experts_shape shape;
    int by, few; // one row, and up to 8
} forms[] = {
    // Qwen3.5-35B-A3B, but for the number of experts; and with it
    { QUANT_Q4_0, 0, 2048, 512, { .n_experts = 48, .n_slots = 8, .n_shared = 512, .shared = QUANT_Q4_0,
        .shared_gate = true, .rule = SOFTMAX_RULE }, BY_ROW, BY_FEW },
    { QUANT_Q4_K, 0, 512, 512, { .n_experts = 256, .n_slots = 8, .n_shared = 512, .shared = QUANT_Q4_K,
        .shared_gate = true, .rule = SOFTMAX_RULE }, BY_ROW, BY_FEW },
    { QUANT_Q4_0, 0, 2816, 704, GEMMA4(128), BY_ROW, BY_FEW },
    { QUANT_Q8_0, 0, 2816, 704, GEMMA4(16), BY_ROW, BY_PARTS },
    // Qwen3-30B-A3B in Q4_K_M, GLM-4.7-Flash in Q5_K_M
    { QUANT_Q4_K, QUANT_Q6_K, 2048, 768, { .n_experts = 24, .n_slots = 8, .rule = SOFTMAX_RULE }, BY_ROW, BY_FEW },
    { QUANT_Q5_K, QUANT_Q6_K, 2048, 1536, { .n_experts = 12, .n_slots = 4, .n_shared = 1536,
        .shared = QUANT_Q5_K, .select_bias = true, .rule = { ROUTE_SIGMOID, 1, 1, ROUTE_TWO_BEST, 1, 1e-20f,
        1.8f } }, BY_ROW, BY_FEW },
    { QUANT_Q4_0, QUANT_Q6_K, 512, 256, { .n_experts = 9, .n_slots = 3, .rule = SOFTMAX_RULE }, BY_PARTS,
        BY_FEW },
    // a round twice is more than a block's memory
    { QUANT_Q8_0, 0, 4096, 512, { .n_experts = 8, .n_slots = 8, .rule = SOFTMAX_RULE }, BY_PARTS,
        BY_PARTS },
};
// clang-format on

// Experts that one row chose, that all rows chose, and a shared one, in every format.
static void blocks_of_few_rows(void **state)
{
    static const uint32_t rows[][2] = { { 1, 2 }, { 5, 7 }, { 13, 16 }, { 16, 16 } },
                          n_experts[] = { 4, 40, 250 };

    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++)
        for (uint32_t r = 0; r < 4; r++) {
            struct op_shape c = { .format = formats[f],
                                  .other = f % 4 == 3 ? formats[(f + r) % N_FORMATS] : 0,
                                  .rows = rows[r][0],
                                  .most_rows = rows[r][1],
                                  .n_cols = r % 2 ? 512 : 1280,
                                  .n_out = f % 2 ? 256 : 512,
                                  .bias = r % 2,
                                  .limit = 1e-3 };
            enum quant down = c.other ? c.other : c.format;
            experts_shape = routers[(f + r) % 4];
            experts_shape.n_experts = n_experts[(f + r) % 3];
            experts_shape.n_slots = 3 + f % 2;
            experts_shape.n_shared = (f + r) % 2 * 768;
            experts_shape.shared = c.format;
            experts_shape.limit = f % 3 == 1 && experts_shape.n_shared == 0 ? 40 : 0;
            experts_shape.biases = (f + r) % 4 == 2;
            experts_shape.own_norm = experts_shape.alone = r == 1;
            experts_shape.expert_scale = r == 2;
            experts_shape.activation = f % 2 ? ACTIVATION_GELU_TANH : ACTIVATION_SILU;
            compare_moe(&c, c.format > QUANT_BF16 && down > QUANT_BF16 ? BY_FEW : BY_PARTS);
        }
}

// Of few rows.
static void a_blocks_row_has_the_same_bits_in_any_company(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < N_FORMATS; i++) {
        struct op_shape c = {
            .format = formats[i], .rows = 13, .most_rows = 16, .n_cols = 512, .n_out = 256
        };
        float many[512], alone[512];
        struct side s = { 0 };
        experts_shape = routers[i % 4];
        experts_shape.n_experts = i % 2 ? 5 : 30;
        experts_shape.n_slots = 3;
        experts_shape.n_shared = 256;
        experts_shape.shared = formats[i];
        side_open(&s, gpu, &c, record_moe);
        c.n_out = c.n_cols;
        play_rows(&s, c, 13, many);
        play_rows(&s, c, 1, alone);
        assert_memory_equal(many, alone, c.n_cols * sizeof *alone);
        side_close(&s);
    }
}

static void blocks_with_gates_norms_and_two_formats(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct op_shape c = { .format = forms[i].format,
                              .other = forms[i].down,
                              .rows = 1,
                              .most_rows = 1,
                              .n_cols = forms[i].n_cols,
                              .n_out = forms[i].n_ffn,
                              .limit = 1e-3 };
        experts_shape = forms[i].shape;
        compare_moe(&c, forms[i].by);
        c.rows = 5;
        c.most_rows = 8;
        compare_moe(&c, forms[i].few);
    }
}

static void blocks_of_a_bad_row_are_no_numbers(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t i = 0; i < 2; i++) {
        struct op_shape c = {
            .format = QUANT_Q4_0, .rows = 1, .most_rows = 1, .n_cols = 512, .n_out = 256, .limit = 1e-3
        };
        float numbers[512], bad = i ? INFINITY : NAN;
        struct side s = { 0 };
        struct err err = { 0 };
        experts_shape = (struct experts_shape){ .n_experts = 40, .n_slots = 3, .rule = routers[i * 3].rule };
        side_open(&s, gpu, &c, record_moe);
        for (uint32_t k = 0; k < 2; k++) { // and the row after it is whole again
            assert_ok(
                buffer_write(&s.buffers[0], 65 * sizeof bad, k ? &(float){ 1 } : &bad, sizeof bad, &err),
                &err);
            assert_ok(tape_play(s.tape, &s.step, &err), &err);
            assert_ok(buffer_read(&s.buffers[s.n_buffers - 1], 0, numbers, sizeof numbers, &err), &err);
            for (uint32_t j = 0; j < 512; j++)
                assert_int_equal(isfinite(numbers[j]), k == 1);
        }
        side_close(&s);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(routers_of_every_rule),
        cmocka_unit_test(routers_with_ties_and_bad_rows),
        cmocka_unit_test(experts_of_every_format),
        cmocka_unit_test(experts_in_every_mode),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_company),
        cmocka_unit_test(experts_of_real_models),
        cmocka_unit_test(blocks_of_every_format),
        cmocka_unit_test(blocks_of_many_rows),
        cmocka_unit_test(blocks_of_many_rows_and_odd_widths),
        cmocka_unit_test(blocks_of_few_rows),
        cmocka_unit_test(a_blocks_row_has_the_same_bits_in_any_company),
        cmocka_unit_test(blocks_of_real_models),
        cmocka_unit_test(blocks_with_gates_norms_and_two_formats),
        cmocka_unit_test(blocks_of_a_bad_row_are_no_numbers),
    };
    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
