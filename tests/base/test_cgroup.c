// test_cgroup.c - quotas of processors and limits of memory: both versions, groups above, and files that say
// nothing.
#include "folder.h"
#include "base/cgroup.h"
#include "base/thread_pool.h"

static void put(const char *path, const char *text)
{
    shell("mkdir -p $(dirname %s/%s) && printf '%%s' '%s' > %s/%s", folder, path, text, folder, path);
}

// What a process in the groups of `membership` may use.
static unsigned cpus(const char *membership)
{
    char path[128];

    put("membership", membership);
    snprintf(path, sizeof path, "%s/membership", folder);
    return cgroup_n_cpus(path, folder);
}

static void version_2_is_read_up_to_the_mount(void **state)
{
    (void)state;
    put("a/b/cpu.max", "max 100000\n");
    assert_int_equal(cpus("0::/a/b\n"), 0);
    put("a/cpu.max", "350000 100000\n");
    assert_int_equal(cpus("0::/a/b\n"), 3);
    put("a/b/cpu.max", "50000 100000\n");
    assert_int_equal(cpus("0::/a/b\n"), 1); // never none
    put("cpu.max", "200000 100000\n");
    assert_int_equal(cpus("0::/a\n"), 2);
    assert_int_equal(cpus("0::/not/mounted/here\n"), 2); // a container that sees its own group as the mount
    assert_int_equal(cpus("0::/\n"), 2);
    put("cpu.max", "max 100000\n");
}

static void version_1_is_read(void **state)
{
    (void)state;
    put("cpu/x/cpu.cfs_quota_us", "-1\n");
    put("cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(cpus("3:memory:/x\n2:cpuacct,cpu:/x\n1:cpuset:/\n"), 0);
    put("cpu/x/cpu.cfs_quota_us", "400000\n");
    assert_int_equal(cpus("3:memory:/x\n2:cpuacct,cpu:/x\n1:cpuset:/\n"), 4);
    assert_int_equal(cpus("3:cpuset:/x\n"), 0);
}

static void nonsense_is_no_quota(void **state)
{
    (void)state;
    assert_int_equal(cgroup_n_cpus("/nowhere", folder), 0);
    assert_int_equal(cpus("nonsense\n:\n::\n0:\n"), 0);
    put("n/cpu.max", "100000 0\n");
    assert_int_equal(cpus("0::/n\n"), 0);
    put("n/cpu.max", "9999999999999999999 1\n");
    assert_true(cpus("0::/n\n") >= 65536);
    put("n/cpu.max", "");
    assert_int_equal(cpus("0::/n\n"), 0);
}

static uint64_t memory(const char *membership)
{
    char path[128];

    put("membership", membership);
    snprintf(path, sizeof path, "%s/membership", folder);
    return cgroup_memory_bytes(path, folder);
}

static void the_least_memory_counts(void **state)
{
    (void)state;
    put("m/g/memory.max", "max\n");
    assert_int_equal(memory("0::/m/g\n"), 0);
    put("m/memory.max", "3221225472\n");
    assert_int_equal(memory("0::/m/g\n"), 3221225472);
    put("m/g/memory.max", "1073741824\n");
    assert_int_equal(memory("0::/m/g\n"), 1073741824);
    put("memory/v/memory.limit_in_bytes", "9223372036854771712\n"); // no limit
    assert_int_equal(memory("4:memory:/v\n"), 0);
    put("memory/v/memory.limit_in_bytes", "2147483648\n");
    assert_int_equal(memory("5:cpu:/m/g\n4:memory:/v\n"), 2147483648);
    put("memory/v/memory.limit_in_bytes", "much\n");
    assert_int_equal(memory("4:memory:/v\n"), 0);
    assert_int_equal(cgroup_memory_bytes("/nowhere", folder), 0);
}

static void threads_are_capped(void **state)
{
    unsigned n = thread_count_available();
    (void)state;

    assert_true(n >= 1);
    assert_int_equal(thread_count_capped(0), n);
    assert_int_equal(thread_count_capped(1), 1);
    assert_int_equal(thread_count_capped(UINT32_MAX), n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_2_is_read_up_to_the_mount),
        cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(nonsense_is_no_quota),
        cmocka_unit_test(the_least_memory_counts),
        cmocka_unit_test(threads_are_capped),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
