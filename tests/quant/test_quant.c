// test_quant.c - every weight format against vectors made by tools/golden/quant_vectors.py, bit for bit.
//
// The vectors come from a separate reading of the formats (numpy, by planes of bits). Half precision is
// checked over all bit patterns, the rounding of floats over the neighbourhood of every half.
#include "testing.h"
#include <math.h>
#include "base/file.h"
#include "quant/exl3.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/mxfp4.h"
#include "quant/q4_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"
#include "quant/quant.h"
#include "quant/row_scales.h"

static uint32_t bits_of(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static float float_of(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

// NaN is NaN: which one a processor makes of inf - inf is its own affair.
static bool same_float(float a, float b)
{
    return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

static void check_vectors(enum quant q, const char *file_name)
{
    const struct quant_info *info = quant_info(q);
    size_t row_bytes = info->head_bytes + info->block_bytes,
           pair_bytes = row_bytes + info->block_elements * sizeof(float);
    char path[512];
    struct file_map map;
    struct err err = { 0 };
    float out[256], want;

    snprintf(path, sizeof path, "%s/tests/quant/vectors/%s.bin", SOURCE_DIR, file_name);
    assert_ok(file_map_open(&map, path, &err), &err);
    assert_int_equal(map.bytes % pair_bytes, 0);
    size_t n = map.bytes / pair_bytes, differ = 0;
    assert_true(n >= 32);
    const unsigned char *expected = map.at + n * row_bytes;
    for (size_t i = 0; i < n; i++) {
        info->decode(map.at + i * row_bytes, out, info->block_elements);
        for (uint32_t j = 0; j < info->block_elements; j++) {
            memcpy(&want, expected + (i * info->block_elements + j) * sizeof want, sizeof want);
            differ += !same_float(out[j], want);
        }
    }
    file_map_close(&map);
    if (differ)
        fail_msg("%s: %zu elements differ", info->name, differ);
}

static void every_format_decodes_bit_exactly(void **state)
{
    (void)state;
    static const struct {
        enum quant q;
        const char *file;
    } cases[] = {
        { QUANT_Q4_0, "q4_0" },     { QUANT_Q4_1, "q4_1" },       { QUANT_Q5_0, "q5_0" },
        { QUANT_Q5_1, "q5_1" },     { QUANT_Q8_0, "q8_0" },       { QUANT_Q2_K, "q2_k" },
        { QUANT_Q3_K, "q3_k" },     { QUANT_Q4_K, "q4_k" },       { QUANT_Q5_K, "q5_k" },
        { QUANT_Q6_K, "q6_k" },     { QUANT_IQ4_NL, "iq4_nl" },   { QUANT_IQ4_XS, "iq4_xs" },
        { QUANT_MXFP4, "mxfp4" },   { QUANT_IQ2_XXS, "iq2_xxs" }, { QUANT_IQ2_XS, "iq2_xs" },
        { QUANT_IQ2_S, "iq2_s" },   { QUANT_IQ3_XXS, "iq3_xxs" }, { QUANT_IQ3_S, "iq3_s" },
        { QUANT_IQ1_S, "iq1_s" },   { QUANT_IQ1_M, "iq1_m" },     { QUANT_TQ1_0, "tq1_0" },
        { QUANT_TQ2_0, "tq2_0" },   { QUANT_IQ1_KT, "iq1_kt" },   { QUANT_IQ2_KT, "iq2_kt" },
        { QUANT_IQ3_KT, "iq3_kt" }, { QUANT_IQ4_KT, "iq4_kt" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        check_vectors(cases[i].q, cases[i].file);
    // F32, F16 and BF16 are checked below; Q8_16 is in no file, and checked by those spread to it
    assert_int_equal(sizeof cases / sizeof cases[0], N_READABLE_QUANTS - 4);
}

// The value of a half by its definition, in double.
static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 0x3ff;
    double size = exponent ? ldexp(1 + mantissa / 1024.0, exponent - 15) : ldexp(mantissa, -24);
    return h & 0x8000 ? -size : size;
}

static void all_halves_are_read_exactly(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 65536; h++) {
        float f = quant_half_to_float((uint16_t)h);
        if ((h >> 10 & 31) == 31)
            assert_true(h & 0x3ff ? isnan(f) : isinf(f) && !!signbit(f) == (h >= 0x8000));
        else
            assert_true((double)f == half_value((uint16_t)h) && !!signbit(f) == (h >= 0x8000));
        if (!isnan(f))
            assert_int_equal(quant_float_to_half(f), h);
        else
            assert_true(isnan(quant_half_to_float(quant_float_to_half(f))));
    }
}

// Between two neighbouring halves: the middle goes to the even one, anything else to the nearer.
static void floats_round_to_the_nearest_half(void **state)
{
    (void)state;
    for (uint16_t h = 0; h < 0x7bff; h++) {
        float middle = (float)((half_value(h) + half_value(h + 1)) / 2); // 12 bits of mantissa: exact
        uint16_t even = h & 1 ? h + 1 : h;
        assert_int_equal(quant_float_to_half(middle), even);
        assert_int_equal(quant_float_to_half(-middle), even | 0x8000);
        assert_int_equal(quant_float_to_half(float_of(bits_of(middle) - 1)), h);
        assert_int_equal(quant_float_to_half(float_of(bits_of(middle) + 1)), h + 1);
    }
    assert_int_equal(quant_float_to_half(65519.996f), 0x7bff);
    assert_int_equal(quant_float_to_half(65520.0f), 0x7c00);
    assert_int_equal(quant_float_to_half(1e30f), 0x7c00);
    assert_int_equal(quant_float_to_half(-1e-30f), 0x8000);
}

static void floats_round_to_the_nearest_bf16(void **state)
{
    (void)state;
    for (uint32_t b = 0; b < 0x7f80; b++) {
        uint32_t low = b << 16, even = b & 1 ? b + 1 : b;
        assert_int_equal(quant_float_to_bf16(float_of(low)), b);
        assert_int_equal(quant_float_to_bf16(float_of(low | 0x8000)), even);
        assert_int_equal(quant_float_to_bf16(float_of(low | 0x7fff)), b);
        assert_int_equal(quant_float_to_bf16(float_of(low | 0x80008001)), (b + 1) | 0x8000);
    }
    assert_int_equal(quant_float_to_bf16(INFINITY), 0x7f80);
    assert_true(isnan(quant_bf16_to_float(quant_float_to_bf16(float_of(0x7f800001)))));
}

static void plain_numbers_are_rows_too(void **state)
{
    (void)state;
    static const uint16_t halves[4] = { 0x3c00, 0xc000, 0x0001, 0x7c00 },
                          brains[4] = { 0x3f80, 0xc000, 0x0001, 0x7f80 };
    static const float floats[4] = { 1, -2, 5.9604645e-8f, INFINITY };
    static const int32_t integers[4] = { 0, -7, 1 << 24, INT32_MIN };
    float out[4];
    quant_info(QUANT_F16)->decode(halves, out, 4);
    assert_memory_equal(out, floats, sizeof out);
    quant_info(QUANT_BF16)->decode(brains, out, 4);
    assert_true(out[0] == 1 && out[1] == -2 && bits_of(out[2]) == 0x10000 && isinf(out[3]));
    quant_info(QUANT_F32)->decode(floats, out, 4);
    assert_memory_equal(out, floats, sizeof out);
    quant_info(QUANT_I32)->decode(integers, out, 4);
    assert_true(out[1] == -7 && out[3] == -2147483648.0f);
}

static void level_tables_and_expressions_agree(void **state)
{
    (void)state;
    static const i8 levels[16] = IQ4_NL_LEVELS, doubled[16] = MXFP4_LEVELS;
    for (u32 i = 0; i < 16; i++) {
        assert_int_equal(iq4_nl_level(i), levels[i]);
        assert_int_equal(mxfp4_level(i), doubled[i]);
    }
}

// What kernels take apart must put together what decode gives.
static void integers_and_scales_make_the_value(void **state)
{
    (void)state;
    unsigned char bytes[256];
    i8 q[256];
    float out[256];
    for (int i = 0; i < 256; i++)
        bytes[i] = (unsigned char)(i * 37 + 11);
    struct q4_k a;
    memcpy(&a, bytes, sizeof a);
    a.d = 0x3c00, a.dmin = 0x4000; // 1 and 2
    q4_k_ints(&a, q);
    q4_k_decode(&a, out);
    for (u32 i = 0; i < 256; i++)
        assert_true(out[i] ==
                    q4_k_scale(a.scales, i / 32).scale * q[i] - 2.0f * q4_k_scale(a.scales, i / 32).min);
    struct iq4_xs b;
    memcpy(&b, bytes, sizeof b);
    b.d = 0x3c00;
    iq4_xs_ints(&b, q);
    iq4_xs_decode(&b, out);
    for (u32 i = 0; i < 256; i++)
        assert_true(out[i] == (float)(iq4_xs_scale(&b, i / 32) * q[i]));
    struct q6_k c;
    memcpy(&c, bytes, sizeof c);
    c.d = 0x3c00;
    q6_k_ints(&c, q);
    q6_k_decode(&c, out);
    for (u32 i = 0; i < 256; i++)
        assert_true(out[i] == (float)(c.scales[i / 16] * q[i]));
}

static void sizes_are_checked(void **state)
{
    (void)state;
    uint64_t bytes = 0;
    assert_true(quant_bytes(QUANT_Q4_K, 1, 512, &bytes) && bytes == 288);
    assert_true(quant_bytes(QUANT_F32, 1, 0, &bytes) && bytes == 0);
    assert_true(quant_bytes(QUANT_Q8_0, 3, 64, &bytes) && bytes == 204);
    assert_false(quant_bytes(QUANT_Q4_K, 256, 255, &bytes));
    assert_false(quant_bytes(QUANT_Q8_0, 32, 33, &bytes));
    assert_false(quant_bytes(QUANT_F32, 1, UINT64_MAX / 2, &bytes));
    assert_false(quant_bytes(QUANT_Q8_0, 1, UINT64_MAX - 31, &bytes));
    assert_false(quant_bytes(QUANT_F32, UINT64_MAX / 2, 1, &bytes));
    assert_true(quant_bytes(QUANT_IQ2_KT, 3, 512, &bytes) && bytes == 3 * (4 + 2 * 68)); // rows have heads
    assert_false(quant_bytes(QUANT_IQ4_KT, 1, 128, &bytes));
    assert_false(quant_bytes(QUANT_IQ4_KT, UINT64_MAX / 132 + 1, 256, &bytes)); // with heads alone too many
    assert_true(quant_row_bytes(QUANT_IQ1_KT, 768) == 4 + 3 * 56 && quant_row_bytes(QUANT_Q8_0, 64) == 68);
}

// A row's head scales all of its blocks and no other row's, from wherever reading begins.
static void heads_are_of_their_rows(void **state)
{
    (void)state;
    for (enum quant q = QUANT_IQ1_KT; q <= QUANT_IQ4_KT; q++) {
        const struct quant_info *info = quant_info(q);
        enum { ROWS = 3, BLOCKS = 2, N = ROWS * BLOCKS * 256 };
        static const float heads[ROWS] = { 1, -0.5f, 3e-5f };
        _Alignas(4) unsigned char rows[ROWS * (4 + BLOCKS * 128)], one[4 + 128];
        float all[N], part[256], want[256];
        uint64_t row_bytes = quant_row_bytes(q, BLOCKS * 256);
        assert_int_equal(info->head_bytes, sizeof heads[0]);
        for (size_t i = 0; i < sizeof rows; i++)
            rows[i] = (unsigned char)(i * i * 29 + 7);
        for (size_t r = 0; r < ROWS; r++)
            memcpy(rows + r * row_bytes, &heads[r], 4);
        const struct quant_rows from = { q, rows, BLOCKS * 256 };
        quant_read(&from, 0, all, N);
        for (size_t i = 0; i < ROWS * BLOCKS; i++) {
            memcpy(one, &heads[i / BLOCKS], 4);
            memcpy(one + 4, rows + i / BLOCKS * row_bytes + 4 + i % BLOCKS * info->block_bytes,
                   info->block_bytes);
            info->decode(one, want, 256);
            quant_read(&from, i * 256, part, 256);
            assert_memory_equal(all + i * 256, want, sizeof want);
            assert_memory_equal(part, want, sizeof want);
        }
    }
}

// All codebooks and numbers of bits: tools/golden/make_exl3_golden.py.
static void a_trellis_decodes_bit_exactly(void **state)
{
    (void)state;
    struct file_map map;
    struct err err = { 0 };
    size_t at = 0;

    assert_ok(file_map_open(&map, SOURCE_DIR "/tests/quant/vectors/exl3.bin", &err), &err);
    for (int codebook = EXL3_3INST; codebook <= EXL3_MUL1; codebook++)
        for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++) {
            const u16 *words = (const u16 *)(const void *)(map.at + at), *want = words + 16 * bits;
            float tile[EXL3_TILE][EXL3_TILE];
            exl3_decode(words, bits, (enum exl3_codebook)codebook, tile);
            for (uint32_t i = 0; i < EXL3_TILE * EXL3_TILE; i++)
                assert_int_equal(bits_of(tile[i / 16][i % 16]), bits_of(quant_half_to_float(want[i])));
            at += 32 * bits + 512;
        }
    assert_int_equal(at, map.bytes);
    file_map_close(&map);
}

static void row_blocks(struct q8_0 *row, uint32_t n)
{
    uint32_t random = 7;

    for (uint32_t i = 0; i < n; i++) {
        row[i].d = quant_float_to_half(0.001f * (float)(1 + i % 5) * (i % 3 ? 1 : -1));
        for (uint32_t k = 0; k < 32; k++) {
            random = random * 1664525u + 1013904223u;
            row[i].q[k] = (int8_t)(random >> 24);
        }
    }
}

static void rows_of_one_scale_are_near(void **state)
{
    enum { N = 24 };
    struct q8_0 row[N], scaled[N];
    float before[N * 32], after[N * 32];
    const struct quant_info *info = quant_info(QUANT_Q8_0);

    (void)state;
    row_blocks(row, N);
    row[3].q[5] = -128;
    quant_row_scales(row, scaled, N * 32);
    info->decode(row, before, N * 32);
    info->decode(scaled, after, N * 32);
    float scale = quant_half_to_float(scaled[0].d);
    for (uint32_t i = 0; i < N * 32; i++) {
        assert_int_equal(scaled[i / 32].d, scaled[0].d);
        assert_true(scaled[i / 32].q[i % 32] > -128);
        assert_true(fabsf(after[i] - before[i]) <= 0.5625f * scale); // 127 / 2^11 more, of the rounded scale
    }
    quant_row_scales(scaled, row, N * 32); // nothing is left to do
    assert_memory_equal(row, scaled, sizeof row);
}

// Zeros stay zeros; what is not finite, or too large for one scale, makes its row NaN.
static void rows_without_a_scale(void **state)
{
    static const uint16_t bad[] = { 0x7c00, 0xfc00, 0x7e00, 0x7bff };
    struct q8_0 row[2] = { { 0 } };
    float after[64];
    const struct quant_info *info = quant_info(QUANT_Q8_0);

    (void)state;
    quant_row_scales(row, row, 64);
    info->decode(row, after, 64);
    for (uint32_t i = 0; i < 64; i++)
        assert_true(after[i] == 0);
    for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
        row_blocks(row, 2);
        row[1].d = bad[b];
        row[1].q[9] = -128;
        quant_row_scales(row, row, 64);
        info->decode(row, after, 64);
        for (uint32_t i = 0; i < 64; i++)
            assert_true(isnan(after[i]));
    }
}

static void names_and_numbers_find_the_format(void **state)
{
    (void)state;
    enum quant q;
    for (unsigned i = 0; i < N_QUANTS; i++) {
        const struct quant_info *info = quant_info((enum quant)i);
        assert_true(quant_from_name(str_from(info->name), &q) && q == i);
        bool in_files = i != QUANT_U8 && i != QUANT_I16 && i != QUANT_Q8_16 &&
                        i < QUANT_EXL3; // of checkpoints and of memory alone
        assert_true(quant_in_files((enum quant)i) == in_files);
        assert_int_equal(quant_from_ggml_id(info->ggml_id, &q), in_files);
        assert_true(q == i);
    }
    assert_true(quant_from_name(STR("q4_k"), &q) && q == QUANT_Q4_K);
    assert_false(quant_from_name(STR("Q4_"), &q) || quant_from_name(STR("Q4_KX"), &q) ||
                 quant_from_name(STR(""), &q));
    static const uint32_t unknown[] = { 4, 5, 9, 15, 24, 28, 31, 33, 36, 38, 40, 41, 43, 1000, UINT32_MAX };
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_false(quant_from_ggml_id(unknown[i], &q));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_decodes_bit_exactly),
        cmocka_unit_test(all_halves_are_read_exactly),
        cmocka_unit_test(floats_round_to_the_nearest_half),
        cmocka_unit_test(floats_round_to_the_nearest_bf16),
        cmocka_unit_test(plain_numbers_are_rows_too),
        cmocka_unit_test(level_tables_and_expressions_agree),
        cmocka_unit_test(integers_and_scales_make_the_value),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(heads_are_of_their_rows),
        cmocka_unit_test(a_trellis_decodes_bit_exactly),
        cmocka_unit_test(rows_of_one_scale_are_near),
        cmocka_unit_test(rows_without_a_scale),
        cmocka_unit_test(names_and_numbers_find_the_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
