// adapter.c - finds an adapter's matrices by the architecture's table of weights; see adapter.h.
#include "models/binding/adapter.h"
#include <math.h>
#include "base/mem.h"
#include "models/binding/model_names.h"

enum { NAME_BYTES = 192 };

static bool is_gguf(const struct model_file *file)
{
    return model_file_format(file) == MODEL_GGUF;
}

// The order of q's and k's rows, and of some architectures' others, is that of the file's format.
static bool is_foreign(const struct adapter *a)
{
    return model_file_format(a->file) != model_file_format(a->model->file);
}

// ---- rows of the model's matrix, and where an adapter has them

// The key's slice counts in such files.
static const struct weight_slice *slice_of(const struct adapter *a, const struct weight_key *k)
{
    bool always = k->slice && (!k->gguf || strcmp(k->gguf, k->slice->gguf) == 0);
    return k->slice && (always || !is_gguf(a->file)) ? k->slice : NULL;
}

static uint32_t half_of(const struct adapter *a, const struct weight_key *k)
{
    return is_gguf(a->file) ? 0 : k->half;
}

uint32_t adapter_rows(const struct adapter *a, const struct adapter_part *part)
{
    struct weight_key k = *part->key;

    k.layer = part->layer;
    return model_key_dim(a->model, &k, k.rows) * (k.stack ? model_key_dim(a->model, &k, k.stack) : 1);
}

uint32_t adapter_cols(const struct adapter *a, const struct adapter_part *part)
{
    struct weight_key k = *part->key;

    k.layer = part->layer;
    return model_key_dim(a->model, &k, k.cols);
}

// All rows of the tensor in which the matrix lies; *before: of those that are another's, at its beginning.
static uint64_t tensor_rows_of(const struct adapter *a, const struct weight_key *k, uint64_t *before)
{
    const struct weight_slice *slice = slice_of(a, k);
    uint64_t rows = model_key_dim(a->model, k, k->rows), all = 0;

    *before = 0;
    if (slice) {
        *before = slice->last ? model_key_dim(a->model, k, slice->all) - rows : 0;
        return (uint64_t)model_key_dim(a->model, k, k->stack) * model_key_dim(a->model, k, slice->all);
    }
    if (half_of(a, k)) {
        *before = (k->half - 1) * rows;
        return 2 * rows;
    }
    for (uint32_t i = 0; k->part && i < k->part->n; i++) {
        *before = i == k->part->index ? all : *before;
        all += model_key_dim(a->model, k, k->part->all[i]);
    }
    return k->part ? all : rows;
}

// In GGUF files the pairs of a head's rows that rotate together are neighbours; in checkpoints they are half
// a head apart.
static uint64_t rotated_row(const struct adapter *a, const struct weight_key *k, uint64_t row)
{
    uint64_t dim = a->model->layer_configs[k->layer].head_dim, head = row / dim * dim, i = row % dim;

    if (!(k->flags & WEIGHT_ROPE_PAIRED) || !is_foreign(a))
        return row;
    return head + (is_gguf(a->file) ? i % (dim / 2) * 2 + i / (dim / 2) : i % 2 * (dim / 2) + i / 2);
}

// Where the adapter has row (or column) i of the matrix: see weight_groups.
static uint64_t regrouped(const struct adapter *a, const struct weight_key *k, uint64_t i, bool columns)
{
    const struct weight_groups *g = k->groups;

    if (!g || g->columns != columns || !is_foreign(a))
        return i;
    uint64_t block = model_key_dim(a->model, k, g->block), n = model_key_dim(a->model, k, g->n),
             before = model_key_dim(a->model, k, columns ? k->cols : k->rows) - n, blocks = n / block,
             groups = model_key_dim(a->model, k, g->groups),
             first = is_gguf(a->file) ? blocks / groups : groups; // between a block and its neighbour there
    if (i < before)
        return i;
    uint64_t at = (i - before) / block;
    return before + (at % first * (blocks / first) + at / first) * block + (i - before) % block;
}

static uint64_t row_in_tensor(const struct adapter *a, const struct weight_key *k, uint64_t row)
{
    const struct weight_slice *slice = slice_of(a, k);
    uint64_t rows = model_key_dim(a->model, k, k->rows), before;

    tensor_rows_of(a, k, &before);
    if (slice)
        return row / rows * model_key_dim(a->model, k, slice->all) + before + row % rows;
    return before + regrouped(a, k, rotated_row(a, k, row), false);
}

// ---- finding

// The word of the table behind which the language model is: "model.", or one of the checkpoint's own.
static struct str root_of(const struct adapter *a)
{
    const char *name = a->model->arch->weights[0].json;

    return (struct str){ name, strcspn(name, ".") + 1 };
}

// Words behind which modules stand, for the table's: those of a class that sees may be added to a GGUF file
// of its text alone.
static const char *const prefixes[] = {
    "model.",  "model.language_model.", "language_model.model.", "model.text_model.", "backbone.", "bert.",
    "roberta."
};
enum { N_PREFIXES = sizeof prefixes / sizeof *prefixes };

// Where the two tensors of a module can lie, and under which name a message says so.
struct adapter_names {
    char module[NAME_BYTES], a[NAME_BYTES + 64], b[NAME_BYTES + 64];
};

static void names_of(const struct adapter *a, const char *prefix, const char *name, struct adapter_names *to)
{
    size_t n = strlen(name) - (str_ends(str_from(name), STR(".weight")) ? strlen(".weight") : 0);

    if (is_gguf(a->file)) {
        snprintf(to->module, sizeof to->module, "%s", name);
        snprintf(to->a, sizeof to->a, "%s.lora_a", name);
        snprintf(to->b, sizeof to->b, "%s.lora_b", name);
        return;
    }
    struct str module = { name, n }, root = root_of(a);
    bool inside = str_starts(module, root);
    if (inside)
        module = str_from_to(module, root.n, n);
    snprintf(to->module, sizeof to->module, "%.63s%.*s", inside ? prefix : "", STR_ARG(module));
    snprintf(to->a, sizeof to->a, "base_model.model.%s.lora_A.weight", to->module);
    snprintf(to->b, sizeof to->b, "base_model.model.%s.lora_B.weight", to->module);
}

// The name of the tensor in files of the adapter's format. False: they have none of its own.
static bool name_of(const struct adapter *a, const struct weight_key *k, char name[128])
{
    const struct weight_slice *slice = slice_of(a, k);
    const char *format = is_gguf(a->file) ? (slice ? slice->gguf : k->gguf) : k->json;

    if (format)
        model_names_write(format, k->layer, 0, name);
    return format != NULL;
}

static bool refuse(const struct adapter *a, const char *module, const char *why, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: it adds to %s, %s; ingot adds to a layer's own matrices and the head",
                   model_file_path(a->file), module, why);
}

// Whether ingot can add to it.
static bool key_fits(const struct adapter *a, const struct weight_key *k, const char *module, struct err *err)
{
    const struct weight_slice *slice = slice_of(a, k);
    bool is_head = k->place == MODEL_PLACE(head);

    if (k->stack && !slice)
        return refuse(a, module, "a stack of matrices, as of experts", err);
    if (k->rows == DIM_ONE || k->cols == DIM_ONE || k->flags & WEIGHT_DEPTHWISE)
        return refuse(a, module, "which is no matrix", err);
    if (!k->per_layer && !is_head)
        return refuse(a, module,
                      k->rows == DIM_VOCAB ? "which is an embedding" : "which is outside of layers", err);
    if ((slice && slice->transposed) || (k->flags & (WEIGHT_TRANSPOSED | WEIGHT_ALTERNATE)))
        return refuse(a, module, "whose rows lie apart", err);
    if (is_foreign(a) && a->model->arch->gguf_differs && !a->model->arch->gguf_regroups)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: of %s models GGUF files and checkpoints have other numbers in another order; "
                       "want an adapter in the model's own format",
                       model_file_path(a->file), a->model->arch->name);
    return true;
}

static bool shape_is(const struct adapter *a, const struct file_tensor *t, uint64_t rows, uint64_t cols,
                     struct err *err)
{
    if (t->format >= N_READABLE_QUANTS)
        return err_set(err, ERR_INPUT, "%s: tensor %.*s holds %s; want floats or blocks",
                       model_file_path(a->file), STR_ARG(t->name), quant_info(t->format)->name);
    return (t->n_dims == 2 && t->dims[0] == rows && t->dims[1] == cols) ||
           err_set(
               err, ERR_INPUT,
               "%s: tensor %.*s is [%llu, %llu] with %u dimensions; for this model it must be [%llu, %llu]",
               model_file_path(a->file), STR_ARG(t->name), (unsigned long long)t->dims[0],
               (unsigned long long)t->dims[1], t->n_dims, (unsigned long long)rows, (unsigned long long)cols);
}

static bool check_part(const struct adapter *a, const struct weight_key *k, struct adapter_part *part,
                       struct err *err)
{
    uint64_t before, rank = part->a->dims[0];

    if (part->a->n_dims != 2 || rank == 0 || rank > ADAPTER_MOST_RANKS)
        return err_set(err, ERR_INPUT,
                       "%s: tensor %.*s has rank %llu and %u dimensions; want 1 to %u, and two",
                       model_file_path(a->file), STR_ARG(part->a->name), (unsigned long long)rank,
                       part->a->n_dims, ADAPTER_MOST_RANKS);
    part->rank = (uint32_t)rank;
    return shape_is(a, part->a, rank, model_key_dim(a->model, k, k->cols), err) &&
           shape_is(a, part->b, tensor_rows_of(a, k, &before), rank, err);
}

static bool add_part(struct adapter *a, const struct weight_key *k, const struct weight_key *row,
                     const struct adapter_names *names, struct err *err)
{
    struct adapter_part part = { .key = row,
                                 .layer = k->layer,
                                 .a = model_file_tensor(a->file, names->a),
                                 .b = model_file_tensor(a->file, names->b) };

    if (!part.a && !part.b)
        return true;
    if (!part.a || !part.b)
        return err_set(err, ERR_INPUT, "%s: tensor %s is missing; its other half is there",
                       model_file_path(a->file), part.a ? names->b : names->a);
    if (!key_fits(a, k, names->module, err) || !check_part(a, k, &part, err) ||
        !adapter_config_factor(a, str_from(names->module), part.rank, &part.factor, err))
        return false;
    struct adapter_part *parts = mem_realloc(a->parts, (a->n_parts + 1ull) * sizeof *parts);
    if (!parts)
        return err_memory(err, "an adapter");
    a->parts = parts;
    parts[a->n_parts++] = part;
    return true;
}

// Keys and values of a layer that reads another's pages are in some files, and read by nobody: what is added
// to them is taken, and does nothing.
static bool find_key(struct adapter *a, const struct weight_key *row, uint32_t l, struct err *err)
{
    struct weight_key k = *row;
    char name[128];
    struct adapter_names names;

    k.layer = l;
    if (!(model_has(a->model, &k, l) || k.layers == LAYERS_OWN_KV) || !name_of(a, &k, name))
        return true;
    uint32_t n = is_gguf(a->file) ? 1 : N_PREFIXES, before = a->n_parts;
    for (uint32_t i = 0; i < n && a->n_parts == before; i++) {
        names_of(a, prefixes[i], name, &names);
        if (!add_part(a, &k, row, &names, err))
            return false;
    }
    return true;
}

static bool find_parts(struct adapter *a, struct err *err)
{
    const struct arch *arch = a->model->arch;

    for (uint32_t i = 0; i < arch->n_weights; i++)
        for (uint32_t l = 0; l < (arch->weights[i].per_layer ? a->model->config.n_layers : 1); l++)
            if (!find_key(a, &arch->weights[i], l, err))
                return false;
    return true;
}

// ---- checking

static bool is_used(const struct adapter *a, const struct file_tensor *t)
{
    for (uint32_t i = 0; i < a->n_parts; i++)
        if (a->parts[i].a == t || a->parts[i].b == t)
            return true;
    return false;
}

static bool all_are_used(const struct adapter *a, struct err *err)
{
    for (size_t i = 0; i < model_file_n_tensors(a->file); i++) {
        const struct file_tensor *t = model_file_tensor_at(a->file, i);
        if (!is_used(a, t))
            return err_set(err, ERR_INPUT,
                           "%s: tensor %.*s adds to no matrix that ingot knows in this %s model of %u layers",
                           model_file_path(a->file), STR_ARG(t->name), a->model->arch->name,
                           a->model->config.n_layers);
    }
    return a->n_parts > 0 ||
           err_set(err, ERR_INPUT, "%s: there are no tensors in it", model_file_path(a->file));
}

static float *decoded(const struct file_tensor *t)
{
    uint64_t n = t->dims[0] * t->dims[1];
    float *numbers = mem_alloc_array(n, sizeof *numbers);

    if (numbers)
        quant_read(&(struct quant_rows){ t->format, t->data, t->dims[1] }, 0, numbers, n);
    return numbers;
}

static bool is_finite(const struct adapter *a, const struct file_tensor *t, float factor, struct err *err)
{
    float *numbers = decoded(t);
    uint64_t n = t->dims[0] * t->dims[1], i = 0;

    if (!numbers)
        return err_memory(err, "an adapter's matrix");
    while (i < n && isfinite(numbers[i] * factor))
        i++;
    mem_free(numbers);
    return i == n || err_set(err, ERR_INPUT, "%s: tensor %.*s holds NaN or infinity at number %llu",
                             model_file_path(a->file), STR_ARG(t->name), (unsigned long long)i);
}

static bool check_numbers(struct adapter *a, struct err *err)
{
    struct sha256_stream *s = sha256_open();
    bool ok = s || err_memory(err, "an adapter's digest");

    for (uint32_t i = 0; i < a->n_parts && ok; i++) {
        const struct adapter_part *p = &a->parts[i];
        ok = is_finite(a, p->a, 1, err) && is_finite(a, p->b, p->factor, err);
        sha256_add(s, p->a->name.at, p->a->name.n);
        sha256_add(s, &p->factor, sizeof p->factor);
        sha256_add(s, p->a->dims, sizeof p->a->dims);
        sha256_add(s, p->a->data, p->a->bytes);
        sha256_add(s, p->b->data, p->b->bytes);
    }
    if (s)
        a->digest = sha256_take(s);
    sha256_close(s);
    return ok;
}

bool adapter_bind(struct adapter *a, const struct model *m, struct model_file *file, struct err *err)
{
    *a = (struct adapter){ .model = m, .file = file };
    return adapter_config_read(a, err) && find_parts(a, err) && all_are_used(a, err) && check_numbers(a, err);
}

bool adapter_open(struct adapter *a, const struct model *m, const char *path, struct err *err)
{
    struct model_file *file;

    *a = (struct adapter){ 0 };
    if (!model_file_open_adapter(&file, path, err))
        return false;
    if (adapter_bind(a, m, file, err))
        return true;
    adapter_close(a);
    return false;
}

void adapter_close(struct adapter *a)
{
    model_file_close(a->file);
    mem_free(a->parts);
    *a = (struct adapter){ 0 };
}

const struct adapter_part *adapter_find(const struct adapter *a, bool per_layer, uint32_t layer,
                                        uint32_t place)
{
    for (uint32_t i = 0; i < a->n_parts; i++) {
        const struct adapter_part *p = &a->parts[i];
        if (p->key->per_layer == per_layer && p->layer == layer && p->key->place == place)
            return p;
    }
    return NULL;
}

static void read_up(const struct adapter *a, const struct adapter_part *part, const float *b, float *up)
{
    uint64_t n_rows = adapter_rows(a, part), rank = part->rank;
    struct weight_key k = *part->key;

    k.layer = part->layer;
    for (uint64_t n = 0; n < n_rows; n++) {
        const float *row = b + row_in_tensor(a, &k, n) * rank;
        for (uint64_t j = 0; j < rank; j++)
            up[j * n_rows + n] = row[j] * part->factor;
    }
}

static void read_down(const struct adapter *a, const struct adapter_part *part, const float *from,
                      float *down)
{
    uint64_t n_cols = adapter_cols(a, part), rank = part->rank;
    struct weight_key k = *part->key;

    k.layer = part->layer;
    for (uint64_t n = 0; n < n_cols; n++) {
        uint64_t col = regrouped(a, &k, n, true);
        for (uint64_t j = 0; j < rank; j++)
            down[j * n_cols + n] = from[j * n_cols + col];
    }
}

bool adapter_read(const struct adapter *a, const struct adapter_part *part, float *down, float *up,
                  struct err *err)
{
    float *from_a = decoded(part->a), *from_b = decoded(part->b);
    bool ok = from_a && from_b;

    if (ok) {
        read_down(a, part, from_a, down);
        read_up(a, part, from_b, up);
    }
    mem_free(from_a);
    mem_free(from_b);
    return ok || err_memory(err, "an adapter's matrix");
}
