// model.c - binds a file to an architecture, and records a stage; see model.h and arch.h.
#include "models/model.h"
#include <string.h>
#include "base/err.h"
#include "base/mem.h"
#include "device/tape_exchange.h"
#include "models/arch.h"
#include "models/model_check.h"
#include "models/binding/embedder.h"
#include "models/binding/joined.h"
#include "models/binding/model_config.h"
#include "models/binding/model_names.h"
#include "models/binding/model_rope.h"
#include "models/binding/nearest.h"
#include "models/draft/draft_layer.h"
#include "models/trellis_tensor.h"
#include "ops/activate/activate.h"
#include "ops/angles/angles.h"
#include "ops/embed/embed.h"
#include "ops/layernorm/layernorm.h"
#include "ops/matmul/matmul.h"
#include "ops/ops.h"
#include "ops/rmsnorm/rmsnorm.h"
#include "ops/sample/sample.h"
#include "ops/select/select.h"

#define ARCH(name) extern const struct arch arch_##name;
#include "models/models.def"
#undef ARCH

static const struct arch *const archs[] = {
#define ARCH(name) &arch_##name,
#include "models/models.def"
#undef ARCH
};

static const struct arch *arch_at(uint32_t index)
{
    return index < sizeof archs / sizeof *archs ? archs[index] : NULL;
}

static bool is_gguf(const struct model *m)
{
    return model_file_format(m->file) == MODEL_GGUF;
}

// l: the layer; 0 for what is outside of layers.
static uint32_t model_dim(const struct model *m, uint32_t d, uint32_t l)
{
    const struct layer_config *c = &m->layer_configs[l];

    if (d >= DIM_OWN) {
        uint32_t own;
        memcpy(&own, (const char *)m->own + (d - DIM_OWN) * sizeof own, sizeof own);
        return own;
    }
    switch (d) {
    case DIM_COLS:
        return m->config.n_cols;
    case DIM_VOCAB:
        return m->config.n_vocab;
    case DIM_Q:
        return c->n_heads * c->head_dim;
    case DIM_KV:
        return c->n_kv_heads * c->head_dim;
    case DIM_FFN:
        return c->n_ffn;
    case DIM_HEAD:
        return c->head_dim;
    case DIM_HEADS:
        return c->n_heads;
    case DIM_PAIRS:
        return m->config.rope[0].n_dims / 2;
    case DIM_LABELS:
        return m->embedder.n_labels;
    case DIM_HIDDEN:
        return m->embedder.n_hidden;
    case DIM_VECTOR:
        return m->embedder.n_vector;
    default:
        return 1;
    }
}

// Of the layer that the key is being bound for.
uint32_t model_key_dim(const struct model *m, const struct weight_key *k, uint32_t d)
{
    return model_dim(m, d, k->layer);
}

bool model_one_of(const char *words, struct str word)
{
    while (*words) {
        size_t n = strcspn(words, " ");
        if (str_eq(word, (struct str){ words, n }))
            return true;
        words += n + (words[n] == ' ');
    }
    return false;
}

static bool has_size(const struct model_file *file, const char *key)
{
    const struct meta *size = key ? model_file_meta(file, key) : NULL;
    return !key ||
           (size && !(size->type == META_UINT && size->u == 0) && !(size->type == META_INT && size->i == 0));
}

static bool has_truth(const struct model_file *file, const char *key)
{
    const struct meta *value = key ? model_file_meta(file, key) : NULL;
    return !key || (value && value->type == META_BOOL && value->b);
}

static bool find_arch(struct model *m, struct err *err)
{
    bool gguf = is_gguf(m);
    const char *key = gguf ? "general.architecture" : "model_type";
    struct str name = { 0 };
    struct str type = { 0 };

    if (!model_file_string(m->file, key, &name, err) ||
        (gguf && !model_file_string(m->file, "general.type", &type, err)))
        return false;
    if (str_is(type, "adapter"))
        return err_set(err, ERR_INPUT,
                       "%s: this is an adapter of a %.*s model; give it with %s, and the model with %s",
                       model_file_path(m->file), STR_ARG(name), err_option("adapters"), err_option("model"));
    if (name.n == 0)
        return err_set(err, ERR_INPUT, "%s: %s is missing; is this a language model?",
                       model_file_path(m->file), key);
    for (uint32_t i = 0; (m->arch = arch_at(i)); i++)
        if (gguf ? str_is(name, m->arch->name) && has_size(m->file, m->arch->with)
                 : model_one_of(m->arch->model_types, name) && has_truth(m->file, m->arch->json_with))
            return true;
    const struct nearest_line *near = nearest_find(name);
    return near ? err_set(
                      err, ERR_UNSUPPORTED,
                      "%s: ingot does not run the architecture \"%.*s\": %s. Nearest in docs/models.md: %s",
                      model_file_path(m->file), STR_ARG(name), near->because, near->runs)
                : err_set(err, ERR_UNSUPPORTED,
                          "%s: ingot does not know the architecture \"%.*s\". By its tensors nearest in "
                          "docs/models.md: %s",
                          model_file_path(m->file), STR_ARG(name), nearest_by_tensors(m->file));
}

static bool format_check(const struct model *m, const struct file_tensor *t, struct err *err)
{
    return t->format < N_READABLE_QUANTS ||
           err_set(err, ERR_INPUT, "%s: tensor %.*s holds %s; weights must be floats or blocks",
                   model_file_path(m->file), STR_ARG(t->name), quant_info(t->format)->name);
}

static void dims_text(const uint64_t *dims, uint32_t n, char text[96])
{
    size_t at = 0;

    for (uint32_t i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, 96 - at, "%s%llu", i ? ", " : "", (unsigned long long)dims[i]);
}

static bool dims_check(const struct model *m, const struct file_tensor *t, const uint64_t *want, uint32_t n,
                       struct err *err)
{
    char found[96], wanted[96];

    if (t->n_dims == n && memcmp(t->dims, want, n * sizeof *want) == 0)
        return true;
    dims_text(t->dims, t->n_dims > n ? t->n_dims : n, found);
    dims_text(want, n, wanted);
    return err_set(err, ERR_INPUT, "%s: tensor %.*s is [%s] with %u dimensions; this model needs [%s]",
                   model_file_path(m->file), STR_ARG(t->name), found, t->n_dims, wanted);
}

// halves: how often the tensor's matrices hold the rows.
static bool stack_check(const struct model *m, const struct weight_key *k, const struct file_tensor *t,
                        uint32_t halves, struct err *err)
{
    uint64_t n = model_key_dim(m, k, k->stack), rows = (uint64_t)halves * model_key_dim(m, k, k->rows);
    uint64_t cols = model_key_dim(m, k, k->cols), want[] = { n, rows, cols };

    if (k->stack == 0) // one matrix
        return dims_check(m, t, want + 1, 2, err) && format_check(m, t, err);
    if (k->flags & WEIGHT_TRANSPOSED && !is_gguf(m))
        memcpy(want, (uint64_t[]){ n, cols, rows }, sizeof want);
    if (n * rows > UINT32_MAX)
        return err_set(err, ERR_LIMIT, "%s: tensor %.*s would have %llu x %llu rows; want less than 2^32",
                       model_file_path(m->file), STR_ARG(t->name), (unsigned long long)n,
                       (unsigned long long)rows);
    return dims_check(m, t, want, cols == 1 ? 2 : 3, err) && format_check(m, t, err);
}

static bool shape_check(const struct model *m, const struct weight_key *k, const struct file_tensor *t,
                        struct err *err)
{
    uint64_t rows = model_key_dim(m, k, k->rows), cols = model_key_dim(m, k, k->cols);
    uint64_t found_rows = t->n_dims == 1 ? 1 : t->dims[0],
             found_cols = t->n_dims == 1 ? t->dims[0] : t->dims[1];

    if (k->stack)
        return stack_check(m, k, t, 1, err);
    if (k->flags & WEIGHT_DEPTHWISE && !is_gguf(m))
        return dims_check(m, t, (uint64_t[]){ rows, 1, cols }, 3, err) && format_check(m, t, err);
    if (k->rows == DIM_ONE && t->n_dims == 2 && found_rows * found_cols == cols) // in groups
        return format_check(m, t, err);
    if (t->n_dims > 2 || found_rows != rows || found_cols != cols)
        return err_set(err, ERR_INPUT,
                       "%s: tensor %.*s is [%llu, %llu] with %u dimensions; this model needs [%llu, %llu]",
                       model_file_path(m->file), STR_ARG(t->name), (unsigned long long)found_rows,
                       (unsigned long long)found_cols, t->n_dims, (unsigned long long)rows,
                       (unsigned long long)cols);
    return format_check(m, t, err);
}

static bool missing(const struct model *m, const struct weight_key *k, const char *name, struct err *err)
{
    return err_set(err, ERR_INPUT, "%s: tensor %s is missing; want [%u, %u]", model_file_path(m->file), name,
                   model_key_dim(m, k, k->rows), model_key_dim(m, k, k->cols));
}

// Checks that the parts of a joined matrix have equal shapes and formats.
static bool part_check(const struct model *m, const struct weight_key *k, const struct file_tensor *t,
                       const struct joined_tensor *j, struct err *err)
{
    struct weight_key one = *k;

    one.stack = 0;
    if (!shape_check(m, &one, t, err))
        return false;
    return t->format == j->parts[0]->format ||
           err_set(err, ERR_UNSUPPORTED,
                   "%s: tensor %.*s holds %s and the first of its kind %s; want one format",
                   model_file_path(m->file), STR_ARG(t->name), quant_info(t->format)->name,
                   quant_info(j->parts[0]->format)->name);
}

// With the numbers of MXFP4 alone.
static bool is_packed(const struct weight_key *k, const struct file_tensor *t)
{
    return k->flags & WEIGHT_MXFP4 && str_ends(t->name, STR("_blocks"));
}

static bool joined_describe(const struct model *m, const struct weight_key *k, struct joined_tensor *j,
                            struct err *err)
{
    bool decoded = k->slice && j->transposed && quant_info(j->parts[0]->format)->block_elements > 1;
    enum quant format = j->scales    ? QUANT_MXFP4
                        : decoded    ? QUANT_F32
                        : j->trellis ? QUANT_F16
                                     : quant_kernel_format(j->parts[0]->format);
    const struct quant_info *info = quant_info(format);
    uint64_t n = k->stack ? model_key_dim(m, k, k->stack) : 1;

    j->rows = model_key_dim(m, k, k->rows);
    j->cols = model_key_dim(m, k, k->cols);
    if (j->cols % info->block_elements != 0 || (j->transposed && info->block_elements > 1))
        return err_set(err, ERR_INPUT, "%s: tensor %.*s has rows of %u, no whole blocks of %s",
                       model_file_path(m->file), STR_ARG(j->parts[0]->name), j->cols, info->name);
    j->tensor = (struct file_tensor){ .name = j->parts[0]->name,
                                      .format = format,
                                      .n_dims = j->cols == 1 ? 2 : 3,
                                      .dims = { n, j->rows, j->cols, 1 } };
    if (!k->stack) {
        j->tensor.n_dims = 2;
        memcpy(j->tensor.dims, (uint64_t[]){ j->rows, j->cols, 1, 1 }, sizeof j->tensor.dims);
    }
    CHECK(quant_bytes(format, n * j->rows, j->cols, &j->tensor.bytes)); // the parts have as many numbers
    return true;
}

// The part that is being added holds EXL3; so must the ones before it.
static bool bind_trellis(const struct model *m, const struct weight_key *k, struct joined_tensor *j,
                         struct err *err)
{
    const struct file_tensor *codes = j->parts[j->n_parts];

    if (!trellis_is(j->parts[0]))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s: tensor %.*s holds EXL3 and the first of its kind %s; want one format",
                       model_file_path(m->file), STR_ARG(codes->name), quant_info(j->parts[0]->format)->name);
    j->trellis = (struct trellis *)(j->parts + (k->stack ? model_key_dim(m, k, k->stack) : 1));
    return trellis_bind(&j->trellis[j->n_parts], m->file, codes, model_key_dim(m, k, k->rows),
                        model_key_dim(m, k, k->cols), err);
}

// Makes one tensor out of the matrices of the stack.
static bool join_tensors(struct model *m, const struct weight_key *k, uint32_t l,
                         const struct file_tensor **t, struct err *err)
{
    uint32_t n = model_key_dim(m, k, k->stack);
    struct joined_tensor *j = joined_create(m, n);
    char name[128], text[128];
    const char *format = model_names_format(m, k, text);

    if (!j)
        return err_memory(err, "the model's matrices");
    for (; j->n_parts < n; j->n_parts++) {
        model_names_write(format, l, j->n_parts, name);
        const struct file_tensor *part = model_file_tensor(m->file, name);
        if (!part && !(part = trellis_find(m->file, name)))
            return missing(m, k, name, err);
        j->parts[j->n_parts] = part;
        if (trellis_is(part) ? !bind_trellis(m, k, j, err) : !part_check(m, k, part, j, err))
            return false;
    }
    j->stays_codes = j->trellis && trellis_is_product(k) && trellis_is_uniform(j);
    *t = &j->tensor;
    return joined_describe(m, k, j, err);
}

// MXFP4 as bytes: t has the numbers, 16 bytes for 32 of them; another tensor the scales.
static bool find_scales(const struct model *m, const struct weight_key *k, const struct file_tensor *t,
                        struct joined_tensor *j, struct err *err)
{
    uint64_t n = model_key_dim(m, k, k->stack), rows = (uint64_t)j->n_halves * model_key_dim(m, k, k->rows);
    uint64_t cols = model_key_dim(m, k, k->cols), want[] = { n, rows, cols / 32, 16 };
    char name[160];

    snprintf(name, sizeof name, "%.*sscales", (int)(t->name.n - strlen("blocks")), t->name.at);
    j->scales = model_file_tensor(m->file, name);
    if (!j->scales)
        return err_set(err, ERR_INPUT, "%s: tensor %s is missing", model_file_path(m->file), name);
    if (t->format != QUANT_U8 || j->scales->format != QUANT_U8)
        return err_set(err, ERR_INPUT, "%s: tensor %.*s or its scales hold no bytes",
                       model_file_path(m->file), STR_ARG(t->name));
    return dims_check(m, t, want, 4, err) && dims_check(m, j->scales, want, 3, err);
}

// Matrices that lie in one tensor, but not one behind the other and row by row.
static bool join_part(struct model *m, const struct weight_key *k, const struct file_tensor **t,
                      struct err *err)
{
    struct joined_tensor *j = joined_create(m, 1);

    if (!j)
        return err_memory(err, "the model's matrices");
    j->parts[j->n_parts++] = *t;
    j->n_halves = k->half ? 2 : 1;
    j->half = k->half ? k->half - 1 : 0;
    j->alternate = k->flags & WEIGHT_ALTERNATE;
    if (is_packed(k, *t)) {
        if (!find_scales(m, k, *t, j, err))
            return false;
    } else {
        j->transposed = k->flags & WEIGHT_TRANSPOSED;
        if (!stack_check(m, k, *t, j->n_halves, err))
            return false;
    }
    *t = &j->tensor;
    return joined_describe(m, k, j, err);
}

// Vectors are decoded, and one that lies in several rows as if they were one.
static bool vector_check(const struct model *m, const struct weight_key *k, const struct file_tensor *t,
                         struct err *err)
{
    return !t || !quant_info(t->format)->head_bytes || (k->rows != DIM_ONE && k->cols != DIM_ONE) ||
           err_set(err, ERR_INPUT, "%s: tensor %.*s holds %s, which is for matrices; want numbers",
                   model_file_path(m->file), STR_ARG(t->name), quant_info(t->format)->name);
}

// A matrix in a format that is spread when it is read; vectors are decoded anyway.
static bool is_spread(const struct weight_key *k, const struct file_tensor *t)
{
    return quant_kernel_format(t->format) != t->format && k->rows != DIM_ONE && k->cols != DIM_ONE;
}

static bool spread_tensor(struct model *m, const struct weight_key *k, const struct file_tensor **t,
                          struct err *err)
{
    struct joined_tensor *j = joined_create(m, 1);

    if (!j)
        return err_memory(err, "the model's matrices");
    j->parts[0] = *t;
    if (trellis_is(*t) && !bind_trellis(m, k, j, err))
        return false;
    j->stays_codes = j->trellis && trellis_is_product(k);
    j->n_parts = 1;
    *t = &j->tensor;
    return joined_describe(m, k, j, err);
}

// The part's rows, where they lie in the tensor, or spread from there.
static bool take_part(struct model *m, const struct weight_key *k, const struct file_tensor **t,
                      struct err *err)
{
    const struct weight_rows *p = k->part;
    uint64_t want[] = { 0, model_key_dim(m, k, k->cols) }, before = 0, rows = model_key_dim(m, k, k->rows);

    for (uint32_t i = 0; i < p->n; i++) {
        before = i == p->index ? want[0] : before;
        want[0] += model_key_dim(m, k, p->all[i]);
    }
    if (!dims_check(m, *t, want, 2, err) || !format_check(m, *t, err))
        return false;
    struct joined_tensor *j = joined_create(m, 1);
    if (!j)
        return err_memory(err, "a part of a matrix");
    uint64_t row_bytes = (*t)->bytes / want[0];
    j->parts[j->n_parts++] = *t;
    if (is_spread(k, *t)) {
        j->slice_rows = (uint32_t)want[0];
        j->slice_first = (uint32_t)before;
        *t = &j->tensor;
        return joined_describe(m, k, j, err);
    }
    j->tensor = **t;
    j->tensor.dims[0] = rows;
    j->tensor.data += before * row_bytes;
    j->tensor.bytes = rows * row_bytes;
    *t = &j->tensor;
    return true;
}

static bool slice_check(const struct model *m, const struct weight_key *k, const struct file_tensor *t,
                        struct err *err)
{
    uint64_t want[] = { (uint64_t)model_key_dim(m, k, k->stack) * model_key_dim(m, k, k->slice->all),
                        model_key_dim(m, k, k->slice->transposed ? k->rows : k->cols) };
    const struct quant_info *info = quant_info(t->format);

    if (!dims_check(m, t, want, 2, err) || !format_check(m, t, err))
        return false;
    return ((want[1] <= MODEL_TURNED_ROWS || !k->slice->transposed) && want[1] % info->block_elements == 0) ||
           err_set(err, ERR_INPUT, "%s: tensor %.*s has rows of %llu; want at most %u, in whole blocks of %s",
                   model_file_path(m->file), STR_ARG(t->name), (unsigned long long)want[1], MODEL_TURNED_ROWS,
                   info->name);
}

static bool add_one(struct model *m, const struct weight_key *k, const struct file_tensor **t,
                    struct err *err)
{
    struct joined_tensor *j = joined_create(m, 1);

    if (!j)
        return err_memory(err, "a vector");
    if (!shape_check(m, k, *t, err))
        return false;
    if (quant_info((*t)->format)->block_elements > 1)
        return err_set(err, ERR_UNSUPPORTED, "%s: tensor %.*s holds %s; want plain numbers",
                       model_file_path(m->file), STR_ARG((*t)->name), quant_info((*t)->format)->name);
    j->parts[j->n_parts++] = *t;
    j->plus_one = true;
    j->rows = 1;
    j->cols = model_key_dim(m, k, k->cols);
    j->tensor = **t;
    j->tensor.format = QUANT_F32;
    j->tensor.data = NULL;
    j->tensor.bytes = (uint64_t)j->cols * sizeof(float);
    *t = &j->tensor;
    return true;
}

// Some of the rows of each matrix of another tensor.
static bool join_slices(struct model *m, const struct weight_key *k, const struct file_tensor **t,
                        struct err *err)
{
    const struct weight_slice *slice = k->slice;
    struct joined_tensor *j = joined_create(m, 1);

    if (!j)
        return err_memory(err, "the model's matrices");
    if (!slice_check(m, k, *t, err))
        return false;
    j->parts[j->n_parts++] = *t;
    j->transposed = slice->transposed;
    j->slice_rows = model_key_dim(m, k, slice->all);
    j->slice_first = slice->last ? j->slice_rows - model_key_dim(m, k, k->rows) : 0;
    *t = &j->tensor;
    return joined_describe(m, k, j, err);
}

// Half of the columns of a matrix whose input is two vectors, one behind the other.
static bool take_columns(struct model *m, const struct weight_key *k, const struct file_tensor **t,
                         struct err *err)
{
    uint64_t cols = model_key_dim(m, k, k->cols), want[] = { model_key_dim(m, k, k->rows), 2 * cols };

    if (!dims_check(m, *t, want, 2, err) || !format_check(m, *t, err))
        return false;
    struct joined_tensor *j = joined_create(m, 1);
    if (!j)
        return err_memory(err, "half of a matrix");
    j->parts[j->n_parts++] = *t;
    j->all_cols = (uint32_t)want[1];
    j->first_col = k->col_half == 2 ? (uint32_t)cols : 0;
    *t = &j->tensor;
    return joined_describe(m, k, j, err);
}

// Whether each matrix of the stack is a tensor of its own.
static bool lies_apart(const struct model *m, const struct weight_key *k)
{
    char text[128];
    const char *format = k->stack ? model_names_format(m, k, text) : NULL,
               *mark = format ? strstr(format, "%u") : NULL;
    return mark && strstr(mark + 2, "%u");
}

// The whole matrix, or the parts that the file has instead.
static bool bring_together(struct model *m, const struct weight_key *k, uint32_t l,
                           const struct file_tensor **t, struct err *err)
{
    if (!vector_check(m, k, *t, err))
        return false;
    if (k->slice && (!is_gguf(m) || !*t || strcmp(k->gguf, k->slice->gguf) == 0)) {
        struct weight_key other = *k;
        char name[128], other_name[128];
        other.gguf = k->slice->gguf;
        const struct file_tensor *whole = model_names_find(m, &other, l, other_name);
        if (!whole) {
            model_names_find(m, k, l, name);
            return missing(m, k, name, err);
        }
        *t = whole;
        return join_slices(m, k, t, err);
    }
    if (lies_apart(m, k))
        return join_tensors(m, k, l, t, err);
    if (k->part)
        return take_part(m, k, t, err);
    if (k->col_half)
        return take_columns(m, k, t, err);
    if (trellis_is(*t) && !k->stack && k->rows != DIM_ONE && k->cols != DIM_ONE)
        return spread_tensor(m, k, t, err);
    if (k->flags & WEIGHT_PLUS_ONE && !is_gguf(m))
        return add_one(m, k, t, err);
    if (k->half || (!is_gguf(m) && (k->flags & WEIGHT_TRANSPOSED || is_packed(k, *t))))
        return join_part(m, k, t, err);
    return shape_check(m, k, *t, err) && (!is_spread(k, *t) || spread_tensor(m, k, t, err));
}

static void count_weights(struct model *m, const struct weight_key *k, const struct file_tensor *t)
{
    uint64_t n = (uint64_t)model_key_dim(m, k, k->rows) * model_key_dim(m, k, k->cols),
             stack = k->stack ? model_key_dim(m, k, k->stack) : 1;

    m->n_parameters += n * stack;
    m->weight_bytes += trellis_kept_bytes(t);
    if (!k->used)
        return;
    m->n_experts = (uint32_t)stack;
    m->n_used_experts = model_key_dim(m, k, k->used);
    m->n_idle += n * (stack - m->n_used_experts);
    m->idle_bytes += trellis_kept_bytes(t) / stack * (stack - m->n_used_experts);
}

// GGUF files may have an expert's gate and up in one matrix. k becomes the key of that half, or stays.
static const struct file_tensor *find_gate_up(const struct model *m, struct weight_key *k, uint32_t l)
{
    static const char *const apart[] = { "blk.%u.ffn_gate_exps.weight", "blk.%u.ffn_up_exps.weight" };
    char name[128];

    for (uint32_t i = 0; k->stack && i < 2; i++) {
        struct weight_key both = *k;
        both.gguf = "blk.%u.ffn_gate_up_exps.weight";
        both.half = i + 1;
        const struct file_tensor *t =
            strcmp(k->gguf, apart[i]) == 0 ? model_names_find(m, &both, l, name) : NULL;
        if (t) {
            *k = both;
            return t;
        }
    }
    return NULL;
}

bool model_bind_tensor(struct model *m, const struct weight_key *row, uint32_t l, struct err *err)
{
    struct weight_key here = *row, *k = &here;
    char name[128];

    k->layer = l;
    k->half = is_gguf(m) ? 0 : k->half;
    const struct file_tensor *t = model_names_find(m, k, l, name);
    if (!t && is_gguf(m))
        t = find_gate_up(m, k, l);
    const struct file_tensor **place = k->per_layer ? &model_layer(m, l)[k->place] : &m->tensors[k->place];

    if (!t && (k->flags & WEIGHT_TIED)) {
        m->tied = true;
        *place = MODEL_TENSOR(m, embed);
        return true;
    }
    if (!t && (k->flags & WEIGHT_OPTIONAL))
        return true;
    if (!t && !k->slice)
        return missing(m, k, name, err);
    if (!bring_together(m, k, l, &t, err))
        return false;
    *place = t;
    count_weights(m, k, t);
    return true;
}

bool model_has(const struct model *m, const struct weight_key *k, uint32_t l)
{
    bool dense = l < m->config.n_dense, recurrent = k->per_layer && m->layer_configs[l].state_words > 0,
         ffn_alone = k->per_layer && m->layer_configs[l].ffn_alone;

    if (k->layers == LAYERS_OWN_KV)
        return m->layer_configs[l].pages_of == l;
    if (model_dim(m, k->when, l) == 0)
        return false;
    if (k->layers == LAYERS_STATE || k->layers == LAYERS_PAGES)
        return !ffn_alone && recurrent == (k->layers == LAYERS_STATE);
    if (k->layers == LAYERS_FFN)
        return ffn_alone;
    return k->layers == LAYERS_ALL || dense == (k->layers == LAYERS_DENSE);
}

static bool bind_tensors(struct model *m, struct err *err)
{
    m->n_places = N_LAYER_WEIGHTS + m->arch->n_own_weights;
    m->layers = mem_alloc_array(((size_t)m->config.n_layers + 1) * m->n_places, sizeof *m->layers);
    m->is_vector = mem_alloc_array(m->n_places, sizeof *m->is_vector);
    if (!m->layers || !m->is_vector)
        return err_memory(err, "the model's layers");
    for (uint32_t i = 0; i < m->arch->n_weights; i++) {
        const struct weight_key *k = &m->arch->weights[i];
        if (k->flags & WEIGHT_ROPE_PAIRED)
            m->pairs = is_gguf(m) ? ROPE_ADJACENT : ROPE_HALVES;
        if (k->per_layer)
            m->is_vector[k->place] = k->rows == DIM_ONE || k->cols == DIM_ONE || k->flags & WEIGHT_DEPTHWISE;
        for (uint32_t l = 0; l < (k->per_layer ? m->config.n_layers : 1); l++)
            if (model_has(m, k, l) && !model_bind_tensor(m, k, l, err))
                return false;
    }
    return true;
}

struct model_page model_page_bytes(const struct model *m, uint32_t l, enum kv_format k, enum kv_format v)
{
    const struct layer_config *c = &m->layer_configs[l];
    bool own = c->pages_of == l && c->state_words == 0 && !c->ffn_alone && !m->arch->is_encoder;
    uint64_t n_heads = own ? c->n_kv_heads : 0,
             v_bytes = m->config.latent_dims ? 0 : page_head_bytes(v, c->head_dim);

    return (struct model_page){ n_heads * page_head_bytes(k, c->head_dim), n_heads * v_bytes };
}

uint64_t model_state_words(const struct model *m, uint32_t first, uint32_t last)
{
    uint64_t n = 0;

    for (uint32_t l = first; l < last; l++)
        n += m->layer_configs[l].state_words;
    return n;
}

uint64_t model_pages_bytes(const struct model *m, uint32_t first, uint32_t last, enum kv_format k,
                           enum kv_format v)
{
    uint64_t bytes = 0;

    for (uint32_t l = first; l < last; l++)
        bytes += model_page_bytes(m, l, k, v).k + model_page_bytes(m, l, k, v).v;
    return bytes;
}

bool model_bind(struct model *m, const struct model_file *file, struct err *err)
{
    *m = (struct model){ .file = file };
    if (!find_arch(m, err))
        return false;
    model_names_choose(m);
    if (model_config_read(m, err) && embedder_read(m, err) && model_check_config(m, err) &&
        bind_tensors(m, err) && draft_layer_bind(m, err) && model_check_tensors(m, err) &&
        model_rope_make(m, err)) {
        trellis_settle_experts(m);
        return true;
    }
    model_release(m);
    return false;
}

void model_release(struct model *m)
{
    for (const struct joined_tensor *j = m->joined, *next; j; j = next) {
        next = j->next;
        mem_free((void *)(uintptr_t)j);
    }
    mem_free(m->own);
    mem_free(m->is_vector);
    mem_free(m->layers);
    mem_free(m->layer_configs);
    for (uint32_t i = 0; i < MODEL_ROPES; i++)
        mem_free(m->frequencies[i]);
    *m = (struct model){ 0 };
}

static void record_head(struct tape *t, const struct model_stage *s, struct tensor x)
{
    const struct model_config *c = &s->model->config;
    struct tensor last = tape_tensor(t, c->n_cols, ROWS_OUTPUT),
                  normed = tape_tensor(t, c->n_cols, ROWS_OUTPUT);
    bool is_part = s->model->n_ranks > 0, is_first = s->model->rank == 0;
    struct tensor logits =
        is_first ? tape_tensor_bound(t, c->n_vocab, ROWS_OUTPUT, s->logits) : (struct tensor){ 0 };
    struct tensor own =
        is_part ? tape_tensor_bound(t, s->weights.head->n_rows, ROWS_OUTPUT, s->head_part) : logits;

    tape_label(t, "head.select");
    op_select(t, (struct select){ .out = last, .in = x });
    tape_label(t, "head.norm");
    op_rmsnorm(t,
               (struct rmsnorm){
                   .out = normed, .in = last, .scale = s->weights.out_norm, .eps = s->model->factors.eps });
    tape_label(t, "head.logits");
    op_matmul(t, (struct matmul){ .out = own, .in = normed, .w = s->weights.head });
    if (is_part)
        tape_all_gather(t, own, logits);
    if (!is_first) {
        tape_label(t, "head.sample");
        tape_tell(t, NULL, s->history, s->history_stride);
        return;
    }
    if (s->model->factors.cap > 0)
        op_activate(t, (struct activate){ .out = logits,
                                          .gate = logits,
                                          .activation = ACTIVATION_CAP,
                                          .limit = s->model->factors.cap });
    tape_label(t, "head.sample");
    op_sample(t, (struct sample){ .logits = logits,
                                  .history = s->history,
                                  .history_stride = s->history_stride,
                                  .results = s->results,
                                  .mask_bias = s->mask_bias });
    if (is_part)
        tape_tell(t, s->results, s->history, s->history_stride);
}

struct tensor model_record_angles(struct tape *t, const struct model_stage *s, uint32_t table)
{
    struct tensor angles = { 0 };
    bool used = false;

    for (uint32_t l = s->first; l < s->last; l++)
        used |= stage_layer_config(s, l)->rope == table;
    if (!used || s->model->config.rope[table].n_dims == 0)
        return angles;
    angles = tape_tensor(t, s->model->config.rope[table].n_dims, ROWS_STEP);
    tape_label(t, table ? "angles%u" : "angles", table);
    op_angles(t, (struct angles){ .out = angles,
                                  .frequencies = s->weights.frequencies[table],
                                  .scale = s->model->angle_scale[table] });
    return angles;
}

// What an encoder adds to a token's row, and the norm of the sum.
static void record_encoder_rows(struct tape *t, const struct model_stage *s, struct tensor x)
{
    const struct model_weights *w = &s->weights;

    if (w->position_embed)
        op_embed(t, (struct embed){ .out = x, .table = w->position_embed, .by = EMBED_POSITION });
    if (w->type_embed)
        op_embed(t, (struct embed){ .out = x, .table = w->type_embed, .by = EMBED_FIRST });
    if (w->embed_norm)
        op_layernorm(t, (struct layernorm){ .out = x,
                                            .in = x,
                                            .scale = w->embed_norm,
                                            .bias = w->embed_norm_bias,
                                            .eps = s->model->factors.eps });
}

void model_record(struct tape *t, const struct model_stage *s)
{
    const struct model_config *c = &s->model->config;
    struct tensor x = tape_tensor_bound(t, c->n_cols, ROWS_STEP, s->block), angles[MODEL_ROPES];

    for (uint32_t i = 0; i < MODEL_ROPES; i++)
        angles[i] = model_record_angles(t, s, i);
    if (s->first == 0) {
        tape_label(t, "embed");
        op_embed(t, (struct embed){ .out = x,
                                    .table = s->weights.embed,
                                    .history = s->history,
                                    .history_stride = s->history_stride,
                                    .pool = s->pool,
                                    .scale = s->model->factors.embed });
        record_encoder_rows(t, s, x);
    }
    if (s->first == 0 && c->n_inputs) {
        tape_label(t, "inputs");
        s->model->arch->inputs(t, s, x);
    }
    for (uint32_t l = s->first; l < s->last; l++)
        s->model->arch->layer(t, s, l, x, angles[stage_layer_config(s, l)->rope]);
    if (s->last == c->n_layers && !s->model->arch->is_encoder)
        record_head(t, s, x);
}
