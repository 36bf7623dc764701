// profile_draw.c - see profile_draw.h. Axes that span factors are logarithmic. What a mark stands for is in
// its <title>, which browsers show under the mouse and read aloud.
#include "main/profile/profile_draw.h"
#include <math.h>
#include <string.h>
#include "base/mem.h"

enum { WIDTH = 720, LEFT = 64, RIGHT = 16, TOP = 12, BOTTOM = 40, NAMES = 140, MOST_NAMES = 13 };

void draw_text(struct buf *to, const char *text)
{
    for (const char *c = text; *c; c++) {
        const char *as = *c == '&'    ? "&amp;"
                         : *c == '<'  ? "&lt;"
                         : *c == '>'  ? "&gt;"
                         : *c == '"'  ? "&quot;"
                         : *c == '\'' ? "&#39;"
                                      : NULL;
        if (as)
            buf_text(to, as);
        else if ((unsigned char)*c >= 0x20) // control characters have no place in HTML
            buf_append(to, c, 1);
    }
}

const char *draw_part_name(enum time_part part)
{
    static const char *const names[N_TIME_PARTS] = {
        "memory at its limit", "arithmetic at its limit", "above the limit", "waiting", "links", "host"
    };
    return names[part];
}

const char *draw_part_class(enum time_part part)
{
    static const char *const names[N_TIME_PARTS] = { "memory",  "arithmetic", "above",
                                                     "waiting", "links",      "host" };
    return names[part];
}

struct time_split time_split_of(const struct profile_result *r, const struct step_profile *p)
{
    struct time_split s = { .total = p->timed - p->cuts_ns };

    for (uint32_t i = 0; i < p->n_commands; i++) {
        const struct profiled_command *c = &p->commands[i];
        const struct device_limits *l = &r->devices[c->device].limits;
        double memory = l->read_bytes > 0 ? cost_bytes(&c->cost) / l->read_bytes * 1e9 : 0,
               arithmetic = l->operations > 0 ? c->cost.operations / l->operations * 1e9 : 0,
               busy = c->ns - c->wait_ns, least = fmin(fmax(memory, arithmetic), busy);
        s.ns[memory >= arithmetic ? PART_MEMORY : PART_ARITHMETIC] += least;
        s.ns[PART_ABOVE] += busy - least;
        s.ns[PART_WAITING] += c->wait_ns;
    }
    s.ns[PART_WAITING] += p->start_ns;
    s.ns[PART_LINKS] = p->link_ns;
    s.ns[PART_HOST] = p->host_ns;
    return s;
}

static void begin(struct buf *to, int height, const char *label)
{
    buf_printf(to, "<div class='wide'><svg viewBox='0 0 %d %d' role='img' aria-label='%s'>\n", WIDTH, height,
               label);
}

static void end(struct buf *to)
{
    buf_text(to, "</svg></div>\n");
}

void draw_split(struct buf *to, const struct time_split *s)
{
    double x = 0;

    buf_text(
        to,
        "<svg class='bar' viewBox='0 0 1000 40' preserveAspectRatio='none' role='img' aria-label='parts of "
        "the time'>\n");
    for (enum time_part i = 0; i < N_TIME_PARTS; i++) {
        double width = s->total > 0 ? 1000 * s->ns[i] / s->total : 0;
        if (width <= 0)
            continue;
        buf_printf(
            to,
            "<rect x='%.2f' y='0' width='%.2f' height='40' class='%s'><title>%s: %.1f us</title></rect>\n", x,
            width, draw_part_class(i), draw_part_name(i), s->ns[i] * 1e-3);
        x += width;
    }
    buf_text(to, "</svg>\n");
}

// ---- layers

void draw_layers(struct buf *to, const struct profile_result *r, const struct step_profile *p)
{
    struct command_group *layers;
    uint32_t n = groups_by_layer(r, p, &layers);
    double most = 0, height = 120;

    for (uint32_t i = 0; i < n; i++)
        most = fmax(most, layers[i].ns);
    begin(to, 170, "time of each layer");
    for (uint32_t i = 0; i < n && most > 0; i++) {
        double slot = (WIDTH - LEFT - RIGHT) / (double)n, x = LEFT + i * slot,
               full = height * layers[i].ns / most, waits = height * layers[i].wait_ns / most;
        buf_printf(to, "<g><title>");
        if (layers[i].layer == NO_LAYER)
            buf_text(to, "outside of layers");
        else
            buf_printf(to, "layer %u", layers[i].layer);
        buf_printf(
            to,
            ": %.1f us, of which %.1f waiting</title><rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' "
            "class='memory'/><rect x='%.2f' y='%.2f' width='%.2f' height='%.2f' class='waiting'/></g>\n",
            layers[i].ns * 1e-3, layers[i].wait_ns * 1e-3, x, TOP + height - full + waits, slot * 0.8,
            full - waits, x, TOP + height - full, slot * 0.8, waits);
    }
    buf_printf(to,
               "<text x='%d' y='%d' class='left'>%.0f us</text><text x='%d' y='%d' class='left'>0</text>"
               "<text x='%d' y='%d'>layers 0 to %u, then what is outside of layers</text>\n",
               LEFT - 6, TOP + 10, most * 1e-3, LEFT - 6, TOP + 120, LEFT, TOP + 145, n > 1 ? n - 2 : 0);
    end(to);
    mem_free(layers);
}

void draw_layer(struct buf *to, const struct profile_result *r, const struct step_profile *p, uint32_t layer)
{
    double total = 0, x = 0;
    uint32_t row = 0;

    for (uint32_t i = 0; i < p->n_commands; i++)
        total += p->commands[i].layer == layer ? p->commands[i].ns : 0;
    if (total <= 0)
        return;
    begin(to, 190, "commands of one layer");
    for (uint32_t i = 0; i < p->n_commands; i++) {
        const struct profiled_command *c = &p->commands[i];
        if (c->layer != layer)
            continue;
        double scale = (WIDTH - 2) / total, width = c->ns * scale, waits = c->wait_ns * scale;
        buf_printf(to,
                   "<g><title>%s: %.2f us, of which %.2f waiting</title><rect x='%.2f' y='4' width='%.2f' "
                   "height='44' class='memory edge'/><rect x='%.2f' y='4' width='%.2f' height='44' "
                   "class='waiting'/></g>\n",
                   c->label, c->ns * 1e-3, c->wait_ns * 1e-3, x, width, x + width - waits, waits);
        if (width > 12 &&
            row < 6) { // names stand on lines of their own, so that they never lie on each other
            const char *dot = strchr(c->label, '.');
            buf_printf(to, "<text x='%.2f' y='%u' class='%s'>%s, %.1f us</text>\n",
                       x > WIDTH * 0.7 ? x + width : x, 68 + 20 * row, x > WIDTH * 0.7 ? "left" : "",
                       dot ? dot + 1 : c->label, c->ns * 1e-3);
            row++;
        }
        x += width;
    }
    (void)r;
    end(to);
}

// ---- roofline

struct draw_axis {
    double low, high; // logarithms to the base of 10
    int from, to;     // pixels
};

static double at(const struct draw_axis *a, double value)
{
    return a->from + (log10(value) - a->low) / (a->high - a->low) * (a->to - a->from);
}

static const char *short_number(double value, char text[32])
{
    static const char units[] = " kMGTPE";
    int unit = 0;

    while (value >= 999.5 && units[unit + 1]) {
        value /= 1000;
        unit++;
    }
    snprintf(text, 32, "%.3g%.*s", value, unit > 0, &units[unit]);
    return text;
}

static void draw_grid(struct buf *to, const struct draw_axis axes[2])
{
    char text[32];

    for (int side = 0; side < 2; side++)
        for (int power = (int)ceil(axes[side].low); power <= (int)floor(axes[side].high); power++) {
            double value = pow(10, power), p = at(&axes[side], value);
            if (side)
                buf_printf(to,
                           "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' class='grid'/><text x='%d' y='%.1f' "
                           "class='left'>%s</text>\n",
                           axes[0].from, axes[0].to, p, p, LEFT - 6, p + 4, short_number(value, text));
            else
                buf_printf(to,
                           "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' class='grid'/><text x='%.1f' y='%d' "
                           "class='below'>%s</text>\n",
                           p, p, axes[1].from, axes[1].to, p, axes[1].from + 18, short_number(value, text));
        }
}

static double intensity(const struct command_group *g)
{
    return g->cost.operations / fmax(cost_bytes(&g->cost), 1);
}

static double speed(const struct command_group *g)
{
    return g->ns > 0 ? g->cost.operations / g->ns * 1e9 : 0;
}

static bool is_drawn(const struct command_group *g)
{
    return g->cost.operations > 0 && g->ns > 0;
}

// Names stand in a column, so that they never lie on each other.
static void draw_kind(struct buf *to, const struct command_group *g, const struct draw_axis axes[2],
                      double share, uint32_t row)
{
    double x = at(&axes[0], intensity(g)), y = at(&axes[1], speed(g)), below = TOP + 12 + 18 * (double)row;

    if (row < MOST_NAMES)
        buf_printf(
            to, "<line x1='%.1f' y1='%.1f' x2='%d' y2='%.1f' class='grid'/><text x='%d' y='%.1f'>%s</text>\n",
            x, y, axes[0].to + 6, below - 4, axes[0].to + 10, below, g->name);
    buf_printf(to,
               "<circle cx='%.1f' cy='%.1f' r='%.1f' class='mark'><title>%s: %.0f %% of the time, %.3g "
               "operations a byte, %.0f %% of its limit</title></circle>\n",
               x, y, 3 + 18 * sqrt(share), g->name, 100 * share, intensity(g), 100 * group_share(g));
}

void draw_roofline(struct buf *to, const struct profile_result *r, const struct step_profile *p)
{
    const struct device_limits *l = &r->devices[0].limits;
    struct command_group groups[MOST_KINDS];
    struct draw_axis axes[2] = { { -1, 1, LEFT, WIDTH - NAMES }, { 0, 0, 300 - BOTTOM, TOP } };
    uint32_t n = groups_by_kind(r, p, groups), n_named = 0;

    if (l->operations <= 0 || l->read_bytes <= 0)
        return;
    double knee = l->operations / l->read_bytes;
    axes[0].high = ceil(log10(knee) + 1);
    axes[1].high = ceil(log10(l->operations));
    axes[1].low = axes[1].high - 4;
    for (uint32_t i = 0; i < n; i++)
        if (is_drawn(&groups[i])) {
            axes[0].low = fmin(axes[0].low, floor(log10(intensity(&groups[i]))));
            axes[0].high = fmax(axes[0].high, ceil(log10(intensity(&groups[i]))));
            axes[1].low = fmin(axes[1].low, floor(log10(speed(&groups[i]))));
            axes[1].high = fmax(axes[1].high, ceil(log10(speed(&groups[i]))));
        }
    begin(to, 300, "roofline");
    draw_grid(to, axes);
    double left = fmax(pow(10, axes[0].low), pow(10, axes[1].low) / l->read_bytes);
    buf_printf(to, "<polyline points='%.1f,%.1f %.1f,%.1f %.1f,%.1f' class='roof'/>\n", at(&axes[0], left),
               at(&axes[1], left * l->read_bytes), at(&axes[0], knee), at(&axes[1], l->operations),
               (double)axes[0].to, at(&axes[1], l->operations));
    for (uint32_t i = 0; i < n; i++)
        if (is_drawn(&groups[i]))
            draw_kind(to, &groups[i], axes, p->timed > 0 ? groups[i].ns / p->timed : 0, n_named++);
    buf_printf(to, "<text x='%d' y='%d' class='below'>operations a byte</text>\n", WIDTH / 2, 298);
    end(to);
}

// ---- latencies

static struct draw_axis axis_of_cases(const struct phases *p)
{
    struct draw_axis a = { INFINITY, -INFINITY, 150, WIDTH - RIGHT };

    for (uint32_t i = 0; i < p->n; i++) {
        const struct phase_case *c = &p->cases[i];
        for (uint32_t k = 0; k < c->n_runs * c->n_streams; k++) {
            a.low = fmin(a.low, log10(fmax(c->first_ms[k], 1e-3)));
            a.high = fmax(a.high, log10(fmax(c->first_ms[k], 1e-3)));
        }
        for (uint32_t k = 0; k < c->n_gaps; k++) {
            a.low = fmin(a.low, log10(fmax(c->gaps_ms[k], 1e-3)));
            a.high = fmax(a.high, log10(fmax(c->gaps_ms[k], 1e-3)));
        }
    }
    a.low = floor(a.low * 5) / 5;
    a.high = fmax(ceil(a.high * 5) / 5, a.low + 0.2);
    return a;
}

// First tokens as points; of the gaps a line from the tenth to the ninetieth of a hundred, and the median.
static void draw_case(struct buf *to, const struct phase_case *c, const struct draw_axis *a, int y)
{
    double low = phase_gap_ms(c, 0.1), middle = phase_gap_ms(c, 0.5),
           high = c->n_gaps ? phase_gap_ms(c, 0.9) : -1;

    buf_printf(to, "<text x='%d' y='%d' class='left'>%s</text>\n", a->from - 8, y + 4, c->name);
    if (low > 0 && middle > 0 && high > 0)
        buf_printf(to,
                   "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' class='range'><title>gaps: %.2f to %.2f "
                   "ms</title></line><circle cx='%.1f' cy='%d' r='4' class='gap'><title>median gap %.2f "
                   "ms</title></circle>\n",
                   at(a, low), at(a, high), y, y, low, high, at(a, middle), y, middle);
    for (uint32_t k = 0; k < c->n_runs * c->n_streams; k++)
        buf_printf(
            to,
            "<circle cx='%.1f' cy='%d' r='3' class='first'><title>first token after %.2f ms</title></circle>",
            at(a, fmax(c->first_ms[k], 1e-3)), y, c->first_ms[k]);
}

static void draw_milliseconds(struct buf *to, const struct draw_axis *a, int bottom)
{
    static const double steps[] = { 1, 2, 5 };
    char text[32];

    for (int power = (int)floor(a->low); power <= (int)ceil(a->high); power++)
        for (int i = 0; i < (a->high - a->low < 3 ? 3 : 1); i++) {
            double value = steps[i] * pow(10, power), x = at(a, value);
            if (x >= a->from - 0.5 && x <= a->to + 0.5)
                buf_printf(to,
                           "<line x1='%.1f' x2='%.1f' y1='%d' y2='%d' class='grid'/><text x='%.1f' y='%d' "
                           "class='below'>%s</text>\n",
                           x, x, TOP, bottom, x, bottom + 18, short_number(value, text));
        }
    buf_printf(to, "<text x='%d' y='%d' class='below'>ms</text>\n", (a->from + a->to) / 2, bottom + 36);
}

void draw_latencies(struct buf *to, const struct phases *p)
{
    struct draw_axis a = axis_of_cases(p);
    int n = 0, y = TOP + 10;

    for (uint32_t i = 0; i < p->n; i++)
        n += p->cases[i].n_runs > 0;
    if (n == 0)
        return;
    begin(to, TOP + 18 * n + 44, "times to the first token and between tokens");
    draw_milliseconds(to, &a, TOP + 18 * n);
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->cases[i].n_runs == 0)
            continue;
        draw_case(to, &p->cases[i], &a, y);
        y += 18;
    }
    end(to);
}
