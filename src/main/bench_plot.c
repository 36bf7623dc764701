// bench_plot.c - the rows of ingot bench as bars: an SVG without outer resources that light and dark pages
// can show.
//
// Prompts and answers have a scale each, since prompts are read many times faster. A bar ends at the mean,
// its whisker spans one standard deviation to either side; a peer's bar lies below ingot's.
#include <math.h>
#include "base/file.h"
#include "base/stats.h"
#include "main/bench_report.h"
#include "main/svg.h"

enum { WIDTH = 720, LEFT = 170, RIGHT = 110, BAR = 14, GAP = 12, HEAD = 34 };
static const char *const COLOURS[] = { "#3a7bd5", "#d5573a", "#2a9d5c", "#a05ac8" };

struct bench_drawing {
    struct buf svg;
    const struct bench_report *report;
    double most; // of the panel: tokens per second
    uint32_t y;
};

static bool is_prompt(const struct bench_row *row)
{
    return row->test.n_gen == 0;
}

static size_t n_peers(const struct bench_drawing *d)
{
    return d->report->settings->peers.n;
}

static const double *samples_of(const struct bench_drawing *d, const struct bench_row *row, size_t who)
{
    return who == 0 ? row->samples_ts : row->peer_ts + (who - 1) * d->report->settings->repetitions;
}

static void draw_bar(struct bench_drawing *d, const struct bench_row *row, size_t who)
{
    const double *samples = samples_of(d, row, who);
    double mean = stats_mean(samples, row->n_samples), spread = stats_stddev(samples, row->n_samples),
           scale = (WIDTH - LEFT - RIGHT) / d->most, end = LEFT + mean * scale, middle = d->y + BAR / 2.0;

    buf_printf(
        &d->svg,
        "<rect x='%d' y='%u' width='%.1f' height='%d' fill='%s'><title>%s: %.2f tokens/s</title></rect>"
        "<line x1='%.1f' x2='%.1f' y1='%.1f' y2='%.1f' class='spread'/><text x='%.1f' y='%.1f'>%.4g</text>\n",
        LEFT, d->y, mean * scale, BAR, COLOURS[who % (sizeof COLOURS / sizeof *COLOURS)],
        who ? "peer" : "ingot", mean, fmax(end - spread * scale, LEFT), end + spread * scale, middle, middle,
        end + spread * scale + 6, middle + 4, mean);
    d->y += BAR;
}

static void draw_row(struct bench_drawing *d, const struct bench_row *row)
{
    char name[64];

    bench_row_name(row, name, sizeof name);
    buf_printf(&d->svg, "<text x='%d' y='%u' class='left'>%s</text>\n", LEFT - 8, d->y + BAR - 3, name);
    for (size_t who = 0; who <= n_peers(d); who++)
        draw_bar(d, row, who);
    d->y += GAP;
}

static void draw_panel(struct bench_drawing *d, const struct bench_row *rows, uint32_t n, bool prompts)
{
    d->most = 0;
    for (uint32_t i = 0; i < n; i++)
        for (size_t who = 0; who <= n_peers(d) && is_prompt(&rows[i]) == prompts; who++)
            d->most = fmax(d->most, stats_mean(samples_of(d, &rows[i], who), rows[i].n_samples));
    if (d->most <= 0)
        return;
    buf_printf(&d->svg, "<text x='%d' y='%u' class='title'>%s, tokens/s</text>\n", LEFT, d->y + 20,
               prompts ? "prompts" : "answers");
    d->y += HEAD;
    for (uint32_t i = 0; i < n; i++)
        if (is_prompt(&rows[i]) == prompts)
            draw_row(d, &rows[i]);
}

bool bench_plot(const char *path, const struct bench_report *r, const struct bench_row *rows, uint32_t n,
                struct err *err)
{
    struct bench_drawing d = { .report = r };
    uint32_t height = 2 * HEAD + n * (uint32_t)((1 + r->settings->peers.n) * BAR + GAP) + GAP;

    buf_printf(&d.svg, SVG_BEGIN, WIDTH, (int)height);
    draw_panel(&d, rows, n, true);
    draw_panel(&d, rows, n, false);
    buf_text(&d.svg, "</svg>\n");
    bool ok = d.svg.failed ? err_memory(err, "the picture") : file_save(path, buf_as_str(&d.svg), err);
    buf_free(&d.svg);
    return ok;
}
