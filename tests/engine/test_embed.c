// test_embed.c - embeddings: of length 1, the same whole and in chunks, and nearer for what is alike.
#include <math.h>
#include "open_engine.h"

enum { N_PROMPT = 37, MOST_COLS = 1024 };

static uint32_t n_cols;

static struct ingot_engine *open_with(uint32_t n_batch, uint32_t n_sequences)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.n_threads = 1;
    o.n_batch = n_batch;
    o.n_sequences = n_sequences;
    return open_or_fail(&o);
}

static bool keep(void *arg, const struct ingot_event *event)
{
    if (event->done && event->embedding)
        memcpy(arg, event->embedding, n_cols * sizeof(float));
    return true;
}

static uint32_t n_embedding(const struct ingot_engine *engine)
{
    struct ingot_engine_info info;
    ingot_engine_info(engine, &info);
    assert_true(info.n_embedding <= MOST_COLS);
    return n_cols = info.n_embedding;
}

static struct ingot_request_options asking(enum ingot_embed embed, const uint32_t *tokens, size_t n)
{
    struct ingot_request_options r = ingot_request_defaults();
    r.tokens = tokens;
    r.n_tokens = n;
    r.embed = embed;
    return r;
}

static void embed(struct ingot_engine *engine, enum ingot_embed kind, const uint32_t *tokens, size_t n,
                  float *to)
{
    struct ingot_request_options r = asking(kind, tokens, n);
    struct ingot_result result;
    struct ingot_error error = { 0 };

    if (!ingot_generate(engine, &r, keep, to, &result, &error))
        fail_msg("%s", error.message);
    assert_int_equal(result.n_generated, 0);
    assert_int_equal(result.n_prompt, n);
}

static void make_tokens(uint32_t *tokens)
{
    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = (i * 37 + 11) % 500 + 20;
}

static void chunks_and_batches_give_the_same_bits(void **state)
{
    struct ingot_engine *whole = open_with(512, 1), *chunked = open_with(8, 2);
    uint32_t tokens[N_PROMPT], n = n_embedding(whole);
    float a[MOST_COLS] = { 0 }, b[MOST_COLS] = { 0 }, last[MOST_COLS] = { 0 };
    double squares = 0, product = 0;

    (void)state;
    make_tokens(tokens);
    embed(whole, INGOT_EMBED_MEAN, tokens, N_PROMPT, a);
    embed(chunked, INGOT_EMBED_MEAN, tokens, N_PROMPT, b);
    assert_memory_equal(a, b, n * sizeof *a);
    embed(chunked, INGOT_EMBED_LAST, tokens, N_PROMPT, last);
    for (uint32_t i = 0; i < n; i++) {
        squares += (double)a[i] * a[i];
        product += (double)a[i] * last[i];
    }
    assert_true(fabs(squares - 1) < 1e-5);
    assert_true(product < 0.999); // mean and last are two things
    embed(chunked, INGOT_EMBED_MEAN, tokens + N_PROMPT - 1, 1, a);
    embed(chunked, INGOT_EMBED_LAST, tokens + N_PROMPT - 1, 1, b);
    assert_memory_equal(a, b, n * sizeof *a);
    ingot_engine_close(whole);
    ingot_engine_close(chunked);
}

// A prompt that lacks one token lies nearer than a few tokens of it.
static void texts_that_share_more_lie_nearer(void **state)
{
    struct ingot_engine *engine = open_with(512, 1);
    uint32_t tokens[N_PROMPT];
    float one[MOST_COLS] = { 0 }, other[MOST_COLS] = { 0 }, far[MOST_COLS] = { 0 };
    double near = 0, away = 0;

    (void)state;
    n_embedding(engine);
    make_tokens(tokens);
    embed(engine, INGOT_EMBED_MEAN, tokens, N_PROMPT, one);
    embed(engine, INGOT_EMBED_MEAN, tokens, N_PROMPT - 1, other);
    embed(engine, INGOT_EMBED_MEAN, tokens + 5, 3, far);
    for (uint32_t i = 0; i < n_embedding(engine); i++) {
        near += (double)one[i] * other[i];
        away += (double)one[i] * far[i];
    }
    assert_true(near > 0.98 && near > away);
    ingot_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_and_batches_give_the_same_bits),
        cmocka_unit_test(texts_that_share_more_lie_nearer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
