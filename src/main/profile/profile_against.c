// profile_against.c - a profile beside an older one of the same model on the same device.
//
// Of each series (runs of a case, plays of a step) the ratio of medians, with an interval: medians of samples
// drawn with repetition, 1000 times, from a fixed seed; 95 of 100 ratios lie in it. "slower" and "faster"
// only where the interval does not touch 1 and the change is more than 1 %; "the same" where it lies within 3
// % of 1; else nothing can be said. The middle of a series moves also when the machine is busy: compare in
// one sitting.
#include <math.h>
#include <string.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/stats.h"
#include "main/profile/profile_report.h"
#include "main/terminal/out.h"

enum { DRAWS = 1000, MOST_SAMPLES = 4096, LEAST_SAMPLES = 3, MOST_LINES = 6 };
static const size_t MOST_BYTES = (size_t)256 << 20;

json_t *profile_read(const char *path, struct err *err)
{
    struct buf text = { 0 };
    json_error_t wrong;
    json_t *value = NULL;

    if (file_read(&text, path, MOST_BYTES, err)) {
        value = json_loadb(text.at ? text.at : "", text.n, 0, &wrong);
        const char *schema = json_string_value(json_object_get(value, "schema"));
        if (!value)
            err_set(err, ERR_INPUT, "%s: no JSON in line %d: %.120s; want what ingot profile -o json wrote",
                    path, wrong.line, wrong.text);
        else if (!schema || strcmp(schema, "ingot-profile-1") != 0) {
            err_set(err, ERR_INPUT,
                    "%s: the schema is '%.40s', expected ingot-profile-1, as ingot profile -o json writes it",
                    path, schema ? schema : "");
            json_decref(value);
            value = NULL;
        }
    }
    buf_free(&text);
    return value;
}

// ---- the same thing?

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static bool is_same_text(const json_t *now, const json_t *before, const char *key, struct err *err)
{
    return strcmp(text_of(now, key), text_of(before, key)) == 0 ||
           err_set(err, ERR_INPUT,
                   "--against: %s was '%.80s' and is '%.80s'; two profiles of one thing can be compared", key,
                   text_of(before, key), text_of(now, key));
}

static bool is_same_number(const json_t *now, const json_t *before, const char *key, struct err *err)
{
    double a = json_number_value(json_object_get(now, key)),
           b = json_number_value(json_object_get(before, key));
    return a == b || err_set(err, ERR_INPUT,
                             "--against: %s was %.0f and is %.0f; two profiles of one thing can be compared",
                             key, b, a);
}

static bool is_comparable(const json_t *now, const json_t *before, struct err *err)
{
    const json_t *model = json_object_get(now, "model"), *old = json_object_get(before, "model");

    return is_same_text(model, old, "name", err) && is_same_text(model, old, "architecture", err) &&
           is_same_text(model, old, "format", err) && is_same_number(model, old, "parameters", err) &&
           is_same_text(now, before, "device", err) && is_same_number(now, before, "threads", err);
}

// ---- series

struct series {
    double at[MOST_SAMPLES];
    size_t n;
};

static void read_series(struct series *s, const json_t *array)
{
    s->n = 0;
    for (size_t i = 0; i < json_array_size(array) && s->n < MOST_SAMPLES; i++) {
        double x = json_number_value(json_array_get(array, i));
        if (x > 0 && isfinite(x))
            s->at[s->n++] = x;
    }
}

static double drawn_median(const struct series *s, double *room, uint64_t *random)
{
    for (size_t i = 0; i < s->n; i++) {
        *random = *random * 6364136223846793005u + 1442695040888963407u;
        room[i] = s->at[(*random >> 33) % s->n];
    }
    return stats_median(room, s->n);
}

struct series_change {
    double ratio, low, high; // of times: above 1 is slower
};

static struct series_change change_of(const struct series *now, const struct series *before)
{
    double ratios[DRAWS], room[MOST_SAMPLES];
    uint64_t random = 1;
    struct series_change c;

    for (int i = 0; i < DRAWS; i++) {
        double new_median = drawn_median(now, room, &random);
        ratios[i] = new_median / drawn_median(before, room, &random);
    }
    stats_sort(ratios, DRAWS);
    c.low = stats_quantile(ratios, DRAWS, 0.025);
    c.high = stats_quantile(ratios, DRAWS, 0.975);
    memcpy(room, now->at, now->n * sizeof *room);
    c.ratio = stats_median(room, now->n);
    memcpy(room, before->at, before->n * sizeof *room);
    c.ratio /= stats_median(room, before->n);
    return c;
}

static const char *verdict(const struct series_change *c)
{
    if (c->low > 1 && c->ratio > 1.01)
        return "slower";
    if (c->high < 1 && c->ratio < 0.99)
        return "faster";
    return c->low > 0.97 && c->high < 1.03 ? "the same" : "cannot say";
}

struct comparing {
    struct series now, before;
    double worst;
};

static void compare_series(struct comparing *w, const char *what, const json_t *now, const json_t *before)
{
    read_series(&w->now, now);
    read_series(&w->before, before);
    if (w->now.n < LEAST_SAMPLES || w->before.n < LEAST_SAMPLES) {
        out_printf("| %-24s | %7s | %15s | %-10s |\n", what, "", "", "cannot say");
        return;
    }
    struct series_change c = change_of(&w->now, &w->before);
    if (c.low > w->worst)
        w->worst = c.low;
    out_printf("| %-24s | %+5.1f %% | %+6.1f to %+5.1f | %-10s |\n", what, 100 * (c.ratio - 1),
               100 * (c.low - 1), 100 * (c.high - 1), verdict(&c));
}

static const json_t *named(const json_t *array, const char *name)
{
    for (size_t i = 0; i < json_array_size(array); i++)
        if (strcmp(text_of(json_array_get(array, i), "name"), name) == 0)
            return json_array_get(array, i);
    return NULL;
}

static void compare_phases(struct comparing *w, const json_t *now, const json_t *before)
{
    const json_t *cases = json_object_get(now, "phases"), *old_cases = json_object_get(before, "phases");

    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *old = named(old_cases, text_of(c, "name"));
        bool same = old && is_same_number(c, old, "prompt", NULL) && is_same_number(c, old, "answer", NULL);
        if (same && json_array_size(json_object_get(c, "run_ms")) >= LEAST_SAMPLES)
            compare_series(w, text_of(c, "name"), json_object_get(c, "run_ms"),
                           json_object_get(old, "run_ms"));
    }
}

// ---- operations

struct kind_change {
    const char *name;
    double ns, old_ns;
};

static uint32_t sum_kinds(struct kind_change *kinds, uint32_t n, const json_t *step, bool is_old)
{
    const json_t *commands = json_object_get(step, "commands");

    for (size_t i = 0; i < json_array_size(commands); i++) {
        const json_t *c = json_array_get(commands, i);
        double ns = json_number_value(json_object_get(c, "ns"));
        uint32_t k = 0;
        while (k < n && strcmp(kinds[k].name, text_of(c, "operation")) != 0)
            k++;
        if (k == MOST_KINDS)
            continue;
        if (k == n)
            kinds[n++] = (struct kind_change){ .name = text_of(c, "operation") };
        *(is_old ? &kinds[k].old_ns : &kinds[k].ns) += ns;
    }
    return n;
}

static int compare_changes(const void *a, const void *b)
{
    const struct kind_change *x = a, *y = b;
    double i = fabs(x->ns - x->old_ns), j = fabs(y->ns - y->old_ns);
    return i > j ? -1 : i < j;
}

static void compare_kinds(const json_t *step, const json_t *old)
{
    struct kind_change kinds[MOST_KINDS];
    uint32_t n = sum_kinds(kinds, sum_kinds(kinds, 0, step, false), old, true);

    qsort(kinds, n, sizeof *kinds, compare_changes);
    for (uint32_t i = 0; i < n && i < MOST_LINES; i++)
        if (kinds[i].ns > 0 || kinds[i].old_ns > 0)
            out_printf("  %-24.24s %+9.1f us (%.1f, was %.1f)\n", kinds[i].name,
                       (kinds[i].ns - kinds[i].old_ns) * 1e-3, kinds[i].ns * 1e-3, kinds[i].old_ns * 1e-3);
}

static bool is_same_step(const json_t *step, const json_t *old, struct err *err)
{
    return is_same_number(step, old, "depth", err) && is_same_number(step, old, "rows", err) &&
           is_same_number(step, old, "sequences", err);
}

static bool check_steps(const json_t *now, const json_t *before, struct err *err)
{
    const json_t *steps = json_object_get(now, "steps"), *old_steps = json_object_get(before, "steps");

    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *s = json_array_get(steps, i), *old = named(old_steps, text_of(s, "name"));
        if (old && !is_same_step(s, old, err))
            return false;
    }
    return true;
}

static void compare_steps(struct comparing *w, const json_t *now, const json_t *before)
{
    const json_t *steps = json_object_get(now, "steps"), *old_steps = json_object_get(before, "steps");

    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *s = json_array_get(steps, i), *old = named(old_steps, text_of(s, "name"));
        char what[40];
        if (!old)
            continue;
        snprintf(what, sizeof what, "step: %.30s", text_of(s, "name"));
        compare_series(w, what, json_object_get(s, "plain_samples_ns"),
                       json_object_get(old, "plain_samples_ns"));
    }
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *s = json_array_get(steps, i), *old = named(old_steps, text_of(s, "name"));
        if (!old)
            continue;
        out_printf("\nstep: %.30s, by operation, stamped:\n", text_of(s, "name"));
        compare_kinds(s, old);
    }
}

bool profile_compare(const json_t *now, const json_t *before, double *worst, struct err *err)
{
    struct comparing *w;

    if (!is_comparable(now, before, err) || !check_steps(now, before, err))
        return false;
    w = mem_alloc(sizeof *w);
    if (!w)
        return err_memory(err, "the comparison");
    w->worst = 1;
    out_printf("\n## Against %.40s, commit %.40s\n\n| series                   |  change | 95 %% within     "
               "| verdict    |\n"
               "|--------------------------|--------:|----------------:|------------|\n",
               text_of(before, "time"), text_of(before, "commit"));
    compare_phases(w, now, before);
    compare_steps(w, now, before);
    *worst = w->worst;
    mem_free(w);
    return true;
}
