// test_cuda_places.c - which devices an engine takes where nobody names them, or where the named ones are too
// small: other GPUs, the processor for layers or for experts, the host's memory for a table. On a fake
// driver.
#include "engine/api.h"
#include "engine/group/group.h"
#include "engine/stage/plan.h"
#include "engine/memory_parts.h"
#include "fake_driver.h"
#include "ops/cuda_table.h"

#define MODEL        SOURCE_DIR "/tests/golden/llama3/model.gguf"
#define INPUTS_MODEL SOURCE_DIR "/tests/golden/gemma4-e2b/model.gguf"

static struct ingot_engine_options found_options(const char *model)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = model;
    o.n_sequences = 1;
    o.speculate = INGOT_SPECULATE_OFF;
    o.n_batch = 64;  // probes are shorter
    o.n_threads = 1; // measured times decide: a processor must be slower than the fake driver's calls
    o.exact = true;
    return o;
}

// A share of what the model needs alone.
static void set_memory(const struct ingot_engine_options *o, double share)
{
    struct place_memory need;
    struct device_info info;
    struct err err;

    fake.memory_bytes = 1ull << 32;
    driver_replace(&driver);
    assert_ok(engine_estimate(o, &need, &info, &err), &err);
    fake.memory_bytes = (uint64_t)(share * (double)(need.weights + need.pages + need.scratch));
}

static struct ingot_engine *open_found(const struct ingot_engine_options *o)
{
    struct ingot_error error = { 0 };
    struct ingot_request_options r = request();
    struct ingot_result result;

    struct ingot_engine *engine = ingot_engine_open(o, &error);
    if (!engine || !ingot_generate(engine, &r, NULL, NULL, &result, &error))
        fail_msg("%s", error.message);
    assert_int_equal(result.n_generated, 20);
    return engine;
}

static void check_devices(const struct engine_loaded *l, const char *first, const char *second)
{
    assert_int_equal(l->devices.n, second ? 2 : 1);
    assert_int_equal(l->placement.n, l->devices.n);
    assert_string_equal(l->devices.at[0]->name, first);
    if (second)
        assert_string_equal(l->devices.at[1]->name, second);
}

// Where a GPU has no room for all, the processor has the rest; but not if the device was named. Of the
// shipped model: the plan goes by measured times, and a processor takes as long for less as the fake driver's
// calls.
static void the_processor_takes_what_does_not_fit(void **state)
{
    struct ingot_engine_options o = found_options(NULL);
    struct ingot_error error;
    (void)state;

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    set_memory(&o, 1.0);
    struct ingot_engine *engine = open_found(&o);
    check_devices(engine->inner.loaded, "cuda:0", NULL);
    ingot_engine_close(engine);
    set_memory(&o, 0.9);
    engine = open_found(&o);
    check_devices(engine->inner.loaded, "cuda:0", "cpu");
    ingot_engine_close(engine);
    o.device = "cuda";
    assert_null(ingot_engine_open(&o, &error));
    assert_int_equal(error.code, INGOT_MEMORY);
    assert_int_equal(fake.n_live, 0);
}

// As few experts as must leave the GPU, and none where the caller says so.
static void experts_leave_a_device_that_is_too_small(void **state)
{
    struct ingot_engine_options o = found_options(SOURCE_DIR "/tests/golden/qwen3moe/model.gguf");
    struct ingot_error error;
    (void)state;

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    o.device = "cuda";
    set_memory(&o, 0.95);
    struct ingot_engine *engine = open_found(&o);
    const struct engine_loaded *l = engine->inner.loaded;
    check_devices(l, "cuda:0", NULL);
    assert_string_equal(l->devices.experts->name, "cpu");
    struct stage_shape shape = l->stages[0].shape;
    assert_true(shape.n_away > 0 && shape.n_away == l->devices.n_away);
    struct place_memory need = place_memory(&l->model, &shape, NULL);
    assert_true(need.weights + need.pages + need.scratch <= fake.memory_bytes);
    shape.n_away--;
    need = place_memory(&l->model, &shape, NULL);
    assert_true(need.weights + need.pages + need.scratch > fake.memory_bytes);
    ingot_engine_close(engine);
    o.experts = "none";
    assert_null(ingot_engine_open(&o, &error));
    assert_int_equal(error.code, INGOT_MEMORY);
    assert_non_null(strstr(error.message, "experts cpu:"));
    assert_int_equal(fake.n_live, 0);
}

// For one answer the first GPU is enough where all fits; what does not fit there has the second one, too.
static void other_gpus_are_found(void **state)
{
    struct ingot_engine_options o = found_options(MODEL);
    (void)state;

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    fake.n_devices = 2;
    fake.has_peers = true;
    set_memory(&o, 1.0);
    struct ingot_engine *engine = open_found(&o);
    check_devices(engine->inner.loaded, "cuda:0", NULL);
    ingot_engine_close(engine);
    set_memory(&o, 0.9);
    engine = open_found(&o);
    check_devices(engine->inner.loaded, "cuda:0", "cuda:1");
    ingot_engine_close(engine);
    o.n_sequences = 8; // what the plan finds: one of them, or both, and nothing else
    set_memory(&o, 1.0);
    engine = open_found(&o);
    const struct engine_loaded *l = engine->inner.loaded;
    assert_true(l->devices.n == l->placement.n && l->devices.n <= 2);
    for (uint32_t i = 0; i < l->devices.n; i++)
        assert_int_equal(strncmp(l->devices.at[i]->name, "cuda", 4), 0);
    ingot_engine_close(engine);
    assert_int_equal(fake.n_live, 0);
}

// A link counts in the time of a token, and in that of a prompt.
static void links_are_part_of_a_prediction(void **state)
{
    struct ingot_engine_options o = found_options(MODEL);
    struct plan *p = calloc(1, sizeof *p);
    struct err err;
    (void)state;

    if (cuda_n_images == 0)
        skip();
    memset(&fake, 0, sizeof fake);
    set_memory(&o, 2.0);
    o.device = "cuda,cpu";
    o.stages = "1";
    struct ingot_engine *engine = open_found(&o);
    const struct engine_loaded *l = engine->inner.loaded;
    struct plan_request r = {
        .model = &l->model, .devices = &l->devices, .shape = &l->stages[0].shape, .pinned = &l->placement
    };
    assert_ok(plan_layers(&r, p, &err), &err);
    assert_true(p->links[0][1].bytes > 0 && p->links[0][1].latency_ns > 0);
    assert_true(p->link_ns[0][PROBE_ONE] > 0 && p->link_ns[1][PROBE_ONE] == 0);
    assert_int_equal(p->token_ns,
                     p->stage_ns[0][PROBE_ONE] + p->link_ns[0][PROBE_ONE] + p->stage_ns[1][PROBE_ONE]);
    assert_int_equal(p->prompt_ns, p->stage_ns[0][PROBE_PROMPT] + p->link_ns[0][PROBE_PROMPT] +
                                       p->stage_ns[1][PROBE_PROMPT]);
    ingot_engine_close(engine);
    free(p);
}

// A tied matrix has its rows as in the file and once more packed, and is predicted so.
static void a_gpu_takes_what_was_predicted(void **state)
{
    static const char *const models[] = { SOURCE_DIR "/models/ingot-7m-q8_0.gguf",
                                          SOURCE_DIR "/models/ingot-7m" };
    (void)state;

    if (cuda_n_images == 0)
        skip();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct ingot_engine_options o = found_options(models[i]);
        memset(&fake, 0, sizeof fake);
        fake.memory_bytes = 1ull << 32;
        driver_replace(&driver);
        o.device = "cuda";
        check_memory_parts(&o, false);
    }
}

static struct ingot_memory estimate(const struct ingot_engine_options *o)
{
    struct ingot_memory m;
    struct ingot_error error;

    assert_ok(ingot_engine_estimate(o, &m, &error), &error);
    return m;
}

static uint64_t sum_of(const struct ingot_memory *m)
{
    return m->weight_bytes + m->page_bytes + m->scratch_bytes;
}

static struct ingot_engine_options inputs_options(void)
{
    struct ingot_engine_options o = found_options(INPUTS_MODEL);

    o.device = "cuda";
    memset(&fake, 0, sizeof fake);
    set_memory(&o, 1.0);
    return o;
}

// Returns whether it has the table of inputs in the host's memory. It holds plain numbers, as in the file.
static bool opens_with_table_in_host(const struct ingot_engine_options *o)
{
    struct ingot_engine *engine = open_found(o);
    const struct engine_loaded *l = engine->inner.loaded;
    const struct weight *table = l->stages[0].parts.weights.input_embed;
    const struct file_tensor *t = MODEL_TENSOR(&l->model, input_embed);
    bool in_host = table->buffer.host;

    check_devices(l, "cuda:0", NULL);
    assert_int_equal(table->bytes, t->bytes);
    assert_memory_equal(table->buffer.native, t->data, t->bytes);
    ingot_engine_close(engine);
    assert_int_equal(fake.n_live, 0);
    return in_host;
}

static void a_table_of_inputs_leaves_a_gpu_that_is_too_small(void **state)
{
    struct plan *p = calloc(1, sizeof *p);
    struct ingot_error error;
    struct err err;
    (void)state;

    if (cuda_n_images == 0)
        skip();
    struct ingot_engine_options o = inputs_options();
    struct ingot_memory all = estimate(&o);
    assert_int_equal(all.host_weight_bytes, 0);
    assert_false(opens_with_table_in_host(&o));
    fake.memory_bytes--;
    struct ingot_memory less = estimate(&o);
    assert_true(less.host_weight_bytes > 0);
    assert_int_equal(less.weight_bytes + less.host_weight_bytes, all.weight_bytes);
    assert_int_equal(less.page_bytes + less.scratch_bytes, all.page_bytes + all.scratch_bytes);
    assert_true(opens_with_table_in_host(&o));
    check_memory_parts(&o, false);
    assert_ok(engine_plan(&o, 0, p, &err), &err);
    assert_int_equal(p->need[0].weights, less.weight_bytes);
    assert_int_equal(p->need[0].far, less.host_weight_bytes);
    fake.memory_bytes = sum_of(&less);
    assert_true(opens_with_table_in_host(&o));
    fake.memory_bytes--;
    assert_null(ingot_engine_open(&o, &error));
    assert_int_equal(error.code, INGOT_MEMORY);
    free(p);
}

// Shorter steps delay no loading.
static void a_table_of_inputs_stays_where_fewer_rows_are_enough(void **state)
{
    (void)state;
    if (cuda_n_images == 0)
        skip();
    struct ingot_engine_options o = inputs_options();
    o.n_batch = 512;
    set_memory(&o, 1.0);
    struct ingot_memory fewer = estimate(&o);
    o.n_batch = 0;
    struct ingot_memory chosen = estimate(&o);
    assert_int_equal(chosen.host_weight_bytes, 0);
    assert_int_equal(chosen.scratch_bytes, fewer.scratch_bytes);
    fake.memory_bytes--;
    chosen = estimate(&o);
    assert_true(chosen.host_weight_bytes > 0);
}

// Then it must have room on the GPU after all: here there is.
static void a_table_of_inputs_stays_where_nothing_can_be_pinned(void **state)
{
    (void)state;
    if (cuda_n_images == 0)
        skip();
    struct ingot_engine_options o = inputs_options();
    fake.memory_bytes--;
    fake.pins = 0;
    fake.most_pins = 1; // which every device has
    assert_false(opens_with_table_in_host(&o));
}

// Opens a device, makes a weight with one call that fails, and closes. Returns how many calls there were.
static unsigned take_far_rows(const struct weight_source *source, unsigned fail_call, struct err *err)
{
    struct weight w;

    memset(&fake, 0, sizeof fake);
    driver_replace(&driver);
    struct device *d = cuda_open(0, &cuda_table, err);
    assert_ok(d, err);
    fake.calls = 0;
    fake.fail_call = fail_call;
    if (weight_create(d, source, &w, err))
        assert_int_equal(w.buffer.host != NULL, fail_call != 1); // the first one pins
    unsigned calls = fake.calls;
    weight_release(&w);
    device_close(d);
    assert_int_equal(fake.n_live, 0);
    return calls;
}

static void far_rows_with_each_call_failing(void **state)
{
    enum { ROWS = 10000, COLS = 512, BYTES = ROWS * COLS / 32 * 34 }; // more than a piece
    struct weight_source source = { calloc(1, BYTES), BYTES, ROWS, COLS, QUANT_Q8_0, WEIGHT_FAR_ROWS, "w" };
    struct err err = { 0 };
    unsigned n_errors = 0;
    (void)state;

    if (cuda_n_images == 0)
        skip();
    unsigned n = take_far_rows(&source, 0, &err);
    for (unsigned i = 1; i <= n; i++) {
        err = (struct err){ 0 };
        take_far_rows(&source, i, &err);
        n_errors += err.code != ERR_NONE;
    }
    // The kernel may be in another image than the first one that is asked: there are two pieces.
    assert_true(n_errors >= n - 1 - 2);
    free((void *)(uintptr_t)source.data);
}

// The trial's sums do not come, as this driver computes nothing: GPUs that say that they reach each other's
// memory, and two names of one that does not.
static void ranks_exchange_through_the_host_where_the_trial_fails(void **state)
{
    static const char *const names[] = { "cuda:0,cuda:1", "cuda:0,cuda:0" };
    (void)state;

    if (cuda_n_images == 0)
        skip();
    for (uint32_t i = 0; i < 2; i++) {
        struct ingot_engine_options o = found_options(MODEL);
        memset(&fake, 0, sizeof fake);
        fake.memory_bytes = 1ull << 32;
        fake.n_devices = 2;
        fake.has_peers = true;
        driver_replace(&driver);
        o.device = names[i];
        o.n_tensor_parallel = 2;
        struct ingot_engine *engine = open_found(&o);
        const struct stage *first = &engine->inner.loaded->stages[0];
        assert_int_equal(first->n_others, 1);
        assert_null(first->exchange);
        assert_null(first->others[0].exchange);
        assert_false(group_goes_ahead(engine->inner.loaded->group));
        assert_int_equal(group_inbox_bytes(engine->inner.loaded->group), 0);
        ingot_engine_close(engine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_processor_takes_what_does_not_fit),
        cmocka_unit_test(experts_leave_a_device_that_is_too_small),
        cmocka_unit_test(other_gpus_are_found),
        cmocka_unit_test(links_are_part_of_a_prediction),
        cmocka_unit_test(a_gpu_takes_what_was_predicted),
        cmocka_unit_test(a_table_of_inputs_leaves_a_gpu_that_is_too_small),
        cmocka_unit_test(a_table_of_inputs_stays_where_fewer_rows_are_enough),
        cmocka_unit_test(a_table_of_inputs_stays_where_nothing_can_be_pinned),
        cmocka_unit_test(far_rows_with_each_call_failing),
        cmocka_unit_test(ranks_exchange_through_the_host_where_the_trial_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
