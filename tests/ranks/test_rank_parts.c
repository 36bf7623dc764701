// test_rank_parts.c - what several ranks are made of, in one process: steps and results as bytes, hostile
// ones, which layers each rank has, and what ranks compare.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#include "device/cpu/cpu_stop.h"
#include "engine/ranks/agree.h"
#include "engine/stage/place_ranks.h"
#include "engine/stage/step_message.h"
#include "ingot.h"
#include "ops/sample/sample.h"
#include "testing.h"

static const struct step_limits limits = { .max_rows = 8,
                                           .max_outputs = 4,
                                           .n_slots = 2,
                                           .max_pages = 4,
                                           .n_pages = 8,
                                           .n_states = 3,
                                           .history_stride = 64,
                                           .n_vocab = 70,
                                           .n_cols = 2,
                                           .n_windows = 6 };
static uint32_t mask[] = { 1, 2, 3, 4 };
static uint32_t biases[] = { 69, 0x3f800000, 0, 0x40000000 };

static struct step_constraint constraint_of(const struct batch *b, uint32_t i)
{
    struct step_constraint c = { mask, biases, 2 };

    return b->outputs[i].params.n_biases ? c : (struct step_constraint){ 0 };
}

static void fill(struct batch *b, struct step_news *news)
{
    struct request *someone = (struct request *)(uintptr_t)8; // only compared with NULL

    batch_add_row(b, (struct batch_row){ 5, 3, 1, NULL, STATE_ZERO, STATE_NONE });
    batch_add_row(b, (struct batch_row){ 6, 4, 1, someone, STATE_NEXT, 2 });
    batch_add_output(b, (struct batch_output){ .params = { .seed = { 1, 2 }, .top_k = 9 } });
    batch_add_row(b, (struct batch_row){ 7, 63, 0, NULL, 1, 0 });
    batch_add_output(b, (struct batch_output){ .params = { .flags = SAMPLE_MASKED, .n_biases = 2 },
                                               .wants_logits = true });
    b->sequence = 0x123456789;
    step_news_add(news, (uint32_t[4]){ STEP_NEWS_TABLE, 1, 2, 2 }, (uint32_t[2]){ 7, 0 });
    step_news_add(news, (uint32_t[4]){ STEP_NEWS_WINDOWS, 1, 3, 1 }, (uint32_t[1]){ 5 });
    step_news_add(news, (uint32_t[4]){ STEP_NEWS_HISTORY, 0, 0, 3 }, (uint32_t[3]){ 1, 2, 3 });
}

// The message of the batch; free with free().
static unsigned char *make_message(size_t *n)
{
    struct step_news news = { 0 };
    struct batch *b;
    struct err err = { 0 };

    assert_ok(batch_create(&b, limits.max_rows, limits.max_outputs, &err), &err);
    fill(b, &news);
    *n = step_message_bytes(b, &news, constraint_of, &limits);
    unsigned char *at = calloc(1, *n);
    assert_int_equal(step_message_write(at, b, &news, constraint_of, &limits), *n - 3 * 2 * sizeof(float));
    assert_true(*n <= step_message_most(&limits));
    step_news_free(&news);
    batch_free(b);
    return at;
}

static void a_step_arrives_as_it_was(void **state)
{
    struct step_view v;
    struct batch *b;
    struct err err = { 0 };
    size_t n, at = 0;
    unsigned char *message = make_message(&n);
    (void)state;

    assert_ok(step_message_read(message, n, &limits, &v, &err), &err);
    assert_ok(batch_create(&b, limits.max_rows, limits.max_outputs, &err), &err);
    step_view_fill(&v, b);
    assert_int_equal(b->n_rows, 3);
    assert_int_equal(b->n_outputs, 2);
    assert_true(b->sequence == 0x123456789);
    assert_int_equal(b->rows[1].token, 6);
    assert_int_equal(b->rows[1].state_from, STATE_NEXT);
    assert_int_equal(b->rows[2].position, 63);
    assert_int_equal(b->outputs[0].row, 1);
    assert_int_equal(b->outputs[0].params.top_k, 9);
    assert_true(!step_view_wants_hidden(&v, 0) && step_view_wants_hidden(&v, 1));
    assert_true(!step_view_wants_logits(&v, 0) && step_view_wants_logits(&v, 1));
    assert_null(step_view_constraint(&v, 0, &at, &limits).mask);
    struct step_constraint c = step_view_constraint(&v, 1, &at, &limits);
    assert_memory_equal(c.mask, mask, sizeof mask);
    assert_memory_equal(c.biases, biases, sizeof biases);
    assert_int_equal(v.block_at + v.block_bytes, n);
    assert_int_equal(v.news[4], 7);
    batch_free(b);
    free(message);
}

// The fuzzer begins with this very step, so that it knows what a step can have.
static void the_fuzzer_has_the_step(void **state)
{
    unsigned char seed[512];
    size_t n;
    unsigned char *message = make_message(&n);
    FILE *f = fopen(SOURCE_DIR "/tests/fuzz/corpus/step_message/step", "rb");
    (void)state;

    assert_non_null(f);
    assert_int_equal(fread(seed, 1, sizeof seed, f), n);
    assert_memory_equal(seed, message, n);
    fclose(f);
    free(message);
}

// Of every length but the right one, and with every word at its worst, a message is refused or within bounds.
static void hostile_steps_are_refused(void **state)
{
    static const uint32_t worst[] = { 0, 1, 7, 8, 64, 70, 0x7fffffff, 0x80000000, 0xfffffffd, 0xffffffff };
    struct step_view v;
    struct batch *b;
    struct err err = { 0 };
    size_t n, n_refused = 0, n_tried = 0;
    unsigned char *message = make_message(&n);
    (void)state;

    assert_ok(batch_create(&b, limits.max_rows, limits.max_outputs, &err), &err);
    for (size_t i = 0; i < n; i++) {
        unsigned char *part = malloc(i + 1);
        memcpy(part, message, i);
        assert_false(step_message_read(part, i, &limits, &v, &err));
        free(part);
    }
    for (size_t word = 0; word < n / 4; word++)
        for (size_t k = 0; k < sizeof worst / sizeof *worst; k++) {
            unsigned char *copy = malloc(n);
            memcpy(copy, message, n);
            memcpy(copy + 4 * word, &worst[k], 4);
            n_tried++;
            if (step_message_read(copy, n, &limits, &v, &err))
                step_view_fill(&v, b);
            else
                n_refused++;
            for (uint32_t i = 0; i < b->n_rows; i++)
                assert_true(b->rows[i].slot < limits.n_slots && b->rows[i].position < limits.history_stride);
            free(copy);
        }
    assert_true(n_refused > n_tried / 4);
    batch_free(b);
    free(message);
}

static void each_number_has_its_message(void **state)
{
    static const struct {
        size_t word;
        uint32_t value;
        const char *message;
    } cases[] = {
        { 0, 9, "rows: 9; want at most 8" },
        { 0, 0, "rows: 0" },
        { 1, 4, "outputs: 4; want at most 3" },
        { 6, 3, "columns: 3; want at most 2" },
        { 9, 64, "a position 64; want at most 63" },
        { 10, 2, "a slot 2; want at most 1" },
        { 11, STATE_NEXT, "a state" }, // of the first row
        { 18, 3, "a state 3; want at most 2" },
        { 26, 3, "an output of row 3" },
        { 40, 1, "an output of row 1" }, // again
        { 53, 1025, "biases 1025; want at most 1024" },
        { 54, 3, "news of kind 3; want at most 2" },
        { 55, 2, "news of slot 2; want at most 1" },
        { 57, 3, "news up to 5; want at most 4" },
        { 58, 8, "a page 8; want at most 7" },
        { 64, 6, "a window page 6; want at most 5" },
        { 63, 2, "news up to 5; want at most 4" },
        { 68, 60, "words of news 60" },
        { 76, 70, "a bias of token 70; want at most 69" },
    };
    struct step_view v;
    struct err err = { 0 };
    size_t n;
    unsigned char *message = make_message(&n);
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char *copy = malloc(n);
        memcpy(copy, message, n);
        memcpy(copy + 4 * cases[i].word, &cases[i].value, 4);
        assert_fails(step_message_read(copy, n, &limits, &v, &err), &err, cases[i].message);
        free(copy);
    }
    struct step_limits none = limits;
    none.n_windows = 0;
    assert_fails(step_message_read(message, n, &none, &v, &err), &err, "news of window pages");
    free(message);
}

static void results_arrive_or_are_refused(void **state)
{
    struct step_result r = { .sequence = 7, .n_outputs = 2, .n_logits = 1, .n_hidden = 2 }, back;
    struct err err = { 0 };
    size_t n = step_result_bytes(&r, &limits);
    unsigned char *message = calloc(1, n);
    const uint32_t ids[] = { 69, STEP_TOKEN_INVALID };
    (void)state;

    assert_int_equal(n, 4 * (8 + 2 + 70 + 4));
    assert_true(n <= step_result_most(&limits));
    step_result_write(message, &r);
    memcpy(message + 32, ids, sizeof ids);
    assert_ok(step_result_read(message, n, &limits, &back, &err), &err);
    assert_true(back.sequence == 7 && back.n_outputs == 2 && back.ids[0] == 69);
    assert_true(back.hidden - back.logits == 70);
    for (size_t i = 0; i < n; i++)
        assert_false(step_result_read(message, i, &limits, &back, &err));
    memcpy(message + 32, (uint32_t[1]){ 70 }, 4);
    assert_fails(step_result_read(message, n, &limits, &back, &err), &err, "a token 70; want at most 69");
    memcpy(message, (uint32_t[1]){ 5 }, 4);
    assert_fails(step_result_read(message, n, &limits, &back, &err), &err, "results: 5; want at most 4");
    free(message);
}

// ---- layers

static uint64_t largest(const uint64_t *bytes, const struct placement *p)
{
    uint64_t most = 0;

    for (uint32_t r = 0; r < p->n; r++) {
        uint64_t sum = 0;
        for (uint32_t l = p->layers[r].first; l < p->layers[r].last; l++)
            sum += bytes[l];
        most = sum > most ? sum : most;
    }
    return most;
}

// Of all ways to cut, tried one by one. UINT64_MAX: there is none.
static uint64_t best_of_all(const struct rank_shares *s, uint32_t from, uint32_t n_ranks)
{
    uint64_t best = UINT64_MAX, sum = 0;

    for (uint32_t end = from + 1; end <= s->n_layers; end++) {
        sum += s->bytes[end - 1];
        uint64_t rest = UINT64_MAX;
        if (n_ranks == 1 && end == s->n_layers)
            rest = 0;
        else if (n_ranks > 1 && end < s->n_layers && s->may_begin[end])
            rest = best_of_all(s, end, n_ranks - 1);
        if (rest != UINT64_MAX && (rest > sum ? rest : sum) < best)
            best = rest > sum ? rest : sum;
    }
    return best;
}

static void the_largest_share_is_as_small_as_can_be(void **state)
{
    uint32_t n_cut = 0;
    (void)state;

    srand(5);
    for (int i = 0; i < 500; i++) {
        uint64_t bytes[9];
        bool begins[9];
        struct placement p;
        struct err err = { 0 };
        struct rank_shares s = { bytes, begins, 2 + (uint32_t)rand() % 8, 1 + (uint32_t)rand() % 5 };
        for (uint32_t l = 0; l < s.n_layers; l++) {
            bytes[l] = (uint64_t)(rand() % 100);
            begins[l] = rand() % 4 > 0;
        }
        uint64_t best = best_of_all(&s, 0, s.n_ranks);
        bool ok = place_ranks_evenly(&s, &p, &err);
        assert_int_equal(ok, best != UINT64_MAX);
        if (!ok)
            continue;
        n_cut++;
        assert_true(largest(bytes, &p) == best);
        assert_int_equal(p.layers[0].first, 0);
        assert_int_equal(p.layers[p.n - 1].last, s.n_layers);
        for (uint32_t r = 1; r < p.n; r++)
            assert_true(p.layers[r].first == p.layers[r - 1].last && begins[p.layers[r].first]);
    }
    assert_true(n_cut > 200);
}

static void facts_that_differ_are_said(void **state)
{
    struct err err = { 0 };
    (void)state;

    assert_ok(agree_facts("version: ingot 1\nrows: 4", "version: ingot 1\nrows: 4", &err), &err);
    assert_fails(agree_facts("version: ingot 1\nrows: 4", "version: ingot 2\nrows: 4", &err), &err,
                 "version: ingot 2 here, and rank 0 has ingot 1; give all ranks the same");
    assert_fails(agree_facts("rows: 4\nk: f16", "rows: 4", &err), &err, "rank 0 has f16");
    assert_fails(agree_facts("rows: 4", "rows: 4\nmore: 1", &err), &err, "more: 1 here");
    assert_fails(agree_facts("rows: 4", "\x01\x02", &err), &err, "rank 0 has 4");
}

// ---- the end of a play

static void *ask_at_length(void *arg)
{
    static uint32_t tokens[400];
    struct ingot_request_options r = ingot_request_defaults();
    static struct ingot_error error;

    for (uint32_t i = 0; i < 400; i++)
        tokens[i] = 20 + i;
    r.tokens = tokens;
    r.n_tokens = 400;
    r.max_tokens = 4;
    return ingot_generate(arg, &r, NULL, NULL, NULL, &error) ? NULL : error.message;
}

// Exit status 0 of a process of its own, since all of its CPUs stop: the request ends with an error, and so
// does the next.
static int stop_in_a_play(void)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error;
    pthread_t thread;
    void *first = NULL, *second;

    o.device = "cpu:plain";
    o.n_threads = 3;
    struct ingot_engine *engine = ingot_engine_open(&o, &error);
    if (!engine || pthread_create(&thread, NULL, ask_at_length, engine) != 0)
        return 1;
    struct ingot_engine_stats stats = { 0 };
    while (stats.n_running == 0)
        ingot_engine_stats(engine, &stats);
    cpu_stop();
    pthread_join(thread, &first);
    second = ask_at_length(engine);
    ingot_engine_close(engine);
    return first && strstr(first, "the computation was stopped") && second ? 0 : 2;
}

static void a_cpu_that_is_stopped_ends_its_play(void **state)
{
    int status = -1;
    pid_t child = fork();
    (void)state;

    if (child == 0)
        _exit(stop_in_a_play());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_arrives_as_it_was),
        cmocka_unit_test(the_fuzzer_has_the_step),
        cmocka_unit_test(hostile_steps_are_refused),
        cmocka_unit_test(each_number_has_its_message),
        cmocka_unit_test(results_arrive_or_are_refused),
        cmocka_unit_test(the_largest_share_is_as_small_as_can_be),
        cmocka_unit_test(facts_that_differ_are_said),
        cmocka_unit_test(a_cpu_that_is_stopped_ends_its_play),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
