// verb_eval.c - ingot eval: which model, format of weights and of pages is measured, and against what.
// Measuring is in model_tools/eval.c, printing in eval_report.c.
//
// With --types or several --kv it compares: the reference is the model as it is, with exact products and F32
// pages, unless --kl names a file. What it writes for that lies in a folder of its own and goes with it.
#include <strings.h>
#include <unistd.h>
#include "base/log.h"
#include "base/mem.h"
#include "base/stats.h"
#include "main/eval/eval_report.h"
#include "main/loading.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"
#include "model_tools/bench_measure.h"
#include "model_tools/quantize/quantize.h"

enum { MOST_LINES = 256, DEFAULT_CHUNK = 512, SPEED_ROUNDS = 3 };

struct eval_work {
    const struct settings *settings;
    struct buf prompt;
    struct eval_text text;        // made by the first engine; with --kl the reference's
    struct logits_file reference; // open once `compared`
    bool compared;
    char folder[4096]; // of what is written for a while; empty: there is none
    struct eval_report report;
    struct eval_line lines[MOST_LINES];
    uint32_t n_lines;
    struct err err; // ERR_NONE after a failure: it has been told
};

static bool is_sweep(const struct settings *s)
{
    return s->eval_types.n > 0 || s->eval_pages.n > 1;
}

// ---- engines

static uint32_t chunk_of(const struct eval_work *w)
{
    uint32_t asked = w->settings->n_context ? w->settings->n_context : DEFAULT_CHUNK;
    return w->text.n_chunk ? w->text.n_chunk : asked;
}

static struct ingot_engine *open_engine(const struct eval_work *w, const struct settings *s)
{
    struct ingot_engine_options options = loading_options(s);

    options.n_context = EVAL_SPEED_PROMPT + EVAL_SPEED_ANSWER + 1;
    eval_engine_options(&options, chunk_of(w));
    return loading_open(&options);
}

// The text's tokens, by the first engine; every other must have the same vocabulary.
static bool find_text(struct eval_work *w, const struct ingot_engine *engine)
{
    const struct eval_text_source source = { w->prompt.at ? w->prompt.at : "", w->prompt.n, chunk_of(w),
                                             w->settings->n_chunks, w->settings->special };

    return w->text.tokens ? eval_check_vocabulary(engine, &w->text, &w->err)
                          : eval_text_make(&w->text, engine, &source, &w->err);
}

static bool speed_of(struct ingot_engine *engine, const struct bench_test *test, double *tokens_per_second,
                     struct err *err)
{
    struct bench_measure m;
    double ms[SPEED_ROUNDS], gaps_ms[EVAL_SPEED_ANSWER + 1];
    bool ok = bench_measure_begin(&m, engine, test, err);

    for (int i = 0; i < SPEED_ROUNDS && ok; i++) {
        struct bench_sample sample = { .gaps_ms = gaps_ms };
        ok = bench_measure_run(&m, &sample, err);
        ms[i] = sample.ms;
    }
    bench_measure_end(&m);
    if (ok)
        *tokens_per_second = bench_test_tokens(test) * 1000.0 / stats_median(ms, SPEED_ROUNDS);
    return ok;
}

static void describe(struct eval_line *line, struct ingot_engine *engine)
{
    struct ingot_engine_stats stats;

    ingot_engine_info(engine, &line->info);
    ingot_engine_stats(engine, &stats);
    line->kv_bytes = (double)line->info.page_bytes / ((double)stats.n_pages * line->info.page_tokens);
    const char *k = loading_kv_name(line->info.cache_type_k), *v = loading_kv_name(line->info.cache_type_v);
    snprintf(line->pages, sizeof line->pages, strcmp(k, v) ? "%s:%s" : "%s", k, v);
    if (!line->weights[0])
        memcpy(line->weights, line->info.format, sizeof line->info.format);
}

// ---- measuring

// Reads the text with a loaded engine. save: where its logits go, or NULL.
static bool read_text(struct eval_work *w, struct ingot_engine *engine, const char *save,
                      struct eval_line *line)
{
    struct progress progress = { .what = line->weights[0] ? line->weights : "reading" };
    struct logits_file_writer writer = { .out.fd = -1 };
    struct eval_job job = { .engine = engine,
                            .n_threads = w->settings->n_threads,
                            .progress = progress_callback,
                            .progress_arg = &progress };

    if (!find_text(w, engine))
        return false;
    job.text = &w->text;
    job.reference = w->compared ? &w->reference : NULL;
    job.save = save ? &writer : NULL;
    line->compared = w->compared;
    bool ok = (!save || logits_file_create(&writer, save, &w->text, &w->err)) &&
              eval_run(&job, &line->summary, &w->err);
    progress_end(&progress);
    ok = ok && (!save || logits_file_commit(&writer, &w->err));
    logits_file_abort(&writer);
    return ok;
}

static bool add_line(struct eval_work *w, const struct settings *s, const char *weights, const char *save)
{
    static const struct bench_test tests[] = { { .n_prompt = EVAL_SPEED_PROMPT, .goes_on = signals_none },
                                               { .n_gen = EVAL_SPEED_ANSWER, .goes_on = signals_none } };
    struct eval_line *line = &w->lines[w->n_lines++];
    struct ingot_engine *engine = open_engine(w, s);

    if (!engine)
        return false;
    snprintf(line->weights, sizeof line->weights, "%s", weights);
    describe(line, engine);
    bool ok = read_text(w, engine, save, line);
    if (ok && is_sweep(w->settings) && !save) // a reference has no speed
        ok = speed_of(engine, &tests[0], &line->prompt_ts, &w->err) &&
             speed_of(engine, &tests[1], &line->answer_ts, &w->err);
    ingot_engine_close(engine);
    if (!ok)
        return false;
    if (w->n_lines == 1)
        eval_report_begin(&w->report);
    eval_report_add(&w->report, line);
    return true;
}

// ---- comparing

static bool make_folder(struct eval_work *w)
{
    char base[4096];

    options_temporary_folder(base);
    if (w->settings->scratch)
        snprintf(base, sizeof base, "%s", w->settings->scratch);
    if ((size_t)snprintf(w->folder, sizeof w->folder, "%s/ingot-eval-XXXXXX", base) >= sizeof w->folder ||
        !mkdtemp(w->folder)) {
        w->folder[0] = 0;
        return err_set(&w->err, ERR_IO, "%s: no folder can be made there; --scratch names another place",
                       base);
    }
    return true;
}

static const char *path_in(const struct eval_work *w, const char *name, char path[4160])
{
    snprintf(path, 4160, "%s/%s", w->folder, name);
    return path;
}

// The model as it is, with what is exact.
static bool make_reference(struct eval_work *w)
{
    struct settings s = *w->settings;
    char path[4160];
    const char *save = s.save_logits ? s.save_logits : path_in(w, "reference", path);

    s.exact = true;
    s.cache_type_k = s.cache_type_v = "f32";
    if (w->compared)
        return true;
    if (!add_line(w, &s, "reference", save) || !logits_file_open(&w->reference, save, &w->err))
        return false;
    w->compared = true;
    return true;
}

static bool each_kv(struct eval_work *w, struct settings *s, const char *weights)
{
    const struct option_list *pages = &w->settings->eval_pages;

    for (size_t i = 0; i < (pages->n ? pages->n : 1); i++) {
        if (pages->n)
            s->cache_type_k = s->cache_type_v = pages->at[i];
        if (out_state() != OUT_OPEN)
            return true;
        if (!add_line(w, s, weights, NULL))
            return false;
    }
    return true;
}

static bool quantise(struct eval_work *w, const char *type, const char *path)
{
    struct progress progress = { .what = "quantising" };
    const struct quantize_options options = { .input = w->settings->model,
                                              .output = path,
                                              .type = type,
                                              .imatrix = w->settings->imatrix,
                                              .n_threads = w->settings->n_threads,
                                              .progress = progress_callback,
                                              .progress_arg = &progress };
    bool ok = quantize_file(&options, NULL, &w->err);

    progress_end(&progress);
    return ok;
}

static bool each_type(struct eval_work *w)
{
    struct settings s = *w->settings;
    char path[4160];

    if (!each_kv(w, &s, ""))
        return false;
    s.model = path_in(w, "model.gguf", path);
    for (size_t i = 0; i < w->settings->eval_types.n && out_state() == OUT_OPEN; i++) {
        const char *type = w->settings->eval_types.at[i];
        bool ok = quantise(w, type, path) && each_kv(w, &s, type);
        unlink(path);
        if (!ok)
            return false;
    }
    return true;
}

static bool sweep(struct eval_work *w)
{
    char path[4160];
    bool ok = make_folder(w) && make_reference(w) && each_type(w);

    if (!w->folder[0])
        return false;
    unlink(path_in(w, "reference", path));
    if (rmdir(w->folder) != 0)
        log_line(LOG_WARN, "eval", "%s: could not be taken away", w->folder);
    return ok;
}

// ---- the verb

static int check(const struct settings *s)
{
    size_t n = (1 + s->eval_types.n) * (s->eval_pages.n ? s->eval_pages.n : 1) + 1;

    for (size_t i = 0; i < s->eval_types.n; i++)
        if (!quantize_type_check(s->eval_types.at[i], NULL))
            return fail_usage("--types: found '%.40s'; 'ingot help quantize' lists the types",
                              s->eval_types.at[i]);
    if (s->eval_types.n && !s->model)
        return fail_usage("--types needs a model file or folder to quantise: name one with -m");
    if (s->kl_file && (s->file || s->save_logits || s->n_context || s->n_chunks))
        return fail_usage("--kl: the text, its chunks and their length are those of the file; leave out %s",
                          s->file          ? "-f"
                          : s->save_logits ? "--save-logits"
                          : s->n_context   ? "-c"
                                           : "--chunks");
    if (s->svg && !is_sweep(s) && !s->kl_file)
        return fail_usage("--svg draws divergences: give --types, --kv or --kl too");
    return n <= MOST_LINES ? STATUS_OK : fail_usage("eval: %zu lines; at most %d", n, MOST_LINES);
}

// The exit status, with a line on stderr where it is an error's.
static int find_source(struct eval_work *w)
{
    const struct settings *s = w->settings;
    bool given;

    if (s->kl_file) {
        w->compared = logits_file_open(&w->reference, s->kl_file, &w->err);
        w->text = w->reference.text;
        return w->compared ? STATUS_OK : fail(w->err.message);
    }
    if (!loading_prompt(s, NULL, &w->prompt, &given))
        return STATUS_ERROR;
    return w->prompt.n ? STATUS_OK
                       : fail_usage("eval: there is no text; give one with -f, or through a pipe");
}

static bool evaluate(struct eval_work *w)
{
    const struct settings *s = w->settings;
    struct settings one = *s;

    if (is_sweep(s))
        return sweep(w);
    if (s->eval_pages.n)
        one.cache_type_k = one.cache_type_v = s->eval_pages.at[0];
    return add_line(w, &one, "", s->save_logits);
}

static int finish(struct eval_work *w, bool ok)
{
    if (w->n_lines && w->report.text->n_chunks)
        eval_report_end(&w->report);
    if (ok && w->settings->svg)
        ok = eval_plot(w->settings->svg, w->lines, w->n_lines, &w->err);
    if (!ok && w->err.code == ERR_NONE) // has been told
        return signals_interrupts() ? STATUS_INTERRUPTED : STATUS_ERROR;
    if (ok)
        return out_finish();
    fail(w->err.message);
    return w->err.code == ERR_CANCELLED ? STATUS_INTERRUPTED : STATUS_ERROR;
}

int verb_eval(const struct verb_call *call)
{
    struct eval_work *w;
    int status = check(call->settings);

    if (status != STATUS_OK)
        return status;
    w = mem_alloc(sizeof *w);
    if (!w)
        return fail("out of memory");
    w->settings = call->settings;
    w->report = (struct eval_report){ call->settings, &w->text, { call->settings->output, 0 } };
    signals_end_work();
    status = find_source(w);
    if (status == STATUS_OK)
        status = finish(w, evaluate(w));
    if (!call->settings->kl_file)
        eval_text_free(&w->text);
    logits_file_close(&w->reference);
    buf_free(&w->prompt);
    mem_free(w);
    return status;
}
