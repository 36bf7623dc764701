// gpu_decode.c - products of one and few rows on an NVIDIA GPU, every format at the shapes of an 8B and a
// 24B: bench_gpu_decode [jsonl] [FORMAT [BITS]]; BITS: of EXL3, 4 by default.
//
// Prints the time (us) and bandwidth (GB/s, of the file's bytes) of each matrix with 1, 8 and 16 rows, as a
// node of a graph. Several copies of a matrix alternate, so that each read comes from memory; the time
// includes the edge to the next node. Then one launch over many weight rows: the kernel's bandwidth without
// edges. Weights are random; tests check the results.
#include <stdio.h>
#include <string.h>
#include "base/mem.h"
#include "device/cuda/cuda.h"
#include "gpu_turns.h"
#include "ops/cuda_table.h"
#include "ops/matmul/matmul.h"
#include "quant/exl3.h"

enum { MOST_COPIES = 64, N_ROW_COUNTS = 3 };
static const uint64_t STREAM_BYTES = 768 << 20;
static const uint32_t row_counts[N_ROW_COUNTS] = { 1, 8, 16 };

struct decode_shape {
    const char *model, *name;
    uint32_t n_out, n_cols;
};
static const struct decode_shape shapes[] = {
    { "8B", "q, k, v", 6144, 4096 }, { "8B", "o", 4096, 4096 },          { "8B", "gate, up", 28672, 4096 },
    { "8B", "down", 4096, 14336 },   { "8B", "head", 128256, 4096 },     { "24B", "q, k, v", 6144, 5120 },
    { "24B", "o", 5120, 4096 },      { "24B", "gate, up", 65536, 5120 }, { "24B", "down", 5120, 32768 },
    { "24B", "head", 131072, 5120 },
};

static bool jsonl;
static uint8_t *random_bytes;
static uint64_t n_random;

static uint32_t exl3_width = 4;

// Of EXL3: of whole blocks of 128 rows, or of one row without factors.
static uint64_t matrix_bytes(enum quant format, uint64_t n_out, uint32_t n_cols)
{
    uint64_t bytes = 0;

    if (format >= QUANT_EXL3)
        return n_out == 1 ? (uint64_t)n_cols / 8 * exl3_width : exl3_bytes(n_cols, (u32)n_out, exl3_width);
    quant_bytes(format, n_out, n_cols, &bytes);
    return bytes;
}

// The same random bytes for every matrix: a launch reads each once.
static const void *weights_of(uint64_t bytes)
{
    if (bytes > n_random) {
        random_bytes = mem_realloc(random_bytes, bytes);
        for (; n_random + 4 <= bytes; n_random += 4) {
            uint32_t word = random_word();
            memcpy(random_bytes + n_random, &word, 4);
        }
    }
    return random_bytes;
}

static struct weight take_weight(enum quant format, uint32_t n_out, uint32_t n_cols)
{
    struct weight_source s = {
        .n_rows = n_out, .n_cols = n_cols, .format = format, .use = WEIGHT_PRODUCT, .name = "w"
    };
    struct weight w;
    struct err err = { 0 };

    s.bytes = matrix_bytes(format, n_out, n_cols);
    s.data = weights_of(s.bytes);
    must(weight_create(gpu, &s, &w, &err), &err);
    return w;
}

// Microseconds of a product, of n copies of a matrix in turn.
static double time_product(const struct weight *w, uint32_t n, uint32_t n_rows)
{
    struct buffer x = device_buffer(NULL, (uint64_t)n_rows * w->n_cols * 4),
                  out = device_buffer(NULL, (uint64_t)n_rows * w->n_rows * 4);
    struct recorded r = record_begin(n_rows, n, GEMM_OWN);
    struct tensor in = tape_tensor_bound(r.tape, w->n_cols, ROWS_STEP, &x),
                  to = tape_tensor_bound(r.tape, w->n_rows, ROWS_STEP, &out);
    struct err err = { 0 };
    double us;

    tape_label(r.tape, "product");
    for (uint32_t i = 0; i < n; i++)
        op_matmul(r.tape, (struct matmul){ .in = in, .out = to, .w = &w[i] });
    must(tape_seal(r.tape, &err), &err);
    race(&(struct contender){ .play = play_tape, .arg = &r }, 1, &us);
    record_end(&r);
    buffer_release(&x);
    buffer_release(&out);
    return us;
}

static double stream(enum quant format, uint32_t n_cols)
{
    uint64_t row = matrix_bytes(format, 1, n_cols);
    struct weight w = take_weight(format, (uint32_t)(STREAM_BYTES / row / 128 * 128), n_cols);
    double us = time_product(&w, 1, 1), gb_s = (double)(w.n_rows * row) / us * 1e-3;

    weight_release(&w);
    return gb_s;
}

static void show(enum quant format, const struct decode_shape *s, double stream_gb_s)
{
    uint64_t bytes = matrix_bytes(format, s->n_out, s->n_cols);
    uint32_t n = (uint32_t)((COLD_BYTES + bytes - 1) / bytes);
    struct weight w[MOST_COPIES];
    double us[N_ROW_COUNTS];

    for (uint32_t i = 0; i < n; i++)
        w[i] = take_weight(format, s->n_out, s->n_cols);
    for (uint32_t i = 0; i < N_ROW_COUNTS; i++)
        us[i] = time_product(w, n, row_counts[i]);
    printf(jsonl ? "{\"decode\": \"%s\", \"model\": \"%s\", \"product\": \"%s\", \"n_out\": %u, \"n_cols\": "
                   "%u, \"us_1\": %.2f, "
                   "\"us_8\": %.2f, \"us_16\": %.2f, \"gb_s_1\": %.0f, \"stream_gb_s\": %.0f}\n"
                 : "| %s | %s %s, %u x %u | %.1f | %.1f | %.1f | %.0f | %.0f |\n",
           quant_info(format)->name, s->model, s->name, s->n_out, s->n_cols, us[0], us[1], us[2],
           (double)bytes / us[0] * 1e-3, stream_gb_s);
    fflush(stdout);
    for (uint32_t i = 0; i < n; i++)
        weight_release(&w[i]);
}

static void show_format(enum quant format)
{
    uint32_t known_cols[sizeof shapes / sizeof *shapes], n_known = 0;
    double known[sizeof shapes / sizeof *shapes];

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        uint32_t k = 0;
        while (k < n_known && known_cols[k] != shapes[i].n_cols)
            k++;
        if (k == n_known) {
            known_cols[n_known] = shapes[i].n_cols;
            known[n_known++] = stream(format, shapes[i].n_cols);
        }
        show(format, &shapes[i], known[k]);
    }
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    enum quant only = N_WEIGHT_QUANTS;

    jsonl = argc > 1 && strcmp(argv[1], "jsonl") == 0;
    uint64_t width = exl3_width;
    if (argc > 3 + jsonl || (argc > 1 + jsonl && !quant_from_name(str_from(argv[1 + jsonl]), &only)) ||
        (argc > 2 + jsonl && !str_to_u64(str_from(argv[2 + jsonl]), &width)) || width < 1 ||
        width > EXL3_MAX_BITS) {
        fprintf(stderr, "usage: bench_gpu_decode [jsonl] [FORMAT [BITS]]\n");
        return 1;
    }
    exl3_width = (uint32_t)width;
    gpu = cuda_open(0, &cuda_table, &err);
    must(gpu != NULL, &err);
    if (!jsonl)
        printf("| format | product | 1 row, us | 8 rows | 16 rows | GB/s, 1 row | GB/s, streamed "
               "|\n|---|---|---|---|---|---|---|\n");
    for (enum quant format = QUANT_F16; format < N_WEIGHT_QUANTS; format++)
        if (only == N_WEIGHT_QUANTS || format == only)
            show_format(format);
    if (only >= QUANT_EXL3)
        show_format(only);
    mem_free(random_bytes);
    device_close(gpu);
    return 0;
}
