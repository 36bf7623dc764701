// verb_pull.c - ingot pull, ls and rm: the cache of models by name. The work is in src/hub.
#include "hub/hub_cache.h"
#include "main/model_lookup.h"
#include "main/terminal/fail.h"
#include "main/terminal/out.h"
#include "main/terminal/out_json.h"
#include "main/terminal/units.h"

int verb_pull(const struct verb_call *call)
{
    char path[HUB_PATH];
    struct hub hub;
    struct err err;

    if (call->operands->n != 1)
        return fail_usage("pull: found %zu operands, expected one: a name such as user/repo:Q4_K_M",
                          call->operands->n);
    if (!hub_open(&hub, call->settings->offline, &err))
        return fail(err.message);
    const struct model_query query = { .text = call->operands->at[0],
                                       .fresh = true,
                                       .quiet = call->settings->quiet };
    int status = model_fetch(&hub, &query, path);
    if (status == STATUS_OK)
        out_printf("%s\n", path);
    return status == STATUS_OK ? out_finish() : status;
}

// ---- ls

struct lister {
    json_t *all; // NULL: text
    uint64_t bytes;
    size_t n;
};

static bool on_entry(void *arg, const struct hub_entry *entry)
{
    struct lister *l = arg;
    char size[16];

    l->n++;
    l->bytes += entry->bytes;
    if (l->all)
        json_array_append_new(l->all, json_pack("{s:s, s:s, s:s, s:I, s:b}", "name", entry->name, "path",
                                                entry->path, "commit", entry->commit, "bytes",
                                                (json_int_t)entry->bytes, "whole", (int)entry->whole));
    else
        out_printf("%10s  %s%s\n", units_bytes(entry->bytes, size), entry->name,
                   entry->whole ? "" : " (a pull that was stopped)");
    return out_state() == OUT_OPEN;
}

int verb_ls(const struct verb_call *call)
{
    struct lister l = { .all = call->settings->json ? json_array() : NULL };
    struct hub hub;
    struct err err;
    char size[16];

    if (!hub_open(&hub, false, &err) || !hub_list(&hub, on_entry, &l, &err)) {
        json_decref(l.all);
        return fail(err.message);
    }
    if (l.all) {
        out_json(l.all, 0);
        out_text("\n");
    } else {
        fprintf(stderr, "%zu model%s, %s, in %s\n", l.n, str_plural(l.n), units_bytes(l.bytes, size),
                hub.cache);
    }
    return out_finish();
}

// ---- rm

int verb_rm(const struct verb_call *call)
{
    struct hub hub;
    struct err err;
    uint64_t freed;
    char size[16];

    if (call->operands->n == 0)
        return fail_usage("rm: expected a name such as user/repo or user/repo:Q4_K_M; 'ingot ls' lists them");
    if (!hub_open(&hub, false, &err))
        return fail(err.message);
    for (size_t i = 0; i < call->operands->n; i++) {
        if (!hub_remove(&hub, call->operands->at[i], &freed, &err))
            return fail(err.message);
        fprintf(stderr, "%s: %s freed\n", call->operands->at[i], units_bytes(freed, size));
    }
    return STATUS_OK;
}
