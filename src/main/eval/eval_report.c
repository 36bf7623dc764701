// eval_report.c - see eval_report.h. Perplexities carry their standard error, divergences are in nats.
#include "main/eval/eval_report.h"
#include <math.h>
#include "main/loading.h"
#include "main/terminal/out.h"
#include "main/version.h"

#define PLUS_MINUS "\302\261" // two bytes, one column

static bool is_md(const struct eval_report *r)
{
    return !strcmp(r->settings->output, "md");
}

static double perplexity_error(const struct eval_summary *s)
{
    return exp(s->nll.mean) * s->nll.error;
}

// ---- table

// The columns of a comparison are left out where there is none.
static bool compares(const struct eval_report *r)
{
    const struct settings *s = r->settings;
    return s->kl_file || s->eval_types.n > 0 || s->eval_pages.n > 1;
}

void eval_report_begin(const struct eval_report *r)
{
    if (!is_md(r)) {
        out_rows_begin(&r->rows);
        return;
    }
    out_text("| weights   |        size | pages     | KiB/token |           perplexity |");
    if (compares(r))
        out_printf("            ratio |              mean KL |  median |    90 %% |    99 %% |  99.9 %% |    "
                   " max | same top-1 "
                   "| pp%d t/s | tg%d t/s |",
                   EVAL_SPEED_PROMPT, EVAL_SPEED_ANSWER);
    out_text("\n| --------- | ----------: | --------- | --------: | -------------------: |");
    if (compares(r))
        out_text(" ---------------: | -------------------: | ------: | ------: | ------: | ------: | ------: "
                 "| ---------: "
                 "| --------: | -------: |");
    out_text("\n");
}

static void md_speed(double ts, int width)
{
    char text[32] = "";

    if (ts > 0)
        snprintf(text, sizeof text, ts < 100 ? "%.1f" : "%.0f", ts);
    out_printf(" %*s |", width, text);
}

static void md_compared(const struct eval_line *line)
{
    const struct eval_summary *s = &line->summary;
    const double tails[] = { s->kl_median, s->kl_p90, s->kl_p99, s->kl_p999, s->kl_most };
    char text[64];

    snprintf(text, sizeof text, "%.4f " PLUS_MINUS " %.4f", exp(s->excess.mean),
             exp(s->excess.mean) * s->excess.error);
    out_printf(" %*s |", line->compared ? 17 : 16,
               line->compared ? text : ""); // the sign: two bytes, one column
    snprintf(text, sizeof text, "%.3g " PLUS_MINUS " %.1g", s->kl.mean, s->kl.error);
    out_printf(" %*s |", line->compared ? 21 : 20, line->compared ? text : "");
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        snprintf(text, sizeof text, "%.2g", tails[i]);
        out_printf(" %7s |", line->compared ? text : "");
    }
    snprintf(text, sizeof text, "%.2f %%", 100 * s->same_top.mean);
    out_printf(" %10s |", line->compared ? text : "");
    md_speed(line->prompt_ts, 9);
    md_speed(line->answer_ts, 8);
}

static void md_line(const struct eval_report *r, const struct eval_line *line)
{
    const struct eval_summary *s = &line->summary;
    double mib = (double)line->info.weight_bytes / 1048576.0;
    char size[32], ppl[48];

    snprintf(size, sizeof size, mib < 1024 ? "%.2f MiB" : "%.2f GiB", mib < 1024 ? mib : mib / 1024);
    snprintf(ppl, sizeof ppl, "%.4f " PLUS_MINUS " %.4f", exp(s->nll.mean), perplexity_error(s));
    out_printf("| %-9s | %11s | %-9s | %9.2f | %21s |", line->weights, size, line->pages,
               line->kv_bytes / 1024, ppl);
    if (compares(r))
        md_compared(line);
    out_text("\n");
    out_flush();
}

// ---- fields

static void set(json_t *o, const char *key, bool known, double value)
{
    json_object_set_new(o, key, known ? json_real(value) : json_null());
}

static json_t *fields(const struct eval_report *r, const struct eval_line *line)
{
    const struct eval_summary *s = &line->summary;
    bool c = line->compared;
    json_t *o =
        json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:f, s:i, s:i, s:I}", "build_commit", version_commit,
                  "device", line->info.device, "model_filename", r->settings->model ? r->settings->model : "",
                  "weights", line->weights, "type_k", loading_kv_name(line->info.cache_type_k), "type_v",
                  loading_kv_name(line->info.cache_type_v), "weight_bytes",
                  (json_int_t)line->info.weight_bytes, "kv_bytes_per_token", line->kv_bytes, "n_chunk",
                  (int)r->text->n_chunk, "n_chunks", (int)r->text->n_chunks, "n_scored", (json_int_t)s->n);

    set(o, "perplexity", true, exp(s->nll.mean));
    set(o, "perplexity_error", true, perplexity_error(s));
    set(o, "reference_perplexity", c, exp(s->reference_nll));
    set(o, "perplexity_ratio", c, exp(s->excess.mean));
    set(o, "perplexity_ratio_error", c, exp(s->excess.mean) * s->excess.error);
    set(o, "kl_mean", c, s->kl.mean);
    set(o, "kl_error", c, s->kl.error);
    set(o, "kl_median", c, s->kl_median);
    set(o, "kl_p90", c, s->kl_p90);
    set(o, "kl_p99", c, s->kl_p99);
    set(o, "kl_p999", c, s->kl_p999);
    set(o, "kl_max", c, s->kl_most);
    set(o, "same_top", c, s->same_top.mean);
    set(o, "same_top_error", c, s->same_top.error);
    set(o, "prompt_ts", line->prompt_ts > 0, line->prompt_ts);
    set(o, "answer_ts", line->answer_ts > 0, line->answer_ts);
    return o;
}

// ---- all

void eval_report_add(struct eval_report *r, const struct eval_line *line)
{
    if (is_md(r))
        md_line(r, line);
    else
        out_rows_add(&r->rows, fields(r, line));
}

void eval_report_end(const struct eval_report *r)
{
    const struct eval_text *t = r->text;

    if (!is_md(r)) {
        out_rows_end(&r->rows);
        return;
    }
    out_printf("%u chunk%s of %u tokens, of which %u each are scored; divergences in nats\n", t->n_chunks,
               str_plural(t->n_chunks), t->n_chunk, eval_text_scored(t));
}
