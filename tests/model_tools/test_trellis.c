// test_trellis.c - the encoder of EXL3: a path is as good as the best there is, a matrix comes back, and what
// a text shows of the inputs makes outputs better.
#include "testing.h"
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"
#include "model_tools/trellis/trellis_encode.h"
#include "model_tools/trellis/trellis_write.h"
#include "ops/cpu_table.h"
#include "ops/trellis_search/trellis_path.h"
#include "quant/quant.h"

static uint64_t random_state = 7;

static double uniform(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static float normal(void)
{
    return (float)(sqrt(-2 * log(1 - uniform())) * cos(2 * 3.14159265358979 * uniform()));
}

// The mean squared difference.
static double missed(const float a[16][16], const float b[16][16])
{
    double sum = 0;

    for (int i = 0; i < 256; i++)
        sum += pow((double)a[i / 16][i % 16] - (double)b[i / 16][i % 16], 2) / 256;
    return sum;
}

static struct trellis_path *path_of(uint32_t bits, enum exl3_codebook codebook)
{
    return trellis_path_prepare(mem_alloc(trellis_path_bytes(bits)), bits, codebook, false);
}

enum { TILES = 2 };

// The squared error of normal numbers, relative. No code does better than 4^-bits; rare large numbers, which
// no state stands for, cost more than that where bits are many.
static void paths_decode_to_what_they_promise(void **state)
{
    static const double most[9] = { 0, 0.33, 0.09, 0.023, 0.0075, 0.003, 0.0015, 0.001, 0.001 };

    (void)state;
    for (uint32_t bits = 1; bits <= EXL3_MAX_BITS; bits++)
        for (int codebook = 0; codebook < 3; codebook++) {
            struct trellis_path *path = path_of(bits, (enum exl3_codebook)codebook);
            float size = codebook == EXL3_MUL1 ? 0.93f : 1.16f, tile[16][16], said[16][16], found[16][16];
            uint16_t code[16 * EXL3_MAX_BITS];
            double error = 0;
            for (int i = 0; i < 256 * TILES; i++) {
                tile[i / 16 % 16][i % 16] = normal() * size;
                if (i % 256 < 255)
                    continue;
                trellis_path_find(path, (const float(*)[16])tile, code, said);
                exl3_decode(code, bits, (enum exl3_codebook)codebook, found);
                assert_memory_equal(said, found, sizeof said); // the ring is closed
                error += missed((const float(*)[16])tile, (const float(*)[16])found) / (double)(size * size) /
                         TILES;
            }
            if (!(error <= most[bits]))
                fail_msg("%u bits, codebook %d: a squared error of %g; want at most %g", bits, codebook,
                         error, most[bits]);
            mem_free(path);
        }
}

// Numbers that a code stands for are found again, or others as near: no path is better than one without
// error.
static void a_code_is_found_again(void **state)
{
    (void)state;
    for (uint32_t bits = 2; bits <= 4; bits++) {
        struct trellis_path *path = path_of(bits, EXL3_MUL1);
        uint16_t code[16 * EXL3_MAX_BITS], again[16 * EXL3_MAX_BITS];
        float tile[16][16], found[16][16];
        for (uint32_t i = 0; i < 16 * bits; i++)
            code[i] = (uint16_t)(uniform() * 65536);
        exl3_decode(code, bits, EXL3_MUL1, tile);
        trellis_path_find(path, (const float(*)[16])tile, again, found);
        assert_memory_equal(tile, found, sizeof tile);
        mem_free(path);
    }
}

enum { ROWS = 150, COLS = 200 };

struct encode_errors {
    double weights, outputs; // squared errors, relative
};

// x: [n, COLS]
static struct encode_errors encode(const struct trellis_workers *workers, const float *w,
                                   const double *moments, const float *x, uint32_t n)
{
    struct trellis_source s = { w, moments, ROWS, COLS, 3, EXL3_MUL1, 0, 5 };
    struct trellis_code c;
    struct err err = { 0 };
    struct encode_errors o = { 0 };
    double all = 0, all_outputs = 0;
    static float got[ROWS][COLS], block[EXL3_BLOCK][EXL3_BLOCK];

    assert_ok(trellis_gain(s.bits, s.codebook, &s.gain, &err), &err);
    assert_ok(trellis_encode(&s, 1, workers, &c, &err), &err);
    assert_true(c.n_in == 256 && c.n_out == 256);
    struct exl3 m = { c.codes, c.suh, c.svh, c.n_in, c.n_out, 3, EXL3_MUL1 };
    for (uint32_t r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < COLS; i++) {
            if (r % EXL3_BLOCK == 0 && i % EXL3_BLOCK == 0)
                for (uint32_t rr = 0; rr < EXL3_BLOCK && r + rr < ROWS; rr++) {
                    exl3_product_block(&m, i / EXL3_BLOCK, r / EXL3_BLOCK, block);
                    for (uint32_t ii = 0; ii < EXL3_BLOCK && i + ii < COLS; ii++)
                        got[r + rr][i + ii] = block[rr][ii];
                }
            double d = (double)got[r][i] - (double)w[r * COLS + i];
            o.weights += d * d;
            all += (double)w[r * COLS + i] * (double)w[r * COLS + i];
        }
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t r = 0; r < ROWS; r++) {
            double want = 0, miss = 0;
            for (uint32_t i = 0; i < COLS; i++) {
                want += (double)w[r * COLS + i] * (double)x[k * COLS + i];
                miss += ((double)got[r][i] - (double)w[r * COLS + i]) * (double)x[k * COLS + i];
            }
            o.outputs += miss * miss;
            all_outputs += want * want;
        }
    trellis_code_free(&c);
    return (struct encode_errors){ o.weights / all, o.outputs / all_outputs };
}

// Inputs that move together: the text's moments say so.
static void a_matrix_comes_back_and_a_text_helps(void **state)
{
    enum { N = 400, SOURCES = 24 };
    static float w[ROWS * COLS], mix[SOURCES][COLS], x[N * COLS];
    double *moments = mem_alloc_array(COLS * (COLS + 1) / 2, sizeof *moments);
    struct err err = { 0 };
    const struct trellis_workers workers = {
        .device = cpu_open(&(struct cpu_options){ .table = &cpu_table, .n_threads = 2 }, &err),
        .pool = thread_pool_create(2)
    };

    (void)state;
    for (uint32_t i = 0; i < ROWS * COLS; i++)
        w[i] = normal() * 0.03f * (i / COLS == 3 ? 20 : 1); // one output is much larger
    for (uint32_t i = 0; i < SOURCES * COLS; i++)
        mix[i / COLS][i % COLS] = normal();
    for (uint32_t k = 0; k < N; k++) {
        float source[SOURCES];
        for (uint32_t s = 0; s < SOURCES; s++)
            source[s] = normal();
        for (uint32_t i = 0; i < COLS; i++) {
            x[k * COLS + i] = 0.2f * normal();
            for (uint32_t s = 0; s < SOURCES; s++)
                x[k * COLS + i] += source[s] * mix[s][i];
        }
        for (uint32_t i = 0; i < COLS && k < N / 2; i++) // the second half is kept for the judgement
            for (uint32_t j = 0; j <= i; j++)
                moments[i * (i + 1) / 2 + j] += (double)x[k * COLS + i] * (double)x[k * COLS + j];
    }
    struct encode_errors blind = encode(&workers, w, NULL, x + N / 2 * COLS, N / 2),
                         seeing = encode(&workers, w, moments, x + N / 2 * COLS, N / 2);
    print_message("3 bits: weights %.4f outputs %.4f; with a text %.4f %.4f\n", blind.weights, blind.outputs,
                  seeing.weights, seeing.outputs);
    assert_true(blind.weights < 0.03 && blind.outputs < 0.035);
    assert_true(seeing.outputs < 0.5 * blind.outputs && seeing.weights < 0.1);
    for (uint32_t i = 0; i < COLS; i++)
        w[i] = 0; // an output of nothing
    struct encode_errors with_zeros = encode(&workers, w, NULL, x, 1);
    assert_true(with_zeros.weights < 0.03);
    thread_pool_destroy(workers.pool);
    device_close(workers.device);
    mem_free(moments);
}

static bool stop(void *arg, uint64_t done, uint64_t total)
{
    (void)arg, (void)done, (void)total;
    return false;
}

// A folder that was made for the output goes with it; one that was there stays.
static void nothing_is_left_of_a_folder_that_was_not_finished(void **state)
{
    char folder[] = "/tmp/ingot-trellis-XXXXXX", made[64];
    struct trellis_options o = {
        .input = SOURCE_DIR "/tests/golden/llama3", .bits = 1, .head_bits = 1, .progress = stop
    };
    struct trellis_result result;
    struct stat info;
    struct err err = { 0 };

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(made, sizeof made, "%s/made", folder);
    o.output = made;
    assert_false(trellis_write(&o, &result, &err));
    assert_int_equal(err.code, ERR_CANCELLED);
    assert_int_equal(stat(made, &info), -1);
    o.output = folder;
    assert_false(trellis_write(&o, &result, &err));
    assert_int_equal(rmdir(folder), 0); // it is there, and empty
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_decode_to_what_they_promise),
        cmocka_unit_test(a_code_is_found_again),
        cmocka_unit_test(a_matrix_comes_back_and_a_text_helps),
        cmocka_unit_test(nothing_is_left_of_a_folder_that_was_not_finished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
