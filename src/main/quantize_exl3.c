// quantize_exl3.c - see quantize_exl3.h. The work is in model_tools: trellis/trellis_write.c,
// imatrix_collect.c.
#include "main/quantize_exl3.h"
#include "main/loading.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"
#include "model_tools/imatrix_collect.h"
#include "model_tools/trellis/trellis_write.h"

enum { CHUNK = 512 };

static struct ingot_engine *open_engine(const struct settings *s, const char *input)
{
    struct ingot_engine_options options = ingot_engine_defaults();

    options.model = input;
    options.device = s->device;
    options.n_threads = s->n_threads;
    options.n_context = CHUNK + 1;
    options.exact = true; // the sums are the model's own, not the fast kernels'
    options.no_prefix_cache = true;
    options.cache_dir = NULL;
    options.mmproj = "";
    return loading_open(&options);
}

static bool read_text(const struct settings *s, struct ingot_engine *engine, struct str text,
                      struct moments *moments, struct err *err)
{
    struct progress progress = { .what = "reading" };
    struct imatrix means = { 0 };
    struct eval_text chunks = { 0 };
    const struct eval_text_source source = { text.at, text.n, CHUNK, s->n_chunks, false };
    struct imatrix_job job = { .engine = engine,
                               .text = &chunks,
                               .moments = moments,
                               .progress = progress_callback,
                               .progress_arg = &progress };
    bool ok = imatrix_create(&means, err) && eval_text_make(&chunks, engine, &source, err) &&
              imatrix_collect(&job, &means, err);

    progress_end(&progress);
    eval_text_free(&chunks);
    imatrix_free(&means);
    return ok;
}

static bool calibrate(const struct settings *s, const char *input, struct moments *moments, struct err *err)
{
    struct buf text = { 0 };
    bool given, ok = loading_prompt(s, NULL, &text, &given);
    struct ingot_engine *engine = ok ? open_engine(s, input) : NULL;
    struct thread_pool *pool = engine ? thread_pool_create(thread_count_capped(s->n_threads)) : NULL;

    if (engine && !pool)
        err_memory(err, "threads");
    ok = pool && moments_create(moments, pool, err) && read_text(s, engine, buf_as_str(&text), moments, err);
    thread_pool_destroy(pool);
    ingot_engine_close(engine);
    buf_free(&text);
    return ok;
}

static bool write_folder(const struct settings *s, const struct trellis_options *options, struct err *err)
{
    struct trellis_result r;
    bool ok = trellis_write(options, &r, err);

    progress_end(options->progress_arg);
    if (ok && !s->quiet)
        fprintf(stderr,
                "%s: %.1f MiB of tensors from %.1f; %u of %u coded with %u bits%s, a squared error of %.4f\n",
                options->output, (double)r.bytes_out / 1048576.0, (double)r.bytes_in / 1048576.0, r.n_coded,
                r.n_tensors, options->bits, options->moments ? " after a text" : "", r.error);
    return ok;
}

int quantize_exl3(const struct settings *s, const char *input, const char *output)
{
    struct progress progress = { .what = "coding" };
    struct moments moments = { 0 };
    struct err err = { 0 };
    struct trellis_options options = { .input = input,
                                       .output = output,
                                       .bits = s->exl3_bits,
                                       .head_bits = s->exl3_bits > 6 ? s->exl3_bits : 6,
                                       .moments = s->file ? &moments : NULL,
                                       .device = s->device,
                                       .n_threads = s->n_threads,
                                       .progress = progress_callback,
                                       .progress_arg = &progress };

    signals_name_file(input);
    signals_end_work();
    bool ok = (!s->file || calibrate(s, input, &moments, &err)) && write_folder(s, &options, &err);
    moments_free(&moments);
    if (ok)
        return out_finish();
    if (err.code != ERR_NONE) // else it has been told
        fail(err.message);
    return err.code == ERR_CANCELLED ? STATUS_INTERRUPTED : STATUS_ERROR;
}
