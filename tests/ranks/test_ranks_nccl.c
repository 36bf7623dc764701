// test_ranks_nccl.c - ranks of several processes whose GPUs send activations to each other by NCCL, on a fake
// driver and a fake NCCL: what goes over MPI then, and what where one of them cannot.
//
// The test starts mpirun with itself: `test_ranks_nccl CASE FILE`. Rank 0 writes what went over its link.
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>
#include "device/communicator.h"
#include "engine/api.h"
#include "engine/api/follow.h"
#include "engine/stage/remote.h"
// behind ingot.h
#include "device/fake_driver.h"

#define FOLDER BINARY_DIR "/fake_nccl/"
enum { N_PROMPT = 40, N_NEW = 8, PATTERN_BYTES = 16384 };
enum { HEAD = 16 + 8 * 4, ROW = 6 * 4, OUTPUT = 2 * 4 + 48, NEWS = (4 + 3) * 4 }; // bytes of messages

static char self[4096];

static const char *missing(void)
{
    if (access(BINARY_DIR "/libingot_mpi.so", R_OK) != 0)
        return "this build has no plug-in for MPI: mpicc was not found";
    if (cuda_n_images == 0)
        return "this build holds no CUDA kernels";
    return system("mpirun --version 2>/dev/null | grep -q 'Open MPI'") == 0 ? NULL
                                                                            : "Open MPI's mpirun is not here";
}

static void write_traffic(const struct ingot_engine_options *o, FILE *out)
{
    struct ingot_request_options r = request();
    struct ingot_error error = { 0 };
    uint32_t tokens[N_PROMPT];

    struct ingot_engine *engine = ingot_engine_open(o, &error);
    if (!engine)
        fail_msg("%s", error.message);
    for (uint32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = 20 + i;
    r.tokens = tokens;
    r.n_tokens = N_PROMPT;
    r.max_tokens = N_NEW;
    const struct engine_loaded *l = engine->inner.loaded;
    uint64_t before = l->devices.at[0]->counters.sent_bytes, waits = l->devices.at[0]->counters.waits;
    if (!ingot_generate(engine, &r, NULL, NULL, NULL, &error)) {
        fprintf(out, "%s\n", error.message);
        ingot_engine_close(engine);
        return;
    }
    struct rank_traffic t = ranks_traffic(l->remote->ranks, 1);
    fprintf(out, "%s: %llu messages, %llu bytes; by the device %llu and %llu bytes, %llu waits\n",
            l->remote->communicator ? l->remote->communicator->name : "MPI", (unsigned long long)t.n_sent,
            (unsigned long long)t.sent_bytes, (unsigned long long)before,
            (unsigned long long)(l->devices.at[0]->counters.sent_bytes - before),
            (unsigned long long)(l->devices.at[0]->counters.waits - waits));
    ingot_engine_close(engine);
}

static void note_alarm(int number)
{
    (void)number;
    ranks_alarm();
}

static int work_as_rank(const char *name, const char *path)
{
    bool is_first = !strcmp(getenv("OMPI_COMM_WORLD_RANK"), "0");
    bool has_nccl = strcmp(name, "one") != 0 || is_first; // "one": rank 0 alone
    struct ingot_engine_options o = ingot_engine_defaults();
    struct err err = { 0 };

    // opened here, it is found by its name afterwards
    void *nccl = dlopen(has_nccl ? FOLDER "apart/libnccl.so.2" : FOLDER "short/libnccl.so.2", RTLD_NOW);
    if (!nccl)
        return 1;
    if (!strcmp(name, "dies") && !is_first)
        *(int *)dlsym(nccl, "fake_nccl_last") = 5;
    signal(SIGTERM, note_alarm); // of mpirun, when a rank is gone
    fake.memory_bytes = 1ull << 32;
    driver_replace(&driver);
    o.model = SOURCE_DIR "/models/ingot-7m-q8_0.gguf";
    o.device = "cuda";
    o.n_batch = 64;
    o.n_context = 256;
    o.n_sequences = 1;
    o.speculate = INGOT_SPECULATE_OFF;
    remote_want();
    if (!is_first)
        return engine_follow(&o, &err);
    FILE *out = fopen(path, "wb");
    if (!out)
        return 1;
    write_traffic(&o, out);
    return fclose(out);
}

static void check_traffic(const char *name, uint32_t n_ranks, const char *wanted)
{
    bool ends = !strcmp(name, "dies"); // mpirun's status is not 0 then
    char folder[] = "/tmp/ingot_ranks_XXXXXX", path[64], got[512] = "";

    if (missing()) {
        print_message("skipped: %s\n", missing());
        skip();
    }
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/out", folder);
    shell("ASAN_OPTIONS=detect_leaks=0 timeout 60 mpirun --bind-to none --map-by :OVERSUBSCRIBE "
          "--allow-run-as-root -n %u %s %s %s >&2%s",
          n_ranks, self, name, path, ends ? " || true" : "");
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_non_null(fgets(got, sizeof got, f));
    fclose(f);
    if (ends)
        assert_non_null(strstr(got, wanted));
    else
        assert_string_equal(got, wanted);
    shell("rm -r %s", folder);
}

// The pattern, then the rows of all steps.
static void activations_go_from_device_to_device(void **state)
{
    uint64_t rows = N_PROMPT + N_NEW - 1, n_cols = 256;
    char wanted[512];
    (void)state;

    snprintf(wanted, sizeof wanted,
             "NCCL 2.27.3: %d messages, %llu bytes; by the device %d and %llu bytes, 0 waits\n", N_NEW,
             (unsigned long long)(N_NEW * (HEAD + OUTPUT) + rows * ROW + NEWS), PATTERN_BYTES,
             (unsigned long long)(rows * n_cols * 4));
    check_traffic("all", 2, wanted);
    check_traffic("all", 3, wanted);
}

static void one_that_cannot_leaves_it_to_mpi(void **state)
{
    uint64_t rows = N_PROMPT + N_NEW - 1, n_cols = 256;
    char wanted[512];
    (void)state;

    snprintf(wanted, sizeof wanted, "MPI: %d messages, %llu bytes; by the device 0 and 0 bytes, %d waits\n",
             N_NEW, (unsigned long long)(N_NEW * (HEAD + OUTPUT) + rows * (ROW + n_cols * 4) + NEWS), N_NEW);
    check_traffic("one", 2, wanted);
}

// Rank 0 waits in NCCL then, which ends by itself never.
static void a_rank_that_dies_is_named(void **state)
{
    (void)state;
    check_traffic("dies", 2, "rank 1");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_go_from_device_to_device),
        cmocka_unit_test(one_that_cannot_leaves_it_to_mpi),
        cmocka_unit_test(a_rank_that_dies_is_named),
    };

    if (argc == 3)
        return work_as_rank(argv[1], argv[2]);
    if (!realpath(argv[0], self))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
