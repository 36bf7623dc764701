// test_sample.c - the sampling operation: greedy, masks, biases, penalties, and that a draw depends on (seed,
// position) alone, of the plain loop and of the fast kernel; and that both give the same ids.
#include <math.h>
#include <stdlib.h>
#include "ops/cpu_table.h"
#include "ops/sample/sample.h"
#include "testing.h"

// LARGE: more than 16 * 32 blocks of eight tokens, and three tokens that are in none.
enum { VOCAB = 50, LARGE = 4099, HISTORY = 64 };

struct rig { // one output row, played again and again
    struct device *device;
    struct buffer logits, history, results, mask_bias, step;
    struct tape *tape;
};

static int rig_make(void **state, uint32_t n, bool plain)
{
    struct rig *r = calloc(1, sizeof *r);
    struct err err = { 0 };
    r->device = cpu_open(&(struct cpu_options){ .n_threads = 1, .plain = plain, .table = &cpu_table }, &err);
    r->tape = tape_create(r->device, (struct tape_limits){ .max_rows = 1, .max_outputs = 1 });
    assert_true(buffer_alloc(r->device, n * 4, &r->logits, &err) &&
                buffer_alloc(r->device, HISTORY * 4, &r->history, &err) &&
                buffer_alloc(r->device, 2 * 4, &r->results, &err) &&
                buffer_alloc(r->device, sample_mask_bias_words(n) * 4, &r->mask_bias, &err) &&
                buffer_alloc(r->device, step_bytes(1, 1), &r->step, &err));
    struct tensor logits = tape_tensor_bound(r->tape, n, ROWS_OUTPUT, &r->logits);
    op_sample(r->tape, (struct sample){ .logits = logits,
                                        .history = &r->history,
                                        .history_stride = HISTORY,
                                        .results = &r->results,
                                        .mask_bias = &r->mask_bias });
    assert_ok(tape_seal(r->tape, &err), &err);
    *state = r;
    return 0;
}

static int rig_open(void **state)
{
    return rig_make(state, VOCAB, false);
}
static int rig_open_plain(void **state)
{
    return rig_make(state, VOCAB, true);
}

static int rig_close(void **state)
{
    struct rig *r = *state;
    tape_destroy(r->tape);
    struct buffer *buffers[] = { &r->logits, &r->history, &r->results, &r->mask_bias, &r->step };
    for (int i = 0; i < 5; i++)
        buffer_release(buffers[i]);
    device_close(r->device);
    free(r);
    return 0;
}

static struct sample_params neutral(float temperature)
{
    return (struct sample_params){ .temperature = temperature,
                                   .top_p = 1,
                                   .repeat_penalty = 1,
                                   .penalty_window = HISTORY,
                                   .seed = { 7, 9 } };
}

static uint32_t draw(struct rig *r, struct sample_params p, uint32_t position)
{
    uint32_t *words = r->step.host;
    *(struct step *)words = (struct step){
        .n_rows = 1, .n_outputs = 1, .max_rows = 1, .max_outputs = 1, .results_at = position % 2
    };
    words[step_at_tokens()] = 3;
    words[step_at_positions(1)] = position;
    words[step_at_slots(1)] = words[step_at_outputs(1)] = 0;
    memcpy(words + step_at_samples(1, 1), &p, sizeof p);
    assert_true(tape_play(r->tape, &r->step, NULL));
    return ((uint32_t *)r->results.host)[position % 2];
}

// Of a row that is given the token behind its own: it stands one position further.
static uint32_t draw_ahead(struct rig *r, struct sample_params p, uint32_t position)
{
    uint32_t *history = r->history.host;
    struct sample_args *args = (struct sample_args *)(uintptr_t)tape_command(r->tape, 0)->args;

    memset(history, 0xff, HISTORY * sizeof *history);
    args->ahead = 1;
    uint32_t id = draw(r, p, position);
    args->ahead = 0;
    for (uint32_t i = 0; i < HISTORY; i++)
        assert_int_equal(history[i], i == position + 1 ? 3 : i == position + 2 ? id : UINT32_MAX);
    return id;
}

static void set_logits(struct rig *r, float (*f)(uint32_t))
{
    for (uint32_t i = 0; i < VOCAB; i++)
        ((float *)r->logits.host)[i] = f(i);
}

static float hill(uint32_t i)
{
    return -0.1f * fabsf((float)i - 20);
}
static float flat(uint32_t i)
{
    (void)i;
    return 1;
}

static void greedy_takes_the_largest_and_ties_go_to_the_lowest_id(void **state)
{
    struct rig *r = *state;
    set_logits(r, hill);
    assert_int_equal(draw(r, neutral(0), 4), 20);
    ((float *)r->logits.host)[41] = 0; // as large as 20's
    assert_int_equal(draw(r, neutral(0), 4), 20);
    ((float *)r->logits.host)[7] = 0;
    assert_int_equal(draw(r, neutral(0), 4), 7);
    set_logits(r, flat);
    struct sample_params one = neutral(1);
    one.top_k = 1;
    assert_int_equal(draw(r, one, 4), 0);
}

static void frequencies_follow_the_probabilities(void **state)
{
    struct rig *r = *state;
    enum { N = 20000 };
    double counts[VOCAB] = { 0 }, total = 0, chi = 0;
    set_logits(r, hill);
    for (uint32_t i = 0; i < VOCAB; i++)
        total += exp(hill(i) / 0.7);
    for (uint32_t n = 0; n < N; n++) {
        struct sample_params p = neutral(0.7f);
        p.seed[0] = n;
        counts[draw(r, p, 5)]++;
    }
    for (uint32_t i = 0; i < VOCAB; i++) {
        double expected = N * exp(hill(i) / 0.7) / total;
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
    }
    assert_true(chi < 86); // 49 degrees of freedom: one in a thousand is above
}

// The ids that come out of 3,000 draws.
static uint32_t reached(struct rig *r, struct sample_params p, uint32_t *lowest, uint32_t *highest)
{
    bool seen[VOCAB] = { 0 };
    uint32_t n = 0;
    *lowest = VOCAB;
    *highest = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        p.seed[1] = i;
        uint32_t id = draw(r, p, 9);
        n += !seen[id];
        seen[id] = true;
        *lowest = id < *lowest ? id : *lowest;
        *highest = id > *highest ? id : *highest;
    }
    return n;
}

static void top_k_top_p_and_min_p_keep_exactly_what_they_should(void **state)
{
    struct rig *r = *state;
    struct sample_params p = neutral(1);
    uint32_t low, high;
    set_logits(r, hill);
    p.top_k = 5;
    assert_int_equal(reached(r, p, &low, &high), 5);
    assert_true(low == 18 && high == 22);
    p.top_k = 4; // 18 and 22 are equally likely: the lower id stays
    assert_int_equal(reached(r, p, &low, &high), 4);
    assert_true(low == 18 && high == 21);
    p = neutral(1);
    p.min_p = 0.75f; // exp(-0.1 d) >= 0.75: d up to 2
    assert_int_equal(reached(r, p, &low, &high), 5);
    set_logits(r, flat);
    p = neutral(1);
    p.top_p = 0.1f; // five of fifty
    assert_int_equal(reached(r, p, &low, &high), 5);
    assert_true(low == 0 && high == 4);
    p.top_p = 0;
    assert_int_equal(reached(r, p, &low, &high), 1);
}

static void penalties_make_seen_tokens_less_likely_whatever_the_sign(void **state)
{
    struct rig *r = *state;
    uint32_t *history = r->history.host;
    struct sample_params p = neutral(0);
    for (int sign = -1; sign <= 1; sign += 2) {
        set_logits(r, flat);
        float *logits = r->logits.host;
        for (uint32_t i = 0; i < VOCAB; i++)
            logits[i] = sign > 0 ? 1 : -2;
        logits[10] = sign > 0 ? 1.2f : -1.8f; // the best
        logits[11] = sign > 0 ? 1.1f : -1.9f; // the second
        history[0] = 10;
        history[1] = 12;
        history[2] = 10;
        p = neutral(0);
        assert_int_equal(draw(r, p, 3), 10);
        p.repeat_penalty = 1.5f;
        assert_int_equal(draw(r, p, 3), 11);
        p = neutral(0);
        p.presence_penalty = 0.15f;
        assert_int_equal(draw(r, p, 3), 11);
        p.presence_penalty = 0.05f;
        assert_int_equal(draw(r, p, 3), 10);
        p = neutral(0);
        p.frequency_penalty = 0.06f; // seen twice: 0.12
        assert_int_equal(draw(r, p, 3), 11);
        p.penalty_window = 2; // the row's own token 3 and history[2]: seen once
        assert_int_equal(draw(r, p, 3), 10);
        p.frequency_penalty = -1; // negative: more likely
        history[2] = 12;
        assert_int_equal(draw(r, p, 3), 3); // 3 and 12 tie: the lowest id
        history[2] = 10;
    }
}

static void a_draw_depends_on_seed_and_position_alone(void **state)
{
    struct rig *r = *state;
    uint32_t first[20], differ = 0;
    set_logits(r, hill);
    for (uint32_t i = 0; i < 20; i++)
        first[i] = draw(r, neutral(1), i);
    for (uint32_t i = 20; i-- > 0;)
        assert_int_equal(draw(r, neutral(1), i), first[i]);
    for (uint32_t i = 1; i < 20; i++)
        assert_int_equal(draw_ahead(r, neutral(1), i - 1), first[i]);
    draw_ahead(r, neutral(1), HISTORY - 2);
    draw_ahead(r, neutral(1), HISTORY - 1);
    for (uint32_t i = 0; i < 20; i++) {
        struct sample_params p = neutral(1);
        p.seed[1]++;
        differ += draw(r, p, i) != first[i];
    }
    assert_true(differ > 10);
    // known answer of Philox 4x32-10
    assert_float_equal(sample_random(0, 0, 0), (float)(0x6627e8d5u >> 8) / 16777216.0f, 0);
}

static void numbers_that_are_none_are_reported(void **state)
{
    struct rig *r = *state;
    static const float bad[] = { NAN, INFINITY };
    for (int i = 0; i < 2; i++)
        for (int greedy = 0; greedy < 2; greedy++) {
            set_logits(r, hill);
            ((float *)r->logits.host)[49] = bad[i];
            assert_int_equal(draw(r, neutral(greedy ? 0 : 1), 1), STEP_TOKEN_INVALID);
        }
    for (uint32_t i = 0; i < VOCAB; i++)
        ((float *)r->logits.host)[i] = i == 30 ? -5 : -INFINITY; // masked: allowed
    assert_int_equal(draw(r, neutral(1), 1), 30);
    ((float *)r->logits.host)[30] = -INFINITY;
    assert_int_equal(draw(r, neutral(1), 1), STEP_TOKEN_INVALID);
}

static void what_was_drawn_goes_to_the_log(void **state)
{
    struct rig *r = *state;
    uint32_t *history = r->history.host;
    set_logits(r, hill);
    draw(r, neutral(0), 30);
    assert_int_equal(history[30], 3);
    assert_int_equal(history[31], 20);
    history[31] = 99;
    struct sample_params skip = neutral(0);
    skip.flags = SAMPLE_SKIP;
    draw(r, skip, 30);
    assert_int_equal(history[31], 99);
    draw(r, neutral(0), HISTORY - 1); // the last place: nothing is written behind the history
}

// Logits with many ties, some of which only the temperature makes, and zeros of both signs.
static void fill_with_ties(float *logits, uint32_t round)
{
    uint32_t x = round + 1;

    for (uint32_t i = 0; i < LARGE; i++) {
        x = x * 1664525 + 1013904223;
        logits[i] = round % 2 ? (float)((int)(x >> 28) - 12) * 0.25f : 2 + (float)(x >> 20) * 0x1p-22f;
        logits[i] = logits[i] == 0 && x & 1 ? -0.0f : logits[i];
    }
}

// A mask, biases, and a token history in which most tokens stand more than once.
static void fill_past(struct rig *r, uint32_t round)
{
    uint32_t *mask = r->mask_bias.host, *history = r->history.host;
    struct sample_bias *biases = (struct sample_bias *)(mask + sample_mask_words(LARGE));

    for (uint32_t i = 0; i < sample_mask_words(LARGE); i++)
        mask[i] = (i + 1) * 2654435761u;
    for (uint32_t i = 0; i < 5; i++)
        biases[i] = (struct sample_bias){ (round * 31 + i * 97) % LARGE, 1.5f - (float)i };
    for (uint32_t i = 0; i < HISTORY; i++)
        history[i] = i % 7 ? (round * 13 + i % 20 * 97) % LARGE : 0xffffffff; // that is no token
}

static void the_fast_kernel_gives_the_plain_loop_s_ids(void **state)
{
    static const uint32_t ks[] = { 1, 2, 40, 127, 128, 129, 600, 0 };
    struct rig *rigs[2];

    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        void *made;
        rig_make(&made, LARGE, plain);
        rigs[plain] = made;
    }
    for (uint32_t round = 0; round < 96; round++) {
        struct sample_params p = { .temperature = round % 5 ? 0.9f : 0,
                                   .top_p = round % 3 ? 0.95f : 0.1f,
                                   .min_p = (float)(round % 4) * 0.1f,
                                   .repeat_penalty = 1,
                                   .top_k = ks[round % 8],
                                   .seed = { round, 3 } };
        if (round % 7 > 2) {
            p.repeat_penalty = 1.3f;
            p.presence_penalty = 0.2f;
            p.frequency_penalty = round % 2 ? 0.1f : -0.1f;
            p.penalty_window = 30;
            p.n_biases = round % 6;
            p.flags = round % 11 ? SAMPLE_MASKED : 0;
        }
        for (uint32_t position = 40; position < 52; position++) {
            uint32_t ids[2];
            for (int i = 0; i < 2; i++) {
                fill_with_ties(rigs[i]->logits.host, round);
                fill_past(rigs[i], round);
                ids[i] = draw(rigs[i], p, position);
            }
            assert_int_equal(ids[0], ids[1]);
        }
    }
    for (int i = 0; i < 2; i++)
        rig_close((void *[]){ rigs[i] });
}

static void set_bias(struct rig *r, uint32_t i, uint32_t token, float bias)
{
    struct sample_bias *biases =
        (struct sample_bias *)((uint32_t *)r->mask_bias.host + sample_mask_words(VOCAB));
    biases[i] = (struct sample_bias){ token, bias };
}

static void only_tokens_of_the_mask_are_drawn(void **state)
{
    struct rig *r = *state;
    uint32_t *mask = r->mask_bias.host, low, high;
    struct sample_params p = neutral(0);
    set_logits(r, hill);
    mask[0] = 1u << 3 | 1u << 5;
    mask[1] = 1u << (45 - 32);
    p.flags = SAMPLE_MASKED;
    assert_int_equal(draw(r, p, 4), 5);
    p.temperature = 1;
    assert_int_equal(reached(r, p, &low, &high), 3);
    assert_true(low == 3 && high == 45);
    p.top_k = 2; // of those that are allowed
    assert_int_equal(reached(r, p, &low, &high), 2);
    assert_true(low == 3 && high == 5);
    p.flags = 0; // the mask is not read
    p.temperature = 0;
    assert_int_equal(draw(r, p, 4), 20);
    p.flags = SAMPLE_MASKED;
    mask[0] = mask[1] = 0;
    assert_int_equal(draw(r, p, 4), STEP_TOKEN_INVALID);
}

static void biases_are_added_before_everything_else(void **state)
{
    struct rig *r = *state;
    struct sample_params p = neutral(0);
    set_logits(r, hill);
    set_bias(r, 0, 33, 10);
    set_bias(r, 1, 40, 20);
    p.n_biases = 1;
    assert_int_equal(draw(r, p, 4), 33);
    p.n_biases = 2;
    assert_int_equal(draw(r, p, 4), 40);
    set_bias(r, 1, 33, -INFINITY);
    assert_int_equal(draw(r, p, 4), 20);
    p.n_biases = 0;
    assert_int_equal(draw(r, p, 4), 20);
}

int main(void)
{
#define RIGGED(test)                                             \
    { #test " (plain)", test, rig_open_plain, rig_close, NULL }, \
    {                                                            \
#test " (fast)", test, rig_open, rig_close, NULL         \
    }
    const struct CMUnitTest tests[] = {
        RIGGED(greedy_takes_the_largest_and_ties_go_to_the_lowest_id),
        RIGGED(frequencies_follow_the_probabilities),
        RIGGED(top_k_top_p_and_min_p_keep_exactly_what_they_should),
        RIGGED(penalties_make_seen_tokens_less_likely_whatever_the_sign),
        RIGGED(a_draw_depends_on_seed_and_position_alone),
        RIGGED(numbers_that_are_none_are_reported),
        cmocka_unit_test(the_fast_kernel_gives_the_plain_loop_s_ids),
        RIGGED(what_was_drawn_goes_to_the_log),
        RIGGED(only_tokens_of_the_mask_are_drawn),
        RIGGED(biases_are_added_before_everything_else),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
