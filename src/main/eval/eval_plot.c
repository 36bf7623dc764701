// eval_plot.c - quality against bytes, as an SVG without outer resources that light and dark pages can show.
// Both axes are logarithmic: bytes differ by factors, and divergences by powers of ten.
#include <math.h>
#include "base/file.h"
#include "main/eval/eval_report.h"
#include "main/svg.h"

enum { WIDTH = 720, HEIGHT = 440, LEFT = 70, RIGHT = 130, TOP = 50, BOTTOM = 60, MOST_PAGES = 16 };

static const char *const colours[] = { "#3a7bd5", "#d5573a", "#2a9d5c", "#a05ac8", "#b08a2a", "#2a9aa8" };

struct axis {
    double low, high; // logarithms to the base of 10
    int from, to;     // pixels
};

static double at(const struct axis *a, double value)
{
    return a->from + (log10(value) - a->low) / (a->high - a->low) * (a->to - a->from);
}

static double bytes_of(const struct eval_line *line)
{
    return (double)line->info.weight_bytes / 1048576.0;
}

// Lines without loss, such as the reference itself, have no place on a logarithmic axis.
static bool is_drawn(const struct eval_line *line)
{
    return line->compared && line->summary.kl.mean > 0;
}

static struct axis axis_of(const struct eval_line *lines, uint32_t n,
                           double (*value)(const struct eval_line *))
{
    struct axis a = { INFINITY, -INFINITY, 0, 0 };

    for (uint32_t i = 0; i < n; i++) {
        if (!is_drawn(&lines[i]))
            continue;
        a.low = fmin(a.low, log10(value(&lines[i])));
        a.high = fmax(a.high, log10(value(&lines[i])));
    }
    double room = fmax(0.05 * (a.high - a.low), 0.05);
    a.low -= room;
    a.high += room;
    return a;
}

static double kl_of(const struct eval_line *line)
{
    return line->summary.kl.mean;
}

// Ticks at 1, 2 and 5 times powers of ten; only the powers where there would be too many.
static void draw_ticks(struct buf *svg, const struct axis *a, bool upright)
{
    static const double steps[] = { 1, 2, 5 };
    int n = a->high - a->low < 2 ? 3 : 1;

    for (int power = (int)floor(a->low); power <= (int)ceil(a->high); power++)
        for (int i = 0; i < n; i++) {
            double value = steps[i] * pow(10, power), p = at(a, value);
            if (log10(value) < a->low || log10(value) > a->high)
                continue;
            if (upright)
                buf_printf(svg,
                           "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' class='grid'/><text x='%d' y='%.1f' "
                           "class='left'>%g</text>\n",
                           LEFT, WIDTH - RIGHT, p, p, LEFT - 8, p + 4, value);
            else
                buf_printf(svg,
                           "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' class='grid'/><text x='%.1f' y='%d' "
                           "class='below'>%g</text>\n",
                           p, p, TOP, HEIGHT - BOTTOM, p, HEIGHT - BOTTOM + 18, value);
        }
}

// Distinct formats of pages, in the order in which they come.
static uint32_t list_pages(const struct eval_line *lines, uint32_t n, const char *pages[MOST_PAGES])
{
    uint32_t n_pages = 0;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = 0;
        while (k < n_pages && strcmp(pages[k], lines[i].pages) != 0)
            k++;
        if (k == n_pages && k < MOST_PAGES && is_drawn(&lines[i]))
            pages[n_pages++] = lines[i].pages;
    }
    return n_pages;
}

// Names stand beside the first format's points; the others have them when the mouse is over them.
static void draw_points(struct buf *svg, const struct eval_line *lines, uint32_t n, const struct axis axes[2])
{
    const char *pages[MOST_PAGES];
    uint32_t n_pages = list_pages(lines, n, pages);

    for (uint32_t k = 0; k < n_pages; k++) {
        const char *colour = colours[k % (sizeof colours / sizeof *colours)];
        buf_printf(svg, "<text x='%d' y='%u' style='fill:%s'>%s pages</text>\n", WIDTH - RIGHT + 12,
                   TOP + 8 + 18 * k, colour, pages[k]);
        for (uint32_t i = 0; i < n; i++) {
            const struct eval_line *line = &lines[i];
            if (!is_drawn(line) || strcmp(line->pages, pages[k]) != 0)
                continue;
            double x = at(&axes[0], bytes_of(line)), y = at(&axes[1], kl_of(line));
            buf_printf(svg,
                       "<circle cx='%.1f' cy='%.1f' r='4' fill='%s'><title>%s, %s pages: %.2f MiB, KL "
                       "%.3g</title></circle>\n",
                       x, y, colour, line->weights, line->pages, bytes_of(line), kl_of(line));
            if (k == 0)
                buf_printf(svg, "<text x='%.1f' y='%.1f'>%s</text>\n", x + 7, y - 5, line->weights);
        }
    }
}

static void draw(struct buf *svg, const struct eval_line *lines, uint32_t n)
{
    struct axis axes[2] = { axis_of(lines, n, bytes_of), axis_of(lines, n, kl_of) };

    axes[0].from = LEFT;
    axes[0].to = WIDTH - RIGHT;
    axes[1].from = HEIGHT - BOTTOM;
    axes[1].to = TOP;
    draw_ticks(svg, &axes[0], false);
    draw_ticks(svg, &axes[1], true);
    draw_points(svg, lines, n, axes);
}

bool eval_plot(const char *path, const struct eval_line *lines, uint32_t n, struct err *err)
{
    struct buf svg = { 0 };
    uint32_t n_drawn = 0;

    for (uint32_t i = 0; i < n; i++)
        n_drawn += is_drawn(&lines[i]);
    buf_printf(&svg,
               SVG_BEGIN
               "<text x='%d' y='24' class='title'>mean KL divergence from the reference, nats</text>\n",
               WIDTH, HEIGHT, LEFT);
    if (n_drawn)
        draw(&svg, lines, n);
    buf_printf(&svg, "<text x='%d' y='%d' class='below'>MiB of weights</text>\n</svg>\n",
               (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 16);
    bool ok = svg.failed ? err_memory(err, "the picture") : file_save(path, buf_as_str(&svg), err);
    buf_free(&svg);
    return ok;
}
