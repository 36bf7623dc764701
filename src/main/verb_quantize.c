// verb_quantize.c - ingot quantize: arguments, bar and figures; the work is in model_tools/quantize.c.
#include "main/settings.h"
#include "main/terminal/fail.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"
#include "model_tools/quantize.h"

int verb_quantize(const struct verb_call *call)
{
    const struct option_operands *words = call->operands;
    struct progress progress = { .what = "quantising" };
    struct quantize_result result;
    struct err err;

    if (words->n != 3)
        return fail_usage("quantize: found %zu operands, expected three: INPUT OUTPUT TYPE", words->n);
    struct quantize_options options = {
        .input = words->at[0],
        .output = words->at[1],
        .type = words->at[2],
        .n_threads = call->settings->n_threads,
        .progress = progress_callback,
        .progress_arg = &progress,
    };
    signals_name_file(options.input);
    signals_end_work();
    bool ok = quantize_file(&options, &result, &err);
    progress_end(&progress);
    if (!ok) {
        fail(err.message);
        return err.code == ERR_CANCELLED ? STATUS_INTERRUPTED : STATUS_ERROR;
    }
    if (!call->settings->quiet)
        fprintf(stderr, "%s: %.1f MiB of tensors from %.1f; %llu of %llu quantised, %llu by a fallback\n",
                options.output, (double)result.bytes_out / 1048576.0, (double)result.bytes_in / 1048576.0,
                (unsigned long long)result.n_quantized, (unsigned long long)result.n_tensors,
                (unsigned long long)result.n_fallback);
    return STATUS_OK;
}
