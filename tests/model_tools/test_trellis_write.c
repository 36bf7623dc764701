// test_trellis_write.c - a folder of EXL3 after a text: it has the same bytes when the text is read once and
// when it is read for each layer, and the text counts.
#include "folder.h"
#include "base/file.h"
#include "model_tools/imatrix_collect.h"
#include "model_tools/trellis/trellis_write.h"
#include "open_engine.h"

enum { N_CHUNK = 24, N_CHUNKS = 2, LAYERS = 2 };

#define MODEL SOURCE_DIR "/tests/golden/llama3"

struct text_passes {
    uint64_t bytes; // for sums
    struct thread_pool *pool;
    uint32_t n, first[LAYERS]; // passes; their first layers
    bool stops;                // when a third of the weights is coded
};

static bool calibrate(void *arg, uint32_t first, struct moments *m, struct err *err)
{
    static uint32_t tokens[N_CHUNK * N_CHUNKS];
    struct text_passes *r = arg;
    struct ingot_engine_options options = ingot_engine_defaults();
    const struct eval_text text = { .n_chunk = N_CHUNK, .n_chunks = N_CHUNKS, .tokens = tokens };
    struct imatrix means;

    for (uint32_t i = 0; i < N_CHUNK * N_CHUNKS; i++)
        tokens[i] = (i * 37 + 11) % 250;
    options.model = MODEL;
    options.n_threads = 1;
    options.n_context = N_CHUNK + 1;
    options.exact = true;
    options.no_prefix_cache = true;
    struct ingot_engine *engine = open_or_fail(&options);
    assert_true(r->n < LAYERS);
    r->first[r->n++] = first;
    assert_ok(moments_create(m, &(struct moments_limits){ first, UINT32_MAX, r->bytes, r->pool }, err) &&
                  imatrix_create(&means, err) &&
                  imatrix_collect(&(struct imatrix_job){ .engine = engine, .text = &text, .moments = m },
                                  &means, err),
              err);
    imatrix_free(&means);
    ingot_engine_close(engine);
    return true;
}

static bool go_on(void *arg, uint64_t done, uint64_t total)
{
    struct text_passes *r = arg;

    return done <= total && (!r->stops || 3 * done < total);
}

static double write_folder(struct text_passes *r, const char *name, bool after_text, struct buf *tensors)
{
    char output[64], path[96];
    struct trellis_options o = { .input = MODEL,
                                 .output = output,
                                 .bits = 4, // the search takes half the time that it takes with 1
                                 .head_bits = 4,
                                 .progress = go_on,
                                 .progress_arg = r,
                                 .calibrate = after_text ? calibrate : NULL,
                                 .calibrate_arg = r };
    struct trellis_result result;
    struct err err = { 0 };

    snprintf(output, sizeof output, "%s/%s", folder, name);
    snprintf(path, sizeof path, "%s/model.safetensors", output);
    r->pool = thread_pool_create(2);
    bool ok = trellis_write(&o, &result, &err);
    thread_pool_destroy(r->pool);
    if (r->stops)
        assert_int_equal(err.code, ERR_CANCELLED);
    else
        assert_ok(ok && file_read(tensors, path, 1 << 24, &err), &err);
    return result.error;
}

static void passes_change_no_byte(void **state)
{
    struct text_passes once = { .bytes = 1 << 30 }, often = { .bytes = 1 };
    struct buf a = { 0 }, b = { 0 };

    (void)state;
    write_folder(&once, "once", true, &a);
    write_folder(&often, "often", true, &b);
    assert_true(once.n == 1 && once.first[0] == 0);
    assert_true(often.n == LAYERS && often.first[0] == 0 && often.first[1] == 1);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.at, b.at, a.n);
    buf_free(&a);
    buf_free(&b);
}

// Numbers are missed by more, so that outputs are missed by less.
static void the_text_counts(void **state)
{
    struct text_passes blind = { .stops = true }, seeing = { .stops = true };

    (void)state;
    double without = write_folder(&blind, "blind", false, NULL),
           with = write_folder(&seeing, "seeing", true, NULL);
    print_message("the first matrices miss %g, after a text %g\n", without, with);
    assert_true(blind.n == 0 && with > 1.02 * without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_change_no_byte),
        cmocka_unit_test(the_text_counts),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
