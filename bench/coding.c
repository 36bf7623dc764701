// coding.c - how fast a device codes matrices as EXL3: bench_coding [DEVICE [N_IN N_OUT]].
// DEVICE: cuda (the default) or cpu. For 1 to 8 bits the weights a second in the last, the middle and the
// first blocks of a matrix of normal numbers; medians. The sums over what was missed before grow from the
// last block to the first.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "device/cpu/cpu.h"
#include "ops/cpu_table.h"
#include "ops/cuda_table.h"
#include "ops/trellis_search/trellis_search.h"

enum { RUNS = 3 };

static void must(bool ok, const struct err *err)
{
    if (ok)
        return;
    fprintf(stderr, "bench_coding: %s\n", err->message);
    exit(1);
}

static void fill(struct device *d, struct buffer *b, uint64_t n, float size)
{
    float *numbers = mem_alloc_array(n, sizeof *numbers);
    struct err err = { 0 };
    uint64_t state = 1;

    for (uint64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < 12; k++)
            sum += (float)((state = state * 6364136223846793005u + 1442695040888963407u) >> 40) * 0x1p-24f;
        numbers[i] = (sum - 6) * size;
    }
    must(buffer_alloc(d, n * sizeof *numbers, b, &err) &&
             buffer_write(b, 0, numbers, n * sizeof *numbers, &err),
         &err);
    mem_free(numbers);
}

static double time_block(struct tape *t, struct device *d, struct buffer *step, uint32_t block)
{
    const struct step header = { .n_rows = 1, .max_rows = 1 };
    double ms[RUNS];
    struct err err = { 0 };

    must(buffer_write(step, 0, &header, sizeof header, &err) &&
             buffer_write(step, 4 * step_at_positions(1), &block, sizeof block, &err),
         &err);
    for (int i = 0; i < RUNS; i++) {
        uint64_t begun = clock_ns();
        must(tape_play(t, step, &err) && d->ops->wait(d, &err), &err);
        ms[i] = (double)(clock_ns() - begun) * 1e-6;
    }
    return stats_median(ms, RUNS);
}

static void time_bits(struct device *d, struct trellis_search *s, struct buffer *step)
{
    const uint32_t n = s->n_in / EXL3_TILE, blocks[] = { n - 1, n / 2, 0 };
    struct tape *t = tape_create(d, (struct tape_limits){ .max_rows = 1 });
    struct err err = { 0 };

    op_trellis_search(t, s);
    must(tape_seal(t, &err), &err);
    printf("%u bits:", s->bits);
    for (int i = 0; i < 3; i++) {
        double ms = time_block(t, d, step, blocks[i]);
        printf(" block %u %.3f ms, %.2f M weights/s;", blocks[i], ms, EXL3_TILE * s->n_out / ms * 1e-3);
    }
    printf("\n");
    fflush(stdout);
    tape_destroy(t);
}

int main(int argc, char **argv)
{
    const bool cpu = argc > 1 && !strcmp(argv[1], "cpu");
    const uint32_t n_in = argc > 3 ? (uint32_t)atoi(argv[2]) : 4096,
                   n_out = argc > 3 ? (uint32_t)atoi(argv[3]) : 4096;
    struct err err = { 0 };
    struct device *d =
        cpu ? cpu_open(&(struct cpu_options){ .table = &cpu_table }, &err) : cuda_open(0, &cuda_table, &err);
    struct buffer w, l, missed, codes, step;

    must(d != NULL, &err);
    fill(d, &w, (uint64_t)n_in * n_out, 0.93f);
    fill(d, &missed, (uint64_t)n_in * n_out, 0.1f);
    fill(d, &l, (uint64_t)n_in * n_in, 0.01f);
    must(buffer_alloc(d, exl3_codes_bytes(n_in, n_out, EXL3_MAX_BITS), &codes, &err) &&
             buffer_alloc(d, step_bytes(1, 0), &step, &err),
         &err);
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        time_bits(d,
                  &(struct trellis_search){ .w = &w,
                                            .l = &l,
                                            .missed = &missed,
                                            .codes = &codes,
                                            .n_in = n_in,
                                            .n_out = n_out,
                                            .bits = bits,
                                            .codebook = EXL3_MUL1 },
                  &step);
    struct buffer *const all[] = { &w, &l, &missed, &codes, &step };
    for (int i = 0; i < 5; i++)
        buffer_release(all[i]);
    device_close(d);
    return 0;
}
