// collectives.c - what an all-reduce of ranks takes between the segments of a tape: bench_collectives RANKS
// [COLS...].
//
// By NCCL and in the host's memory, on GPUs 0 to RANKS - 1: N_SUMS of them in a row, a thread for each rank,
// as in a step without anything between them; then a wait. Prints the median over the rounds, divided.
// bench_gpu_exchange has the graphs' own kernel.
#include <stdio.h>
#include <stdlib.h>
#include "base/clock.h"
#include "base/stats.h"
#include "device/ranks_rig.h"

enum { N_SUMS = 64, N_ROUNDS = 9, MOST_ROWS = 2048 };
static const uint32_t rows[] = { 1, 8, 16, 32, 64, 128, 256, 512, 1024, MOST_ROWS };
enum { N_SIZES = sizeof rows / sizeof *rows };

static void must(bool ok, const struct err *err)
{
    if (ok)
        return;
    fprintf(stderr, "bench_collectives: %s\n", err->message);
    exit(1);
}

static double us_of(struct ranks_rig *r, uint32_t n_rows)
{
    double times[N_ROUNDS];

    for (uint32_t i = 0; i <= N_ROUNDS; i++) { // the first is not counted
        uint64_t begun = clock_ns();
        ranks_rig_exchange(r, n_rows, 0);
        for (uint32_t k = 0; k < r->n; k++)
            must(r->ok[k], &r->errs[k]);
        times[i ? i - 1 : 0] = (double)(clock_ns() - begun) / 1000 / r->n_sums;
    }
    return stats_median(times, N_ROUNDS);
}

static void measure(uint32_t n, uint32_t n_cols, bool by_nccl, double us[N_SIZES])
{
    struct ranks_rig *r = calloc(1, sizeof *r);
    struct err err = { 0 };

    *r = (struct ranks_rig){
        .n = n, .n_cols = n_cols, .n_vocab = 128, .most_rows = MOST_ROWS, .n_sums = N_SUMS
    };
    must(ranks_rig_open(r, by_nccl, &err), &err);
    if (by_nccl)
        fprintf(stderr, "%s\n", r->collective.communicator->name);
    for (size_t k = 0; k < N_SIZES; k++) {
        r->n_sums = by_nccl || rows[k] < 64 ? N_SUMS : 4;
        us[k] = us_of(r, rows[k]);
    }
    ranks_rig_close(r);
    free(r);
}

int main(int argc, char **argv)
{
    uint32_t n = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 2;

    printf("| ranks | columns | rows | NCCL, us | host, us |\n| --- | --- | --- | --- | --- |\n");
    for (int c = 2; c < argc; c++) {
        double nccl[N_SIZES], host[N_SIZES];
        uint32_t n_cols = (uint32_t)strtoul(argv[c], NULL, 10);
        measure(n, n_cols, true, nccl);
        measure(n, n_cols, false, host);
        for (size_t k = 0; k < N_SIZES; k++)
            printf("| %u | %u | %u | %.2f | %.2f |\n", n, n_cols, rows[k], nccl[k], host[k]);
    }
    return 0;
}
