// ops.c - how fast the products run on this processor, beside what it could do: bench_ops [threads] [format
// or attention] [features].
//
// features is a mask of CPU_* (device/cpu/cpu.h), to time the kernels of lesser processors.
// Each line is the best of many short runs, so that a busy machine disturbs little: a run takes a few
// milliseconds. Peaks are probed in the same program: multiply-adds of int8 with four independent chains per
// pipe, and a plain read of memory far larger than caches. Weights of the one-row runs exceed the caches too,
// so GB/s is the speed of memory; operations count a multiply-add as two.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/bandwidth.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "device/cpu/cpu.h"
#include "device/step.h"
#include "ops/attend/attend.h"
#include "ops/cpu_table.h"
#include "ops/matmul/matmul.h"

enum { RUNS = 30 };

struct ops_bench {
    struct device *device;
    struct tape *tape;
    struct buffer step;
    struct err err;
};

static void must(bool ok, const struct ops_bench *b)
{
    if (ok)
        return;
    fprintf(stderr, "%s\n", b->err.message);
    exit(1);
}

static void begin(struct ops_bench *b, struct device *d, uint32_t n_rows, bool exact)
{
    *b = (struct ops_bench){
        .device = d,
        .tape = tape_create(d, (struct tape_limits){ .max_rows = n_rows, .max_outputs = 1, .exact = exact })
    };
    must(b->tape && buffer_alloc(d, step_bytes(n_rows, 1), &b->step, &b->err), b);
    *(struct step *)b->step.host = (struct step){ .n_rows = n_rows, .max_rows = n_rows, .max_outputs = 1 };
}

// Seconds of the fastest of RUNS plays.
static double finish(struct ops_bench *b)
{
    uint64_t best = UINT64_MAX;

    must(tape_seal(b->tape, &b->err), b);
    for (int i = 0; i < RUNS; i++) {
        uint64_t start = clock_ns();
        must(tape_play(b->tape, &b->step, &b->err), b);
        uint64_t took = clock_ns() - start;
        best = took < best ? took : best;
    }
    tape_destroy(b->tape);
    buffer_release(&b->step);
    return (double)best * 1e-9;
}

static struct tensor filled(struct ops_bench *b, uint32_t n_cols, struct buffer *buffer)
{
    uint64_t n = (uint64_t)tape_limits(b->tape)->max_rows * n_cols;

    must(buffer_alloc(b->device, n * 4, buffer, &b->err), b);
    for (uint64_t i = 0; i < n; i++)
        ((float *)buffer->host)[i] = (float)((i * 2654435761u >> 16) % 2001) / 1000 - 1;
    return tape_tensor_bound(b->tape, n_cols, ROWS_STEP, buffer);
}

static void random_weight(struct ops_bench *b, enum quant q, uint32_t n_rows, uint32_t n_cols,
                          struct weight *w, unsigned char **data)
{
    struct weight_source s = {
        .n_rows = n_rows, .n_cols = n_cols, .format = q, .use = WEIGHT_PRODUCT, .name = "w"
    };

    must(quant_bytes(q, n_rows, n_cols, &s.bytes), b);
    *data = mem_alloc_aligned(s.bytes, 64);
    for (uint64_t i = 0; i < s.bytes; i++) // small halves, bf16 and floats too, whatever the field
        (*data)[i] = i % 2 ? 0x2c : (unsigned char)(i * 2654435761u >> 13);
    s.data = *data;
    must(weight_create(b->device, &s, w, &b->err), b);
}

struct ops_product {
    enum quant q;
    uint32_t n_out, n_cols, n_rows;
    bool exact;
};

static double time_matmul(struct device *d, const struct ops_product *p, uint64_t *bytes)
{
    struct ops_bench b;
    struct weight w;
    struct buffer in, out;
    unsigned char *data;

    begin(&b, d, p->n_rows, p->exact);
    random_weight(&b, p->q, p->n_out, p->n_cols, &w, &data);
    *bytes = w.bytes;
    op_matmul(b.tape, (struct matmul){
                          .in = filled(&b, p->n_cols, &in), .out = filled(&b, p->n_out, &out), .w = &w });
    double seconds = finish(&b);
    weight_release(&w);
    buffer_release(&in);
    buffer_release(&out);
    mem_free_aligned(data);
    return seconds;
}

#if defined(CPU_X86)
#include <immintrin.h>
TARGET("avx512f,avx512vnni") static void int8_chains(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        __asm__ volatile("vpdpbusd %%zmm30,%%zmm31,%%zmm0\nvpdpbusd %%zmm30,%%zmm31,%%zmm1\nvpdpbusd "
                         "%%zmm30,%%zmm31,%%zmm2\n"
                         "vpdpbusd %%zmm30,%%zmm31,%%zmm3\nvpdpbusd %%zmm30,%%zmm31,%%zmm4\nvpdpbusd "
                         "%%zmm30,%%zmm31,%%zmm5\n"
                         "vpdpbusd %%zmm30,%%zmm31,%%zmm6\nvpdpbusd %%zmm30,%%zmm31,%%zmm7\nvpdpbusd "
                         "%%zmm30,%%zmm31,%%zmm8\n"
                         "vpdpbusd %%zmm30,%%zmm31,%%zmm9\n" ::
                             : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",
                               "xmm9");
}
#endif

// Operations per second of one thread, or 0 where no probe is written.
static double probe_int8(void)
{
    double best = 0;
#if defined(CPU_X86)
    for (int i = 0; i < RUNS && (cpu_features() & CPU_AVX512_VNNI); i++) {
        uint64_t start = clock_ns();
        int8_chains(100000);
        double speed = 100000.0 * 10 * 128 / ((double)(clock_ns() - start) * 1e-9);
        best = speed > best ? speed : best;
    }
#endif
    return best;
}

static void show_products(struct device *d, enum quant q, double int8_peak, double read_peak)
{
    struct ops_product few = { q, 65536, 4096, 1, false }, many = { q, 1024, 2048, 192, false };
    uint64_t bytes;

    printf("%-7s", quant_info(q)->name);
    for (few.n_rows = 1; few.n_rows <= 8; few.n_rows *= 2) {
        double s = time_matmul(d, &few, &bytes);
        printf("  %5.1f %3.0f%%", (double)bytes / s * 1e-9, (double)bytes / s / read_peak * 100);
    }
    for (int exact = 0; exact < 2; exact++) {
        many.exact = exact;
        double ops = 2.0 * many.n_out * many.n_cols * many.n_rows / time_matmul(d, &many, &bytes);
        printf("  %6.0f %3.0f%%", ops * 1e-9, int8_peak > 0 ? ops / int8_peak * 100 : 0);
    }
    printf("\n");
    fflush(stdout);
}

struct attention {
    const char *name;
    uint32_t n_heads, n_kv_heads, head_dim, n_rows, depth;
    enum kv_format format;
};

static double time_attend(struct device *d, const struct attention *a, uint64_t *bytes)
{
    struct ops_bench b;
    struct buffer q, out, k, v, table;
    uint32_t n_pages = (a->depth + a->n_rows) / PAGE_TOKENS + 1;
    struct page_shape shape = { a->n_kv_heads, a->head_dim, n_pages, (u16)a->format, (u16)a->format };
    uint64_t each = (uint64_t)n_pages * a->n_kv_heads * page_head_bytes(a->format, a->head_dim);

    *bytes = 2 * each;
    begin(&b, d, a->n_rows, false);
    must(buffer_alloc(d, each, &k, &b.err) && buffer_alloc(d, each, &v, &b.err) &&
             buffer_alloc(d, n_pages * 4, &table, &b.err),
         &b);
    for (uint64_t i = 0; i < each; i++)
        ((unsigned char *)k.host)[i] = ((unsigned char *)v.host)[i] =
            i % 2 ? 0x2c : (unsigned char)(i * 2654435761u >> 13);
    for (uint32_t i = 0; i < n_pages; i++)
        ((uint32_t *)table.host)[i] = i;
    for (uint32_t r = 0; r < a->n_rows; r++)
        ((uint32_t *)step_positions((struct step *)b.step.host))[r] = a->depth + r;
    op_attend(b.tape, (struct attend){ .q = filled(&b, a->n_heads * a->head_dim, &q),
                                       .out = filled(&b, a->n_heads * a->head_dim, &out),
                                       .pages = { &k, &v, &table, shape },
                                       .scale = 0.125f });
    double seconds = finish(&b);
    struct buffer *buffers[] = { &q, &out, &k, &v, &table };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        buffer_release(buffers[i]);
    return seconds;
}

// One row over a past that no cache holds, which memory should bound; and 128 rows, which arithmetic should.
static void show_attention(struct device *d, double read_peak)
{
    static const struct attention shapes[] = { { "32:4 x 64 bf16", 32, 4, 64, 1, 65536, KV_BF16 },
                                               { "32:4 x 64 f16", 32, 4, 64, 1, 65536, KV_F16 },
                                               { "32:4 x 64 q8_0", 32, 4, 64, 1, 65536, KV_Q8_0 },
                                               { "16:8 x 128 bf16", 16, 8, 128, 1, 32768, KV_BF16 },
                                               { "16:8 x 128 q8_0", 16, 8, 128, 1, 32768, KV_Q8_0 },
                                               { "9:3 x 64 bf16", 9, 3, 64, 1, 65536, KV_BF16 } };

    printf("heads:KV heads x dim   GB/s at 1 row   ns a key, head and row: 1 row  128 rows at depth 4096\n");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct attention a = shapes[i];
        uint64_t bytes, ignored;
        double one = time_attend(d, &a, &bytes), keys = (double)a.depth * a.n_heads;
        a.n_rows = 128;
        a.depth = 4096;
        double many = time_attend(d, &a, &ignored);
        printf("%-20s %9.1f %4.0f%% %26.2f %9.2f\n", a.name, (double)bytes / one * 1e-9,
               (double)bytes / one / read_peak * 100, one / keys * 1e9,
               many / (4096.0 + 64) / 128 / a.n_heads * 1e9);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    uint64_t n_threads = 1, features = 0;
    struct err err = { 0 };

    if ((argc > 1 && (!str_to_u64(str_from(argv[1]), &n_threads) || n_threads < 1 || n_threads > 1024)) ||
        (argc > 3 && (!str_to_u64(str_from(argv[3]), &features) || features > CPU_ALL))) {
        fprintf(stderr, "usage: bench_ops [threads] [format, attention or all] [features]\n");
        return 1;
    }
    const struct cpu_options options = { .n_threads = (unsigned)n_threads,
                                         .features = (uint32_t)features,
                                         .table = &cpu_table };
    struct device *d = cpu_open(&options, &err);
    if (!d) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    double int8_peak = probe_int8() * (double)n_threads, read_peak = bandwidth_read((unsigned)n_threads);
    printf("%u thread(s): int8 peak %.0f GOP/s, reads %.1f GB/s\n", (unsigned)n_threads, int8_peak * 1e-9,
           read_peak * 1e-9);
    printf("format   GB/s at 1 row      2 rows      4 rows      8 rows    GOP/s, 192 rows        exact\n");
    for (enum quant q = 0; q < N_WEIGHT_QUANTS; q++)
        if (argc < 3 || strcmp(argv[2], "all") == 0 || strcmp(argv[2], quant_info(q)->name) == 0)
            show_products(d, q, int8_peak, read_peak);
    if (argc < 3 || strcmp(argv[2], "all") == 0 || strcmp(argv[2], "attention") == 0)
        show_attention(d, read_peak);
    device_close(d);
    return 0;
}
