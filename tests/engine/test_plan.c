// test_plan.c - the placement of layers: the optimum of random instances, found by trying everything; and a
// plan of a real model on devices of unlike speed.
#include <stdlib.h>
#include <sys/stat.h>
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "engine/stage/plan.h"
#include "open_engine.h"

enum { MOST_DEVICES = 4, MOST_LAYERS = 7 };

// n_steps divides UNIT, so that every price is a whole number.
enum { UNIT = 12 };

struct instance {
    uint32_t n_devices, n_layers, most_steps;
    uint64_t layer_cost[MOST_DEVICES][MOST_LAYERS], row_cost[MOST_DEVICES], head_cost[MOST_DEVICES],
        room[MOST_DEVICES], link[MOST_DEVICES][MOST_DEVICES];
    uint64_t bytes[MOST_LAYERS];
};

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

// A part that every step costs, and one that follows its rows.
static uint64_t cost_of(const void *arg, uint32_t device, struct layer_range layers, uint32_t n_steps)
{
    const struct instance *x = arg;
    uint64_t cost = layers.last == x->n_layers ? x->head_cost[device] * UNIT : 0, bytes = 0;

    for (uint32_t l = layers.first; l < layers.last; l++) {
        cost += x->layer_cost[device][l] * UNIT + x->row_cost[device] * UNIT / n_steps;
        bytes += x->bytes[l];
    }
    return bytes <= x->room[device] ? cost : PLAN_DOES_NOT_FIT;
}

static uint64_t link_of(const void *arg, uint32_t from, uint32_t to, uint32_t n_steps)
{
    const struct instance *x = arg;
    return x->link[from][to] * UNIT / n_steps;
}

static uint64_t largest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

// All stages and links one after the other; or, overlapped, as many steps as stages through the slowest.
static uint64_t price(const struct instance *x, const struct placement *p, bool overlapped)
{
    uint32_t n_steps = overlapped ? p->n : 1;
    uint64_t sum = 0, most = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        uint64_t own = cost_of(x, p->device[i], p->layers[i], n_steps),
                 link = i ? link_of(x, p->device[i - 1], p->device[i], n_steps) : 0;
        if (own == PLAN_DOES_NOT_FIT)
            return own;
        sum += own + link;
        most = largest(most, largest(own, link));
    }
    return overlapped ? n_steps * most : sum;
}

struct least {
    uint64_t one_by_one, overlapped;
};

// Every number of layers for this device, then the same for the ones behind it.
static void try_all(const struct instance *x, struct placement *p, uint32_t device, struct least *best)
{
    uint32_t first = p->n ? p->layers[p->n - 1].last : 0;

    if (first == x->n_layers) {
        uint64_t sum = price(x, p, false), round = price(x, p, true);
        best->one_by_one = sum < best->one_by_one ? sum : best->one_by_one;
        if (p->n <= x->most_steps && round < best->overlapped)
            best->overlapped = round;
        return;
    }
    if (device == x->n_devices)
        return;
    try_all(x, p, device + 1, best);
    for (uint32_t last = first + 1; last <= x->n_layers; last++) {
        p->layers[p->n] = (struct layer_range){ first, last };
        p->device[p->n++] = device;
        try_all(x, p, device + 1, best);
        p->n--;
    }
}

static struct instance random_instance(uint32_t *random)
{
    struct instance x = { .n_devices = 1 + draw(random, MOST_DEVICES),
                          .n_layers = 1 + draw(random, MOST_LAYERS),
                          .most_steps = 1 + draw(random, MOST_DEVICES) };

    for (uint32_t d = 0; d < x.n_devices; d++) {
        x.room[d] = draw(random, 30);
        x.head_cost[d] = draw(random, 9);
        x.row_cost[d] = draw(random, 5);
        for (uint32_t to = 0; to < MOST_DEVICES; to++)
            x.link[d][to] = draw(random, 6);
        for (uint32_t l = 0; l < x.n_layers; l++)
            x.layer_cost[d][l] = 1 + draw(random, 5);
    }
    for (uint32_t l = 0; l < x.n_layers; l++)
        x.bytes[l] = 1 + draw(random, 8);
    return x;
}

static void check_order(const struct instance *x, const struct placement *p)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        assert_int_equal(p->layers[i].first, at);
        assert_true(p->layers[i].last > at && p->device[i] < x->n_devices);
        assert_true(i == 0 || p->device[i] > p->device[i - 1]);
        at = p->layers[i].last;
    }
    assert_int_equal(at, x->n_layers);
}

// What the placement says it costs is what it costs, and nothing costs less.
static void the_plan_is_the_best_there_is(void **state)
{
    uint32_t random = 7, n_fit = 0, n_split = 0, n_overlapped = 0;
    (void)state;

    for (int i = 0; i < 5000; i++) {
        struct instance x = random_instance(&random);
        struct plan_costs costs = { cost_of, link_of, &x, x.n_devices, x.n_layers, x.most_steps, i % 2 };
        struct placement p, tried = { 0 };
        struct least best = { PLAN_DOES_NOT_FIT, PLAN_DOES_NOT_FIT };
        struct err err;
        uint64_t cost = 0;
        try_all(&x, &tried, 0, &best);
        bool overlapped = x.most_steps > 1 && best.overlapped != PLAN_DOES_NOT_FIT;
        overlapped &= !costs.may_add_up || best.overlapped <= best.one_by_one;
        bool fits = plan_choose(&costs, &p, &cost, &err);
        assert_int_equal(fits, best.one_by_one != PLAN_DOES_NOT_FIT);
        assert_int_equal(err.code, ERR_NONE);
        if (!fits)
            continue;
        check_order(&x, &p);
        assert_int_equal(cost, overlapped ? best.overlapped : best.one_by_one);
        assert_int_equal(cost, price(&x, &p, overlapped));
        n_fit++;
        n_split += p.n > 1;
        n_overlapped += overlapped && p.n > 1;
    }
    assert_true(n_fit > 500 && n_fit < 4500 && n_split > 300 && n_overlapped > 100);
}

static void of_equal_plans_the_one_with_fewer_devices(void **state)
{
    struct instance x = { .n_devices = 3, .n_layers = 4, .room = { 9, 9, 9 }, .bytes = { 1, 1, 1, 1 } };
    struct plan_costs costs = { cost_of, link_of, &x, 3, 4, 1, false };
    struct placement p;
    struct err err;
    uint64_t sum;
    (void)state;

    for (uint32_t d = 0; d < 3; d++)
        for (uint32_t l = 0; l < 4; l++)
            x.layer_cost[d][l] = 2;
    assert_true(plan_choose(&costs, &p, &sum, &err));
    assert_int_equal(p.n, 1);
    assert_int_equal(p.device[0], 0);
    assert_int_equal(sum, 8 * UNIT);
}

// The plain loops are slower than the CPU's kernels: they get nothing, wherever they stand in the list.
static void a_slow_device_is_left_out(void **state)
{
    static const char *const lists[] = { "cpu,cpu:plain", "cpu:plain,cpu" };
    (void)state;

    for (int i = 0; i < 2; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct ingot_engine_info info;
        o.device = lists[i];
        o.n_batch = 32;
        o.n_context = 256;
        struct ingot_engine *engine = open_or_fail(&o);
        ingot_engine_info(engine, &info);
        assert_string_equal(info.device, "cpu for layers 0 to 7");
        ingot_engine_close(engine);
    }
}

static void a_plan_is_made_without_loading(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct plan *p = calloc(1, sizeof *p);
    struct err err = { 0 };
    (void)state;

    o.device = "cpu,cpu:plain";
    o.n_batch = 32; // plain loops take long
    assert_ok(engine_plan(&o, 0, p, &err), &err);
    assert_int_equal(p->placement.n, 1);
    assert_string_equal(p->names[p->placement.device[0]], "cpu");
    assert_int_equal(p->placement.layers[0].last, 8);
    assert_true(p->token_ns > 0 && p->prompt_ns > 0);
    assert_true(p->speed[1].at[PROBE_ONE].layer_ns > p->speed[0].at[PROBE_ONE].layer_ns);
    o.stages = "3";
    assert_ok(engine_plan(&o, 0, p, &err), &err);
    assert_int_equal(p->placement.n, 2);
    assert_int_equal(p->placement.layers[1].first, 3);
    assert_true(p->need[0].weights > 0 && p->need[1].weights > p->need[0].weights);
    o.n_sequences = 4096; // pages for all of them fit nowhere
    o.n_context = 1 << 16;
    o.stages = NULL;
    assert_false(engine_plan(&o, 0, p, &err));
    assert_non_null(strstr(err.message, "what fits: "));
    free(p);
}

// Each of the CPUs has a thread: where there are processors for both, stages compute at the same time, and
// the slots of activations between them count. Else the plan says why not.
static void stages_that_overlap_are_predicted_so(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct plan *p = calloc(3, sizeof *p), *none = &p[0], *both = &p[1], *drafting = &p[2];
    struct err err = { 0 };
    (void)state;

    o.device = "cpu,cpu";
    o.stages = "4";
    o.n_sequences = 4;
    o.n_context = 256;
    o.n_threads = 1;
    o.limits = "compute=0.9"; // a step waits for its share of the time
    assert_ok(engine_plan(&o, 0, none, &err), &err);
    assert_false(none->overlaps);
    assert_non_null(strstr(none->in_turn, "limits"));
    assert_int_equal(none->long_prompt_ns, none->prompt_ns);
    o.limits = NULL;
    assert_ok(engine_plan(&o, 0, both, &err), &err);
    assert_int_equal(both->overlaps, thread_count_available() >= 2);
    if (both->overlaps) {
        assert_null(both->in_turn);
        assert_true(both->long_prompt_ns < both->prompt_ns);
        assert_int_equal(both->need[0].scratch, none->need[0].scratch);
        assert_int_equal(both->need[1].scratch - none->need[1].scratch, 2 * 512 * 256 * 4); // rows, columns
    } else {
        assert_non_null(strstr(both->in_turn, "-t divides"));
    }
    o.model = SOURCE_DIR "/tests/golden/mtp-glm4moe/model.gguf";
    o.stages = "1";
    assert_ok(engine_plan(&o, 0, drafting, &err), &err);
    assert_false(drafting->overlaps);
    assert_non_null(strstr(drafting->in_turn, "drafts need the step before"));
    o.speculate = INGOT_SPECULATE_OFF;
    assert_ok(engine_plan(&o, 0, both, &err), &err);
    assert_true(drafting->draft_bytes > 0 && both->draft_bytes == 0); // the plan tells what it counts
    assert_int_equal(drafting->need[1].weights - both->need[1].weights, drafting->draft_bytes);
    free(p);
}

// Layers that read another's K and V, and what the first makes of a token: they are timed without it.
static void layers_that_lean_on_others_are_not_divided(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct plan *p = calloc(1, sizeof *p);
    struct err err = { 0 };
    (void)state;

    o.model = SOURCE_DIR "/tests/golden/gemma4-e2b/model.gguf";
    o.device = "cpu,cpu";
    o.n_threads = 1;
    assert_ok(engine_plan(&o, 0, p, &err), &err);
    assert_int_equal(p->placement.n, 1);
    assert_int_equal(p->placement.layers[0].last, 6);
    assert_true(p->token_ns > 0 && p->prompt_ns > 0);
    o.stages = "3";
    assert_fails(engine_plan(&o, 0, p, &err), &err, "runs such a model in one stage");
    free(p);
}

static void one_layer_is_not_divided(void **state)
{
    struct model m = { .config = { .n_layers = 1 } };
    struct stage_shape shape = { 0 };
    struct plan *p = calloc(1, sizeof *p);
    struct plan_request r = { .model = &m, .shape = &shape };
    struct err err = { 0 };
    (void)state;

    assert_false(plan_layers(&r, p, &err));
    assert_non_null(strstr(err.message, "one layer, and nothing to divide"));
    free(p);
}

// What was found is found again, in a process that never played a layer; --probe plays them anew.
static void probes_are_kept(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct plan *p = calloc(2, sizeof *p);
    char folder[] = BINARY_DIR "/probes.XXXXXX", path[200], command[220];
    struct err err = { 0 };
    (void)state;

    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("XDG_CACHE_HOME", folder, 1), 0);
    snprintf(path, sizeof path, "%s/ingot/probes.json", folder);
    o.device = "cpu,cpu:plain";
    o.n_batch = 32; // plain loops take long
    o.n_context = 256;
    assert_ok(engine_plan(&o, 0, &p[0], &err), &err);
    assert_int_equal(p[0].n_probed, 2);
    assert_ok(engine_plan(&o, 0, &p[1], &err), &err);
    assert_int_equal(p[1].n_probed, 0);
    assert_memory_equal(p[0].speed, p[1].speed, sizeof p->speed);
    assert_int_equal(p[0].token_ns, p[1].token_ns);
    assert_ok(engine_plan(&o, 100, &p[1], &err), &err); // another depth
    assert_int_equal(p[1].n_probed, 2);
    o.probe_anew = true;
    assert_ok(engine_plan(&o, 0, &p[1], &err), &err);
    assert_int_equal(p[1].n_probed, 2);
    o.probe_anew = false;
    FILE *f = fopen(path, "w"); // a file that is broken off
    assert_non_null(f);
    fputs("{\"format\": 2, \"probes\": {\"ab", f);
    fclose(f);
    assert_ok(engine_plan(&o, 0, &p[1], &err), &err);
    assert_int_equal(p[1].n_probed, 2);
    assert_ok(engine_plan(&o, 0, &p[1], &err), &err);
    assert_int_equal(p[1].n_probed, 0);
    assert_int_equal(chmod(path, 0), 0); // one that cannot be read, unless it is root who asks
    assert_ok(engine_plan(&o, 0, &p[1], &err), &err);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
    unsetenv("XDG_CACHE_HOME");
    free(p);
}

static struct probe_speed kept(const char *numbers, bool *found)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    char text[800];
    struct probe_speed speed = { 0 };
    const struct sha256 key = { { 0 } };

    snprintf(text, sizeof text, "{\"format\": 2, \"probes\": {\"%s\": %s}}", zeros, numbers);
    struct probe_cache *c = probe_cache_parse(str_from(text));
    *found = probe_cache_find(c, &key, &speed);
    probe_cache_close(c);
    return speed;
}

static void a_strange_probe_is_none(void **state)
{
    static const char *const wrong[] = {
        "3",
        "[]",
        "{}",
        "[1,2,3]",
        "null",
        "[1,0,0,0,0, 2,5,0,0,0, 4,5,0,0,0, 256,7,0,0,0, 1,1,1,1,1,1,1,1,1]",    // no time for a layer
        "[0,5,0,0,0, 2,5,0,0,0, 4,5,0,0,0, 256,7,0,0,0, 1,1,1,1,1,1,1,1,1]",    // no rows
        "[1,5,0,0,0, 2,5,0,0,0, 4,5,0,0,0, 256,7,0,0,0, 1,1,1,1,1,1,1,1,-1]",   // less than nothing
        "[1,5,0,0,0, 2,5,0,0,0, 4,5,0,0,0, 256,1e30,0,0,0, 1,1,1,1,1,1,1,1,1]", // longer than a clock counts
        "[1,5,0,0,0, 2,5,0,0,0, 4,5,0,0,0, 256,\"7\",0,0,0, 1,1,1,1,1,1,1,1,1]",
        "[1,5,0,0,0, 2,5,0,0,0, 4,5,0,0,0, 256,7,0,0,0, 1,1,1,1,1,1,1,1,1,1]",
    };
    bool found;
    (void)state;

    struct probe_speed s =
        kept("[1,5,2,0,3, 2,5,0,0,0, 4,6,0,0,0, 256,7,0,0,0, 10,11,12,13,14,15,16,17,18]", &found);
    assert_true(found && s.n_rows[PROBE_PROMPT] == 256 && s.at[PROBE_ONE].layer_ns == 5);
    assert_true(s.at[PROBE_ONE].stage_ns == 3 && s.head.commands == 15 && s.limits.command_ns == 18);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        kept(wrong[i], &found);
        assert_false(found);
    }
}

// Without GPUs stages do not compute at the same time: the sum counts for many, too.
static void many_answers_are_predicted(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct plan *p = calloc(1, sizeof *p);
    struct err err = { 0 };
    (void)state;

    o.device = "cpu,cpu:plain";
    o.n_batch = 32; // plain loops take long
    o.n_context = 256;
    o.n_sequences = 8;
    o.stages = "4";
    assert_ok(engine_plan(&o, 64, p, &err), &err);
    assert_true(p->many && !p->overlaps);
    assert_true(p->n_rows[PROBE_HALF] == 4 && p->n_rows[PROBE_MANY] == 8);
    assert_int_equal(p->n_many, 8);
    assert_int_equal(p->many_ns, p->stage_ns[0][PROBE_MANY] + p->stage_ns[1][PROBE_MANY]);
    o.aim = INGOT_FOR_ONE;
    assert_ok(engine_plan(&o, 64, p, &err), &err);
    assert_false(p->many);
    o.aim = INGOT_FOR_MANY;
    o.device = "cpu,cpu"; // more sequences than the probe's step has
    o.n_sequences = o.n_batch = 100;
    assert_ok(engine_plan(&o, 0, p, &err), &err);
    assert_true(p->n_rows[PROBE_MANY] == 64 && p->n_many == 100);
    o.n_sequences = 1;
    assert_ok(engine_plan(&o, 0, p, &err), &err);
    assert_true(p->many && p->many_ns == p->token_ns);
    free(p);
}

// Two stages: the first reads 6 GB at 10 GB/s and waits for its link, the second computes.
static void what_takes_most_bounds_a_stage(void **state)
{
    struct plan *p = calloc(1, sizeof *p);
    (void)state;

    p->placement = (struct placement){ .layers = { { 0, 2 }, { 2, 3 } }, .device = { 0, 1 }, .n = 2 };
    p->speed[0].layer = (struct probe_work){ 3e9, 1e9, 10 };
    p->speed[1].layer = (struct probe_work){ 1e9, 1e9, 10 };
    p->speed[1].head = (struct probe_work){ 1e9, 8e9, 1 };
    p->speed[0].limits = (struct device_limits){ 10e9, 100e9, 1000 };
    p->speed[1].limits = (struct device_limits){ 10e9, 10e9, 1000 };
    p->stage_ns[0][PROBE_ONE] = 800000000;
    p->stage_ns[1][PROBE_ONE] = 1000000000;
    struct plan_bound b = plan_bound(p, 0);
    assert_string_equal(b.by, "memory");
    assert_true(b.percent > 74.9 && b.percent < 75.1);
    p->link_ns[0][PROBE_ONE] = 800000000;
    b = plan_bound(p, 0);
    assert_string_equal(b.by, "link");
    assert_true(b.percent > 49.9 && b.percent < 50.1);
    b = plan_bound(p, 1);
    assert_string_equal(b.by, "arithmetic");
    assert_true(b.percent > 89.9 && b.percent < 90.1);
    p->speed[0].limits.command_ns = 1e9;
    assert_string_equal(plan_bound(p, 0).by, "launch");
    p->speed[1].limits = (struct device_limits){ 0 };
    assert_string_equal(plan_bound(p, 1).by, "-");
    free(p);
}

static void links_are_kept(void **state)
{
    static const char text[] = "{\"format\": 2, \"probes\": "
                               "{\"00000000000000000000000000000000000000000000000000000000"
                               "00000000\": [2.5e10, 12000]}}";
    const struct sha256 key = { { 0 } };
    struct probe_speed speed;
    struct probe_link link;
    (void)state;

    struct probe_cache *c = probe_cache_parse(str_from(text));
    assert_true(probe_cache_find_link(c, &key, &link));
    assert_true(link.bytes > 2.4e10 && link.latency_ns > 11999);
    assert_false(probe_cache_find(c, &key, &speed)); // they are no layers
    probe_cache_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_the_best_there_is),
        cmocka_unit_test(of_equal_plans_the_one_with_fewer_devices),
        cmocka_unit_test(a_slow_device_is_left_out),
        cmocka_unit_test(a_plan_is_made_without_loading),
        cmocka_unit_test(stages_that_overlap_are_predicted_so),
        cmocka_unit_test(layers_that_lean_on_others_are_not_divided),
        cmocka_unit_test(one_layer_is_not_divided),
        cmocka_unit_test(probes_are_kept),
        cmocka_unit_test(a_strange_probe_is_none),
        cmocka_unit_test(many_answers_are_predicted),
        cmocka_unit_test(what_takes_most_bounds_a_stage),
        cmocka_unit_test(links_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
