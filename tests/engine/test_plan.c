// test_plan.c - the placement of layers: the optimum of random instances, found by trying everything; and a
// plan of a real model on devices of unlike speed.
#include <stdlib.h>
#include "engine/engine.h"
#include "engine/stage/plan.h"
#include "open_engine.h"

enum { MOST_DEVICES = 4, MOST_LAYERS = 7 };

struct instance {
    uint32_t n_devices, n_layers;
    uint64_t layer_cost[MOST_DEVICES][MOST_LAYERS], head_cost[MOST_DEVICES], room[MOST_DEVICES];
    uint64_t bytes[MOST_LAYERS];
};

static uint32_t draw(uint32_t *state, uint32_t below)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 8) % below;
}

static uint64_t cost_of(const void *arg, uint32_t device, struct layer_range layers)
{
    const struct instance *x = arg;
    uint64_t cost = layers.last == x->n_layers ? x->head_cost[device] : 0, bytes = 0;

    for (uint32_t l = layers.first; l < layers.last; l++) {
        cost += x->layer_cost[device][l];
        bytes += x->bytes[l];
    }
    return bytes <= x->room[device] ? cost : PLAN_DOES_NOT_FIT;
}

// Every number of layers for this device, then the same for the ones behind it.
static uint64_t try_all(const struct instance *x, uint32_t device, uint32_t first)
{
    uint64_t best = PLAN_DOES_NOT_FIT;

    if (first == x->n_layers)
        return 0;
    if (device == x->n_devices)
        return best;
    for (uint32_t last = first; last <= x->n_layers; last++) {
        uint64_t own = last > first ? cost_of(x, device, (struct layer_range){ first, last }) : 0;
        uint64_t rest = try_all(x, device + 1, last);
        if (own != PLAN_DOES_NOT_FIT && rest != PLAN_DOES_NOT_FIT && own + rest < best)
            best = own + rest;
    }
    return best;
}

static struct instance random_instance(uint32_t *random)
{
    struct instance x = { .n_devices = 1 + draw(random, MOST_DEVICES),
                          .n_layers = 1 + draw(random, MOST_LAYERS) };

    for (uint32_t d = 0; d < x.n_devices; d++) {
        x.room[d] = draw(random, 30);
        x.head_cost[d] = draw(random, 9);
        for (uint32_t l = 0; l < x.n_layers; l++)
            x.layer_cost[d][l] = 1 + draw(random, 5);
    }
    for (uint32_t l = 0; l < x.n_layers; l++)
        x.bytes[l] = 1 + draw(random, 8);
    return x;
}

// What the placement says it costs is what it costs.
static void check_placement(const struct instance *x, const struct placement *p, uint64_t sum)
{
    uint64_t total = 0;
    uint32_t at = 0;

    for (uint32_t i = 0; i < p->n; i++) {
        assert_int_equal(p->layers[i].first, at);
        assert_true(p->layers[i].last > at && p->device[i] < x->n_devices);
        assert_true(i == 0 || p->device[i] > p->device[i - 1]);
        total += cost_of(x, p->device[i], p->layers[i]);
        at = p->layers[i].last;
    }
    assert_int_equal(at, x->n_layers);
    assert_int_equal(total, sum);
}

static void the_plan_is_the_best_there_is(void **state)
{
    uint32_t random = 7, n_fit = 0, n_split = 0;
    (void)state;

    for (int i = 0; i < 5000; i++) {
        struct instance x = random_instance(&random);
        struct plan_costs costs = { cost_of, &x, x.n_devices, x.n_layers };
        struct placement p;
        struct err err;
        uint64_t best = try_all(&x, 0, 0), sum = 0;
        bool fits = plan_choose(&costs, &p, &sum, &err);
        assert_int_equal(fits, best != PLAN_DOES_NOT_FIT);
        assert_int_equal(err.code, ERR_NONE);
        if (!fits)
            continue;
        assert_int_equal(sum, best);
        check_placement(&x, &p, sum);
        n_fit++;
        n_split += p.n > 1;
    }
    assert_true(n_fit > 500 && n_fit < 4500 && n_split > 300);
}

static void of_equal_plans_the_one_with_fewer_devices(void **state)
{
    struct instance x = { .n_devices = 3, .n_layers = 4, .room = { 9, 9, 9 }, .bytes = { 1, 1, 1, 1 } };
    struct plan_costs costs = { cost_of, &x, 3, 4 };
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
    assert_int_equal(sum, 8);
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
    assert_ok(engine_plan(&o, p, &err), &err);
    assert_int_equal(p->placement.n, 1);
    assert_string_equal(p->names[p->placement.device[0]], "cpu");
    assert_int_equal(p->placement.layers[0].last, 8);
    assert_true(p->token_ns > 0 && p->prompt_ns > p->token_ns);
    assert_true(p->speed[1].layer_ns > p->speed[0].layer_ns);
    o.stages = "3";
    assert_ok(engine_plan(&o, p, &err), &err);
    assert_int_equal(p->placement.n, 2);
    assert_int_equal(p->placement.layers[1].first, 3);
    assert_true(p->need[0].weights > 0 && p->need[1].weights > p->need[0].weights);
    o.n_sequences = 4096; // pages for all of them fit nowhere
    o.n_context = 1 << 16;
    o.stages = NULL;
    assert_false(engine_plan(&o, p, &err));
    assert_non_null(strstr(err.message, "with -ctk q8_0 -ctv q8_0"));
    free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_plan_is_the_best_there_is),
        cmocka_unit_test(of_equal_plans_the_one_with_fewer_devices),
        cmocka_unit_test(a_slow_device_is_left_out),
        cmocka_unit_test(a_plan_is_made_without_loading),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
