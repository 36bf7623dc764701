// profile_json.c - a profile as JSON, schema ingot-profile-1, and as CSV.
//
// Raw samples are kept, so that a later profile can be compared with it (profile_against.c).
#include <time.h>
#include "base/buf_json.h"
#include "base/file.h"
#include "main/profile/profile_report.h"
#include "main/terminal/out_rows.h"
#include "main/version.h"

bool profile_json_write(json_t *value, const char *path, struct err *err)
{
    struct buf text = { 0 };
    bool ok = buf_json(&text, value, JSON_COMPACT | JSON_REAL_PRECISION(9))
                  ? file_save(path, buf_as_str(&text), err)
                  : err_memory(err, "the profile");

    buf_free(&text);
    json_decref(value);
    return ok;
}

static json_t *real_or_null(double value)
{
    return value < 0 ? json_null() : json_real(value);
}

static json_t *list(const double *x, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_real(x[i]));
    return array;
}

static json_t *model_json(const struct profile_result *r)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:i}", "name", r->info.model_name, "file", r->model,
                     "architecture", r->info.architecture, "format", r->info.format, "parameters",
                     (json_int_t)r->info.n_parameters, "bytes", (json_int_t)r->info.weight_bytes, "layers",
                     (int)r->info.n_layers);
}

static json_t *devices_json(const struct profile_result *r)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < r->n_devices; i++) {
        const struct device_limits *l = &r->devices[i].limits;
        json_array_append_new(array,
                              json_pack("{s:s, s:f, s:f, s:f}", "name", r->devices[i].name,
                                        "read_bytes_per_second", l->read_bytes, "operations_per_second",
                                        l->operations, "command_ns", l->command_ns));
    }
    return array;
}

static json_t *case_json(const struct phase_case *c)
{
    return json_pack(
        "{s:s, s:s, s:i, s:i, s:i, s:f, s:o, s:o, s:o, s:f, s:o, s:o, s:o}", "phase", phase_name(c->phase),
        "name", c->name, "prompt", (int)c->n_prompt, "answer", (int)c->n_gen, "streams", (int)c->n_streams,
        "first_ms_p50", phase_first_ms(c), "gap_ms_p50", real_or_null(phase_gap_ms(c, 0.5)), "gap_ms_p95",
        real_or_null(phase_gap_ms(c, 0.95)), "gap_ms_p99", real_or_null(phase_gap_ms(c, 0.99)),
        "tokens_per_second", phase_speed(c), "first_ms", list(c->first_ms, (size_t)c->n_runs * c->n_streams),
        "run_ms", list(c->run_ms, c->n_runs), "gaps_ms", list(c->gaps_ms, c->n_gaps));
}

static json_t *phases_json(const struct phases *p)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < p->n; i++)
        if (p->cases[i].n_runs)
            json_array_append_new(array, case_json(&p->cases[i]));
    return array;
}

static json_t *summary_json(const struct phases *p)
{
    struct phases_summary s = phases_summarise(p);

    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "cold_first_ms", s.cold_ms, "warm_first_ms",
                     s.warm_ms, "peak_tokens_per_second", s.peak_ts, "sustained_tokens_per_second",
                     s.sustained_ts, "streams_tokens_per_second", s.streams_ts, "drift", s.drift,
                     "fitted_first_ms", s.fitted_ms, "fitted_token_ms", s.fitted_token_ms);
}

static json_t *command_json(const struct profile_result *r, const struct profiled_command *c,
                            const struct step_profile *p)
{
    json_t *o =
        json_pack("{s:i, s:o, s:s, s:s, s:b, s:f, s:f, s:f, s:f}", "stage", (int)c->stage, "layer",
                  c->layer == NO_LAYER ? json_null() : json_integer(c->layer), "operation", c->name, "label",
                  c->label, "barrier", c->barrier, "weight_bytes", c->cost.weight_bytes, "page_bytes",
                  c->cost.page_bytes, "value_bytes", c->cost.value_bytes, "operations", c->cost.operations);

    (void)r;
    json_object_set_new(o, "ns", p->is_timed ? json_real(c->ns) : json_null());
    json_object_set_new(o, "wait_ns", p->is_timed ? json_real(c->wait_ns) : json_null());
    json_object_set_new(o, "alone_ns", c->alone_ns > 0 ? json_real(c->alone_ns) : json_null());
    return o;
}

static json_t *experts_json(const struct step_profile *p)
{
    json_t *array = json_array();

    for (uint32_t i = 0; i < p->n_experts; i++) {
        const struct expert_spread *e = &p->experts[i];
        json_array_append_new(array, json_pack("{s:i, s:i, s:i, s:i, s:f}", "layer", (int)e->layer, "experts",
                                               (int)e->n, "used", (int)e->n_used, "most_rows", (int)e->most,
                                               "mean_rows", e->mean));
    }
    return array;
}

static json_t *step_json(const struct profile_result *r, const struct named_step *s)
{
    const struct step_profile *p = &s->at;
    json_t *o = json_pack("{s:s, s:i, s:i, s:i, s:f, s:i, s:o}", "name", s->name, "sequences",
                          (int)p->shape.n_sequences, "rows", (int)p->shape.n_rows, "depth",
                          (int)p->shape.depth, "plain_ns", p->plain, "barriers", (int)p->n_barriers,
                          "plain_samples_ns", list(p->plain_ns, p->n_plays));
    json_t *commands = json_array();

    if (p->is_timed) {
        json_object_set_new(o, "stamped_ns", json_real(p->timed));
        json_object_set_new(o, "perturbation", json_real(p->timed / p->plain - 1));
        json_object_set_new(o, "start_ns", json_real(p->start_ns));
        json_object_set_new(o, "link_ns", json_real(p->link_ns));
        json_object_set_new(o, "host_ns", json_real(p->host_ns));
        json_object_set_new(o, "cuts_ns", json_real(p->cuts_ns));
        json_object_set_new(o, "stamped_samples_ns", list(p->timed_ns, p->n_plays));
    }
    for (uint32_t i = 0; i < p->n_commands; i++)
        json_array_append_new(commands, command_json(r, &p->commands[i], p));
    json_object_set_new(o, "commands", commands);
    json_object_set_new(o, "experts", experts_json(p));
    return o;
}

static json_t *figure_json(const struct energy_figure *f)
{
    return json_pack("{s:o, s:o}", "processor", real_or_null(f->processor), "gpus", real_or_null(f->gpus));
}

static json_t *energy_json(const struct profile_energy *e)
{
    return e->is_measured ? json_pack("{s:o, s:o, s:o}", "rest_watts", figure_json(&e->rest_watts),
                                      "answer_joules_per_token", figure_json(&e->answer_joules),
                                      "prompt_joules_per_token", figure_json(&e->prompt_joules))
                          : json_null();
}

static json_t *memory_json(const struct memory_use *m)
{
    return json_pack("{s:I, s:I, s:I, s:I}", "weights", (json_int_t)m->weights, "pages", (json_int_t)m->pages,
                     "scratch", (json_int_t)m->scratch, "tower", (json_int_t)m->tower);
}

json_t *profile_json(const struct profile_result *r)
{
    json_t *steps = json_array();
    char now[32];
    time_t seconds = time(NULL);
    struct tm utc;

    strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &utc));
    for (uint32_t i = 0; i < N_PROFILE_STEPS; i++)
        if (r->steps[i].at.n_plays)
            json_array_append_new(steps, step_json(r, &r->steps[i]));
    return json_pack("{s:s, s:s, s:s, s:b, s:o, s:s, s:i, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                     "schema", "ingot-profile-1", "commit", version_commit, "time", now, "complete",
                     r->complete, "model", model_json(r), "device", r->info.device, "threads",
                     (int)r->n_threads, "stages", (int)r->info.n_stages, "devices", devices_json(r), "phases",
                     phases_json(&r->phases), "summary", summary_json(&r->phases), "steps", steps, "energy",
                     energy_json(&r->energy), "memory_predicted", memory_json(&r->predicted), "memory_taken",
                     memory_json(&r->taken), "resident_bytes", real_or_null(r->resident_bytes));
}

// ---- CSV: all rows have all columns

static json_t *csv_row(const char *part, const char *name)
{
    return json_pack("{s:s, s:s}", "part", part, "name", name);
}

static void csv_case(struct out_rows *rows, const struct phase_case *c)
{
    json_t *o = csv_row(phase_name(c->phase), c->name);

    json_object_set_new(o, "first_ms", json_real(phase_first_ms(c)));
    json_object_set_new(o, "gap_ms_p50", real_or_null(phase_gap_ms(c, 0.5)));
    json_object_set_new(o, "gap_ms_p95", real_or_null(phase_gap_ms(c, 0.95)));
    json_object_set_new(o, "gap_ms_p99", real_or_null(phase_gap_ms(c, 0.99)));
    json_object_set_new(o, "tokens_per_second", json_real(phase_speed(c)));
    for (const char *const *key =
             (const char *const[]){ "commands", "time_us", "waiting_us", "alone_us", "bytes", "operations",
                                    "limit_share", "bound", NULL };
         *key; key++)
        json_object_set_new(o, *key, json_null());
    out_rows_add(rows, o);
}

static void csv_group(struct out_rows *rows, const struct named_step *s, const struct command_group *g)
{
    json_t *o = csv_row(s->name, g->name);

    for (const char *const *key = (const char *const[]){ "first_ms", "gap_ms_p50", "gap_ms_p95", "gap_ms_p99",
                                                         "tokens_per_second", NULL };
         *key; key++)
        json_object_set_new(o, *key, json_null());
    json_object_set_new(o, "commands", json_integer(g->n));
    json_object_set_new(o, "time_us", s->at.is_timed ? json_real(g->ns * 1e-3) : json_null());
    json_object_set_new(o, "waiting_us", s->at.is_timed ? json_real(g->wait_ns * 1e-3) : json_null());
    json_object_set_new(o, "alone_us", g->alone_ns > 0 ? json_real(g->alone_ns * 1e-3) : json_null());
    json_object_set_new(o, "bytes", json_real(cost_bytes(&g->cost)));
    json_object_set_new(o, "operations", json_real(g->cost.operations));
    json_object_set_new(o, "limit_share", json_real(group_share(g)));
    json_object_set_new(o, "bound", json_string(s->at.is_timed ? group_bound_name(group_bound(g)) : ""));
    out_rows_add(rows, o);
}

void profile_print_csv(const struct profile_result *r)
{
    struct out_rows rows = { "csv", 0 };
    struct command_group groups[MOST_KINDS];

    for (uint32_t i = 0; i < r->phases.n; i++)
        if (r->phases.cases[i].n_runs)
            csv_case(&rows, &r->phases.cases[i]);
    for (uint32_t i = 0; i < N_PROFILE_STEPS; i++) {
        uint32_t n = groups_by_kind(r, &r->steps[i].at, groups);
        for (uint32_t k = 0; k < n; k++)
            csv_group(&rows, &r->steps[i], &groups[k]);
    }
}
