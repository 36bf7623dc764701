// embedder.c - see embedder.h.
#include "models/binding/embedder.h"
#include "models/arch.h"

enum { LABELS_MAX = 2, VECTOR_MAX = 65536 };

static bool is_gguf(const struct model *m)
{
    return model_file_format(m->file) == MODEL_GGUF;
}

static bool read_key(const struct model *m, enum model_pooling *pooling, struct err *err)
{
    char key[128];
    uint64_t type = POOLING_NONE;

    snprintf(key, sizeof key, "%s.pooling_type", m->arch->name);
    if (!model_file_u64(m->file, key, 0, POOLING_RANK, &type, err))
        return false;
    *pooling = (enum model_pooling)type;
    return true;
}

// Older files have a truth for each kind, of which one is true; newer ones a word.
static bool read_folder(const struct model *m, enum model_pooling *pooling, struct err *err)
{
    static const struct {
        const char *key, *word;
        enum model_pooling pooling; // NONE: ingot does not pool so
    } kinds[] = {
        { "1_Pooling.pooling_mode_mean_tokens", "mean", POOLING_MEAN },
        { "1_Pooling.pooling_mode_cls_token", "cls", POOLING_CLS },
        { "1_Pooling.pooling_mode_lasttoken", "lasttoken", POOLING_LAST },
        { "1_Pooling.pooling_mode_max_tokens", "max", POOLING_NONE },
        { "1_Pooling.pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", POOLING_NONE },
        { "1_Pooling.pooling_mode_weightedmean_tokens", "weightedmean", POOLING_NONE },
    };
    struct str word = { 0 };

    if (!model_file_string(m->file, "1_Pooling.pooling_mode", &word, err))
        return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool chosen = str_is(word, kinds[i].word);
        if (!model_file_bool(m->file, kinds[i].key, &chosen, err))
            return false;
        if (chosen && (kinds[i].pooling == POOLING_NONE || *pooling != POOLING_NONE))
            return err_set(
                err, ERR_UNSUPPORTED,
                "%s: 1_Pooling/config.json asks for %s%s; ingot pools by one of mean, cls and lasttoken",
                model_file_path(m->file), kinds[i].word,
                *pooling == POOLING_NONE ? "" : " beside another pooling");
        *pooling = chosen ? kinds[i].pooling : *pooling;
    }
    return true;
}

// Rows of a matrix that files of both formats have under one of these names; 0: there is none.
static bool read_rows(const struct model *m, const char *const names[], uint64_t most, uint32_t *n,
                      struct err *err)
{
    for (size_t i = 0; names[i]; i++) {
        const struct file_tensor *t = model_file_tensor(m->file, names[i]);
        if (!t)
            continue;
        uint64_t rows = t->n_dims == 1 ? 1 : t->dims[0];
        *n = (uint32_t)rows;
        return (rows > 0 && rows <= most) ||
               err_set(err, ERR_UNSUPPORTED, "%s: tensor %s has %llu rows; want 1 to %llu",
                       model_file_path(m->file), names[i], (unsigned long long)rows,
                       (unsigned long long)most);
    }
    return true;
}

// Whether the file says of a product behind pooling what its tensor has.
static bool feature_is(const struct model *m, const char *name, uint64_t n, struct err *err)
{
    char key[128];
    uint64_t said = n;

    snprintf(key, sizeof key, "%s.%s", m->arch->name, name);
    return model_file_u64(m->file, key, 1, UINT32_MAX, &said, err) &&
           (said == n ||
            err_set(err, ERR_INPUT, "%s: %s is %llu, but the tensor has %llu", model_file_path(m->file), key,
                    (unsigned long long)said, (unsigned long long)n));
}

static bool features_fit(const struct model *m, struct err *err)
{
    const struct model_embedder *e = &m->embedder;

    return feature_is(m, "dense_2_feat_in", m->config.n_cols, err) &&
           feature_is(m, "dense_2_feat_out", e->n_hidden, err) &&
           feature_is(m, "dense_3_feat_in", e->n_hidden, err) &&
           feature_is(m, "dense_3_feat_out", e->n_vector, err);
}

bool embedder_read(struct model *m, struct err *err)
{
    static const char *const labels[] = { "cls.output.weight", "score.weight", "classifier.out_proj.weight",
                                          NULL },
                             *const hidden[] = { "dense_2.weight", "2_Dense.linear.weight", NULL },
                             *const vector[] = { "dense_3.weight", "3_Dense.linear.weight", NULL };
    struct model_embedder *e = &m->embedder;

    *e = (struct model_embedder){ .n_vector = m->config.n_cols };
    return (is_gguf(m) ? read_key(m, &e->pooling, err) : read_folder(m, &e->pooling, err)) &&
           read_rows(m, labels, LABELS_MAX, &e->n_labels, err) &&
           read_rows(m, hidden, VECTOR_MAX, &e->n_hidden, err) &&
           read_rows(m, vector, VECTOR_MAX, &e->n_vector, err) && (e->n_hidden == 0 || features_fit(m, err));
}

static bool is_plain(const struct model *m, const char *key, struct err *err)
{
    struct str activation = STR("torch.nn.modules.linear.Identity");

    if (!model_file_string(m->file, key, &activation, err))
        return false;
    return str_ends(activation, STR(".Identity")) ||
           err_set(err, ERR_UNSUPPORTED, "%s: %s is \"%.*s\"; ingot runs such products without an activation",
                   model_file_path(m->file), key, STR_ARG(activation));
}

bool embedder_check(const struct model *m, struct err *err)
{
    bool dense = m->embedder.n_hidden > 0;

    if (dense && !MODEL_TENSOR(m, embed_dense))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: there is a product behind pooling (2_Dense); ingot runs %s models without",
                       model_file_path(m->file), m->arch->name);
    return !dense || (is_plain(m, "2_Dense.activation_function", err) &&
                      is_plain(m, "3_Dense.activation_function", err));
}
