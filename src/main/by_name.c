// by_name.c - see by_name.h.
//
// A file always wins over a name. What the cache holds is taken without asking anybody; only `ingot pull` looks for something newer.
#include "main/by_name.h"
#include "base/clock.h"
#include "base/file.h"
#include "hub/hub_cache.h"
#include "hub/hub_pull.h"
#include "main/terminal.h"
#include "main/transfer.h"

static bool on_bytes(void *arg, const char *what, uint64_t done, uint64_t total)
{
    transfer_show(arg, what, done, total);
    return interrupts() == 0;
}

static int pull(const struct hub *hub, const struct hub_name *name, bool quiet, struct hub_pulled *pulled)
{
    struct transfer transfer = { 0 };
    const struct hub_watch watch = { on_bytes, &transfer };
    uint64_t begun = clock_ns();
    char bytes[16], rate[16];
    struct err err;

    bool ok = hub_pull(hub, name, &watch, pulled, &err);
    double seconds = (double)(clock_ns() - begun) * 1e-9;
    transfer_end(&transfer);
    if (!ok && err.code == ERR_CANCELLED) {
        fail("stopped; the next pull goes on from here");
        return STATUS_INTERRUPTED;
    }
    if (!ok)
        return fail(err.message);
    if (!quiet && pulled->received)
        fprintf(stderr, "%s: %s pulled in %.1f s, %s/s\n", name->repo, bytes_text(pulled->received, bytes), seconds,
                bytes_text((uint64_t)((double)pulled->received / seconds), rate));
    else if (!quiet)
        fprintf(stderr, "%s: %s, nothing new\n", name->repo, bytes_text(pulled->bytes, bytes));
    return STATUS_OK;
}

int model_fetch(const struct hub *hub, const char *text, bool fresh, bool quiet, char path[HUB_PATH])
{
    struct hub_pulled pulled;
    struct hub_name name;
    struct err err;

    if (!hub_name_read(&name, text, &err))
        return fail_usage("%s", err.message);
    if ((!fresh || hub->offline) && hub_find(hub, &name, path, &err))
        return STATUS_OK;
    if (hub->offline)
        return fail(err.message);
    int status = pull(hub, &name, quiet, &pulled);
    if (status == STATUS_OK)
        memcpy(path, pulled.path, HUB_PATH);
    return status;
}

// The operand that may be a model: run's first one when no option names the model, inspect's and quantize's.
static const char **operand_of(const struct option_verb *verb, const struct settings *s, struct option_operands *operands)
{
    bool takes = !strcmp(verb->name, "inspect") || !strcmp(verb->name, "quantize") || (!strcmp(verb->name, "run") && !s->model);
    return takes && operands->n ? &operands->at[0] : NULL;
}

int model_by_name(const struct option_verb *verb, struct settings *settings, struct option_operands *operands,
                  struct arena *arena)
{
    const char **operand = settings->hub_name ? NULL : operand_of(verb, settings, operands);
    const char *text = settings->hub_name ? settings->hub_name : operand ? *operand : settings->model;
    char path[HUB_PATH];
    struct hub hub;
    struct err err;

    if (settings->hub_name && settings->model)
        return fail_usage("-hf and -m both name a model; expected one");
    if (!text || (!settings->hub_name && (file_exists(text) || !hub_name_like(text))))
        return STATUS_OK;
    if (!hub_open(&hub, settings->offline, &err))
        return fail(err.message);
    int status = model_fetch(&hub, text, false, settings->quiet, path);
    if (status != STATUS_OK)
        return status;
    const char *found = arena_str(arena, str_from(path)).at;
    if (!found)
        return fail("out of memory");
    settings->alias = settings->alias ? settings->alias : text;
    if (!operand || !strcmp(verb->name, "run"))
        settings->model = found;
    else
        *operand = found;
    if (operand && !strcmp(verb->name, "run"))
        memmove(operands->at, operands->at + 1, --operands->n * sizeof *operands->at);
    return STATUS_OK;
}
