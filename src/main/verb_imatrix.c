// verb_imatrix.c - ingot imatrix: reads a text with a model and writes how large the inputs of its weights
// are. The work is in model_tools/imatrix_collect.c.
#include "base/file.h"
#include "main/loading.h"
#include "main/terminal/fail.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"
#include "model_tools/imatrix_collect.h"
#include "model_tools/imatrix_file.h"

enum { DEFAULT_CHUNK = 512 };

static struct ingot_engine *open_engine(const struct settings *s, uint32_t n_chunk)
{
    struct ingot_engine_options options = loading_options(s);

    options.n_context = n_chunk + 1;
    options.exact = true; // the sums are the model's own, not the fast kernels'
    options.no_prefix_cache = true;
    options.cache_dir = NULL;
    options.mmproj = "";
    return loading_open(&options);
}

static bool collect(const struct settings *s, struct ingot_engine *engine, struct str text, struct imatrix *m,
                    struct err *err)
{
    struct progress progress = { .what = "reading" };
    struct eval_text chunks = { 0 };
    const struct eval_text_source source = { text.at, text.n, s->n_context ? s->n_context : DEFAULT_CHUNK,
                                             s->n_chunks, s->special };
    struct imatrix_job job = {
        .engine = engine, .text = &chunks, .progress = progress_callback, .progress_arg = &progress
    };
    bool ok = eval_text_make(&chunks, engine, &source, err) && imatrix_collect(&job, m, err);

    progress_end(&progress);
    eval_text_free(&chunks);
    return ok;
}

// Before a text is read for hours.
static bool may_write(const char *path, struct err *err)
{
    struct file_writer w;

    if (!file_create(&w, path, err))
        return false;
    file_abort(&w);
    return true;
}

static bool run(const struct settings *s, struct str text, struct err *err)
{
    struct imatrix m = { 0 };
    struct ingot_engine *engine = open_engine(s, s->n_context ? s->n_context : DEFAULT_CHUNK);
    bool ok = engine && imatrix_create(&m, err);

    if (ok && s->file)
        m.text = str_from(s->file);
    ok = ok && collect(s, engine, text, &m, err) && imatrix_file_write(&m, s->imatrix_output, err);
    ingot_engine_close(engine);
    if (ok && !s->quiet)
        fprintf(stderr, "%s: %zu weight%s over %u chunk%s of %u tokens\n", s->imatrix_output, m.n,
                str_plural(m.n), m.n_chunks, str_plural(m.n_chunks), m.n_chunk);
    imatrix_free(&m);
    return ok;
}

int verb_imatrix(const struct verb_call *call)
{
    struct buf text = { 0 };
    struct err err = { 0 };
    bool given;

    if (!loading_prompt(call->settings, NULL, &text, &given))
        return STATUS_ERROR;
    if (!text.n)
        return fail_usage("imatrix: there is no text; give one with -f, or through a pipe");
    signals_end_work();
    bool ok = may_write(call->settings->imatrix_output, &err) && run(call->settings, buf_as_str(&text), &err);
    buf_free(&text);
    if (ok)
        return STATUS_OK;
    if (err.code != ERR_NONE) // else it has been told
        fail(err.message);
    return signals_interrupts() ? STATUS_INTERRUPTED : STATUS_ERROR;
}
