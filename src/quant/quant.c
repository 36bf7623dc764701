// quant.c - see quant.h. One table; the loops over rows are all alike, so a macro writes them.
#include "quant/quant.h"
#include "quant/grid_formats.h"
#include "quant/iq4_nl.h"
#include "quant/iq4_xs.h"
#include "quant/kt_formats.h"
#include "quant/mxfp4.h"
#include "quant/q2_k.h"
#include "quant/q3_k.h"
#include "quant/q4_0.h"
#include "quant/q4_1.h"
#include "quant/q4_k.h"
#include "quant/q5_0.h"
#include "quant/q5_1.h"
#include "quant/q5_k.h"
#include "quant/q6_k.h"
#include "quant/q8_0.h"

#define DECODE_ROW(format, elements)                                   \
    static void format##_row(const void *blocks, float *out, size_t n) \
    {                                                                  \
        const struct format *b = blocks;                               \
        for (size_t i = 0; i < n / (elements); i++)                    \
            format##_decode(&b[i], out + i * (elements));              \
    }

DECODE_ROW(q4_0, 32)
DECODE_ROW(q4_1, 32)
DECODE_ROW(q5_0, 32)
DECODE_ROW(q5_1, 32)
DECODE_ROW(q8_0, 32)
DECODE_ROW(q2_k, 256)
DECODE_ROW(q3_k, 256)
DECODE_ROW(q4_k, 256)
DECODE_ROW(q5_k, 256)
DECODE_ROW(q6_k, 256)
DECODE_ROW(iq4_nl, 32)
DECODE_ROW(iq4_xs, 256)
DECODE_ROW(mxfp4, 32)
DECODE_ROW(q8_16, 256)

// Of the formats that no kernel multiplies: their numbers in the format that stands for them.
#define SPREAD_ROW(format)                                          \
    static void format##_row(const void *row, float *out, size_t n) \
    {                                                               \
        struct q8_16 numbers;                                       \
        for (size_t i = 0; i < n; i += 256) {                       \
            format##_spread(row, i, &numbers, 256);                 \
            q8_16_decode(&numbers, out + i);                        \
        }                                                           \
    }
#define SPREAD_GRID(NAME, format, unused)                                             \
    static void format##_spread(const void *row, uint64_t first, void *out, size_t n) \
    {                                                                                 \
        const struct format *b = (const struct format *)row + first / 256;            \
        struct q8_16 *to = out;                                                       \
        for (size_t i = 0; i < n / 256; i++)                                          \
            grid_##format##_spread(&b[i], &to[i]);                                    \
    }                                                                                 \
    SPREAD_ROW(format)
QUANT_GRID_FORMATS(SPREAD_GRID, )

#define SPREAD_KT(NAME, format, unused)                                                               \
    static void format##_spread(const void *row, uint64_t first, void *out, size_t n)                 \
    {                                                                                                 \
        const unsigned char *head = row;                                                              \
        const struct format *b = (const struct format *)(const void *)(head + KT_HEAD) + first / 256; \
        struct q8_16 *to = out;                                                                       \
        for (size_t i = 0; i < n / 256; i++) {                                                        \
            memcpy(&to[i].d, head, KT_HEAD);                                                          \
            kt_##format##_spread(&b[i], &to[i]);                                                      \
        }                                                                                             \
    }                                                                                                 \
    SPREAD_ROW(format)
QUANT_KT_FORMATS(SPREAD_KT, )

static void f32_row(const void *from, float *out, size_t n)
{
    if (n)
        memcpy(out, from, n * sizeof *out);
}

static void f16_row(const void *from, float *out, size_t n)
{
    const uint16_t *h = from;

    for (size_t i = 0; i < n; i++)
        out[i] = half_to_float(h[i]);
}

static void bf16_row(const void *from, float *out, size_t n)
{
    const uint16_t *b = from;

    for (size_t i = 0; i < n; i++)
        out[i] = quant_bf16_to_float(b[i]);
}

static void i32_row(const void *from, float *out, size_t n)
{
    const int32_t *v = from;

    for (size_t i = 0; i < n; i++)
        out[i] = (float)v[i];
}

static void i16_row(const void *from, float *out, size_t n)
{
    const int16_t *v = from;

    for (size_t i = 0; i < n; i++)
        out[i] = (float)v[i];
}

static void u8_row(const void *from, float *out, size_t n)
{
    const uint8_t *v = from;

    for (size_t i = 0; i < n; i++)
        out[i] = (float)v[i];
}

enum { NOT_IN_GGUF = INT32_MAX };

// clang-format off
static const struct quant_info infos[N_QUANTS] = {
    [QUANT_F32] = { "F32", 0, 1, 4, f32_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
    [QUANT_F16] = { "F16", 1, 1, 2, f16_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
    [QUANT_BF16] = { "BF16", 30, 1, 2, bf16_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
    [QUANT_Q4_0] = { "Q4_0", 2, 32, sizeof(struct q4_0), q4_0_row, { { 0, 0 }, { 0.004f, 0.004f } }, NULL, 0 },
    [QUANT_Q4_1] = { "Q4_1", 3, 32, sizeof(struct q4_1), q4_1_row, { { 0, 2 }, { 0.004f, -0.03f } }, NULL, 0 },
    [QUANT_Q5_0] = { "Q5_0", 6, 32, sizeof(struct q5_0), q5_0_row, { { 0, 0 }, { 0.002f, 0.002f } }, NULL, 0 },
    [QUANT_Q5_1] = { "Q5_1", 7, 32, sizeof(struct q5_1), q5_1_row, { { 0, 2 }, { 0.002f, -0.03f } }, NULL, 0 },
    [QUANT_Q8_0] = { "Q8_0", 8, 32, sizeof(struct q8_0), q8_0_row, { { 0, 0 }, { 0.0003f, 0.0003f } }, NULL, 0 },
    [QUANT_Q2_K] = { "Q2_K", 10, 256, sizeof(struct q2_k), q2_k_row, { { 80, 82 }, { 0.002f, 0.003f } }, NULL, 0 },
    [QUANT_Q3_K] = { "Q3_K", 11, 256, sizeof(struct q3_k), q3_k_row, { { 108, 108 }, { 0.0005f, 0.0005f } }, NULL, 0 },
    [QUANT_Q4_K] = { "Q4_K", 12, 256, sizeof(struct q4_k), q4_k_row, { { 0, 2 }, { 0.0001f, 0.00075f } }, NULL, 0 },
    [QUANT_Q5_K] = { "Q5_K", 13, 256, sizeof(struct q5_k), q5_k_row, { { 0, 2 }, { 0.00005f, 0.00075f } }, NULL, 0 },
    [QUANT_Q6_K] = { "Q6_K", 14, 256, sizeof(struct q6_k), q6_k_row, { { 208, 208 }, { 0.00002f, 0.00002f } }, NULL, 0 },
    [QUANT_IQ4_NL] = { "IQ4_NL", 20, 32, sizeof(struct iq4_nl), iq4_nl_row, { { 0, 0 }, { 0.0003f, 0.0003f } }, NULL, 0 },
    [QUANT_IQ4_XS] = { "IQ4_XS", 23, 256, sizeof(struct iq4_xs), iq4_xs_row, { { 0, 0 }, { 0.00002f, 0.00002f } }, NULL, 0 },
    [QUANT_MXFP4] = { "MXFP4", 39, 32, sizeof(struct mxfp4), mxfp4_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
    [QUANT_Q8_16] = { "Q8_16", NOT_IN_GGUF, 256, sizeof(struct q8_16), q8_16_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
    [QUANT_IQ2_XXS] = { "IQ2_XXS", 16, 256, sizeof(struct iq2_xxs), iq2_xxs_row, { { 0, 0 }, { 0.0003f, 0.0003f } }, iq2_xxs_spread, 0 },
    [QUANT_IQ2_XS] = { "IQ2_XS", 17, 256, sizeof(struct iq2_xs), iq2_xs_row, { { 0, 0 }, { 0.0003f, 0.0003f } }, iq2_xs_spread, 0 },
    [QUANT_IQ3_XXS] = { "IQ3_XXS", 18, 256, sizeof(struct iq3_xxs), iq3_xxs_row, { { 0, 0 }, { 0.0001f, 0.0001f } }, iq3_xxs_spread, 0 },
    [QUANT_IQ1_S] = { "IQ1_S", 19, 256, sizeof(struct iq1_s), iq1_s_row, { { 0, 0 }, { 0.003f, 0.003f } }, iq1_s_spread, 0 },
    [QUANT_IQ3_S] = { "IQ3_S", 21, 256, sizeof(struct iq3_s), iq3_s_row, { { 0, 0 }, { 0.0001f, 0.0001f } }, iq3_s_spread, 0 },
    [QUANT_IQ2_S] = { "IQ2_S", 22, 256, sizeof(struct iq2_s), iq2_s_row, { { 0, 0 }, { 0.0003f, 0.0003f } }, iq2_s_spread, 0 },
    [QUANT_IQ1_M] = { "IQ1_M", 29, 256, sizeof(struct iq1_m), iq1_m_row, { { 0, 0 }, { 0, 0 } }, iq1_m_spread, 0 },
    [QUANT_TQ1_0] = { "TQ1_0", 34, 256, sizeof(struct tq1_0), tq1_0_row, { { 52, 52 }, { 0.02f, 0.02f } }, tq1_0_spread, 0 },
    [QUANT_TQ2_0] = { "TQ2_0", 35, 256, sizeof(struct tq2_0), tq2_0_row, { { 64, 64 }, { 0.02f, 0.02f } }, tq2_0_spread, 0 },
    [QUANT_IQ1_KT] = { "IQ1_KT", 158, 256, sizeof(struct iq1_kt), iq1_kt_row, { { 0, 0 }, { 8e-6f, 0 } }, iq1_kt_spread, KT_HEAD },
    [QUANT_IQ2_KT] = { "IQ2_KT", 153, 256, sizeof(struct iq2_kt), iq2_kt_row, { { 0, 0 }, { 8e-6f, 0 } }, iq2_kt_spread, KT_HEAD },
    [QUANT_IQ3_KT] = { "IQ3_KT", 154, 256, sizeof(struct iq3_kt), iq3_kt_row, { { 0, 0 }, { 6e-5f, 0 } }, iq3_kt_spread, KT_HEAD },
    [QUANT_IQ4_KT] = { "IQ4_KT", 155, 256, sizeof(struct iq4_kt), iq4_kt_row, { { 0, 0 }, { 1.5e-5f, 0 } }, iq4_kt_spread, KT_HEAD },
    [QUANT_I16] = { "I16", NOT_IN_GGUF, 1, 2, i16_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
    [QUANT_EXL3] = { "EXL3", NOT_IN_GGUF, 1, 1, u8_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
    [QUANT_EXL3_MCG] = { "EXL3_MCG", NOT_IN_GGUF, 1, 1, u8_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
    [QUANT_EXL3_MUL1] = { "EXL3_MUL1", NOT_IN_GGUF, 1, 1, u8_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
    [QUANT_U8] = { "U8", NOT_IN_GGUF, 1, 1, u8_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
    [QUANT_I32] = { "I32", 26, 1, 4, i32_row, { { 0, 0 }, { 0, 0 } }, NULL, 0 },
};
// clang-format on

const struct quant_info *quant_info(enum quant q)
{
    CHECK((unsigned)q < N_QUANTS);
    return &infos[q];
}

enum quant quant_kernel_format(enum quant q)
{
    return quant_info(q)->spread ? QUANT_Q8_16 : q;
}

bool quant_in_files(enum quant q)
{
    return quant_info(q)->ggml_id != NOT_IN_GGUF;
}

bool quant_bytes(enum quant q, uint64_t n_rows, uint64_t n_cols, uint64_t *bytes)
{
    const struct quant_info *info = quant_info(q);
    return n_cols % info->block_elements == 0 &&
           !__builtin_mul_overflow(n_cols / info->block_elements, (uint64_t)info->block_bytes, bytes) &&
           !__builtin_add_overflow(*bytes, (uint64_t)info->head_bytes, bytes) &&
           !__builtin_mul_overflow(*bytes, n_rows, bytes);
}

uint64_t quant_row_bytes(enum quant q, uint64_t n_cols)
{
    const struct quant_info *info = quant_info(q);
    return info->head_bytes + n_cols / info->block_elements * info->block_bytes;
}

void quant_read(const struct quant_rows *rows, uint64_t first, float *out, size_t n)
{
    const struct quant_info *info = quant_info(rows->format);
    const unsigned char *at = rows->data;
    struct q8_16 numbers;

    if (info->head_bytes == 0) {
        info->decode(at + first / info->block_elements * info->block_bytes, out, n);
        return;
    }
    at += first / rows->n_cols * quant_row_bytes(rows->format, rows->n_cols);
    first %= rows->n_cols;
    for (size_t i = 0; i < n; i += 256) {
        info->spread(at, first, &numbers, 256);
        q8_16_decode(&numbers, out + i);
        first += 256;
        if (first == rows->n_cols) {
            first = 0;
            at += quant_row_bytes(rows->format, rows->n_cols);
        }
    }
}

static char lower(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
}

bool quant_from_name(struct str name, enum quant *q)
{
    for (unsigned i = 0; i < N_QUANTS; i++) {
        size_t n = 0;
        while (n < name.n && infos[i].name[n] && lower(name.at[n]) == lower(infos[i].name[n]))
            n++;
        if (n == name.n && infos[i].name[n] == 0) {
            *q = (enum quant)i;
            return true;
        }
    }
    return false;
}

bool quant_from_ggml_id(uint32_t id, enum quant *q)
{
    for (unsigned i = 0; i < N_QUANTS; i++)
        if (infos[i].ggml_id == id && id != NOT_IN_GGUF) {
            *q = (enum quant)i;
            return true;
        }
    return false;
}

float quant_half_to_float(uint16_t half)
{
    return half_to_float(half);
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// value >> shift, rounded to nearest even; shift is 1..31.
static uint32_t shift_rounded(uint32_t value, uint32_t shift)
{
    uint32_t half = 1u << (shift - 1), rest = value & ((1u << shift) - 1), kept = value >> shift;
    return kept + (rest > half || (rest == half && (kept & 1)));
}

uint16_t quant_float_to_half(float value)
{
    uint32_t bits = float_bits(value), sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 255,
             mantissa = bits & 0x7fffff;

    if (exponent == 255)
        return (uint16_t)(sign | 0x7c00 | (mantissa ? 0x200 | mantissa >> 13 : 0));
    if (exponent >= 113) { // normal in half; a carry out of the mantissa moves into the exponent, and at the
                           // top gives infinity
        uint32_t half = shift_rounded((exponent - 112) << 23 | mantissa, 13);
        return (uint16_t)(sign | (half > 0x7c00 ? 0x7c00 : half));
    }
    if (exponent < 102) // below half of the smallest subnormal
        return (uint16_t)sign;
    return (uint16_t)(sign | shift_rounded(0x800000 | mantissa, 126 - exponent));
}

uint16_t quant_float_to_bf16(float value)
{
    uint32_t bits = float_bits(value);

    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)shift_rounded(bits, 16);
}
