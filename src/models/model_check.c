// model_check.c - compares the description of a model with the contents of its file; see model_check.h.
//
// A model that contradicts its description would run and write nonsense, so each contradiction is an error of
// one line. So is an unused tensor of the language model: its part of the sum would be missing. Not checked
// here: shapes and missing tensors (model.c). Buffers that are computed anyway, such as rotary frequencies,
// are harmless and common in older checkpoints.
#include "models/model_check.h"
#include <math.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "models/arch.h"
#include "models/binding/embedder.h"
#include "models/binding/joined.h"
#include "models/binding/model_names.h"
#include "models/trellis_tensor.h"

static bool is_gguf(const struct model *m)
{
    return model_file_format(m->file) == MODEL_GGUF;
}

static void file_key(const struct model *m, const char *part, char key[128])
{
    snprintf(key, 128, "%s.%s", m->arch->name, part);
}

static bool check_activation(const struct model *m, const char *key, struct err *err)
{
    struct str name = { 0 };

    if (!model_file_string(m->file, key, &name, err))
        return false;
    return !name.n || model_one_of(m->arch->activations, name) ||
           err_set(err, ERR_UNSUPPORTED, "%s: %s is \"%.*s\"; ingot runs %s models with %.*s",
                   model_file_path(m->file), key, STR_ARG(name), m->arch->name,
                   (int)strcspn(m->arch->activations, " "), m->arch->activations);
}

static bool check_value_length(const struct model *m, struct err *err)
{
    char key[128] = "v_head_dim";
    uint64_t length = m->config.head_dim;

    if (is_gguf(m))
        file_key(m, "attention.value_length", key);
    if (!model_file_u64(m->file, key, 1, UINT32_MAX, &length, err))
        return false;
    return length == m->config.head_dim || err_set(err, ERR_UNSUPPORTED,
                                                   "%s: %s is %llu, but keys have %u numbers a head; ingot "
                                                   "runs %s models with values as long as keys",
                                                   model_file_path(m->file), key, (unsigned long long)length,
                                                   m->config.head_dim, m->arch->name);
}

// Formats that quantization_config describes have tensors with other names and types.
static bool holds_plain_weights(const struct model *m)
{
    const struct file_tensor *t = model_file_tensor(m->file, "model.layers.0.self_attn.q_proj.weight");
    return t && t->format < N_WEIGHT_QUANTS;
}

static bool check_quantization(const struct model *m, struct err *err)
{
    struct str method = STR("a method without a name");
    bool there = false;

    for (size_t i = 0; !there && i < model_file_n_metas(m->file); i++)
        there = str_starts(model_file_meta_at(m->file, i)->key, STR("quantization_config."));
    if (!there)
        return true;
    if (!model_file_string(m->file, "quantization_config.quant_method", &method, err))
        return false;
    if (str_is(method, "exl3") || (m->arch->packings && model_one_of(m->arch->packings, method)))
        return true;
    if (holds_plain_weights(m))
        return err_set(
            err, ERR_INPUT,
            "%s: quantization_config promises weights quantised by %.*s, but they are plain; take it out of "
            "config.json if they are meant to be",
            model_file_path(m->file), STR_ARG(method));
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: the weights are quantised by %.*s; ingot reads plain safetensors and EXL3, and "
                   "quantised weights from GGUF",
                   model_file_path(m->file), STR_ARG(method));
}

static bool check_window(const struct model *m, struct err *err)
{
    bool uses_window = false;

    if (!model_file_bool(m->file, "use_sliding_window", &uses_window, err))
        return false;
    return !uses_window ||
           err_set(err, ERR_UNSUPPORTED,
                   "%s: use_sliding_window is true; ingot runs this architecture without a window only",
                   model_file_path(m->file));
}

bool model_check_config(const struct model *m, struct err *err)
{
    char key[128];

    if ((m->config.latent_dims == 0 && !check_value_length(m, err)) || !check_window(m, err))
        return false;
    if (!is_gguf(m))
        return check_activation(m, "hidden_act", err) && check_activation(m, "hidden_activation", err) &&
               check_quantization(m, err);
    file_key(m, "hidden_activation", key);
    return check_activation(m, key, err);
}

static bool has_layer(const struct model *m, const struct weight_key *k, uint32_t layer)
{
    return model_layer(m, layer)[k->place] != NULL;
}

static bool bias_fails(const struct model *m, const struct weight_key *k, uint32_t layer, const char *says,
                       struct err *err)
{
    const char *format = is_gguf(m) ? k->gguf : k->json, *mark = strstr(format, "%u");
    return err_set(err, ERR_INPUT, "%s: %s, but tensor %.*s%u%s is %s", model_file_path(m->file), says,
                   (int)(mark - format), format, layer, mark + 2,
                   has_layer(m, k, layer) ? "there" : "missing");
}

// A bias that an architecture may have must be in all layers or in none.
static bool check_whole_biases(const struct model *m, struct err *err)
{
    for (uint32_t i = 0; i < m->arch->n_weights; i++) {
        const struct weight_key *k = &m->arch->weights[i];
        if (!k->per_layer || k->layers != LAYERS_ALL || !str_ends(str_from(k->gguf), STR(".bias")))
            continue;
        for (uint32_t l = 1; l < m->config.n_layers; l++)
            if (has_layer(m, k, l) != has_layer(m, k, 0))
                return bias_fails(
                    m, k, l, has_layer(m, k, 0) ? "layer 0 has this bias" : "layer 0 lacks this bias", err);
    }
    return true;
}

// config.json can say that there are biases or none. Architectures that always have them do not need it.
static bool check_promised_biases(const struct model *m, const char *key, const char *part, struct err *err)
{
    bool promised = false, known = false;
    char says[64];

    if (!model_file_meta(m->file, key))
        return true;
    if (!model_file_bool(m->file, key, &promised, err))
        return false;
    snprintf(says, sizeof says, "%s is %s", key, promised ? "true" : "false");
    for (uint32_t i = 0; i < m->arch->n_weights; i++) {
        const struct weight_key *k = &m->arch->weights[i];
        if (!k->per_layer || !k->json || !strstr(k->json, part) || !str_ends(str_from(k->json), STR(".bias")))
            continue;
        known = true;
        if ((k->flags & WEIGHT_OPTIONAL) && has_layer(m, k, 0) != promised)
            return bias_fails(m, k, 0, says, err);
    }
    return known || !promised ||
           err_set(err, ERR_UNSUPPORTED, "%s: %s; ingot runs %s models without these biases",
                   model_file_path(m->file), says, m->arch->name);
}

static bool check_head(const struct model *m, struct err *err)
{
    bool tie = true;

    if (!model_file_bool(m->file, "tie_word_embeddings", &tie, err))
        return false;
    return tie || !m->tied || *m->json_prefix || // a checkpoint with several parts has no key for all of
                                                 // them
           err_set(err, ERR_INPUT, "%s: tie_word_embeddings is false, but tensor lm_head.weight is missing",
                   model_file_path(m->file));
}

// Some unused tensors: their number, and the first names.
struct unused {
    size_t n;
    char names[256];
};

static void unused_add(struct unused *u, struct str name)
{
    size_t at = strlen(u->names);

    if (u->n < 3)
        snprintf(u->names + at, sizeof u->names - at, "%s%.*s", at ? ", " : "",
                 (int)(name.n > 72 ? 72 : name.n), name.at);
    else if (u->n == 3)
        snprintf(u->names + at, sizeof u->names - at, ", ...");
    u->n++;
}

static bool is_computed_anyway(struct str name)
{
    static const char *const buffers[] = { ".rotary_emb.inv_freq", ".rotary_emb.cos_cached",
                                           ".rotary_emb.sin_cached", ".attn_rot_embd.weight" };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        if (str_ends(name, str_from(buffers[i])))
            return true;
    return false;
}

static struct str first_word(struct str name)
{
    size_t n = str_find(name, STR("."));
    return (struct str){ name.at, n == SIZE_MAX ? name.n : n };
}

// Which tensors belong to the language model. In a GGUF file: all. In a checkpoint: the ones whose name
// begins with the same word as a tensor of the architecture; others are value heads, draft heads and towers.
static bool in_language_model(const struct model *m, struct str name)
{
    if (*m->json_prefix)
        return str_starts(name, str_from(m->json_prefix));
    for (uint32_t i = 0; !is_gguf(m) && i < m->arch->n_weights; i++) {
        const char *json = m->arch->weights[i].json;
        if (json && m->is_bare && strncmp(json, "model.", 6) == 0)
            json += 6;
        if (json && str_eq(first_word(str_from(json)), first_word(name)))
            return true;
    }
    return is_gguf(m);
}

static bool is_beyond_layers(const struct model *m, struct str name)
{
    struct str prefix = is_gguf(m) ? STR("blk.") : m->is_bare ? STR("layers.") : STR("model.layers.");
    uint64_t layer = 0;

    return str_starts(name, prefix) && str_to_u64(first_word(str_from_to(name, prefix.n, name.n)), &layer) &&
           layer >= m->config.n_layers;
}

static bool is_of_draft(const struct model *m, struct str name)
{
    struct model deeper = *m;

    deeper.config.n_layers += m->config.n_draft;
    return is_beyond_layers(m, name) && !is_beyond_layers(&deeper, name);
}

// tower.c checks the tower's tensors.
static bool is_of_eyes(const struct model *m, struct str name)
{
    return *m->json_prefix && !in_language_model(m, name) && str_starts(name, STR("model."));
}

// What encoders have beside their rows: a pooler that no embedding is made with, and a list of 0, 1, 2, ...
static bool is_of_pooler(const struct model *m, struct str name)
{
    size_t n = str_starts(name, str_from(m->json_prefix)) ? strlen(m->json_prefix) : 0;
    struct str rest = str_from_to(name, n, name.n);

    return m->arch->is_encoder && !is_gguf(m) &&
           (str_starts(rest, STR("pooler.")) || str_is(rest, "embeddings.position_ids"));
}

static void mark_trellis(const struct trellis *t, const struct file_tensor *first, bool *used)
{
    used[t->suh - first] = used[t->svh - first] = true;
    if (t->mark)
        used[t->mark - first] = true;
}

// Joined and parted tensors are no tensors of the file: their parts are.
static bool is_joined(const struct model *m, const struct file_tensor *t)
{
    for (const struct joined_tensor *j = m->joined; j; j = j->next)
        if (t == &j->tensor)
            return true;
    return false;
}

// Layers that read another's K and V may have tensors for their own.
static void mark_shared(const struct model *m, const struct weight_key *k, bool *used)
{
    char name[128];

    for (uint32_t l = 0; k->layers == LAYERS_OWN_KV && l < m->config.n_layers; l++) {
        const struct file_tensor *t = model_has(m, k, l) ? NULL : model_names_find(m, k, l, name);
        if (t)
            used[t - model_file_tensor_at(m->file, 0)] = true;
    }
}

static bool *mark_used(const struct model *m)
{
    const struct file_tensor *first = model_file_tensor_at(m->file, 0);
    bool *used = mem_alloc_array(model_file_n_tensors(m->file), sizeof *used);

    for (uint32_t i = 0; used && i < N_MODEL_WEIGHTS; i++)
        if (m->tensors[i] && !is_joined(m, m->tensors[i]))
            used[m->tensors[i] - first] = true;
    for (size_t i = 0; used && i < ((size_t)m->config.n_layers + m->drafts) * m->n_places; i++)
        if (m->layers[i] && !is_joined(m, m->layers[i]))
            used[m->layers[i] - first] = true;
    for (uint32_t i = 0; used && i < m->arch->n_weights; i++)
        mark_shared(m, &m->arch->weights[i], used);
    for (const struct joined_tensor *j = m->joined; used && j; j = j->next) {
        for (uint32_t i = 0; i < j->n_parts; i++)
            used[j->parts[i] - first] = true;
        if (j->scales)
            used[j->scales - first] = true;
        for (uint32_t i = 0; i < j->n_parts && j->trellis; i++)
            mark_trellis(&j->trellis[i], first, used);
    }
    return used;
}

static bool check_unused(const struct model *m, struct err *err)
{
    struct unused beyond = { 0 }, inside = { 0 }, beside = { 0 };
    const char *path = model_file_path(m->file);
    bool *used = mark_used(m);

    if (!used)
        return err_memory(err, "the list of used tensors");
    for (size_t i = 0; i < model_file_n_tensors(m->file); i++) {
        struct str name = model_file_tensor_at(m->file, i)->name;
        if (!used[i] && !is_computed_anyway(name) && !is_of_pooler(m, name) && !is_of_eyes(m, name) &&
            !is_of_draft(m, name))
            unused_add(is_beyond_layers(m, name)    ? &beyond
                       : in_language_model(m, name) ? &inside
                                                    : &beside,
                       name);
    }
    mem_free(used);
    if (beyond.n)
        return err_set(err, ERR_INPUT, "%s: %s is %u, but there are tensors beyond these layers (%zu): %s",
                       path, is_gguf(m) ? "block_count" : "num_hidden_layers", m->config.n_layers, beyond.n,
                       beyond.names);
    if (inside.n)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: ingot does not use these tensors (%zu) in %s models, and without them the "
                       "answers are wrong: %s",
                       path, inside.n, m->arch->name, inside.names);
    if (beside.n)
        log_line(LOG_WARN, "load", "%s: unused tensors beside the language model (%zu): %s", path, beside.n,
                 beside.names);
    return true;
}

// Of a vector: a number for each expert, or for each head, which then is at most 0.
static bool check_numbers(const struct model *m, const struct file_tensor *t, bool heads, struct err *err)
{
    bool numbers = t && quant_info(t->format)->block_elements == 1;

    for (uint64_t i = 0; numbers && i < t->dims[0]; i++) {
        float value;
        quant_info(t->format)->decode(t->data + i * quant_info(t->format)->block_bytes, &value, 1);
        if (!isfinite(value) || (heads && value > 0))
            return err_set(err, ERR_INPUT, "%s: tensor %.*s holds %g for %s %llu; want numbers%s",
                           model_file_path(m->file), STR_ARG(t->name), (double)value,
                           heads ? "head" : "expert", (unsigned long long)i, heads ? " up to 0" : "");
    }
    return true;
}

// A bias of a router's choice is in no weight, so that a NaN there would choose and never be seen. A state
// that grows, by what GGUF files have for -exp(A_log), would be infinite many tokens later.
static bool check_biases_and_decays(const struct model *m, struct err *err)
{
    for (uint32_t i = 0; i < m->arch->n_weights; i++) {
        const struct weight_key *k = &m->arch->weights[i];
        bool decays = is_gguf(m) && str_ends(str_from(k->gguf), STR(".ssm_a"));
        if (!decays && !str_ends(str_from(k->gguf), STR("exp_probs_b.bias")))
            continue;
        for (uint32_t l = 0; l < m->config.n_layers + m->drafts; l++)
            if (!check_numbers(m, model_layer(m, l)[k->place], decays, err))
                return false;
    }
    return true;
}

bool model_check_tensors(const struct model *m, struct err *err)
{
    return embedder_check(m, err) && check_biases_and_decays(m, err) && check_whole_biases(m, err) &&
           check_promised_biases(m, "attention_bias", ".self_attn.", err) &&
           check_promised_biases(m, "mlp_bias", ".mlp.", err) && check_head(m, err) && check_unused(m, err);
}
