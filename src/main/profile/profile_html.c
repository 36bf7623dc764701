// profile_html.c - a profile as one page: no scripts, no fonts, no network; light, dark, on a phone, on
// paper.
#include "base/file.h"
#include "base/mem.h"
#include "main/profile/profile_draw.h"
#include "main/profile/profile_report.h"
#include "main/version.h"

static const char STYLE[] =
    ":root{--ink:#1d2430;--soft:#5b6472;--page:#fff;--line:#d8dce3;--memory:#3c78c8;--arithmetic:#1f9d6b;"
    "--above:#e0912f;--waiting:#9aa3b0;--links:#8b5cc7;--host:#c9525c}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e9ef;--soft:#a0a9b8;--page:#14181f;--line:#333b48;"
    "--memory:#6aa3ec;--arithmetic:#45c08d;--above:#f0ad55;--waiting:#697384;--links:#b08ae6;--host:#e8808a}}"
    "\n"
    "@media print{:root{--ink:#000;--soft:#444;--page:#fff;--line:#bbb;--memory:#3c78c8;--arithmetic:#1f9d6b;"
    "--above:#e0912f;--waiting:#9aa3b0;--links:#8b5cc7;--host:#c9525c}"
    "*{print-color-adjust:exact;-webkit-print-color-adjust:exact}section{break-inside:avoid}}\n"
    "body{margin:0 auto;max-width:56rem;padding:1rem;font:15px/1.45 system-ui,sans-serif;color:var(--ink);"
    "background:var(--page)}\n"
    "h1{font-size:1.4rem;margin:0 0 .2rem}h2{font-size:1.1rem;margin:2rem 0 "
    ".4rem}h3{font-size:.95rem;margin:1.2rem 0 "
    ".3rem}p{margin:.3rem 0}.soft{color:var(--soft)}\n"
    ".wide{overflow-x:auto}.wide svg{min-width:36rem;width:100%;height:auto;display:block}"
    "svg text{font:12px "
    "system-ui,sans-serif;fill:var(--soft)}.left{text-anchor:end}.below{text-anchor:middle}\n"
    ".bar{width:100%;height:2.4rem;display:block;border-radius:4px}\n"
    ".memory{fill:var(--memory);--c:var(--memory)}.arithmetic{fill:var(--arithmetic);--c:var(--arithmetic)}"
    ".above{fill:var(--above);--c:var(--above)}.waiting{fill:var(--waiting);--c:var(--waiting)}"
    ".links{fill:var(--links);--c:var(--links)}.host{fill:var(--host);--c:var(--host)}"
    ".edge{stroke:var(--page);stroke-width:1}\n"
    ".grid{stroke:var(--line)}.roof{fill:none;stroke:var(--ink);stroke-width:1.5}.mark{fill:var(--memory);"
    "fill-opacity:.55;stroke:var(--memory)}.first{fill:var(--above)}.gap{fill:var(--memory)}.range{stroke:"
    "var(--memory);"
    "stroke-width:3}\n"
    ".key{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;padding:0;margin:.4rem 0}"
    ".key "
    "i{display:inline-block;width:.8em;height:.8em;border-radius:2px;background:var(--c);margin-right:.4em}\n"
    "table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;width:100%}"
    "th,td{padding:.2rem .5rem;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}"
    "th{color:var(--soft);font-weight:600}th:first-child,td:first-child{text-align:left}\n"
    ".limit{display:inline-block;width:4rem;height:.6em;border:1px solid var(--line);border-radius:2px;"
    "vertical-align:middle;margin-left:.4em}.limit b{display:block;height:100%;background:var(--memory)}";

static void head(struct buf *b, const struct profile_result *r)
{
    buf_text(b, "<!DOCTYPE html>\n<html lang='en'><head><meta charset='utf-8'><meta name='viewport' "
                "content='width=device-width,initial-scale=1'><meta name='color-scheme' content='light "
                "dark'><title>");
    draw_text(b, r->info.model_name);
    buf_printf(b, " - ingot profile</title><style>%s</style></head><body>\n<h1>", STYLE);
    draw_text(b, r->info.model_name);
    buf_text(b, "</h1>\n<p class='soft'>");
    draw_text(b, r->info.architecture);
    buf_printf(b, ", %.2f MiB of %s, %u layer%s; ", (double)r->info.weight_bytes / 1048576, r->info.format,
               r->info.n_layers, str_plural(r->info.n_layers));
    draw_text(b, r->info.device);
    buf_printf(b, "; ingot %s%s</p>\n", version_commit, r->complete ? "" : "; stopped before its end");
    for (uint32_t i = 0; i < r->n_devices; i++) {
        const struct device_limits *l = &r->devices[i].limits;
        if (l->command_ns > 0)
            buf_printf(b,
                       "<p class='soft'>%s at best: reads %.1f GB/s, %.1f GFLOP/s, %.2f us a command</p>\n",
                       r->devices[i].name, l->read_bytes * 1e-9, l->operations * 1e-9, l->command_ns * 1e-3);
    }
}

static void key(struct buf *b, const struct time_split *s)
{
    buf_text(b, "<ul class='key'>");
    for (enum time_part i = 0; i < N_TIME_PARTS; i++)
        if (s->ns[i] > 0)
            buf_printf(b, "<li class='%s'><i></i>%s: %.1f us, %.0f&nbsp;%%</li>", draw_part_class(i),
                       draw_part_name(i), s->ns[i] * 1e-3, s->total > 0 ? 100 * s->ns[i] / s->total : 0);
    buf_text(b, "</ul>\n");
}

static void step_title(struct buf *b, const struct named_step *s)
{
    const struct step_shape *shape = &s->at.shape;

    buf_printf(b, "<h3>%s: %u row%s at depth %u, plain %.3f ms, stamped %+.1f %%</h3>\n", s->name,
               shape->n_sequences * shape->n_rows, str_plural(shape->n_sequences * shape->n_rows),
               shape->depth, s->at.plain * 1e-6, 100 * (s->at.timed / s->at.plain - 1));
}

static void splits(struct buf *b, const struct profile_result *r)
{
    buf_text(b, "<section><h2>Where a step's time goes</h2>\n");
    for (uint32_t i = 0; i < N_PROFILE_STEPS; i++) {
        const struct named_step *s = &r->steps[i];
        if (!s->at.is_timed || s->at.n_plays == 0)
            continue;
        struct time_split split = time_split_of(r, &s->at);
        step_title(b, s);
        draw_split(b, &split);
        key(b, &split);
    }
    buf_text(b, "</section>\n");
}

static void kinds(struct buf *b, const struct profile_result *r, const struct step_profile *p)
{
    struct command_group groups[MOST_KINDS];
    uint32_t n = groups_by_kind(r, p, groups);

    buf_text(
        b, "<div class='wide'><table><tr><th>operation</th><th>n</th><th>us</th><th>share</th><th>waiting "
           "us</th><th>alone us</th><th>MB</th><th>GFLOP</th><th>of its limit</th><th>bound by</th></tr>\n");
    for (uint32_t i = 0; i < n; i++) {
        const struct command_group *g = &groups[i];
        double share = 100 * group_share(g);
        buf_printf(b, "<tr><td>%s</td><td>%u</td><td>%.1f</td><td>%.1f&nbsp;%%</td><td>%.1f</td><td>",
                   g->name, g->n, g->ns * 1e-3, p->timed > 0 ? 100 * g->ns / p->timed : 0, g->wait_ns * 1e-3);
        if (g->alone_ns > 0)
            buf_printf(b, "%.1f", g->alone_ns * 1e-3);
        else
            buf_text(b, "-");
        buf_printf(b,
                   "</td><td>%.2f</td><td>%.3f</td><td>%.0f&nbsp;%%<span class='limit'><b "
                   "style='width:%.0f%%'></b></span></td><td>%s</td></tr>\n",
                   cost_bytes(&g->cost) * 1e-6, g->cost.operations * 1e-9, share, share > 100 ? 100 : share,
                   group_bound_name(group_bound(g)));
    }
    buf_text(b, "</table></div>\n");
}

static int compare_layers(const void *a, const void *b)
{
    const struct command_group *x = a, *y = b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static uint32_t median_layer(const struct profile_result *r, const struct step_profile *p)
{
    struct command_group *layers;
    uint32_t n = groups_by_layer(r, p, &layers), median = NO_LAYER;

    if (n > 1) {
        qsort(layers, n - 1, sizeof *layers, compare_layers);
        median = layers[(n - 1) / 2].layer;
    }
    mem_free(layers);
    return median;
}

static void step(struct buf *b, const struct profile_result *r, const struct named_step *s)
{
    const struct step_profile *p = &s->at;
    uint32_t median = median_layer(r, p);

    buf_printf(b, "<section><h2>Step: %s</h2>\n", s->name);
    kinds(b, r, p);
    if (median != NO_LAYER) {
        buf_printf(b, "<h3>The median layer, %u</h3>\n", median);
        draw_layer(b, r, p, median);
        buf_text(b, "<h3>All layers</h3>\n");
        draw_layers(b, r, p);
    }
    buf_printf(b, "<h3>Roofline of %s</h3>\n", r->devices[0].name);
    draw_roofline(b, r, p);
    buf_text(b, "</section>\n");
}

static void cell(struct buf *b, double value)
{
    if (value < 0)
        buf_text(b, "<td>-</td>");
    else
        buf_printf(b, "<td>%.2f</td>", value);
}

static void phases(struct buf *b, const struct phases *p)
{
    buf_text(b, "<section><h2>Requests</h2><p class='soft'>Points: times to the first token. Lines: times "
                "between tokens, "
                "from the tenth to the ninetieth of a hundred, and their median.</p>\n");
    draw_latencies(b, p);
    buf_text(b,
             "<div class='wide'><table><tr><th>case</th><th>prompt</th><th>answer</th><th>runs</th><th>first "
             "ms</th>"
             "<th>gap p50</th><th>p95</th><th>p99 ms</th><th>tokens/s</th></tr>\n");
    for (uint32_t i = 0; i < p->n; i++) {
        const struct phase_case *c = &p->cases[i];
        if (c->n_runs == 0)
            continue;
        buf_printf(b, "<tr><td>%s</td><td>%u</td><td>%u</td><td>%u</td>", c->name, c->n_prompt, c->n_gen,
                   c->n_runs);
        cell(b, phase_first_ms(c));
        cell(b, phase_gap_ms(c, 0.5));
        cell(b, phase_gap_ms(c, 0.95));
        cell(b, phase_gap_ms(c, 0.99));
        buf_printf(b, "<td>%.1f</td></tr>\n", phase_speed(c));
    }
    buf_text(b, "</table></div></section>\n");
}

static void joules(struct buf *b, const char *what, const struct energy_figure *f, const char *unit)
{
    buf_printf(b, "<tr><td>%s, %s</td>", what, unit);
    cell(b, f->processor);
    cell(b, f->gpus);
    buf_text(b, "</tr>\n");
}

static void energy(struct buf *b, const struct profile_energy *e)
{
    if (!e->is_measured)
        return;
    buf_text(b, "<section><h2>Energy</h2><div "
                "class='wide'><table><tr><th></th><th>processor</th><th>GPUs</th></tr>\n");
    joules(b, "at rest", &e->rest_watts, "W");
    joules(b, "a token of an answer", &e->answer_joules, "J");
    joules(b, "a token of a prompt", &e->prompt_joules, "J");
    buf_text(b, "</table></div></section>\n");
}

static void memory_row(struct buf *b, const char *what, uint64_t predicted, uint64_t taken)
{
    buf_printf(b, "<tr><td>%s</td><td>%.2f</td><td>%.2f</td></tr>\n", what, (double)predicted / 1048576,
               (double)taken / 1048576);
}

static void memory(struct buf *b, const struct profile_result *r)
{
    buf_text(b, "<section><h2>Memory, MiB</h2><div "
                "class='wide'><table><tr><th></th><th>predicted</th><th>taken</th></tr>\n");
    memory_row(b, "weights", r->predicted.weights, r->taken.weights);
    memory_row(b, "KV pages", r->predicted.pages, r->taken.pages);
    memory_row(b, "scratch", r->predicted.scratch, r->taken.scratch);
    if (r->taken.tower)
        memory_row(b, "tower", r->predicted.tower, r->taken.tower);
    buf_text(b, "</table></div></section>\n");
}

bool profile_html(const struct profile_result *r, const char *path, struct err *err)
{
    struct buf b = { 0 };

    head(&b, r);
    splits(&b, r);
    phases(&b, &r->phases);
    for (uint32_t i = 0; i < N_PROFILE_STEPS; i++)
        if (r->steps[i].at.n_plays && r->steps[i].at.is_timed)
            step(&b, r, &r->steps[i]);
    energy(&b, &r->energy);
    memory(&b, r);
    buf_text(&b, "</body></html>\n");
    bool ok = b.failed ? err_memory(err, "the page") : file_save(path, buf_as_str(&b), err);
    buf_free(&b);
    return ok;
}
