// test_cut_file.c - a model file that is cut while it is mapped: its requests end with an error, the process
// and other engines go on.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/file.h"
#include "format/model_file.h"
#include "open_engine.h"

#define MODEL SOURCE_DIR "/tests/golden/llama3/model.gguf"
enum { CUT_AT = 8192, N_PROMPT = 5 };

static char path[] = "/tmp/ingot-cut-XXXXXX";

static int copy_model(void **state)
{
    struct buf bytes = { 0 };
    struct err err;
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    (void)state;

    assert_true(fd >= 0);
    assert_ok(file_read(&bytes, MODEL, 1 << 24, &err), &err);
    assert_true(bytes.n > 4 * CUT_AT && file_write_all(fd, bytes.at, bytes.n));
    close(fd);
    buf_free(&bytes);
    return 0;
}

static int make_path(void **state)
{
    int fd = mkstemp(path);
    (void)state;

    return fd < 0 || close(fd);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void a_lost_file_reads_as_zeros(void **state)
{
    struct model_file *file;
    struct err err = { 0 };
    unsigned sum = 0;
    (void)state;

    assert_ok(model_file_open(&file, path, &err), &err);
    assert_ok(model_file_guard(file, &err), &err);
    assert_false(model_file_lost(file, &err));
    assert_int_equal(truncate(path, CUT_AT), 0);
    const struct file_tensor *t = model_file_tensor_at(file, model_file_n_tensors(file) - 1);
    assert_false(model_file_lost(file, &err)); // nobody has read it
    for (size_t i = model_file_n_tensors(file); i-- > 0;) {
        t = model_file_tensor_at(file, i);
        for (uint64_t at = t->bytes > CUT_AT ? CUT_AT : t->bytes; at < t->bytes; at++)
            sum += t->data[at];
    }
    assert_int_equal(sum, 0);
    assert_true(model_file_lost(file, &err));
    assert_int_equal(err.code, ERR_IO);
    assert_non_null(strstr(err.message, "cut short"));
    assert_non_null(strstr(err.message, path));
    model_file_close(file);
    copy_model(NULL);
    assert_ok(model_file_open(&file, path, &err), &err); // the row of the table is used again
    assert_ok(model_file_guard(file, &err), &err);
    assert_false(model_file_lost(file, &err));
    model_file_close(file);
}

// In a child: reads a mapping of another's that was cut.
static int read_a_cut_mapping(void (*handler)(int))
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        struct file_map map;
        struct model_file *file;
        struct err err;
        signal(SIGBUS, handler);
        bool ok = model_file_open(&file, MODEL, &err) && model_file_guard(file, &err) &&
                  file_map_open(&map, path, &err) && truncate(path, 0) == 0;
        _exit(ok && map.at[CUT_AT] ? 2 : 3);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void leave(int number)
{
    _exit(number == SIGBUS ? 77 : 78);
}

static void other_mappings_are_not_touched(void **state)
{
    (void)state;
    assert_int_equal(read_a_cut_mapping(SIG_DFL), -SIGBUS);
    copy_model(NULL);
    assert_int_equal(read_a_cut_mapping(leave), 77);
}

static bool ask(struct ingot_engine *engine, struct ingot_error *error)
{
    static const uint32_t prompt[N_PROMPT] = { 5, 17, 3, 40, 8 };
    struct ingot_request_options o = ingot_request_defaults();

    o.tokens = prompt;
    o.n_tokens = N_PROMPT;
    o.max_tokens = 4;
    o.ignore_eos = true;
    return ingot_generate(engine, &o, NULL, NULL, NULL, error);
}

static void requests_end_with_an_error(void **state)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    struct ingot_error error = { 0 };
    (void)state;

    o.device = "cpu:plain"; // which multiplies the file's own bytes
    o.model = MODEL;
    struct ingot_engine *whole = open_or_fail(&o);
    o.model = path;
    struct ingot_engine *cut = open_or_fail(&o);
    assert_ok(ask(cut, &error), &error);
    assert_int_equal(truncate(path, CUT_AT), 0);
    for (int i = 0; i < 2; i++) {
        error = (struct ingot_error){ 0 };
        assert_false(ask(cut, &error));
        assert_int_equal(error.code, INGOT_IO);
        assert_non_null(strstr(error.message, "cut short"));
        assert_ok(ask(whole, &error), &error);
    }
    ingot_engine_close(cut);
    assert_null(ingot_engine_open(&o, &error)); // an error as of any file that is too short
    ingot_engine_close(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_lost_file_reads_as_zeros, copy_model),
        cmocka_unit_test_setup(other_mappings_are_not_touched, copy_model),
        cmocka_unit_test_setup(requests_end_with_an_error, copy_model),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
