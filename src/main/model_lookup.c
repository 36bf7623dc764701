// model_lookup.c - see model_lookup.h.
//
// A file always wins over a name. A model in the cache is used without a request to the hub; only `ingot
// pull` looks for a newer one.
#include "main/model_lookup.h"
#include <ctype.h>
#include <strings.h>
#include "base/clock.h"
#include "base/file.h"
#include "engine/embedded.h"
#include "hub/hub_cache.h"
#include "hub/hub_pull.h"
#include "main/following.h"
#include "main/terminal/fail.h"
#include "main/terminal/signals.h"
#include "main/terminal/transfer.h"
#include "main/terminal/units.h"

static bool on_bytes(void *arg, const struct hub_progress *p)
{
    transfer_show(arg, p);
    return signals_interrupts() == 0;
}

static void print_figures(const char *repo, const struct hub_pulled *pulled, double seconds)
{
    char bytes[16], rate[16];

    if (pulled->received)
        fprintf(stderr, "%s: %s pulled in %.1f s, %s/s\n", repo, units_bytes(pulled->received, bytes),
                seconds, units_bytes((uint64_t)((double)pulled->received / seconds), rate));
    else
        fprintf(stderr, "%s: %s, nothing new\n", repo, units_bytes(pulled->bytes, bytes));
}

static bool pull(const struct hub *hub, const struct hub_name *name, bool quiet, char path[HUB_PATH],
                 struct err *err)
{
    struct transfer transfer = { 0 };
    const struct hub_watch watch = { on_bytes, &transfer };
    struct hub_pulled pulled;
    uint64_t begun = clock_ns();

    bool ok = hub_pull(hub, name, &watch, &pulled, err);
    transfer_end(&transfer);
    if (ok && !quiet)
        print_figures(name->repo, &pulled, (double)(clock_ns() - begun) * 1e-9);
    if (ok)
        memcpy(path, pulled.path, HUB_PATH);
    return ok;
}

int model_fetch(const struct hub *hub, const struct model_query *query, char path[HUB_PATH])
{
    struct hub_name name;
    struct err err;

    if (!hub_name_read(&name, query->text, &err))
        return fail_usage("%s", err.message);
    bool ok = (!query->fresh || hub->offline) && hub_find(hub, &name, path, &err);
    if (!ok && !hub->offline)
        ok = pull(hub, &name, query->quiet, path, &err);
    if (ok)
        return STATUS_OK;
    if (err.code == ERR_CANCELLED) {
        fail("stopped; the next pull goes on from here");
        return STATUS_INTERRUPTED;
    }
    if (query->guessed)
        err_prefix(&err, "'%s' is no file here; as a model's name", query->text);
    return fail(err.message);
}

// Verbs whose operand is the model that -m may name as well.
static bool runs_model(const struct option_verb *verb)
{
    return verb->operands && !strcmp(verb->operands, "[MODEL]");
}

// The operand that is a model.
static const char **operand_of(const struct option_verb *verb, const struct settings *s,
                               struct option_operands *operands)
{
    bool takes = runs_model(verb) || (!strcmp(verb->name, "inspect") && operands->n == 1) ||
                 (!strcmp(verb->name, "quantize") && operands->n == (s->dry_run && operands->n < 3 ? 2 : 3));
    return takes && operands->n ? &operands->at[0] : NULL;
}

// A model in the cache whose repository begins with the typed name: "qwen3-8b" matches someone/Qwen3-8B-GGUF.
struct namesake {
    const char *text;
    size_t n;       // of text without a quant
    char name[512]; // empty: none so far
};

static bool is_namesake(void *arg, const struct hub_entry *entry)
{
    struct namesake *s = arg;
    const char *slash = strchr(entry->name, '/'), *end = slash ? slash + 1 + s->n : NULL;

    if (slash && entry->whole && strlen(slash + 1) >= s->n && !strncasecmp(slash + 1, s->text, s->n) &&
        !isalnum((unsigned char)*end))
        snprintf(s->name, sizeof s->name, "%s", entry->name);
    return !s->name[0];
}

static int missing(const char *text)
{
    struct namesake namesake = { .text = text, .n = strcspn(text, ":@") };
    size_t n = strlen(text);
    struct hub hub;
    struct err err;

    if (strchr(text, '/') || (n > 5 && !strcmp(text + n - 5, ".gguf")))
        return fail_status(STATUS_ERROR, "%.400s: no such file or folder", text);
    if (hub_open(&hub, true, &err) && hub_list(&hub, is_namesake, &namesake, &err) && namesake.name[0])
        return fail_status(STATUS_ERROR,
                           "'%.200s' is no file here and no model's name; is %s from the cache meant?", text,
                           namesake.name);
    return fail_status(
        STATUS_ERROR,
        "'%.200s' is no file here and no model's name: those are user/repo[:QUANT], and 'ingot ls' lists "
        "what is in the cache",
        text);
}

// Only a model may follow. A prompt taken for a model, or a model for a prompt, would give a wrong answer.
static int check_model(const struct option_verb *verb, const struct settings *s,
                       const struct option_operands *operands)
{
    const char *hint = strcmp(verb->name, "run") ? "" : "; the text of a prompt goes with -p";

    if (operands->n > 1)
        return fail_usage("%s: found '%.80s' after the model%s", verb->name, operands->at[1], hint);
    if (operands->n && (s->model || s->hub_name))
        return fail_usage("%s: '%.80s' and '%.80s' name two models%s", verb->name, operands->at[0],
                          s->hub_name ? s->hub_name : s->model, hint);
    return STATUS_OK;
}

static int find(const struct settings *s, const char *text, char path[HUB_PATH])
{
    struct hub hub;
    struct err err;

    if (!hub_open(&hub, s->offline, &err))
        return fail(err.message);
    const struct model_query query = { .text = text, .guessed = !s->hub_name, .quiet = s->quiet };
    return model_fetch(&hub, &query, path);
}

// The same for --draft.
static int lookup_draft(struct settings *settings, struct arena *arena)
{
    char path[HUB_PATH];

    if (!settings->draft || file_exists(settings->draft) || embedded_find(settings->draft))
        return STATUS_OK;
    if (!hub_name_like(settings->draft))
        return missing(settings->draft);
    int status = find(settings, settings->draft, path);
    if (status != STATUS_OK)
        return status;
    settings->draft = arena_str(arena, str_from(path)).at;
    return settings->draft ? STATUS_OK : fail("out of memory");
}

int model_lookup(const struct option_verb *verb, struct settings *settings, struct option_operands *operands,
                 struct arena *arena)
{
    bool runs = runs_model(verb);
    int status = runs ? check_model(verb, settings, operands) : STATUS_OK;
    const char **operand = settings->hub_name ? NULL : operand_of(verb, settings, operands);
    const char *text = settings->hub_name ? settings->hub_name : operand ? *operand : settings->model;
    char path[HUB_PATH];

    if (status == STATUS_OK)
        status = lookup_draft(settings, arena);
    if (status != STATUS_OK || !text)
        return status;
    if (operand && runs)
        settings->model = text;
    if (!settings->hub_name && (file_exists(text) || embedded_find(text)))
        return STATUS_OK;
    if (!settings->hub_name && !hub_name_like(text)) // several ranks tell in one line who lacks the file
        return runs && following_any() ? STATUS_OK : missing(text);
    if ((status = find(settings, text, path)) != STATUS_OK)
        return status;
    const char *found = arena_str(arena, str_from(path)).at;
    if (!found)
        return fail("out of memory");
    settings->alias = settings->alias ? settings->alias : text;
    *(operand && !runs ? operand : &settings->model) = found;
    return STATUS_OK;
}
