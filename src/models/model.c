// model.c - binds a file to an architecture, and records a stage; see model.h and arch.h.
#include "models/model.h"
#include <math.h>
#include <string.h>
#include "base/log.h"
#include "base/mem.h"
#include "models/arch.h"
#include "models/model_check.h"
#include "ops/angles/angles.h"
#include "ops/embed/embed.h"
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

static uint32_t model_dim(const struct model *m, uint32_t d)
{
    const struct model_config *c = &m->config;

    if (d >= DIM_OWN) {
        uint32_t own;
        memcpy(&own, (const char *)m->own + (d - DIM_OWN) * sizeof own, sizeof own);
        return own;
    }
    switch (d) {
    case DIM_COLS:
        return c->n_cols;
    case DIM_VOCAB:
        return c->n_vocab;
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
        return c->rope.n_dims / 2;
    default:
        return 1;
    }
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

static bool find_arch(struct model *m, struct err *err)
{
    bool gguf = is_gguf(m);
    const char *key = gguf ? "general.architecture" : "model_type";
    struct str name = { 0 };
    char known[256] = "";

    if (!model_file_string(m->file, key, &name, err))
        return false;
    if (name.n == 0)
        return err_set(err, ERR_INPUT, "%s: %s is missing; is this a language model?",
                       model_file_path(m->file), key);
    for (uint32_t i = 0; (m->arch = arch_at(i)); i++) {
        if (gguf ? str_is(name, m->arch->name) && has_size(m->file, m->arch->with)
                 : model_one_of(m->arch->model_types, name))
            return true;
        if (gguf && m->arch->with)
            continue;
        const char *names = gguf ? m->arch->name : m->arch->model_types;
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", *known ? " " : "", names);
    }
    return err_set(err, ERR_UNSUPPORTED, "%s: architecture \"%.*s\"; ingot knows: %s",
                   model_file_path(m->file), STR_ARG(name), known);
}

static double config_get(const struct model_config *c, size_t offset)
{
    uint32_t v;
    memcpy(&v, (const char *)c + offset, sizeof v);
    return v;
}

static void config_put(struct model *m, const struct config_key *k, double value)
{
    uint32_t u = (uint32_t)value;
    float f = (float)value;
    memcpy((k->is_own ? (char *)m->own : (char *)&m->config) + k->offset,
           k->is_float ? (void *)&f : (void *)&u, 4);
}

// The tensor's name in this kind of file. text: room for a name with another prefix.
static const char *format_of(const struct model *m, const struct weight_key *k, char text[128])
{
    if (is_gguf(m))
        return k->gguf;
    if (!k->json || !m->arch->json_prefix || strncmp(k->json, "model.", 6) != 0)
        return k->json;
    snprintf(text, 128, "%s%s", m->arch->json_prefix, k->json + 6);
    return text;
}

// The name with its one or two "%u" replaced by numbers.
static void tensor_name(const char *format, uint32_t l, uint32_t number, char name[128])
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

static const struct file_tensor *find_tensor(const struct model *m, const struct weight_key *k, uint32_t l,
                                             char name[128])
{
    char text[128];
    const char *format = format_of(m, k, text);

    name[0] = 0;
    if (!format)
        return NULL;
    tensor_name(format, l, 0, name);
    const struct file_tensor *t = model_file_tensor(m->file, name);
    if (t || is_gguf(m) || !(k->flags & WEIGHT_MXFP4))
        return t;
    char blocks[160];
    snprintf(blocks, sizeof blocks, "%s_blocks", name);
    return model_file_tensor(m->file, blocks);
}

static bool config_default(struct model *m, const struct config_key *k, const char *key, double *value,
                           struct err *err)
{
    char name[128];

    if (k->otherwise == CONFIG_DEFAULT)
        *value = k->value;
    else if (k->otherwise == CONFIG_SAME_AS)
        *value = config_get(&m->config, k->other);
    else if (k->otherwise == CONFIG_RATIO)
        *value = (double)((uint32_t)config_get(&m->config, k->other) /
                          (uint32_t)config_get(&m->config, k->divisor));
    else if (k->otherwise == CONFIG_FROM_EMBED) {
        // the tables begin with the embedding
        const struct file_tensor *embed = find_tensor(m, &m->arch->weights[0], 0, name);
        *value = embed && embed->dims[0] <= 1 << 24 ? (double)embed->dims[0] : 0;
    }
    if (k->otherwise == CONFIG_REQUIRED || (k->otherwise == CONFIG_FROM_EMBED && *value == 0))
        return err_set(err, ERR_INPUT, "%s: %s is missing; %s models need it", model_file_path(m->file), key,
                       m->arch->name);
    return true;
}

// A boolean key as a number. Absent: *u is unchanged.
static bool read_bool(const struct model *m, const char *key, uint64_t *u, struct err *err)
{
    bool b = false;

    if (!model_file_bool(m->file, key, &b, err))
        return false;
    *u = model_file_meta(m->file, key) ? b : *u;
    return true;
}

// The key's number. Absent: UINT64_MAX or NaN is left in place.
static bool config_read(struct model *m, const struct config_key *k, struct err *err)
{
    char key[128];
    const char *format = is_gguf(m) ? k->gguf : k->json;
    const char *rest = format && strncmp(format, "%s", 2) == 0 ? format + 2 : NULL;
    uint64_t u = UINT64_MAX;
    double f = -1, value;

    if (!format) {
        config_put(m, k, k->value);
        return true;
    }
    snprintf(key, sizeof key, "%s%s", rest ? m->arch->name : "", rest ? rest : format);
    if (!(k->is_bool    ? read_bool(m, key, &u, err)
          : k->is_float ? model_file_f64(m->file, key, k->min, k->max, &f, err)
                        : model_file_u64(m->file, key, (uint64_t)k->min, (uint64_t)k->max, &u, err)))
        return false;
    bool absent = k->is_float ? f < 0 : u == UINT64_MAX;
    value = k->is_float ? f : (double)u;
    if (absent && !config_default(m, k, key, &value, err))
        return false;
    if (value < k->min || value > k->max)
        return err_set(err, ERR_INPUT, "%s: %s would be %g; want %g to %g", model_file_path(m->file), key,
                       value, k->min, k->max);
    config_put(m, k, value);
    return true;
}

static bool config_check(const struct model *m, struct err *err)
{
    const struct model_config *c = &m->config;
    const char *path = model_file_path(m->file);

    if (c->n_heads % c->n_kv_heads != 0)
        return err_set(err, ERR_INPUT, "%s: %u heads are no multiple of %u KV heads", path, c->n_heads,
                       c->n_kv_heads);
    if (c->head_dim % 2 != 0 || c->rope.n_dims % 2 != 0 || c->rope.n_dims > c->head_dim)
        return err_set(err, ERR_INPUT,
                       "%s: heads of %u dimensions, %u of them rotated; want even numbers, at most all", path,
                       c->head_dim, c->rope.n_dims);
    if ((uint64_t)c->n_heads * c->head_dim > 1 << 20)
        return err_set(err, ERR_INPUT, "%s: %u heads of %u dimensions; want at most %u in all", path,
                       c->n_heads, c->head_dim, 1u << 20);
    return true;
}

// GGUF's number of layers includes draft layers.
static bool drop_draft_layers(struct model *m, struct err *err)
{
    struct model_config *c = &m->config;

    if (!is_gguf(m) || c->n_draft == 0)
        return true;
    if (c->n_draft >= c->n_layers)
        return err_set(err, ERR_INPUT, "%s: %u draft layers of %u layers in all; want fewer",
                       model_file_path(m->file), c->n_draft, c->n_layers);
    c->n_layers -= c->n_draft;
    return true;
}

static bool config_read_all(struct model *m, struct err *err)
{
    char key[128];
    uint64_t n_dims;

    if (m->arch->own_config_bytes && !(m->own = mem_alloc(m->arch->own_config_bytes)))
        return err_memory(err, "the model's sizes");
    for (uint32_t i = 0; i < m->arch->n_config; i++)
        if (!config_read(m, &m->arch->config[i], err))
            return false;
    if (!drop_draft_layers(m, err) || (m->arch->complete && !m->arch->complete(m, err)))
        return false;
    n_dims = m->config.rope.n_dims ? m->config.rope.n_dims : m->config.head_dim;
    snprintf(key, sizeof key, "%s.rope.dimension_count", m->arch->name);
    if (!model_file_u64(m->file, key, 2, 1024, &n_dims, err))
        return false;
    m->config.rope.n_dims = (uint32_t)n_dims;
    m->config.rope.original_context = m->config.n_context;
    if (!rope_config_read(&m->config.rope, m->file, m->arch->name, err) || !config_check(m, err) ||
        (m->arch->check && !m->arch->check(m, err)))
        return false;
    m->factors = (struct model_factors){ 1, 1 / sqrtf((float)m->config.head_dim), 1, m->config.norm_eps };
    if (m->arch->factors)
        m->arch->factors(m);
    return true;
}

static bool format_check(const struct model *m, const struct file_tensor *t, struct err *err)
{
    return t->format < N_WEIGHT_QUANTS ||
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
    uint64_t n = model_dim(m, k->stack), rows = (uint64_t)halves * model_dim(m, k->rows);
    uint64_t cols = model_dim(m, k->cols), want[] = { n, rows, cols };

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
    uint64_t rows = model_dim(m, k->rows), cols = model_dim(m, k->cols);
    uint64_t found_rows = t->n_dims == 1 ? 1 : t->dims[0],
             found_cols = t->n_dims == 1 ? t->dims[0] : t->dims[1];

    if (k->stack)
        return stack_check(m, k, t, 1, err);
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
                   model_dim(m, k->rows), model_dim(m, k->cols));
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

static struct joined_tensor *joined_create(struct model *m, uint32_t n_parts)
{
    struct joined_tensor *j = mem_alloc(sizeof *j + n_parts * sizeof *j->parts);

    if (!j)
        return NULL;
    j->next = m->joined;
    m->joined = j;
    j->parts = (const struct file_tensor **)(j + 1);
    j->n_halves = 1;
    return j;
}

static bool joined_describe(const struct model *m, const struct weight_key *k, struct joined_tensor *j,
                            struct err *err)
{
    bool decoded = k->slice && j->transposed && quant_info(j->parts[0]->format)->block_elements > 1;
    enum quant format = j->scales ? QUANT_MXFP4 : decoded ? QUANT_F32 : j->parts[0]->format;
    const struct quant_info *info = quant_info(format);
    uint64_t n = model_dim(m, k->stack);

    j->rows = model_dim(m, k->rows);
    j->cols = model_dim(m, k->cols);
    if (j->cols % info->block_elements != 0 || (j->transposed && info->block_elements > 1))
        return err_set(err, ERR_INPUT, "%s: tensor %.*s has rows of %u, no whole blocks of %s",
                       model_file_path(m->file), STR_ARG(j->parts[0]->name), j->cols, info->name);
    j->tensor = (struct file_tensor){ .name = j->parts[0]->name,
                                      .format = format,
                                      .n_dims = j->cols == 1 ? 2 : 3,
                                      .dims = { n, j->rows, j->cols, 1 } };
    CHECK(quant_bytes(format, n * j->rows * j->cols, &j->tensor.bytes)); // the parts have as many numbers
    return true;
}

// Makes one tensor out of the matrices of the stack.
static bool join_tensors(struct model *m, const struct weight_key *k, uint32_t l,
                         const struct file_tensor **t, struct err *err)
{
    uint32_t n = model_dim(m, k->stack);
    struct joined_tensor *j = joined_create(m, n);
    char name[128], text[128];
    const char *format = format_of(m, k, text);

    if (!j)
        return err_memory(err, "the model's matrices");
    for (; j->n_parts < n; j->n_parts++) {
        tensor_name(format, l, j->n_parts, name);
        const struct file_tensor *part = model_file_tensor(m->file, name);
        if (!part)
            return missing(m, k, name, err);
        j->parts[j->n_parts] = part;
        if (!part_check(m, k, part, j, err))
            return false;
    }
    *t = &j->tensor;
    return joined_describe(m, k, j, err);
}

// MXFP4 as bytes: t has the numbers, 16 bytes for 32 of them; another tensor the scales.
static bool find_scales(const struct model *m, const struct weight_key *k, const struct file_tensor *t,
                        struct joined_tensor *j, struct err *err)
{
    uint64_t n = model_dim(m, k->stack), rows = (uint64_t)j->n_halves * model_dim(m, k->rows);
    uint64_t cols = model_dim(m, k->cols), want[] = { n, rows, cols / 32, 16 };
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

static bool slice_check(const struct model *m, const struct weight_key *k, const struct file_tensor *t,
                        struct err *err)
{
    uint64_t want[] = { (uint64_t)model_dim(m, k->stack) * model_dim(m, k->slice->all),
                        model_dim(m, k->slice->transposed ? k->rows : k->cols) };
    const struct quant_info *info = quant_info(t->format);

    if (!dims_check(m, t, want, 2, err) || !format_check(m, t, err))
        return false;
    return (want[1] <= MODEL_TURNED_ROWS && want[1] % info->block_elements == 0) ||
           err_set(err, ERR_INPUT, "%s: tensor %.*s has rows of %llu; want at most %u, in whole blocks of %s",
                   model_file_path(m->file), STR_ARG(t->name), (unsigned long long)want[1], MODEL_TURNED_ROWS,
                   info->name);
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
    j->slice_rows = model_dim(m, slice->all);
    j->slice_first = slice->last ? j->slice_rows - model_dim(m, k->rows) : 0;
    *t = &j->tensor;
    return joined_describe(m, k, j, err);
}

// Whether each matrix of the stack is a tensor of its own.
static bool lies_apart(const struct model *m, const struct weight_key *k)
{
    char text[128];
    const char *format = k->stack ? format_of(m, k, text) : NULL,
               *mark = format ? strstr(format, "%u") : NULL;
    return mark && strstr(mark + 2, "%u");
}

// The whole matrix, or the parts that the file has instead.
static bool bring_together(struct model *m, const struct weight_key *k, uint32_t l,
                           const struct file_tensor **t, struct err *err)
{
    if (k->slice && (!is_gguf(m) || !*t)) {
        struct weight_key other = *k;
        char name[128], other_name[128];
        other.gguf = k->slice->gguf;
        const struct file_tensor *whole = find_tensor(m, &other, l, other_name);
        if (!whole) {
            find_tensor(m, k, l, name);
            return missing(m, k, name, err);
        }
        *t = whole;
        return join_slices(m, k, t, err);
    }
    if (lies_apart(m, k))
        return join_tensors(m, k, l, t, err);
    return !is_gguf(m) && (k->half || k->flags & WEIGHT_TRANSPOSED || is_packed(k, *t))
               ? join_part(m, k, t, err)
               : shape_check(m, k, *t, err);
}

static void count_weights(struct model *m, const struct weight_key *k, const struct file_tensor *t)
{
    uint64_t n = (uint64_t)model_dim(m, k->rows) * model_dim(m, k->cols),
             stack = k->stack ? model_dim(m, k->stack) : 1;

    m->n_parameters += n * stack;
    m->weight_bytes += t->bytes;
    if (!k->used)
        return;
    m->n_experts = (uint32_t)stack;
    m->n_used_experts = model_dim(m, k->used);
    m->n_idle += n * (stack - m->n_used_experts);
    m->idle_bytes += t->bytes / stack * (stack - m->n_used_experts);
}

static bool bind_tensor(struct model *m, const struct weight_key *k, uint32_t l, struct err *err)
{
    char name[128];
    const struct file_tensor *t = find_tensor(m, k, l, name);
    const struct file_tensor **place = k->per_layer ? &model_layer(m, l)[k->place] : &m->tensors[k->place];

    if (!t && (k->flags & WEIGHT_TIED)) {
        m->tied = true;
        *place = m->tensors[offsetof(struct model_weights, embed) / sizeof(void *)];
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
    bool dense = l < m->config.n_dense;

    return model_dim(m, k->when) != 0 && (k->layers == LAYERS_ALL || dense == (k->layers == LAYERS_DENSE));
}

static bool bind_tensors(struct model *m, struct err *err)
{
    m->n_places = N_LAYER_WEIGHTS + m->arch->n_own_weights;
    m->layers = mem_alloc_array((size_t)m->config.n_layers * m->n_places, sizeof *m->layers);
    m->is_vector = mem_alloc_array(m->n_places, sizeof *m->is_vector);
    if (!m->layers || !m->is_vector)
        return err_memory(err, "the model's layers");
    for (uint32_t i = 0; i < m->arch->n_weights; i++) {
        const struct weight_key *k = &m->arch->weights[i];
        if (k->flags & WEIGHT_ROPE_PAIRED)
            m->pairs = is_gguf(m) ? ROPE_ADJACENT : ROPE_HALVES;
        if (k->per_layer)
            m->is_vector[k->place] = k->rows == DIM_ONE || k->cols == DIM_ONE;
        for (uint32_t l = 0; l < (k->per_layer ? m->config.n_layers : 1); l++)
            if (model_has(m, k, l) && !bind_tensor(m, k, l, err))
                return false;
    }
    return true;
}

struct model_page model_page_bytes(const struct model_config *c, enum kv_format k, enum kv_format v)
{
    uint64_t v_bytes = c->latent_dims ? 0 : page_head_bytes(v, c->head_dim);

    return (struct model_page){ (uint64_t)c->n_kv_heads * page_head_bytes(k, c->head_dim),
                                c->n_kv_heads * v_bytes };
}

static bool make_frequencies(struct model *m, struct err *err)
{
    const struct file_tensor *divisors =
        m->tensors[offsetof(struct model_weights, rope_divisors) / sizeof(void *)];
    uint32_t n = m->config.rope.n_dims / 2;
    float *d = divisors ? mem_alloc_array(n, sizeof *d) : NULL;

    m->frequencies = mem_alloc_array(n, sizeof *m->frequencies);
    if (!m->frequencies || (divisors && !d)) {
        mem_free(d);
        return err_memory(err, "rotation frequencies");
    }
    if (d)
        quant_info(divisors->format)->decode(divisors->data, d, n);
    rope_frequencies(&m->config.rope, d, m->frequencies, &m->angle_scale);
    mem_free(d);
    return true;
}

bool model_bind(struct model *m, const struct model_file *file, struct err *err)
{
    *m = (struct model){ .file = file };
    if (find_arch(m, err) && config_read_all(m, err) && model_check_config(m, err) && bind_tensors(m, err) &&
        model_check_tensors(m, err) && make_frequencies(m, err))
        return true;
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
    mem_free(m->frequencies);
    *m = (struct model){ 0 };
}

static void record_head(struct tape *t, const struct model_stage *s, struct tensor x)
{
    const struct model_config *c = &s->model->config;
    struct tensor last = tape_tensor(t, c->n_cols, ROWS_OUTPUT),
                  normed = tape_tensor(t, c->n_cols, ROWS_OUTPUT);
    struct tensor logits = tape_tensor_bound(t, c->n_vocab, ROWS_OUTPUT, s->logits);

    tape_label(t, "head.select");
    op_select(t, (struct select){ .out = last, .in = x });
    tape_label(t, "head.norm");
    op_rmsnorm(t,
               (struct rmsnorm){
                   .out = normed, .in = last, .scale = s->weights.out_norm, .eps = s->model->factors.eps });
    tape_label(t, "head.logits");
    op_matmul(t, (struct matmul){ .out = logits, .in = normed, .w = s->weights.head });
    tape_label(t, "head.sample");
    op_sample(t, (struct sample){ .logits = logits,
                                  .history = s->history,
                                  .history_stride = s->history_stride,
                                  .results = s->results,
                                  .mask_bias = s->mask_bias });
}

void model_record(struct tape *t, const struct model_stage *s)
{
    const struct model_config *c = &s->model->config;
    struct tensor x = tape_tensor_bound(t, c->n_cols, ROWS_STEP, s->block);
    struct tensor angles = tape_tensor(t, c->rope.n_dims, ROWS_STEP);

    tape_label(t, "angles");
    op_angles(t, (struct angles){
                     .out = angles, .frequencies = s->weights.frequencies, .scale = s->model->angle_scale });
    if (s->first == 0) {
        tape_label(t, "embed");
        op_embed(t, (struct embed){ .out = x,
                                    .table = s->weights.embed,
                                    .history = s->history,
                                    .history_stride = s->history_stride,
                                    .pool = s->pool,
                                    .scale = s->model->factors.embed });
    }
    for (uint32_t l = s->first; l < s->last; l++)
        s->model->arch->layer(t, s, l, x, angles);
    if (s->last == c->n_layers)
        record_head(t, s, x);
}
