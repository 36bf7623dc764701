// test_hostile_trellis.c - checkpoints whose parts of EXL3 do not fit together: each is refused in one line
// that says so.
#include <stdlib.h>
#include <unistd.h>
#include "base/file.h"
#include "models/model.h"
#include "testing.h"

#define GOLDEN SOURCE_DIR "/tests/golden/exl3/"
#define AT     "\"model.layers.0.self_attn."

struct misfit {
    const char *word, *instead; // equally long, in the header
    const char *says;
};

static const struct misfit cases[] = {
    { AT "q_proj.suh\":", AT "q_proj.sux\":", "q_proj.trellis is there without its .suh; want [256] of F16" },
    { AT "q_proj.svh\":", AT "q_proj.svx\":", "q_proj.trellis is there without its .svh; want [128] of F16" },
    { AT "q_proj.suh\":", AT "q_proj.su\" :", "as early EXL3 had" },
    { AT "q_proj.suh\": {\"dtype\": \"F16\"", AT "q_proj.suh\": {\"dtype\": \"I16\"",
      "q_proj.suh is [256] of I16 with 1 dimensions; want [256] of F16" },
    { AT "q_proj.trellis\": {\"dtype\": \"I16\", \"shape\": [16, 8, 96]",
      AT "q_proj.trellis\": {\"dtype\": \"I16\", \"shape\": [8, 16, 96]",
      "q_proj.trellis is [8, 16, 96] with 3 dimensions; this model needs [16, 8, 16 times 1 to 8 bits]" },
    { AT "q_proj.trellis\": {\"dtype\": \"I16\", \"shape\": [16, 8, 96]",
      AT "q_proj.trellis\": {\"dtype\": \"I16\", \"shape\": [16, 96, 8]", "q_proj.trellis is [16, 96, 8]" },
    { AT "q_proj.trellis\": {\"dtype\": \"I16\"", AT "q_proj.trellis\": {\"dtype\": \"F16\"",
      "q_proj.weight is missing" },
    { AT "o_proj.mul1\":", AT "o_proj.mcg\" :", "this codebook is known by the I32 3417055213" },
    { AT "v_proj.mcg\": ", AT "k_proj.mul1\":", "k_proj.mul1 both name a codebook; want one" },
    { AT "k_proj.mcg\": {\"dtype\": \"I32\"", AT "k_proj.mcg\": {\"dtype\": \"F32\"",
      "k_proj.mcg holds 0 of F32" },
    { AT "k_proj.mcg\":", AT "k_proj.mcx\":", "ingot does not use these tensors (1)" },
};

static void copy(const char *folder, const char *name, const struct misfit *h)
{
    char from[512], to[512];
    struct buf text = { 0 };
    struct err err = { 0 };
    struct file_writer w;

    snprintf(from, sizeof from, GOLDEN "%s", name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    assert_ok(file_read(&text, from, 1 << 24, &err), &err);
    if (h) {
        size_t at = str_find(buf_as_str(&text), str_from(h->word));
        assert_int_equal(strlen(h->word), strlen(h->instead));
        assert_true(at != SIZE_MAX);
        memcpy(text.at + at, h->instead, strlen(h->instead));
    }
    assert_ok(file_create(&w, to, &err), &err);
    file_write(&w, text.at, text.n);
    assert_ok(file_commit(&w, &err), &err);
    buf_free(&text);
}

static void parts_that_do_not_fit_are_refused(void **state)
{
    char folder[] = "/tmp/ingot-trellis-XXXXXX", path[512];

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_file *file;
        struct model model;
        struct err err = { 0 };
        copy(folder, "config.json", NULL);
        copy(folder, "model.safetensors", &cases[i]);
        assert_ok(model_file_open(&file, folder, &err), &err);
        assert_fails(model_bind(&model, file, &err), &err, cases[i].says);
        model_file_close(file);
    }
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
