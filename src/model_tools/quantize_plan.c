// quantize_plan.c - which tensor gets which format; see quantize.h for the rules and quantize_plan.h.
#include "model_tools/quantize_plan.h"
#include "base/log.h"
#include "base/mem.h"

static const struct quantize_mix mixes[] = {
    { "F32", 0, QUANT_F32, MIX_PLAIN },       { "F16", 1, QUANT_F16, MIX_PLAIN },
    { "BF16", 32, QUANT_BF16, MIX_PLAIN },    { "Q8_0", 7, QUANT_Q8_0, MIX_PLAIN },
    { "Q4_0", 2, QUANT_Q4_0, MIX_PLAIN },     { "Q4_K_S", 14, QUANT_Q4_K, MIX_SMALL },
    { "Q4_K_M", 15, QUANT_Q4_K, MIX_MEDIUM }, { "Q5_K_S", 16, QUANT_Q5_K, MIX_PLAIN },
    { "Q5_K_M", 17, QUANT_Q5_K, MIX_MEDIUM }, { "Q6_K", 18, QUANT_Q6_K, MIX_PLAIN },
    { "Q4_K", 15, QUANT_Q4_K, MIX_MEDIUM },   { "Q5_K", 17, QUANT_Q5_K, MIX_MEDIUM },
};

static bool same_word(const char *a, const char *b)
{
    for (; *a && *b; a++, b++)
        if ((*a >= 'a' && *a <= 'z' ? *a - 32 : *a) != *b)
            return false;
    return *a == *b;
}

const struct quantize_mix *quantize_mix_find(const char *name)
{
    for (size_t i = 0; i < sizeof mixes / sizeof mixes[0]; i++)
        if (same_word(name, mixes[i].name))
            return &mixes[i];
    return NULL;
}

bool quantize_plan_add(struct quantize_plan *plan, const struct quantize_entry *entry, struct err *err)
{
    if (plan->n == plan->capacity) {
        size_t capacity = plan->capacity ? plan->capacity * 2 : 256;
        struct quantize_entry *entries = mem_realloc(plan->entries, capacity * sizeof *entries);
        if (!entries)
            return err_memory(err, "the list of tensors");
        plan->entries = entries;
        plan->capacity = capacity;
    }
    plan->entries[plan->n++] = *entry;
    return true;
}

void quantize_plan_release(struct quantize_plan *plan)
{
    mem_free(plan->entries);
    arena_destroy(plan->arena);
    *plan = (struct quantize_plan){ 0 };
}

// N of "blk.N."; -1 for a tensor outside of the layers.
static int64_t layer_of(struct str name)
{
    uint64_t layer;
    size_t end = 4;

    if (!str_starts(name, STR("blk.")))
        return -1;
    while (end < name.n && name.at[end] != '.')
        end++;
    return str_to_u64(str_from_to(name, 4, end), &layer) && layer < 1 << 20 ? (int64_t)layer : -1;
}

// Matrices that products use. Norms, routers and biases keep their precision: they are small and everything
// passes through them.
static bool is_quantized(const struct quantize_entry *e)
{
    return e->from.n_dims >= 2 && e->from.format != QUANT_I32 && str_ends(e->name, STR(".weight")) &&
           !str_ends(e->name, STR("_norm.weight")) && !str_ends(e->name, STR("ffn_gate_inp.weight"));
}

// The first and last eighth of the layers, and every third of the others.
static bool is_sensitive(int64_t layer, int64_t n_layers)
{
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

static enum quant mixed(const struct quantize_mix *mix, struct str name, int64_t layer, int64_t n_layers)
{
    bool value = str_ends(name, STR("attn_v.weight")), down = str_find(name, STR("ffn_down")) != SIZE_MAX;

    if (mix->more == MIX_MEDIUM) {
        if ((value || down) && is_sensitive(layer, n_layers))
            return QUANT_Q6_K;
        if (str_ends(name, STR("attn_qkv.weight")))
            return mix->base == QUANT_Q4_K ? QUANT_Q5_K : QUANT_Q6_K;
    }
    if (mix->more == MIX_SMALL && ((value && layer < 4) || (down && layer < n_layers / 8)))
        return QUANT_Q5_K;
    return mix->base;
}

static bool is_block_format(enum quant q)
{
    return quant_info(q)->block_elements > 1;
}

// A format whose block divides the row.
static enum quant fitting(enum quant q, uint64_t n_cols)
{
    if (n_cols % quant_info(q)->block_elements == 0)
        return q;
    if (n_cols % 32 != 0)
        return QUANT_F16;
    return q == QUANT_Q4_K ? QUANT_Q5_0 : q == QUANT_Q5_K ? QUANT_Q5_1 : QUANT_Q8_0;
}

void quantize_plan_formats(struct quantize_plan *plan, const struct quantize_mix *mix)
{
    bool has_head = false;
    int64_t n_layers = 0;

    for (size_t i = 0; i < plan->n; i++) {
        int64_t layer = layer_of(plan->entries[i].name);
        has_head |= str_is(plan->entries[i].name, "output.weight");
        n_layers = layer + 1 > n_layers ? layer + 1 : n_layers;
    }
    for (size_t i = 0; i < plan->n; i++) {
        struct quantize_entry *e = &plan->entries[i];
        bool head = str_is(e->name, has_head ? "output.weight" : "token_embd.weight");
        e->format = e->from.format == QUANT_I32 ? QUANT_I32 : QUANT_F32;
        if (!is_quantized(e))
            continue;
        if (e->from.format == QUANT_MXFP4 && is_block_format(mix->base)) { // no other format holds its values
            e->format = QUANT_MXFP4;
            continue;
        }
        enum quant wanted = mixed(mix, e->name, layer_of(e->name), n_layers);
        if (head && is_block_format(mix->base) && mix->base != QUANT_Q8_0)
            wanted = QUANT_Q6_K;
        e->format = fitting(wanted, e->from.dims[e->from.n_dims - 1]);
        plan->n_quantized++;
        plan->n_fallback += e->format != wanted;
        if (e->format != wanted)
            log_line(LOG_INFO, "quantize", "%.*s has rows of %llu, no multiple of %u: %s instead of %s",
                     STR_ARG(e->name), (unsigned long long)e->from.dims[e->from.n_dims - 1],
                     quant_info(wanted)->block_elements, quant_info(e->format)->name,
                     quant_info(wanted)->name);
    }
    if (plan->n_fallback)
        log_line(LOG_WARN, "quantize",
                 "%zu of %zu matrices have rows that the blocks of %s do not divide, and got larger formats",
                 plan->n_fallback, plan->n_quantized, mix->name);
}
