// test_hub_pull.c - pulling from a hub that misbehaves: whatever it sends, a file has its name only when its
// bytes are right.
#include "mirror.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include "base/clock.h"
#include "base/file.h"
#include "hub/hub_cache.h"
#include "hub/hub_pull.h"

enum { FILE_BYTES = 300000 };

struct pull_place {
    struct mirror mirror;
    struct hub hub;
};

static int place_open(void **state)
{
    struct pull_place *p = calloc(1, sizeof *p);

    setenv("no_proxy", "*", 1);
    mirror_start(&p->mirror);
    snprintf(p->hub.cache, sizeof p->hub.cache, "/tmp/ingot-hub-XXXXXX");
    assert_non_null(mkdtemp(p->hub.cache));
    snprintf(p->hub.endpoint, sizeof p->hub.endpoint, "http://127.0.0.1:%d", p->mirror.port);
    snprintf(p->hub.token, sizeof p->hub.token, "hf_secret");
    p->hub.n_tries = 4;
    p->hub.retry_ms = 1;
    p->hub.stall_s = 1;
    *state = p;
    return 0;
}

static int place_close(void **state)
{
    struct pull_place *p = *state;

    mirror_stop(&p->mirror);
    shell("rm -r %s", p->hub.cache);
    free(p);
    return 0;
}

static bool pull(struct pull_place *p, const char *text, struct hub_pulled *pulled, struct err *err)
{
    struct hub_name name;

    assert_ok(hub_name_read(&name, text, err), err);
    mirror_sync(&p->mirror);
    bool ok = hub_pull(&p->hub, &name, NULL, pulled, err);
    mirror_sync(&p->mirror);
    return ok;
}

static void blob_path(const struct pull_place *p, const struct mirror_file *f, const char *ending,
                      char path[HUB_PATH])
{
    char below[128];
    struct err err;

    snprintf(below, sizeof below, "/blobs/%s%s", f->oid, ending);
    assert_ok(hub_repo_path(&p->hub, "a/b", below, path, &err), &err);
}

// The file under its final name: byte for byte, or not there.
static bool file_is_right(const struct pull_place *p, const struct mirror_file *f)
{
    char path[HUB_PATH];
    struct buf have = { 0 };
    struct err err;

    blob_path(p, f, "", path);
    if (!file_exists(path))
        return false;
    assert_ok(file_read(&have, path, 1 << 30, &err), &err);
    assert_int_equal(have.n, f->n);
    assert_memory_equal(have.at ? have.at : "", f->bytes, f->n);
    buf_free(&have);
    return true;
}

static void cache_empty(const struct pull_place *p)
{
    shell("rm -rf %s/models--a--b", p->hub.cache);
}

// ---- when all goes well -----------------------------------------------------------------------------------

static void a_file_arrives_where_others_look_for_it(void **state)
{
    struct pull_place *p = *state;
    struct mirror_file *f = mirror_add(&p->mirror, "sub/m-Q4_K_M.gguf", FILE_BYTES, true);
    char expected[HUB_PATH + 128];
    struct hub_pulled pulled;
    struct err err;

    assert_ok(pull(p, "a/b", &pulled, &err), &err);
    snprintf(expected, sizeof expected, "%s/models--a--b/snapshots/%s/sub/m-Q4_K_M.gguf", p->hub.cache,
             p->mirror.commit);
    assert_string_equal(pulled.path, expected);
    assert_int_equal(pulled.received, FILE_BYTES);
    assert_true(file_is_right(p, f));
    shell(
        "cd %s/models--a--b && test $(readlink snapshots/*/sub/m-Q4_K_M.gguf) = ../../../blobs/%s && cmp -s "
        "snapshots/*/sub/m-Q4_K_M.gguf blobs/%s && test $(cat refs/main) = %s && test $(ls -A blobs | wc -l) "
        "= 1 && "
        "test \"$(ls -A | tr '\\n' ' ')\" = 'blobs refs snapshots '",
        p->hub.cache, f->oid, f->oid, p->mirror.commit);
    assert_string_equal(p->mirror.notes[0].path, "/api/models/a/b/revision/main?blobs=true");
    assert_string_equal(p->mirror.notes[0].authorization, "Bearer hf_secret");

    mirror_faults(&p->mirror, NULL);
    assert_ok(pull(p, "a/b:Q4_K_M", &pulled, &err), &err);
    assert_int_equal(pulled.received, 0);
    assert_int_equal(mirror_n_files_asked(&p->mirror), 0);
}

static void all_files_of_a_model_arrive(void **state)
{
    static const char *const paths[] = { "m-Q8_0-00001-of-00003.gguf",
                                         "m-Q8_0-00002-of-00003.gguf",
                                         "m-Q8_0-00003-of-00003.gguf",
                                         "model-00001-of-00002.safetensors",
                                         "model-00002-of-00002.safetensors",
                                         "model.safetensors.index.json",
                                         "config.json",
                                         "tokenizer.json",
                                         "README.md" };
    struct pull_place *p = *state;
    struct hub_pulled pulled;
    struct hub_name name;
    char path[HUB_PATH];
    struct err err;

    for (size_t i = 0; i < 9; i++)
        mirror_add(&p->mirror, paths[i], 1000 + i, i < 5);
    mirror_add(&p->mirror, "special_tokens_map.json", 0, false);
    assert_ok(pull(p, "a/b:Q8_0", &pulled, &err), &err);
    assert_int_equal(mirror_n_files_asked(&p->mirror), 3);
    assert_int_equal(pulled.bytes, 3 * 1000 + 3);
    mirror_faults(&p->mirror, NULL);
    assert_ok(pull(p, "a/b:safetensors", &pulled, &err), &err);
    assert_int_equal(mirror_n_files_asked(&p->mirror), 5); // the empty one need not be asked for
    for (size_t i = 0; i < p->mirror.n_files; i++)
        assert_int_equal(file_is_right(p, &p->mirror.files[i]), i != 8);
    assert_ok(hub_name_read(&name, "a/b:safetensors", &err), &err);
    assert_ok(hub_find(&p->hub, &name, path, &err), &err);
    assert_string_equal(path, pulled.path);
    assert_true(file_is_directory(path));
}

// One vision projector comes with every GGUF model of its folder, and goes with the last of them.
static void the_eyes_of_a_model_arrive(void **state)
{
    static const char *const paths[] = { "m-Q4_K_M.gguf",     "m-Q8_0.gguf",        "mmproj-m-F32.gguf",
                                         "mmproj-m-f16.gguf", "mmproj-m-Q8_0.gguf", "x/m-Q6_K.gguf",
                                         "x/mmproj.gguf" };
    struct pull_place *p = *state;
    struct hub_pulled pulled;
    uint64_t freed;
    struct err err;

    for (size_t i = 0; i < 7; i++)
        mirror_add(&p->mirror, paths[i], 1000 + i, true);
    assert_ok(pull(p, "a/b", &pulled, &err), &err);
    assert_non_null(strstr(pulled.path, "/m-Q4_K_M.gguf"));
    assert_int_equal(mirror_n_files_asked(&p->mirror), 2);
    assert_int_equal(pulled.bytes, 1000 + 1003);
    assert_ok(pull(p, "a/b:Q8_0", &pulled, &err), &err);
    assert_int_equal(mirror_n_files_asked(&p->mirror), 3);
    assert_ok(pull(p, "a/b:Q6_K", &pulled, &err), &err);
    for (size_t i = 0; i < 7; i++)
        assert_int_equal(file_is_right(p, &p->mirror.files[i]), i != 2 && i != 4);
    assert_ok(hub_remove(&p->hub, "a/b:Q4_K_M", &freed, &err), &err);
    assert_int_equal(freed, 1000);
    assert_ok(hub_remove(&p->hub, "a/b:Q8_0", &freed, &err), &err);
    assert_int_equal(freed, 1001 + 1003);
    assert_ok(hub_remove(&p->hub, "a/b:Q6_K", &freed, &err), &err);
    assert_int_equal(freed, 1005 + 1006);
    assert_false(file_exists(pulled.path));
}

static void a_newer_revision_leaves_the_old_one(void **state)
{
    struct pull_place *p = *state;
    struct hub_pulled old, new;
    struct err err;

    struct mirror_file *f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", 5000, true), first = *f;
    assert_ok(pull(p, "a/b@branch/x", &old, &err), &err);
    assert_non_null(strstr(p->mirror.notes[0].path, "/revision/branch%2Fx?"));
    p->mirror.n_files = 0;
    f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", 6000, true);
    p->mirror.commit[0] = 'd';
    assert_ok(pull(p, "a/b@branch/x", &new, &err), &err);
    assert_true(file_is_right(p, f) && file_is_right(p, &first));
    assert_string_not_equal(old.path, new.path);
    assert_true(file_exists(old.path) && file_exists(new.path));
    shell("test $(cat %s/models--a--b/refs/branch/x) = %s", p->hub.cache, p->mirror.commit);
    free(first.bytes);
}

static void sums_are_those_of_git(void **state)
{
    struct hub_digest *sum = hub_digest_open("ce013625030ba8dba906f756967f9e9ca394464a", 6);
    char oid[HUB_OID + 1];
    (void)state;

    hub_digest_add(sum, "hel", 3);
    hub_digest_restart(sum);
    hub_digest_add(sum, "hello\n", 6);
    hub_digest_take(sum, oid);
    // echo hello | git hash-object --stdin
    assert_string_equal(oid, "ce013625030ba8dba906f756967f9e9ca394464a");
    hub_digest_close(sum);
}

// ---- when something goes wrong ----------------------------------------------------------------------------

static void what_passes_is_overcome(void **state)
{
    static const int faults[][8] = {
        { CUT, -1 },
        { CUT, CUT, CUT, -1 },
        { SHORT_LENGTH, SHORT_LENGTH, -1 },
        { NO_LENGTH, -1 },
        { SLOW, -1 },
        { CUT, WHOLE, -1 },
        { CUT, WRONG_RANGE, -1 },
        { CUT, STATUS + 416, -1 },
        { CUT, OTHER_TAG, -1 },
        { CUT, BLIND, -1 },
        { LONG, -1 },
        { FLIPPED, -1 },
        { CUT, FLIPPED, -1 },
        { STATUS + 500, STATUS + 503, STATUS + 429, -1 },
        { STATUS + 408, CUT, STATUS + 502, -1 },
        { AWAY, -1 },
        { STALL, -1 },
    };
    struct pull_place *p = *state;
    struct mirror_file *f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", FILE_BYTES, true);
    struct hub_pulled pulled;
    struct err err;

    p->mirror.away = p->mirror.port;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        mirror_faults(&p->mirror, faults[i]);
        if (!pull(p, "a/b", &pulled, &err))
            fail_msg("case %zu: %s", i, err.message);
        assert_true(file_is_right(p, f));
        assert_true(p->mirror.next_fault == p->mirror.n_faults);
        cache_empty(p);
    }
}

static void what_does_not_pass_is_told_in_time(void **state)
{
    static const struct {
        int faults[8];
        const char *message;
        size_t n_asked;
    } cases[] = {
        { { FLIPPED, FLIPPED, -1 }, "the sum of what came is ", 2 },
        { { LONG, LONG, LONG, LONG, -1 }, "gave up after 4 tries: ", 4 },
        { { LONG, LONG, LONG, LONG, -1 }, "more bytes than the 300000 of the list", 4 },
        { { CUT, WRONG_RANGE, CUT, WRONG_RANGE, -1 },
          "asked for bytes 150000 to the end of 300000, got others",
          4 },
        { { STATUS + 503, STATUS + 503, STATUS + 503, STATUS + 503, -1 }, "status 503: told by the hub", 4 },
        { { STATUS + 404, -1 }, "status 404: told by the hub", 1 },
        { { STATUS + 403, -1 }, "the token may not read it", 1 },
    };
    struct pull_place *p = *state;
    struct mirror_file *f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", FILE_BYTES, true);
    struct hub_pulled pulled;
    struct hub_name name;
    char path[HUB_PATH];
    struct err err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mirror_faults(&p->mirror, cases[i].faults);
        assert_fails(pull(p, "a/b", &pulled, &err), &err, cases[i].message);
        assert_int_equal(mirror_n_files_asked(&p->mirror), cases[i].n_asked);
        assert_false(file_is_right(p, f));
        assert_ok(hub_name_read(&name, "a/b", &err), &err);
        assert_fails(hub_find(&p->hub, &name, path, &err), &err, "not in the cache");
        cache_empty(p);
    }
}

static void redirects_have_an_end(void **state)
{
    int faults[MAX_FAULTS];
    struct pull_place *p = *state;
    struct hub_pulled pulled;
    struct err err;

    mirror_add(&p->mirror, "m-Q4_K_M.gguf", FILE_BYTES, true);
    for (int i = 0; i < MAX_FAULTS; i++)
        faults[i] = i + 1 < MAX_FAULTS ? LOOP : -1;
    mirror_faults(&p->mirror, faults);
    assert_fails(pull(p, "a/b", &pulled, &err), &err, "redirects");
    assert_int_equal(mirror_n_files_asked(&p->mirror), 11);
}

static void the_token_stays_with_its_host(void **state)
{
    static const int away[] = { AWAY, -1 };
    struct pull_place *p = *state;
    struct mirror other;
    struct hub_pulled pulled;
    struct err err;

    mirror_start(&other);
    struct mirror_file *f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", 5000, true);
    mirror_add(&other, "m-Q4_K_M.gguf", 5000, true);
    p->mirror.away = other.port;
    mirror_sync(&other);
    mirror_faults(&p->mirror, away);
    assert_ok(pull(p, "a/b", &pulled, &err), &err);
    assert_true(file_is_right(p, f));
    assert_int_equal(p->mirror.n_notes, 2);
    assert_string_equal(p->mirror.notes[1].authorization, "Bearer hf_secret");
    mirror_sync(&other);
    assert_int_equal(other.n_notes, 1);
    assert_string_equal(other.notes[0].authorization, "");
    mirror_stop(&other);
}

static void retry_after_is_heeded(void **state)
{
    static const int busy[] = { STATUS + 429, -1 };
    struct pull_place *p = *state;
    struct hub_pulled pulled;
    struct err err;

    mirror_add(&p->mirror, "m-Q4_K_M.gguf", 5000, true);
    p->mirror.retry_after = "86400";
    mirror_faults(&p->mirror, busy);
    assert_fails(pull(p, "a/b", &pulled, &err), &err, "asks to wait 86400 s");
    p->mirror.retry_after = "1";
    mirror_faults(&p->mirror, busy);
    uint64_t begun = clock_ns();
    assert_ok(pull(p, "a/b", &pulled, &err), &err);
    assert_true(clock_ns() - begun >= 1000000000u); // not before; how long after depends on the machine
}

// ---- parts ------------------------------------------------------------------------------------------------

static void part_write(const struct pull_place *p, const struct mirror_file *f, size_t n, unsigned char flip)
{
    char path[HUB_PATH];

    shell("mkdir -p %s/models--a--b/blobs", p->hub.cache);
    blob_path(p, f, ".incomplete", path);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (size_t i = 0; i < n; i++)
        fputc(f->bytes[i % f->n] ^ flip, out);
    assert_int_equal(fclose(out), 0);
}

static void a_part_is_gone_on_with(void **state)
{
    static const int cut[] = { CUT, -1 };
    struct pull_place *p = *state;
    struct mirror_file *f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", FILE_BYTES, true);
    struct hub_pulled pulled;
    struct err err;

    part_write(p, f, 100000, 0);
    mirror_faults(&p->mirror, cut);
    assert_ok(pull(p, "a/b", &pulled, &err), &err);
    assert_string_equal(p->mirror.notes[1].range, "bytes=100000-");
    assert_string_equal(p->mirror.notes[1].if_range, "");
    assert_string_equal(p->mirror.notes[2].range, "bytes=200000-");
    assert_string_equal(p->mirror.notes[2].if_range, "\"tag-1\"");
    assert_int_equal(pulled.received, FILE_BYTES - 100000);
    assert_true(file_is_right(p, f));
}

static void a_wrong_part_costs_no_more_than_itself(void **state)
{
    struct pull_place *p = *state;
    struct mirror_file *f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", FILE_BYTES, true);
    const size_t sizes[] = { 1, 100000, FILE_BYTES, FILE_BYTES + 1 };
    struct hub_pulled pulled;
    struct err err;

    for (size_t i = 0; i < 4; i++) {
        part_write(p, f, sizes[i], 0xff);
        assert_ok(pull(p, "a/b", &pulled, &err), &err);
        assert_true(file_is_right(p, f));
        cache_empty(p);
    }
    part_write(p, f, FILE_BYTES, 0); // whole, but not yet named
    mirror_faults(&p->mirror, NULL);
    assert_ok(pull(p, "a/b", &pulled, &err), &err);
    assert_int_equal(mirror_n_files_asked(&p->mirror), 0);
    assert_true(file_is_right(p, f));
}

static void a_full_disk_is_told_and_the_part_stays(void **state)
{
    struct pull_place *p = *state;
    struct mirror_file *f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", FILE_BYTES, true);
    struct rlimit old, small;
    struct hub_pulled pulled;
    struct err err;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){ 100000, old.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    bool ok = pull(p, "a/b", &pulled, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_false(ok);
    assert_non_null(strstr(err.message, ".incomplete: cannot write: File too large"));
    assert_int_equal(mirror_n_files_asked(&p->mirror), 1);
    assert_ok(pull(p, "a/b", &pulled, &err), &err);
    assert_int_equal(pulled.received, FILE_BYTES - 100000);
    assert_true(file_is_right(p, f));
}

static bool stop_at_half(void *arg, const struct hub_progress *p)
{
    (void)arg;
    return p->total == 0 || p->done < p->total / 2;
}

static void a_pull_that_is_stopped_keeps_its_part(void **state)
{
    static const int slow[] = { SLOW, -1 };
    const struct hub_watch watch = { stop_at_half, NULL };
    struct pull_place *p = *state;
    struct mirror_file *f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", FILE_BYTES, true);
    struct hub_pulled pulled;
    struct hub_name name;
    struct err err;

    mirror_faults(&p->mirror, slow);
    assert_ok(hub_name_read(&name, "a/b", &err), &err);
    assert_fails(hub_pull(&p->hub, &name, &watch, &pulled, &err), &err, "stopped");
    assert_int_equal(err.code, ERR_CANCELLED);
    // no such file
    assert_true(hub_blob_part_bytes(&p->hub, "a/b", &(struct hub_file){ .bytes = f->n }) == 0);
    struct hub_file part = { .bytes = f->n };
    memcpy(part.oid, f->oid, sizeof part.oid);
    uint64_t kept = hub_blob_part_bytes(&p->hub, "a/b", &part);
    assert_true(kept >= FILE_BYTES / 2);
    assert_ok(pull(p, "a/b", &pulled, &err), &err);
    assert_int_equal(pulled.received, FILE_BYTES - kept);
    assert_true(file_is_right(p, f));
}

// ---- hostile lists ----------------------------------------------------------------------------------------

static void hostile_lists_write_nothing(void **state)
{
#define SHA "\"sha\":\"c0ffee0000000000000000000000000000000001\""
#define SUM \
    "\"size\":5,\"lfs\":{\"sha256\":\"0123456789012345678901234567890123456789012345678901234567890123\"}"
    static const struct {
        const char *list, *message;
    } cases[] = {
        { "", "no JSON" },
        { "<html>", "no JSON" },
        { "[]", "no \"sha\"" },
        { "{\"sha\":\"../../../../../../tmp/x\",\"siblings\":[]}", "no \"sha\"" },
        { "{" SHA "}", "no \"siblings\"" },
        { "{" SHA ",\"siblings\":[]}", "no GGUF file" },
        { "{" SHA ",\"siblings\":[{\"rfilename\":\"../../evil.gguf\"," SUM "}]}",
          "of 1 files in the list none" },
        { "{" SHA ",\"siblings\":[{\"rfilename\":\"/tmp/evil.gguf\"," SUM "}]}",
          "of 1 files in the list none" },
        { "{" SHA ",\"siblings\":[{\"rfilename\":\"a/../../evil.gguf\"," SUM
          "},{\"rfilename\":\"x\\\\y.gguf\"," SUM "}]}",
          "of 2 files" },
        { "{" SHA ",\"siblings\":[{\"rfilename\":\"a.gguf\",\"size\":5,\"blobId\":\"../x\"}]}",
          "of 1 files" },
        { "{" SHA ",\"siblings\":[{\"rfilename\":\"a.gguf\",\"size\":-1}, 7, null]}", "of 3 files" },
        { "{" SHA ",\"siblings\":[{\"rfilename\":\"a.gguf\",\"size\":9223372036854775807,\"lfs\":{\"sha256\":"
          "\"0123456789012345678901234567890123456789012345678901234567890123\"}}]}",
          "MiB more" },
        { "{" SHA ",\"siblings\":[{\"rfilename\":\"m-Q8_0.gguf\"," SUM "},{\"rfilename\":\"m-Q6_K.gguf\"," SUM
          "}]}",
          "no Q4_K_M; there is Q6_K, Q8_0" },
    };
    struct pull_place *p = *state;
    struct hub_pulled pulled;
    struct err err;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mirror_faults(&p->mirror, NULL);
        p->mirror.listing = cases[i].list;
        assert_fails(pull(p, "a/b", &pulled, &err), &err, cases[i].message);
        assert_int_equal(mirror_n_files_asked(&p->mirror), 0);
        shell("test -z \"$(find %s/models--a--b -type f 2>/dev/null)\"", p->hub.cache);
    }
}

static void a_list_without_end_is_not_read_to_its_end(void **state)
{
    struct pull_place *p = *state;
    size_t n = 64 << 20;
    char *list = malloc(n);
    struct hub_pulled pulled;
    struct err err;

    memset(list, '[', n);
    p->mirror.listing = list;
    p->mirror.listing_bytes = n;
    assert_fails(pull(p, "a/b", &pulled, &err), &err, "longer than 4 MiB");
    p->mirror.listing_bytes = 3 << 20; // as deep as it is long
    assert_fails(pull(p, "a/b", &pulled, &err), &err, "no JSON");
    p->mirror.listing = NULL;
    p->mirror.list_status = 503;
    assert_fails(pull(p, "a/b", &pulled, &err), &err, "gave up after 4 tries");
    p->mirror.list_status = 401;
    p->hub.token[0] = 0;
    assert_fails(pull(p, "a/b", &pulled, &err), &err, "set HF_TOKEN");
    free(list);
}

// ---- more than one ----------------------------------------------------------------------------------------

// The program with a few words, its stdout and stderr where they are wanted; -1: nowhere.
static pid_t program_run(struct pull_place *p, const char *words, int out, int err)
{
    mirror_sync(&p->mirror);
    pid_t pid = fork();

    if (pid == 0) {
        char line[256], *argv[16] = { (char *)(uintptr_t)PROGRAM };
        size_t n = 1;
        snprintf(line, sizeof line, "%s", words);
        for (char *word = strtok(line, " "); word && n < 15; word = strtok(NULL, " "))
            argv[n++] = word;
        setenv("HF_ENDPOINT", p->hub.endpoint, 1);
        setenv("TERM", "xterm", 1);
        unsetenv("HF_HUB_OFFLINE");
        int null = open("/dev/null", O_RDWR);
        dup2(null, 0);
        dup2(out >= 0 ? out : null, 1);
        if (err >= 0)
            dup2(err, 2);
        execv(PROGRAM, argv);
        _exit(99);
    }
    assert_true(pid > 0);
    return pid;
}

static pid_t program_start(struct pull_place *p)
{
    setenv("HF_HUB_CACHE", p->hub.cache, 1);
    return program_run(p, "pull -q a/b", -1, -1);
}

static int program_wait(struct pull_place *p, pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    mirror_sync(&p->mirror);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void two_pulls_share_the_work(void **state)
{
    static const int slow[] = { SLOW, -1 };
    struct pull_place *p = *state;
    struct mirror_file *f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", FILE_BYTES, true);
    pid_t pids[3];

    mirror_faults(&p->mirror, slow);
    for (int i = 0; i < 3; i++)
        pids[i] = program_start(p);
    for (int i = 0; i < 3; i++)
        assert_int_equal(program_wait(p, pids[i]), 0);
    assert_int_equal(mirror_n_files_asked(&p->mirror), 1);
    assert_true(file_is_right(p, f));
}

// The model is found only when all of it is right.
static bool model_is_right_or_absent(const struct pull_place *p)
{
    struct hub_name name;
    char path[HUB_PATH];
    struct err err;
    size_t n_right = 0;

    for (size_t i = 0; i < p->mirror.n_files; i++)
        n_right += file_is_right(p, &p->mirror.files[i]);
    assert_ok(hub_name_read(&name, "a/b", &err), &err);
    bool found = hub_find(&p->hub, &name, path, &err);
    if (!found)
        assert_int_equal(err.code, ERR_NOT_FOUND);
    else
        assert_int_equal(n_right, p->mirror.n_files);
    return found;
}

static void a_kill_leaves_the_old_state_or_the_new(void **state)
{
    enum { KILLS = 50 };
    int slow[MAX_FAULTS], n_found = 0;
    struct pull_place *p = *state;
    unsigned random = 12345;

    for (int i = 0; i < 3; i++) {
        static const char *const paths[] = { "model-00001-of-00002.safetensors",
                                             "model-00002-of-00002.safetensors", "tokenizer.json" };
        mirror_add(&p->mirror, paths[i], FILE_BYTES + (size_t)i, true);
    }
    mirror_add(&p->mirror, "config.json", 700, false);
    mirror_add(&p->mirror, "model.safetensors.index.json", 900, false);
    for (int i = 0; i < MAX_FAULTS; i++)
        slow[i] = i + 1 < MAX_FAULTS ? SLOW : -1;
    for (int i = 0; i < KILLS; i++) {
        mirror_faults(&p->mirror, slow);
        pid_t pid = program_start(p);
        random = random * 1103515245u + 12345;
        poll(NULL, 0, (int)(random >> 16) % 90);
        kill(pid, SIGKILL);
        program_wait(p, pid);
        if (model_is_right_or_absent(p)) { // done in spite of the kills: from the beginning
            cache_empty(p);
            n_found++;
        }
    }
    mirror_faults(&p->mirror, NULL);
    assert_int_equal(program_wait(p, program_start(p)), 0);
    assert_true(model_is_right_or_absent(p));
    shell("test -z \"$(find %s/models--a--b -name '*.incomplete')\"", p->hub.cache);
    assert_true(n_found < KILLS);
}

// ---- the program ------------------------------------------------------------------------------------------

static void read_all(int fd, struct buf *text)
{
    char piece[1024];

    for (ssize_t n; (n = read(fd, piece, sizeof piece)) > 0;) // a terminal ends with an error
        buf_append(text, piece, (size_t)n);
    close(fd);
}

static void a_name_that_is_not_in_the_cache_is_pulled_and_runs(void **state)
{
    struct pull_place *p = *state;
    struct buf model = { 0 }, by_name = { 0 }, by_default = { 0 };
    int ends[2];
    struct err err;

    assert_ok(file_read(&model, SOURCE_DIR "/models/ingot-7m-q8_0.gguf", 1 << 30, &err), &err);
    unsigned char *copy = malloc(model.n);
    memcpy(copy, model.at, model.n);
    mirror_add_bytes(&p->mirror, "ingot-7m-Q8_0.gguf", copy, model.n, true);
    setenv("HF_HUB_CACHE", p->hub.cache, 1);
    static const char *const words[] = { "run a/b -p Hello -n 6 --temp 0 -q",
                                         "run -p Hello -n 6 --temp 0 -q" };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe(ends), 0);
        pid_t pid = program_run(p, words[i], ends[1], -1);
        close(ends[1]);
        read_all(ends[0], i ? &by_default : &by_name);
        assert_int_equal(program_wait(p, pid), 0);
    }
    assert_true(by_name.n > 1);
    assert_string_equal(by_name.at, by_default.at);
    buf_free(&model);
    buf_free(&by_name);
    buf_free(&by_default);
}

static void hugging_faces_variables_are_read(void **state)
{
    struct pull_place *p = *state;
    char home[HUB_PATH + 16];

    mirror_add(&p->mirror, "m-Q4_K_M.gguf", 5000, true);
    snprintf(home, sizeof home, "%s/home", p->hub.cache);
    shell("mkdir %s && echo hf_from_file > %s/token", home, home);
    unsetenv("HF_HUB_CACHE");
    setenv("HF_HOME", home, 1);
    assert_int_equal(program_wait(p, program_run(p, "pull -q a/b", -1, -1)), 0);
    assert_string_equal(p->mirror.notes[0].authorization, "Bearer hf_from_file");
    shell("test -e %s/hub/models--a--b/snapshots/%s/m-Q4_K_M.gguf", home, p->mirror.commit);
    setenv("HF_TOKEN", "hf_from_variable", 1);
    assert_int_equal(program_wait(p, program_run(p, "pull -q a/b", -1, -1)), 0);
    assert_string_equal(p->mirror.notes[p->mirror.n_notes - 1].authorization, "Bearer hf_from_variable");
    unsetenv("HF_TOKEN");
    unsetenv("HF_HOME");
}

static void a_terminal_sees_rate_and_time_left(void **state)
{
    static const int slow[] = { SLOW, -1 };
    struct pull_place *p = *state;
    struct buf seen = { 0 };
    int terminal = posix_openpt(O_RDWR | O_NOCTTY);

    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int theirs = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    assert_true(theirs >= 0);
    mirror_add(&p->mirror, "m-Q4_K_M.gguf", 8 << 20, true);
    mirror_faults(&p->mirror, slow);
    setenv("HF_HUB_CACHE", p->hub.cache, 1);
    pid_t pid = program_run(p, "pull a/b", -1, theirs);
    close(theirs);
    read_all(terminal, &seen);
    assert_int_equal(program_wait(p, pid), 0);
    assert_non_null(strstr(seen.at, "m-Q4_K_M.gguf [#"));
    assert_non_null(strstr(seen.at, " of 8.0 MiB  "));
    assert_non_null(strstr(seen.at, "B/s  "));
    assert_non_null(strstr(seen.at, " left"));
    assert_non_null(strstr(seen.at, "\r\033[Ka/b: 8.0 MiB pulled in "));
    buf_free(&seen);
}

static void ctrl_c_stops_a_pull(void **state)
{
    static const int stall[] = { STALL, -1 };
    struct pull_place *p = *state;
    struct mirror_file *f = mirror_add(&p->mirror, "m-Q4_K_M.gguf", FILE_BYTES, true);
    struct hub_file part = { .bytes = f->n };
    struct buf seen = { 0 };
    int ends[2];

    memcpy(part.oid, f->oid, sizeof part.oid);
    mirror_faults(&p->mirror, stall);
    setenv("HF_HUB_CACHE", p->hub.cache, 1);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = program_run(p, "pull a/b", -1, ends[1]);
    close(ends[1]);
    for (int i = 0; i < 1000 && hub_blob_part_bytes(&p->hub, "a/b", &part) < FILE_BYTES / 2; i++)
        poll(NULL, 0, 10);
    kill(pid, SIGINT);
    read_all(ends[0], &seen);
    assert_int_equal(program_wait(p, pid), 130);
    assert_string_equal(seen.at, "ingot: stopped; the next pull goes on from here\n");
    assert_int_equal(program_wait(p, program_start(p)), 0);
    assert_true(file_is_right(p, f));
    buf_free(&seen);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, place_open, place_close)
    const struct CMUnitTest tests[] = {
        TEST(a_file_arrives_where_others_look_for_it),
        TEST(all_files_of_a_model_arrive),
        TEST(the_eyes_of_a_model_arrive),
        TEST(a_newer_revision_leaves_the_old_one),
        cmocka_unit_test(sums_are_those_of_git),
        TEST(what_passes_is_overcome),
        TEST(what_does_not_pass_is_told_in_time),
        TEST(redirects_have_an_end),
        TEST(the_token_stays_with_its_host),
        TEST(retry_after_is_heeded),
        TEST(a_part_is_gone_on_with),
        TEST(a_wrong_part_costs_no_more_than_itself),
        TEST(a_full_disk_is_told_and_the_part_stays),
        TEST(a_pull_that_is_stopped_keeps_its_part),
        TEST(hostile_lists_write_nothing),
        TEST(a_list_without_end_is_not_read_to_its_end),
        TEST(two_pulls_share_the_work),
        TEST(a_kill_leaves_the_old_state_or_the_new),
        TEST(a_name_that_is_not_in_the_cache_is_pulled_and_runs),
        TEST(hugging_faces_variables_are_read),
        TEST(a_terminal_sees_rate_and_time_left),
        TEST(ctrl_c_stops_a_pull),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
