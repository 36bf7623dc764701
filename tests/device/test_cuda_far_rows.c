// test_cuda_far_rows.c - a matrix that lies in the host's memory has the bytes that it would have in the
// GPU's.
#include "device/cuda_sides.h"

enum { N_COLS = 512, PIECE_BYTES = 4 << 20, ALIGNED_ROWS = 256 };

// Planes begin at multiples of 256 bytes: with such a number of rows nothing is between them.
static struct weight_source source_of(enum quant q)
{
    const struct quant_info *info = quant_info(q);
    uint64_t row = N_COLS / info->block_elements * info->block_bytes;
    uint32_t n_rows = (uint32_t)(PIECE_BYTES / row * 5 / 4 / ALIGNED_ROWS * ALIGNED_ROWS);
    unsigned char *data = mem_alloc(n_rows * row);

    for (uint64_t i = 0; i < n_rows * row; i += info->block_bytes)
        bench_block(q, data + i);
    return (struct weight_source){ data, n_rows * row, n_rows, N_COLS, q, WEIGHT_ROWS, "w" };
}

static unsigned char *bytes_of(const struct weight_source *source, enum weight_use use, uint64_t *n)
{
    struct weight_source own = *source;
    struct weight w;
    struct err err;

    own.use = use;
    assert_ok(weight_create(gpu, &own, &w, &err), &err);
    assert_int_equal(w.buffer.host != NULL, use == WEIGHT_FAR_ROWS);
    assert_int_equal(w.bytes, w.buffer.bytes);
    assert_int_equal(w.layout, quant_info(own.format)->block_elements == 1 ? LAYOUT_FILE : LAYOUT_PLANES);
    unsigned char *bytes = mem_alloc(w.bytes);
    assert_ok(buffer_read(&w.buffer, 0, bytes, w.bytes, &err), &err);
    *n = w.bytes;
    weight_release(&w);
    return bytes;
}

static void far_rows_have_the_same_bytes(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f += (uint32_t)every) {
        struct weight_source source = source_of(formats[f]);
        uint64_t n_near, n_far;
        unsigned char *near = bytes_of(&source, WEIGHT_ROWS, &n_near),
                      *far = bytes_of(&source, WEIGHT_FAR_ROWS, &n_far);
        assert_int_equal(n_near, n_far);
        assert_memory_equal(near, far, n_far);
        mem_free(near);
        mem_free(far);
        mem_free((void *)(uintptr_t)source.data);
    }
}

static void steps_read_them_there(void **state)
{
    (void)state;
    skip_without_gpu();
    for (uint32_t f = 0; f < N_FORMATS; f++)
        for (uint32_t r = 0; r < N_ROW_COUNTS; r++) {
            struct op_shape c = { .format = formats[f],
                                  .rows = row_counts[r].rows,
                                  .most_rows = row_counts[r].most,
                                  .n_cols = N_COLS,
                                  .far_rows = true,
                                  .limit = 1e-13 };
            compare("embed", &c, record_embed);
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(far_rows_have_the_same_bytes),
                                        cmocka_unit_test(steps_read_them_there) };

    return cuda_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
