// test_from_file.c - a model larger than memory: its weights stay in the file, and are asked for ahead.
#include "open_engine.h"
#include <unistd.h>
#include "engine/api.h"
#include "engine/stage/place.h"
#include "model_tools/model_info.h"
#include "model_tools/random/random_model.h"

static uint64_t room;

static void tell_room(struct device *d, struct device_info *info)
{
    (void)d;
    *info = (struct device_info){ .memory_bytes = room, .free_bytes = room };
}

// Whether there is a way, with so much room; *in_file: it is to leave the weights in the file.
static bool fits(uint64_t bytes, bool can_use_file, bool *in_file)
{
    static const struct device_ops ops = { .info = tell_room };
    const struct place_memory need = { .weights = 1000, .pages = 200, .scratch = 30, .copied = 100 };
    struct device d = { .ops = &ops, .name = "cpu", .can_use_file = can_use_file };
    struct err err = { 0 };

    room = bytes;
    bool ok = place_check(&need, &d, 0, &err);
    assert_int_equal(err.code, ok ? ERR_NONE : ERR_MEMORY);
    *in_file = d.uses_file;
    return ok;
}

static void weights_stay_in_the_file_where_nothing_else_fits(void **state)
{
    bool in_file;
    (void)state;

    assert_true(fits(1230, true, &in_file) && !in_file);
    assert_true(fits(1229, true, &in_file) && in_file);
    assert_true(fits(330, true, &in_file) && in_file); // what must be copied, pages and scratch
    assert_false(fits(329, true, &in_file));
    assert_false(fits(1229, false, &in_file)); // a GPU
}

static struct ingot_engine *open_engine(const char *model, bool from_file)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error = { 0 };

    o.device = "cpu";
    o.model = model;
    o.n_context = 128;
    o.no_repack = from_file;
    o.no_prefix_cache = true;
    o.speculate = INGOT_SPECULATE_OFF; // steps are counted
    struct ingot_engine *engine = ingot_engine_open(&o, &error);
    if (!engine)
        fail_msg("%s", error.message);
    engine->inner.loaded->devices.at[0]->uses_file = from_file;
    return engine;
}

enum { N_TOKENS = 6 };

static bool keep(void *arg, const struct ingot_event *event)
{
    uint32_t **to = arg;

    if (event->token != UINT32_MAX)
        *(*to)++ = event->token;
    return true;
}

// Returns the bytes that were asked for ahead of each step.
static uint64_t answer(struct ingot_engine *engine, uint32_t tokens[N_TOKENS])
{
    static const uint32_t prompt[] = { 5 };
    struct device_counters *c = &engine->inner.loaded->devices.at[0]->counters;
    struct ingot_request_options r = greedy_request(prompt, 1, N_TOKENS);
    struct ingot_error error = { 0 };
    uint32_t *to = tokens;

    if (!ingot_generate(engine, &r, keep, &to, NULL, &error))
        fail_msg("%s", error.message);
    assert_ptr_equal(to, tokens + N_TOKENS);
    assert_int_equal(c->ahead_bytes % N_TOKENS, 0);
    return c->ahead_bytes / N_TOKENS;
}

// The same tokens, for as many bytes of the file as a token reads.
static void check_tokens(const char *model, uint64_t least, uint64_t most)
{
    uint32_t want[N_TOKENS], got[N_TOKENS];
    struct ingot_engine *whole = open_engine(model, false), *from_file = open_engine(model, true);

    assert_int_equal(answer(whole, want), 0);
    assert_in_range(answer(from_file, got), least, most);
    assert_memory_equal(want, got, sizeof want);
    ingot_engine_close(whole);
    ingot_engine_close(from_file);
}

// What `ingot inspect` counts: all matrices once, of experts the chosen ones, of the embedding a row.
static uint64_t bytes_of_token(const char *model)
{
    struct model_info info;
    struct err err = { 0 };

    assert_ok(model_info_open(&info, model, 128, &err), &err);
    assert_true(info.known);
    uint64_t bytes = info.read_bytes;
    model_info_close(&info);
    return bytes;
}

static void check_bytes(const char *model)
{
    uint64_t bytes = bytes_of_token(model);

    check_tokens(model, bytes * 97 / 100, bytes * 103 / 100); // vectors are fp32 copies
}

static void a_dense_model_is_read_once_a_token(void **state)
{
    (void)state;
    check_bytes(SOURCE_DIR "/models/ingot-7m-q8_0.gguf");
}

static void of_experts_the_chosen_are_read(void **state)
{
    static const char *const shapes[] = { "toy-qwen3moe",   "toy-qwen2moe",  "toy-mixtral", "toy-olmoe",
                                          "toy-granitemoe", "toy-gpt-oss",   "toy-glm4moe", "toy-deepseek2",
                                          "toy-glm47",      "toy-qwen35moe", "toy-lfm2moe" };
    (void)state;

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char path[] = "/tmp/ingot-from-file-XXXXXX";
        struct random_model_options o = { .shape = shapes[i], .type = "Q4_0", .output = path };
        struct err err = { 0 };
        close(mkstemp(path));
        assert_ok(random_model_file(&o, &err), &err);
        print_message("%s\n", shapes[i]);
        check_bytes(path);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_stay_in_the_file_where_nothing_else_fits),
        cmocka_unit_test(a_dense_model_is_read_once_a_token),
        cmocka_unit_test(of_experts_the_chosen_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
