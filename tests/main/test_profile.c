// test_profile.c - ingot profile as a user calls it: the tables add up, its JSON, page and trace can be read,
// what is refused, and what a stopped or cut off profile leaves.
#include <jansson.h>
#include <math.h>
#include "program.h"
#include "base/file.h"

static char json_path[128], html_path[128], trace_path[128], other_path[128];

static int make_files(void **state)
{
    make_home(state);
    snprintf(json_path, sizeof json_path, "%s/profile.json", home);
    snprintf(html_path, sizeof html_path, "%s/profile.html", home);
    snprintf(trace_path, sizeof trace_path, "%s/trace.json", home);
    snprintf(other_path, sizeof other_path, "%s/other.json", home);
    return 0;
}

static struct outcome profile(const char *more)
{
    char line[1024];

    snprintf(line, sizeof line, "profile @ --short -d 8 %s", more);
    return run_with(line, "");
}

static void expect(const char *more, int status, const char *err_part)
{
    struct outcome o = profile(more);

    if (o.status != status || !strstr(o.err.at, err_part))
        fail_msg("%s: status %d, stderr '%s'; expected %d, '%s'", more, o.status, o.err.at, status, err_part);
    outcome_free(&o);
}

static double number(const json_t *o, const char *key)
{
    const json_t *value = json_object_get(o, key);

    if (!json_is_number(value))
        fail_msg("no number '%s'", key);
    return json_number_value(value);
}

static json_t *read_json(const char *path)
{
    json_error_t wrong;
    json_t *value = json_load_file(path, 0, &wrong);

    if (!value)
        fail_msg("%s, line %d: %s", path, wrong.line, wrong.text);
    return value;
}

// The first profile serves several tests.
static const json_t *first_profile(void)
{
    static json_t *first;

    if (!first) {
        struct outcome o = profile("-o json");
        if (o.status != 0)
            fail_msg("status %d: %s", o.status, o.err.at);
        write_file(json_path, o.out.at);
        outcome_free(&o);
        first = read_json(json_path);
    }
    return first;
}

static void commands_waits_and_the_rest_add_up_to_the_stamped_step(void **state)
{
    const json_t *steps = json_object_get(first_profile(), "steps");
    (void)state;

    assert_int_equal(json_array_size(steps), 3);
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *step = json_array_get(steps, i), *commands = json_object_get(step, "commands");
        double stamped = number(step, "stamped_ns"), sum = number(step, "start_ns") +
                                                           number(step, "link_ns") + number(step, "host_ns") +
                                                           number(step, "cuts_ns");
        assert_true(json_array_size(commands) > 10 && stamped > 0 && number(step, "plain_ns") > 0);
        for (size_t c = 0; c < json_array_size(commands); c++) {
            const json_t *command = json_array_get(commands, c);
            double ns = number(command, "ns"), wait = number(command, "wait_ns");
            assert_true(ns >= 0 && wait >= 0 && wait <= ns * 1.0001);
            sum += ns;
        }
        assert_true(fabs(sum - stamped) <= 1e-3 * stamped);
    }
}

static void every_phase_has_its_cases(void **state)
{
    static const char *const names[] = { "cold",     "warm",      "output 5", "output 50", "input 4",
                                         "input 16", "sustained", "1 stream", "16 streams" };
    const json_t *cases = json_object_get(first_profile(), "phases");
    (void)state;

    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        const json_t *found = NULL;
        for (size_t i = 0; i < json_array_size(cases); i++)
            if (!strcmp(json_string_value(json_object_get(json_array_get(cases, i), "name")), names[n]))
                found = json_array_get(cases, i);
        if (!found)
            fail_msg("no case '%s'", names[n]);
        size_t runs = json_array_size(json_object_get(found, "run_ms")),
               streams = (size_t)number(found, "streams");
        assert_int_equal(json_array_size(json_object_get(found, "first_ms")), runs * streams);
        assert_int_equal(json_array_size(json_object_get(found, "gaps_ms")),
                         runs * streams * ((size_t)number(found, "answer") - 1));
        assert_true(number(found, "tokens_per_second") > 0 && number(found, "first_ms_p50") > 0);
    }
}

// Elements are closed in the order in which they were opened; those that HTML leaves empty have no end.
static void check_html(const char *text)
{
    char open[64][16];
    size_t n = 0;

    for (const char *at = strchr(text, '<'); at; at = strchr(at + 1, '<')) {
        char name[16];
        bool closes = at[1] == '/';
        size_t length = strcspn(at + 1 + closes, " >/\n");
        const char *end = strchr(at, '>');
        assert_true(end && length > 0 && length < sizeof name);
        snprintf(name, sizeof name, "%.*s", (int)length, at + 1 + closes);
        if (closes) {
            if (n == 0 || strcmp(open[n - 1], name) != 0)
                fail_msg("</%s> closes %s", name, n ? open[n - 1] : "nothing");
            n--;
        } else if (end[-1] != '/' && strcmp(name, "meta") != 0 && strcmp(name, "!DOCTYPE") != 0) {
            assert_true(n < 64);
            snprintf(open[n++], sizeof *open, "%s", name);
        }
    }
    if (n)
        fail_msg("<%s> stays open", open[n - 1]);
}

static void the_page_is_whole_and_needs_nothing_from_elsewhere(void **state)
{
    struct buf page = { 0 };
    struct err err = { 0 };
    char more[400];
    (void)state;

    snprintf(more, sizeof more, "--html %s --trace-json %s", html_path, trace_path);
    expect(more, 0, "");
    assert_ok(file_read(&page, html_path, 1 << 20, &err), &err);
    assert_true(page.n < 300000 && !strncmp(page.at, "<!DOCTYPE html>", 15));
    assert_true(!strstr(page.at, "<script") && !strstr(page.at, "http") && !strstr(page.at, "url("));
    assert_true(!strstr(page.at, "nan") && !strstr(page.at, "inf"));
    assert_true(strstr(page.at, "prefers-color-scheme:dark") && strstr(page.at, "@media print"));
    check_html(page.at);
    buf_free(&page);
}

static void the_trace_nests_and_flows(void **state)
{
    json_t *trace = read_json(trace_path);
    const json_t *events = json_object_get(trace, "traceEvents");
    size_t n_slices = 0, n_starts = 0, n_ends = 0, n_requests = 0;
    (void)state;

    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        const char *phase = json_string_value(json_object_get(e, "ph"));
        n_slices += *phase == 'X';
        n_starts += *phase == 's';
        n_ends += *phase == 'f';
        n_requests += !strcmp(json_string_value(json_object_get(e, "name")), "first token");
        assert_true(json_is_integer(json_object_get(e, "pid")));
        if (*phase == 'X')
            assert_true(number(e, "ts") >= 0 && number(e, "dur") >= 0);
    }
    assert_true(n_slices > 30 && n_starts == 3 && n_ends == 3);
    const json_t *cases = json_object_get(first_profile(), "phases");
    for (size_t i = 0; i < json_array_size(cases); i++)
        n_requests -= json_array_size(json_object_get(json_array_get(cases, i), "first_ms"));
    assert_int_equal(n_requests, 0); // one for each
    json_decref(trace);
}

static void scale(json_t *times, double factor)
{
    for (size_t i = 0; i < json_array_size(times); i++)
        json_array_set_new(times, i, json_real(json_number_value(json_array_get(times, i)) * factor));
}

// Writes the first profile with all times that are compared that many times as long.
static void write_older(double factor)
{
    json_t *old = json_deep_copy(first_profile());
    json_t *steps = json_object_get(old, "steps"), *cases = json_object_get(old, "phases");

    for (size_t i = 0; i < json_array_size(steps); i++)
        scale(json_object_get(json_array_get(steps, i), "plain_samples_ns"), factor);
    for (size_t i = 0; i < json_array_size(cases); i++)
        scale(json_object_get(json_array_get(cases, i), "run_ms"), factor);
    assert_int_equal(json_dump_file(old, other_path, 0), 0);
    json_decref(old);
}

static void compare_with_older(double factor, int status, const char *part)
{
    char more[400];

    write_older(factor);
    snprintf(more, sizeof more, "--against %s --tolerance 100", other_path);
    struct outcome o = profile(more);
    if (o.status != status || !strstr(o.out.at, part) || !strstr(o.out.at, "## Against ") ||
        !strstr(o.out.at, "step: prefill"))
        fail_msg("status %d, stderr '%s', stdout '%s'", o.status, o.err.at, o.out.at);
    outcome_free(&o);
}

// Against a thousand times as long: a busy machine does not make up for it.
static void what_became_faster_passes(void **state)
{
    (void)state;
    compare_with_older(1e3, 0, "faster");
}

static void what_became_slower_fails(void **state)
{
    (void)state;
    compare_with_older(1e-3, 1, "slower");
}

static void against(const char *text, const char *err_part)
{
    char more[400];

    write_file(other_path, text);
    snprintf(more, sizeof more, "--against %s", other_path);
    expect(more, 1, err_part);
}

static void what_cannot_be_compared_is_refused(void **state)
{
    char *deep = malloc(100002);
    (void)state;

    expect("--against /nowhere/profile.json", 1, "/nowhere/profile.json: ");
    expect("--against /dev/null -o json", 2, "leave out -o json");
    against("", "no JSON");
    against("{\"schema\": \"ingot-profile-1\"", "no JSON");
    against("[1, 2]", "the schema is ''");
    against("{\"schema\": \"ingot-profile-9\"}", "the schema is 'ingot-profile-9'");
    against("{\"schema\": \"ingot-profile-1\"}", "name was '' and is ");
    against("{\"schema\": \"ingot-profile-1\", \"model\": [], \"steps\": 7, \"phases\": {\"a\": 1}}",
            "name was '' and is ");
    memset(deep, '[', 100000);
    deep[100000] = 0;
    against(deep, "no JSON");
    free(deep);
}

// The right model, and nonsense in every place: nothing can be said, and nothing breaks.
static void nonsense_in_an_older_profile_says_nothing(void **state)
{
    static const char *const nonsense[] = { "{}", "\"x\"", "[[[]], null, -1e308, 1e308, 0, \"\"]" };
    (void)state;

    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++) {
        json_t *old = json_deep_copy(first_profile()), *steps = json_object_get(old, "steps"),
               *cases = json_object_get(old, "phases");
        char more[400];
        for (size_t k = 0; k < json_array_size(steps); k++) {
            json_object_set_new(json_array_get(steps, k), "commands",
                                json_loads(nonsense[i], JSON_DECODE_ANY, NULL));
            json_object_set_new(json_array_get(steps, k), "plain_samples_ns",
                                json_loads(nonsense[i], JSON_DECODE_ANY, NULL));
        }
        for (size_t k = 0; k < json_array_size(cases); k++)
            json_object_set_new(json_array_get(cases, k), "run_ms",
                                json_loads(nonsense[i], JSON_DECODE_ANY, NULL));
        json_object_set_new(old, "commit", json_loads(nonsense[i], JSON_DECODE_ANY, NULL));
        assert_int_equal(json_dump_file(old, other_path, 0), 0);
        json_decref(old);
        snprintf(more, sizeof more, "--against %s", other_path);
        struct outcome o = profile(more);
        if (o.status != 0 || !strstr(o.out.at, "cannot say"))
            fail_msg("%s: status %d, stderr '%s'", nonsense[i], o.status, o.err.at);
        outcome_free(&o);
    }
}

static void files_that_cannot_be_written_are_told(void **state)
{
    (void)state;
    expect("--html /nowhere/page.html", 1, "/nowhere/page.html");
    expect("--trace-json /nowhere/trace.json", 1, "/nowhere/trace.json");
    expect("-o xml", 2, "xml");
    expect("-d 100000", 0, ""); // the steps are left out, the phases are not
}

static void bench_draws_its_rows(void **state)
{
    struct buf drawn = { 0 };
    struct err err = { 0 };
    char line[400];
    (void)state;

    snprintf(line, sizeof line, "bench @ -p 8 -n 4 -pg 4,4 -r 2 --svg %s", html_path);
    struct outcome o = run_with(line, "");
    if (o.status != 0)
        fail_msg("status %d: %s", o.status, o.err.at);
    assert_ok(file_read(&drawn, html_path, 1 << 20, &err), &err);
    assert_true(!strncmp(drawn.at, "<svg", 4) && strstr(drawn.at, "pp8") && strstr(drawn.at, "pp4+tg4"));
    assert_true(strstr(drawn.at, "<rect") && !strstr(drawn.at, "nan") && !strstr(drawn.at, "inf"));
    check_html(drawn.at);
    buf_free(&drawn);
    outcome_free(&o);
}

static void csv_has_one_set_of_columns(void **state)
{
    struct outcome o = profile("-o csv");
    uint32_t n_columns = 0;
    (void)state;

    assert_int_equal(o.status, 0);
    for (char *line = strtok(o.out.at, "\n"); line; line = strtok(NULL, "\n")) {
        uint32_t n = 1;
        for (const char *c = line; *c; c++)
            n += *c == ',';
        assert_true(n_columns == 0 || n == n_columns);
        n_columns = n;
    }
    assert_int_equal(n_columns, 15);
    outcome_free(&o);
}

static void ctrl_c_prints_what_there_is(void **state)
{
    struct outcome o = { 0 };
    struct running r = start("profile @ -v", (struct streams){ -1, -1, -1 });
    char first;
    (void)state;

    assert_int_equal(read(r.err, &first, 1), 1); // its log: it has begun to load
    kill(r.pid, SIGINT);
    collect(&r, &o);
    if (o.status != 130 || (o.out.n && !strstr(o.out.at, "## Phases")))
        fail_msg("status %d, stdout '%s', stderr '%s'", o.status, o.out.at, o.err.at);
    outcome_free(&o);
}

static void a_closed_pipe_ends_it_quietly(void **state)
{
    struct outcome o = { 0 };
    struct running r = start("profile @ --short -d 8", (struct streams){ -1, -1, -1 });
    (void)state;

    close(r.out);
    r.out = open("/dev/null", O_RDONLY);
    collect(&r, &o);
    if (o.status != 0 || o.err.n > 1)
        fail_msg("status %d, stderr '%s'", o.status, o.err.at);
    outcome_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_waits_and_the_rest_add_up_to_the_stamped_step),
        cmocka_unit_test(every_phase_has_its_cases),
        cmocka_unit_test(the_page_is_whole_and_needs_nothing_from_elsewhere),
        cmocka_unit_test(the_trace_nests_and_flows),
        cmocka_unit_test(what_became_faster_passes),
        cmocka_unit_test(what_became_slower_fails),
        cmocka_unit_test(what_cannot_be_compared_is_refused),
        cmocka_unit_test(nonsense_in_an_older_profile_says_nothing),
        cmocka_unit_test(files_that_cannot_be_written_are_told),
        cmocka_unit_test(bench_draws_its_rows),
        cmocka_unit_test(csv_has_one_set_of_columns),
        cmocka_unit_test(ctrl_c_prints_what_there_is),
        cmocka_unit_test(a_closed_pipe_ends_it_quietly),
    };
    return cmocka_run_group_tests(tests, make_files, remove_home);
}
