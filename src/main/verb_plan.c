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

static uint64_t stage_ns(const struct plan *p, uint32_t i)
{
    const struct probe_speed *speed = &p->speed[p->placement.device[i]];
    uint64_t n = p->placement.layers[i].last - p->placement.layers[i].first;

    return n * speed->layer_ns + (i + 1 == p->placement.n ? speed->head_ns : 0);
}

static double token_share(const struct plan *p, uint32_t i)
{
    return p->token_ns ? 100 * (double)stage_ns(p, i) / (double)p->token_ns : 0;
}

static bool is_used(const struct plan *p, uint32_t device)
{
    for (uint32_t i = 0; i < p->placement.n; i++)
        if (p->placement.device[i] == device)
            return true;
    return false;
}

static void print_table(const struct plan *p)
{
    const struct placement *at = &p->placement;

    out_printf("%-10s %8s %10s %10s %10s %10s %10s %6s\n", "device", "layers", "weights", "KV pages",
               "scratch", "room", "a token", "share");
    for (uint32_t i = 0; i < at->n; i++)
        out_printf("%-10s %3u-%-4u %6.2f GiB %6.2f GiB %6.2f GiB %6.2f GiB %7.3f ms %4.0f %%\n",
                   p->names[at->device[i]], at->layers[i].first, at->layers[i].last - 1,
                   gib(p->need[i].weights), gib(p->need[i].pages), gib(p->need[i].scratch),
                   gib(p->room[at->device[i]]), (double)stage_ns(p, i) / 1e6, token_share(p, i));
    for (uint32_t d = 0; d < MAX_DEVICES && *p->names[d]; d++)
        if (!is_used(p, d))
            out_printf("%-10s left out: a layer takes %.3f ms a token there\n", p->names[d],
                       (double)p->speed[d].layer_ns / 1e6);
    out_printf(
        "predicted at the start of a context, links not counted: one answer %.1f tok/s, a prompt %.1f tok/s "
        "in steps of %u\n",
        per_second(1, p->token_ns), per_second(p->speed[0].n_rows, p->prompt_ns), p->speed[0].n_rows);
}

static void print_json(const struct plan *p)
{
    json_t *stages = json_array();

    for (uint32_t i = 0; i < p->placement.n; i++)
        json_array_append_new(
            stages,
            json_pack("{s:s, s:i, s:i, s:I, s:I, s:I, s:I, s:f}", "device", p->names[p->placement.device[i]],
                      "first_layer", (int)p->placement.layers[i].first, "last_layer",
                      (int)p->placement.layers[i].last - 1, "weight_bytes", (json_int_t)p->need[i].weights,
                      "page_bytes", (json_int_t)p->need[i].pages, "scratch_bytes",
                      (json_int_t)p->need[i].scratch, "room_bytes",
                      (json_int_t)p->room[p->placement.device[i]], "token_ms", (double)stage_ns(p, i) / 1e6));
    out_json(json_pack("{s:o, s:f, s:f, s:i}", "stages", stages, "tokens_per_second",
                       per_second(1, p->token_ns), "prompt_tokens_per_second",
                       per_second(p->speed[0].n_rows, p->prompt_ns), "prompt_rows", (int)p->speed[0].n_rows),
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
    if (!engine_plan(&options, plan, &err))
        return fail(err.message);
    if (call->settings->json)
        print_json(plan);
    else
        print_table(plan);
    return out_finish();
}
