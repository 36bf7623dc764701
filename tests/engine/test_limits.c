// test_limits.c - the limits that people set: how they are written, when steps and requests wait, what other
// programs' load does, and what an engine under them answers. Clock and load are made up.
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>
#include "engine/api.h"
#include "engine/limits/pace.h"
#include "open_engine.h"

#define MODEL SOURCE_DIR "/tests/golden/llama2/model.gguf"
static const uint64_t MS = 1000000, SECOND = 1000000000;
static uint64_t fake_ns;

static uint64_t fake_clock(void)
{
    return fake_ns;
}

static struct usage_limits limits_of(const char *text)
{
    struct usage_limits l;
    struct err err = { 0 };

    assert_ok(usage_limits_read(&l, text, &err), &err);
    return l;
}

static void limits_are_presets_and_keys(void **state)
{
    struct usage_limits l = limits_of("balanced");
    char text[LIMITS_TEXT_BYTES];
    (void)state;
    assert_true(l.memory == 0.7f && l.compute == 0.8f && l.cpu == 0.7f && l.gpu == 0.8f && l.ram == 0.9f);
    assert_true(l.nice == 10 && l.io == LIMITS_IDLE_IO && l.interval_ms == 50 && l.batch == 4);
    assert_true(l.check_s == 5 && l.pause_s == 30);
    l = limits_of("conservative,batch=3,cpu=0,power=off");
    assert_true(l.compute == 0.6f && l.batch == 3 && l.cpu == 0 && l.no_power);
    usage_limits_print(&l, text);
    assert_string_equal(text, "memory 0.50, compute 0.60, nice 15, io idle, interval 100, batch 3, gpu 0.60, "
                              "ram 0.80, check 3, pause 60");
    l = limits_of("nice=19,io=7");
    assert_true(l.nice == 19 && l.io == 7 && usage_limits_any(&l) && !usage_limits_watch(&l));
    l = limits_of(NULL);
    assert_false(usage_limits_any(&l));
    l = limits_of("compute=0.9");
    assert_true(usage_limits_lower(&l).compute == 0.8f && usage_limits_lower(&l).cpu == 0);
    l = limits_of("aggressive");
    assert_true(usage_limits_lower(&l).compute == 0.8f && usage_limits_lower(&l).cpu == 0.7f);
    l = limits_of("conservative");
    assert_true(usage_limits_lower(&l).compute == 0.6f);
}

static void a_wrong_limit_is_told(void **state)
{
    static const char *const wrong[] = { "fast",
                                         "compute=2",
                                         "compute=",
                                         "compute=nan",
                                         "compute",
                                         "nice=20",
                                         "io=9",
                                         "batch=-1",
                                         "cpu=0.5,balanced",
                                         "balanced,,",
                                         "=1",
                                         "memory=0.5x",
                                         "interval=99999999999999999999",
                                         "power=maybe" };
    struct usage_limits l;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err err = { 0 };
        assert_false(usage_limits_read(&l, wrong[i], &err));
        assert_int_equal(err.code, ERR_INPUT);
        assert_non_null(strstr(err.message, "limits: "));
        assert_non_null(strstr(err.message, "want "));
    }
}

static struct pace pace_of(const char *text)
{
    struct pace p = { .clock = fake_clock };
    struct usage_limits l = limits_of(text);

    fake_ns = 1000 * SECOND;
    pace_set(&p, &l);
    return p;
}

// After a step of t a wait of t (1 - s) / s; and what was left of the wait before, when a step did not wait.
static void steps_wait_for_their_share_of_the_time(void **state)
{
    struct pace p = pace_of("compute=0.25"), none = pace_of("nice=1");
    (void)state;
    pace_note_step(&p, 10 * MS);
    assert_int_equal(p.step_at - fake_ns, 30 * MS);
    fake_ns += 20 * MS;
    pace_note_step(&p, 10 * MS);
    assert_int_equal(p.step_at - fake_ns, 40 * MS);
    fake_ns += SECOND;
    pace_note_step(&p, 2 * MS);
    assert_int_equal(p.step_at - fake_ns, 6 * MS);
    pace_note_step(&none, 10 * MS);
    assert_int_equal(none.step_at, 0);
}

static void requests_start_an_interval_apart(void **state)
{
    struct pace p = pace_of("interval=50");
    (void)state;
    assert_true(pace_may_start(&p));
    pace_note_start(&p);
    assert_false(pace_may_start(&p));
    assert_int_equal(pace_start_at(&p) - fake_ns, 50 * MS);
    fake_ns += 50 * MS;
    assert_true(pace_may_start(&p));
    assert_int_equal(p.counters.n_started, 1);
}

static void note(struct pace *p, double cpu, double gpu, double memory)
{
    pace_note_load(p, &(struct pace_load){ .system = { .cpu = cpu, .memory = memory }, .gpu = gpu });
}

static void others_load_pauses_and_never_stops(void **state)
{
    struct pace p = pace_of("balanced");
    (void)state;
    note(&p, 0.7, 0.8, 0.9); // at the limits, not above
    assert_false(p.is_paused);
    note(&p, 0.71, 0, 0);
    assert_true(p.is_paused && !pace_may_start(&p));
    assert_true(pace_share(&p) == 0.25);
    pace_note_step(&p, MS);
    assert_int_equal(p.step_at - fake_ns, 3 * MS);
    fake_ns += 29 * SECOND;
    note(&p, 0, 0, 0); // idle, but a pause lasts 30 s
    assert_true(p.is_paused);
    fake_ns += SECOND;
    note(&p, 0, 0, 0.95); // and as long as one of them is busy
    assert_true(p.is_paused);
    note(&p, 0, 0, 0);
    assert_false(p.is_paused);
    assert_true(pace_may_start(&p));
    note(&p, 0, 0.81, 0);
    assert_true(p.is_paused);
    assert_int_equal(p.counters.n_pauses, 2);
}

static void an_unknown_load_is_no_limit(void **state)
{
    struct pace p = pace_of("conservative");
    (void)state;
    for (int i = 0; i < 3; i++)
        note(&p, SYSTEM_LOAD_UNKNOWN, SYSTEM_LOAD_UNKNOWN, SYSTEM_LOAD_UNKNOWN);
    assert_false(p.is_paused);
    assert_true(p.told_unknown);
}

static void heat_is_one_preset_lower_for_a_minute(void **state)
{
    struct pace p = pace_of("aggressive"), off = pace_of("aggressive,power=off");
    struct pace_load hot = { .system.is_hot = true }, cool = { .gpu = 0 };
    (void)state;
    pace_note_load(&p, &hot);
    assert_true((float)pace_share(&p) == 0.8f);
    fake_ns += 59 * SECOND;
    pace_note_load(&p, &cool);
    assert_true((float)pace_share(&p) == 0.8f);
    fake_ns += SECOND;
    pace_note_load(&p, &cool);
    assert_true((float)pace_share(&p) == 0.95f);
    hot.system.is_hot = false;
    hot.system.is_battery_low = true;
    pace_note_load(&p, &hot);
    assert_true((float)pace_share(&p) == 0.8f);
    pace_note_load(&off, &hot);
    assert_true((float)pace_share(&off) == 0.95f);
}

// ---- the system's files

static char root[256];

static void write_file(const char *path, const char *text)
{
    char whole[512];

    snprintf(whole, sizeof whole, "%s%s", root, path);
    for (char *slash = strchr(whole + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        mkdir(whole, 0755);
        *slash = '/';
    }
    FILE *f = fopen(whole, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void take_away(const char *path)
{
    char whole[512];

    snprintf(whole, sizeof whole, "%s%s", root, path);
    assert_int_equal(unlink(whole), 0);
}

static uint64_t own_cpu_ns;

static uint64_t own_time(void)
{
    return own_cpu_ns;
}

static bool is_near(double a, double b)
{
    return fabs(a - b) < 1e-9;
}

// 1000 ticks pass, 700 of them busy, 2 s ours.
static void our_own_load_does_not_count(void **state)
{
    struct system_load_meter m = { .root = root, .own_ns = own_time };
    long tick = sysconf(_SC_CLK_TCK);
    (void)state;
    own_cpu_ns = 5 * SECOND;
    write_file("/proc/stat", "cpu  1000 0 500 8000 500 0 0 0 0 0\ncpu0 1 2 3 4\n");
    write_file("/proc/meminfo", "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n");
    struct system_load load = system_load_read(&m);
    assert_true(load.cpu == SYSTEM_LOAD_UNKNOWN); // it takes two readings
    assert_true(is_near(load.memory, 0.6));
    own_cpu_ns += 2 * SECOND;
    write_file("/proc/stat", "cpu  1400 100 600 8200 600 0 0 100 0 0\n");
    load = system_load_read(&m);
    assert_true(is_near(load.cpu, (700 - 2.0 * (double)tick) / 1000));
    own_cpu_ns += 100 * SECOND; // more than passed: the clocks differ
    write_file("/proc/stat", "cpu  1500 100 600 8300 600 0 0 100 0 0\n");
    assert_true(system_load_read(&m).cpu == 0);
}

static void strange_files_are_an_unknown_load(void **state)
{
    static const char *const stats[] = {
        "", "cpu", "cpu x y", "intr 1 2 3", "cpu  0 0 0 0\n", "cpu  99999999999999999999999 1\n", "\n\n\n"
    };
    (void)state;
    for (size_t i = 0; i < sizeof stats / sizeof *stats; i++) {
        struct system_load_meter m = { .root = root, .own_ns = own_time };
        write_file("/proc/stat", stats[i]);
        write_file("/proc/meminfo", i % 2 ? "MemTotal: kB\n" : "MemTotal: 5 kB\nMemAvailable:\n");
        for (int k = 0; k < 2; k++) {
            struct system_load load = system_load_read(&m);
            assert_true(load.cpu == SYSTEM_LOAD_UNKNOWN && load.memory == SYSTEM_LOAD_UNKNOWN);
        }
    }
    struct system_load_meter nowhere = { .root = "/nowhere/at/all" };
    struct system_load load = system_load_read(&nowhere);
    assert_true(load.cpu == SYSTEM_LOAD_UNKNOWN && !load.is_hot && !load.is_battery_low);
}

static void memory_is_available_within_the_control_group(void **state)
{
    const struct system_load_meter m = { .root = root };
    (void)state;
    write_file("/proc/meminfo", "MemTotal:  9000 kB\nMemFree: 1 kB\nMemAvailable:    400 kB\n");
    assert_true(system_load_available(&m) == 400 * 1024);
    write_file("/proc/self/cgroup", "0::/box\n");
    write_file("/proc/self/statm", "100 60 20 1 0 50 0\n"); // pages: all, resident, backed by files
    write_file("/sys/fs/cgroup/box/memory.max", "300000\n");
    uint64_t own = 40 * (uint64_t)sysconf(_SC_PAGESIZE);
    assert_true(system_load_available(&m) == 300000 - own);
    write_file("/sys/fs/cgroup/box/memory.max", "500000\n");
    write_file("/proc/meminfo", "MemTotal:  9000 kB\nMemAvailable:    100 kB\n");
    assert_true(system_load_available(&m) == 100 * 1024);
    write_file("/sys/fs/cgroup/box/memory.max", "1000\n"); // it was made smaller
    assert_true(system_load_available(&m) == 0);
    take_away("/proc/meminfo");
    take_away("/proc/self/cgroup");
    assert_true(system_load_available(&m) > (uint64_t)1 << 24); // a half of the machine's
    take_away("/proc/self/statm");
    take_away("/sys/fs/cgroup/box/memory.max");
}

static void heat_and_battery_are_found(void **state)
{
    struct system_load_meter m = { .root = root };
    (void)state;
    write_file("/sys/class/power_supply/AC/type", "Mains\n");
    write_file("/sys/class/power_supply/BAT0/type", "Battery\n");
    write_file("/sys/class/power_supply/BAT0/status", "Discharging\n");
    write_file("/sys/class/power_supply/BAT0/capacity", "19\n");
    assert_true(system_load_read(&m).is_battery_low);
    write_file("/sys/class/power_supply/BAT0/capacity", "20\n");
    assert_false(system_load_read(&m).is_battery_low);
    write_file("/sys/class/power_supply/BAT0/capacity", "5\n");
    write_file("/sys/class/power_supply/BAT0/status", "Charging\n");
    assert_false(system_load_read(&m).is_battery_low);
    write_file("/sys/class/thermal/thermal_zone0/temp", "94000\n");
    write_file("/sys/class/thermal/thermal_zone0/trip_point_0_type", "critical\n");
    write_file("/sys/class/thermal/thermal_zone0/trip_point_0_temp", "90000\n");
    write_file("/sys/class/thermal/thermal_zone0/trip_point_1_type", "passive\n");
    write_file("/sys/class/thermal/thermal_zone0/trip_point_1_temp", "95000\n");
    assert_false(system_load_read(&m).is_hot);
    write_file("/sys/class/thermal/thermal_zone0/temp", "95000\n");
    assert_true(system_load_read(&m).is_hot);
    take_away("/sys/class/thermal/thermal_zone0/trip_point_1_temp");
    assert_false(system_load_read(&m).is_hot);
}

// ---- an engine

static struct ingot_engine *open_limited(const char *limits)
{
    struct ingot_engine_options o = ingot_engine_defaults();

    o.model = MODEL;
    o.n_threads = 1;
    o.n_sequences = 3;
    o.speculate = INGOT_SPECULATE_OFF;
    o.limits = limits;
    return open_or_fail(&o);
}

static struct ingot_request_options question(void)
{
    static const uint32_t tokens[] = { 5, 6, 7 };

    return greedy_request(tokens, 3, 6);
}

static uint32_t take_tokens(struct ingot_request *q, uint32_t *tokens, bool *done)
{
    struct ingot_event event;
    uint32_t n = 0;

    while (ingot_poll(q, &event)) {
        if (event.token != UINT32_MAX)
            tokens[n++] = event.token;
        *done = event.done;
    }
    return n;
}

static bool keep_token(void *arg, const struct ingot_event *event)
{
    uint32_t *at = arg;

    if (event->token != UINT32_MAX)
        at[++at[0]] = event->token;
    return true;
}

// Every step but the first waits, and the answer stays the same.
static void a_share_of_the_time_changes_no_answer(void **state)
{
    struct ingot_engine *engine = open_limited("compute=0.5"), *free_engine = open_limited(NULL);
    struct ingot_request_options r = question();
    uint32_t limited[8] = { 0 }, unlimited[8] = { 0 };
    struct ingot_engine_stats stats;
    (void)state;
    assert_true(ingot_generate(engine, &r, keep_token, limited, NULL, NULL));
    assert_true(ingot_generate(free_engine, &r, keep_token, unlimited, NULL, NULL));
    assert_memory_equal(limited, unlimited, sizeof limited);
    assert_int_equal(limited[0], 6);
    ingot_engine_stats(engine, &stats);
    assert_int_equal(stats.n_steps, 6);
    assert_int_equal(stats.n_slowed_steps, 6);
    assert_int_equal(stats.n_limited, 1);
    ingot_engine_stats(free_engine, &stats);
    assert_int_equal(stats.n_slowed_steps + stats.n_limited, 0);
    ingot_engine_close(engine);
    ingot_engine_close(free_engine);
}

static uint64_t n_steps(struct ingot_engine *engine)
{
    struct ingot_engine_stats stats;

    ingot_engine_stats(engine, &stats);
    return stats.n_steps;
}

// The next step is played when the clock has reached its time, and not before.
static void a_step_waits_for_the_clock(void **state)
{
    struct ingot_engine *engine = open_limited("compute=0.5,power=off");
    struct ingot_request_options r = question();
    struct ingot_engine_stats stats;
    bool busy;
    (void)state;
    fake_ns = 1000 * SECOND;
    engine->inner.pace.clock = fake_clock;
    struct ingot_request *q = ingot_submit(engine, &r, NULL);
    for (uint64_t n = 1; n < 4; n++) {
        assert_true(ingot_step(engine, &busy, NULL));
        assert_int_equal(n_steps(engine), n);
        assert_true(ingot_step(engine, &busy, NULL));
        assert_true(busy);
        assert_int_equal(n_steps(engine), n);
        fake_ns = engine->inner.pace.step_at;
    }
    ingot_engine_stats(engine, &stats);
    assert_int_equal(stats.n_slowed_steps, 3);
    ingot_request_free(q);
    ingot_engine_close(engine);
}

static void set_load(struct ingot_engine *engine, double cpu)
{
    struct engine *e = &engine->inner;

    pthread_mutex_lock(&e->state);
    note(&e->pace, cpu, 0, 0);
    pthread_mutex_unlock(&e->state);
}

// The limit on the load is there without a thread that looks at it: the test brings the load.
static struct ingot_engine *open_watched(const char *more)
{
    struct ingot_engine *engine = open_limited(more);
    struct engine *e = &engine->inner;

    fake_ns = 1000 * SECOND;
    e->pace.clock = fake_clock;
    e->pace.set.cpu = e->pace.now.cpu = 0.5f;
    return engine;
}

static void a_pause_holds_new_requests_and_runs_old_ones(void **state)
{
    struct ingot_engine *engine = open_watched("nice=1");
    struct ingot_request_options r = question();
    struct ingot_request *old = ingot_submit(engine, &r, NULL), *new;
    struct ingot_engine_stats stats;
    uint32_t tokens[8];
    bool busy, old_done = false, new_done = false;
    (void)state;
    assert_true(ingot_step(engine, &busy, NULL));
    set_load(engine, 0.9);
    new = ingot_submit(engine, &r, NULL);
    for (int i = 0; i < 100 && !old_done; i++) {
        assert_true(ingot_step(engine, &busy, NULL));
        take_tokens(old, tokens, &old_done);
        fake_ns += 60 * SECOND;
    }
    assert_true(old_done);
    ingot_request_free(old);
    ingot_engine_stats(engine, &stats);
    assert_true(stats.is_paused);
    assert_int_equal(stats.n_waiting, 1);
    assert_int_equal(stats.n_held, 1);
    assert_true(ingot_step(engine, &busy, NULL)); // no step, and no endless wait
    assert_true(busy);
    assert_int_equal(take_tokens(new, tokens, &new_done), 0);
    set_load(engine, 0.1);
    while (!new_done && ingot_step(engine, &busy, NULL)) {
        fake_ns += 60 * SECOND;
        take_tokens(new, tokens, &new_done);
    }
    assert_true(new_done);
    ingot_request_free(new);
    ingot_engine_close(engine);
}

static void a_held_request_can_be_cancelled(void **state)
{
    struct ingot_engine *engine = open_watched("nice=1");
    struct ingot_request_options r = question();
    uint32_t tokens[8];
    bool busy, done = false;
    (void)state;
    set_load(engine, 0.9);
    struct ingot_request *q = ingot_submit(engine, &r, NULL);
    assert_true(ingot_step(engine, &busy, NULL));
    ingot_cancel(q);
    assert_true(ingot_step(engine, &busy, NULL));
    take_tokens(q, tokens, &done);
    assert_true(done);
    ingot_request_free(q);
    q = ingot_submit(engine, &r, NULL); // and closing does not wait for it
    ingot_engine_close(engine);
    take_tokens(q, tokens, &done);
    assert_true(done);
    ingot_request_free(q);
}

static void the_largest_batch_and_the_interval_hold(void **state)
{
    struct ingot_engine *engine = open_watched("batch=2,interval=50");
    struct ingot_request_options r = question();
    struct ingot_request *q[2] = { ingot_submit(engine, &r, NULL), ingot_submit(engine, &r, NULL) };
    struct ingot_engine_info info;
    struct ingot_engine_stats stats;
    bool busy;
    (void)state;
    ingot_engine_info(engine, &info);
    assert_int_equal(info.n_sequences, 2);
    assert_true(ingot_step(engine, &busy, NULL));
    ingot_engine_stats(engine, &stats);
    assert_int_equal(stats.n_running, 1);
    fake_ns += 50 * MS;
    assert_true(ingot_step(engine, &busy, NULL));
    ingot_engine_stats(engine, &stats);
    assert_int_equal(stats.n_running, 2);
    ingot_request_free(q[0]);
    ingot_request_free(q[1]);
    ingot_engine_close(engine);
}

static void a_share_of_the_memory_is_what_fits(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error = { 0 };
    (void)state;
    o.model = MODEL;
    o.limits = "memory=0.0000001";
    assert_null(ingot_engine_open(&o, &error));
    assert_int_equal(error.code, INGOT_MEMORY);
    assert_non_null(strstr(error.message, "of which the limits leave 0.00"));
    o.limits = "faster";
    assert_null(ingot_engine_open(&o, &error));
    assert_int_equal(error.code, INGOT_INPUT);
}

// The real thread on the real machine: it starts, looks and ends. What it sees is not asserted.
static void the_watch_starts_and_ends(void **state)
{
    struct ingot_engine *engine = open_limited("aggressive,cpu=1,ram=1,gpu=1");
    struct ingot_request_options r = question();
    (void)state;
    assert_true(engine->inner.watch.runs);
    assert_true(ingot_generate(engine, &r, NULL, NULL, NULL, NULL));
    ingot_engine_close(engine);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "%s/limits.XXXXXX", BINARY_DIR);
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    char command[300];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_presets_and_keys),
        cmocka_unit_test(a_wrong_limit_is_told),
        cmocka_unit_test(steps_wait_for_their_share_of_the_time),
        cmocka_unit_test(requests_start_an_interval_apart),
        cmocka_unit_test(others_load_pauses_and_never_stops),
        cmocka_unit_test(an_unknown_load_is_no_limit),
        cmocka_unit_test(heat_is_one_preset_lower_for_a_minute),
        cmocka_unit_test(our_own_load_does_not_count),
        cmocka_unit_test(strange_files_are_an_unknown_load),
        cmocka_unit_test(memory_is_available_within_the_control_group),
        cmocka_unit_test(heat_and_battery_are_found),
        cmocka_unit_test(a_share_of_the_time_changes_no_answer),
        cmocka_unit_test(a_step_waits_for_the_clock),
        cmocka_unit_test(a_pause_holds_new_requests_and_runs_old_ones),
        cmocka_unit_test(a_held_request_can_be_cancelled),
        cmocka_unit_test(the_largest_batch_and_the_interval_hold),
        cmocka_unit_test(a_share_of_the_memory_is_what_fits),
        cmocka_unit_test(the_watch_starts_and_ends),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
