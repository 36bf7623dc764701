// bench_image.c - see bench_image.h. From the bytes of the file, or the pixels of a drawn picture, to the
// last token. The engine keeps nothing from round to round, neither embeddings nor pages.
#include "main/bench_image.h"
#include <string.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/thread_pool.h"
#include "main/loading.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/out_rows.h"
#include "main/terminal/signals.h"

enum { FILE_BYTES = 20 << 20, MOST_SIDE = 16384, NAME_COLUMNS = 24 };
static const char QUESTION[] = "What is in the picture?";

// In the order in which they happen. The first token counts from the file's bytes and holds all before it.
enum { READ, SPLIT, PATCH, ENCODE, CONNECT, PREFILL, FIRST_TOKEN, DECODE, N_STAGES };
static const struct {
    const char *head, *field;
} stages[N_STAGES] = {
    [READ] = { "decode", "image_read_ms" },
    [SPLIT] = { "resize", "image_split_ms" },
    [PATCH] = { "patches", "patch_ms" },
    [ENCODE] = { "encoder", "encode_ms" },
    [CONNECT] = { "connector", "connect_ms" },
    [PREFILL] = { "prefill", "prefill_ms" },
    [FIRST_TOKEN] = { "first token", "first_token_ms" },
    [DECODE] = { "answer", "decode_ms" },
};

struct image_bench {
    const struct settings *settings;
    struct ingot_engine *engine;
    struct ingot_engine_info info;
    struct out_rows rows;
    double *samples; // [N_STAGES][repetitions]
};

struct bench_picture {
    const char *name;
    struct buf file;        // empty: the picture is drawn
    uint32_t width, height; // of a drawn one
};

// ---- pictures

static bool parse_size(struct bench_picture *p, const char *text)
{
    struct str s = str_from(text);
    size_t x = str_find(s, STR("x"));
    uint64_t width, height;

    if (x == SIZE_MAX || !str_to_u64(str_from_to(s, 0, x), &width) ||
        !str_to_u64(str_from_to(s, x + 1, s.n), &height) || width < 1 || height < 1 || width > MOST_SIDE ||
        height > MOST_SIDE)
        return false;
    p->width = (uint32_t)width;
    p->height = (uint32_t)height;
    return true;
}

static bool picture_open(struct bench_picture *p, const char *name, struct err *err)
{
    bool is_size = strchr(name, 'x') && name[strspn(name, "0123456789x")] == 0;

    *p = (struct bench_picture){ .name = name, .file.max = FILE_BYTES };
    if (file_exists(name) || !is_size)
        return file_read(&p->file, name, FILE_BYTES, err);
    return parse_size(p, name) || err_set(err, ERR_INPUT,
                                          "--image: found '%.40s', expected a picture's file, or two numbers "
                                          "from 1 to %d, as in 1024x768",
                                          name, MOST_SIDE);
}

// Blocks of many colours with noise, so that no two tiles are alike.
static struct ingot_picture *draw(const struct bench_picture *p, struct ingot_error *error)
{
    uint8_t *rgb = mem_alloc_array((size_t)p->width * p->height, 3);
    uint32_t noise = 1;

    for (size_t i = 0; rgb && i < (size_t)p->width * p->height * 3; i++) {
        size_t x = i / 3 % p->width, y = i / 3 / p->width;
        noise = noise * 1664525u + 1013904223u;
        rgb[i] = (uint8_t)(x / 16 * 40 + y / 16 * 24 * (i % 3 + 1) + (noise >> 28));
    }
    struct ingot_picture *picture = rgb ? ingot_picture_from_rgb(rgb, p->width, p->height, 0, error) : NULL;
    if (!rgb)
        err_memory((struct err *)error, "a picture");
    mem_free(rgb);
    return picture;
}

// ---- rounds

static bool ask(const struct image_bench *b, const struct bench_picture *p, struct ingot_result *result,
                struct ingot_error *error)
{
    struct ingot_request_options o = ingot_request_defaults();
    struct ingot_picture *picture =
        p->file.n ? ingot_picture_from_memory(p->file.at, p->file.n, error) : draw(p, error);
    const struct ingot_picture *shown = picture;

    if (!picture)
        return false;
    o.text = QUESTION;
    o.pictures = &shown;
    o.n_pictures = 1;
    o.no_split = b->settings->no_split;
    o.max_tokens = b->settings->n_gen.n && b->settings->n_gen.at[0] ? b->settings->n_gen.at[0] : 1;
    o.ignore_eos = true;
    o.on_step = signals_go_on;
    bool ok = ingot_generate(b->engine, &o, NULL, NULL, result, error);
    ingot_picture_free(picture);
    if (ok && result->finish == INGOT_FINISH_CANCELLED)
        return err_set((struct err *)error, ERR_CANCELLED, "stopped");
    return ok;
}

static void keep(double *samples, uint32_t n, uint32_t round, const struct ingot_result *r)
{
    samples[READ * n + round] = r->read_ms;
    samples[SPLIT * n + round] = r->split_ms;
    samples[ENCODE * n + round] = r->encode_ms;
    samples[PREFILL * n + round] = r->prefill_ms - r->encode_ms;
    samples[FIRST_TOKEN * n + round] = r->read_ms + r->first_token_ms;
    samples[DECODE * n + round] = r->decode_ms;
}

// A GPU plays the encoder as one graph: there patch embedding and connector are measured apart in a second
// request, which is slower. The encoder's own time is what is left.
static bool run_round(const struct image_bench *b, const struct bench_picture *p, uint32_t round,
                      struct ingot_result *result, struct err *err)
{
    struct ingot_error *error = (struct ingot_error *)err;
    uint32_t n = b->settings->repetitions;

    if (!ask(b, p, result, error))
        return false;
    struct ingot_result apart = *result;
    if (apart.patch_ms == 0) {
        ingot_time_stages(b->engine, true);
        bool ok = ask(b, p, &apart, error);
        ingot_time_stages(b->engine, false);
        if (!ok)
            return false;
    }
    keep(b->samples, n, round, result);
    double parts = apart.patch_ms + apart.connect_ms;
    b->samples[PATCH * n + round] = apart.patch_ms;
    b->samples[CONNECT * n + round] = apart.connect_ms;
    b->samples[ENCODE * n + round] = result->encode_ms > parts ? result->encode_ms - parts : 0;
    return !signals_interrupts() || err_set(err, ERR_CANCELLED, "stopped");
}

static double median(const struct image_bench *b, uint32_t stage)
{
    return stats_median(b->samples + (size_t)stage * b->settings->repetitions, b->settings->repetitions);
}

// ---- printing

static void print_head(void)
{
    out_printf("| %-*s | tiles | prompt |", NAME_COLUMNS, "picture");
    for (int i = 0; i < N_STAGES; i++)
        out_printf(" %11s |", stages[i].head);
    out_printf("\n|%.*s|------:|-------:|", NAME_COLUMNS + 2, "----------------------------------------");
    for (int i = 0; i < N_STAGES; i++)
        out_text("------------:|");
    out_text("\n");
}

static void print_row(const struct image_bench *b, const struct bench_picture *p,
                      const struct ingot_result *r)
{
    const char *slash = strrchr(p->name, '/');

    out_printf("| %-*.*s | %5u | %6u |", NAME_COLUMNS, NAME_COLUMNS, slash ? slash + 1 : p->name, r->n_tiles,
               r->n_prompt);
    for (uint32_t i = 0; i < N_STAGES; i++)
        out_printf(" %11.2f |", median(b, i));
    out_text("\n");
    out_flush();
}

static void print_foot(const struct image_bench *b)
{
    out_printf(
        "\nmilliseconds, medians of %u; %s, %s. First token: from the file's bytes. Answer: the tokens "
        "after the first, of %u.\n",
        b->settings->repetitions, b->info.model_name, b->info.device,
        b->settings->n_gen.n && b->settings->n_gen.at[0] ? b->settings->n_gen.at[0] : 1);
}

static json_t *row_json(const struct image_bench *b, const struct bench_picture *p,
                        const struct ingot_result *r)
{
    const struct settings *s = b->settings;
    uint32_t n = s->repetitions;
    json_t *row = json_pack("{s:s, s:s, s:s, s:i, s:s, s:i, s:i, s:i, s:i}", "model", b->info.model_name,
                            "model_type", b->info.format, "device", b->info.device, "n_threads",
                            (int)(s->n_threads ? s->n_threads : thread_count_available()), "picture", p->name,
                            "n_tiles", (int)r->n_tiles, "n_prompt", (int)r->n_prompt, "n_gen",
                            (int)r->n_generated, "repetitions", (int)n);

    for (uint32_t i = 0; row && i < N_STAGES; i++)
        json_object_set_new(row, stages[i].field, json_real(median(b, i)));
    stats_sort(b->samples + FIRST_TOKEN * n, n);
    if (row) {
        json_object_set_new(row, "first_token_ms_min", json_real(b->samples[FIRST_TOKEN * n]));
        json_object_set_new(row, "first_token_ms_max", json_real(b->samples[FIRST_TOKEN * n + n - 1]));
    }
    return row;
}

// ---- one picture after the other

static bool run_picture(struct image_bench *b, const char *name, struct err *err)
{
    struct bench_picture p;
    struct ingot_result result;
    bool ok = picture_open(&p, name, err);

    if (ok && !b->settings->no_warmup)
        ok = ask(b, &p, &result, (struct ingot_error *)err);
    for (uint32_t i = 0; ok && i < b->settings->repetitions; i++)
        ok = run_round(b, &p, i, &result, err);
    if (ok && !strcmp(b->settings->output, "md"))
        print_row(b, &p, &result);
    else if (ok)
        out_rows_add(&b->rows, row_json(b, &p, &result));
    buf_free(&p.file);
    return ok;
}

static bool run_pictures(struct image_bench *b, struct err *err)
{
    bool table = !strcmp(b->settings->output, "md"), ok = true;

    if (table)
        print_head();
    else
        out_rows_begin(&b->rows);
    for (size_t i = 0; ok && i < b->settings->images.n && out_state() == OUT_OPEN; i++)
        ok = run_picture(b, b->settings->images.at[i], err);
    if (table && ok)
        print_foot(b);
    else if (!table)
        out_rows_end(&b->rows);
    return ok;
}

// Before a model is loaded for minutes.
static bool check_pictures(const struct settings *s, struct err *err)
{
    bool ok = true;

    for (size_t i = 0; ok && i < s->images.n; i++) {
        struct bench_picture p;
        ok = picture_open(&p, s->images.at[i], err);
        buf_free(&p.file);
    }
    return ok;
}

// The first of -t, -b, -dev, -ctk and -ctv.
static struct settings settings_of(const struct settings *all)
{
    struct settings s = *all;

    s.n_threads = all->bench_threads.at[0];
    s.n_batch = all->bench_batch.at[0];
    s.device = all->bench_device.at[0];
    s.cache_type_k = all->bench_type_k.at[0];
    s.cache_type_v = all->bench_type_v.at[0];
    s.model = all->model ? all->model : INGOT_BUILTIN_EYES;
    s.no_prefix_cache = true;
    s.cache_dir = NULL;
    return s;
}

int bench_image(const struct settings *all)
{
    struct settings s = settings_of(all);
    struct image_bench b = { .settings = &s, .rows.format = s.output };
    struct err err = { 0 };

    if (!check_pictures(&s, &err))
        return err.code == ERR_INPUT ? fail_usage("%s", err.message) : fail(err.message);
    b.engine = loading_engine(&s, 1);
    if (!b.engine)
        return STATUS_ERROR;
    ingot_engine_info(b.engine, &b.info);
    b.samples = mem_alloc_array((size_t)N_STAGES * s.repetitions, sizeof *b.samples);
    bool ok = b.samples || err_memory(&err, "the measurements");
    if (!b.info.takes_pictures)
        ok =
            err_set(&err, ERR_UNSUPPORTED, "%s has no eyes; name one that takes pictures", b.info.model_name);
    ok = ok && run_pictures(&b, &err);
    mem_free(b.samples);
    ingot_engine_close(b.engine);
    if (ok)
        return out_finish();
    fail(err.message);
    return err.code == ERR_CANCELLED ? STATUS_INTERRUPTED : STATUS_ERROR;
}
