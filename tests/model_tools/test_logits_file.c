// test_logits_file.c - reference logits come back as they were, within a stated loss; no damaged file is
// taken for a whole one.
#include "testing.h"
#include <math.h>
#include <stdlib.h>
#include <unistd.h>
#include "model_tools/eval_score.h"
#include "model_tools/logits_file.h"

enum { N_VOCAB = 13, N_CHUNK = 6, N_CHUNKS = 3, N_SCORED = 2 };

static char path[] = "/tmp/ingot-logits-XXXXXX";
static struct buf whole; // a good file's bytes
static struct logits_code_table table;

static uint16_t code_at(uint32_t chunk, uint32_t i)
{
    return (uint16_t)((chunk * 1000 + i * 37) % 65536);
}

static int make_file(void **state)
{
    uint32_t tokens[N_CHUNKS * N_CHUNK];
    struct eval_text text = { N_VOCAB, N_CHUNK, N_CHUNKS, { "vocabulary" }, tokens };
    struct logits_file_writer w;
    struct err err = { 0 };
    (void)state;

    logits_code_fill(&table);
    for (uint32_t i = 0; i < N_CHUNKS * N_CHUNK; i++)
        tokens[i] = i % N_VOCAB;
    assert_int_equal(eval_text_scored(&text), N_SCORED);
    close(mkstemp(path));
    assert_ok(logits_file_create(&w, path, &text, &err), &err);
    for (uint32_t c = 0; c < N_CHUNKS; c++) {
        for (uint32_t i = 0; i < N_SCORED * N_VOCAB; i++)
            logits_file_add(&w, &(uint16_t){ code_at(c, i) }, 1);
        logits_file_end_chunk(&w);
    }
    assert_ok(logits_file_commit(&w, &err), &err);
    logits_file_abort(&w);
    assert_ok(file_read(&whole, path, 1 << 20, &err), &err);
    return 0;
}

static int remove_file(void **state)
{
    (void)state;
    buf_free(&whole);
    return unlink(path);
}

static void what_was_written_is_read(void **state)
{
    struct logits_file f;
    struct err err = { 0 };
    (void)state;

    assert_ok(logits_file_open(&f, path, &err), &err);
    assert_true(f.text.n_vocab == N_VOCAB && f.text.n_chunk == N_CHUNK && f.text.n_chunks == N_CHUNKS);
    assert_memory_equal(f.text.vocabulary.at, "vocabulary", 10);
    for (uint32_t i = 0; i < N_CHUNKS * N_CHUNK; i++)
        assert_int_equal(f.text.tokens[i], i % N_VOCAB);
    for (int again = 0; again < 2; again++)
        for (uint32_t c = 0; c < N_CHUNKS; c++) {
            const uint16_t *codes = logits_file_chunk(&f, c, &err);
            assert_non_null(codes);
            for (uint32_t i = 0; i < N_SCORED * N_VOCAB; i++)
                assert_int_equal(codes[i], code_at(c, i));
        }
    logits_file_close(&f);
}

// Every prefix, and every byte changed: the head's damage is found at once, a chunk's when it is read.
static bool is_taken(const char *bytes, size_t n, struct err *err)
{
    struct logits_file f;
    bool ok = logits_file_parse(&f, (struct str){ bytes, n }, err);

    for (uint32_t c = 0; ok && c < f.text.n_chunks; c++)
        if (!logits_file_chunk(&f, c, err)) {
            logits_file_close(&f);
            return false;
        }
    if (ok)
        logits_file_close(&f);
    return ok;
}

static void damaged_files_are_refused(void **state)
{
    struct err err;
    (void)state;

    for (size_t n = 0; n < whole.n; n++) {
        err = (struct err){ 0 };
        assert_false(is_taken(whole.at, n, &err));
        assert_true(err.code == ERR_INPUT && strlen(err.message) > 20);
    }
    for (size_t i = 0; i < whole.n; i++) {
        err = (struct err){ 0 };
        whole.at[i] ^= 0x40;
        assert_false(is_taken(whole.at, whole.n, &err));
        assert_true(err.code == (i == 7 ? ERR_UNSUPPORTED : ERR_INPUT));
        whole.at[i] ^= 0x40;
    }
    assert_true(is_taken(whole.at, whole.n, &err));
    assert_false(buf_append(&whole, "x", 1) && is_taken(whole.at, whole.n, &err));
    whole.n--;
}

// Distributions flat and peaked: what is read differs from what was written by less than 2e-8 nats.
static void codes_lose_little(void **state)
{
    enum { N = 4096 };
    static float logits[N];
    static uint16_t codes[N];
    uint64_t random = 1;
    (void)state;

    assert_true(logits_code(0) == 0 && logits_code(-1e-30) == 0 && logits_code(-40) == 65535 &&
                logits_code(-1000) == 65535);
    for (int sharp = 0; sharp < 40; sharp++) {
        for (uint32_t i = 0; i < N; i++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            logits[i] = (float)(random >> 40) / 16777216.0f * (float)sharp;
        }
        struct eval_figures f;
        assert_true(eval_score_row(&(struct eval_row){ logits, N, 5, NULL, codes }, NULL, &f));
        assert_true(eval_score_row(&(struct eval_row){ logits, N, 5, codes, NULL }, &table, &f));
        if (f.kl > 2e-8 || !f.same_top || fabs(f.nll - f.reference_nll) > 1e-3)
            fail_msg("logits up to %d: KL %g, nll %g and %g", sharp, f.kl, f.nll, f.reference_nll);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(codes_lose_little),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
