// bench_report.h - prints what ingot bench measured: as a table, or with llama-bench's field names as JSON,
// JSON lines or CSV.
#pragma once
#include "model_tools/bench_measure.h"
#include "model_tools/model_info.h"
#include "main/terminal/out_rows.h"
#include "main/settings.h"

struct bench_row {
    struct bench_test test;
    const char *label; // its combination of -t, -dev, -b, -ctk and -ctv; "" when there is only one
    uint32_t n_samples;
    double *samples_ms, *samples_ts; // [n_samples]: time of a run; tokens per second
    double *first_ms;                // [n_samples] to the first token
    double *gaps_ms;                 // [n_gaps] between tokens, sorted
    size_t n_gaps;
    double *peer_ts; // [peers][repetitions] tokens per second of each peer
    double share;    // of the memory's reading speed
};

struct bench_report {
    const struct settings *settings;
    const struct model_info *model;
    struct ingot_engine_info info;
    uint32_t n_threads;
    double bandwidth; // of the processor's memory around this row, bytes per second; 0 when the model runs
                      // elsewhere
    struct out_rows rows;
};

bool bench_on_cpu(const struct bench_report *r);
void bench_head(const struct bench_report *r);
void bench_print(struct bench_report *r, const struct bench_row *row);
// Below the table: latencies, and the comparison with a peer. Nothing in other formats, where they are
// fields.
void bench_lines(const struct bench_report *r, const struct bench_row *row);
void bench_foot(const struct bench_report *r);
// Draws the rows as bars, to an SVG.
bool bench_plot(const char *path, const struct bench_report *r, const struct bench_row *rows, uint32_t n,
                struct err *err);
// "pp512+tg128 @ d4096 b512"
void bench_row_name(const struct bench_row *row, char *name, size_t n);
