// rank_facts.c - see rank_facts.h.
#include "engine/load/rank_facts.h"
#include "base/err.h"
#include "engine/kv_persist.h"
#include "engine/stage/remote.h"
#include "models/arch.h"

static void add_file_fact(const struct engine_loaded *l, struct buf *facts)
{
    char hex[SHA256_HEX_BYTES];
    struct sha256 digest;
    struct err err;

    buf_printf(facts, "model: %s of %llu bytes, digest ", l->model.arch->name,
               (unsigned long long)l->model.weight_bytes);
    if (!kv_persist_identity_of_file(l->file, &digest, &err))
        return;
    sha256_hex(&digest, hex);
    buf_text(facts, hex);
}

bool rank_facts_add(const struct engine *e, const struct stage_shape *s, struct buf *facts, struct err *err)
{
    const struct engine_loaded *l = e->loaded;
    const struct placement *p = &l->remote->placement;

    buf_printf(facts, "version: ingot %s\n", INGOT_VERSION);
    add_file_fact(l, facts);
    buf_printf(facts, "\nstages: layers 0");
    for (uint32_t i = 1; i < p->n; i++)
        buf_printf(facts, ", %u", p->layers[i].first);
    buf_printf(facts, "\ncontext: -c %u\nrows: -b %u\noutputs: %u rows with logits\nsequences: -np %u\n",
               l->n_context, s->max_rows, s->max_outputs, s->n_slots);
    buf_printf(facts,
               "pages: KV pages for %u tokens\nwindow: window pages for %u tokens\nstates: %u states\n",
               s->n_pages * PAGE_TOKENS, s->n_windows * PAGE_TOKENS, s->n_states);
    buf_printf(facts, "k: -ctk %s\nv: -ctv %s\nexact: --exact %s\ninvariant: --invariant %s\n",
               kv_format_name(s->k_format), kv_format_name(s->v_format), l->options.exact ? "on" : "off",
               l->options.invariant ? "on" : "off");
    return !facts->failed || err_memory(err, "what the ranks compare");
}

bool rank_facts_fit(const struct engine_loaded *l, struct err *err)
{
    const struct ingot_engine_options *o = &l->options;

    return !l->remote || (!o->draft && o->n_adapters == 0) ||
           err_set(err, ERR_UNSUPPORTED, "%s on several hosts is not possible yet; leave out %s",
                   o->draft ? "a draft model" : "an adapter", err_option(o->draft ? "draft" : "adapters"));
}
