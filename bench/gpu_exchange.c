// gpu_exchange.c - the time of an all-reduce between GPUs, inside a CUDA graph: bench_gpu_exchange RANKS
// [COLS...].
//
// For each number of columns and rows it plays a tape of 64 all-reduces several times and prints the median
// time divided by 64, in us. It does not show what overlaps with a product before or after.
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/stats.h"
#include "device/exchange_rig.h"

enum { N_SUMS = 64, N_PLAYS = 5, N_ROUNDS = 9 };

static void must(bool ok, const struct err *err)
{
    if (ok)
        return;
    fprintf(stderr, "bench_gpu_exchange: %s\n", err->message);
    exit(1);
}

static double us_of(struct exchange_rig *r, struct rig_tape *t)
{
    double times[N_ROUNDS];
    struct err err = { 0 };

    for (uint32_t i = 0; i < N_ROUNDS; i++) {
        uint64_t begun = clock_ns();
        for (uint32_t k = 0; k < N_PLAYS; k++)
            must(rig_play(r, t, r->n, &err), &err);
        must(rig_wait(r, &err), &err);
        times[i] = (double)(clock_ns() - begun) / 1000 / (N_PLAYS * N_SUMS);
    }
    return stats_median(times, N_ROUNDS);
}

int main(int argc, char **argv)
{
    static const uint32_t rows[] = { 1, 8, 16, 64, 128, 512, 1024, 2048 };
    uint32_t n = argc > 1 ? (uint32_t)atoi(argv[1]) : 2;

    printf("| ranks | columns | rows | us an all-reduce |\n| --- | --- | --- | --- |\n");
    for (int c = 2; c < argc; c++) {
        struct exchange_shape shape = { .n_cols = (uint32_t)atoi(argv[c]),
                                        .most_rows = 2048,
                                        .max_outputs = 1,
                                        .part_cols = { 64, 64, 64, 64 } };
        struct exchange_rig r;
        struct err err = { 0 };
        must(rig_open(&r, n, &shape, &err), &err);
        if (r.ranks.n == 0)
            err_set(&err, ERR_UNSUPPORTED, "the GPUs do not reach each other's memory");
        must(r.ranks.n > 0, &err);
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            struct rig_tape t = { .limits = { .max_rows = rows[k], .max_outputs = 1 }, .n_sums = N_SUMS };
            must(rig_tape_make(&r, &t, &err), &err);
            t.step->n_rows = rows[k];
            printf("| %u | %u | %u | %.2f |\n", n, shape.n_cols, rows[k], us_of(&r, &t));
            rig_tape_free(&r, &t);
        }
        rig_close(&r);
    }
    return 0;
}
