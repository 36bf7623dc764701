// op_harness.h - plays one operation on a CPU device and hands back what it wrote.
//
// A test describes the operation once, as a function that records it, and plays it on devices with other
// processor features, thread counts, row orders or layouts of weights. Inputs come from a seed, so every
// device sees the same. Buffers belong to the bench.
#pragma once
#include <math.h>
#include <stdlib.h>
#include "base/mem.h"
#include "device/step.h"
#include "device/tape.h"
#include "ops/cpu_table.h"
#include "testing.h"

enum { BENCH_MAX_BUFFERS = 48 };

struct bench {
    struct device *device;
    struct tape *tape;
    struct buffer buffers[BENCH_MAX_BUFFERS];
    struct weight weights[BENCH_MAX_BUFFERS];
    void *host[BENCH_MAX_BUFFERS];
    uint32_t n_buffers, n_weights, n_host;
    struct buffer step;
};

static uint64_t bench_random_state = 1;

static inline uint32_t bench_random(void)
{
    bench_random_state ^= bench_random_state << 13;
    bench_random_state ^= bench_random_state >> 7;
    bench_random_state ^= bench_random_state << 17;
    return (uint32_t)(bench_random_state >> 16);
}
static inline void bench_seed(uint64_t seed)
{
    bench_random_state = seed * 0x9e3779b97f4a7c15u + 1;
}
static inline float bench_normal(void) // near enough: the sum of four
{
    float s = 0;
    for (int i = 0; i < 4; i++)
        s += (float)(bench_random() >> 8) * 0x1p-24f;
    return (s - 2) * 1.7320508f;
}

static inline void bench_open(struct bench *b, const struct cpu_options *options, struct tape_limits limits)
{
    struct cpu_options o = *options;
    struct err err = { 0 };

    *b = (struct bench){ 0 };
    o.table = &cpu_table;
    o.n_threads = o.n_threads ? o.n_threads : 1;
    b->device = cpu_open(&o, &err);
    if (!b->device)
        fail_msg("cpu_open: %s", err.message);
    b->tape = tape_create(b->device, limits);
    tape_label(b->tape, "test");
    assert_ok(buffer_alloc(b->device, step_bytes(limits.max_rows, limits.max_outputs), &b->step, &err), &err);
    struct step head = { .max_rows = limits.max_rows, .max_outputs = limits.max_outputs };
    *(struct step *)b->step.host = head;
}

static inline void bench_close(struct bench *b)
{
    tape_destroy(b->tape);
    for (uint32_t i = 0; i < b->n_weights; i++)
        weight_release(&b->weights[i]);
    for (uint32_t i = 0; i < b->n_buffers; i++)
        buffer_release(&b->buffers[i]);
    for (uint32_t i = 0; i < b->n_host; i++)
        mem_free_aligned(b->host[i]);
    buffer_release(&b->step);
    device_close(b->device);
}

static inline struct buffer *bench_buffer(struct bench *b, uint64_t bytes)
{
    struct err err = { 0 };

    CHECK(b->n_buffers < BENCH_MAX_BUFFERS);
    struct buffer *buffer = &b->buffers[b->n_buffers++];
    assert_ok(buffer_alloc(b->device, bytes, buffer, &err), &err);
    return buffer;
}

// Memory with its end at the end of the allocation, so that a sanitizer sees a read beyond it.
static inline void *bench_host(struct bench *b, size_t bytes)
{
    CHECK(b->n_host < BENCH_MAX_BUFFERS);
    return b->host[b->n_host++] = mem_alloc_aligned(bytes, 64);
}

// A bound tensor filled with random numbers; *at shows them.
static inline struct tensor bench_tensor(struct bench *b, uint32_t n_cols, enum tensor_rows rows, float **at)
{
    const struct tape_limits *l = tape_limits(b->tape);
    size_t n = (size_t)(rows == ROWS_STEP ? l->max_rows : l->max_outputs) * n_cols;
    struct buffer *buffer = bench_buffer(b, n * 4);
    float *x = buffer->host;

    for (size_t i = 0; i < n; i++)
        x[i] = bench_normal();
    if (at)
        *at = x;
    return tape_tensor_bound(b->tape, n_cols, rows, buffer);
}

// A random block whose values are near 0.02, as those of real weights.
static inline void bench_block(enum quant q, unsigned char *block)
{
    const struct quant_info *info = quant_info(q);

    if (info->block_elements == 1) {
        float v = bench_normal();
        uint16_t half = q == QUANT_F16 ? quant_float_to_half(v) : quant_float_to_bf16(v);
        memcpy(block, q == QUANT_F32 ? (void *)&v : (void *)&half, info->block_bytes);
        return;
    }
    for (uint32_t i = 0; i < info->block_bytes; i++)
        block[i] = (unsigned char)(bench_random() >> 7);
    if (q == QUANT_MXFP4) {
        block[0] = (unsigned char)(118 + bench_random() % 6);
        return;
    }
    if (q == QUANT_Q8_16) {
        float d = (float)(0.5 + (double)(bench_random() % 1000) / 1000) * 4e-6f;
        memcpy(block, &d, sizeof d);
        return;
    }
    for (int i = 0; i < 2; i++) {
        float factor = 0.5f + (float)(bench_random() % 1000) / 1000;
        uint16_t d = quant_float_to_half(factor * info->halves.usual[i]);
        memcpy(block + info->halves.at[i], &d, 2);
    }
}

static inline const struct weight *bench_weight_of(struct bench *b, enum quant q, uint32_t n_rows,
                                                   uint32_t n_cols,
                                                   void (*block)(enum quant, unsigned char *))
{
    const struct quant_info *info = quant_info(q);
    uint64_t bytes = (uint64_t)n_rows * n_cols / info->block_elements * info->block_bytes;
    unsigned char *data = bench_host(b, bytes);
    struct err err = { 0 };

    for (uint64_t i = 0; i < bytes; i += info->block_bytes)
        block(q, data + i);
    struct weight_source source = { .data = data,
                                    .bytes = bytes,
                                    .n_rows = n_rows,
                                    .n_cols = n_cols,
                                    .format = q,
                                    .use = n_rows > 1 ? WEIGHT_PRODUCT : WEIGHT_ROWS,
                                    .name = "w" };
    CHECK(b->n_weights < BENCH_MAX_BUFFERS);
    struct weight *w = &b->weights[b->n_weights++];
    assert_ok(weight_create(b->device, &source, w, &err), &err);
    return w;
}

static inline const struct weight *bench_weight(struct bench *b, enum quant q, uint32_t n_rows,
                                                uint32_t n_cols)
{
    return bench_weight_of(b, q, n_rows, n_cols, bench_block);
}

static inline struct step *bench_step(struct bench *b)
{
    return b->step.host;
}
static inline void bench_play(struct bench *b)
{
    struct err err = { 0 };
    assert_ok(tape_play(b->tape, &b->step, &err), &err);
}
static inline void bench_seal(struct bench *b)
{
    struct err err = { 0 };
    assert_ok(tape_seal(b->tape, &err), &err);
}

// Normalised squared error of b against a.
static inline double bench_error(const float *a, const float *b, size_t n)
{
    double error = 0, norm = 0;

    for (size_t i = 0; i < n; i++) {
        if (isnan(a[i]) != isnan(b[i]))
            return INFINITY;
        double d = a[i] == b[i] || isnan(a[i]) ? 0 : (double)a[i] - (double)b[i];
        error += d * d;
        norm += isnan(a[i]) ? 0 : (double)a[i] * (double)a[i];
    }
    return error == 0 ? 0 : error / (norm > 1e-30 ? norm : 1e-30);
}

// The sets of kernels that this processor can run; 1u << 31 stands for none: no SIMD at all.
static inline uint32_t bench_features(uint32_t *sets)
{
    static const uint32_t wanted[] = { CPU_AVX2 | CPU_AVX512 | CPU_AVX512_VNNI, CPU_AVX2 | CPU_AVX_VNNI,
                                       CPU_AVX2, CPU_NEON | CPU_DOTPROD, CPU_NEON };
    uint32_t n = 0, have = cpu_features();

    sets[n++] = CPU_ALL;
    if (have & CPU_AMX)
        sets[n++] = CPU_ALL & ~CPU_AMX;
    for (uint32_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if ((wanted[i] & have) == wanted[i])
            sets[n++] = wanted[i];
    sets[n++] = 1u << 31;
    return n;
}
