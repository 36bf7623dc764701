// test_tensor_parallel_cuda.c - engines of two GPUs with a part of every layer each, which exchange on the
// devices: the bits of the exchange through the host, the text of one GPU, steps submitted ahead, a GPU that
// fails. Skipped with fewer than two.
#include <stdlib.h>
#include <unistd.h>
#include "base/clock.h"
#include "broken_device.h"
#include "device/cuda/cuda.h"
#include "device/fuse.h"
#include "engine/api.h"
#include "engine/group/direct.h"
#include "model_tools/random/random_model.h"
#include "open_engine.h"

enum { N_PROMPT = 141, N_NEW = 600, N_SEQUENCES = 3 };

static bool two_gpus(void)
{
    struct err err = { 0 };
    uint32_t n = cuda_n_devices(&err);

    if (n < 2)
        print_message("skipped: %s\n", n ? "one GPU" : err.message);
    return n >= 2;
}

static struct ingot_engine_options options_of(uint32_t n_ranks)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.device = n_ranks ? "cuda:0,cuda:1" : "cuda:0";
    o.n_tensor_parallel = n_ranks;
    o.n_context = 1024;
    o.n_sequences = N_SEQUENCES;
    o.n_batch = 100;
    o.speculate = INGOT_SPECULATE_OFF;
    return o;
}

struct said_by_gpus {
    uint32_t tokens[N_NEW], n;
    float *logits; // of all outputs, or NULL
    uint32_t n_logits, n_vocab;
};

static bool keep(void *arg, const struct ingot_event *e)
{
    struct said_by_gpus *to = arg;

    if (e->token != UINT32_MAX && to->n < N_NEW)
        to->tokens[to->n++] = e->token;
    if (e->logits && to->logits && to->n_logits < N_PROMPT + N_NEW)
        memcpy(to->logits + (size_t)to->n_logits++ * to->n_vocab, e->logits, to->n_vocab * sizeof(float));
    return true;
}

static struct ingot_request_options question(uint32_t which, uint32_t n_new)
{
    static uint32_t prompts[N_SEQUENCES][N_PROMPT];
    struct ingot_request_options r = greedy_request(prompts[which], N_PROMPT, n_new);

    for (uint32_t i = 0; i < N_PROMPT; i++)
        prompts[which][i] = (i * i * 31 + which * 77 + 9) % 500;
    return r;
}

static void ask(struct ingot_engine *engine, uint32_t which, uint32_t n_new, struct said_by_gpus *said)
{
    struct ingot_request_options r = question(which, n_new);
    struct ingot_error error;

    r.n_logits = said->logits ? N_PROMPT + n_new : 0;
    if (!ingot_generate(engine, &r, keep, said, NULL, &error))
        fail_msg("%s", error.message);
    assert_int_equal(said->n, n_new);
}

static struct ingot_engine *open_with(struct ingot_engine_options o, uint32_t most_rows, bool exact,
                                      bool invariant)
{

    o.exact = exact;
    o.invariant = invariant;
    direct_most_rows = most_rows;
    struct ingot_engine *engine = open_or_fail(&o);
    direct_most_rows = UINT32_MAX;
    return engine;
}

static struct ingot_engine *open_ranks(uint32_t most_rows, bool exact, bool invariant)
{
    return open_with(options_of(2), most_rows, exact, invariant);
}

// All-reduces that write the next product's packed rows, in tapes of up to 8 rows.
static uint32_t count_packed(const struct ingot_engine *engine)
{
    const struct tape *t = engine->inner.loaded->stages[0].buckets[1].tape;
    uint32_t n = 0;

    for (uint32_t i = 0; t && i < tape_n_commands(t); i++)
        n += tape_command(t, i)->op == TAPE_ALL_REDUCE && fuse_packed(tape_command(t, i), true);
    return n;
}

static struct said_by_gpus logits_of(uint32_t most_rows, bool exact, uint32_t n_batch, const char *model)
{
    struct ingot_engine_options o = options_of(2);
    o.n_batch = n_batch;
    o.model = model;
    struct ingot_engine *engine = open_with(o, most_rows, exact, false);
    struct ingot_engine_info info;

    ingot_engine_info(engine, &info);
    struct said_by_gpus said = { .n_vocab = info.n_vocab,
                                 .logits = calloc((size_t)(N_PROMPT + 40) * info.n_vocab, sizeof(float)) };
    ask(engine, 1, 40, &said);
    assert_int_equal(count_packed(engine) > 0, model && most_rows > 0 && !exact);
    ingot_engine_close(engine);
    return said;
}

// Zeros may differ in their sign. Prompts' rows through the host, decoding on the devices: 8.
static void check_bits(bool exact, uint32_t n_batch, const char *model)
{
    struct said_by_gpus host = logits_of(0, exact, n_batch, model);

    for (uint32_t most = 8; most; most = most == 8 ? UINT32_MAX : 0) {
        struct said_by_gpus devices = logits_of(most, exact, n_batch, model);
        assert_int_equal(devices.n_logits, host.n_logits);
        assert_true(host.n_logits >= N_PROMPT);
        for (size_t i = 0; i < (size_t)host.n_logits * host.n_vocab; i++)
            if (devices.logits[i] != host.logits[i])
                fail_msg("%s, exact %d, batch %u, up to %u rows: logit %zu is %a, want %a",
                         model ? model : "shipped", exact, n_batch, most, i, (double)devices.logits[i],
                         (double)host.logits[i]);
        free(devices.logits);
    }
    free(host.logits);
}

static void the_bits_are_those_of_the_exchange_through_the_host(void **state)
{
    (void)state;
    if (!two_gpus())
        skip();
    for (int k = 0; k < 4; k++)
        check_bits(k % 2, k < 2 ? 100 : 7, NULL);
}

// Of 2,048 columns: sums of up to 8 rows are packed for the product behind them where they are added up.
static void packed_sums_have_the_bits_of_a_launch_that_packs(void **state)
{
    char path[] = "/tmp/ingot-wide-XXXXXX";
    struct err err = { 0 };
    (void)state;

    if (!two_gpus())
        skip();
    close(mkstemp(path));
    struct random_model_options made = { .shape = "toy-wide", .type = "Q4_0", .output = path, .seed = 5 };
    assert_ok(random_model_file(&made, &err), &err);
    check_bits(false, 7, path);
    check_bits(false, 100, path);
    unlink(path);
}

static void the_text_is_one_gpu_s(void **state)
{
    (void)state;
    if (!two_gpus())
        skip();
    struct ingot_engine_options o = options_of(0);
    o.exact = true;
    struct ingot_engine *one = open_or_fail(&o), *many = open_ranks(UINT32_MAX, true, false);
    for (uint32_t i = 0; i < N_SEQUENCES; i++) {
        struct said_by_gpus a = { .n = 0 }, b = { .n = 0 };
        ask(one, i, 60, &a);
        ask(many, i, 60, &b);
        assert_memory_equal(a.tokens, b.tokens, 60 * sizeof *a.tokens);
    }
    ingot_engine_close(one);
    ingot_engine_close(many);
}

// Steps are submitted before the tokens of the one before are known: all ranks read these from a history of
// their own.
static void many_steps_run_ahead_side_by_side(void **state)
{
    (void)state;
    if (!two_gpus())
        skip();
    struct ingot_engine *engine = open_ranks(UINT32_MAX, false, true);
    struct ingot_request *requests[N_SEQUENCES];
    struct said_by_gpus alone[N_SEQUENCES] = { { .n = 0 } }, together[N_SEQUENCES] = { { .n = 0 } };
    struct ingot_error error;
    bool busy = true, ahead = false;
    for (uint32_t i = 0; i < N_SEQUENCES; i++)
        ask(engine, i, N_NEW, &alone[i]);
    for (uint32_t i = 0; i < N_SEQUENCES; i++) {
        struct ingot_request_options r = question(i, N_NEW);
        assert_non_null(requests[i] = ingot_submit(engine, &r, &error));
    }
    while (busy) {
        if (!ingot_step(engine, &busy, &error))
            fail_msg("%s", error.message);
        ahead |= engine->inner.is_ahead;
        for (uint32_t i = 0; i < N_SEQUENCES; i++)
            for (struct ingot_event e; ingot_poll(requests[i], &e);)
                keep(&together[i], &e);
    }
    assert_true(ahead);
    for (uint32_t i = 0; i < N_SEQUENCES; i++) {
        assert_int_equal(together[i].n, N_NEW);
        assert_memory_equal(alone[i].tokens, together[i].tokens, sizeof alone[i].tokens);
        ingot_request_free(requests[i]);
    }
    ingot_engine_close(engine);
}

// One submission a rank and step, and nobody waits for all of a device.
static void a_step_is_one_submission_of_each_rank(void **state)
{
    (void)state;
    if (!two_gpus())
        skip();
    struct ingot_engine *engine = open_ranks(UINT32_MAX, false, false);
    const struct devices *devices = &engine->inner.loaded->devices;
    struct device_counters before[2], after[2];
    struct said_by_gpus warm = { .n = 0 }, said = { .n = 0 };
    ask(engine, 0, 5, &warm);
    for (uint32_t i = 0; i < 2; i++)
        before[i] = devices->at[i]->counters;
    ask(engine, 2, 101, &said);
    for (uint32_t i = 0; i < 2; i++) {
        after[i] = devices->at[i]->counters;
        uint64_t plays = after[i].plays - before[i].plays;
        assert_in_range(plays, 101, 105); // and the prompt's chunks
        assert_int_equal(after[i].submissions - before[i].submissions, plays);
    }
    assert_int_equal(after[1].waits, before[1].waits);
    assert_int_equal(after[1].read_bytes, before[1].read_bytes);
    assert_in_range(after[0].read_bytes - before[0].read_bytes, 4 * 101, 4 * 103); // a token is 4 bytes
    ingot_engine_close(engine);
}

// ---- errors

// The other rank, which began, gives up, and the request ends.
static void a_gpu_that_fails_ends_the_step(void **state)
{
    (void)state;
    if (!two_gpus())
        skip();
    for (uint32_t i = 0; i < 4; i++) {
        struct ingot_engine *engine = open_ranks(UINT32_MAX, false, false);
        struct device *d = engine->inner.loaded->devices.at[i % 2];
        struct ingot_error error = { 0 };
        struct ingot_request_options r = question(0, 40);
        struct said_by_gpus said = { .n = 0 };
        uint64_t begun = clock_ns();
        device_break(d, i * i);
        assert_false(ingot_generate(engine, &r, keep, &said, NULL, &error));
        assert_int_equal(error.code, INGOT_DEVICE);
        assert_non_null(strstr(error.message, "it is broken"));
        device_mend(d);
        ingot_engine_close(engine);
        assert_true(clock_ns() - begun < 20000000000u);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_are_those_of_the_exchange_through_the_host),
        cmocka_unit_test(packed_sums_have_the_bits_of_a_launch_that_packs),
        cmocka_unit_test(the_text_is_one_gpu_s),
        cmocka_unit_test(many_steps_run_ahead_side_by_side),
        cmocka_unit_test(a_step_is_one_submission_of_each_rank),
        cmocka_unit_test(a_gpu_that_fails_ends_the_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
