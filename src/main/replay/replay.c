// replay.c - see replay.h.
#include "main/replay/replay.h"
#include <math.h>
#include "engine/api/verify.h"
#include "main/loading.h"
#include "main/replay/record.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/signals.h"

enum { MOST_ROWS = 2048 }; // of the step whose commands are compared

struct replay {
    const struct record *record;
    uint32_t n;       // tokens that came so far
    uint32_t differs; // the first that is another, UINT32_MAX: none
    uint32_t token;   // it
    double margin;    // its logit above that of the record's token
    uint32_t n_vocab;
};

static const uint32_t *answer_of(const struct record *r)
{
    return r->tokens + r->n_prompt;
}

static bool on_event(void *arg, const struct ingot_event *event)
{
    struct replay *p = arg;
    uint32_t n_answer = p->record->n_tokens - p->record->n_prompt;

    if (event->token == UINT32_MAX)
        return signals_interrupts() == 0;
    uint32_t at = p->n++, old = at < n_answer ? answer_of(p->record)[at] : UINT32_MAX;
    if (old == event->token)
        return signals_interrupts() == 0;
    p->differs = at;
    p->token = event->token;
    if (old < p->n_vocab && event->logits)
        p->margin = (double)event->logits[event->token] - (double)event->logits[old];
    return false;
}

// ---- which command

struct suspect {
    struct verify_finding worst; // in parts of its limit
    char label[64], name[32];
    uint32_t n;
};

static bool on_command(void *arg, const struct verify_finding *f)
{
    struct suspect *s = arg;

    s->n++;
    if (f->error > f->limit)
        out_printf("beyond its limit: stage %u command %u, %s (%s), error %.3g, limit %.3g\n", f->stage,
                   f->command, f->label, f->name, f->error, f->limit);
    if (!(f->error / f->limit <= s->worst.error / s->worst.limit)) {
        s->worst = *f;
        snprintf(s->label, sizeof s->label, "%s", f->label);
        snprintf(s->name, sizeof s->name, "%s", f->name);
    }
    return signals_interrupts() == 0;
}

// Plays the text before the first other token, here and by the plain loops.
static bool name_commands(struct ingot_engine_options *options, const struct replay *p, struct err *err)
{
    struct suspect suspect = { .worst = { .limit = 1, .error = -1 } };
    uint32_t n = p->record->n_prompt + p->differs;
    struct verification v = { .n_rows = n < MOST_ROWS ? n : MOST_ROWS,
                              .tokens = p->record->tokens,
                              .on_command = on_command,
                              .arg = &suspect };

    options->n_batch = options->n_batch > v.n_rows ? options->n_batch : v.n_rows;
    if (!engine_verify(options, &v, err))
        return false;
    out_printf("%u command%s of a step of %u row%s, %u beyond their limit", suspect.n, str_plural(suspect.n),
               v.n_rows, str_plural(v.n_rows), v.n_bad);
    if (suspect.worst.error > 0 && v.n_bad == 0)
        out_printf("; %s (%s) comes nearest, with %.3g of %.3g", suspect.label, suspect.name,
                   suspect.worst.error, suspect.worst.limit);
    out_text("\n");
    return true;
}

static void tell_difference(const struct replay *p, const struct ingot_result *result)
{
    const struct record *r = p->record;
    uint32_t n_answer = r->n_tokens - r->n_prompt;

    if (p->differs == UINT32_MAX) {
        out_printf("the answer has %u token%s and ends by %s; the record's has %u and ends by %s\n", p->n,
                   str_plural(p->n), record_finish_name(result->finish), n_answer, r->finish);
        return;
    }
    out_printf("token %u of the answer, at position %u, is %u", p->differs, r->n_prompt + p->differs,
               p->token);
    if (p->differs < n_answer)
        out_printf("; the record's is %u, whose logit here is %.6g %s\n", answer_of(r)[p->differs],
                   fabs(p->margin), p->margin >= 0 ? "less" : "more");
    else
        out_printf("; the record's answer ended before it\n");
}

// ---- the request

static bool ask(struct ingot_engine *engine, struct replay *p, struct ingot_result *result, struct err *err)
{
    struct ingot_request_options o = p->record->options;
    struct ingot_engine_info info;
    char hash[SHA256_HEX_BYTES];

    ingot_engine_info(engine, &info);
    p->n_vocab = info.n_vocab;
    o.n_logits = 1;
    o.on_step = signals_go_on;
    if (!engine_model_hash(engine, hash, err))
        return false;
    if (strcmp(hash, p->record->model_hash) != 0)
        return err_set(err, ERR_INPUT,
                       "the record is of other weights (%.12s) than this model (%.12s); give the model by -m",
                       p->record->model_hash, hash);
    return ingot_generate(engine, &o, on_event, p, result, (struct ingot_error *)err);
}

static int replay(const struct settings *s, const struct record *record)
{
    struct ingot_engine_options options = loading_options(s);
    struct replay p = { .record = record, .differs = UINT32_MAX };
    struct ingot_result result = { 0 };
    struct err err = { 0 };

    options.model = options.model ? options.model : record->model;
    options.n_context = options.n_context ? options.n_context : record->n_context;
    struct ingot_engine *engine = loading_open(&options);
    if (!engine)
        return signals_interrupts() ? STATUS_INTERRUPTED : STATUS_ERROR;
    bool ok = ask(engine, &p, &result, &err);
    ingot_engine_close(engine);
    if (signals_interrupts())
        return STATUS_INTERRUPTED;
    if (!ok)
        return fail(err.message);
    if (p.differs == UINT32_MAX && p.n == record->n_tokens - record->n_prompt &&
        !strcmp(record_finish_name(result.finish), record->finish)) {
        out_printf("%u token%s, the same as in the record (%s)\n", p.n, str_plural(p.n), record->device);
        return out_finish();
    }
    tell_difference(&p, &result);
    if (p.differs != UINT32_MAX && !name_commands(&options, &p, &err))
        return fail(err.message);
    int status = out_finish();
    return status == STATUS_OK ? STATUS_ERROR : status;
}

int replay_run(const struct settings *settings)
{
    struct record record;
    struct err err;

    if (!record_read(&record, settings->replay, &err))
        return fail(err.message);
    int status = replay(settings, &record);
    record_release(&record);
    return status;
}
