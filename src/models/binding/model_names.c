// model_names.c - see model_names.h.
#include "models/binding/model_names.h"
#include <string.h>
#include "models/trellis_tensor.h"

static bool is_gguf(const struct model *m)
{
    return model_file_format(m->file) == MODEL_GGUF;
}

const char *model_names_format(const struct model *m, const struct weight_key *k, char text[128])
{
    if (is_gguf(m))
        return k->gguf;
    if (m->is_bare && k->json && strncmp(k->json, "model.", 6) == 0)
        return k->json + 6;
    size_t word = strcspn(m->json_prefix, ".");
    bool beside =
        m->json_prefix[word] && m->json_prefix[word + 1] && strncmp(m->json_prefix, "model.", 6) != 0;
    if (!k->json || !*m->json_prefix || (strncmp(k->json, "model.", 6) != 0 && !beside))
        return k->json;
    if (strncmp(k->json, "model.", 6) != 0) // the head, beside "language_model.model."
        snprintf(text, 128, "%.*s.%s", (int)strcspn(m->json_prefix, "."), m->json_prefix, k->json);
    else
        snprintf(text, 128, "%s%s", m->json_prefix, k->json + 6);
    return text;
}

void model_names_write(const char *format, uint32_t l, uint32_t number, char name[128])
{
    const char *mark = strstr(format, "%u"), *second = mark ? strstr(mark + 2, "%u") : NULL;

    if (second)
        snprintf(name, 128, "%.*s%u%.*s%u%s", (int)(mark - format), format, l, (int)(second - mark - 2),
                 mark + 2, number, second + 2);
    else if (mark)
        snprintf(name, 128, "%.*s%u%s", (int)(mark - format), format, l, mark + 2);
    else
        snprintf(name, 128, "%s", format);
}

const struct file_tensor *model_names_find(const struct model *m, const struct weight_key *k, uint32_t l,
                                           char name[128])
{
    char text[128];
    const char *format = model_names_format(m, k, text);

    name[0] = 0;
    if (!format)
        return NULL;
    model_names_write(format, l, 0, name);
    const struct file_tensor *t = model_file_tensor(m->file, name);
    if (!t && !is_gguf(m))
        t = trellis_find(m->file, name);
    if (t || is_gguf(m) || !(k->flags & WEIGHT_MXFP4))
        return t;
    char blocks[160];
    snprintf(blocks, sizeof blocks, "%s_blocks", name);
    return model_file_tensor(m->file, blocks);
}

void model_names_choose(struct model *m)
{
    const char *words = !is_gguf(m) ? m->arch->json_prefix : NULL;
    char name[128], first[sizeof m->json_prefix] = "";

    for (size_t n; words && *words; words += n + (words[n] == ' ')) {
        n = strcspn(words, " ");
        snprintf(m->json_prefix, sizeof m->json_prefix, "%.*s", (int)n, words);
        if (model_names_find(m, &m->arch->weights[0], 0, name))
            return;
        if (!*first)
            snprintf(first, sizeof first, "%s", m->json_prefix);
    }
    m->json_prefix[0] = 0;
    if (is_gguf(m) || model_names_find(m, &m->arch->weights[0], 0, name))
        return;
    m->is_bare = true;
    if (model_names_find(m, &m->arch->weights[0], 0, name))
        return;
    m->is_bare = false;
    snprintf(m->json_prefix, sizeof m->json_prefix, "%s", first);
}
