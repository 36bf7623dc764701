// test_nccl.c - ranks that exchange by NCCL, on a fake driver and a fake NCCL: the bits of the host's way, no
// host between the segments of a step, and every failure one line that ends the step on all ranks.
#include <dlfcn.h>
#include <time.h>
#include "engine/api.h"
#include "engine/group/direct.h"
#include "fake_driver.h"
#include "nccl/fake_nccl.h"
#include "ranks_rig.h"

#define FOLDER BINARY_DIR "/fake_nccl/"
enum { N_COLS = 52, MOST_ROWS = 17, N_VOCAB = 101, SLEEP_MS = 400, LINES = 2048 };

static struct fake_nccl *nccl;

static void begin(uint32_t n_devices)
{
    memset(&fake, 0, sizeof fake);
    fake.memory_bytes = 1ull << 32;
    fake.n_devices = (int)n_devices;
    driver_replace(&driver);
    memset(nccl, 0, sizeof *nccl);
}

// ---- the library

static void a_library_that_does_not_do_is_named(void **state)
{
    static const char *const cases[][2] = {
        { "libnccl-that-is-nowhere.so.2", "libnccl-that-is-nowhere.so.2: cannot open" },
        { FOLDER "old/libnccl.so.2", "the installed NCCL is 2.7.8; want 2.14 or later" },
        { FOLDER "short/libnccl.so.2", "the installed NCCL has no ncclSend; want 2.14 or later" },
    };
    struct nccl_library library;
    char name[32];
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = { 0 };
        assert_false(nccl_library_open(&library, cases[i][0], &err));
        assert_int_equal(err.code, ERR_UNSUPPORTED);
        if (!strstr(err.message, cases[i][1]))
            fail_msg("'%s' is not in '%s'", cases[i][1], err.message);
        assert_null(strchr(err.message, '\n'));
    }
    assert_true(nccl_library_open(&library, "libnccl.so.2", NULL));
    nccl_library_name(&library, name, sizeof name);
    assert_string_equal(name, "NCCL 2.27.3");
    assert_string_equal(getenv("NCCL_NVLS_ENABLE"), "0");
    assert_string_equal(getenv("NCCL_ALGO"), "Tree"); // the user's, see main
}

// ---- sums and logits

static void make_ranks(struct ranks_rig *r, uint32_t n, bool by_nccl)
{
    struct err err;

    begin(n);
    *r = (struct ranks_rig){ .n = n, .n_cols = N_COLS, .n_vocab = N_VOCAB, .most_rows = MOST_ROWS };
    assert_ok(ranks_rig_open(r, by_nccl, &err), &err);
}

static void free_ranks(struct ranks_rig *r)
{
    ranks_rig_close(r);
    assert_int_equal(fake.n_live, 0);
    assert_int_equal(nccl->live, 0);
}

// Numbers whose sum depends on the order.
static void fill(struct buffer *b, uint32_t seed)
{
    float *at = b->native;

    for (uint64_t i = 0; i < b->bytes / 4; i++) {
        seed = seed * 1664525 + 1013904223;
        at[i] = (float)(int32_t)seed * (1.0f + (float)(seed & 0xff00));
    }
}

static void exchange_all(struct ranks_rig *r, uint32_t n_rows, uint32_t n_outputs)
{
    for (uint32_t i = 0; i < r->n; i++) {
        fill(&r->stages[i].sums, i * 7 + n_rows);
        fill(&r->stages[i].head_part, i * 11 + n_rows);
    }
    fill(&r->stages[0].logits, 5);
    ranks_rig_exchange(r, n_rows, n_outputs);
}

static void check_all_are_well(const struct ranks_rig *c)
{
    for (uint32_t i = 0; i < c->n; i++)
        assert_ok(c->ok[i] && c->errs[i].code == ERR_NONE, &c->errs[i]);
}

static void bits_are_those_of_the_host_s_memory(void **state)
{
    static const uint32_t rows[] = { 1, 2, 5, MOST_ROWS }, outputs[] = { 1, 0, 3, MOST_ROWS };
    static struct ranks_rig host, own;
    (void)state;

    for (uint32_t n = 2; n <= 4; n++)
        for (uint32_t k = 0; k < 4; k++) {
            float kept[EXCHANGE_RANKS][MOST_ROWS * N_COLS], logits[MOST_ROWS * N_VOCAB];
            make_ranks(&host, n, false);
            exchange_all(&host, rows[k], outputs[k]);
            check_all_are_well(&host);
            for (uint32_t i = 0; i < n; i++)
                memcpy(kept[i], host.stages[i].sums.native, sizeof kept[i]);
            memcpy(logits, host.stages[0].logits.native, sizeof logits);
            free_ranks(&host);
            make_ranks(&own, n, true);
            int sums = nccl->sums, sends = nccl->sends;
            exchange_all(&own, rows[k], outputs[k]);
            check_all_are_well(&own);
            assert_int_equal(nccl->sums - sums, n);
            assert_int_equal(nccl->sends - sends, outputs[k] ? n - 1 : 0);
            for (uint32_t i = 0; i < n; i++)
                assert_memory_equal(kept[i], own.stages[i].sums.native, sizeof kept[i]);
            assert_memory_equal(logits, own.stages[0].logits.native, sizeof logits);
            free_ranks(&own);
        }
}

// The rank whose call fails tells of it, and the others leave without an error.
static void others_leave_a_failed_exchange(void **state)
{
    static struct ranks_rig c;
    (void)state;

    for (int fail = 1; fail <= 9; fail++) { // 4 sums, 3 sends, a group and its first receive
        uint32_t n_errors = 0;
        make_ranks(&c, 4, true);
        nccl->fail = nccl->calls + fail;
        exchange_all(&c, 5, 3);
        for (uint32_t i = 0; i < 4; i++)
            if (c.errs[i].code != ERR_NONE) {
                n_errors++;
                assert_int_equal(c.errs[i].code, ERR_DEVICE);
                assert_non_null(strstr(c.errs[i].message, "by NCCL 2.27.3 failed: unhandled cuda error"));
            }
        assert_int_equal(n_errors, 1);
        assert_int_equal(nccl->live, 0);
        free_ranks(&c);
    }
}

static void opening_fails_at_every_call(void **state)
{
    struct communicator_shape shape = { .n = 4, .part_cols = { 5, 6, 5, 6 }, .max_rows = 3 };
    struct device *d[4];
    int n = 0;
    (void)state;

    begin(4);
    for (int fail = 0; fail <= n; fail++) {
        struct err err = { 0 };
        for (uint32_t i = 0; i < 4; i++)
            assert_non_null(d[i] = cuda_open(i, &cuda_table, &err));
        nccl->calls = 0;
        nccl->fail = fail;
        struct communicator *c = nccl_open(d, &shape, &err);
        n = fail == 0 ? nccl->calls : n;
        assert_true(fail == 0 ? c != NULL : !c && strstr(err.message, "by NCCL 2.27.3 failed"));
        if (c)
            c->ops->close(c);
        for (uint32_t i = 0; i < 4; i++)
            device_close(d[i]);
        assert_int_equal(fake.n_live, 0);
        assert_int_equal(nccl->live, 0);
    }
    assert_true(n > 20);
}

// A rank that does not come: its thread is left to itself, and cleans up when it comes after all.
static void joining_has_an_end(void **state)
{
    struct communicator_shape shape = { .n = 2, .part_cols = { 5, 6 }, .max_rows = 3 };
    struct device *d[2];
    struct err err = { 0 };
    uint32_t usual = nccl_join_ms;
    (void)state;

    begin(2);
    for (uint32_t i = 0; i < 2; i++)
        assert_non_null(d[i] = cuda_open(i, &cuda_table, &err));
    assert_int_equal(usual, 15000);
    nccl_join_ms = 20;
    nccl->stalls = 1;
    assert_null(nccl_open(d, &shape, &err));
    assert_int_equal(err.code, ERR_DEVICE);
    assert_string_equal(err.message, "joining the ranks by NCCL 2.27.3 takes longer than 0.02 s");
    nccl_join_ms = usual;
    nccl->stalls = 0;
    for (uint32_t i = 0; i < 10000 && nccl->aborts < 2; i++)
        nanosleep(&(struct timespec){ 0, 1000000 }, NULL);
    assert_int_equal(nccl->aborts, 2);
    assert_int_equal(nccl->live, 0);
    struct communicator *c = nccl_open(d, &shape, &err); // the next ones are not disturbed
    assert_non_null(c);
    c->ops->close(c);
    for (uint32_t i = 0; i < 2; i++)
        device_close(d[i]);
    assert_int_equal(fake.n_live, 0);
}

// ---- engines

static struct ingot_engine *open_ranks(uint32_t n, const char *device, struct ingot_error *error)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    o.device = device;
    o.n_tensor_parallel = n;
    o.n_context = 256;
    o.n_sequences = 2;
    o.n_batch = 16;
    o.speculate = INGOT_SPECULATE_OFF;
    return ingot_engine_open(&o, error);
}

static struct ingot_engine *open_or_name(uint32_t n, const char *device)
{
    struct ingot_error error = { 0 };
    struct ingot_engine *engine = open_ranks(n, device, &error);

    if (!engine)
        fail_msg("%s", error.message);
    return engine;
}

// A token is read from the first rank, and nothing else is copied to the host.
static void no_host_lies_between_segments(void **state)
{
    struct ingot_result result;
    struct ingot_request_options r = request();
    (void)state;

    begin(2);
    struct ingot_engine *engine = open_or_name(2, "cuda:0,cuda:1");
    const struct engine_loaded *l = engine->inner.loaded;
    assert_non_null(l->devices.communicator);
    assert_string_equal(l->devices.communicator->name, "NCCL 2.27.3");
    assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, NULL)); // the graphs are made
    struct device_counters before[2] = { l->devices.at[0]->counters, l->devices.at[1]->counters };
    int sums = nccl->sums, sends = nccl->sends;
    assert_true(ingot_generate(engine, &r, NULL, NULL, &result, NULL));
    assert_int_equal(result.n_generated, 20);
    assert_int_equal(nccl->sums - sums, 20 * 2 * 2 * l->model.config.n_layers);
    assert_int_equal(nccl->sends - sends, 20);
    for (uint32_t i = 0; i < 2; i++) {
        const struct device_counters *c = &l->devices.at[i]->counters;
        assert_int_equal(c->read_bytes - before[i].read_bytes, i == 0 ? 80 : 0);
        assert_int_equal(c->waits - before[i].waits, 20);
        assert_int_equal(c->buffers - before[i].buffers, 0);
        assert_int_equal(c->pipelines - before[i].pipelines, 0);
    }
    ingot_engine_close(engine);
    assert_int_equal(fake.n_live, 0);
    assert_int_equal(nccl->live, 0);
}

// A communicator takes memory, so that none is opened where GPUs exchange inside their graphs.
static void gpus_that_reach_each_other_have_none(void **state)
{
    (void)state;
    begin(2);
    fake.has_peers = true;
    struct ingot_engine *engine = open_or_name(2, "cuda:0,cuda:1");
    assert_null(engine->inner.loaded->devices.communicator);
    assert_int_equal(nccl->calls, 0);
    ingot_engine_close(engine);
}

static void a_table_says_who_adds_up(void **state)
{
    (void)state;
    assert_int_equal(direct_kind_of(2, 1, false), EXCHANGE_DEVICE);
    assert_int_equal(direct_kind_of(2, 2048, true), EXCHANGE_DEVICE);
    direct_most_rows = 64;
    assert_int_equal(direct_kind_of(2, 64, true), EXCHANGE_DEVICE);
    assert_int_equal(direct_kind_of(2, 65, true), EXCHANGE_COMMUNICATOR);
    assert_int_equal(direct_kind_of(2, 65, false), EXCHANGE_HOST);
    direct_most_rows = UINT32_MAX;
}

static void keep_line(void *arg, int level, const char *tag, const char *message)
{
    (void)level;
    if (strcmp(tag, "group") == 0)
        snprintf((char *)arg + strlen(arg), LINES - strlen(arg), "%s\n", message);
}

// Where it cannot be used, the host's memory is.
static void another_way_is_taken_and_named(void **state)
{
    static const char *const why[] = { "without NCCL: two ranks are on cuda:0; NCCL wants a GPU for each",
                                       "without NCCL: cuda:0: NCCL 2.27.3 computes wrong: 14 where 13 was",
                                       "without NCCL: cuda:0: joining by NCCL 2.27.3 failed: unhandled cuda "
                                       "error: the fake's reason" };
    struct ingot_request_options r = request();
    char lines[LINES] = "";
    (void)state;

    ingot_log_set(INGOT_LOG_INFO, keep_line, lines);
    for (int i = 0; i < 3; i++) {
        begin(2);
        lines[0] = 0;
        nccl->spoils = i == 1;
        nccl->fail = i == 2 ? 3 : 0;
        struct ingot_engine *engine = open_or_name(2, i == 0 ? "cuda:0,cuda:0" : "cuda:0,cuda:1");
        assert_null(engine->inner.loaded->devices.communicator);
        assert_non_null(strstr(lines, why[i]));
        assert_non_null(strstr(lines, "2 ranks exchange through the host"));
        assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, NULL));
        ingot_engine_close(engine);
        assert_int_equal(nccl->live, 0);
    }
    begin(2);
    lines[0] = 0;
    ingot_engine_close(open_or_name(2, "cuda:0,cuda:1"));
    assert_string_equal(lines, "2 ranks exchange by NCCL 2.27.3\n");
    ingot_log_set(INGOT_LOG_WARNING, NULL, NULL);
}

static void check_ends(struct ingot_engine *engine, const char *part)
{
    struct ingot_request_options r = request();
    struct ingot_error error = { 0 };

    assert_false(ingot_generate(engine, &r, NULL, NULL, NULL, &error));
    assert_int_equal(error.code, INGOT_DEVICE);
    if (!strstr(error.message, part))
        fail_msg("'%s' is not in '%s'", part, error.message);
    assert_null(strchr(error.message, '\n'));
    assert_false(ingot_generate(engine, &r, NULL, NULL, NULL, &error)); // and stays so
    ingot_engine_close(engine);
    assert_int_equal(fake.n_live, 0);
    assert_int_equal(nccl->live, 0);
}

static void drop_line(void *arg, int level, const char *tag, const char *message)
{
    (void)arg, (void)level, (void)tag, (void)message;
}

// A call to NCCL, or a launch, fails on one rank while the others are in a sum: all leave, with one error.
static void a_rank_that_fails_ends_the_step(void **state)
{
    (void)state;
    ingot_log_set(INGOT_LOG_ERROR, drop_line, NULL);
    for (int i = 0; i < 8; i++) {
        begin(2);
        struct ingot_engine *engine = open_or_name(2, "cuda");
        if (i % 2)
            fake.fail_launch = fake.launches + 1 + 7 * i;
        else
            nccl->fail = nccl->calls + 1 + 9 * i;
        check_ends(engine, i % 2 ? "CUDA_ERROR_UNKNOWN" : "NCCL 2.27.3 failed: unhandled cuda error");
    }
    ingot_log_set(INGOT_LOG_WARNING, NULL, NULL);
}

static void sleep_a_while(void)
{
    nanosleep(&(struct timespec){ 0, SLEEP_MS * 1000000l }, NULL);
}

// What fails behind a call's back is seen by a look at all streams, after which nothing is exchanged.
static void a_failure_between_calls_is_seen(void **state)
{
    struct ingot_request_options r = request();
    (void)state;

    ingot_log_set(INGOT_LOG_ERROR, drop_line, NULL);
    for (int i = 0; i < 2; i++) {
        begin(2);
        struct ingot_engine *engine = open_or_name(2, "cuda");
        assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, NULL));
        sleep_a_while(); // nothing is found where nothing is
        assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, NULL));
        if (i == 0)
            fake.stream_state = LAUNCH_FAILED;
        else
            nccl->async_result = 1;
        sleep_a_while();
        assert_int_equal(nccl->live, 0);
        check_ends(engine, i == 0 ? "cuda:0: a step failed: CUDA_ERROR_LAUNCH_FAILED"
                                  : "cuda:0: an exchange by NCCL 2.27.3 failed: unhandled cuda error");
    }
    ingot_log_set(INGOT_LOG_WARNING, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_library_that_does_not_do_is_named),
        cmocka_unit_test(bits_are_those_of_the_host_s_memory),
        cmocka_unit_test(others_leave_a_failed_exchange),
        cmocka_unit_test(opening_fails_at_every_call),
        cmocka_unit_test(joining_has_an_end),
        cmocka_unit_test(no_host_lies_between_segments),
        cmocka_unit_test(gpus_that_reach_each_other_have_none),
        cmocka_unit_test(a_table_says_who_adds_up),
        cmocka_unit_test(another_way_is_taken_and_named),
        cmocka_unit_test(a_rank_that_fails_ends_the_step),
        cmocka_unit_test(a_failure_between_calls_is_seen),
    };
    // opened here, it is found by its name afterwards
    void *library = dlopen(FOLDER "threads/libnccl.so.2", RTLD_NOW | RTLD_LOCAL);

    if (!library || cuda_n_images == 0) {
        print_message("skipped: %s\n", library ? "this build holds no CUDA kernels" : dlerror());
        return library ? 0 : 1;
    }
    unsetenv("NCCL_NVLS_ENABLE");
    setenv("NCCL_ALGO", "Tree", 1);
    nccl = dlsym(library, "fake_nccl");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
