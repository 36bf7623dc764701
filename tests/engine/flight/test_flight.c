// test_flight.c - steps in flight over two stages and three give what one step at a time gives: with answers
// and prompts of many lengths, too few pages, requests that end early, and logits. CPUs compute at the same
// time, each in a thread (`threads`). Without, they stand for GPUs that send to each other: the stages do not
// run at once, but steps are dealt, delivered and taken back alike.
#include "told_in_flight.h"

static void answers_are_those_of_one_step_at_a_time(void **state)
{
    static struct told one, more;
    (void)state;

    told_run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, N_REQUESTS, false }, &one);
    assert_int_equal(one.most_in_flight, 0);
    for (uint32_t most = 2; most <= 4; most++) {
        told_run(&(struct tried){ "cpu,cpu", "4", most, 0, N_REQUESTS, N_REQUESTS, false }, &more);
        told_check_same(&one, &more, N_REQUESTS);
        assert_int_equal(more.most_in_flight, most - 1); // the last is waited for in the same step
        assert_true(more.n_steps > one.n_steps);         // answers are shared out
    }
}

static void threads_of_stages_give_the_same(void **state)
{
    static const char *const borders[] = { "1", "2", "3", "4", "5", "6", "7" };
    static struct told one, more;
    (void)state;

    told_run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, N_REQUESTS, false }, &one);
    for (size_t i = 0; i < sizeof borders / sizeof *borders; i++) {
        told_run(&(struct tried){ "cpu,cpu", borders[i], THREADS, 0, N_REQUESTS, N_REQUESTS, false }, &more);
        told_check_same(&one, &more, N_REQUESTS);
        assert_int_equal(more.most_in_flight, 2); // of three: the oldest is waited for in the same step
    }
    told_run(&(struct tried){ "cpu,cpu,cpu", "2,5", THREADS, 0, N_REQUESTS, N_REQUESTS, false }, &more);
    told_check_same(&one, &more, N_REQUESTS);
    assert_int_equal(more.most_in_flight, 3);
}

static void too_few_pages_pause_and_go_on(void **state)
{
    static struct told one, more;
    (void)state;

    told_run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, N_REQUESTS, false }, &one);
    for (uint32_t n_tokens = 128; n_tokens <= 224; n_tokens += 16)
        for (uint32_t most = 2; most <= 4; most++) {
            told_run(&(struct tried){ "cpu,cpu", "3", most, n_tokens, N_REQUESTS, N_REQUESTS, false }, &more);
            assert_true(more.n_pauses > 0 || n_tokens > 128);
            told_check_same(&one, &more, N_REQUESTS);
        }
    for (uint32_t n_tokens = 128; n_tokens <= 224; n_tokens += 32) {
        told_run(&(struct tried){ "cpu,cpu", "3", THREADS, n_tokens, N_REQUESTS, N_REQUESTS, false }, &more);
        assert_true(more.n_pauses > 0 || n_tokens > 128);
        told_check_same(&one, &more, N_REQUESTS);
    }
}

// Its row is in flight; its slot and pages go to the next in the queue.
static void a_request_that_ends_in_flight_disturbs_none(void **state)
{
    static struct told one, more;
    (void)state;

    told_run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, N_REQUESTS, false }, &one);
    for (uint32_t i = 0; i < 3; i++) {
        told_run(&(struct tried){ "cpu,cpu", "4", 3, 0, i, N_REQUESTS, false }, &more);
        told_check_same(&one, &more, i);
        told_run(&(struct tried){ "cpu,cpu,cpu", "3,4", THREADS, 0, i, N_REQUESTS, false }, &more);
        told_check_same(&one, &more, i);
    }
}

// A step's rows go on from the states that the step before it leaves behind, and begin from kept ones.
static void recurrent_layers_give_the_same(void **state)
{
    static const char *const models[] = { "lfm2", "qwen35", "granitehybrid", "nemotronh-moe" };
    static struct told one, more;
    (void)state;

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[256];
        snprintf(path, sizeof path, SOURCE_DIR "/tests/golden/%s/model.gguf", models[i]);
        told_model = path;
        told_run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, N_REQUESTS, false }, &one);
        for (uint32_t most = 2; most <= 3; most++) {
            told_run(&(struct tried){ "cpu,cpu", "1", most, 0, N_REQUESTS, N_REQUESTS, false }, &more);
            told_check_same(&one, &more, N_REQUESTS);
            told_run(&(struct tried){ "cpu,cpu", "2", most, 160, most, N_REQUESTS, false }, &more);
            told_check_same(&one, &more, most);
        }
        for (uint32_t n_tokens = 0; n_tokens <= 160; n_tokens += 160) {
            told_run(&(struct tried){ "cpu,cpu", "1", THREADS, n_tokens, n_tokens ? 1 : N_REQUESTS,
                                      N_REQUESTS, false },
                     &more);
            told_check_same(&one, &more, n_tokens ? 1 : N_REQUESTS);
        }
        told_model = NULL;
    }
}

// Logits are read from the device after the step: no other may have been played since.
static void logits_wait_for_their_step(void **state)
{
    static struct told one, more;
    (void)state;

    told_run(&(struct tried){ "cpu", NULL, 1, 0, N_REQUESTS, 2, false }, &one);
    for (uint32_t i = 0; i < 2; i++) {
        told_run(&(struct tried){ "cpu,cpu", "4", i ? THREADS : 2, 0, N_REQUESTS, 2, false }, &more);
        told_check_same(&one, &more, N_REQUESTS);
        assert_true(one.n_logits >= 5);
        assert_int_equal(one.n_logits, more.n_logits);
        assert_int_equal(one.logits, more.logits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_one_step_at_a_time),
        cmocka_unit_test(threads_of_stages_give_the_same),
        cmocka_unit_test(too_few_pages_pause_and_go_on),
        cmocka_unit_test(a_request_that_ends_in_flight_disturbs_none),
        cmocka_unit_test(recurrent_layers_give_the_same),
        cmocka_unit_test(logits_wait_for_their_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
