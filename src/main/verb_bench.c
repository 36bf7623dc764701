// verb_bench.c - ingot bench: which tests, in which order, beside which peers. Measuring is in
// model_tools/bench_measure.c, printing in bench_report.c.
#include <string.h>
#include "base/bandwidth.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/thread_pool.h"
#include "main/bench_image.h"
#include "main/bench_report.h"
#include "main/bench_serve.h"
#include "main/following.h"
#include "main/loading.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/signals.h"
#include "model_tools/bench_peer.h"

enum { MAX_TESTS = 256, WARM_UP_TOKENS = 4 };

struct bench_job {
    const struct settings *settings;
    struct ingot_engine *engine;
    struct model_info model;
    struct bench_report report;
    struct bench_test tests[MAX_TESTS];
    struct bench_row rows[MAX_TESTS];
    double means_ts[MAX_TESTS]; // of the tests that were run
    double last_rate;           // of memory, when last probed
    uint32_t n_tests, n_rows;
    const char *label; // of the engine that is measured now; see bench_report.h
    struct arena *arena;
};

// ---- what to run

static bool add_test(struct bench_job *b, uint32_t n_prompt, uint32_t n_gen, uint32_t depth)
{
    if (n_prompt == 0 && n_gen == 0)
        return true;
    if (b->n_tests == MAX_TESTS) {
        fail_usage("bench: more than %d tests", MAX_TESTS);
        return false;
    }
    b->tests[b->n_tests++] = (struct bench_test){ n_prompt, n_gen, depth, signals_none };
    return true;
}

// "512,128"
static bool parse_pair(const char *text, uint32_t pair[2])
{
    struct str s = str_from(text);
    size_t comma = str_find(s, STR(","));
    uint64_t a, b;

    if (comma == SIZE_MAX || !str_to_u64(str_from_to(s, 0, comma), &a) ||
        !str_to_u64(str_from_to(s, comma + 1, s.n), &b) || a == 0 || b == 0 || a > 1000000 || b > 1000000) {
        fail_usage("-pg: found '%.40s', expected two numbers from 1 to 1000000, as in 512,128", text);
        return false;
    }
    pair[0] = (uint32_t)a;
    pair[1] = (uint32_t)b;
    return true;
}

static bool tests_at_depth(struct bench_job *b, uint32_t depth)
{
    const struct settings *s = b->settings;

    for (size_t i = 0; i < s->n_prompt.n; i++) {
        if (!add_test(b, s->n_prompt.at[i], 0, depth))
            return false;
    }
    for (size_t i = 0; i < s->n_gen.n; i++) {
        if (!add_test(b, 0, s->n_gen.at[i], depth))
            return false;
    }
    for (size_t i = 0; i < s->prompt_gen.n; i++) {
        uint32_t pair[2];
        if (!parse_pair(s->prompt_gen.at[i], pair) || !add_test(b, pair[0], pair[1], depth))
            return false;
    }
    return true;
}

static bool choose_tests(struct bench_job *b)
{
    for (size_t i = 0; i < b->settings->depth.n; i++) {
        if (!tests_at_depth(b, b->settings->depth.at[i]))
            return false;
    }
    if (b->n_tests == 0)
        fail_usage("bench: no test is left: give -p, -n or -pg");
    return b->n_tests > 0;
}

// ---- running

static bool row_alloc(const struct bench_job *b, struct bench_row *row, const struct bench_test *test)
{
    uint32_t n = b->settings->repetitions;
    size_t n_peers = b->settings->peers.n;

    *row = (struct bench_row){ .test = *test, .label = b->label };
    row->samples_ms = mem_alloc_array(n, sizeof(double));
    row->samples_ts = mem_alloc_array(n, sizeof(double));
    row->first_ms = mem_alloc_array(n, sizeof(double));
    row->gaps_ms = mem_alloc_array((size_t)n * (test->n_gen + 1), sizeof(double));
    row->peer_ts = mem_alloc_array(n_peers * n + 1, sizeof(double));
    return row->samples_ms && row->samples_ts && row->first_ms && row->gaps_ms && row->peer_ts;
}

static void row_free(struct bench_row *row)
{
    mem_free(row->samples_ms);
    mem_free(row->samples_ts);
    mem_free(row->first_ms);
    mem_free(row->gaps_ms);
    mem_free(row->peer_ts);
}

static bool warm_up(struct bench_job *b, const struct bench_test *test, struct err *err)
{
    struct bench_test short_test = *test;
    struct bench_sample sample = { 0 };
    struct bench_measure m;

    short_test.n_gen = test->n_gen < WARM_UP_TOKENS ? test->n_gen : WARM_UP_TOKENS;
    short_test.depth = 0;
    if (b->settings->no_warmup)
        return true;
    bool ok = bench_measure_begin(&m, b->engine, &short_test, err);
    if (ok) {
        ok = bench_measure_run(&m, &sample, err);
        bench_measure_end(&m);
    }
    return ok;
}

static bool run_peers(const struct bench_job *b, struct bench_row *row, uint32_t round, struct err *err)
{
    const struct settings *s = b->settings;

    for (size_t i = 0; i < s->peers.n; i++) {
        struct bench_peer_call peer = { s->peers.at[i], s->model, row->test, b->report.n_threads };
        if (!bench_peer_run(&peer, &row->peer_ts[i * s->repetitions + round], err))
            return false;
    }
    return true;
}

// Runs ingot and the peers in turn, so that a machine that slows down slows all of them.
static bool run_rounds(struct bench_job *b, struct bench_measure *m, struct bench_row *row, struct err *err)
{
    const struct settings *s = b->settings;

    for (uint32_t i = 0; i < s->repetitions; i++) {
        struct bench_sample sample = { .gaps_ms = row->gaps_ms + row->n_gaps };
        if (!bench_measure_run(m, &sample, err))
            return false;
        row->samples_ms[i] = sample.ms;
        row->samples_ts[i] = bench_test_tokens(&row->test) * 1000.0 / sample.ms;
        row->first_ms[i] = sample.first_token_ms;
        row->n_gaps += sample.n_gaps;
        row->n_samples++;
        if (!run_peers(b, row, i, err))
            return false;
        if (signals_interrupts())
            return err_set(err, ERR_CANCELLED, "stopped");
    }
    return true;
}

// The bytes that a run reads at least: the weights once for every step, and the K and V of what came before.
static double run_bytes(const struct bench_job *b, const struct bench_test *t)
{
    static const double number_bytes[] = { 0, 4, 2, 2, 1.0625 };
    double kv = (double)b->model.kv_bytes / 4 *
                (number_bytes[b->report.info.cache_type_k] + number_bytes[b->report.info.cache_type_v]);
    double prompt_steps =
        t->n_prompt ? (double)((t->n_prompt + b->report.info.n_batch - 1) / b->report.info.n_batch) : 0;
    double start = (double)t->depth + t->n_prompt;

    return (double)b->model.read_bytes * (prompt_steps + t->n_gen) + kv * prompt_steps * t->depth +
           kv * t->n_gen * (start + t->n_gen / 2.0);
}

static bool fill_row(struct bench_job *b, const struct bench_test *test, struct bench_row *row,
                     struct err *err)
{
    struct bench_measure m;

    if (!row_alloc(b, row, test))
        return err_memory(err, "the measurements");
    if (!warm_up(b, test, err) || !bench_measure_begin(&m, b->engine, test, err))
        return false;
    bool ok = run_rounds(b, &m, row, err);
    bench_measure_end(&m);
    return ok;
}

// Probes before and after every test, since the memory of a virtual machine may run at half its speed for
// half a minute; the faster probe counts.
static void probe_memory(struct bench_job *b)
{
    double rate =
        bench_on_cpu(&b->report) ? bandwidth_read(b->report.n_threads) : 0; // a GPU reads memory of its own

    b->report.bandwidth = rate > b->last_rate ? rate : b->last_rate;
    b->last_rate = rate;
}

static bool run_test(struct bench_job *b, const struct bench_test *test, struct err *err)
{
    struct bench_row *row = &b->rows[b->n_rows++];

    if (!fill_row(b, test, row, err))
        return false;
    b->means_ts[b->n_rows - 1] = stats_mean(row->samples_ts, row->n_samples);
    stats_sort(row->gaps_ms, row->n_gaps);
    probe_memory(b);
    double seconds = stats_mean(row->samples_ms, row->n_samples) * 1e-3;
    row->share =
        b->model.known && b->report.bandwidth > 0 ? run_bytes(b, test) / seconds / b->report.bandwidth : 0;
    bench_print(&b->report, row);
    return true;
}

static struct settings engine_settings(const struct bench_job *b)
{
    struct settings s = *b->settings;

    for (uint32_t i = 0; i < b->n_tests && b->settings->n_context == 0; i++) {
        uint32_t needed = bench_test_context(&b->tests[i]);
        s.n_context = needed > s.n_context ? needed : s.n_context;
    }
    s.no_prefix_cache = true; // each round computes its prompt
    s.cache_dir = NULL;
    if (!strcmp(s.speculate, "auto") && !s.draft) // a token a step, as peers count them
        s.speculate = "off";
    return s;
}

static struct ingot_engine *open_engine(const struct bench_job *b)
{
    struct settings s = engine_settings(b);

    return loading_engine(&s, 1);
}

// On ranks other than the first: the exit status; else -1.
static int follow(const struct bench_job *b)
{
    struct settings s = engine_settings(b);
    struct ingot_engine_options options = loading_options(&s);

    options.n_sequences = 1;
    return following(&options);
}

static int ended(const struct err *err)
{
    if (err->code != ERR_NONE) // else opening has printed the error
        fail(err->message);
    return err->code == ERR_CANCELLED ? STATUS_INTERRUPTED : STATUS_ERROR;
}

// Measures what --invariant costs: the same tests on an engine without it. The first engine is closed.
static int print_price(const struct bench_job *invariant, struct settings settings)
{
    struct bench_job b = *invariant;
    struct err err = { 0 };

    settings.invariant = false;
    settings.peers.n = 0;
    b.settings = &settings;
    b.engine = open_engine(&b);
    bool ok = b.engine != NULL;
    for (uint32_t i = 0; i < b.n_tests && ok; i++) {
        struct bench_row row = { 0 };
        char name[64];
        ok = fill_row(&b, &b.tests[i], &row, &err);
        double plain = ok ? stats_mean(row.samples_ts, row.n_samples) : 1;
        bench_row_name(&row, name, sizeof name);
        if (ok)
            out_printf("%s: --invariant costs %.0f %%: %.2f tokens/s, %.2f without\n", name,
                       100 * (1 - b.means_ts[i] / plain), b.means_ts[i], plain);
        row_free(&row);
    }
    ingot_engine_close(b.engine);
    return ok ? out_finish() : ended(&err);
}

// Runs all tests on one engine.
static int run_engine(struct bench_job *b)
{
    struct err err = { 0 };
    bool ok = true;
    int status = follow(b);

    if (status >= 0)
        return status;
    b->engine = open_engine(b);
    if (!b->engine)
        return ended(&err);
    b->report.n_threads = b->settings->n_threads ? b->settings->n_threads : thread_count_available();
    ingot_engine_info(b->engine, &b->report.info);
    probe_memory(b);
    if (b->n_rows == 0)
        bench_head(&b->report);
    for (uint32_t i = 0; i < b->n_tests && ok && out_state() == OUT_OPEN; i++)
        ok = run_test(b, &b->tests[i], &err);
    ingot_engine_close(b->engine);
    b->engine = NULL;
    return following_status(ok ? STATUS_OK : ended(&err));
}

// Number i of the combinations of -t, -b, -dev, -ctk and -ctv, the first of which changes slowest.
static struct settings combination(const struct settings *all, size_t i)
{
    struct settings s = *all;

    s.cache_type_v = all->bench_type_v.at[i % all->bench_type_v.n];
    i /= all->bench_type_v.n;
    s.cache_type_k = all->bench_type_k.at[i % all->bench_type_k.n];
    i /= all->bench_type_k.n;
    s.device = all->bench_device.at[i % all->bench_device.n];
    i /= all->bench_device.n;
    s.n_batch = all->bench_batch.at[i % all->bench_batch.n];
    s.n_threads = all->bench_threads.at[i / all->bench_batch.n];
    return s;
}

static size_t n_combinations(const struct settings *s)
{
    return s->bench_type_v.n * s->bench_type_k.n * s->bench_device.n * s->bench_batch.n * s->bench_threads.n;
}

// Devices that share the layers are joined by slashes, as llama-bench has it.
static const char *devices_of(struct bench_job *b, const char *joined)
{
    size_t n = strlen(joined) + 1;
    char *list = arena_alloc(b->arena, n);

    for (size_t i = 0; list && i < n; i++)
        list[i] = joined[i] == '/' ? ',' : joined[i];
    return list ? list : joined;
}

// What changes from engine to engine: " t2 b512 k q8_0".
static const char *label_of(const struct bench_job *b, const struct settings *s)
{
    struct buf text = { 0 };

    if (s->bench_threads.n > 1)
        buf_printf(&text, " t%u", s->n_threads);
    if (s->bench_device.n > 1)
        buf_printf(&text, " %s", s->device);
    if (s->bench_batch.n > 1)
        buf_printf(&text, " b%u", s->n_batch);
    if (s->bench_type_k.n > 1)
        buf_printf(&text, " k %s", s->cache_type_k);
    if (s->bench_type_v.n > 1)
        buf_printf(&text, " v %s", s->cache_type_v);
    const char *label = arena_str(b->arena, buf_as_str(&text)).at;
    buf_free(&text);
    return label ? label : "";
}

static int run_engines(struct bench_job *b)
{
    const struct settings *all = b->settings;
    int status = STATUS_OK;
    struct err err;

    for (size_t i = 0; i < n_combinations(all) && status == STATUS_OK && out_state() == OUT_OPEN; i++) {
        struct settings s = combination(all, i);
        s.device = devices_of(b, s.device);
        b->settings = &s;
        b->label = label_of(b, &s);
        status = run_engine(b);
    }
    b->settings = all;
    if (b->n_rows)
        bench_foot(&b->report);
    for (uint32_t i = 0; i < b->n_rows && status == STATUS_OK; i++)
        bench_lines(&b->report, &b->rows[i]);
    if (status == STATUS_OK && all->svg && !bench_plot(all->svg, &b->report, b->rows, b->n_rows, &err))
        status = fail(err.message);
    for (uint32_t i = 0; i < b->n_rows; i++)
        row_free(&b->rows[i]);
    return status == STATUS_OK ? out_finish() : status;
}

static int bench_run(struct bench_job *b)
{
    size_t n = n_combinations(b->settings);
    struct err err;

    if (!choose_tests(b))
        return STATUS_USAGE;
    if (n * b->n_tests > MAX_TESTS)
        return fail_usage(
            "bench: %zu combinations of -t, -b, -dev, -ctk and -ctv with %u test%s each; at most %d rows", n,
            b->n_tests, str_plural(b->n_tests), MAX_TESTS);
    if (n > 1 && following_any())
        return fail_usage(
            "bench: several ranks measure one engine; give one each of -t, -b, -dev, -ctk, -ctv");
    if (b->settings->peers.n && !b->settings->model)
        return fail_usage("--peer needs a file that both programs can read: name one with -m");
    if (!model_info_open(&b->model, b->settings->model, 0, &err))
        return fail(err.message);
    b->report = (struct bench_report){ .settings = b->settings,
                                       .model = &b->model,
                                       .rows.format = b->settings->output };
    int status = run_engines(b);
    if (status == STATUS_OK && b->settings->invariant && !strcmp(b->settings->output, "md") && n == 1 &&
        !following_any())
        status = print_price(b, combination(b->settings, 0));
    model_info_close(&b->model);
    return status;
}

int verb_bench(const struct verb_call *call)
{
    if (call->settings->serve_url)
        return bench_serve(call->settings);
    if (call->settings->images.n)
        return bench_image(call->settings);
    struct bench_job *b = mem_alloc(sizeof *b);
    if (!b)
        return fail("out of memory");
    b->settings = call->settings;
    b->arena = call->arena;
    int status = bench_run(b);
    mem_free(b);
    return status;
}
