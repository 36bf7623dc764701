// test_metal_model.c - whole models on the Metal device: reference logits, greedy text, every command against
// the plain loops, the counters of a step, and faults in the middle of answers. On the emulator, also with
// kernels compiled -ffast-math and in random schedules.
#include "engine/api.h"
#include "engine/api/verify.h"
#include "model_tools/random/random_model.h"
#include "metal_emu.h"
#include "models/golden.h"
#include "models/shipped_eyes.h"
#include <unistd.h>

enum { FORWARD, REVERSE, RANDOM }; // schedules of threads and threadgroups

#ifdef __SANITIZE_ADDRESS__ // see emu_modes.h
enum { ONE_MODE = true };
#else
enum { ONE_MODE = false };
#endif

static void emulator_needed(void)
{
    if (!emu_get("page"))
        skip();
}

static void run_kernels(bool fast, int schedule)
{
    emu_set("fast", fast);
    emu_set("schedule", schedule);
    emu_set("seed", 1);
}

static void the_logits_are_the_reference_s(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_VARIANTS; i++) {
        run_kernels(false, FORWARD);
        check_golden(&(struct golden_run){ golden_variants[i], "/model.gguf", "metal", 512, true });
        run_kernels(true, RANDOM);
        check_golden(&(struct golden_run){ golden_variants[i], "", "metal", 9, false });
    }
    run_kernels(false, REVERSE);
    check_golden(&(struct golden_run){ "qwen3", "/model.gguf", "metal", 1, true });
    check_golden(&(struct golden_run){ "llama3", "/model.gguf", "metal", 7, true });
    for (size_t i = 0; i < N_GOLDEN_TRELLIS; i++) { // from codes
        run_kernels(false, FORWARD);
        check_golden_within(&(struct golden_run){ golden_trellis[i], "", "metal", 512, true }, NULL,
                            golden_trellis_gate(golden_trellis[i]));
        run_kernels(true, RANDOM);
        check_golden(&(struct golden_run){ golden_trellis[i], "", "metal", 9, false });
        check_golden(&(struct golden_run){ golden_trellis[i], "", "metal", 1, false });
    }
}

static void the_mixtures_logits_are_the_reference_s(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_GOLDEN_MIXTURES; i++) {
        run_kernels(false, FORWARD);
        check_golden(&(struct golden_run){ golden_mixtures[i], "/model.gguf", "metal", 512, true });
        check_golden(&(struct golden_run){ golden_mixtures[i], "", "metal", 1, true });
        run_kernels(true, RANDOM);
        check_golden(&(struct golden_run){ golden_mixtures[i], "", "metal", 9, false });
        check_golden(&(struct golden_run){ golden_mixtures[i], "/model.gguf", "metal", 512, false });
    }
}

// The checker sees every access: a barrier that the tape lacks would be a race here.
static void the_checker_finds_nothing(void **state)
{
    (void)state;
    if (ONE_MODE)
        skip();
    emu_set("check", 1);
    run_kernels(false, RANDOM);
    check_golden(&(struct golden_run){ "qwen3", "/model.gguf", "metal", 9, false });
    check_golden(&(struct golden_run){ "qwen2", "", "metal", 512, false });
    check_golden(&(struct golden_run){ "qwen2moe", "", "metal", 9, false });
    check_golden(&(struct golden_run){ "gptoss", "", "metal", 512, false });
    check_golden(&(struct golden_run){ "glm47-flash", "", "metal", 9, false });
    emu_set("check", 0);
}

struct ids {
    uint32_t at[64], n;
};

static bool collect_id(void *arg, const struct ingot_event *event)
{
    struct ids *ids = arg;
    if (event->token != UINT32_MAX && ids->n < 64)
        ids->at[ids->n++] = event->token;
    return true;
}

static struct ingot_engine *open_with_context(const char *device, const char *model, uint32_t n_context)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.device = device;
    o.model = model;
    o.n_context = n_context;
    o.speculate = INGOT_SPECULATE_OFF; // by measured times, and steps are counted here
    o.exact = !strcmp(device, "cpu");  // activations in fp32, as on Metal
    return open_or_fail(&o);
}
static struct ingot_engine *open_engine(const char *device, const char *model)
{
    return open_with_context(device, model, 256);
}

static void answer(struct ingot_engine *engine, const char *prompt, uint32_t n, struct ids *ids)
{
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_message message = { .role = "user", .content = prompt };
    struct ingot_error error = { 0 };

    r.sampling.temperature = 0;
    r.max_tokens = n;
    r.messages = &message;
    r.n_messages = 1;
    ids->n = 0;
    if (!ingot_generate(engine, &r, collect_id, ids, NULL, &error))
        fail_msg("%s", error.message);
}

static void greedy_text_is_the_cpu_s(void **state)
{
    (void)state;
    static const char *const prompts[] = { "Tell me a short story about a fox.", "What is 12 + 30?",
                                           "Who are you?" };
    struct ingot_engine *cpu = open_engine("cpu", NULL);

    for (int fast = 0; fast < (ONE_MODE ? 1 : 2); fast++) {
        run_kernels(fast, fast ? RANDOM : FORWARD);
        struct ingot_engine *metal = open_engine("metal", NULL);
        for (size_t i = 0; i < sizeof prompts / sizeof *prompts; i++) {
            struct ids ours, theirs;
            answer(metal, prompts[i], 32, &ours);
            answer(cpu, prompts[i], 32, &theirs);
            assert_int_equal(ours.n, theirs.n);
            assert_memory_equal(ours.at, theirs.at, ours.n * 4);
        }
        ingot_engine_close(metal);
    }
    ingot_engine_close(cpu);
}

static void the_shipped_eyes_answer(void **state)
{
    (void)state;
    run_kernels(true, RANDOM);
    struct ingot_engine *engine = eyes_open(INGOT_BUILTIN_EYES, "metal");
    eyes_check(engine, false, 9);
    eyes_check(engine, true, 3);
    ingot_engine_close(engine);
}

static bool report(void *arg, const struct verify_finding *f)
{
    (void)arg;
    if (!(f->error <= f->limit))
        print_message("command %u, %s %s: error %g, limit %g\n", f->command, f->label, f->name, f->error,
                      f->limit);
    return true;
}

static void every_command_is_the_plain_loop_s(void **state)
{
    (void)state;
    static const struct {
        uint32_t rows;
        bool fast;
        int schedule;
    } cases[] = { { 1, false, REVERSE }, { 13, true, RANDOM }, { 70, false, RANDOM } };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ingot_engine_options o = ingot_engine_defaults();
        struct err err = { 0 };
        struct verification v = { .n_rows = cases[i].rows, .on_command = report, .n_bad = 1 };
        o.device = "metal";
        run_kernels(cases[i].fast, cases[i].schedule);
        assert_ok(engine_verify(&o, &v, &err), &err);
        assert_int_equal(v.n_bad, 0);
    }
}

static void submit_tokens(struct ingot_engine *engine, uint32_t n_prompt, uint32_t n)
{
    static uint32_t n_prompts; // no two begin alike: nothing of another prompt's pages can be used
    uint32_t prompt[64], start = ++n_prompts;
    struct ingot_request_options r = greedy_request(prompt, n_prompt, n);
    struct ingot_error error = { 0 };

    for (uint32_t i = 0; i < n_prompt; i++)
        prompt[i] = (start + i * 37) % 1000;
    if (!ingot_generate(engine, &r, NULL, NULL, NULL, &error))
        fail_msg("%s", error.message);
}

// In the shape of SmolLM-135M, with 16 of its 30 layers, which are alike. Of 1,024 tokens attention may
// have two parts, which the product behind it adds up.
static void a_step_costs_what_it_should(void **state)
{
    (void)state;
    char path[] = "/tmp/ingot-smollm-XXXXXX";
    enum { LAYERS = 16, OUTSIDE = 7 }; // OUTSIDE: angles, embed; select, norm, head, and two for the token
    struct random_model_options shape = {
        .shape = "smollm-135m", .type = "Q4_0", .output = path, .n_layers = LAYERS
    };
    struct err err = { 0 };

    run_kernels(false, FORWARD);
    close(mkstemp(path));
    assert_ok(random_model_file(&shape, &err), &err);
    struct ingot_engine *engine = open_with_context("metal", path, 1024);
    struct device_counters *c = &engine->inner.loaded->devices.at[0]->counters;
    submit_tokens(engine, 36, 2); // warm-up: one chunk, one token; all chunks are of 33 to 64 rows, one tape
    struct device_counters before = *c;
    submit_tokens(engine, 52, 3);
    uint64_t written = c->write_bytes - before.write_bytes;
    before = *c;
    submit_tokens(engine, 36, 3);
    // A page's number; nothing else grows with the context.
    assert_int_equal(written - (c->write_bytes - before.write_bytes), 4);
    uint32_t steps = (uint32_t)(c->plays - before.plays);
    assert_int_equal(steps, 3); // the prompt in one, then a token each
    assert_int_equal(c->waits - before.waits, steps);
    assert_int_equal(c->submissions - before.submissions, 4 * steps);
    assert_int_equal(c->dispatches - before.dispatches, (5 * LAYERS + OUTSIDE) * steps);
    // the first of a command buffer needs none, nor does the embedding beside the angles
    assert_int_equal(c->barriers - before.barriers, (5 * LAYERS + OUTSIDE - 1 - 4) * steps);
    assert_int_equal(c->read_bytes - before.read_bytes, 4 * steps);
    assert_int_equal(c->buffers, before.buffers);
    assert_int_equal(c->pipelines, before.pipelines);
    print_message("%u steps: %llu dispatches, %llu barriers, %llu commits, %llu waits\n", steps,
                  (unsigned long long)(c->dispatches - before.dispatches),
                  (unsigned long long)(c->barriers - before.barriers),
                  (unsigned long long)(c->submissions - before.submissions),
                  (unsigned long long)(c->waits - before.waits));
    ingot_engine_close(engine);
    unlink(path);
}

// --trace names the kernels by which the tapes of so many rows were sealed.
static void expect_kernels(const struct ingot_engine *engine, const char *tape, const char *command,
                           const char *kernels)
{
    char *text = NULL, line[128];
    size_t n_text = 0;
    FILE *to = open_memstream(&text, &n_text);

    engine_trace(engine, to);
    fclose(to);
    char *at = strstr(text, tape), *row = at ? strstr(at, command) : NULL,
         *end = row ? strchr(row, '\n') : NULL;
    assert_non_null(end);
    *end = '\0';
    snprintf(line, sizeof line, "bytes, by %s", kernels);
    if (!strstr(row, line))
        fail_msg("%s %s: want %s", tape, row, line);
    free(text);
}

// In the depth of GLM-4.7-Flash: latent attention, experts with a shared one, 47 layers. Four command buffers
// a step; after the first steps no buffer and no pipeline; the token's four bytes are all that is read, and
// step n + 1 is encoded before step n's are.
static void a_step_of_a_deep_mixture_costs_what_it_should(void **state)
{
    (void)state;
    char path[] = "/tmp/ingot-glm47-XXXXXX";
    struct random_model_options shape = {
        .shape = "toy-glm47", .type = "Q4_0", .output = path, .n_layers = 47
    };
    struct err err = { 0 };
    // norm, kv_a, store, q_a, norm, q_b, project and rotate, attend and merge, project, o; logits, choice,
    // gate and up beside the shared expert's, down. The first layer is dense: two instead of the last five.
    enum { LAYERS = 47, OF_LAYER = 17, OF_DENSE = 14, OUTSIDE = 7 };

    run_kernels(false, FORWARD);
    close(mkstemp(path));
    assert_ok(random_model_file(&shape, &err), &err);
    struct ingot_engine *engine = open_engine("metal", path);
    struct device_counters *c = &engine->inner.loaded->devices.at[0]->counters;
    submit_tokens(engine, 3, 2); // warm-up: a few rows, then one; and as many steps ahead as are measured
    submit_tokens(engine, 1, 4);
    struct device_counters before = *c;
    submit_tokens(engine, 1, 4); // four steps of one row
    uint32_t steps = (uint32_t)(c->plays - before.plays);
    assert_int_equal(steps, 4);
    assert_int_equal(c->submissions - before.submissions, 4 * steps);
    assert_int_equal(c->waits - before.waits, steps);
    assert_int_equal(c->read_bytes - before.read_bytes, 4 * steps);
    assert_int_equal(c->buffers, before.buffers);
    assert_int_equal(c->pipelines, before.pipelines);
    print_message("%llu dispatches a step\n",
                  (unsigned long long)(c->dispatches - before.dispatches) / steps);
    assert_int_equal(c->dispatches - before.dispatches,
                     (OF_LAYER * (LAYERS - 1) + OF_DENSE + OUTSIDE) * steps);
    expect_kernels(engine, "up to 1 rows", "layer1.experts_up", "experts_up_one + experts_up_one");
    expect_kernels(engine, "up to 8 rows", "layer1.experts_up",
                   "experts_tiles + experts_up_few + experts_up_few");
    ingot_engine_close(engine);
    unlink(path);
}

// The GPU's steps have more rows than a processor's, and the pages of a window grow with them.
static void windows_are_as_large_on_both_sides(void **state)
{
    (void)state;
    char path[64];
    struct random_model_options shape = { .shape = "toy-gemma4", .type = "Q8_0", .output = path };
    struct ingot_engine_options o = ingot_engine_defaults();
    struct err err = { 0 };
    struct verification v = { .n_rows = 5, .on_command = report, .n_bad = 1 };

    snprintf(path, sizeof path, "/tmp/ingot-metal-%d.gguf", (int)getpid());
    assert_ok(random_model_file(&shape, &err), &err);
    o.device = "metal";
    o.model = path;
    o.n_batch = 0;
    run_kernels(true, RANDOM);
    assert_ok(engine_verify(&o, &v, &err), &err);
    unlink(path);
    assert_int_equal(v.n_bad, 0);
}

// Of a prompt of 40 rows one wants logits: the other rows of their buffer stay as they are.
static void the_head_computes_the_rows_that_asked(void **state)
{
    (void)state;
    struct err err = { 0 };

    run_kernels(false, FORWARD);
    struct ingot_engine *engine = open_engine("metal", NULL);
    struct engine *e = &engine->inner;
    struct buffer *logits = &e->loaded->stages[e->loaded->n_stages - 1].logits;
    uint64_t row = (uint64_t)e->loaded->model.config.n_vocab * sizeof(float),
             n_rows = e->loaded->max_outputs < 4 ? e->loaded->max_outputs : 4;
    unsigned char *before = malloc(n_rows * row), *after = malloc(n_rows * row);
    memset(before, 0x5a, n_rows * row);
    assert_ok(buffer_write(logits, 0, before, n_rows * row, &err), &err);
    submit_tokens(engine, 40, 1);
    assert_ok(buffer_read(logits, 0, after, n_rows * row, &err), &err);
    assert_memory_not_equal(before, after, row);
    assert_true(n_rows > 1);
    assert_memory_equal(before + row, after + row, (n_rows - 1) * row);
    free(before);
    free(after);
    ingot_engine_close(engine);
}

// A pipeline that needs many registers has fewer threads than 1,024 on a real GPU; the kernels' counts leave
// all of them what they ask for.
static void no_kernel_asks_for_more_than_512_threads(void **state)
{
    (void)state;
    emulator_needed();
    run_kernels(false, FORWARD);
    emu_set("max_threads", 512);
    struct ingot_engine *engine = open_engine("metal", NULL);
    submit_tokens(engine, 40, 3);
    ingot_engine_close(engine);
    emu_set("max_threads", 1024);
}

static void a_lost_gpu_fails_its_requests(void **state)
{
    (void)state;
    emulator_needed();
    struct ingot_request_options r = ingot_request_defaults();
    struct ingot_message message = { .role = "user", .content = "Hello" };
    struct ingot_error error = { 0 };
    struct ids ids = { 0 };

    run_kernels(false, FORWARD);
    struct ingot_engine *engine = open_engine("metal", NULL);
    r.messages = &message;
    r.n_messages = 1;
    r.max_tokens = 20;
    r.ignore_eos = true;
    emu_set("fail_command_buffer", 9);
    for (int i = 0; i < 2; i++) { // the one that runs, and the next
        assert_false(ingot_generate(engine, &r, collect_id, &ids, NULL, &error));
        assert_int_equal(error.code, INGOT_DEVICE);
        assert_non_null(strstr(error.message, "the GPU gave up"));
    }
    emu_set("fail_command_buffer", 0);
    ingot_engine_close(engine);
}

static void expect_too_large(int memory_mb, const char *advice)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error = { 0 };

    o.device = "metal";
    emu_set("memory_mb", memory_mb);
    assert_null(ingot_engine_open(&o, &error));
    emu_set("memory_mb", 16384);
    assert_int_equal(error.code, INGOT_MEMORY);
    assert_non_null(strstr(error.message, advice));
}

static void a_model_that_is_too_large_is_refused(void **state)
{
    (void)state;
    emulator_needed();
    expect_too_large(20, "what fits: ");        // it needs 21
    expect_too_large(8, "use a smaller model"); // less than its weights
    expect_too_large(8, "'ingot doctor' says how the system gives its GPU more");
}

static void expect_rows(const char *device, const char *stages, uint32_t n_rows)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_memory predicted;
    struct ingot_engine_info info;
    struct ingot_error error = { 0 };

    o.device = device;
    o.stages = stages;
    assert_ok(ingot_engine_estimate(&o, &predicted, &error), &error);
    struct ingot_engine *engine = open_or_fail(&o);
    ingot_engine_info(engine, &info);
    assert_int_equal(info.n_batch, n_rows);
    assert_in_range(predicted.scratch_bytes, info.scratch_bytes, info.scratch_bytes * 5 / 4);
    ingot_engine_close(engine);
}

// The shipped model takes 21 MB with steps of 512 rows, and 30 in two stages. Rows that are asked for do not
// give way.
static void steps_have_fewer_rows_where_memory_is_short(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error = { 0 };

    (void)state;
    emulator_needed();
    expect_rows("metal", NULL, 2048);
    emu_set("memory_mb", 26);
    expect_rows("metal", NULL, 512);
    emu_set("memory_mb", 36);
    expect_rows("metal,metal", "4", 512);
    o.device = "metal";
    o.n_batch = 2048;
    emu_set("memory_mb", 26);
    assert_null(ingot_engine_open(&o, &error));
    emu_set("memory_mb", 16384);
    assert_int_equal(error.code, INGOT_MEMORY);
}

static int keep_to_the_build_folder(void **state)
{
    (void)state;
    return setenv("XDG_STATE_HOME", BINARY_DIR "/metal", 1); // pipelines are archived there
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_logits_are_the_reference_s),
        cmocka_unit_test(the_mixtures_logits_are_the_reference_s),
        cmocka_unit_test(the_checker_finds_nothing),
        cmocka_unit_test(the_shipped_eyes_answer),
        cmocka_unit_test(greedy_text_is_the_cpu_s),
        cmocka_unit_test(every_command_is_the_plain_loop_s),
        cmocka_unit_test(windows_are_as_large_on_both_sides),
        cmocka_unit_test(a_step_costs_what_it_should),
        cmocka_unit_test(a_step_of_a_deep_mixture_costs_what_it_should),
        cmocka_unit_test(the_head_computes_the_rows_that_asked),
        cmocka_unit_test(no_kernel_asks_for_more_than_512_threads),
        cmocka_unit_test(a_lost_gpu_fails_its_requests),
        cmocka_unit_test(a_model_that_is_too_large_is_refused),
        cmocka_unit_test(steps_have_fewer_rows_where_memory_is_short),
    };
    return cmocka_run_group_tests(tests, keep_to_the_build_folder, NULL);
}
