// verb_profile.c - ingot profile: how fast a model answers, and where the time of a step goes. Measuring is
// in model_tools/profile/profile_phases.c and engine/api/step_profile.c, printing in profile_print.c and its
// neighbours.
#include <string.h>
#include <unistd.h>
#include "base/file.h"
#include "base/mem.h"
#include "base/thread_pool.h"
#include "engine/api.h"
#include "main/loading.h"
#include "main/profile/profile_report.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/out_json.h"
#include "main/terminal/signals.h"
#include "model_tools/model_info.h"

enum { EIGHT = 8, PREFILL_ROWS = 512 };

struct profile_job {
    const struct settings *settings;
    struct ingot_engine *engine;
    json_t *before; // --against
    double resident_before;
    struct profile_result result;
};

static bool goes_on(void *arg)
{
    (void)arg;
    return signals_interrupts() == 0 && out_state() == OUT_OPEN;
}

static bool case_goes_on(void *arg, const struct phase_case *c)
{
    (void)c;
    return goes_on(arg);
}

// ---- the engine

static uint32_t context_of(const struct settings *s)
{
    struct model_info model;
    struct err err;
    uint32_t n = 0;

    if (!model_info_open(&model, s->model, 0, &err))
        return 0; // opening the engine says why
    if (model.known)
        n = model.model.config.n_context;
    model_info_close(&model);
    return n;
}

// Bytes of the process's memory; negative: the system does not say.
static double resident(void)
{
    struct buf text = { 0 };
    unsigned long long size, pages;
    double bytes = -1;

    if (file_read(&text, "/proc/self/statm", 4096, NULL) && text.n > 0 &&
        sscanf(text.at, "%llu %llu", &size, &pages) == 2)
        bytes = (double)pages * (double)sysconf(_SC_PAGESIZE);
    buf_free(&text);
    return bytes;
}

static void predict(struct profile_job *job, const struct ingot_engine_options *options)
{
    struct ingot_memory memory;
    struct ingot_error ignored; // opening says what is wrong

    if (ingot_engine_estimate(options, &memory, &ignored))
        job->result.predicted =
            (struct memory_use){ .weights = memory.weight_bytes - memory.tower_weight_bytes,
                                 .pages = memory.page_bytes,
                                 .scratch = memory.scratch_bytes - memory.tower_scratch_bytes,
                                 .tower = memory.tower_weight_bytes + memory.tower_scratch_bytes };
    job->resident_before = resident();
}

static struct ingot_engine *open_engine(struct profile_job *job)
{
    const struct settings *settings = job->settings;
    struct ingot_engine_options options = loading_options(settings);
    uint32_t longest = context_of(settings), needed = settings->profile_depth + PREFILL_ROWS + 2;

    options.no_prefix_cache = true; // each prompt is computed
    options.cache_dir = NULL;
    options.n_sequences = PHASES_MOST_STREAMS;
    if (options.n_context == 0 && longest) {
        options.n_context = phases_context(settings->brief, longest);
        if (needed > options.n_context)
            options.n_context = needed < longest ? needed : longest;
    }
    if (options.n_context) {
        uint32_t tokens = phases_kv_tokens(settings->brief, options.n_context),
                 eight = EIGHT * (settings->profile_depth + PAGE_TOKENS + 2);
        options.n_kv_tokens = tokens > eight ? tokens : eight;
        if (options.n_kv_tokens < options.n_context)
            options.n_kv_tokens = options.n_context;
    }
    predict(job, &options);
    if (options.speculate == INGOT_SPECULATE_AUTO) // a token a step, as bench counts them
        options.speculate = INGOT_SPECULATE_OFF;
    return loading_open(&options);
}

static void describe(struct profile_job *job)
{
    const struct engine_loaded *l = job->engine->inner.loaded;
    struct profile_result *r = &job->result;

    r->model = job->settings->model ? job->settings->model : "";
    r->brief = job->settings->brief;
    ingot_engine_info(job->engine, &r->info);
    r->n_threads = job->settings->n_threads ? job->settings->n_threads : thread_count_available();
    r->n_devices = l->devices.n;
    for (uint32_t i = 0; i < l->devices.n; i++)
        snprintf(r->devices[i].name, sizeof r->devices[i].name, "%s", l->devices.at[i]->name);
}

// ---- what is measured

// The format of most of the weights' bytes, of those that lie in rows.
static enum quant main_format(const struct engine_loaded *l)
{
    uint64_t bytes[N_QUANTS] = { 0 };
    enum quant best = 0;

    for (uint32_t i = 0; i < l->n_stages; i++)
        for (uint32_t w = 0; w < l->stages[i].n_weights; w++)
            bytes[l->stages[i].weights[w].format] += l->stages[i].weights[w].bytes;
    for (enum quant q = 0; q < QUANT_EXL3; q++)
        best = bytes[q] > bytes[best] ? q : best;
    return best;
}

static bool measure_limits(struct profile_job *job, struct err *err)
{
    const struct engine_loaded *l = job->engine->inner.loaded;
    struct profile_result *r = &job->result;

    for (uint32_t i = 0; i < l->devices.n; i++)
        if (!device_limits_probe(l->devices.at[i], main_format(l), r->n_threads, &r->devices[i].limits, err))
            return false;
    return true;
}

static bool measure_step(struct profile_job *job, enum profile_step which, struct step_shape shape,
                         struct err *err)
{
    static const char *const names[N_PROFILE_STEPS] = { "decode", "decode of eight", "prefill", "picture" };
    struct step_profile_request request = { .shape = shape,
                                            .seconds = job->settings->brief ? 0.2 : 2,
                                            .alone = !job->settings->brief,
                                            .goes_on = goes_on };
    struct named_step *s = &job->result.steps[which];
    struct err why = { 0 };

    s->name = names[which];
    if (which == STEP_PICTURE ? step_profile_tower(job->engine, &request, &s->at, &why)
                              : step_profile_run(job->engine, &request, &s->at, &why))
        return true;
    step_profile_release(&s->at);
    if (why.code != ERR_INPUT && why.code != ERR_LIMIT) {
        *err = why;
        return false;
    }
    snprintf(s->left_out, sizeof s->left_out, "%.199s", why.message);
    return true;
}

static bool measure_steps(struct profile_job *job, struct err *err)
{
    uint32_t depth = job->settings->profile_depth, room = job->result.info.n_context - 2,
             most = job->result.info.n_batch < PREFILL_ROWS ? job->result.info.n_batch : PREFILL_ROWS;
    uint32_t rows = depth < room && room - depth < most ? room - depth : most;

    return measure_step(job, STEP_DECODE, (struct step_shape){ 1, 1, depth }, err) &&
           measure_step(job, STEP_EIGHT, (struct step_shape){ EIGHT, 1, depth }, err) &&
           measure_step(job, STEP_PREFILL, (struct step_shape){ 1, rows, depth }, err) &&
           (!job->result.info.takes_pictures ||
            measure_step(job, STEP_PICTURE, (struct step_shape){ 0 }, err));
}

static bool measure(struct profile_job *job, struct err *err)
{
    struct phases_request phases = { job->engine, job->settings->brief, case_goes_on, job };

    bool ok = phases_run(&phases, &job->result.phases, err) && measure_limits(job, err) &&
              measure_steps(job, err) &&
              (job->settings->brief ||
               profile_energy_measure(&phases, "/sys/class/powercap", &job->result.energy, err));
    job->result.taken = memory_use_of(job->engine);
    job->result.resident_bytes = job->resident_before >= 0 ? resident() - job->resident_before : -1;
    return ok;
}

// ---- output

static int print(const struct profile_job *job)
{
    const char *format = job->settings->output;

    if (!strcmp(format, "md"))
        profile_print(&job->result);
    else if (!strcmp(format, "csv"))
        profile_print_csv(&job->result);
    else
        out_json(profile_json(&job->result), JSON_INDENT(1));
    if (!strcmp(format, "json"))
        out_text("\n");
    return out_finish();
}

static bool write_files(const struct profile_job *job, struct err *err)
{
    const struct settings *s = job->settings;

    return (!s->html || profile_html(&job->result, s->html, err)) &&
           (!s->trace_json || profile_trace(&job->result, s->trace_json, err));
}

// Slower than --tolerance allows: STATUS_ERROR.
static int compare(const struct profile_job *job)
{
    json_t *now = profile_json(&job->result);
    double worst = 1, most = 1 + (double)job->settings->tolerance / 100;
    struct err err;
    bool ok = now ? profile_compare(now, job->before, &worst, &err) : err_memory(&err, "the comparison");

    json_decref(now);
    if (!ok)
        return fail(err.message);
    if (worst > most)
        out_printf("\nslower by %.1f %% at least; --tolerance allows %.1f %%\n", 100 * (worst - 1),
                   (double)job->settings->tolerance);
    int status = out_finish();
    return status == STATUS_OK && worst > most ? STATUS_ERROR : status;
}

static int run(struct profile_job *job)
{
    struct err err = { 0 };

    signals_end_work();
    describe(job);
    job->result.complete = measure(job, &err);
    if (!job->result.complete && err.code != ERR_CANCELLED)
        return fail(err.message);
    int status = print(job); // what there is, also after Ctrl-C
    if (status == STATUS_OK && !write_files(job, &err))
        return fail(err.message);
    if (status == STATUS_OK && job->before)
        status = compare(job);
    return job->result.complete || status != STATUS_OK ? status : STATUS_INTERRUPTED;
}

// Reads what is asked for before minutes of measuring.
static int start(struct profile_job *job)
{
    const struct settings *s = job->settings;
    struct err err;

    if (s->against && strcmp(s->output, "md") != 0)
        return fail_usage("--against prints a table: leave out -o %s", s->output);
    if (s->against && !(job->before = profile_read(s->against, &err)))
        return fail(err.message);
    job->engine = open_engine(job);
    if (!job->engine)
        return signals_interrupts() ? STATUS_INTERRUPTED : STATUS_ERROR;
    return run(job);
}

int verb_profile(const struct verb_call *call)
{
    struct profile_job *job = mem_alloc(sizeof *job);

    if (!job)
        return fail("out of memory");
    job->settings = call->settings;
    int status = start(job);
    json_decref(job->before);
    for (uint32_t i = 0; i < N_PROFILE_STEPS; i++)
        step_profile_release(&job->result.steps[i].at);
    phases_free(&job->result.phases);
    ingot_engine_close(job->engine);
    mem_free(job);
    return status;
}
