// verb_plan.c - ingot plan: which layers would go to which device, the memory there, and the predicted speed.
#include "engine/engine.h"
#include "engine/stage/plan.h"
#include "main/loading.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/out_json.h"
#include "main/terminal/signals.h"

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static double per_second(double n, uint64_t ns)
{
    return ns ? n * 1e9 / (double)ns : 0;
}

static double token_share(const struct plan *p, uint32_t i)
{
    uint64_t sum = p->many ? 0 : p->token_ns;

    for (uint32_t k = 0; p->many && k < p->placement.n; k++)
        sum += p->stage_ns[k][PROBE_MANY];
    return sum ? 100 * (double)p->stage_ns[i][p->many ? PROBE_MANY : PROBE_ONE] / (double)sum : 0;
}

static bool is_used(const struct plan *p, uint32_t device)
{
    for (uint32_t i = 0; i < p->placement.n; i++)
        if (p->placement.device[i] == device)
            return true;
    return false;
}

static void print_predictions(const struct plan *p)
{
    out_printf("predicted at depth %u: one answer %.1f tok/s", p->depth, per_second(1, p->token_ns));
    if (p->n_many > 1)
        out_printf(", %u answers %.1f tok/s together", p->n_many, per_second(p->n_many, p->many_ns));
    out_printf(", a prompt %.1f tok/s in steps of %u", per_second(p->n_rows[PROBE_PROMPT], p->prompt_ns),
               p->n_rows[PROBE_PROMPT]);
    if (p->long_prompt_ns != p->prompt_ns)
        out_printf(", up to %.1f in many of them", per_second(p->n_rows[PROBE_PROMPT], p->long_prompt_ns));
    out_text("\n");
    out_printf("placed for %s; %u of the devices timed now, the others before\n",
               p->many ? "many answers" : "one answer", p->n_probed);
    if (p->in_turn && p->placement.n > 1)
        out_printf("one device computes at a time: %s\n", p->in_turn);
    if (p->draft_bytes)
        out_printf("the weights of the last layers have the layer that drafts tokens among them, %.2f GiB; "
                   "--speculate off leaves it out\n",
                   gib(p->draft_bytes));
    if (p->n_away)
        out_printf(
            "the experts of the last %u layer%s stay in the host's memory, which the sizes above leave out\n",
            p->n_away, str_plural(p->n_away));
    if (p->need[0].far)
        out_printf(
            "the table of the layers' inputs, %.2f GiB, lies in the host's memory, which the sizes above "
            "leave out\n",
            gib(p->need[0].far));
}

// "0.030 ms", of one row to the next stage.
static void print_link(const struct plan *p, uint32_t i, char text[24])
{
    uint64_t ns = p->link_ns[i][PROBE_ONE];

    if (i + 1 == p->placement.n)
        snprintf(text, 24, "-");
    else if (ns == 0)
        snprintf(text, 24, p->placement.device[i] == p->placement.device[i + 1] ? "in place" : "a copy");
    else
        snprintf(text, 24, "%.3f ms", (double)ns / 1e6);
}

static void print_stage(const struct plan *p, uint32_t i)
{
    const struct placement *at = &p->placement;
    struct plan_bound bound = plan_bound(p, i);
    char link[24];

    print_link(p, i, link);
    out_printf("%-10s %3u-%-4u %6.2f GiB %6.2f GiB %6.2f GiB %6.2f GiB %7.3f ms %4.0f %% %9s  %s, %.0f %%\n",
               p->names[at->device[i]], at->layers[i].first, at->layers[i].last - 1, gib(p->need[i].weights),
               gib(p->need[i].pages), gib(p->need[i].scratch), gib(p->room[at->device[i]]),
               (double)p->stage_ns[i][PROBE_ONE] / 1e6, token_share(p, i), link, bound.by, bound.percent);
}

static void print_table(const struct plan *p)
{
    out_printf("%-10s %8s %10s %10s %10s %10s %10s %6s %9s  %s\n", "device", "layers", "weights", "KV pages",
               "scratch", "room", "a token", "share", "link", "bound by");
    for (uint32_t i = 0; i < p->placement.n; i++)
        print_stage(p, i);
    for (uint32_t d = 0; d < MAX_DEVICES && *p->names[d]; d++)
        if (!is_used(p, d))
            out_printf("%-10s left out: a layer takes %.3f ms a token there\n", p->names[d],
                       (double)p->speed[d].at[PROBE_ONE].layer_ns / 1e6);
    print_predictions(p);
}

static json_t *stage_json(const struct plan *p, uint32_t i)
{
    const struct placement *at = &p->placement;
    struct plan_bound bound = plan_bound(p, i);
    bool last = i + 1 == at->n;
    const struct probe_link *link = last ? NULL : &p->links[at->device[i]][at->device[i + 1]];

    return json_pack("{s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:s, s:f}", "device",
                     p->names[at->device[i]], "first_layer", (int)at->layers[i].first, "last_layer",
                     (int)at->layers[i].last - 1, "weight_bytes", (json_int_t)p->need[i].weights,
                     "page_bytes", (json_int_t)p->need[i].pages, "scratch_bytes",
                     (json_int_t)p->need[i].scratch, "room_bytes", (json_int_t)p->room[at->device[i]],
                     "token_ms", (double)p->stage_ns[i][PROBE_ONE] / 1e6, "link_ms",
                     (double)p->link_ns[i][PROBE_ONE] / 1e6, "link_bytes_per_second",
                     link ? link->bytes : 0.0, "link_latency_ms", link ? link->latency_ns / 1e6 : 0.0,
                     "bound_by", bound.by, "bound_percent", bound.percent);
}

static void print_json(const struct plan *p)
{
    json_t *stages = json_array();

    for (uint32_t i = 0; i < p->placement.n; i++)
        json_array_append_new(stages, stage_json(p, i));
    out_json(json_pack("{s:o, s:s, s:I, s:i, s:i, s:I, s:f, s:i, s:f, s:f, s:f, s:i, s:i}", "stages", stages,
                       "for", p->many ? "many" : "one", "host_weight_bytes", (json_int_t)p->need[0].far,
                       "depth", (int)p->depth, "n_experts_away", (int)p->n_away, "draft_bytes",
                       (json_int_t)p->draft_bytes, "tokens_per_second", per_second(1, p->token_ns), "streams",
                       (int)p->n_many, "streams_tokens_per_second", per_second(p->n_many, p->many_ns),
                       "prompt_tokens_per_second", per_second(p->n_rows[PROBE_PROMPT], p->prompt_ns),
                       "long_prompt_tokens_per_second",
                       per_second(p->n_rows[PROBE_PROMPT], p->long_prompt_ns), "prompt_rows",
                       (int)p->n_rows[PROBE_PROMPT], "n_probed", (int)p->n_probed),
             JSON_INDENT(2));
    out_text("\n");
}

int verb_plan(const struct verb_call *call)
{
    struct ingot_engine_options options = loading_options(call->settings);
    struct plan *plan = arena_alloc(call->arena, sizeof *plan);
    struct err err;

    if (!plan)
        return fail("out of memory for the plan");
    options.n_sequences = call->settings->n_plan_sequences;
    signals_name_file(call->settings->model);
    if (!engine_plan(&options, call->settings->plan_depth, plan, &err))
        return fail(err.message);
    if (call->settings->json)
        print_json(plan);
    else
        print_table(plan);
    return out_finish();
}
