// test_imatrix.c - importance matrices: what is collected against the model's own tensors, both file forms,
// hostile files, and that quantize weighs by them.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "toy_engine.h"
#include "gguf_builder.h"
#include "model_tools/imatrix_collect.h"
#include "model_tools/imatrix_file.h"
#include "model_tools/quantize/quantize.h"

enum { N_CHUNK = 40, N_CHUNKS = 2, COLS = 256 };

static char path[] = "/tmp/ingot-imatrix-XXXXXX";
static uint32_t tokens[N_CHUNKS * N_CHUNK];

static int make_text(void **state)
{
    for (uint32_t i = 0; i < N_CHUNKS * N_CHUNK; i++)
        tokens[i] = (i * 37 + 11) % 250;
    close(mkstemp(path));
    return open_toy(state);
}

static int remove_text(void **state)
{
    unlink(path);
    return close_toy(state);
}

static void collect(struct ingot_engine *from, struct imatrix *m)
{
    const struct eval_text text = { .n_chunk = N_CHUNK, .n_chunks = N_CHUNKS, .tokens = tokens };
    struct err err = { 0 };

    assert_ok(imatrix_create(m, &err) &&
                  imatrix_collect(&(struct imatrix_job){ .engine = from, .text = &text }, m, &err),
              &err);
    assert_true(m->n_chunks == N_CHUNKS && m->n_chunk == N_CHUNK);
}

static const struct imatrix_entry *entry(const struct imatrix *m, const char *name)
{
    const struct imatrix_entry *e = imatrix_find(m, str_from(name));

    if (!e)
        fail_msg("no entry %s", name);
    return e;
}

// ---- collecting

// Layer 0's q, k and v read the normed embedding, which the file gives.
static void add_first_layer(double *sums)
{
    struct model_file *f;
    struct err err = { 0 };
    static float row[COLS], scale[COLS];

    assert_ok(model_file_open(&f, SOURCE_DIR "/models/ingot-7m-q8_0.gguf", &err), &err);
    const struct file_tensor *embed = model_file_tensor(f, "token_embd.weight"),
                             *norm = model_file_tensor(f, "blk.0.attn_norm.weight");
    quant_info(norm->format)->decode(norm->data, scale, COLS);
    for (uint32_t i = 0; i < N_CHUNKS * N_CHUNK; i++) {
        double squares = 0;
        quant_info(embed->format)->decode(embed->data + tokens[i] * embed->bytes / embed->dims[0], row, COLS);
        for (uint32_t j = 0; j < COLS; j++)
            squares += (double)row[j] * row[j];
        for (uint32_t j = 0; j < COLS; j++) {
            double x = row[j] / sqrt(squares / COLS + 1e-5) * scale[j];
            sums[j] += x * x;
        }
    }
    model_file_close(f);
}

static void sums_are_those_of_the_inputs(void **state)
{
    struct imatrix m;
    double expected[COLS] = { 0 };
    (void)state;

    collect(engine, &m);
    assert_int_equal(m.n, 8 * 7); // layers times products; not the head
    add_first_layer(expected);
    for (int w = 0; w < 3; w++) {
        const struct imatrix_entry *e = entry(
            &m, ((const char *[]){ "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight" })[w]);
        assert_true(e->n_sums == COLS && e->n_counts == 1 && e->counts[0] == N_CHUNKS * N_CHUNK);
        for (uint32_t j = 0; j < COLS; j++)
            if (fabs(e->sums[j] - expected[j]) > 1e-4 * expected[j])
                fail_msg("column %u: %g, expected %g", j, e->sums[j], expected[j]);
    }
    assert_true(entry(&m, "blk.7.ffn_down.weight")->n_sums == 768 &&
                entry(&m, "blk.7.attn_output.weight")->n_sums == COLS);
    imatrix_free(&m);
}

static struct ingot_engine *open_golden(const char *name, const char *device, const char *stages)
{
    struct ingot_engine_options o = ingot_engine_defaults();
    char model[256];

    snprintf(model, sizeof model, SOURCE_DIR "/tests/golden/%s", name);
    o.model = model;
    o.device = device;
    o.stages = stages;
    o.exact = true;
    o.n_threads = 1;
    o.n_context = N_CHUNK + 1;
    return open_or_fail(&o);
}

// Each expert has the rows that were sent to it: together as many as the shared expert gets, once for each
// slot.
static void experts_are_kept_apart(void **state)
{
    struct ingot_engine *mixture = open_golden("qwen2moe", "cpu", NULL);
    struct imatrix m;
    (void)state;

    collect(mixture, &m);
    const struct imatrix_entry *up = entry(&m, "blk.0.ffn_up_exps.weight"),
                               *shared = entry(&m, "blk.0.ffn_up_shexp.weight");
    uint64_t n_cols = shared->n_sums, n_experts = up->n_counts;
    double rows = 0;
    assert_true(n_experts > 1 && up->n_sums == n_experts * n_cols && shared->counts[0] == N_CHUNKS * N_CHUNK);
    for (uint32_t e = 0; e < n_experts; e++)
        rows += up->counts[e];
    double n_slots = rows / shared->counts[0];
    if (n_slots != 4 || n_experts != 6)
        fail_msg("%g rows of %llu experts for %g of the shared one", rows, (unsigned long long)n_experts,
                 shared->counts[0]);
    for (uint64_t j = 0; j < n_cols; j++) {
        double sum = 0;
        for (uint64_t e = 0; e < n_experts; e++)
            sum += up->sums[e * n_cols + j];
        assert_true(fabs(sum - n_slots * shared->sums[j]) <= 1e-5 * sum);
    }
    const struct imatrix_entry *down = entry(&m, "blk.0.ffn_down_exps.weight");
    assert_memory_equal(down->counts, up->counts, n_experts * sizeof *up->counts);
    assert_true(entry(&m, "blk.0.ffn_down_shexp.weight")->counts[0] == shared->counts[0]);
    imatrix_free(&m);
    ingot_engine_close(mixture);
}

// The same sums by the plain loops, and over two stages.
static void devices_and_stages_agree(void **state)
{
    const char *const setups[][2] = { { "cpu:plain", NULL }, { "cpu", "1" } };
    struct ingot_engine *first = open_golden("qwen3", "cpu", NULL);
    struct imatrix a, b;
    (void)state;

    collect(first, &a);
    for (int k = 0; k < 2; k++) {
        struct ingot_engine *other = open_golden("qwen3", setups[k][0], setups[k][1]);
        collect(other, &b);
        assert_int_equal(a.n, b.n);
        for (size_t i = 0; i < a.n; i++) {
            const struct imatrix_entry *x = &a.entries[i], *y = imatrix_find(&b, x->name);
            assert_true(y && y->n_sums == x->n_sums);
            for (uint64_t j = 0; j < x->n_sums; j++)
                assert_true(fabs(x->sums[j] - y->sums[j]) <= 1e-3 * x->sums[j] + 1e-9);
        }
        imatrix_free(&b);
        ingot_engine_close(other);
    }
    imatrix_free(&a);
    ingot_engine_close(first);
}

// ---- files

static void small_matrix(struct imatrix *m)
{
    struct err err = { 0 };

    assert_ok(imatrix_create(m, &err), &err);
    struct imatrix_entry *dense = imatrix_add(
        m, &(struct imatrix_entry){ .name = STR("blk.0.attn_q.weight"), .n_sums = 3, .n_counts = 1 }, &err);
    memcpy(dense->sums, (double[]){ 8, 0, 2 }, 3 * sizeof(double));
    dense->counts[0] = 4;
    struct imatrix_entry *experts = imatrix_add(
        m, &(struct imatrix_entry){ .name = STR("blk.0.ffn_up_exps.weight"), .n_sums = 4, .n_counts = 2 },
        &err);
    memcpy(experts->sums, (double[]){ 6, 9, 0, 0 }, 4 * sizeof(double));
    experts->counts[0] = 3;
    m->text = STR("a text");
    m->n_chunks = 5;
    m->n_chunk = 512;
}

static void what_is_written_is_read(void **state)
{
    struct imatrix m, back;
    struct err err = { 0 };
    float means[4];
    (void)state;

    small_matrix(&m);
    assert_ok(imatrix_file_write(&m, path, &err) && imatrix_file_read(&back, path, &err), &err);
    assert_true(back.n == 2 && back.n_chunks == 5 && back.n_chunk == 512 && str_is(back.text, "a text"));
    assert_true(imatrix_means(entry(&back, "blk.0.attn_q.weight"), (uint64_t[]){ 1, 3 }, means));
    assert_true(means[0] == 2 && means[1] == 0 && means[2] == 0.5f);
    assert_true(imatrix_means(entry(&back, "blk.0.ffn_up_exps.weight"), (uint64_t[]){ 2, 2 }, means));
    assert_true(means[0] == 2 && means[1] == 3 && means[2] == 1 &&
                means[3] == 1); // the second expert got no row
    assert_false(imatrix_means(entry(&back, "blk.0.attn_q.weight"), (uint64_t[]){ 1, 4 }, means));
    assert_false(imatrix_means(entry(&back, "blk.0.ffn_up_exps.weight"), (uint64_t[]){ 4, 1 }, means));
    imatrix_free(&m);
    imatrix_free(&back);
}

static struct buf old_form(void)
{
    struct buf b = { 0 };
    const float values[] = { 4, 8, 0 };

    for (int e = 0; e < 2; e++) {
        if (e == 0)
            gguf_u32(&b, 2);
        gguf_u32(&b, 4);
        buf_text(&b, e ? "blk2" : "blk1");
        gguf_u32(&b, 2); // calls
        gguf_u32(&b, 3);
        buf_append(&b, values, sizeof values);
    }
    gguf_u32(&b, 7); // chunks
    gguf_u32(&b, 3);
    buf_text(&b, "txt");
    return b;
}

static void the_older_form_is_read(void **state)
{
    struct buf b = old_form();
    struct imatrix m;
    struct err err = { 0 };
    float means[6];
    (void)state;

    assert_ok(imatrix_file_parse(&m, buf_as_str(&b), "old", &err), &err);
    assert_true(m.n == 2 && m.n_chunks == 7 && str_is(m.text, "txt"));
    assert_true(imatrix_means(entry(&m, "blk2"), (uint64_t[]){ 1, 3 }, means) && means[0] == 2 &&
                means[1] == 4 && means[2] == 0);
    assert_true(imatrix_means(entry(&m, "blk1"), (uint64_t[]){ 3, 1 }, means) && means[1] == 4);
    imatrix_free(&m);
    size_t end = b.n - 11;
    for (size_t n = 0; n < b.n; n++) { // all behind the entries may be missing
        bool taken = imatrix_file_parse(&m, (struct str){ b.at, n }, "old", &err);
        if (taken)
            imatrix_free(&m);
        assert_true(taken == (n >= end));
    }
    buf_free(&b);
}

static void refuse_tensors(const float *sums, const float *counts, uint64_t n_counts, const char *part)
{
    struct gguf_builder g = { 0 };
    struct imatrix m;
    struct err err = { 0 };

    gguf_meta_str(&g, "general.type", "imatrix");
    if (sums)
        gguf_tensor(&g, "w.in_sum2", 0, 2, (uint64_t[]){ 2, 2 }, sums, 4 * sizeof *sums);
    if (counts)
        gguf_tensor(&g, "w.counts", 0, 2, (uint64_t[]){ 1, n_counts }, counts, n_counts * sizeof *counts);
    gguf_image(&g);
    assert_fails(imatrix_file_parse(&m, (struct str){ (const char *)g.image, g.n }, "some file", &err), &err,
                 part);
    assert_int_equal(err.code, ERR_INPUT);
    gguf_builder_free(&g);
}

static void hostile_files_are_refused(void **state)
{
    static const float fine[] = { 1, 2, 3, 4 }, bad[] = { 1, NAN, 3, 4 }, negative[] = { 1, -2, 3, 4 };
    struct imatrix m;
    struct err err = { 0 };
    (void)state;

    refuse_tensors(fine, NULL, 0, "some file: w.in_sum2: want its counts beside it");
    refuse_tensors(NULL, fine, 2, "some file: GGUF without importance");
    refuse_tensors(bad, fine, 2, "some file: w: sum 1 of squares is nan");
    refuse_tensors(negative, fine, 2, "sum 1 of squares is -2");
    refuse_tensors(fine, bad, 2, "count 1 is nan");
    refuse_tensors(fine, fine, 3, "4 sums for 3 matrices");
    assert_fails(imatrix_file_parse(&m, STR("\377\377\377\377 and more"), "x", &err), &err,
                 "x: no importance matrix");
    assert_fails(imatrix_file_read(&m, "/nowhere/imatrix", &err), &err, "/nowhere/imatrix: ");
}

// ---- quantize

static struct quantize_options to_path(const char *imatrix)
{
    return (struct quantize_options){ .input = SOURCE_DIR "/models/ingot-7m",
                                      .output = path,
                                      .type = "Q2_K",
                                      .imatrix = imatrix,
                                      .n_threads = 1 };
}

static void quantize_weighs_by_it(void **state)
{
    char matrix_path[] = "/tmp/ingot-imatrix-XXXXXX";
    struct quantize_options o = to_path(matrix_path);
    struct quantize_result r;
    struct imatrix m;
    struct model_file *f;
    struct err err = { 0 };
    (void)state;

    close(mkstemp(matrix_path));
    collect(engine, &m);
    assert_ok(imatrix_file_write(&m, matrix_path, &err) && quantize_file(&o, &r, &err), &err);
    assert_int_equal(r.n_weighted, 8 * 7);
    assert_ok(model_file_open(&f, path, &err), &err);
    assert_int_equal(model_file_meta(f, "quantize.imatrix.entries_count")->u, 8 * 7);
    assert_true(str_is(model_file_meta(f, "quantize.imatrix.file")->s, matrix_path) &&
                model_file_meta(f, "quantize.imatrix.chunks_count")->u == N_CHUNKS);
    model_file_close(f);
    imatrix_free(&m);
    small_matrix(&m); // three columns where the model has 256
    assert_ok(imatrix_file_write(&m, matrix_path, &err), &err);
    assert_fails(quantize_file(&o, &r, &err), &err,
                 "blk.0.attn_q.weight has 3 sums and 1 counts; the model's has 1 matrices of 256");
    m.entries[0].name = STR("other");
    assert_ok(imatrix_file_write(&m, matrix_path, &err), &err);
    assert_fails(quantize_file(&o, &r, &err), &err, "none of its 2 entries is of a matrix");
    imatrix_free(&m);
    unlink(matrix_path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_inputs), cmocka_unit_test(experts_are_kept_apart),
        cmocka_unit_test(devices_and_stages_agree),     cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(the_older_form_is_read),       cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(quantize_weighs_by_it),
    };
    return cmocka_run_group_tests(tests, make_text, remove_text);
}
