// test_quantize.c - encoders lose no more than stated, mixes choose the formats they should, and a failure
// leaves no file.
#include "testing.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "model_tools/quantize/quantize.h"
#include "model_tools/quantize/quantize_encode.h"
#include "model_tools/random/random_model.h"
#include "format/model_file.h"
#include "gguf_builder.h"

static uint64_t random_state = 1;

static double uniform(void) // in (0, 1)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(random_state >> 40) + 0.5) / 16777216.0;
}

static float normal(void)
{
    return (float)(sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()));
}

enum { N = 1 << 16 };
static float x[N], y[N], importance[N];
static unsigned char blocks[N * 4];
static const struct quantize_source one_block = { x, NULL, 256 };

// Relative to the numbers' own size; both weighted by `weights` where there are any.
static double relative_rms(enum quant q, const float *given, const float *weights)
{
    double error = 0, size = 0;
    size_t bad;
    assert_true(quantize_encode(q, &(struct quantize_source){ x, given, N }, blocks, &bad));
    quant_info(q)->decode(blocks, y, N);
    for (size_t i = 0; i < N; i++) {
        double w = weights ? (double)weights[i] : 1;
        error += w * ((double)y[i] - x[i]) * ((double)y[i] - x[i]);
        size += w * (double)x[i] * x[i];
    }
    return sqrt(error / size);
}

static const struct error_bound {
    enum quant q;
    // relative RMS error on normal numbers, and on ones with heavy tails; measured plus 2 %
    double normal, heavy;
} bounds[] = {
    { QUANT_F32, 0, 0 },
    { QUANT_F16, 0.00025, 0.00025 },
    { QUANT_BF16, 0.0018, 0.0018 },
    { QUANT_Q8_0, 0.0055, 0.0091 },
    { QUANT_Q4_0, 0.0835, 0.133 },
    { QUANT_Q4_1, 0.0719, 0.0985 },
    { QUANT_Q5_0, 0.0414, 0.0695 },
    { QUANT_Q5_1, 0.0347, 0.0479 },
    { QUANT_Q4_K, 0.0722, 0.0998 },
    { QUANT_Q5_K, 0.0356, 0.0494 },
    { QUANT_Q6_K, 0.0178, 0.0272 },
    { QUANT_IQ4_NL, 0.0754, 0.1031 },
    { QUANT_IQ4_XS, 0.0760, 0.1044 },
    { QUANT_MXFP4, 0.1142, 0.1459 },
    { QUANT_Q3_K, 0.1484, 0.1907 },
    { QUANT_Q2_K, 0.2736, 0.3060 },
};

static void errors_stay_in_their_bounds(void **state)
{
    (void)state;
    for (int heavy = 0; heavy < 2; heavy++) {
        random_state = 1;
        for (size_t i = 0; i < N; i++)
            x[i] = 0.02f * normal() * (heavy ? expf(0.8f * normal()) : 1);
        for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
            double rms = relative_rms(bounds[i].q, NULL, NULL),
                   bound = heavy ? bounds[i].heavy : bounds[i].normal;
            if (rms > bound || rms < 0.8 * bound)
                fail_msg("%s: relative RMS error %.5f, expected at most %.5f and not much less",
                         quant_info(bounds[i].q)->name, rms, bound);
        }
    }
}

// Columns that matter lose less, by the stated factor at least; what the importance is does not matter, only
// how it differs.
static void importance_moves_the_error(void **state)
{
    static const struct {
        enum quant q;
        double factor; // measured plus 2 %
    } cases[] = {
        { QUANT_Q8_0, 1 },       { QUANT_Q4_0, 0.892 }, { QUANT_Q4_1, 0.816 },   { QUANT_Q5_0, 0.895 },
        { QUANT_Q5_1, 0.814 },   { QUANT_Q4_K, 0.823 }, { QUANT_Q5_K, 0.829 },   { QUANT_Q6_K, 0.861 },
        { QUANT_Q3_K, 0.853 },   { QUANT_Q2_K, 0.757 }, { QUANT_IQ4_NL, 0.833 }, { QUANT_IQ4_XS, 0.831 },
        { QUANT_MXFP4, 0.9999 },
    };
    (void)state;
    random_state = 2;
    for (size_t i = 0; i < N; i++)
        x[i] = 0.02f * normal();
    for (size_t i = 0; i < N; i++)
        importance[i] = expf(1.5f * normal());
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double without = relative_rms(cases[i].q, NULL, importance),
               with = relative_rms(cases[i].q, importance, importance);
        if (with > cases[i].factor * without)
            fail_msg("%s: weighted error %.5f with importance, %.5f without; expected a factor of %.3f",
                     quant_info(cases[i].q)->name, with, without, cases[i].factor);
    }
}

static void encode_256(enum quant q, float (*value)(int))
{
    size_t bad;
    for (int i = 0; i < 256; i++)
        x[i] = value(i);
    assert_true(quantize_encode(q, &one_block, blocks, &bad));
    quant_info(q)->decode(blocks, y, 256);
}

static float zero(int i)
{
    (void)i;
    return 0;
}
static float three(int i)
{
    (void)i;
    return 3;
}
static float minus_three(int i)
{
    (void)i;
    return -3;
}
static float tiny(int i)
{
    return (float)(i % 7) * 1e-39f;
}
static float spike(int i)
{
    return i == 77 ? -5 : 0;
}
static float ramp(int i)
{
    return (float)(i % 16) * 0.25f;
}
static float large(int i)
{
    return (i % 2 ? 1 : -1) * 60000.0f;
}

static void odd_blocks_are_encoded_well(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof bounds / sizeof bounds[0]; k++) {
        enum quant q = bounds[k].q;
        encode_256(q, zero);
        for (int i = 0; i < 256; i++)
            assert_true(y[i] == 0);
        encode_256(q, three);
        for (int i = 0; i < 256; i++)
            assert_true(fabsf(y[i] - 3) < 0.02f);
        encode_256(q, minus_three);
        for (int i = 0; i < 256; i++)
            assert_true(fabsf(y[i] + 3) < 0.02f);
        encode_256(q, tiny);
        for (int i = 0; i < 256; i++)
            assert_true(fabsf(y[i]) < 1e-7f);
        float coarse = q == QUANT_MXFP4 ? 20.5f : q == QUANT_Q3_K ? 2.5f : 1; // steps of 4 to 6; of -4 to 3
        encode_256(q, spike);
        for (int i = 0; i < 256; i++)
            assert_true(fabsf(y[i] - x[i]) < 0.05f * coarse);
        encode_256(q, large);
        for (int i = 0; i < 256; i++)
            assert_true(fabsf(y[i] - x[i]) < 4100 * coarse);
    }
    encode_256(QUANT_Q4_K, ramp); // sixteen even steps: exact but for the rounding of the scale
    for (int i = 0; i < 256; i++)
        assert_true(fabsf(y[i] - x[i]) < 0.002f);
}

static void what_cannot_be_stored_is_named(void **state)
{
    (void)state;
    size_t bad;
    for (size_t k = 0; k < sizeof bounds / sizeof bounds[0]; k++) {
        for (int i = 0; i < 256; i++)
            x[i] = 1;
        x[200] = NAN;
        assert_true(!quantize_encode(bounds[k].q, &one_block, blocks, &bad) && bad == 200);
        x[100] = -INFINITY;
        assert_true(!quantize_encode(bounds[k].q, &one_block, blocks, &bad) && bad == 100);
    }
    x[100] = 65520;
    assert_true(!quantize_encode(QUANT_F16, &one_block, blocks, &bad) && bad == 100);
    assert_false(quantize_can_encode(QUANT_I32));
    assert_true(quantize_can_encode(QUANT_Q5_1));
}

// --- whole files ---

static char folder[64];

static const char *path_of(const char *name)
{
    static char paths[64][128];
    static int next;
    char *path = paths[next++ % 64];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void add_matrix(struct gguf_builder *g, const char *name, uint64_t n_cols, uint64_t n_rows)
{
    uint64_t dims[2] = { n_cols, n_rows };
    float *values = mem_alloc_array((size_t)(n_cols * n_rows), sizeof *values);
    for (uint64_t i = 0; i < n_cols * n_rows; i++)
        values[i] = 0.05f * normal();
    gguf_tensor(g, name, 0, n_rows == 1 ? 1 : 2, dims, values, (size_t)(n_cols * n_rows) * sizeof *values);
    mem_free(values);
}

enum { N_LAYERS = 16 };

static void save_model(const char *name, uint64_t n_cols, bool tied)
{
    static const char *const parts[] = { "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up" };
    struct gguf_builder g = { 0 };
    char tensor[64];
    random_state = 7;
    gguf_meta_str(&g, "general.architecture", "llama");
    gguf_meta_u32(&g, "general.file_type", 99);
    gguf_meta(&g, "split.count", 2, "\1\0", 2);
    gguf_meta_u32(&g, "llama.block_count", N_LAYERS);
    add_matrix(&g, "token_embd.weight", n_cols, 24);
    add_matrix(&g, "output_norm.weight", n_cols, 1);
    if (!tied)
        add_matrix(&g, "output.weight", n_cols, 24);
    for (int l = 0; l < N_LAYERS; l++) {
        snprintf(tensor, sizeof tensor, "blk.%d.attn_norm.weight", l);
        add_matrix(&g, tensor, n_cols, 1);
        for (size_t p = 0; p < 6; p++) {
            snprintf(tensor, sizeof tensor, "blk.%d.%s.weight", l, parts[p]);
            add_matrix(&g, tensor, n_cols, 4);
        }
        snprintf(tensor, sizeof tensor, "blk.%d.ffn_down.weight", l);
        add_matrix(&g, tensor, 256, 3);
        snprintf(tensor, sizeof tensor, "blk.%d.ffn_gate_inp.weight", l);
        add_matrix(&g, tensor, n_cols, 2);
    }
    gguf_image(&g);
    FILE *f = fopen(path_of(name), "wb");
    assert_int_equal(fwrite(g.image, 1, g.n, f), g.n);
    fclose(f);
    gguf_builder_free(&g);
}

static int make_models(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/ingot-quantize-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    save_model("in.gguf", 256, false);
    save_model("tied.gguf", 256, true);
    save_model("odd.gguf", 96, false);
    save_model("odder.gguf", 100, false);
    return 0;
}

static int remove_models(void **state)
{
    (void)state;
    static const char *const names[] = { "in.gguf",  "tied.gguf", "odd.gguf",  "odder.gguf",
                                         "nan.gguf", "out.gguf",  "out2.gguf", "kt.gguf" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i]));
    return rmdir(folder); // fails when something half-written stayed
}

static struct model_file *quantized_path(const char *input, const char *type, const char *output)
{
    struct err err = { 0 };
    struct model_file *f;
    struct quantize_options o = { .input = input, .output = path_of(output), .type = type, .n_threads = 2 };
    assert_ok(quantize_file(&o, NULL, &err), &err);
    assert_ok(model_file_open(&f, o.output, &err), &err);
    return f;
}

static struct model_file *quantized(const char *input, const char *type, const char *output)
{
    return quantized_path(path_of(input), type, output);
}

static const char *format_of(const struct model_file *f, const char *name)
{
    const struct file_tensor *t = model_file_tensor(f, name);
    assert_non_null(t);
    return quant_info(t->format)->name;
}

static void check_formats(const struct model_file *f, const char *const *pairs)
{
    for (; *pairs; pairs += 2)
        if (strcmp(format_of(f, pairs[0]), pairs[1]) != 0)
            fail_msg("%s is %s, expected %s", pairs[0], format_of(f, pairs[0]), pairs[1]);
}

// Layers 0, 1, 4, 7, 10, 13, 14, 15 of 16 are the sensitive ones.
static const struct {
    const char *type;
    uint32_t file_type;
    const char *pairs[24];
} mix_cases[] = {
    { "f16",
      1,
      { "token_embd.weight", "F16", "blk.3.ffn_down.weight", "F16", "blk.0.attn_norm.weight", "F32", NULL } },
    { "F32", 0, { "output.weight", "F32", NULL } },
    { "BF16", 32, { "output.weight", "BF16", "blk.0.ffn_gate_inp.weight", "F32", NULL } },
    { "Q8_0",
      7,
      { "output.weight", "Q8_0", "token_embd.weight", "Q8_0", "output_norm.weight", "F32", NULL } },
    { "Q4_0",
      2,
      { "output.weight", "Q6_K", "token_embd.weight", "Q4_0", "blk.0.attn_v.weight", "Q4_0", NULL } },
    { "q4_k_m",
      15,
      { "output.weight", "Q6_K", "token_embd.weight", "Q4_K", "blk.0.attn_v.weight", "Q6_K",
        "blk.2.attn_v.weight", "Q4_K", "blk.4.ffn_down.weight", "Q6_K", "blk.5.ffn_down.weight", "Q4_K",
        "blk.13.ffn_down.weight", "Q6_K", "blk.0.attn_q.weight", "Q4_K", "blk.15.attn_v.weight", "Q6_K",
        NULL } },
    { "Q4_K", 15, { "blk.1.ffn_down.weight", "Q6_K", "blk.3.ffn_down.weight", "Q4_K", NULL } },
    { "Q4_K_S",
      14,
      { "output.weight", "Q6_K", "blk.3.attn_v.weight", "Q5_K", "blk.4.attn_v.weight", "Q4_K",
        "blk.1.ffn_down.weight", "Q5_K", "blk.2.ffn_down.weight", "Q4_K", NULL } },
    { "Q5_K_S", 16, { "blk.0.attn_v.weight", "Q5_K", "output.weight", "Q6_K", NULL } },
    { "Q5_K_M",
      17,
      { "blk.0.attn_v.weight", "Q6_K", "blk.2.attn_v.weight", "Q5_K", "token_embd.weight", "Q5_K", NULL } },
    { "Q5_K", 17, { "blk.0.attn_v.weight", "Q6_K", NULL } },
    { "Q5_1", 9, { "output.weight", "Q6_K", "blk.0.attn_v.weight", "Q5_1", NULL } },
    { "Q5_0", 8, { "blk.15.ffn_down.weight", "Q5_0", NULL } },
    { "Q4_1", 3, { "token_embd.weight", "Q4_1", NULL } },
    { "IQ4_NL",
      25,
      { "output.weight", "Q6_K", "blk.3.attn_v.weight", "Q5_K", "blk.0.ffn_down.weight", "IQ4_NL", NULL } },
    { "iq4_xs", 30, { "blk.3.attn_v.weight", "Q5_K", "blk.0.attn_q.weight", "IQ4_XS", NULL } },
    { "MXFP4", 38, { "output.weight", "Q6_K", "blk.0.attn_q.weight", "MXFP4", NULL } },
    { "MXFP4_MOE", 38, { "output.weight", "Q8_0", "blk.0.attn_q.weight", "Q8_0", NULL } },
    { "Q3_K_L",
      13,
      { "blk.9.attn_v.weight", "Q5_K", "blk.9.ffn_down.weight", "Q5_K", "blk.9.attn_output.weight", "Q5_K",
        "blk.9.ffn_up.weight", "Q3_K", NULL } },
    { "Q3_K_M",
      12,
      { "blk.9.attn_v.weight", "Q5_K", "blk.9.ffn_down.weight", "Q4_K", "blk.9.attn_output.weight", "Q4_K",
        NULL } },
    { "Q3_K_S", 11, { "blk.9.attn_v.weight", "Q3_K", "output.weight", "Q6_K", NULL } },
    { "Q3_K", 12, { "blk.9.ffn_down.weight", "Q4_K", NULL } },
    { "Q2_K",
      10,
      { "blk.9.attn_v.weight", "Q4_K", "blk.9.ffn_down.weight", "Q3_K", "blk.9.attn_output.weight", "Q3_K",
        "blk.9.attn_q.weight", "Q2_K", NULL } },
    { "Q6_K", 18, { "blk.5.attn_v.weight", "Q6_K", "blk.5.attn_norm.weight", "F32", NULL } },
};

static void mixes_choose_their_formats(void **state)
{
    (void)state;
    size_t n_types = 0;
    while (quantize_type(n_types))
        n_types++;
    assert_int_equal(n_types, sizeof mix_cases / sizeof mix_cases[0]);
    for (size_t i = 0; i < n_types; i++) {
        struct model_file *f = quantized("in.gguf", mix_cases[i].type, "out.gguf");
        check_formats(f, mix_cases[i].pairs);
        assert_true(model_file_meta(f, "general.file_type")->u == mix_cases[i].file_type);
        assert_true(model_file_meta(f, "llama.block_count")->u == N_LAYERS &&
                    !model_file_meta(f, "split.count"));
        model_file_close(f);
    }
}

static void a_tied_embedding_is_the_head(void **state)
{
    (void)state;
    struct model_file *f = quantized("tied.gguf", "Q4_K_M", "out.gguf");
    check_formats(f, (const char *[]){ "token_embd.weight", "Q6_K", "blk.2.attn_q.weight", "Q4_K", NULL });
    model_file_close(f);
}

static void rows_that_do_not_fit_fall_back(void **state)
{
    (void)state;
    struct model_file *f = quantized("odd.gguf", "Q4_K_M", "out.gguf");
    check_formats(f,
                  (const char *[]){ "output.weight", "Q8_0", "token_embd.weight", "Q5_0",
                                    "blk.0.attn_v.weight", "Q8_0", "blk.2.ffn_down.weight", "Q4_K", NULL });
    model_file_close(f);
    f = quantized("odd.gguf", "Q5_K_S", "out.gguf");
    check_formats(f, (const char *[]){ "token_embd.weight", "Q5_1", "blk.2.ffn_down.weight", "Q5_K", NULL });
    model_file_close(f);
    f = quantized("odd.gguf", "Q2_K", "out.gguf");
    check_formats(f, (const char *[]){ "token_embd.weight", "IQ4_NL", "blk.0.attn_v.weight", "Q5_0",
                                       "blk.2.ffn_down.weight", "Q3_K", NULL });
    model_file_close(f);
    f = quantized("odder.gguf", "Q4_0", "out.gguf");
    check_formats(f, (const char *[]){ "output.weight", "F16", "token_embd.weight", "F16",
                                       "blk.2.ffn_down.weight", "Q4_0", NULL });
    model_file_close(f);
}

// llama.cpp adds an encoder's and a tower's positions as they are, which it can in F32 alone, and its
// convolution reads F16 and F32. Rows are too short for blocks here.
static void what_is_added_to_rows_stays_whole(void **state)
{
    static const char *const types[] = { "F16", "BF16", "Q8_0" };
    static const char *const products[] = { "F16", "BF16", "F16" };
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct model_file *f =
            quantized_path(SOURCE_DIR "/tests/golden/smolvlm/mmproj.gguf", types[i], "out.gguf");
        check_formats(f, (const char *[]){ "v.position_embd.weight", "F32", "v.patch_embd.weight", "F32",
                                           "v.blk.0.ln1.weight", "F32", "v.blk.0.attn_q.bias", "F32",
                                           "mm.model.fc.weight", products[i], NULL });
        model_file_close(f);
        f = quantized_path(SOURCE_DIR "/tests/golden/embed-bert/model.gguf", types[i], "out.gguf");
        check_formats(f, (const char *[]){ "position_embd.weight", "F32", "token_types.weight", "F32",
                                           "token_embd_norm.weight", "F32", NULL });
        model_file_close(f);
    }
}

static void gates_of_a_state_keep_eight_bits(void **state)
{
    struct random_model_options shape = { .shape = "toy-qwen35",
                                          .type = "F16",
                                          .output = path_of("out2.gguf") };
    struct err err = { 0 };

    (void)state;
    assert_ok(random_model_file(&shape, &err), &err);
    struct model_file *f = quantized("out2.gguf", "Q4_0", "out.gguf");
    check_formats(f,
                  (const char *[]){ "blk.0.ssm_alpha.weight", "Q8_0", "blk.0.ssm_beta.weight", "Q8_0",
                                    "blk.0.ssm_conv1d.weight", "F32", "blk.0.ssm_out.weight", "Q4_0", NULL });
    model_file_close(f);
}

static void what_stays_whole_can_be_named(void **state)
{
    struct quantize_options o = { .input = SOURCE_DIR "/tests/golden/smolvlm/mmproj.gguf",
                                  .output = path_of("out.gguf"),
                                  .type = "Q8_0",
                                  .overrides = &(struct quantize_override){ "(position|patch)_embd", "F16" },
                                  .n_overrides = 1 };
    struct err err = { 0 };
    struct model_file *f;
    (void)state;

    assert_ok(quantize_file(&o, NULL, &err), &err);
    assert_ok(model_file_open(&f, o.output, &err), &err);
    check_formats(f, (const char *[]){ "v.position_embd.weight", "F16", "v.patch_embd.weight", "F16", NULL });
    model_file_close(f);
}

static void tensors_keep_their_values(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct model_file *in, *out = quantized("in.gguf", "Q8_0", "out.gguf");
    assert_ok(model_file_open(&in, path_of("in.gguf"), &err), &err);
    assert_int_equal(model_file_n_tensors(in), model_file_n_tensors(out));
    for (size_t i = 0; i < model_file_n_tensors(in); i++) {
        const struct file_tensor *a = model_file_tensor_at(in, i), *b = model_file_tensor_at(out, i);
        size_t n = (size_t)(a->bytes / 4);
        assert_true(str_eq(a->name, b->name) && a->n_dims == b->n_dims &&
                    memcmp(a->dims, b->dims, sizeof a->dims) == 0);
        quant_info(b->format)->decode(b->data, y, n);
        memcpy(x, a->data, a->bytes);
        for (size_t j = 0; j < n; j++)
            assert_true(fabsf(x[j] - y[j]) <= (b->format == QUANT_F32 ? 0 : 0.0015f));
    }
    model_file_close(in);
    model_file_close(out);
}

static void the_number_of_threads_changes_nothing(void **state)
{
    (void)state;
    struct buf one = { 0 };
    struct err err = { 0 };
    for (unsigned n = 1; n <= 7; n += n == 1 ? 1 : 5) {
        struct buf other = { 0 };
        struct quantize_options o = {
            .input = path_of("in.gguf"), .output = path_of("out.gguf"), .type = "Q4_K_M", .n_threads = n
        };
        assert_ok(quantize_file(&o, NULL, &err), &err);
        assert_ok(file_read(n == 1 ? &one : &other, path_of("out.gguf"), 1 << 24, &err), &err);
        assert_true(n == 1 || str_eq(buf_as_str(&one), buf_as_str(&other)));
        buf_free(&other);
    }
    buf_free(&one);
}

// What has its format already is copied, so quantizing twice gives the same file.
static void the_second_time_changes_nothing(void **state)
{
    (void)state;
    struct buf first = { 0 }, second = { 0 };
    struct err err = { 0 };
    model_file_close(quantized("in.gguf", "Q5_K_M", "out.gguf"));
    model_file_close(quantized("out.gguf", "Q5_K_M", "out2.gguf"));
    assert_ok(file_read(&first, path_of("out.gguf"), 1 << 24, &err), &err);
    assert_ok(file_read(&second, path_of("out2.gguf"), 1 << 24, &err), &err);
    assert_true(str_eq(buf_as_str(&first), buf_as_str(&second)));
    buf_free(&first);
    buf_free(&second);
}

struct watch {
    uint64_t calls, last, total, stop_at;
};

static bool watching(void *arg, uint64_t done, uint64_t total)
{
    struct watch *w = arg;
    w->calls++;
    assert_true(done > w->last || done == 0);
    w->last = done;
    w->total = total;
    return w->stop_at == 0 || w->calls < w->stop_at;
}

static void progress_reaches_the_end_or_stops(void **state)
{
    (void)state;
    struct watch w = { 0 };
    struct err err = { 0 };
    struct quantize_result r = { 0 };
    struct quantize_options o = { .input = path_of("in.gguf"),
                                  .output = path_of("out.gguf"),
                                  .type = "Q4_0",
                                  .n_threads = 1,
                                  .progress = watching,
                                  .progress_arg = &w };
    unlink(o.output);
    assert_ok(quantize_file(&o, &r, &err), &err);
    assert_true(w.calls > 100 && w.last == w.total && w.total == r.bytes_in && r.bytes_out < r.bytes_in / 4);
    assert_true(r.n_tensors == 3 + 9 * N_LAYERS && r.n_quantized == 2 + 7 * N_LAYERS && r.n_fallback == 0);
    unlink(o.output);
    w = (struct watch){ .stop_at = 50 };
    assert_fails(quantize_file(&o, &r, &err), &err, "stopped");
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_false(file_exists(o.output));
}

static void refuse(struct quantize_options o, const char *part)
{
    struct err err = { 0 };
    unlink(path_of("out.gguf"));
    assert_fails(quantize_file(&o, NULL, &err), &err, part);
    assert_false(file_exists(path_of("out.gguf")) || file_exists(path_of("out.gguf.part")));
}

// Rows with heads, read in pieces that begin in rows' middles and end in others.
static void rows_with_heads_are_read_whole(void **state)
{
    (void)state;
    enum { COLS = 768, ROWS = 24 };
    unsigned char rows[ROWS * (4 + 3 * 128)];
    struct gguf_builder g = { 0 };
    for (enum quant q = QUANT_IQ1_KT; q <= QUANT_IQ4_KT; q++) {
        size_t row_bytes = quant_row_bytes(q, COLS);
        for (size_t i = 0; i < sizeof rows; i++)
            rows[i] = (unsigned char)(i * i * 41 + i / 7);
        for (size_t r = 0; r < ROWS; r++) {
            float head = 1e-5f * (float)(r + 1);
            memcpy(rows + r * row_bytes, &head, 4);
        }
        char name[32];
        snprintf(name, sizeof name, "%s.weight", quant_info(q)->name);
        gguf_tensor(&g, name, quant_info(q)->ggml_id, 2, (uint64_t[]){ COLS, ROWS }, rows, ROWS * row_bytes);
    }
    gguf_image(&g);
    FILE *file = fopen(path_of("kt.gguf"), "wb");
    assert_int_equal(fwrite(g.image, 1, g.n, file), g.n);
    fclose(file);
    gguf_builder_free(&g);
    struct watch w = { 0 };
    struct err err = { 0 };
    struct quantize_options o = { .input = path_of("kt.gguf"),
                                  .output = path_of("out.gguf"),
                                  .type = "F32",
                                  .n_threads = 2,
                                  .progress = watching,
                                  .progress_arg = &w };
    struct model_file *in, *out;
    assert_ok(quantize_file(&o, NULL, &err), &err);
    assert_ok(model_file_open(&in, o.input, &err), &err);
    assert_ok(model_file_open(&out, o.output, &err), &err);
    uint64_t total = 0;
    for (size_t i = 0; i < 4; i++) {
        const struct file_tensor *a = model_file_tensor_at(in, i), *b = model_file_tensor_at(out, i);
        float want[COLS];
        total += a->bytes;
        assert_true(b->format == QUANT_F32 && b->bytes == ROWS * sizeof want);
        for (size_t r = 0; r < ROWS; r++) {
            quant_info(a->format)->decode(a->data + r * quant_row_bytes(a->format, COLS), want, COLS);
            assert_memory_equal(b->data + r * sizeof want, want, sizeof want);
        }
    }
    assert_true(w.last == total && w.total == total);
    model_file_close(in);
    model_file_close(out);
}

static void bad_input_is_refused(void **state)
{
    (void)state;
    const char *in = path_of("in.gguf"), *out = path_of("out.gguf");
    refuse((struct quantize_options){ .input = in, .output = out, .type = "Q4_X" }, "unknown type 'Q4_X'");
    refuse((struct quantize_options){ .input = in, .output = in, .type = "Q4_0" }, "the same file");
    refuse((struct quantize_options){ .input = "/tmp/absent.gguf", .output = out, .type = "Q4_0" },
           "/tmp/absent.gguf: cannot open");
    refuse((struct quantize_options){ .input = in, .output = "/tmp/no/folder/x.gguf", .type = "Q4_0" },
           "cannot create");
    struct gguf_builder g = { 0 };
    float values[512] = { 0 };
    values[300] = NAN;
    gguf_tensor(&g, "t.weight", 0, 2, (uint64_t[]){ 256, 2 }, values, sizeof values);
    gguf_image(&g);
    FILE *f = fopen(path_of("nan.gguf"), "wb");
    assert_int_equal(fwrite(g.image, 1, g.n, f), g.n);
    fclose(f);
    gguf_builder_free(&g);
    refuse((struct quantize_options){ .input = path_of("nan.gguf"),
                                      .output = path_of("out.gguf"),
                                      .type = "Q4_K" },
           "nan.gguf: element 300 of tensor 't.weight' is nan");
}

// ---- what the user chooses

static void named_tensors_get_their_formats(void **state)
{
    static const struct quantize_override overrides[] = { { "blk\\.[01]\\.ATTN_V", "Q8_0" },
                                                          { "attn_v", "q2_k" },
                                                          { "^output", "F16" } };
    struct quantize_options o = { .input = path_of("in.gguf"),
                                  .output = path_of("out.gguf"),
                                  .type = "Q4_K_M",
                                  .overrides = overrides,
                                  .n_overrides = 3 };
    struct err err = { 0 };
    struct model_file *f;
    (void)state;

    assert_ok(quantize_file(&o, NULL, &err), &err);
    assert_ok(model_file_open(&f, o.output, &err), &err);
    check_formats(f, (const char *[]){ "blk.0.attn_v.weight", "Q8_0", "blk.1.attn_v.weight", "Q8_0",
                                       "blk.10.attn_v.weight", "Q2_K", "output.weight", "F16",
                                       "output_norm.weight", "F32", "blk.4.ffn_down.weight", "Q6_K", NULL });
    model_file_close(f);
    o.n_overrides = 1;
    o.overrides = &(struct quantize_override){ "blk.[", "Q8_0" };
    refuse(o, "--tensor-type blk.[: ");
    o.overrides = &(struct quantize_override){ "attn_v", "Q4_K_M" };
    refuse(o, "'Q4_K_M' is no format that is written");
    o.overrides = &(struct quantize_override){ "attn_w", "Q8_0" };
    refuse(o, "no matrix has such a name");
    o.input = path_of("odd.gguf");
    o.overrides = &(struct quantize_override){ "attn_q", "Q4_K" };
    refuse(o, "has rows of 96, no multiple of 256");
}

static void add_up(void *arg, const struct quantize_tensor *t)
{
    assert_true(t->name.n > 0 && t->from->n_dims > 0);
    *(uint64_t *)arg += t->bytes;
}

static void a_dry_run_says_what_would_be(void **state)
{
    uint64_t sum = 0;
    struct quantize_options o = {
        .input = path_of("in.gguf"), .type = "Q4_K_M", .on_tensor = add_up, .on_tensor_arg = &sum
    };
    struct quantize_result dry, wet;
    struct err err = { 0 };
    (void)state;

    unlink(path_of("out.gguf"));
    assert_ok(quantize_file(&o, &dry, &err), &err);
    assert_false(file_exists(path_of("out.gguf")));
    assert_int_equal(sum, dry.bytes_out);
    o.output = path_of("out.gguf");
    o.on_tensor = NULL;
    assert_ok(quantize_file(&o, &wet, &err), &err);
    assert_memory_equal(&dry, &wet, sizeof dry);
}

// Whichever allocation fails, the failure is reported and nothing stays.
static void no_memory_is_an_error(void **state)
{
    (void)state;
    bool done = false;
    for (uint64_t n = 1; !done; n += n < 30 ? 1 : 17) {
        struct err err = { 0 };
        struct quantize_options o = {
            .input = path_of("in.gguf"), .output = path_of("out.gguf"), .type = "F16", .n_threads = 1
        };
        unlink(o.output);
        mem_fail_at(n, 1);
        done = quantize_file(&o, NULL, &err);
        mem_fail_at(0, 0);
        assert_true(done || err.code == ERR_MEMORY || err.code == ERR_LIMIT);
        assert_true(done == file_exists(o.output) && !file_exists(path_of("out.gguf.part")));
        assert_true(n < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_stay_in_their_bounds),
        cmocka_unit_test(importance_moves_the_error),
        cmocka_unit_test(odd_blocks_are_encoded_well),
        cmocka_unit_test(what_cannot_be_stored_is_named),
        cmocka_unit_test(mixes_choose_their_formats),
        cmocka_unit_test(a_tied_embedding_is_the_head),
        cmocka_unit_test(rows_that_do_not_fit_fall_back),
        cmocka_unit_test(what_is_added_to_rows_stays_whole),
        cmocka_unit_test(gates_of_a_state_keep_eight_bits),
        cmocka_unit_test(what_stays_whole_can_be_named),
        cmocka_unit_test(tensors_keep_their_values),
        cmocka_unit_test(the_number_of_threads_changes_nothing),
        cmocka_unit_test(the_second_time_changes_nothing),
        cmocka_unit_test(progress_reaches_the_end_or_stops),
        cmocka_unit_test(rows_with_heads_are_read_whole),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(named_tensors_get_their_formats),
        cmocka_unit_test(a_dry_run_says_what_would_be),
        cmocka_unit_test(no_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_models, remove_models);
}
