// test_cuda_sampling.c - plays of a tape that are cut at a few places, as a profile plays them: what a cut
// separates, what stays as in the plain graph, and the times that come of it. On a fake driver.
#include <math.h>
#include "engine/api.h"
#include "engine/api/step_fronts.h"
#include "engine/api/step_profile.h"
#include "fake_driver.h"

static struct ingot_engine *open_model(const char *model)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error;

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    fake.memory_bytes = 1ull << 32;
    driver_replace(&driver);
    o.model = model;
    o.device = "cuda";
    o.n_sequences = 2;
    o.n_context = 64; // small buffers: a thousand engines are opened
    o.n_batch = 16;
    o.speculate = INGOT_SPECULATE_OFF;
    struct ingot_engine *engine = ingot_engine_open(&o, &error);
    if (!engine)
        fail_msg("%s", error.message);
    return engine;
}

static const char *const models[] = { SOURCE_DIR "/tests/golden/llama3/model.gguf",
                                      SOURCE_DIR "/tests/golden/qwen3moe/model.gguf" };

static unsigned n_edges_of(const struct fake_graph *g, unsigned type)
{
    unsigned n = 0;

    for (unsigned i = 0; i < g->n_edges; i++)
        n += g->edges[i].type == type;
    return n;
}

static bool has_edge(const struct fake_graph *g, unsigned from, unsigned to, unsigned type)
{
    for (unsigned i = 0; i < g->n_edges; i++)
        if (g->edges[i].from == from && g->edges[i].to == to && g->edges[i].type == type)
            return true;
    return false;
}

// All kernels before a cut run before its event, and none after it; between cuts there are the plain edges.
// A kernel's node has the launch's number in both graphs.
static void check_cuts(struct device *d, struct tape *t, const struct buffer *step, struct play_cuts cuts)
{
    static struct fake_graph plain;
    struct err err = { 0 };
    double ns[FAKE_NODES];
    uint32_t n_cuts = fronts_n_cuts(tape_n_commands(t), &cuts);

    fake.last_first = false;
    assert_ok(tape_play(t, step, &err), &err);
    plain = *fake.graph;
    for (int last_first = 0; last_first < 2; last_first++) {
        fake.last_first = last_first;
        assert_ok(d->sampling->prepare(d, t, step, &cuts, &err), &err);
        assert_ok(d->sampling->play(d, t, step, cuts.sample, &err), &err);
        assert_ok(d->sampling->read(d, t, cuts.sample, ns, &err), &err);
        assert_int_equal(fake.graph->n_nodes, plain.n_nodes + n_cuts + 2);
        for (uint32_t i = 0; i <= n_cuts; i++) {
            uint64_t rest = (uint64_t)(ns[i] + 0.5) - (i + 1) * FAKE_EVENT_NS, n = rest / FAKE_KERNEL_NS;
            assert_int_equal(rest % FAKE_KERNEL_NS, 0);
            assert_true(i < n_cuts ? n >= cuts.first + i * cuts.every && n < plain.n_nodes
                                   : n == plain.n_nodes);
        }
    }
    for (unsigned i = 0; i < fake.graph->n_edges; i++)
        if (fake.graph->edges[i].type == CU_EDGE_PROGRAMMATIC)
            assert_true(
                has_edge(&plain, fake.graph->edges[i].from, fake.graph->edges[i].to, CU_EDGE_PROGRAMMATIC));
    assert_true(n_edges_of(fake.graph, CU_EDGE_PROGRAMMATIC) + n_cuts >=
                n_edges_of(&plain, CU_EDGE_PROGRAMMATIC));
}

static void a_cut_separates_and_the_rest_stays(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct ingot_engine *engine = open_model(models[m]);
        struct stage *s = &engine->inner.loaded->stages[0];
        struct err err = { 0 };
        struct bucket *b = stage_bucket(s, 1, 1, &err);
        assert_non_null(b);
        uint32_t n = tape_n_commands(b->tape);
        for (uint32_t every = 1; every < 2 * n; every += 1 + every / 2)
            for (uint32_t first = 1; first <= every; first += 1 + every / 5)
                check_cuts(s->device, b->tape, &s->step,
                           (struct play_cuts){ first % DEVICE_SAMPLES, first, every });
        ingot_engine_close(engine);
        assert_int_equal(fake.n_live, 0);
    }
}

static void a_profile_has_the_time_of_each_command(void **state)
{
    (void)state;
    struct ingot_engine *engine = open_model(models[0]);
    struct step_profile_request request = { .shape = { 1, 1, 8 }, .seconds = 0.05 };
    struct step_profile p;
    struct err err = { 0 };
    double sum = 0;

    assert_ok(step_profile_run(engine, &request, &p, &err), &err);
    assert_true(p.is_timed && p.n_plays >= 6);
    for (uint32_t i = 0; i < p.n_commands; i++) {
        double n = p.commands[i].ns / FAKE_KERNEL_NS;
        assert_true(n > 0.99 && fabs(n - round(n)) < 0.01 && p.commands[i].wait_ns == 0);
        sum += p.commands[i].ns;
    }
    sum += p.start_ns + p.link_ns + p.host_ns + p.cuts_ns;
    assert_true(fabs(sum / p.timed - 1) < 1e-3);
    step_profile_release(&p);
    ingot_engine_close(engine);
    assert_int_equal(fake.n_live, 0);
}

// Profiles with one call that fails, by number from the profile's begin on. Returns how many there were.
static unsigned profile_with_fault(unsigned fail_call)
{
    struct step_profile_request request = { .shape = { 1, 1, 8 } };
    struct ingot_engine *engine = open_model(models[0]);
    struct step_profile p;
    struct err err = { 0 };
    unsigned before = fake.calls;

    fake.fail_call = fail_call ? before + fail_call : 0;
    bool ok = step_profile_run(engine, &request, &p, &err);
    assert_true(ok || strlen(err.message) > 10);
    unsigned n = fake.calls - before;
    step_profile_release(&p);
    ingot_engine_close(engine);
    assert_int_equal(fake.n_live, 0);
    return n;
}

// The profile ends with an error, and leaves nothing behind.
static void a_fault_ends_a_profile(void **state)
{
    unsigned n = profile_with_fault(0);
    (void)state;

    for (unsigned i = 1; i <= n; i += i < 1000 ? 1 : 331)
        profile_with_fault(i);
    print_message("%u calls\n", n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_separates_and_the_rest_stays),
        cmocka_unit_test(a_profile_has_the_time_of_each_command),
        cmocka_unit_test(a_fault_ends_a_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
