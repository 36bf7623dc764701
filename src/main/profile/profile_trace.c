// profile_trace.c - one stamped play of each step as a trace that ui.perfetto.dev and chrome://tracing open.
// Of a device that samples it is the play that all cuts tell of.
//
// A device is a process and a lane of it a thread; process 0 is the host, which submits, and has a thread for
// each of the requests that the phases sent at the same time. Times are microseconds from the first request
// on. A flow leads from each submission to the first command of each stage.
#include "main/profile/profile_report.h"

enum { HOST = 0 };

struct trace_events {
    json_t *events;
    uint64_t origin;
    uint32_t n_flows;
};

static double us(const struct trace_events *t, uint64_t ns)
{
    return (double)(int64_t)(ns - t->origin) * 1e-3;
}

static void add(struct trace_events *t, json_t *event)
{
    json_array_append_new(t->events, event);
}

static void name_process(struct trace_events *t, uint32_t process, const char *name)
{
    add(t, json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name", "process_name", "pid", (int)process,
                     "args", "name", name));
    add(t, json_pack("{s:s, s:s, s:i, s:{s:i}}", "ph", "M", "name", "process_sort_index", "pid", (int)process,
                     "args", "sort_index", (int)process));
}

static void name_thread(struct trace_events *t, uint32_t process, uint32_t thread, const char *what)
{
    json_t *name = thread || process ? json_sprintf("%s %u", what, thread) : json_string(what);

    add(t, json_pack("{s:s, s:s, s:i, s:i, s:{s:o}}", "ph", "M", "name", "thread_name", "pid", (int)process,
                     "tid", (int)thread, "args", "name", name));
}

static json_t *slice(const struct trace_events *t, const char *name, const struct command_span *span)
{
    return json_pack("{s:s, s:s, s:f, s:f}", "ph", "X", "name", name, "ts", us(t, span->begin), "dur",
                     (double)(span->end - span->begin) * 1e-3);
}

static void put(json_t *event, uint32_t process, uint32_t thread)
{
    json_object_set_new(event, "pid", json_integer(process));
    json_object_set_new(event, "tid", json_integer(thread));
}

static void add_flow(struct trace_events *t, const char *phase, uint64_t ns, uint32_t process)
{
    json_t *e = json_pack("{s:s, s:i, s:s, s:s, s:f}", "ph", phase, "id", (int)t->n_flows, "name",
                          "submission", "cat", "step", "ts", us(t, ns));

    put(e, process, 0);
    if (*phase == 'f')
        json_object_set_new(e, "bp", json_string("e"));
    add(t, e);
}

static void add_command(struct trace_events *t, const struct profile_result *r,
                        const struct profiled_command *c, const struct command_span *span, uint32_t lane)
{
    const struct device_limits *l = &r->devices[c->device].limits;
    double memory = l->read_bytes > 0 ? cost_bytes(&c->cost) / l->read_bytes * 1e6 : 0,
           arithmetic = l->operations > 0 ? c->cost.operations / l->operations * 1e6 : 0;
    json_t *e = slice(t, c->name, span);

    put(e, 1 + c->device, lane);
    json_object_set_new(e, "cat",
                        c->layer == NO_LAYER ? json_string("outside of layers")
                                             : json_sprintf("layer %u", c->layer));
    json_object_set_new(e, "args",
                        json_pack("{s:s, s:f, s:f, s:f, s:b}", "label", c->label, "bytes",
                                  cost_bytes(&c->cost), "operations", c->cost.operations, "limit_us",
                                  memory > arithmetic ? memory : arithmetic, "barrier", c->barrier));
    add(t, e);
}

// From submission to the first token, inside the time to the last token of all that ran together.
static void add_request(struct trace_events *t, const struct phase_case *c, uint32_t run, uint32_t stream)
{
    uint64_t begun = c->begun_ns[run];
    struct command_span all = { begun, begun + (uint64_t)(c->run_ms[run] * 1e6) },
                        first = { begun, begun + (uint64_t)(c->first_ms[run * c->n_streams + stream] * 1e6) };
    json_t *e = slice(t, c->name, &all);

    json_object_set_new(e, "args",
                        json_pack("{s:s, s:i, s:i}", "phase", phase_name(c->phase), "prompt",
                                  (int)c->n_prompt, "answer", (int)c->n_gen));
    put(e, HOST, 1 + stream);
    add(t, e);
    e = slice(t, "first token", &first);
    put(e, HOST, 1 + stream);
    add(t, e);
}

static uint32_t add_requests(struct trace_events *t, const struct phases *p)
{
    uint32_t n_streams = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        const struct phase_case *c = &p->cases[i];
        for (uint32_t k = 0; k < c->n_runs * c->n_streams; k++)
            add_request(t, c, k / c->n_streams, k % c->n_streams);
        n_streams = c->n_runs && c->n_streams > n_streams ? c->n_streams : n_streams;
    }
    return n_streams;
}

static void add_stage(struct trace_events *t, const struct profile_result *r, const struct named_step *s,
                      uint32_t stage)
{
    const struct stage_spans *at = &s->at.spans[stage];
    const struct play_times *times = &at->times;
    struct command_span play = { times->begun, times->ended };
    json_t *e = slice(t, s->name, &play);

    if (times->n_lanes == 0)
        return;
    json_object_set_new(e, "args", json_pack("{s:i}", "stage", (int)stage));
    put(e, HOST, 0);
    add(t, e);
    t->n_flows++;
    add_flow(t, "s", times->begun, HOST);
    add_flow(t, "f", times->spans[0].begin, 1 + at->device);
    for (uint32_t lane = 0; lane < times->n_lanes; lane++)
        for (uint32_t i = 0; i < at->n_commands; i++)
            add_command(t, r, &s->at.commands[at->first_command + i],
                        &times->spans[(size_t)lane * at->n_commands + i], lane);
}

static uint64_t first_time(const struct profile_result *r)
{
    uint64_t first = UINT64_MAX;

    for (uint32_t i = 0; i < r->phases.n; i++) {
        const struct phase_case *c = &r->phases.cases[i];
        first = c->n_runs && c->begun_ns[0] < first ? c->begun_ns[0] : first;
    }
    for (uint32_t i = 0; i < N_PROFILE_STEPS; i++)
        for (uint32_t s = 0; s < r->steps[i].at.n_stages; s++) {
            const struct play_times *t = &r->steps[i].at.spans[s].times;
            first = t->n_lanes && t->begun < first ? t->begun : first;
        }
    return first;
}

static void name_all(struct trace_events *t, const struct profile_result *r)
{
    name_process(t, HOST, "host");
    name_thread(t, HOST, 0, "steps");
    for (uint32_t d = 0; d < r->n_devices; d++) {
        uint32_t n_lanes = 0;
        name_process(t, 1 + d, r->devices[d].name);
        for (uint32_t i = 0; i < N_PROFILE_STEPS; i++)
            for (uint32_t s = 0; s < r->steps[i].at.n_stages; s++) {
                uint32_t n = r->steps[i].at.spans[s].times.n_lanes;
                n_lanes = r->steps[i].at.spans[s].device == d && n > n_lanes ? n : n_lanes;
            }
        for (uint32_t lane = 0; lane < n_lanes; lane++)
            name_thread(t, 1 + d, lane, "thread");
    }
}

bool profile_trace(const struct profile_result *r, const char *path, struct err *err)
{
    struct trace_events t = { json_array(), first_time(r), 0 };

    name_all(&t, r);
    for (uint32_t n = add_requests(&t, &r->phases); n > 0; n--)
        name_thread(&t, HOST, n, "request");
    for (uint32_t i = 0; i < N_PROFILE_STEPS; i++)
        for (uint32_t s = 0; s < r->steps[i].at.n_stages; s++)
            add_stage(&t, r, &r->steps[i], s);
    json_t *all = json_pack("{s:s, s:o}", "displayTimeUnit", "ns", "traceEvents", t.events);
    return all ? profile_json_write(all, path, err) : err_memory(err, "the trace");
}
