// test_eval.c - perplexity and divergences against plain loops over the same rows, and what is told of texts
// that cannot be scored.
#include "toy_engine.h"
#include <math.h>
#include <unistd.h>
#include "model_tools/eval.h"

static const char story[] = "Tom was in the garden. Tom found a red ball. He went to the kitchen. Anna was "
                            "in the hall. Anna took the "
                            "ball from Tom.\n\nWhere is the ball? Anna has the ball. What is 17 + 25? 17 + "
                            "25 = 42. The fox and the owl "
                            "went to the old oak, and there they dug. Inside there was a golden key.";
enum { N_CHUNK = 24, CLASSES = 4 };

static struct eval_text text_of(uint32_t n_chunk, uint32_t most)
{
    const struct eval_text_source source = { story, sizeof story - 1, n_chunk, most, false };
    struct eval_text t;
    struct err err = { 0 };

    assert_ok(eval_text_make(&t, engine, &source, &err), &err);
    return t;
}

// ---- one row

static double kl_plain(const float *p_logits, const float *q_logits, uint32_t n)
{
    double p_sum = 0, q_sum = 0, kl = 0;

    for (uint32_t i = 0; i < n; i++) {
        p_sum += exp((double)p_logits[i]);
        q_sum += exp((double)q_logits[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        kl += exp((double)p_logits[i]) / p_sum *
              ((double)p_logits[i] - log(p_sum) - (double)q_logits[i] + log(q_sum));
    return kl;
}

static void rows_are_scored_as_defined(void **state)
{
    static const float p[CLASSES] = { 1, 3, 2, -4 }, q[CLASSES] = { 2.5f, 2, 2, 2 },
                       flat[CLASSES] = { 7, 7, 7, 7 };
    static struct logits_code_table table;
    uint16_t codes[CLASSES];
    struct eval_figures f;
    (void)state;

    logits_code_fill(&table);
    assert_true(eval_score_row(&(struct eval_row){ flat, CLASSES, 2, NULL, NULL }, NULL, &f));
    assert_true(fabs(f.nll - log(4)) < 1e-6);
    assert_true(eval_score_row(&(struct eval_row){ p, CLASSES, 1, NULL, codes }, NULL, &f));
    double nll = f.nll;
    assert_true(eval_score_row(&(struct eval_row){ q, CLASSES, 1, codes, NULL }, &table, &f));
    assert_true(fabs(f.kl - kl_plain(p, q, CLASSES)) < 1e-4 && fabs(f.reference_nll - nll) < 1e-4 &&
                !f.same_top);
    assert_true(eval_score_row(&(struct eval_row){ flat, CLASSES, 1, codes, NULL }, &table, &f));
    assert_true(!f.same_top); // the first of equals
    const float bad[2][CLASSES] = { { 1, NAN, 2, 3 }, { 1, 2, INFINITY, 3 } };
    for (int i = 0; i < 2; i++)
        assert_false(eval_score_row(&(struct eval_row){ bad[i], CLASSES, 1, codes, NULL }, &table, &f));
}

static void summaries_are_those_of_the_textbook(void **state)
{
    struct eval_figures f[5] = {
        { 1, 2, 0.5, true }, { 2, 2, 0, true }, { 3, 2, 0.1, false }, { 4, 4, 0.2, true }, { 5, 5, 9, true }
    };
    struct eval_summary s;
    double room[5];
    (void)state;

    eval_score_summary(f, 5, room, &s);
    assert_true(s.n == 5 && fabs(s.nll.mean - 3) < 1e-12 && fabs(s.nll.error - sqrt(2.5 / 5)) < 1e-12);
    assert_true(fabs(s.reference_nll - 3) < 1e-12 && fabs(s.excess.mean) < 1e-12 &&
                fabs(s.same_top.mean - 0.8) < 1e-12);
    assert_true(s.kl_median == 0.2 && s.kl_most == 9 && s.kl_p999 < 9 && s.kl_p999 > 8.9 &&
                fabs(s.kl.mean - 1.96) < 1e-12);
}

// ---- texts

static void a_text_is_cut_into_chunks(void **state)
{
    struct eval_text t = text_of(N_CHUNK, 0), one = text_of(N_CHUNK, 1);
    int64_t n = ingot_encode(engine, story, sizeof story - 1, INGOT_ADD_SPECIAL, NULL, 0, NULL);
    (void)state;

    assert_true(t.n_chunks == n / N_CHUNK && one.n_chunks == 1 && t.n_chunks > 2 && n % N_CHUNK != 0);
    assert_true(eval_text_first(&t) == 12 && eval_text_scored(&t) == 11);
    assert_true(sha256_eq(&t.vocabulary, &one.vocabulary));
    eval_text_free(&t);
    eval_text_free(&one);
}

static void a_short_text_is_refused(void **state)
{
    struct eval_text_source source = { "Tom was here.", 13, 512, 0, false };
    struct eval_text t;
    struct err err = { 0 };
    (void)state;

    assert_false(eval_text_make(&t, engine, &source, &err));
    assert_true(err.code == ERR_INPUT && strstr(err.message, "a chunk 512; take a longer text, or -c "));
    eval_text_free(&t);
    source.n_chunk = 3;
    assert_false(eval_text_make(&t, engine, &source, &err));
    assert_true(err.code == ERR_INPUT && strstr(err.message, "want 4 to"));
    eval_text_free(&t);
}

// ---- whole evaluations

struct plain {
    const struct eval_text *text;
    uint32_t chunk;
    double nll;
    uint32_t n;
};

static bool add_plain(void *arg, const struct ingot_event *event)
{
    struct plain *p = arg;
    const uint32_t *tokens = p->text->tokens + (uint64_t)p->chunk * p->text->n_chunk;
    double sum = 0;

    if (!event->logits || event->position < p->text->n_chunk / 2 || event->position + 1 >= p->text->n_chunk)
        return true;
    for (uint32_t i = 0; i < p->text->n_vocab; i++)
        sum += exp((double)event->logits[i]);
    p->nll += log(sum) - (double)event->logits[tokens[event->position + 1]];
    p->n++;
    return true;
}

// All of a chunk is read here, its last token too, and every row delivered: what llama-perplexity does.
static double plain_nll(const struct eval_text *t)
{
    struct plain p = { .text = t };

    for (; p.chunk < t->n_chunks; p.chunk++) {
        struct ingot_request_options o = ingot_request_defaults();
        o.tokens = t->tokens + (uint64_t)p.chunk * t->n_chunk;
        o.n_tokens = o.n_logits = t->n_chunk;
        o.max_tokens = 1;
        assert_true(ingot_generate(engine, &o, add_plain, &p, NULL, NULL));
    }
    assert_int_equal(p.n, t->n_chunks * (t->n_chunk - 1 - t->n_chunk / 2));
    return p.nll / p.n;
}

static void perplexity_is_that_of_a_plain_loop(void **state)
{
    (void)state;
    for (uint32_t n_chunk = 5; n_chunk < 80; n_chunk += 37) {
        struct eval_text t = text_of(n_chunk, 0);
        struct eval_job job = { .engine = engine, .text = &t, .n_threads = n_chunk % 3 + 1 };
        struct eval_summary s;
        struct err err = { 0 };
        assert_ok(eval_run(&job, &s, &err), &err);
        assert_int_equal(s.n, t.n_chunks * eval_text_scored(&t));
        if (fabs(s.nll.mean - plain_nll(&t)) > 1e-6)
            fail_msg("chunks of %u: mean of -log p %.9f, expected %.9f", n_chunk, s.nll.mean, plain_nll(&t));
        eval_text_free(&t);
    }
}

// A model compared with itself loses nothing; with Q8_0 pages a little.
static void divergence_is_that_of_the_pages(void **state)
{
    char path[] = "/tmp/ingot-eval-XXXXXX";
    struct eval_text t = text_of(N_CHUNK, 0);
    struct logits_file_writer w;
    struct logits_file reference;
    struct eval_job job = { .engine = engine, .text = &t, .save = &w, .n_threads = 2 };
    struct eval_summary s;
    struct err err = { 0 };
    (void)state;

    close(mkstemp(path));
    assert_ok(logits_file_create(&w, path, &t, &err) && eval_run(&job, &s, &err) &&
                  logits_file_commit(&w, &err),
              &err);
    assert_ok(logits_file_open(&reference, path, &err), &err);
    job.save = NULL;
    job.reference = &reference;
    job.text = &reference.text;
    double nll = s.nll.mean;
    assert_ok(eval_check_vocabulary(engine, &reference.text, &err), &err);
    assert_ok(eval_run(&job, &s, &err), &err);
    assert_true(s.kl_most < 1e-7 && s.same_top.mean == 1 && fabs(s.excess.mean) < 1e-4 && s.nll.mean == nll);
    struct ingot_engine_options o = ingot_engine_defaults();
    o.cache_type_k = o.cache_type_v = INGOT_KV_Q8_0;
    eval_engine_options(&o, N_CHUNK);
    job.engine = open_or_fail(&o);
    assert_ok(eval_run(&job, &s, &err), &err);
    assert_true(s.kl.mean > 1e-7 && s.kl.mean < 1e-3 && s.kl_median <= s.kl_p90 && s.kl_p90 <= s.kl_p99 &&
                s.kl_p99 <= s.kl_most);
    ingot_engine_close(job.engine);
    logits_file_close(&reference);
    eval_text_free(&t);
    unlink(path);
}

static void another_vocabulary_is_refused(void **state)
{
    struct eval_text t = text_of(N_CHUNK, 1);
    struct err err = { 0 };
    (void)state;

    t.vocabulary.at[3] ^= 1;
    assert_false(eval_check_vocabulary(engine, &t, &err));
    assert_true(err.code == ERR_INPUT && strstr(err.message, "another vocabulary"));
    t.n_vocab++;
    assert_false(eval_check_vocabulary(engine, &t, &err));
    assert_non_null(strstr(err.message, "this model has 4096"));
    eval_text_free(&t);
}

static bool stop(void *arg, uint64_t done, uint64_t total)
{
    (void)arg;
    return done < total / 2;
}

static void it_can_be_stopped(void **state)
{
    struct eval_text t = text_of(N_CHUNK, 0);
    struct eval_job job = { .engine = engine, .text = &t, .progress = stop };
    struct eval_summary s;
    struct err err = { 0 };
    (void)state;

    assert_false(eval_run(&job, &s, &err));
    assert_int_equal(err.code, ERR_CANCELLED);
    eval_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_scored_as_defined),
        cmocka_unit_test(summaries_are_those_of_the_textbook),
        cmocka_unit_test(a_text_is_cut_into_chunks),
        cmocka_unit_test(a_short_text_is_refused),
        cmocka_unit_test(perplexity_is_that_of_a_plain_loop),
        cmocka_unit_test(divergence_is_that_of_the_pages),
        cmocka_unit_test(another_vocabulary_is_refused),
        cmocka_unit_test(it_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, open_toy, close_toy);
}
