// test_trellis_tensor.c - which matrices of EXL3 stay codes in memory, and how many bytes they are counted
// as.
#include "models/arch.h"
#include "models/trellis_tensor.h"
#include "testing.h"

struct kept_sum {
    uint64_t codes, bytes, halves; // matrices that stay codes; of all layers' tensors, and if none did
};

static struct kept_sum count(const struct model *m)
{
    struct kept_sum c = { 0 };

    for (uint32_t i = 0; i < m->config.n_layers * m->n_places; i++) {
        const struct file_tensor *t = m->layers[i];
        c.bytes += t ? trellis_kept_bytes(t) : 0;
        c.halves += t ? t->bytes : 0;
        c.codes += t && trellis_kept_format(t) != t->format;
    }
    return c;
}

// Of the tensors that belong to no layer.
static uint64_t other_bytes(const struct model *m)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < N_MODEL_WEIGHTS; i++)
        bytes += m->tensors[i] ? trellis_kept_bytes(m->tensors[i]) : 0;
    return bytes;
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
    assert_int_equal(codes.codes, 7 * m.config.n_layers);
    for (uint32_t i = 0; i < m.n_places; i++) {
        const struct file_tensor *t = m.layers[i];
        if (!t || trellis_kept_format(t) == t->format)
            continue;
        uint32_t n_in = exl3_padded((uint32_t)t->dims[1]), n_out = exl3_padded((uint32_t)t->dims[0]);
        assert_int_not_equal(exl3_bits(trellis_kept_bytes(t), n_in, n_out), 0);
    }
    assert_true(codes.bytes < codes.halves);
    assert_int_equal(m.weight_bytes, codes.bytes + other_bytes(&m));
    model_release(&m);
    model_file_close(file);
}

// The stacks of a model with experts, each with its number of codes' bytes or as halves.
static void check_experts(const char *path, bool codes)
{
    struct model m;
    struct model_file *file;
    uint32_t n_stacks = 0;

    open_golden(&m, &file, path);
    for (uint32_t i = 0; i < m.config.n_layers * m.n_places; i++) {
        const struct file_tensor *t = m.layers[i];
        if (!t || t->n_dims != 3)
            continue;
        uint32_t n_in = exl3_padded((uint32_t)t->dims[2]), n_out = exl3_padded((uint32_t)t->dims[1]);
        n_stacks++;
        assert_int_equal(trellis_kept_format(t) != QUANT_F16, codes);
        if (codes)
            assert_int_not_equal(exl3_bits(trellis_kept_bytes(t) / t->dims[0], n_in, n_out), 0);
        else
            assert_int_equal(trellis_kept_bytes(t), t->bytes);
    }
    assert_int_equal(n_stacks, 3 * m.config.n_layers);
    assert_int_equal(m.weight_bytes, count(&m).bytes + other_bytes(&m));
    model_release(&m);
    model_file_close(file);
}

static void experts_of_a_kind_alike_stay_codes(void **state)
{
    (void)state;
    check_experts(SOURCE_DIR "/tests/golden/exl3-experts", true);
}

static void experts_of_a_kind_mixed_are_read_as_halves(void **state)
{
    (void)state;
    check_experts(SOURCE_DIR "/tests/golden/exl3-moe", false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matrices_of_products_stay_codes),
        cmocka_unit_test(experts_of_a_kind_alike_stay_codes),
        cmocka_unit_test(experts_of_a_kind_mixed_are_read_as_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
