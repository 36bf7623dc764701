// test_flight_cuda.c - steps in flight on NVIDIA GPUs give what one GPU gives, or the same stages one after
// the other: two GPUs that send to each other, at every border, with too few pages, a cancelled request and
// logits; and GPUs beside CPUs, each section in a thread. On one GPU, its name stands for the second, and the
// driver takes the copies. Skipped where there is none. test_flight_cuda PATTERN runs some of the tests.
#include "device/cuda/cuda.h"
#include "engine/flight/pipeline.h"
#include "engine/stage/link.h"
#include "told_in_flight.h"

enum { N_TURNS = 3 };

static const char *two; // the devices of two stages on GPUs

static bool gpu_exists(void)
{
    struct err err = { 0 };
    uint32_t n = cuda_n_devices(&err);

    if (n == 0)
        print_message("skipped: %s\n", err.message);
    two = n > 1 ? "cuda:0,cuda:1" : "cuda:0,cuda:0";
    return n > 0;
}

static struct tried on(const char *device, const char *stages, uint32_t most)
{
    return (struct tried){ device, stages, most, 0, N_REQUESTS, N_REQUESTS, true };
}

static void two_gpus_say_what_one_says(void **state)
{
    static const char *const borders[] = { "1", "2", "3", "4", "5", "6", "7" };
    static struct told one, more;
    (void)state;

    if (!gpu_exists())
        skip();
    struct tried alone = on("cuda:0", NULL, 1);
    told_run(&alone, &one);
    for (size_t i = 0; i < sizeof borders / sizeof *borders; i++) {
        struct tried way = on(two, borders[i], AS_OPENED);
        told_run(&way, &more);
        told_check_same(&one, &more, N_REQUESTS);
        assert_int_equal(more.most_in_flight, 1); // of two: the oldest is waited for in the same step
    }
    struct tried three = on("cuda:0,cuda:0,cuda:0", "2,5", AS_OPENED);
    told_run(&three, &more);
    told_check_same(&one, &more, N_REQUESTS);
    assert_int_equal(more.most_in_flight, 2);
}

// Returns how many steps were submitted before the token that they begin with was known to the host.
static uint32_t answer_alone(const char *device, const char *stages, uint32_t tokens[MOST_TOKENS])
{
    struct tried way = on(device, stages, AS_OPENED);
    struct ingot_engine *engine = told_open(&way);
    struct ingot_request *request = told_submit(engine, 0, false);
    static struct told told;
    uint32_t n_ahead = 0;
    bool busy = true;

    memset(&told, 0, sizeof told);
    while (busy) {
        assert_true(ingot_step(engine, &busy, NULL));
        n_ahead += engine->inner.is_ahead;
    }
    told_take(request, 0, &told);
    assert_int_equal(told.n[0], MOST_TOKENS);
    memcpy(tokens, told.tokens[0], sizeof told.tokens[0]);
    ingot_request_free(request);
    ingot_engine_close(engine);
    return n_ahead;
}

// The tokens go from the last stage to the first one without the host.
static void one_answer_alone_goes_on_ahead(void **state)
{
    uint32_t one[MOST_TOKENS], more[MOST_TOKENS];
    (void)state;

    if (!gpu_exists())
        skip();
    assert_int_equal(answer_alone("cuda:0", NULL, one), MOST_TOKENS - 1);
    assert_int_equal(answer_alone(two, "4", more), MOST_TOKENS - 1);
    assert_memory_equal(one, more, sizeof one);
    assert_int_equal(answer_alone("cuda:0,cuda:0,cuda:0", "2,5", more), MOST_TOKENS - 1);
    assert_memory_equal(one, more, sizeof one);
}

// Requests that come every third step, more than there are sequences; one is freed. Returns how many steps
// with prompts were submitted before the step in front was over.
static uint32_t answer_as_they_come(uint32_t freed, struct told *told)
{
    struct tried way = on("cuda:0", NULL, AS_OPENED);
    struct ingot_engine *engine = told_open(&way);
    const struct engine *e = &engine->inner;
    struct ingot_request *requests[N_REQUESTS];
    uint32_t n_ahead = 0, n = 0;
    bool busy = true;

    memset(told, 0, sizeof *told);
    for (uint32_t step = 0; busy || n < N_REQUESTS; step++) {
        if (step % 3 == 0 && n < N_REQUESTS) {
            requests[n] = told_submit(engine, n, false);
            n++;
        }
        assert_true(ingot_step(engine, &busy, NULL));
        n_ahead += e->is_ahead && e->ahead->n_rows > e->ahead->n_decode;
        if (freed < N_REQUESTS && step == 3 * freed + 2)
            ingot_request_free(requests[freed]);
    }
    for (uint32_t i = 0; i < N_REQUESTS; i++)
        if (i != freed) {
            told_take(requests[i], i, told);
            ingot_request_free(requests[i]);
        }
    ingot_engine_close(engine);
    return n_ahead;
}

static void prompts_go_ahead_too(void **state)
{
    static struct told alone, all;
    struct tried way = on("cuda:0", NULL, AS_OPENED);
    (void)state;

    if (!gpu_exists())
        skip();
    struct ingot_engine *engine = told_open(&way);
    memset(&alone, 0, sizeof alone);
    for (uint32_t i = 0; i < N_REQUESTS; i++) {
        struct ingot_request *request = told_submit(engine, i, false);
        bool busy = true;
        while (busy)
            assert_true(ingot_step(engine, &busy, NULL));
        told_take(request, i, &alone);
        ingot_request_free(request);
    }
    ingot_engine_close(engine);
    for (uint32_t freed = 4; freed <= N_REQUESTS; freed++) { // 4 to 6: while its prompt is read
        assert_true(answer_as_they_come(freed, &all) > N_REQUESTS);
        told_check_same(&alone, &all, freed);
    }
}

static void the_link_between_two_gpus_is_direct(void **state)
{
    struct err err = { 0 };
    (void)state;

    if (!gpu_exists() || cuda_n_devices(&err) < 2)
        skip();
    struct tried way = on(two, "4", AS_OPENED);
    struct ingot_engine *engine = told_open(&way);
    print_message("%s\n", link_name(engine->inner.loaded->links[0].kind));
    assert_int_equal(engine->inner.loaded->links[0].kind, LINK_DIRECT);
    ingot_engine_close(engine);
}

static void too_few_pages_and_requests_that_end(void **state)
{
    static struct told one, more;
    (void)state;

    if (!gpu_exists())
        skip();
    struct tried alone = on("cuda:0", NULL, 1);
    told_run(&alone, &one);
    for (uint32_t n_tokens = 128; n_tokens <= 224; n_tokens += 32) {
        struct tried way = on(two, "3", AS_OPENED);
        way.n_kv_tokens = n_tokens;
        told_run(&way, &more);
        assert_true(more.n_pauses > 0 || n_tokens > 128);
        told_check_same(&one, &more, N_REQUESTS);
    }
    for (uint32_t i = 0; i < 3; i++) {
        struct tried way = on(two, "4", AS_OPENED);
        way.cancelled = i;
        told_run(&way, &more);
        told_check_same(&one, &more, i);
    }
}

static void logits_are_those_of_their_step(void **state)
{
    static struct told one, more;
    (void)state;

    if (!gpu_exists())
        skip();
    struct tried alone = on("cuda:0", NULL, 1), way = on(two, "4", AS_OPENED);
    alone.with_logits = way.with_logits = 2;
    told_run(&alone, &one);
    told_run(&way, &more);
    told_check_same(&one, &more, N_REQUESTS);
    assert_true(one.n_logits >= 5);
    assert_int_equal(one.n_logits, more.n_logits);
    assert_int_equal(one.logits, more.logits);
}

static void recurrent_layers_give_the_same(void **state)
{
    static const char *const models[] = { SOURCE_DIR "/tests/golden/lfm2/model.gguf",
                                          SOURCE_DIR "/tests/golden/qwen35/model.gguf",
                                          SOURCE_DIR "/tests/golden/nemotronh-moe/model.gguf" };
    static struct told one, more;
    (void)state;

    if (!gpu_exists())
        skip();
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct tried alone = on("cuda:0", NULL, 1), way = on(two, "1", AS_OPENED);
        told_model = models[i];
        told_run(&alone, &one);
        told_run(&way, &more);
        told_check_same(&one, &more, N_REQUESTS);
        assert_true(more.most_in_flight > 0);
        way.n_kv_tokens = 160;
        told_run(&way, &more);
        told_check_same(&one, &more, N_REQUESTS);
        told_model = NULL;
    }
}

// The same stages one after the other, and with a thread each.
static void check_beside_cpus(const char *device, const char *stages, uint32_t n_sections)
{
    static struct told want, got;
    struct tried way = on(device, stages, 1);

    told_run(&way, &want);
    way.most = AS_OPENED;
    struct ingot_engine *engine = told_open(&way);
    assert_non_null(engine->inner.pipeline);
    assert_int_equal(engine->inner.flight.most, n_sections + 1);
    ingot_engine_close(engine);
    for (uint32_t i = 0; i < N_TURNS; i++) {
        told_run(&way, &got);
        told_check_same(&want, &got, N_REQUESTS);
        assert_int_equal(got.most_in_flight, n_sections);
    }
    way.n_kv_tokens = 160;
    told_run(&way, &got);
    told_check_same(&want, &got, N_REQUESTS);
}

static void stages_beside_cpus_say_what_they_say_in_turn(void **state)
{
    char three[32];
    (void)state;

    if (!gpu_exists())
        skip();
    check_beside_cpus("cuda:0,cpu", "3", 2);
    check_beside_cpus("cpu,cuda:0", "5", 2);
    check_beside_cpus("cpu,cuda:0,cpu", "2,5", 3);
    snprintf(three, sizeof three, "%s,cpu", two);
    check_beside_cpus(three, "2,5", 2); // the GPUs are one section
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_gpus_say_what_one_says),
        cmocka_unit_test(one_answer_alone_goes_on_ahead),
        cmocka_unit_test(prompts_go_ahead_too),
        cmocka_unit_test(the_link_between_two_gpus_is_direct),
        cmocka_unit_test(too_few_pages_and_requests_that_end),
        cmocka_unit_test(logits_are_those_of_their_step),
        cmocka_unit_test(recurrent_layers_give_the_same),
        cmocka_unit_test(stages_beside_cpus_say_what_they_say_in_turn),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
