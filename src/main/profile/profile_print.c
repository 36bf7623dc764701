// profile_print.c - a profile as Markdown tables.
#include <math.h>
#include "base/mem.h"
#include "main/profile/profile_report.h"
#include "main/terminal/out.h"

static const char *number(double value, const char *format, char text[32])
{
    if (value < 0)
        return "-";
    snprintf(text, 32, format, value);
    return text;
}

// ---- phases

static void print_case(const struct phase_case *c)
{
    char p50[32], p95[32], p99[32];

    out_printf("| %-9s | %-10s | %6u | %6u | %4u | %9.2f | %8s | %8s | %8s | %8.1f |\n", phase_name(c->phase),
               c->name, c->n_prompt, c->n_gen, c->n_runs, phase_first_ms(c),
               number(phase_gap_ms(c, 0.5), "%.2f", p50), number(phase_gap_ms(c, 0.95), "%.2f", p95),
               number(phase_gap_ms(c, 0.99), "%.2f", p99), phase_speed(c));
}

static void print_summary(const struct phases *p)
{
    struct phases_summary s = phases_summarise(p);

    if (s.warm_ms > 0)
        out_printf("\nwarm-up: the first token came after %.1f ms cold and %.1f ms warm (%.0f %% less)\n",
                   s.cold_ms, s.warm_ms, 100 * (1 - s.warm_ms / s.cold_ms));
    if (s.fitted_token_ms > 0)
        out_printf("outputs: an answer of n tokens takes %.2f ms + n * %.3f ms\n", s.fitted_ms,
                   s.fitted_token_ms);
    if (s.peak_ts > 0)
        out_printf("speed: peak %.1f tokens/s", s.peak_ts);
    if (s.sustained_ts > 0)
        out_printf(", sustained %.1f", s.sustained_ts);
    if (s.drift > 0)
        out_printf(" (the last three runs took %.2f of the first three's time)", s.drift);
    if (s.streams_ts > 0)
        out_printf(", together %.1f", s.streams_ts);
    out_text("\n");
    if (*p->left_out)
        out_printf("left out: %s\n", p->left_out);
}

static void print_phases(const struct phases *p)
{
    out_text("## Phases\n\n"
             "| phase     | case       | prompt | answer | runs |  first ms |  gap p50 |   p95 ms |   p99 ms "
             "| tokens/s |\n"
             "|-----------|------------|-------:|-------:|-----:|----------:|---------:|---------:|---------:"
             "|---------:|\n");
    for (uint32_t i = 0; i < p->n; i++)
        if (p->cases[i].n_runs)
            print_case(&p->cases[i]);
    print_summary(p);
}

// ---- steps

static void print_group(const struct command_group *g, const struct step_profile *p)
{
    char alone[32];

    out_printf("| %-15s | %4u | %10.1f | %5.1f %% | %10.1f | %10s | %9.2f | %9.3f | %6.0f %% | %-10s |\n",
               g->name, g->n, g->ns * 1e-3, p->timed > 0 ? 100 * g->ns / p->timed : 0, g->wait_ns * 1e-3,
               number(g->alone_ns > 0 ? g->alone_ns * 1e-3 : -1, "%.1f", alone), cost_bytes(&g->cost) * 1e-6,
               g->cost.operations * 1e-9, 100 * group_share(g),
               p->is_timed ? group_bound_name(group_bound(g)) : "-");
}

static void print_line(const char *name, double ns, const struct step_profile *p)
{
    out_printf("| %-15s |      | %10.1f | %5.1f %% | %10s | %10s | %9s | %9s | %8s | %-10s |\n", name,
               ns * 1e-3, p->timed > 0 ? 100 * ns / p->timed : 0, "", "", "", "", "", "");
}

static void print_kinds(const struct profile_result *r, const struct step_profile *p)
{
    struct command_group groups[MOST_KINDS];
    uint32_t n = groups_by_kind(r, p, groups);

    out_text("| operation       |    n |    time us |   share | waiting us |   alone us |        MB |     "
             "GFLOP | of "
             "limit | bound by   |\n"
             "|-----------------|-----:|-----------:|--------:|-----------:|-----------:|----------:|--------"
             "--:|----"
             "-----:|------------|\n");
    for (uint32_t i = 0; i < n; i++)
        print_group(&groups[i], p);
    if (!p->is_timed)
        return;
    print_line("start", p->start_ns, p);
    print_line("links", p->link_ns, p);
    print_line("host", p->host_ns, p);
    if (p->cuts_ns > 0)
        print_line("cuts", p->cuts_ns, p);
    print_line("stamping", p->plain - p->timed, p);
    print_line("plain step", p->plain, p);
}

static int compare_layers(const void *a, const void *b)
{
    const struct command_group *x = a, *y = b;
    return x->ns < y->ns ? -1 : x->ns > y->ns;
}

static void print_layers(const struct profile_result *r, const struct step_profile *p)
{
    struct command_group *layers;
    uint32_t n = groups_by_layer(r, p, &layers);

    if (n > 1 && p->is_timed) {
        const struct command_group outside = layers[n - 1];
        qsort(layers, n - 1, sizeof *layers, compare_layers);
        const struct command_group *median = &layers[(n - 1) / 2], *worst = &layers[n - 2];
        out_printf(
            "\nlayers: %u, the median one %.1f us (layer %u: %.0f %% of its limit), the slowest %.1f us "
            "(layer %u); outside of layers %.1f us\n",
            n - 1, median->ns * 1e-3, median->layer, 100 * group_share(median), worst->ns * 1e-3,
            worst->layer, outside.ns * 1e-3);
    }
    mem_free(layers);
}

static void print_experts(const struct step_profile *p)
{
    double used = 0, skew = 0;

    if (p->n_experts == 0)
        return;
    for (uint32_t i = 0; i < p->n_experts; i++) {
        used += p->experts[i].n_used / (double)p->n_experts;
        skew = fmax(skew, p->experts[i].most / p->experts[i].mean);
    }
    out_printf(
        "experts: %.1f of %u used in a layer on average; the busiest of all has %.1f times the mean's rows\n",
        used, p->experts[0].n, skew);
}

static void print_step(const struct profile_result *r, const struct named_step *s)
{
    const struct step_profile *p = &s->at;
    const struct step_shape *shape = &p->shape;

    if (*s->left_out)
        out_printf("\n## Step: %s\n\nleft out: %s\n", s->name, s->left_out);
    if (p->n_plays == 0)
        return;
    out_printf("\n## Step: %s\n\n%u sequence%s of %u row%s each at depth %u: %u commands, %u barriers. "
               "Plain %.3f ms",
               s->name, shape->n_sequences, str_plural(shape->n_sequences), shape->n_rows,
               str_plural(shape->n_rows), shape->depth, p->n_commands, p->n_barriers, p->plain * 1e-6);
    if (p->is_timed)
        out_printf(", stamped %.3f (%+.1f %%), of %u plays each.\n\n", p->timed * 1e-6,
                   100 * (p->timed / p->plain - 1), p->n_plays);
    else
        out_printf(", of %u plays; this device cannot tell when a command ran.\n\n", p->n_plays);
    print_kinds(r, p);
    print_layers(r, p);
    print_experts(p);
}

// ---- all

static void print_head(const struct profile_result *r)
{
    out_printf("# %s: %s, %s, %.2f MiB\n\n", r->info.model_name, r->info.architecture, r->info.format,
               (double)r->info.weight_bytes / 1048576);
    for (uint32_t i = 0; i < r->n_devices; i++) {
        const struct device_limits *l = &r->devices[i].limits;
        out_printf("%s: reads %.1f GB/s, computes %.1f GFLOP/s in %s, a command takes %.2f us at least\n",
                   r->devices[i].name, l->read_bytes * 1e-9, l->operations * 1e-9, r->info.format,
                   l->command_ns * 1e-3);
    }
    out_printf("%s\n\n", r->info.device);
}

static void print_figure(const char *what, const struct energy_figure *f, const char *unit)
{
    char processor[32], gpus[32];

    out_printf("| %-20s | %-4s | %9s | %9s |\n", what, unit, number(f->processor, "%.3f", processor),
               number(f->gpus, "%.3f", gpus));
}

static void print_energy(const struct profile_energy *e, bool brief)
{
    out_text("\n## Energy\n\n");
    if (!e->is_measured) {
        out_text(brief ? "left out by --short\n"
                       : "- (no counter can be read: RAPL is root's on most systems, NVML is NVIDIA's)\n");
        return;
    }
    out_text("|                      |      | processor |      GPUs "
             "|\n|----------------------|------|----------:|----------:|\n");
    print_figure("at rest", &e->rest_watts, "W");
    print_figure("a token of an answer", &e->answer_joules, "J");
    print_figure("a token of a prompt", &e->prompt_joules, "J");
}

static void print_part(const char *name, uint64_t predicted, uint64_t taken)
{
    char text[32];

    out_printf("| %-8s | %10s | %10.2f |", name,
               number(predicted ? (double)predicted / 1048576 : -1, "%.2f", text), (double)taken / 1048576);
    if (predicted)
        out_printf(" %+8.1f %% |\n", 100 * ((double)taken / (double)predicted - 1));
    else
        out_text("          - |\n");
}

static void print_memory(const struct profile_result *r)
{
    const struct memory_use *p = &r->predicted, *t = &r->taken;

    out_text("\n## Memory\n\n| MiB      |  predicted |      taken | difference "
             "|\n|----------|-----------:|-----------:|-----------:|\n");
    print_part("weights", p->weights, t->weights);
    print_part("KV pages", p->pages, t->pages);
    print_part("scratch", p->scratch, t->scratch);
    if (t->tower)
        print_part("tower", p->tower, t->tower);
    print_part("all", p->weights + p->pages + p->scratch + p->tower,
               t->weights + t->pages + t->scratch + t->tower);
    if (r->resident_bytes >= 0)
        out_printf("\nthe process grew by %.2f MiB, of which the system counts what was touched\n",
                   r->resident_bytes / 1048576);
}

void profile_print(const struct profile_result *r)
{
    print_head(r);
    print_phases(&r->phases);
    for (uint32_t i = 0; i < N_PROFILE_STEPS; i++)
        print_step(r, &r->steps[i]);
    if (!r->complete)
        return;
    print_energy(&r->energy, r->brief);
    print_memory(r);
}
