// test_nccl_cuda.c - ranks on several GPUs that exchange by NCCL: the bits of the host's way on two, the same
// bits from run to run on all, and the text of an engine. Skipped without two GPUs and a libnccl.so.2.
#include "engine/api.h"
#include "engine/group/direct.h"
#include "open_engine.h"
#include "ranks_rig.h"

enum { N_COLS = 4096, N_VOCAB = 1001, MOST_ROWS = 600 };

static uint32_t n_gpus(void)
{
    struct err err;
    uint32_t n = cuda_n_devices(&err);

    n = n < EXCHANGE_RANKS ? n : EXCHANGE_RANKS;
    if (n >= 2 && nccl_load(&err))
        return n;
    print_message("skipped: %s\n", n < 2 ? "no two GPUs" : err.message);
    return 0;
}

static float *random_numbers(uint64_t n, uint32_t seed)
{
    float *at = malloc(n * sizeof *at);

    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        at[i] = (float)(int32_t)seed * (1.0f + (float)(seed & 0xff00));
    }
    return at;
}

static void fill(struct buffer *b, uint32_t seed)
{
    float *numbers = random_numbers(b->bytes / 4, seed);
    struct err err;

    assert_ok(buffer_write(b, 0, numbers, b->bytes, &err), &err);
    free(numbers);
}

static void *kept(const struct buffer *b)
{
    void *to = malloc(b->bytes);
    struct err err;

    assert_ok(buffer_read(b, 0, to, b->bytes, &err), &err);
    return to;
}

struct exchanged {
    void *sums[EXCHANGE_RANKS], *logits;
    uint64_t sum_bytes, logits_bytes;
};

static struct exchanged exchange_by(uint32_t n, bool by_nccl, uint32_t n_rows, uint32_t n_outputs)
{
    static struct ranks_rig r;
    struct exchanged to = { .logits = NULL };
    struct err err;

    r = (struct ranks_rig){ .n = n, .n_cols = N_COLS, .n_vocab = N_VOCAB, .most_rows = MOST_ROWS };
    assert_ok(ranks_rig_open(&r, by_nccl, &err), &err);
    for (uint32_t i = 0; i < n; i++) {
        fill(&r.stages[i].sums, i * 7 + n_rows);
        fill(&r.stages[i].head_part, i * 11 + n_rows);
    }
    fill(&r.stages[0].logits, 5);
    ranks_rig_exchange(&r, n_rows, n_outputs);
    for (uint32_t i = 0; i < n; i++) {
        assert_ok(r.ok[i], &r.errs[i]);
        to.sums[i] = kept(&r.stages[i].sums);
    }
    to.logits = kept(&r.stages[0].logits);
    to.sum_bytes = r.stages[0].sums.bytes;
    to.logits_bytes = r.stages[0].logits.bytes;
    ranks_rig_close(&r);
    return to;
}

static void compare(struct exchanged *a, struct exchanged *b, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        assert_memory_equal(a->sums[i], b->sums[i], a->sum_bytes);
        free(a->sums[i]);
        free(b->sums[i]);
    }
    assert_memory_equal(a->logits, b->logits, a->logits_bytes);
    free(a->logits);
    free(b->logits);
}

static const uint32_t rows[] = { 1, 3, 64, 257, MOST_ROWS }, outputs[] = { 1, 0, 3, 17, MOST_ROWS };

static void two_ranks_have_the_host_s_bits(void **state)
{
    (void)state;
    if (!n_gpus())
        skip();
    for (uint32_t k = 0; k < 5; k++) {
        struct exchanged a = exchange_by(2, false, rows[k], outputs[k]),
                         b = exchange_by(2, true, rows[k], outputs[k]);
        compare(&a, &b, 2);
    }
}

static void bits_are_the_same_from_run_to_run(void **state)
{
    uint32_t n = n_gpus();
    (void)state;

    if (!n)
        skip();
    for (uint32_t k = 0; k < 5; k++) {
        struct exchanged a = exchange_by(n, true, rows[k], outputs[k]),
                         b = exchange_by(n, true, rows[k], outputs[k]);
        for (uint32_t i = 1; i < n; i++) // and on all ranks
            assert_memory_equal(a.sums[0], a.sums[i], (uint64_t)rows[k] * N_COLS * 4);
        compare(&a, &b, n);
    }
}

enum { N_PROMPT = 150, N_NEW = 24 };

struct said_tokens {
    uint32_t at[N_NEW], n;
};

static bool keep_token(void *arg, const struct ingot_event *e)
{
    struct said_tokens *to = arg;

    if (e->token != UINT32_MAX && to->n < N_NEW)
        to->at[to->n++] = e->token;
    return true;
}

static struct said_tokens say(uint32_t n_ranks, uint32_t most_direct)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    uint32_t prompt[N_PROMPT];
    struct ingot_request_options r = greedy_request(prompt, N_PROMPT, N_NEW);
    struct said_tokens said = { .n = 0 };
    struct ingot_error error = { 0 };

    for (uint32_t i = 0; i < N_PROMPT; i++)
        prompt[i] = (i * i * 31 + 9) % 500;
    o.model = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    o.device = n_ranks ? "cuda:0,cuda:1" : "cuda:0";
    o.n_tensor_parallel = n_ranks;
    o.n_context = 256;
    o.n_batch = 100;
    o.speculate = INGOT_SPECULATE_OFF;
    direct_most_rows = most_direct;
    struct ingot_engine *engine = ingot_engine_open(&o, &error);
    if (!engine)
        fail_msg("%s", error.message);
    if (n_ranks && most_direct < UINT32_MAX) // else the graphs' kernels may need none
        assert_non_null(engine->inner.loaded->devices.communicator);
    if (!ingot_generate(engine, &r, keep_token, &said, NULL, &error))
        fail_msg("%s", error.message);
    ingot_engine_close(engine);
    direct_most_rows = UINT32_MAX;
    return said;
}

// By NCCL alone, by the graphs' kernels for few rows, and of these for one row alone: the same sums of two.
static void the_text_is_the_same_by_all_ways(void **state)
{
    static const uint32_t most_direct[] = { 0, UINT32_MAX, 1 };
    (void)state;

    if (!n_gpus())
        skip();
    struct said_tokens first = say(2, 0);
    assert_int_equal(first.n, N_NEW);
    for (uint32_t i = 0; i < 3; i++) {
        struct said_tokens again = say(2, most_direct[i]);
        assert_memory_equal(first.at, again.at, sizeof first.at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks_have_the_host_s_bits),
        cmocka_unit_test(bits_are_the_same_from_run_to_run),
        cmocka_unit_test(the_text_is_the_same_by_all_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
