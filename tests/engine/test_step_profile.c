// test_step_profile.c - a step taken apart: its parts add up, one device or two, and the engine is as before.
#include <math.h>
#include "engine/api.h"
#include "engine/api/memory_use.h"
#include "engine/api/step_fronts.h"
#include "engine/api/step_profile.h"
#include "engine/stage/device_limits.h"
#include "open_engine.h"

static struct ingot_engine *open_split(const char *stages, uint32_t n_threads)
{
    struct ingot_engine_options options = ingot_engine_defaults();

    options.device = stages ? "cpu,cpu" : "cpu";
    options.stages = stages;
    options.n_threads = n_threads;
    options.n_context = 128;
    options.n_sequences = 8;
    options.no_prefix_cache = true;
    return open_or_fail(&options);
}

static void check_sum(const struct step_profile *p)
{
    double sum = p->start_ns + p->link_ns + p->host_ns;

    for (uint32_t i = 0; i < p->n_commands; i++) {
        const struct profiled_command *c = &p->commands[i];
        assert_true(c->ns > 0 && c->wait_ns >= 0 && c->wait_ns <= c->ns && c->alone_ns > 0);
        assert_true(c->cost.value_bytes > 0 || c->cost.weight_bytes > 0 || c->cost.page_bytes > 0);
        sum += c->ns;
    }
    assert_true(p->timed > 0 && fabs(sum - p->timed) < 1e-3 * p->timed);
    assert_true(p->plain > 0 && p->n_plays >= 6 && p->host_ns > 0);
}

static void a_step_is_taken_apart(void **state)
{
    static const struct step_shape shapes[] = {
        { 1, 1, 0 }, { 1, 1, 20 }, { 8, 1, 20 }, { 1, 64, 0 }, { 3, 5, 7 }
    };
    (void)state;

    for (uint32_t split = 0; split < 2; split++) {
        struct ingot_engine *engine = open_split(split ? "3" : NULL, 1 + split);
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            struct step_profile_request request = { .shape = shapes[i], .alone = true };
            struct step_profile p;
            struct err err = { 0 };
            assert_ok(step_profile_run(engine, &request, &p, &err), &err);
            check_sum(&p);
            assert_int_equal(p.n_stages, 1 + split);
            for (uint32_t s = 0; s < p.n_stages; s++)
                assert_true(p.spans[s].times.n_lanes >= 1 && p.spans[s].n_commands > 0);
            step_profile_release(&p);
        }
        struct ingot_engine_stats stats;
        ingot_engine_stats(engine, &stats);
        assert_int_equal(stats.n_pages_held, 0);
        ingot_engine_close(engine);
    }
}

enum { N_FRONTS = 23, CUT_NS = 3600, SHOWN_NS = 1000 }; // a cut shows a front so late, and takes more

// A play with cuts, each of which holds it up, those before some commands for longer; noise is added to what
// is seen.
static void add_cut_play(struct fronts *f, const double *times, uint32_t first, double noise)
{
    double ns[N_FRONTS], at = CUT_NS - SHOWN_NS;
    uint32_t n = 0, kinds = f->every % 5 == 0 ? 5 : 1;

    for (uint32_t i = 0; i < N_FRONTS; i++) {
        if (i >= first && (i - first) % f->every == 0) {
            ns[n++] = at + SHOWN_NS + noise * sin(i * 7.0 + first);
            at += CUT_NS * (1 + 0.25 * (i % kinds));
        }
        at += times[i];
    }
    ns[n] = at + SHOWN_NS;
    fronts_add(f, first, ns);
}

static void solve_fronts(const double *times, uint32_t every, double noise, double *found)
{
    struct fronts f;
    struct err err = { 0 };
    double sum = 0;

    assert_ok(fronts_open(&f, N_FRONTS, every, 3 * every, &err), &err);
    for (uint32_t play = 0; play < 3 * every; play++)
        add_cut_play(&f, times, 1 + play % every, noise);
    for (uint32_t i = 0; i < N_FRONTS; i++)
        sum += times[i];
    assert_ok(fronts_solve(&f, CUT_NS, CUT_NS + sum, found, &err), &err);
    fronts_close(&f);
    for (uint32_t i = 0; i < N_FRONTS; i++) {
        assert_true(found[i] >= 0);
        sum -= found[i];
    }
    assert_true(fabs(sum) < 1e-6);
}

// Commands of 0 to 44 us. With 5 commands a layer, cuts before one of them may cost more than before another.
static void cut_plays_tell_the_time_of_each_command(void **state)
{
    static const uint32_t every[] = { 1, 2, 5, 10, 22, 40 };
    double times[N_FRONTS], found[N_FRONTS];
    (void)state;

    for (uint32_t i = 0; i < N_FRONTS; i++)
        times[i] = 1000.0 * (i % 3) * i;
    for (size_t k = 0; k < sizeof every / sizeof *every; k++) {
        solve_fronts(times, every[k], 0, found);
        for (uint32_t i = 0; i < N_FRONTS; i++)
            assert_true(fabs(found[i] - times[i]) < 1e-6);
        solve_fronts(times, every[k], 300, found);
        for (uint32_t i = 0; i < N_FRONTS; i++)
            assert_true(fabs(found[i] - times[i]) <= 600);
    }
}

static void an_engine_answers_as_before(void **state)
{
    static const uint32_t prompt[] = { 5, 9, 77, 3 };
    uint32_t tokens[2][8] = { 0 };
    (void)state;

    for (int profiled = 0; profiled < 2; profiled++) {
        struct ingot_engine *engine = open_split(NULL, 2);
        struct ingot_request_options options = greedy_request(prompt, 4, 8);
        struct step_profile_request request = { .shape = { 2, 3, 11 }, .alone = true };
        struct step_profile p = { 0 };
        struct ingot_error error;
        struct err err = { 0 };
        struct ingot_event event;
        bool busy = true;
        uint32_t n = 0;
        if (profiled)
            assert_ok(step_profile_run(engine, &request, &p, &err), &err);
        struct ingot_request *r = ingot_submit(engine, &options, &error);
        assert_non_null(r);
        while (busy && ingot_step(engine, &busy, &error))
            while (ingot_poll(r, &event))
                if (event.token != UINT32_MAX && n < 8)
                    tokens[profiled][n++] = event.token;
        assert_int_equal(n, 8);
        ingot_request_free(r);
        step_profile_release(&p);
        ingot_engine_close(engine);
    }
    assert_memory_equal(tokens[0], tokens[1], sizeof tokens[0]);
}

// The tower's commands are of its own layers, and a picture is encoded as before.
static void a_tower_is_taken_apart(void **state)
{
    struct ingot_engine_options options = ingot_engine_defaults();
    struct step_profile_request request = { .alone = true };
    struct step_profile p;
    struct err err = { 0 };
    uint32_t n_in_layers = 0;
    (void)state;

    options.model = INGOT_BUILTIN_EYES;
    options.device = "cpu";
    struct ingot_engine *engine = open_or_fail(&options);
    assert_ok(step_profile_tower(engine, &request, &p, &err), &err);
    check_sum(&p);
    for (uint32_t i = 0; i < p.n_commands; i++)
        n_in_layers += p.commands[i].layer != NO_LAYER;
    assert_true(n_in_layers > 5 && p.shape.n_rows > 1);
    assert_true(memory_use_of(engine).tower > 1000000);
    step_profile_release(&p);
    ingot_engine_close(engine);

    engine = open_split(NULL, 1);
    assert_fails(step_profile_tower(engine, &request, &p, &err), &err, "takes no pictures");
    step_profile_release(&p);
    ingot_engine_close(engine);
}

// What is taken is what was predicted: pages to the byte, weights within 2 %, though the matrix is tied and
// lies in two forms, of which one is the file's.
static void memory_is_counted_by_part(void **state)
{
    struct ingot_engine_options options = ingot_engine_defaults();
    struct ingot_memory predicted;
    struct ingot_error error;
    (void)state;

    options.device = "cpu";
    options.n_context = 128;
    options.n_sequences = 8;
    assert_true(ingot_engine_estimate(&options, &predicted, &error));
    struct ingot_engine *engine = open_split(NULL, 1);
    struct memory_use use = memory_use_of(engine);
    assert_int_equal(use.pages, predicted.page_bytes);
    assert_in_range(use.weights, predicted.weight_bytes * 98 / 100, predicted.weight_bytes * 102 / 100);
    assert_true(use.scratch > 0 && use.tower == 0);
    ingot_engine_close(engine);
}

static struct step_profile profile_of(struct ingot_engine *engine, struct step_shape shape)
{
    struct step_profile_request request = { .shape = shape };
    struct step_profile p;
    struct err err = { 0 };

    assert_ok(step_profile_run(engine, &request, &p, &err), &err);
    return p;
}

static struct ingot_engine *open_mixture(const char *model, const char *device)
{
    struct ingot_engine_options options = ingot_engine_defaults();

    options.model = model;
    options.device = device;
    options.n_context = 128;
    options.n_sequences = 8;
    options.exact = true;
    options.no_prefix_cache = true;
    return open_or_fail(&options);
}

static bool has_command(const struct step_profile *p, const char *name)
{
    bool has = false;

    for (uint32_t i = 0; i < p->n_commands; i++)
        has |= strcmp(p->commands[i].name, name) == 0;
    return has;
}

// The plain loops' device has a layer's experts as one command, the other one has them in parts.
static void check_spreads(const char *model, uint32_t n_layers)
{
    static const struct step_shape shapes[] = { { 1, 1, 0 }, { 8, 1, 20 }, { 1, 64, 0 }, { 3, 5, 7 } };
    struct ingot_engine *engines[] = { open_mixture(model, "cpu"), open_mixture(model, "cpu:plain") };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct step_profile parts = profile_of(engines[0], shapes[i]),
                            whole = profile_of(engines[1], shapes[i]);
        assert_true(has_command(&parts, "experts_up") && !has_command(&parts, "moe"));
        assert_true(has_command(&whole, "moe") && !has_command(&whole, "experts_up"));
        assert_int_equal(parts.n_experts, n_layers);
        assert_int_equal(whole.n_experts, n_layers);
        for (uint32_t l = 0; l < n_layers; l++) {
            const struct expert_spread *a = &parts.experts[l], *b = &whole.experts[l];
            assert_true(a->layer == b->layer && a->n == b->n && a->n_used == b->n_used && a->most == b->most);
            assert_true(a->mean == b->mean && a->n_used > 0 && a->n_used <= a->n && a->most >= a->mean);
        }
        step_profile_release(&parts);
        step_profile_release(&whole);
    }
    for (int i = 0; i < 2; i++)
        ingot_engine_close(engines[i]);
}

static void experts_of_one_command_show_their_spread(void **state)
{
    (void)state;
    check_spreads(SOURCE_DIR "/tests/golden/qwen3moe/model.gguf", 2);
    check_spreads(SOURCE_DIR "/tests/golden/glm47-flash/model.gguf", 2); // a dense layer before them
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void what_does_not_fit_is_refused(void **state)
{
    static const struct {
        struct step_shape shape;
        const char *why;
    } wrong[] = { { { 1, 0, 0 }, "with 0 rows each" },
                  { { 9, 1, 0 }, "a step of 9 sequences" },
                  { { 1, 4000, 0 }, "4000 rows each" },
                  { { 1, 1, 127 }, "at a depth of 127; the context has 128" },
                  { { 1, 1, UINT32_MAX }, "the context has 128" } };
    struct ingot_engine *engine = open_split(NULL, 1);
    struct step_profile p;
    struct err err;
    (void)state;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct step_profile_request request = { .shape = wrong[i].shape };
        assert_fails(step_profile_run(engine, &request, &p, &err), &err, wrong[i].why);
        step_profile_release(&p);
    }
    struct step_profile_request stopped = { .shape = { 1, 1, 0 }, .goes_on = never };
    assert_fails(step_profile_run(engine, &stopped, &p, &err), &err, "stopped");
    step_profile_release(&p);
    ingot_engine_close(engine);
}

static void a_device_is_measured(void **state)
{
    struct ingot_engine *engine = open_split(NULL, 1);
    struct device_limits limits;
    struct err err = { 0 };
    (void)state;

    assert_ok(device_limits_probe(engine->inner.loaded->devices.at[0], QUANT_Q4_K, 1, &limits, &err), &err);
    assert_true(limits.read_bytes > 1e8 && limits.operations > 1e7 && limits.command_ns > 0);
    ingot_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_is_taken_apart),
        cmocka_unit_test(an_engine_answers_as_before),
        cmocka_unit_test(cut_plays_tell_the_time_of_each_command),
        cmocka_unit_test(a_tower_is_taken_apart),
        cmocka_unit_test(memory_is_counted_by_part),
        cmocka_unit_test(experts_of_one_command_show_their_spread),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(a_device_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
