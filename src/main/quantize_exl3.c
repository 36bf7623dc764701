// quantize_exl3.c - see quantize_exl3.h. The work is in model_tools: trellis/trellis_write.c,
// imatrix_collect.c.
#include "main/quantize_exl3.h"
#include "engine/limits/system_load.h"
#include "main/loading.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"
#include "model_tools/imatrix_collect.h"
#include "model_tools/trellis/trellis_write.h"

enum { CHUNK = 512 };

struct calibration {
    const struct settings *settings;
    const char *input;
    struct buf text;
    struct thread_pool *pool;
    struct progress *coding; // the bar that waits meanwhile
};

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

static bool read_text(const struct calibration *c, struct ingot_engine *engine, struct moments *moments,
                      struct err *err)
{
    struct progress progress = { .what = "reading" };
    struct imatrix means = { 0 };
    struct eval_text chunks = { 0 };
    const struct eval_text_source source = { c->text.at, c->text.n, CHUNK, c->settings->n_chunks, false };
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

// Half of the memory that is left beside the engine is for sums; the coder needs some of the rest.
static bool calibrate(void *arg, uint32_t first, struct moments *moments, struct err *err)
{
    const struct calibration *c = arg;

    progress_end(c->coding);
    struct ingot_engine *engine = open_engine(c->settings, c->input);
    struct moments_limits limits = { first, UINT32_MAX,
                                     system_load_available(&(struct system_load_meter){ 0 }) / 2, c->pool };
    bool ok = engine && moments_create(moments, &limits, err) && read_text(c, engine, moments, err);

    ingot_engine_close(engine);
    return ok;
}

static bool prepare(struct calibration *c, struct err *err)
{
    bool given;

    c->pool = thread_pool_create(thread_count_capped(c->settings->n_threads));
    return c->pool ? loading_prompt(c->settings, NULL, &c->text, &given) : err_memory(err, "threads");
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
                r.n_tensors, options->bits, options->calibrate ? " after a text" : "", r.error);
    return ok;
}

int quantize_exl3(const struct settings *s, const char *input, const char *output)
{
    struct progress progress = { .what = "coding" };
    struct calibration calibration = { .settings = s, .input = input, .coding = &progress };
    struct err err = { 0 };
    struct trellis_options options = { .input = input,
                                       .output = output,
                                       .bits = s->exl3_bits,
                                       .head_bits = s->exl3_bits > 6 ? s->exl3_bits : 6,
                                       .device = s->device,
                                       .n_threads = s->n_threads,
                                       .progress = progress_callback,
                                       .progress_arg = &progress,
                                       .calibrate = s->file ? calibrate : NULL,
                                       .calibrate_arg = &calibration };

    signals_name_file(input);
    signals_end_work();
    bool ok = (!s->file || prepare(&calibration, &err)) && write_folder(s, &options, &err);
    thread_pool_destroy(calibration.pool);
    buf_free(&calibration.text);
    if (ok)
        return out_finish();
    if (err.code != ERR_NONE) // else it has been told
        fail(err.message);
    return err.code == ERR_CANCELLED ? STATUS_INTERRUPTED : STATUS_ERROR;
}
