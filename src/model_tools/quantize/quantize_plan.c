// quantize_plan.c - which tensor gets which format; see quantize.h for the rules and quantize_plan.h.
#include "model_tools/quantize/quantize_plan.h"
#include <regex.h>
#include "base/log.h"
#include "base/mem.h"
#include "model_tools/quantize/quantize_encode.h"

#define PLAIN(name, file_type, base)                 \
    {                                                \
        name, file_type, QUANT_##base, MIX_PLAIN,    \
        {                                            \
            QUANT_##base, QUANT_##base, QUANT_##base \
        }                                            \
    }
#define ROLES(name, file_type, base, value, down, output) \
    {                                                     \
        name, file_type, QUANT_##base, MIX_PLAIN,         \
        {                                                 \
            QUANT_##value, QUANT_##down, QUANT_##output   \
        }                                                 \
    }
#define LAYERS(name, file_type, base, which)         \
    {                                                \
        name, file_type, QUANT_##base, which,        \
        {                                            \
            QUANT_##base, QUANT_##base, QUANT_##base \
        }                                            \
    }

static const struct quantize_mix mixes[] = {
    PLAIN("F32", 0, F32),
    PLAIN("F16", 1, F16),
    PLAIN("BF16", 32, BF16),
    PLAIN("Q8_0", 7, Q8_0),
    PLAIN("Q6_K", 18, Q6_K),
    LAYERS("Q5_K_M", 17, Q5_K, MIX_MEDIUM),
    PLAIN("Q5_K_S", 16, Q5_K),
    PLAIN("Q5_1", 9, Q5_1),
    PLAIN("Q5_0", 8, Q5_0),
    LAYERS("Q4_K_M", 15, Q4_K, MIX_MEDIUM),
    LAYERS("Q4_K_S", 14, Q4_K, MIX_SMALL),
    ROLES("IQ4_NL", 25, IQ4_NL, Q5_K, IQ4_NL, IQ4_NL),
    ROLES("IQ4_XS", 30, IQ4_XS, Q5_K, IQ4_XS, IQ4_XS),
    PLAIN("Q4_1", 3, Q4_1),
    PLAIN("Q4_0", 2, Q4_0),
    PLAIN("MXFP4", 38, MXFP4),
    LAYERS("MXFP4_MOE", 38, Q8_0, MIX_EXPERTS),
    ROLES("Q3_K_L", 13, Q3_K, Q5_K, Q5_K, Q5_K),
    ROLES("Q3_K_M", 12, Q3_K, Q5_K, Q4_K, Q4_K),
    PLAIN("Q3_K_S", 11, Q3_K),
    ROLES("Q2_K", 10, Q2_K, Q4_K, Q3_K, Q3_K),
    LAYERS("Q5_K", 17, Q5_K, MIX_MEDIUM),
    LAYERS("Q4_K", 15, Q4_K, MIX_MEDIUM),
    ROLES("Q3_K", 12, Q3_K, Q5_K, Q4_K, Q4_K),
};

const char *quantize_type(size_t i)
{
    return i < sizeof mixes / sizeof mixes[0] ? mixes[i].name : NULL;
}

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

// Norms, routers and biases keep their precision: they are small and everything passes through them.
static bool is_matrix(const struct quantize_entry *e)
{
    return e->from.n_dims >= 2 && e->from.format != QUANT_I32 && str_ends(e->name, STR(".weight")) &&
           !str_ends(e->name, STR("_norm.weight")) && !str_ends(e->name, STR("ffn_gate_inp.weight")) &&
           !str_ends(e->name, STR("shortconv.conv.weight")) && !str_ends(e->name, STR("ssm_conv1d.weight"));
}

// Matrices that products use. Rows that are added, and the patches' convolution, are small and stay F32: of
// an encoder or a tower llama.cpp adds the former as they are, which it can in F32 alone.
static bool is_quantized(const struct quantize_entry *e)
{
    return is_matrix(e) && !str_ends(e->name, STR("position_embd.weight")) &&
           !str_ends(e->name, STR("token_types.weight")) && !str_ends(e->name, STR(".patch_embd.weight"));
}

// Of a delta rule: a few rows, and what they are off by stays in the state.
static bool is_gate_of_state(const struct quantize_entry *e)
{
    return str_ends(e->name, STR("ssm_alpha.weight")) || str_ends(e->name, STR("ssm_beta.weight"));
}

// The first and last eighth of the layers, and every third of the others.
static bool is_sensitive(int64_t layer, int64_t n_layers)
{
    return layer < n_layers / 8 || layer >= 7 * n_layers / 8 || (layer - n_layers / 8) % 3 == 2;
}

static enum quant mixed(const struct quantize_mix *mix, const struct quantize_entry *e, int64_t n_layers)
{
    int64_t layer = layer_of(e->name);
    bool value = str_ends(e->name, STR("attn_v.weight")),
         down = str_find(e->name, STR("ffn_down")) != SIZE_MAX;

    switch (mix->more) {
    case MIX_MEDIUM:
        if ((value || down) && is_sensitive(layer, n_layers))
            return QUANT_Q6_K;
        if (str_ends(e->name, STR("attn_qkv.weight")))
            return mix->base == QUANT_Q4_K ? QUANT_Q5_K : QUANT_Q6_K;
        break;
    case MIX_SMALL:
        if ((value && layer < 4) || (down && layer < n_layers / 8))
            return QUANT_Q5_K;
        break;
    case MIX_EXPERTS:
        return e->from.n_dims == 3 ? QUANT_MXFP4 : mix->base;
    case MIX_PLAIN:
        break;
    }
    return value                                          ? mix->roles[ROLE_VALUE]
           : down                                         ? mix->roles[ROLE_DOWN]
           : str_ends(e->name, STR("attn_output.weight")) ? mix->roles[ROLE_OUTPUT]
                                                          : mix->base;
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
    switch (q) {
    case QUANT_Q2_K:
    case QUANT_Q3_K:
    case QUANT_IQ4_XS:
        return QUANT_IQ4_NL;
    case QUANT_Q4_K:
        return QUANT_Q5_0;
    case QUANT_Q5_K:
        return QUANT_Q5_1;
    default:
        return QUANT_Q8_0;
    }
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
        enum quant wanted = mixed(mix, e, n_layers);
        if (head && is_block_format(mix->base) && mix->base != QUANT_Q8_0)
            wanted = QUANT_Q6_K;
        if (is_gate_of_state(e) && is_block_format(mix->base))
            wanted = QUANT_Q8_0;
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

// ---- what the user asks for by name

bool quantize_override_check(const struct quantize_override *o, struct err *err)
{
    enum quant q;

    return (quant_from_name(str_from(o->type), &q) && quantize_can_encode(q)) ||
           err_set(err, ERR_INPUT,
                   "--tensor-type %.80s=%.40s: '%.40s' is no format that is written; 'ingot help quantize' "
                   "lists them, and mixes such as Q4_K_M are none",
                   o->pattern, o->type, o->type);
}

static bool override_one(struct quantize_plan *plan, const struct quantize_override *o,
                         const regex_t *pattern, struct err *err)
{
    enum quant q;
    size_t n = 0;

    if (!quantize_override_check(o, err))
        return false;
    quant_from_name(str_from(o->type), &q);
    for (size_t i = 0; i < plan->n; i++) {
        struct quantize_entry *e = &plan->entries[i];
        char name[256];
        snprintf(name, sizeof name, "%.*s", STR_ARG(e->name));
        if (e->overridden || !is_matrix(e) || regexec(pattern, name, 0, NULL, 0) != 0)
            continue;
        uint64_t n_cols = e->from.dims[e->from.n_dims - 1];
        if (n_cols % quant_info(q)->block_elements != 0)
            return err_set(err, ERR_INPUT, "--tensor-type %.80s=%s: %s has rows of %llu, no multiple of %u",
                           o->pattern, quant_info(q)->name, name, (unsigned long long)n_cols,
                           quant_info(q)->block_elements);
        e->format = q;
        e->overridden = true;
        n++;
    }
    return n > 0 ||
           err_set(err, ERR_INPUT,
                   "--tensor-type %.80s=%s: no matrix has such a name, or an earlier pattern took it; "
                   "--dry-run lists the names",
                   o->pattern, o->type);
}

bool quantize_plan_override(struct quantize_plan *plan, const struct quantize_override *overrides, size_t n,
                            struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        regex_t pattern;
        char why[128];
        int status = regcomp(&pattern, overrides[i].pattern, REG_EXTENDED | REG_NOSUB | REG_ICASE);
        if (status != 0) {
            regerror(status, &pattern, why, sizeof why);
            return err_set(err, ERR_INPUT, "--tensor-type %.80s: %s", overrides[i].pattern, why);
        }
        bool ok = override_one(plan, &overrides[i], &pattern, err);
        regfree(&pattern);
        if (!ok)
            return false;
    }
    return true;
}
