// verb_quantize.c - ingot quantize: arguments, bar and figures; the work is in
// model_tools/quantize/quantize.c.
#include "main/quantize_exl3.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/progress.h"
#include "main/terminal/signals.h"
#include "model_tools/model_info.h"
#include "model_tools/quantize/quantize.h"
#include "model_tools/quantize/quantize_eyes.h"

// "PATTERN=TYPE" of --tensor-type, parted at the last '='.
static bool find_overrides(const struct verb_call *call, struct quantize_options *options)
{
    const struct option_list *list = &call->settings->tensor_types;
    struct quantize_override *overrides = arena_alloc_array(call->arena, list->n + 1, sizeof *overrides);
    struct err err;

    if (!overrides)
        fail("out of memory for --tensor-type");
    for (size_t i = 0; i < list->n && overrides; i++) {
        size_t at = str_find_last(str_from(list->at[i]), '=');
        if (at == SIZE_MAX || at == 0) {
            fail_usage("--tensor-type: found '%.80s', expected PATTERN=TYPE, as in ffn_down=Q6_K",
                       list->at[i]);
            return false;
        }
        overrides[i] = (struct quantize_override){ arena_printf(call->arena, "%.*s", (int)at, list->at[i]),
                                                   list->at[i] + at + 1 };
        if (!overrides[i].pattern || !quantize_override_check(&overrides[i], &err)) {
            fail_usage("%s", overrides[i].pattern ? err.message : "out of memory for --tensor-type");
            return false;
        }
    }
    options->overrides = overrides;
    options->n_overrides = list->n;
    return overrides != NULL;
}

static void print_tensor(void *arg, const struct quantize_tensor *t)
{
    char shape[96] = "";
    size_t n = 0;

    (void)arg;
    for (uint32_t i = 0; i < t->from->n_dims && n < sizeof shape - 24; i++)
        n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%llu", i ? " x " : "",
                              (unsigned long long)t->from->dims[i]);
    out_printf("%-40.*s %-22s %-6s -> %-6s %14llu\n", STR_ARG(t->name), shape,
               quant_info(t->from->format)->name, quant_info(t->format)->name, (unsigned long long)t->bytes);
}

static void print_result(const struct quantize_options *o, const struct quantize_result *r)
{
    char weighted[64] = "";

    if (o->imatrix)
        snprintf(weighted, sizeof weighted, ", %llu by importance", (unsigned long long)r->n_weighted);
    fprintf(stderr, "%s: %.1f MiB of tensors from %.1f; %llu of %llu quantised%s, %llu by a fallback\n",
            o->output ? o->output : "nothing written", (double)r->bytes_out / 1048576.0,
            (double)r->bytes_in / 1048576.0, (unsigned long long)r->n_quantized,
            (unsigned long long)r->n_tensors, weighted, (unsigned long long)r->n_fallback);
}

// Whether eyes that are there may not have been seen.
static bool is_unsure(const struct err *why)
{
    return why->code == ERR_MEMORY || why->code == ERR_IO;
}

// A model that sees keeps its eyes.
static bool write_eyes(const struct settings *s, const struct quantize_options *options, struct err *err)
{
    struct quantize_eyes q = { .output = options->output, .type = options->type };
    struct model_info info;

    if (!model_info_open(&info, options->input, 0, err))
        return false;
    bool sees = info.known && info.eyes.known;
    const struct err *why = info.known ? &info.eyes.unknown : &info.unknown;
    bool ok = sees ? quantize_eyes_write(&q, &info.eyes.tower, err) : !is_unsure(why);
    if (!sees && !ok)
        *err = *why;
    model_info_close(&info);
    if (ok && sees && q.path[0] && !s->quiet)
        fprintf(stderr, "%s: the eyes of the model, %.1f MiB of tensors\n", q.path,
                (double)q.bytes / 1048576.0);
    return ok;
}

static int quantize(const struct settings *s, struct quantize_options *options, struct progress *progress)
{
    struct quantize_result result;
    struct err err;
    bool ok = quantize_file(options, &result, &err) && (s->dry_run || write_eyes(s, options, &err));

    progress_end(progress);
    if (!ok) {
        fail(err.message);
        return err.code == ERR_CANCELLED ? STATUS_INTERRUPTED : STATUS_ERROR;
    }
    if (s->dry_run)
        out_printf("%-40s %-22s %-6s    %-6s %14llu\n", "sum", "", "", "",
                   (unsigned long long)result.bytes_out);
    if (!s->quiet)
        print_result(options, &result);
    return out_finish();
}

int verb_quantize(const struct verb_call *call)
{
    const struct option_operands *words = call->operands;
    const struct settings *s = call->settings;
    struct progress progress = { .what = "quantising" };
    struct quantize_options options = { .imatrix = s->imatrix,
                                        .n_threads = s->n_threads,
                                        .progress = progress_callback,
                                        .progress_arg = &progress,
                                        .on_tensor = s->dry_run ? print_tensor : NULL };
    struct err err;

    if (s->exl3_bits && words->n != 2)
        return fail_usage("quantize --exl3: found %zu operand%s, expected two folders: INPUT OUTPUT",
                          words->n, str_plural(words->n));
    if (s->exl3_bits)
        return quantize_exl3(s, words->at[0], words->at[1]);
    if (words->n != 3 && !(s->dry_run && words->n == 2))
        return fail_usage("quantize: found %zu operand%s, expected three: INPUT OUTPUT TYPE", words->n,
                          str_plural(words->n));
    options.input = words->at[0];
    options.output = s->dry_run ? NULL : words->at[1];
    options.type = words->at[words->n - 1];
    if (!quantize_type_check(options.type, &err))
        return fail_usage("%s", err.message);
    if (!find_overrides(call, &options))
        return STATUS_USAGE;
    signals_name_file(options.input);
    signals_end_work();
    return quantize(s, &options, &progress);
}
