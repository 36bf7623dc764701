// adapter_config.c - what an adapter's file says beside its tensors: alpha, and what it would need of ingot;
// see adapter.h.
#include <math.h>
#include "models/binding/adapter.h"

static bool is_gguf(const struct adapter *a)
{
    return model_file_format(a->file) == MODEL_GGUF;
}

static bool word_is(const struct adapter *a, const char *key, const char *want, struct err *err)
{
    struct str word = { 0 };

    if (!model_file_string(a->file, key, &word, err))
        return false;
    return str_is(word, want) ||
           err_set(err, ERR_INPUT, "%s: %s is '%.*s'; want '%s': this is no LoRA adapter",
                   model_file_path(a->file), key, STR_ARG(word), want);
}

static bool read_alpha(struct adapter *a, const char *key, struct err *err)
{
    a->alpha = 0;
    if (!model_file_f64(a->file, key, 1e-6, 1e6, &a->alpha, err))
        return false;
    return a->alpha > 0 ||
           err_set(err, ERR_INPUT, "%s: %s is missing; without it nobody knows how much the adapter adds",
                   model_file_path(a->file), key);
}

// What an adapter may say only in these words, most of them PEFT's.
static bool is_plain(const struct adapter *a, struct err *err)
{
    static const struct {
        const char *key, *why;
    } never[] = {
        { "use_dora", "DoRA scales whole matrices" },
        { "use_qalora", "QA-LoRA adds to groups of columns" },
        { "fan_in_fan_out", "its matrices lie transposed" },
        { "lora_bias", "it has biases" },
        { "layer_replication", "it repeats layers" },
        { "modules_to_save", "it replaces whole modules" },
        { "trainable_token_indices", "it changes the embedding" },
        { "target_parameters", "it adds to parameters of experts" },
        { "alora_invocation_tokens", "it adds from these tokens on" },
        { "adapter.alora.invocation_tokens", "it adds from these tokens on" },
    };
    struct str bias = STR("none");

    for (size_t i = 0; i < sizeof never / sizeof *never; i++) {
        const struct meta *m = model_file_meta(a->file, never[i].key);
        bool off = !m || (m->type == META_BOOL && !m->b) || (m->type == META_ARRAY && m->n == 0);
        if (!off)
            return err_set(err, ERR_UNSUPPORTED, "%s: %s is set: %s; ingot adds plain LoRA matrices alone",
                           model_file_path(a->file), never[i].key, never[i].why);
    }
    if (!model_file_string(a->file, "bias", &bias, err))
        return false;
    return str_is(bias, "none") ||
           err_set(err, ERR_UNSUPPORTED, "%s: bias is '%.*s'; ingot adds plain LoRA matrices alone",
                   model_file_path(a->file), STR_ARG(bias));
}

static bool read_gguf(struct adapter *a, struct err *err)
{
    struct str arch = { 0 };

    if (!word_is(a, "general.type", "adapter", err) || !word_is(a, "adapter.type", "lora", err) ||
        !model_file_string(a->file, "general.architecture", &arch, err))
        return false;
    if (!str_is(arch, a->model->arch->name))
        return err_set(err, ERR_INPUT, "%s: an adapter of a '%.*s' model; this model is '%s'",
                       model_file_path(a->file), STR_ARG(arch), a->model->arch->name);
    return is_plain(a, err) && read_alpha(a, "adapter.lora.alpha", err);
}

static bool read_peft(struct adapter *a, struct err *err)
{
    return word_is(a, "peft_type", "LORA", err) && is_plain(a, err) && read_alpha(a, "lora_alpha", err) &&
           model_file_u64(a->file, "r", 1, ADAPTER_MOST_RANKS, &a->rank, err) &&
           model_file_bool(a->file, "use_rslora", &a->by_root, err);
}

bool adapter_config_read(struct adapter *a, struct err *err)
{
    return is_gguf(a) ? read_gguf(a, err) : read_peft(a, err);
}

// Whether a pattern's key, which lies behind `prefix`, names this module: all of it, or its last parts. PEFT
// reads it as a regular expression, of which the dot alone is common.
static bool names_module(const struct adapter *a, struct str key, struct str module, bool *names,
                         struct err *err)
{
    *names = str_ends(module, key) && (module.n == key.n || module.at[module.n - key.n - 1] == '.');
    for (size_t i = 0; i < key.n; i++)
        if (strchr("^$*+?()[]{}|\\", key.at[i]))
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: the pattern '%.*s' is a regular expression; want a module's name",
                           model_file_path(a->file), STR_ARG(key));
    return true;
}

// The number of the first pattern that names the module; else unchanged.
static bool pattern_value(const struct adapter *a, struct str prefix, struct str module, double *value,
                          struct err *err)
{
    bool names = false;

    for (size_t i = 0; i < model_file_n_metas(a->file) && !names; i++) {
        const struct meta *m = model_file_meta_at(a->file, i);
        char key[256];
        if (!str_starts(m->key, prefix))
            continue;
        if (!names_module(a, str_from_to(m->key, prefix.n, m->key.n), module, &names, err))
            return false;
        snprintf(key, sizeof key, "%.*s", STR_ARG(m->key));
        if (names && !model_file_f64(a->file, key, 1e-6, 1e6, value, err))
            return false;
    }
    return true;
}

bool adapter_config_factor(const struct adapter *a, struct str module, uint32_t rank, float *factor,
                           struct err *err)
{
    double alpha = a->alpha, want = a->rank ? (double)a->rank : rank;

    if (!is_gguf(a) && (!pattern_value(a, STR("rank_pattern."), module, &want, err) ||
                        !pattern_value(a, STR("alpha_pattern."), module, &alpha, err)))
        return false;
    if (want != rank)
        return err_set(err, ERR_INPUT, "%s: %.*s has rank %u; adapter_config.json says %g",
                       model_file_path(a->file), STR_ARG(module), rank, want);
    *factor = (float)(alpha / (a->by_root ? sqrt(rank) : rank));
    return true;
}
