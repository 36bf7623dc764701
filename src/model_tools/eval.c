// eval.c - see eval.h. A chunk is one request that wants the logits of its second half; rows are collected in
// blocks, which all threads score together.
#include "model_tools/eval.h"
#include "base/mem.h"
#include "base/thread_pool.h"

enum { BLOCK_ROWS = 64, MOST_THREADS = 256 };

struct scorer {
    const struct eval_job *job;
    struct thread_pool *pool;
    struct logits_code_table *table;
    float *rows;     // [BLOCK_ROWS, n_vocab]
    uint16_t *codes; // the same, of what is saved; NULL: nothing
    struct eval_figures *figures;
    double *room;
    uint32_t chunk, n_scored; // rows of this chunk that were scored; more wait in the block
    uint32_t n_block;
    const uint16_t *reference; // of this chunk, or NULL
    bool bad[MOST_THREADS];
    struct err err;
};

void eval_engine_options(struct ingot_engine_options *options, uint32_t n_chunk)
{
    options->n_context = options->n_context > n_chunk ? options->n_context : n_chunk;
    options->n_logit_rows = UINT32_MAX; // of each row of a step, as far as there is room
    options->no_prefix_cache = true;
    options->cache_dir = NULL;
    options->mmproj = "";
}

bool eval_check_vocabulary(const struct ingot_engine *engine, const struct eval_text *text, struct err *err)
{
    struct ingot_engine_info info;
    struct sha256 own;

    ingot_engine_info(engine, &info);
    if (info.n_vocab != text->n_vocab)
        return err_set(err, ERR_INPUT, "logits of a vocabulary of %u tokens; this model has %u",
                       text->n_vocab, info.n_vocab);
    return eval_text_vocabulary(engine, &own, err) &&
           (sha256_eq(&own, &text->vocabulary) ||
            err_set(err, ERR_INPUT,
                    "logits of a model with another vocabulary: their distributions cannot be compared"));
}

static struct eval_figures *figures_of(const struct scorer *s)
{
    return s->figures + (uint64_t)s->chunk * eval_text_scored(s->job->text) + s->n_scored;
}

static void score(void *arg, unsigned thread)
{
    struct scorer *s = arg;
    const struct eval_text *t = s->job->text;
    const uint32_t *behind =
        t->tokens + (uint64_t)s->chunk * t->n_chunk + eval_text_first(t) + s->n_scored + 1;
    unsigned n_threads = thread_pool_size(s->pool);

    s->bad[thread] = false;
    for (uint32_t i = thread; i < s->n_block; i += n_threads) {
        struct eval_row row = { s->rows + (uint64_t)i * t->n_vocab, t->n_vocab, behind[i],
                                s->reference ? s->reference + (uint64_t)(s->n_scored + i) * t->n_vocab : NULL,
                                s->codes ? s->codes + (uint64_t)i * t->n_vocab : NULL };
        s->bad[thread] |= !eval_score_row(&row, s->table, &figures_of(s)[i]);
    }
}

static bool score_block(struct scorer *s)
{
    thread_pool_run(s->pool, score, s);
    for (unsigned i = 0; i < thread_pool_size(s->pool); i++)
        if (s->bad[i])
            return err_set(&s->err, ERR_NUMERIC, "chunk %u: the logits hold NaN or infinity", s->chunk);
    if (s->codes)
        logits_file_add(s->job->save, s->codes, (size_t)s->n_block * s->job->text->n_vocab);
    s->n_scored += s->n_block;
    s->n_block = 0;
    return true;
}

static bool on_event(void *arg, const struct ingot_event *event)
{
    struct scorer *s = arg;
    const struct eval_text *t = s->job->text;

    if (!event->logits)
        return true;
    CHECK(event->position == eval_text_first(t) + s->n_scored + s->n_block);
    memcpy(s->rows + (uint64_t)s->n_block++ * t->n_vocab, event->logits, t->n_vocab * sizeof(float));
    bool last = s->n_scored + s->n_block == eval_text_scored(t);
    return s->n_block < BLOCK_ROWS && !last ? true : score_block(s);
}

static bool goes_on(void *arg)
{
    const struct scorer *s = arg;
    const struct eval_job *job = s->job;

    return !job->progress || job->progress(job->progress_arg, s->chunk, job->text->n_chunks);
}

static bool stopped(const struct scorer *s, struct err *err)
{
    return err_set(err, ERR_CANCELLED, "stopped after %u of %u chunks", s->chunk, s->job->text->n_chunks);
}

// The last token of a chunk is scored and predicts nothing, so it is not read.
static bool read_chunk(struct scorer *s, struct err *err)
{
    const struct eval_text *t = s->job->text;
    struct ingot_request_options o = ingot_request_defaults();
    struct ingot_result result = { 0 };
    struct ingot_error error = { 0 };

    o.tokens = t->tokens + (uint64_t)s->chunk * t->n_chunk;
    o.n_tokens = t->n_chunk - 1;
    o.n_logits = eval_text_scored(t);
    o.max_tokens = 1;
    o.ignore_eos = true;
    o.sampling.temperature = 0;
    o.on_step = goes_on;
    s->n_scored = s->n_block = 0;
    s->reference = s->job->reference ? logits_file_chunk(s->job->reference, s->chunk, err) : NULL;
    if (s->job->reference && !s->reference)
        return false;
    bool ok = ingot_generate(s->job->engine, &o, on_event, s, &result, &error);
    if (s->err.code != ERR_NONE) {
        *err = s->err;
        return false;
    }
    if (!ok)
        return err_set(err, (enum err_code)error.code, "%s", error.message);
    if (result.finish == INGOT_FINISH_CANCELLED)
        return stopped(s, err);
    if (s->codes)
        logits_file_end_chunk(s->job->save);
    return true;
}

static bool alloc(struct scorer *s, struct err *err)
{
    const struct eval_text *t = s->job->text;
    uint64_t n = (uint64_t)t->n_chunks * eval_text_scored(t);
    unsigned n_threads = s->job->n_threads ? s->job->n_threads : thread_count_available();

    s->pool = thread_pool_create(n_threads < MOST_THREADS ? n_threads : MOST_THREADS);
    s->rows = mem_alloc_array((size_t)BLOCK_ROWS * t->n_vocab, sizeof *s->rows);
    s->figures = mem_alloc_array(n, sizeof *s->figures);
    s->room = mem_alloc_array(n, sizeof *s->room);
    s->codes = s->job->save ? mem_alloc_array((size_t)BLOCK_ROWS * t->n_vocab, sizeof *s->codes) : NULL;
    s->table = s->job->reference ? mem_alloc(sizeof *s->table) : NULL;
    if (!s->pool || !s->rows || !s->figures || !s->room || (s->job->save && !s->codes) ||
        (s->job->reference && !s->table))
        return err_memory(err, "the logits of a chunk");
    if (s->table)
        logits_code_fill(s->table);
    return true;
}

static void release(struct scorer *s)
{
    thread_pool_destroy(s->pool);
    mem_free(s->rows);
    mem_free(s->figures);
    mem_free(s->room);
    mem_free(s->codes);
    mem_free(s->table);
    mem_free(s);
}

static bool read_chunks(struct scorer *s, struct err *err)
{
    const struct eval_job *job = s->job;

    for (; s->chunk < job->text->n_chunks; s->chunk++) {
        if (!goes_on(s))
            return stopped(s, err);
        if (!read_chunk(s, err))
            return false;
    }
    return true;
}

bool eval_run(const struct eval_job *job, struct eval_summary *summary, struct err *err)
{
    struct scorer *s = mem_alloc(sizeof *s);

    if (!s)
        return err_memory(err, "an evaluation");
    s->job = job;
    bool ok = alloc(s, err) && read_chunks(s, err);
    if (ok)
        eval_score_summary(s->figures, (size_t)job->text->n_chunks * eval_text_scored(job->text), s->room,
                           summary);
    release(s);
    return ok;
}
