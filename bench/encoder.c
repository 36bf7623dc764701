// encoder.c - a tower of pictures on a device: bench_encoder MMPROJ COLUMNS [DEVICE [TILES
// [error|outliers]]]. COLUMNS: of an embedding, as the text model has them; DEVICE: cuda (the default) or
// cpu. TILES: only this number is timed, for a profiler; `error`: also how far its results are from exact
// ones, as normalised squared errors; `outliers`: the same where some rows and columns of a Q8_0 file's
// layers are larger.
//
// First the median time of encoding 1, 2, 4 and 17 tiles: from pixels in host memory to embeddings, then from
// pixels in device memory. Then where the time goes
// in the largest play: each command alone, many times in a row, summed by operation and label.
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "device/cpu/cpu.h"
#include "device/tape_internal.h"
#include "engine/stage/vision.h"
#include "ops/cpu_table.h"
#include "ops/cuda_table.h"
#include "quant/q8_0.h"

enum { MOST_TILES = 17, RUNS = 15, ALONE = 10, MOST_PARTS = 64 };

static void must(bool ok, const struct err *err)
{
    if (ok)
        return;
    fprintf(stderr, "bench_encoder: %s\n", err->message);
    exit(1);
}

static void encode_all(struct vision *v, const uint8_t *rgb, uint32_t n_tiles)
{
    struct vision_tile tiles[VISION_MOST_TILES];
    struct err err = { 0 };

    for (uint32_t at = 0, n; at < n_tiles; at += n) {
        n = n_tiles - at < vision_most_tiles(v) ? n_tiles - at : vision_most_tiles(v);
        for (uint32_t i = 0; i < n; i++)
            tiles[i] = (struct vision_tile){ rgb + (at + i) * vision_tile_bytes(v), at + i };
        must(vision_encode(v, tiles, n, &err), &err);
    }
    must(v->device->ops->wait(v->device, &err), &err);
}

// Of what was encoded last, from pixels that are there.
static double time_play(struct vision *v)
{
    double ms[RUNS];
    struct err err = { 0 };

    for (uint32_t i = 0; i < RUNS; i++) {
        uint64_t begun = clock_ns();
        must(tape_play(v->tapes[v->bucket], &v->step, &err) && v->device->ops->wait(v->device, &err), &err);
        ms[i] = (double)(clock_ns() - begun) * 1e-6;
    }
    return stats_median(ms, RUNS);
}

static void time_tiles(struct vision *v, const uint8_t *rgb, uint32_t n_tiles)
{
    double ms[RUNS];

    encode_all(v, rgb, n_tiles);
    for (uint32_t i = 0; i < RUNS; i++) {
        uint64_t begun = clock_ns();
        encode_all(v, rgb, n_tiles);
        ms[i] = (double)(clock_ns() - begun) * 1e-6;
    }
    printf("%2u tiles: %.3f ms", n_tiles, stats_median(ms, RUNS));
    if (n_tiles <= vision_most_tiles(v))
        printf(", %.3f from the device's pixels", time_play(v));
    printf("\n");
}

struct tape_part {
    const char *op, *name;
    double us;
    uint32_t n;
};

// "vision.layer3.up" and "vision.layer4.up" are one part.
static struct tape_part *part_of(struct tape_part *parts, const struct command *c)
{
    const char *name = strrchr(c->label, '.') ? strrchr(c->label, '.') + 1 : c->label;
    uint32_t i = 0;

    while (i + 1 < MOST_PARTS && parts[i].op &&
           (strcmp(parts[i].op, c->name) != 0 || strcmp(parts[i].name, name) != 0))
        i++;
    parts[i].op = c->name;
    parts[i].name = name;
    return &parts[i];
}

static double time_command(struct vision *v, struct tape *t, uint32_t i)
{
    struct err err = { 0 };
    double us[3];

    for (uint32_t run = 0; run < 3; run++) {
        uint64_t begun = clock_ns();
        for (uint32_t k = 0; k < ALONE; k++)
            must(v->device->ops->play(v->device, t, &v->step, i, i + 1, &err), &err);
        must(v->device->ops->wait(v->device, &err), &err);
        us[run] = (double)(clock_ns() - begun) * 1e-3 / ALONE;
    }
    return stats_median(us, 3);
}

static void time_commands(struct vision *v, const uint8_t *rgb)
{
    struct tape *t = v->tapes[v->n_buckets - 1];
    struct tape_part parts[MOST_PARTS] = { { 0 } };

    encode_all(v, rgb, vision_most_tiles(v));
    for (uint32_t i = 0; i < t->n_commands; i++) {
        struct tape_part *p = part_of(parts, &t->commands[i]);
        p->us += time_command(v, t, i);
        p->n++;
    }
    for (uint32_t i = 0; i < MOST_PARTS && parts[i].op; i++)
        printf("  %-12s %-10s %4u times, %9.1f us each\n", parts[i].op, parts[i].name, parts[i].n,
               parts[i].us / parts[i].n);
}

// About 1, and three times that for one in 128.
static float draw_factor(uint32_t *random)
{
    float sum = 0;

    for (uint32_t i = 0; i < 6; i++) {
        *random = *random * 1664525u + 1013904223u;
        sum += (float)(*random >> 8) / (1 << 24) - 0.5f; // of variance 1 / 12
    }
    return expf(0.5f * sum) * (*random >> 16 & 127 ? 1 : 3);
}

// Of a random tower, which has none: the same rows in all layers, so that the residual stream has columns
// that are always large, and biases by which hidden units are seldom active.
static void add_outliers(struct file_tensor *t)
{
    static const char *const parts[] = { ".ln1.weight",    ".ln2.weight",  ".attn_v.weight",
                                         ".ffn_up.weight", ".ffn_up.bias", ".ffn_down.weight" };
    uint64_t n_rows = t->dims[0], bytes = t->bytes / n_rows;
    uint32_t random = 7;
    bool gets_them = false;

    for (uint32_t i = 0; i < sizeof parts / sizeof *parts; i++)
        gets_them = gets_them || str_ends(t->name, str_from(parts[i]));
    if (!gets_them)
        return;
    unsigned char *data = mem_alloc(t->bytes); // until the process ends
    memcpy(data, t->data, t->bytes);
    for (uint64_t r = 0; r < n_rows; r++) {
        float factor = draw_factor(&random), *number = (float *)(data + r * bytes);
        struct q8_0 *blocks = (struct q8_0 *)number;
        if (t->format == QUANT_F32)
            *number = str_ends(t->name, STR("bias")) ? *number - factor : *number * factor;
        for (uint64_t i = 0; t->format == QUANT_Q8_0 && i < bytes / sizeof *blocks; i++)
            blocks[i].d = quant_float_to_half(half_to_float(blocks[i].d) * factor);
    }
    t->data = data;
}

static float *read_all(const struct buffer *b, uint64_t n)
{
    float *numbers = mem_alloc_array(n, sizeof *numbers);
    struct err err = { 0 };

    must(buffer_read(b, 0, numbers, n * sizeof *numbers, &err), &err);
    return numbers;
}

static double squared_error(const float *exact, const float *near, uint64_t n)
{
    double apart = 0, all = 0;

    for (uint64_t i = 0; i < n; i++) {
        apart += ((double)exact[i] - near[i]) * ((double)exact[i] - near[i]);
        all += (double)exact[i] * exact[i];
    }
    return apart / all;
}

// Of one play.
static void print_errors(struct vision_plan plan, const uint8_t *rgb, uint32_t n_tiles)
{
    float *encoded[2], *connected[2];
    struct err err = { 0 };
    uint64_t n = 0, n_out = 0;

    for (int exact = 0; exact < 2; exact++) {
        struct vision v;
        plan.keeps_encoded = true;
        plan.exact = exact;
        must(vision_create(&v, &plan, &err), &err);
        encode_all(&v, rgb, n_tiles);
        n = (uint64_t)n_tiles * tower_tile_rows(&v.tower) * v.tower.config.n_cols;
        n_out = (uint64_t)n_tiles * tower_rows(&v.tower) * plan.n_out;
        encoded[exact] = read_all(&v.encoded, n);
        connected[exact] = read_all(&v.pool, n_out);
        vision_release(&v);
    }
    printf("%2u tiles: error of the encoder %.2e, of the connector %.2e\n", n_tiles,
           squared_error(encoded[1], encoded[0], n), squared_error(connected[1], connected[0], n_out));
    for (int exact = 0; exact < 2; exact++) {
        mem_free(encoded[exact]);
        mem_free(connected[exact]);
    }
}

int main(int argc, char **argv)
{
    static const uint32_t counts[] = { 1, 2, 4, MOST_TILES };
    struct vision_plan plan = { .n_places = MOST_TILES };
    struct model_file *file;
    struct vision v;
    struct err err = { 0 };
    uint64_t n_out, n_tiles = 0;

    bool outliers = argc > 5 && strcmp(argv[5], "outliers") == 0;
    if (argc < 3 || argc > 6 || (argc > 5 && !outliers && strcmp(argv[5], "error") != 0) ||
        !str_to_u64(str_from(argv[2]), &n_out) ||
        (argc > 4 && (!str_to_u64(str_from(argv[4]), &n_tiles) || n_tiles < 1 || n_tiles > MOST_TILES))) {
        fprintf(stderr, "bench_encoder MMPROJ COLUMNS [cuda|cpu [1..17 [error|outliers]]]\n");
        return 2;
    }
    bool cpu = argc > 3 && strcmp(argv[3], "cpu") == 0;
    must(model_file_open(&file, argv[1], &err), &err);
    for (size_t i = 0; outliers && i < model_file_n_tensors(file); i++)
        add_outliers((struct file_tensor *)model_file_tensor_at(file, i));
    struct device *d =
        cpu ? cpu_open(&(struct cpu_options){ .table = &cpu_table }, &err) : cuda_open(0, &cuda_table, &err);
    must(d != NULL, &err);
    plan.file = file;
    plan.device = d;
    plan.n_out = (uint32_t)n_out;
    must(vision_create(&v, &plan, &err), &err);
    uint8_t *rgb = mem_alloc(MOST_TILES * vision_tile_bytes(&v));
    uint32_t random = 1;
    for (uint64_t i = 0; i < MOST_TILES * vision_tile_bytes(&v); i++) {
        random = random * 1664525u + 1013904223u;
        rgb[i] = (uint8_t)(random >> 24);
    }
    for (uint32_t i = 0; i < sizeof counts / sizeof *counts && n_tiles == 0; i++)
        time_tiles(&v, rgb, counts[i]);
    if (n_tiles)
        time_tiles(&v, rgb, (uint32_t)n_tiles);
    else
        time_commands(&v, rgb);
    bool most = n_tiles <= vision_most_tiles(&v);
    vision_release(&v);
    if (argc > 5 && most)
        print_errors(plan, rgb, (uint32_t)n_tiles);
    mem_free(rgb);
    device_close(d);
    model_file_close(file);
    return 0;
}
