// test_energy.c - counters of energy in a folder as Linux shows them: sums, wraps, and what cannot be read.
#include "base/energy.h"
#include <sys/stat.h>
#include "folder.h"

static void write_counter(const char *package, const char *name, const char *text)
{
    char path[160];

    snprintf(path, sizeof path, "%s/%s", folder, package);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/%s", folder, package, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static double joules_of(struct energy_meter *m)
{
    struct energy_reading r = energy_read(m);

    assert_true(r.has_processor);
    return r.processor_joules;
}

static void packages_are_summed_and_wraps_are_seen(void **state)
{
    struct energy_meter m;
    (void)state;

    write_counter("intel-rapl:0", "energy_uj", "5000000\n");
    write_counter("intel-rapl:0", "max_energy_range_uj", "10000000\n");
    write_counter("intel-rapl:1", "energy_uj", "0\n");
    write_counter("intel-rapl:1", "max_energy_range_uj", "10000000\n");
    write_counter("intel-rapl:0:0", "energy_uj", "999\n"); // a part of the first
    energy_open(&m, folder);
    assert_true(joules_of(&m) == 0);
    write_counter("intel-rapl:0", "energy_uj", "9000000\n");
    write_counter("intel-rapl:1", "energy_uj", "1500000\n");
    assert_true(joules_of(&m) > 5.4999 && joules_of(&m) < 5.5001);
    write_counter("intel-rapl:0", "energy_uj", "2000000\n"); // 1 to the end, 2 from the beginning
    assert_true(joules_of(&m) > 8.4999 && joules_of(&m) < 8.5001);
    write_counter("intel-rapl:0", "energy_uj", "nonsense\n"); // the last one stays
    assert_true(joules_of(&m) > 8.4999 && joules_of(&m) < 8.5001);
    energy_close(&m);
}

static void what_cannot_be_read_is_no_source(void **state)
{
    static const char *const wrong[] = { "", "-5\n", "1e9\n", "99999999999999999999999\n", "12 13\n" };
    struct energy_meter m;
    (void)state;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_counter("intel-rapl:0", "energy_uj", wrong[i]);
        write_counter("intel-rapl:1", "energy_uj", wrong[i]);
        energy_open(&m, folder);
        assert_false(energy_read(&m).has_processor);
        energy_close(&m);
    }
    energy_open(&m, "/nowhere");
    assert_false(energy_read(&m).has_processor);
    energy_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packages_are_summed_and_wraps_are_seen),
        cmocka_unit_test(what_cannot_be_read_is_no_source),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
