// verb_verify.c - ingot verify: compares every command of the tapes with its definition. The comparison is in
// engine/api/verify.c.
#include "engine/api/verify.h"
#include "main/loading.h"
#include "main/replay/replay.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/out_json.h"
#include "main/terminal/signals.h"

struct verify_listener {
    const struct settings *settings;
    uint32_t n_commands;
    double worst;
    char worst_label[64];
};

static void print_finding(const struct verify_listener *l, const struct verify_finding *f)
{
    bool bad = f->error > f->limit;

    if (l->settings->json) {
        out_json(json_pack("{s:i, s:i, s:i, s:s, s:s, s:f, s:f, s:b}", "stage", (int)f->stage, "rank",
                           (int)f->rank, "command", (int)f->command, "label", f->label, "operation", f->name,
                           "error", f->error, "limit", f->limit, "ok", !bad),
                 JSON_COMPACT);
        out_text("\n");
    } else if (bad || l->settings->all) {
        out_printf("%-4s %s %u command %3u  %-28s %-12s error %.3g, limit %.3g\n", bad ? "BAD" : "ok",
                   l->settings->n_tensor_parallel > 1 ? "rank" : "stage",
                   l->settings->n_tensor_parallel > 1 ? f->rank : f->stage, f->command, f->label, f->name,
                   f->error, f->limit);
    }
}

static bool on_command(void *arg, const struct verify_finding *finding)
{
    struct verify_listener *l = arg;

    l->n_commands++;
    if (!(finding->error <= l->worst)) {
        l->worst = finding->error;
        snprintf(l->worst_label, sizeof l->worst_label, "%s", finding->label);
    }
    print_finding(l, finding);
    return out_state() == OUT_OPEN && signals_interrupts() == 0;
}

int verb_verify(const struct verb_call *call)
{
    if (call->settings->replay)
        return replay_run(call->settings);
    struct ingot_engine_options options = loading_options(call->settings);
    struct verify_listener listener = { .settings = call->settings };
    struct verification v = { .n_rows = call->settings->n_verify,
                              .on_command = on_command,
                              .arg = &listener };
    struct err err;

    signals_name_file(call->settings->model);
    v.against = call->settings->verify_gemm ? VERIFY_VENDOR : VERIFY_PLAIN;
    if (v.against == VERIFY_VENDOR && v.n_rows <= 16)
        return fail_usage(
            "verify: --verify-gemm with %u rows; want more than 16, since fewer take other kernels",
            v.n_rows);
    if (!engine_verify(&options, &v, &err))
        return fail(err.message);
    if (call->settings->json)
        out_printf("{\"done\":true,\"commands\":%u,\"bad\":%u,\"worst\":%.9g}\n", listener.n_commands,
                   v.n_bad, listener.worst);
    else
        out_printf("%u commands, %u beyond their limit; worst error %.3g%s%s\n", listener.n_commands, v.n_bad,
                   listener.worst, listener.worst > 0 ? " of " : "", listener.worst_label);
    int status = out_finish();
    return status == STATUS_OK && v.n_bad ? STATUS_ERROR : status;
}
