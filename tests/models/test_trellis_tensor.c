// test_trellis_tensor.c - which matrices of EXL3 stay codes in memory, and how many bytes they are counted
// as.
#include "models/arch.h"
#include "models/trellis_tensor.h"
#include "testing.h"

struct kept_sum {
    uint64_t codes, bytes; // matrices that stay codes; of all layers' tensors and the head
};

static struct kept_sum count(const struct model *m)
{
    struct kept_sum c = { 0 };

    for (uint32_t i = 0; i < m->config.n_layers * m->n_places; i++) {
        const struct file_tensor *t = m->layers[i];
        c.bytes += t ? trellis_kept_bytes(t) : 0;
        c.codes += t && trellis_kept_format(t) != t->format;
    }
    return c;
}

static void open_golden(struct model *m, struct model_file **file, const char *path)
{
    struct err err = { 0 };

    assert_ok(model_file_open(file, path, &err), &err);
    assert_ok(model_bind(m, *file, &err), &err);
}

static void matrices_of_products_stay_codes(void **state)
{
    struct model m;
    struct model_file *file;

    (void)state;
    open_golden(&m, &file, SOURCE_DIR "/tests/golden/exl3");
    struct kept_sum codes = count(&m);
    uint64_t bytes = m.weight_bytes;
    assert_int_equal(codes.codes, 7 * m.config.n_layers);
    for (uint32_t i = 0; i < m.n_places; i++) {
        const struct file_tensor *t = m.layers[i];
        if (!t || trellis_kept_format(t) == t->format)
            continue;
        uint32_t n_in = exl3_padded((uint32_t)t->dims[1]), n_out = exl3_padded((uint32_t)t->dims[0]);
        assert_int_not_equal(exl3_bits(trellis_kept_bytes(t), n_in, n_out), 0);
    }
    trellis_expand_all(&m);
    struct kept_sum expanded = count(&m);
    assert_int_equal(expanded.codes, 0);
    assert_true(expanded.bytes > codes.bytes); // padded to whole blocks, small matrices gain little
    assert_true(m.weight_bytes >= bytes + expanded.bytes - codes.bytes); // the head is one, too
    trellis_expand_all(&m);
    assert_int_equal(count(&m).bytes, expanded.bytes);
    model_release(&m);
    model_file_close(file);
}

static void experts_are_read_as_halves(void **state)
{
    struct model m;
    struct model_file *file;

    (void)state;
    open_golden(&m, &file, SOURCE_DIR "/tests/golden/exl3-moe");
    for (uint32_t i = 0; i < m.config.n_layers * m.n_places; i++) {
        const struct file_tensor *t = m.layers[i];
        if (t && t->n_dims == 3) {
            assert_int_equal(trellis_kept_format(t), QUANT_F16);
            assert_int_equal(trellis_kept_bytes(t), t->bytes);
        }
    }
    assert_true(count(&m).codes > 0);
    model_release(&m);
    model_file_close(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_products_stay_codes),
        cmocka_unit_test(experts_are_read_as_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
