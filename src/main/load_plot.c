// load_plot.c - the plot of a load test over the number of clients: an SVG without external resources, for
// light and dark pages.
#include "base/file.h"
#include "base/stats.h"
#include "base/str.h"
#include "main/load_generator.h"
#include "main/svg.h"

enum { WIDTH = 720, PANEL = 260, LEFT = 70, RIGHT = 110, TOP = 40, INSIDE = 170 };

struct line {
    const char *name, *color;
    double (*value)(const struct load_result *r);
};

static double tokens_per_second(const struct load_result *r)
{
    return r->seconds > 0 ? (double)r->n_tokens / r->seconds : 0;
}
static double first_p50(const struct load_result *r)
{
    return stats_quantile(r->first.at, r->first.n, 0.5);
}
static double first_p99(const struct load_result *r)
{
    return stats_quantile(r->first.at, r->first.n, 0.99);
}
static double gap_p50(const struct load_result *r)
{
    return stats_quantile(r->gaps.at, r->gaps.n, 0.5);
}
static double gap_p99(const struct load_result *r)
{
    return stats_quantile(r->gaps.at, r->gaps.n, 0.99);
}

// The least 1, 2 or 5 times a power of ten that is not below x.
static double round_up(double x)
{
    static const double steps[] = { 1, 2, 5, 10 };
    double power = 1e-6;

    while (power * 10 <= x)
        power *= 10;
    for (int i = 0; i < 3; i++)
        if (steps[i] * power >= x)
            return steps[i] * power;
    return 10 * power;
}

// The x axis has equal distances between the numbers of clients, which are usually doubled.
static double x_of(uint32_t i, uint32_t n)
{
    return n > 1 ? LEFT + (double)i * (WIDTH - LEFT - RIGHT) / (n - 1) : (LEFT + WIDTH - RIGHT) / 2.0;
}

struct panel {
    const char *title;
    struct line lines[2];
    uint32_t n_lines, top;
};

static void draw_axes(struct buf *svg, const struct panel *p, const struct load_result *r, uint32_t n,
                      double most)
{
    buf_printf(svg, "<text x='%d' y='%u' class='title'>%s</text>\n", LEFT, p->top + 24, p->title);
    for (int tick = 0; tick <= 4; tick++) {
        double y = p->top + TOP + INSIDE * (1 - tick / 4.0);
        buf_printf(svg,
                   "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' class='grid'/><text x='%d' y='%.1f' "
                   "class='left'>%g</text>\n",
                   LEFT, WIDTH - RIGHT, y, y, LEFT - 8, y + 4, most * tick / 4);
    }
    for (uint32_t i = 0; i < n; i++)
        buf_printf(svg, "<text x='%.1f' y='%u' class='below'>%u</text>\n", x_of(i, n),
                   p->top + TOP + INSIDE + 18, r[i].n_clients);
}

static void draw_panel(struct buf *svg, const struct panel *p, const struct load_result *r, uint32_t n)
{
    double most = 0;

    for (uint32_t l = 0; l < p->n_lines; l++)
        for (uint32_t i = 0; i < n; i++)
            most = p->lines[l].value(&r[i]) > most ? p->lines[l].value(&r[i]) : most;
    most = round_up(most > 0 ? most : 1);
    draw_axes(svg, p, r, n, most);
    for (uint32_t l = 0; l < p->n_lines; l++) {
        const struct line *line = &p->lines[l];
        double y = 0;
        buf_printf(svg, "<polyline fill='none' stroke='%s' stroke-width='2' points='", line->color);
        for (uint32_t i = 0; i < n; i++) {
            y = p->top + TOP + INSIDE * (1 - line->value(&r[i]) / most);
            buf_printf(svg, "%.1f,%.1f ", x_of(i, n), y);
        }
        buf_printf(svg, "'/><text x='%d' y='%.1f' fill='%s'>%s</text>\n", WIDTH - RIGHT + 8, y + 4,
                   line->color, line->name);
        for (uint32_t i = 0; i < n; i++)
            buf_printf(svg, "<circle cx='%.1f' cy='%.1f' r='3' fill='%s'/>", x_of(i, n),
                       p->top + TOP + INSIDE * (1 - line->value(&r[i]) / most), line->color);
    }
}

bool load_plot(const char *path, const struct load_result *r, uint32_t n, struct err *err)
{
    static const struct panel panels[] = {
        { "tokens per second, all clients together", { { "tokens/s", "#2a9d5c", tokens_per_second } }, 1, 0 },
        { "ms to the first token",
          { { "p50", "#3a7bd5", first_p50 }, { "p99", "#d5573a", first_p99 } },
          2,
          PANEL },
        { "ms between tokens",
          { { "p50", "#3a7bd5", gap_p50 }, { "p99", "#d5573a", gap_p99 } },
          2,
          2 * PANEL },
    };
    struct buf svg = { 0 };

    buf_printf(&svg, SVG_BEGIN, WIDTH, 3 * PANEL + 20);
    for (size_t i = 0; i < sizeof panels / sizeof *panels; i++)
        draw_panel(&svg, &panels[i], r, n);
    buf_printf(&svg, "<text x='%d' y='%d' class='below'>clients</text>\n</svg>\n", (LEFT + WIDTH - RIGHT) / 2,
               3 * PANEL + 12);
    bool ok = svg.failed ? err_memory(err, "the picture") : file_save(path, buf_as_str(&svg), err);
    buf_free(&svg);
    return ok;
}
