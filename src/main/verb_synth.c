// verb_synth.c - ingot synth: arguments and bar; the work is in model_tools/random/random_model.c.
#include "main/settings.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"
#include "model_tools/random/random_model.h"
#include "model_tools/random/random_shapes.h"

static int print_shapes(void)
{
    for (size_t i = 0; random_shape_at(i); i++)
        out_printf("%s\n", random_shape_at(i)->name);
    return out_finish();
}

int verb_synth(const struct verb_call *call)
{
    const struct option_operands *words = call->operands;
    struct progress progress = { .what = "writing" };
    struct err err;

    if (call->settings->list)
        return print_shapes();
    if (words->n != 2)
        return fail_usage("synth: found %zu operand%s, expected two: SHAPE OUTPUT; --list prints the shapes",
                          words->n, str_plural(words->n));
    struct random_model_options options = {
        .shape = words->at[0],
        .type = call->settings->type,
        .output = words->at[1],
        .seed = call->settings->seed,
        .n_layers = call->settings->n_synth_layers,
        .hollow = call->settings->hollow,
        .progress = progress_callback,
        .progress_arg = &progress,
    };
    signals_end_work();
    bool ok = random_model_file(&options, &err);
    progress_end(&progress);
    if (ok)
        return STATUS_OK;
    fail(err.message);
    return err.code == ERR_CANCELLED ? STATUS_INTERRUPTED
           : err.code == ERR_INPUT   ? STATUS_USAGE
                                     : STATUS_ERROR;
}
