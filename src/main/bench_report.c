// bench_report.c - see bench_report.h.
//
// The table has llama-bench's columns and one more at the end, "DRAM", so that rows can be pasted together.
// Latencies follow below it, one line per test, since they have no column there.
#include <string.h>
#include "main/bench_report.h"
#include <time.h>
#include "base/mem.h"
#include "base/stats.h"
#include "main/loading.h"
#include "main/terminal/out.h"
#include "main/version.h"

void bench_row_name(const struct bench_row *row, char *name, size_t n)
{
    const struct bench_test *test = &row->test;
    struct buf b = { 0 };

    if (test->n_prompt)
        buf_printf(&b, "pp%u", test->n_prompt);
    if (test->n_gen)
        buf_printf(&b, "%stg%u", b.n ? "+" : "", test->n_gen);
    if (test->depth)
        buf_printf(&b, " @ d%u", test->depth);
    buf_text(&b, row->label);
    snprintf(name, n, "%s", b.at ? b.at : "");
    buf_free(&b);
}

static void amount(double n, char *text, size_t size) // of parameters
{
    if (n >= 1e9)
        snprintf(text, size, "%.2f B", n * 1e-9);
    else
        snprintf(text, size, "%.2f M", n * 1e-6);
}

bool bench_on_cpu(const struct bench_report *r)
{
    return strncmp(r->info.device, "cpu", 3) == 0;
}

static const char *backend(const struct bench_report *r)
{
    return bench_on_cpu(r) ? "CPU" : strncmp(r->info.device, "metal", 5) == 0 ? "Metal" : "CUDA";
}

static int short_amount(double n, char *text, size_t size)
{
    return n >= 1e9 ? snprintf(text, size, "%.3gB", n * 1e-9) : snprintf(text, size, "%.3gM", n * 1e-6);
}

// "qwen3 8.19B Q4_0"; with experts "qwen3moe 30.5B.A3.03B Q4_0", the second being what one token uses.
static void model_type(const struct bench_report *r, char *text, size_t size)
{
    char all[32], used[32] = "";

    short_amount((double)r->info.n_parameters, all, sizeof all);
    if (r->model && r->model->known && r->model->model.n_experts) {
        memcpy(used, ".A", 3);
        short_amount((double)r->model->n_active, used + 2, sizeof used - 2);
    }
    snprintf(text, size, "%s %s%s %s", r->info.architecture, all, used, r->info.format);
}

static bool is_md(const struct bench_report *r)
{
    return !strcmp(r->settings->output, "md");
}

// ---- table

static void md_head(void)
{
    out_text("| model                          |       size |     params | backend    | threads |            "
             "test |              "
             "    t/s |            "
             "DRAM |\n"
             "| ------------------------------ | ---------: | ---------: | ---------- | ------: | "
             "--------------: | "
             "-------------------: | "
             "--------------: |\n");
}

static void md_row(const struct bench_report *r, const struct bench_row *row)
{
    char model[128], size[32], params[32], test[64], speed[48], share[32] = "";
    double mib = (double)r->info.weight_bytes / 1048576.0;

    model_type(r, model, sizeof model);
    snprintf(size, sizeof size, mib < 1024 ? "%.2f MiB" : "%.2f GiB", mib < 1024 ? mib : mib / 1024);
    amount((double)r->info.n_parameters, params, sizeof params);
    bench_row_name(row, test, sizeof test);
    // The sign takes two bytes and one column.
    snprintf(speed, sizeof speed, "%.2f \302\261 %.2f", stats_mean(row->samples_ts, row->n_samples),
             stats_stddev(row->samples_ts, row->n_samples));
    if (r->bandwidth > 0)
        snprintf(share, sizeof share, "%.0f %% of %.0f GB/s", row->share * 100, r->bandwidth * 1e-9);
    out_printf("| %-30s | %10s | %10s | %-10s | %7u | %15s | %21s | %15s |\n", model, size, params,
               backend(r), r->n_threads, test, speed, share);
}

static void md_latency(const struct bench_row *row)
{
    char test[64];

    bench_row_name(row, test, sizeof test);
    if (row->test.n_prompt)
        out_printf("%s: first token after %.1f ms\n", test, stats_median(row->first_ms, row->n_samples));
    if (row->n_gaps)
        out_printf("%s: between tokens p50 %.2f ms, p95 %.2f, p99 %.2f\n", test,
                   stats_quantile(row->gaps_ms, row->n_gaps, 0.5),
                   stats_quantile(row->gaps_ms, row->n_gaps, 0.95),
                   stats_quantile(row->gaps_ms, row->n_gaps, 0.99));
}

// Ratio of medians, and the range of the ratios of single rounds, in which both programs ran one after the
// other.
struct peer_figures {
    double mean, stddev, ratio, least, most;
};

static struct peer_figures peer_figures(const struct bench_row *row, const double *peer_ts)
{
    uint32_t n = row->n_samples;
    struct peer_figures f = { .mean = stats_mean(peer_ts, n), .stddev = stats_stddev(peer_ts, n) };

    f.least = f.most = row->samples_ts[0] / peer_ts[0];
    for (uint32_t i = 1; i < n; i++) {
        double one = row->samples_ts[i] / peer_ts[i];
        f.least = one < f.least ? one : f.least;
        f.most = one > f.most ? one : f.most;
    }
    double *copy = mem_alloc_array(n, sizeof *copy);
    if (!copy)
        return f;
    memcpy(copy, row->samples_ts, n * sizeof *copy);
    f.ratio = stats_median(copy, n);
    memcpy(copy, peer_ts, n * sizeof *copy);
    f.ratio /= stats_median(copy, n);
    mem_free(copy);
    return f;
}

// A round runs both programs one after the other. When the ratios of rounds are far apart, something else
// used the machine.
static bool is_restless(const struct peer_figures *f)
{
    return f->most > 1.1 * f->least;
}

static void md_peers(const struct bench_report *r, const struct bench_row *row)
{
    const struct option_list *peers = &r->settings->peers;
    char test[64], number[24] = "";

    bench_row_name(row, test, sizeof test);
    for (size_t i = 0; i < peers->n; i++) {
        struct peer_figures f = peer_figures(row, row->peer_ts + i * r->settings->repetitions);
        if (peers->n > 1)
            snprintf(number, sizeof number, " %zu", i + 1);
        if (is_restless(&f))
            out_printf(
                "%s: restless: the ratio of single rounds moves by %.0f %%; this sitting says little\n", test,
                100 * (f.most / f.least - 1));
        out_printf(
            "%s: peer%s %.2f \302\261 %.2f t/s; ingot / peer%s = %.2f (medians; rounds %.2f to %.2f)\n", test,
            number, f.mean, f.stddev, number, f.ratio, f.least, f.most);
    }
}

// ---- fields

static double mean_ns(const struct bench_row *row)
{
    return stats_mean(row->samples_ms, row->n_samples) * 1e6;
}

static json_t *samples(const double *x, size_t n, double factor)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(array,
                              factor == 1 ? json_real(x[i]) : json_integer((json_int_t)(x[i] * factor)));
    return array;
}

static void set_machine(json_t *o, const struct bench_report *r)
{
    char model[128];

    model_type(r, model, sizeof model);
    json_object_set_new(o, "build_commit", json_string(version_commit));
    json_object_set_new(o, "build_number", json_integer(0));
    json_object_set_new(o, "cpu_info", json_string(r->info.device));
    json_object_set_new(o, "gpu_info", json_string(""));
    json_object_set_new(o, "backends", json_string(backend(r)));
    json_object_set_new(o, "model_filename", json_string(r->settings->model ? r->settings->model : ""));
    json_object_set_new(o, "model_type", json_string(model));
    json_object_set_new(o, "model_size", json_integer((json_int_t)r->info.weight_bytes));
    json_object_set_new(o, "model_n_params", json_integer((json_int_t)r->info.n_parameters));
    json_object_set_new(o, "n_batch", json_integer(r->info.n_batch));
    json_object_set_new(o, "n_ubatch", json_integer(r->info.n_batch));
    json_object_set_new(o, "n_threads", json_integer(r->n_threads));
    json_object_set_new(o, "type_k", json_string(loading_kv_name(r->info.cache_type_k)));
    json_object_set_new(o, "type_v", json_string(loading_kv_name(r->info.cache_type_v)));
    json_object_set_new(o, "n_gpu_layers", json_integer(0));
}

static json_t *gap_json(const struct bench_row *row, double q)
{
    return row->n_gaps ? json_real(stats_quantile(row->gaps_ms, row->n_gaps, q)) : json_null();
}

static void set_latency(json_t *o, const struct bench_report *r, const struct bench_row *row)
{
    json_object_set_new(o, "dram_bytes_per_second", r->bandwidth > 0 ? json_real(r->bandwidth) : json_null());
    json_object_set_new(o, "dram_share", r->bandwidth > 0 ? json_real(row->share) : json_null());
    json_object_set_new(o, "first_token_ms", json_real(stats_median(row->first_ms, row->n_samples)));
    json_object_set_new(o, "token_ms_p50", gap_json(row, 0.5));
    json_object_set_new(o, "token_ms_p95", gap_json(row, 0.95));
    json_object_set_new(o, "token_ms_p99", gap_json(row, 0.99));
}

// "peer_ratio" of the first, "peer2_ratio" of the second.
static void set_of_peer(json_t *o, size_t peer, const char *name, json_t *value)
{
    char key[48], number[24] = "";

    if (peer > 0)
        snprintf(number, sizeof number, "%zu", peer + 1);
    snprintf(key, sizeof key, "peer%s%s", number, name);
    json_object_set_new(o, key, value);
}

static void set_peers(json_t *o, const struct bench_report *r, const struct bench_row *row)
{
    for (size_t i = 0; i < r->settings->peers.n; i++) {
        struct peer_figures f = peer_figures(row, row->peer_ts + i * r->settings->repetitions);
        set_of_peer(o, i, "", json_string(r->settings->peers.at[i]));
        set_of_peer(o, i, "_avg_ts", json_real(f.mean));
        set_of_peer(o, i, "_stddev_ts", json_real(f.stddev));
        set_of_peer(o, i, "_ratio", json_real(f.ratio));
        set_of_peer(o, i, "_ratio_min", json_real(f.least));
        set_of_peer(o, i, "_ratio_max", json_real(f.most));
        set_of_peer(o, i, "_restless", json_boolean(is_restless(&f)));
    }
}

static json_t *fields(const struct bench_report *r, const struct bench_row *row)
{
    json_t *o = json_object();
    char now[32];
    time_t seconds = time(NULL);
    struct tm utc;

    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    set_machine(o, r);
    json_object_set_new(o, "n_prompt", json_integer(row->test.n_prompt));
    json_object_set_new(o, "n_gen", json_integer(row->test.n_gen));
    json_object_set_new(o, "n_depth", json_integer(row->test.depth));
    json_object_set_new(o, "test_time", json_string(now));
    json_object_set_new(o, "avg_ns", json_integer((json_int_t)mean_ns(row)));
    json_object_set_new(o, "stddev_ns",
                        json_integer((json_int_t)(stats_stddev(row->samples_ms, row->n_samples) * 1e6)));
    json_object_set_new(o, "avg_ts", json_real(stats_mean(row->samples_ts, row->n_samples)));
    json_object_set_new(o, "stddev_ts", json_real(stats_stddev(row->samples_ts, row->n_samples)));
    set_latency(o, r, row);
    set_peers(o, r, row);
    return o;
}

static void add_row(struct bench_report *r, const struct bench_row *row)
{
    json_t *o = fields(r, row);

    json_object_set_new(o, "samples_ns", samples(row->samples_ms, row->n_samples, 1e6));
    json_object_set_new(o, "samples_ts", samples(row->samples_ts, row->n_samples, 1));
    for (size_t i = 0; i < r->settings->peers.n; i++)
        set_of_peer(o, i, "_samples_ts",
                    samples(row->peer_ts + i * r->settings->repetitions, row->n_samples, 1));
    out_rows_add(&r->rows, o);
}

// ---- all

void bench_head(const struct bench_report *r)
{
    if (is_md(r))
        md_head();
    else
        out_rows_begin(&r->rows);
}

void bench_print(struct bench_report *r, const struct bench_row *row)
{
    if (is_md(r))
        md_row(r, row);
    else
        add_row(r, row);
    out_flush();
}

void bench_lines(const struct bench_report *r, const struct bench_row *row)
{
    if (!is_md(r))
        return;
    md_latency(row);
    md_peers(r, row);
}

void bench_foot(const struct bench_report *r)
{
    if (!is_md(r))
        out_rows_end(&r->rows);
}
