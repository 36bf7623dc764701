// bench_serve.c - see bench_serve.h. The load comes from load_generator.c.
#include "main/bench_serve.h"
#include <string.h>
#include "base/stats.h"
#include "main/load_generator.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/out_json.h"

enum { MAX_ROWS = 16, REQUESTS_EACH = 4, LEAST_REQUESTS = 16 };
static const double QUANTILES[3] = { 0.5, 0.95, 0.99 };

static double rate(const struct load_result *r)
{
    return r->seconds > 0 ? (double)r->n_tokens / r->seconds : 0;
}

static void print_row(const struct load_result *r)
{
    out_printf("| %7u | %8u | %7u | %4u | %8.1f |", r->n_clients, r->n_whole, r->n_refused,
               r->n_cut + r->n_failed, rate(r));
    for (int i = 0; i < 3; i++)
        out_printf(" %8.1f |", stats_quantile(r->first.at, r->first.n, QUANTILES[i]));
    for (int i = 0; i < 3; i++)
        out_printf(" %7.2f |", stats_quantile(r->gaps.at, r->gaps.n, QUANTILES[i]));
    out_text("\n");
    out_flush();
}

static void print_head(void)
{
    out_text("| clients | answered | refused | lost | tokens/s | first p50 |   p95 ms |   p99 ms | gap p50 | "
             " p95 ms |  p99 ms |\n"
             "|--------:|---------:|--------:|-----:|---------:|----------:|---------:|---------:|--------:|-"
             "-------:|--------:|\n");
}

static json_t *times_json(const struct load_times *t)
{
    return json_pack("[f, f, f]", stats_quantile(t->at, t->n, 0.5), stats_quantile(t->at, t->n, 0.95),
                     stats_quantile(t->at, t->n, 0.99));
}

static json_t *row_json(const struct load_result *r)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:I, s:f, s:f, s:o, s:o}", "clients", (int)r->n_clients,
                     "answered", (int)r->n_whole, "refused", (int)r->n_refused, "cut", (int)r->n_cut,
                     "failed", (int)r->n_failed, "tokens", (json_int_t)r->n_tokens, "seconds", r->seconds,
                     "tokens_per_second", rate(r), "first_token_ms_p50_p95_p99", times_json(&r->first),
                     "token_ms_p50_p95_p99", times_json(&r->gaps));
}

static struct load_options options_for(const struct settings *s, uint32_t n_clients, uint32_t row)
{
    uint32_t usual = n_clients * REQUESTS_EACH > LEAST_REQUESTS ? n_clients * REQUESTS_EACH : LEAST_REQUESTS;
    return (struct load_options){
        .url = s->serve_url,
        .key = s->api_keys.n ? s->api_keys.at[0] : NULL,
        .n_clients = n_clients,
        .n_requests = s->n_requests ? s->n_requests : usual,
        .n_words = s->n_prompt.n ? s->n_prompt.at[0] : 64,
        .n_tokens = s->n_gen.n && s->n_gen.at[0] ? s->n_gen.at[0] : 64,
        .seed = row + 1,
    };
}

static bool check(const struct settings *s)
{
    if (strncmp(s->serve_url, "http://", 7) != 0 && strncmp(s->serve_url, "https://", 8) != 0) {
        fail_usage("--serve: found '%.80s', expected a URL such as http://127.0.0.1:8080", s->serve_url);
        return false;
    }
    if (s->n_clients.n > MAX_ROWS) {
        fail_usage("--clients: %zu numbers; at most %d", s->n_clients.n, MAX_ROWS);
        return false;
    }
    return true;
}

int bench_serve(const struct settings *s)
{
    struct load_result rows[MAX_ROWS] = { 0 };
    struct err err = { 0 };
    bool json = strcmp(s->output, "md") != 0, ok = true;
    uint32_t n = 0, n_lost = 0;

    if (!check(s))
        return STATUS_USAGE;
    if (!json)
        print_head();
    for (uint32_t i = 0; ok && i < s->n_clients.n && out_state() == OUT_OPEN; i++) {
        struct load_options o = options_for(s, s->n_clients.at[i], i);
        ok = load_run(&o, &rows[n++], &err);
        if (ok && json) {
            out_json(row_json(&rows[i]), JSON_COMPACT);
            out_text("\n");
        } else if (ok) {
            print_row(&rows[i]);
        }
        n_lost += rows[i].n_cut + rows[i].n_failed;
        if (rows[i].problem[0])
            fprintf(stderr, "ingot: with %u clients: %s\n", rows[i].n_clients, rows[i].problem);
    }
    if (ok && s->svg)
        ok = load_plot(s->svg, rows, n, &err);
    for (uint32_t i = 0; i < n; i++)
        load_release(&rows[i]);
    if (!ok)
        return err.code == ERR_CANCELLED ? STATUS_INTERRUPTED : fail(err.message);
    int status = out_finish();
    return n_lost ? STATUS_ERROR : status;
}
