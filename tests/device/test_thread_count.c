// test_thread_count.c - how many threads play, as processors come and go; and runs of a part of a pool.
#include <stdatomic.h>
#include "base/thread_pool.h"
#include "device/cpu/thread_count.h"
#include "testing.h"

enum { MS = 1000000 };

// What n threads get together, in percent of a processor: those that sleep at barriers, and patient ones.
// What others take from them, whose threads then wait for a processor.
struct share {
    uint32_t percent[17], patient[17], taken;
};

// `ms` milliseconds of runs. Returns the most threads seen at the end of one.
static uint32_t play(struct thread_count *w, uint64_t *now, uint32_t ms, const struct share *share)
{
    uint32_t most = 0;

    for (uint32_t i = 0; i < ms; i++) {
        uint32_t percent = (w->patient ? share->patient : share->percent)[w->n];
        *now += MS;
        thread_count_note(w, (struct thread_pool_time){ MS, MS / 100 * percent, MS / 100 * share->taken },
                          *now);
        most = w->n > most ? w->n : most;
    }
    return most;
}

// In how many of 10,000 ms two threads play.
static uint32_t times_with_two(struct thread_count *w, uint64_t *now, const struct share *share)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < 10000; i++)
        n += play(w, now, 1, share) == 2;
    return n;
}

// In how many of 10,000 ms all threads play and are patient.
static uint32_t times_patient(struct thread_count *w, uint64_t *now, const struct share *share)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < 10000; i++)
        n += play(w, now, 1, share) == w->most && w->patient;
    return n;
}

static const struct share beside_loop = { { 0, 98, 70 }, { 0, 98, 150 }, 50 },
                          alone = { { 0, 98, 190 }, { 0, 98, 198 }, 2 };

static void a_busy_loop_costs_one_of_two_threads(void **state)
{
    struct thread_count w = thread_count_of(2);
    uint64_t now = 0;

    (void)state;
    play(&w, &now, 100, &beside_loop);
    assert_int_equal(w.n, 1);
    assert_in_range(times_with_two(&w, &now, &beside_loop), 1, 1300); // tries now and then
    play(&w, &now, 100, &alone);
    assert_int_equal(w.n, 2);
}

#ifdef __linux__
static void read_name(void *arg, unsigned thread)
{
    FILE *file = thread == 1 ? fopen("/proc/thread-self/comm", "r") : NULL;

    if (file) {
        assert_non_null(fgets(arg, 32, file));
        fclose(file);
    }
}

static void a_thread_of_a_pool_has_a_name(void **state)
{
    struct thread_pool *pool = thread_pool_create(2);
    char name[32] = "";

    (void)state;
    thread_pool_run(pool, read_name, name);
    assert_string_equal(name, "ingot pool\n");
    thread_pool_destroy(pool);
}
#endif

static void a_short_disturbance_changes_nothing(void **state)
{
    struct thread_count w = thread_count_of(2);
    uint64_t now = 0;

    (void)state;
    for (uint32_t i = 0; i < 20; i++) {
        play(&w, &now, 50, &beside_loop);
        assert_int_equal(w.n, 2);
        play(&w, &now, 100, &alone);
    }
}

static void threads_shrink_to_the_time_of_a_container(void **state)
{
    struct share share = { .taken = 100 };
    struct thread_count w = thread_count_of(16);
    uint64_t now = 0;

    (void)state;
    for (uint32_t n = 1; n <= 16; n++)
        share.percent[n] = share.patient[n] = n < 4 ? n * 100 : 400;
    play(&w, &now, 300, &share);
    assert_in_range(w.n, 4, 5);
}

static void one_thread_less_is_of_no_use_where_all_lose_alike(void **state)
{
    static const struct share stolen = { { 0, 55, 110 }, { 0, 55, 110 }, 90 };
    struct thread_count w = thread_count_of(2);
    uint64_t now = 0;

    (void)state;
    play(&w, &now, 100, &stolen);
    assert_int_equal(w.n, 2);
    assert_in_range(times_with_two(&w, &now, &stolen), 9500, 10000);
}

static void threads_are_patient_while_all_cpus_are_theirs(void **state)
{
    static const struct share quiet = { { [16] = 1100 }, { [16] = 1580 }, 15 },
                              disturbed = { { [16] = 1100 }, { [16] = 1500 }, 60 };
    struct thread_count w = thread_count_of(16), beside = thread_count_of(2);
    uint64_t now = 0;

    (void)state;
    assert_int_equal(times_patient(&w, &now, &quiet), 9991); // the first decision comes after 10 ms
    play(&w, &now, 10, &disturbed);
    assert_false(w.patient);
    assert_in_range(times_patient(&w, &now, &quiet), 9970, 9995); // forgotten soon
    assert_in_range(times_patient(&w, &now, &disturbed), 0, 500); // tries now and then
    assert_int_equal(times_patient(&beside, &now, &beside_loop), 0);
}

// What they sleep at barriers, beside another program, makes threads fewer; without one they come back.
static void threads_that_sleep_come_back(void **state)
{
    struct share share = { .taken = 60 };
    struct thread_count w = thread_count_of(16);
    uint64_t now = 0;

    (void)state;
    for (uint32_t n = 1; n <= 16; n++) {
        share.percent[n] = n * 70;
        share.patient[n] = n * 99;
    }
    play(&w, &now, 1000, &share);
    assert_in_range(w.n, 1, 8);
    share.taken = 2;
    play(&w, &now, 2000, &share);
    assert_int_equal(w.n, 16);
    assert_true(w.patient);
}

static void one_thread_stays(void **state)
{
    static const struct share starved = { { 0, 1 }, { 0, 1 }, 99 };
    struct thread_count w = thread_count_of(1);
    uint64_t now = 0;

    (void)state;
    play(&w, &now, 2000, &starved);
    assert_int_equal(w.n, 1);
}

struct thread_count_sums {
    struct thread_pool *pool;
    atomic_uint before, after; // threads that came to the barrier, and that found all there
    unsigned n;
};

static void meet(void *arg, unsigned thread)
{
    struct thread_count_sums *s = arg;

    atomic_fetch_add(&s->before, thread < s->n);
    thread_pool_barrier(s->pool, thread);
    atomic_fetch_add(&s->after, atomic_load(&s->before) == s->n);
}

static void parts_of_a_team_meet(void **state)
{
    struct thread_count_sums s = { .pool = thread_pool_create(4) };

    (void)state;
    assert_non_null(s.pool);
    for (unsigned i = 0; i < 2000; i++) {
        s.n = i * 7 % 4 + 1;
        s.before = s.after = 0;
        struct thread_pool_time t = thread_pool_run_some(s.pool, s.n, meet, &s);
        assert_int_equal(s.after, s.n);
        assert_true(t.wall > 0);
    }
    thread_pool_destroy(s.pool);
}

enum { N_MEETINGS = 10 };

static void meet_often(void *arg, unsigned thread)
{
    struct thread_count_sums *s = arg;

    for (unsigned i = 1; i <= N_MEETINGS; i++) {
        atomic_fetch_add(&s->before, 1);
        thread_pool_barrier(s->pool, thread);
        atomic_fetch_add(&s->after, atomic_load(&s->before) >= i * s->n);
        thread_pool_barrier(s->pool, thread);
    }
}

// More threads than processors: patient ones must sleep in the end.
static void patient_threads_share_processors(void **state)
{
    struct thread_count_sums s = { .pool = thread_pool_create(16), .n = 16 };

    (void)state;
    assert_non_null(s.pool);
    thread_pool_be_patient(s.pool, true);
    thread_pool_run(s.pool, meet_often, &s);
    assert_int_equal(s.after, s.n * N_MEETINGS);
    thread_pool_destroy(s.pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_busy_loop_costs_one_of_two_threads),
        cmocka_unit_test(a_short_disturbance_changes_nothing),
        cmocka_unit_test(threads_shrink_to_the_time_of_a_container),
        cmocka_unit_test(one_thread_less_is_of_no_use_where_all_lose_alike),
        cmocka_unit_test(threads_are_patient_while_all_cpus_are_theirs),
        cmocka_unit_test(threads_that_sleep_come_back),
        cmocka_unit_test(one_thread_stays),
        cmocka_unit_test(parts_of_a_team_meet),
        cmocka_unit_test(patient_threads_share_processors),
#ifdef __linux__
        cmocka_unit_test(a_thread_of_a_pool_has_a_name),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
