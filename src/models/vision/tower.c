// tower.c - binds a file to a kind of vision tower; see tower.h.
#include "models/vision/tower.h"
#include <string.h>
#include "base/mem.h"
#include "models/arch.h"

#define TOWER(name) extern const struct tower_arch tower_##name;
#include "models/vision/towers.def"
#undef TOWER

static const struct tower_arch *const towers[] = {
#define TOWER(name) &tower_##name,
#include "models/vision/towers.def"
#undef TOWER
};
enum { N_TOWERS = sizeof towers / sizeof *towers };

static bool is_gguf(const struct tower *t)
{
    return model_file_format(t->file) == MODEL_GGUF;
}

uint32_t tower_patches(const struct tower *t)
{
    return t->config.side * t->config.side;
}

uint32_t tower_tile_rows(const struct tower *t)
{
    return tower_patches(t) + t->config.n_class;
}

uint32_t tower_rows(const struct tower *t)
{
    return tower_patches(t) / (t->config.scale * t->config.scale);
}

static bool of_kind(const struct tower_arch *a, struct str projector, struct str model_type)
{
    return str_is(projector, a->projector) || model_one_of(a->model_types, model_type);
}

static const struct tower_arch *find_kind(const struct model_file *file, struct str *projector)
{
    bool gguf = model_file_format(file) == MODEL_GGUF;
    struct str model_type = { 0 };

    if (!model_file_string(file, gguf ? "clip.projector_type" : "model_type", gguf ? projector : &model_type,
                           NULL))
        return NULL;
    for (uint32_t i = 0; i < N_TOWERS; i++)
        if (of_kind(towers[i], *projector, model_type))
            return towers[i];
    return NULL;
}

bool tower_is_in(const struct model_file *file)
{
    struct str projector = { 0 };

    return find_kind(file, &projector) || projector.n > 0;
}

static bool find_arch(struct tower *t, struct err *err)
{
    struct str projector = { 0 };

    t->arch = find_kind(t->file, &projector);
    if (t->arch)
        return true;
    if (projector.n == 0)
        return err_set(err, ERR_INPUT,
                       "%s: clip.projector_type is missing; is this a file of a vision tower (mmproj)?",
                       model_file_path(t->file));
    return err_set(err, ERR_UNSUPPORTED, "%s: clip.projector_type \"%.*s\"; ingot knows: %s, %s",
                   model_file_path(t->file), STR_ARG(projector), towers[0]->projector, towers[1]->projector);
}

static uint32_t dim_of(const struct tower *t, enum tower_dim d)
{
    const struct tower_config *c = &t->config;

    switch (d) {
    case TOWER_COLS:
        return c->n_cols;
    case TOWER_FFN:
        return c->n_ffn;
    case TOWER_PATCH:
        return 3 * c->patch * c->patch;
    case TOWER_PLACES:
        return c->side * c->side;
    case TOWER_TILE_ROWS:
        return c->side * c->side + c->n_class;
    case TOWER_SQUARE:
        return c->n_cols * c->scale * c->scale;
    case TOWER_OUT:
        return c->n_out;
    default:
        return 1;
    }
}

// Bounds that keep every product of sizes within 32 bits.
static bool check_sizes(const struct tower *t, struct err *err)
{
    const struct tower_config *c = &t->config;
    const char *path = model_file_path(t->file);

    if (c->n_cols % c->n_heads != 0 || c->n_cols / c->n_heads > 1024)
        return err_set(err, ERR_INPUT,
                       "%s: a tower of %u columns with %u heads; want a multiple, at most 1024 a head", path,
                       c->n_cols, c->n_heads);
    if (c->side == 0 || c->side % c->scale != 0 || c->side > 256)
        return err_set(
            err, ERR_INPUT,
            "%s: tiles of %u patches a side, shuffled in squares of %u; want a multiple, at most 256", path,
            c->side, c->scale);
    if ((uint64_t)c->n_cols * c->scale * c->scale > 1 << 20)
        return err_set(err, ERR_INPUT,
                       "%s: squares of %u patches of %u columns; want at most %u columns together", path,
                       c->scale * c->scale, c->n_cols, 1u << 20);
    return true;
}

static bool is_shape(const struct file_tensor *f, uint64_t rows, uint64_t cols)
{
    if (f->n_dims == 3 && f->dims[0] == 1) // a parameter of a batch of one
        return f->dims[1] == rows && f->dims[2] == cols;
    return (f->n_dims == 1 ? 1 : f->dims[0]) == rows &&
           (f->n_dims == 1 ? f->dims[0] : f->dims[1] * f->dims[2] * f->dims[3]) == cols;
}

static bool check_shape(const struct tower *t, const struct tower_key *k, const struct file_tensor *f,
                        struct err *err)
{
    uint32_t rows = dim_of(t, k->rows), cols = dim_of(t, k->cols);

    if (!is_shape(f, rows, cols))
        return err_set(
            err, ERR_INPUT,
            "%s: tensor %.*s is [%llu, %llu, %llu, %llu] with %u dimensions; this tower needs [%u, %u]",
            model_file_path(t->file), STR_ARG(f->name), (unsigned long long)f->dims[0],
            (unsigned long long)f->dims[1], (unsigned long long)f->dims[2], (unsigned long long)f->dims[3],
            f->n_dims, rows, cols);
    if (f->format >= N_WEIGHT_QUANTS || cols % quant_info(f->format)->block_elements != 0)
        return err_set(err, ERR_INPUT,
                       "%s: tensor %.*s holds %s in rows of %u; weights must be floats or whole blocks",
                       model_file_path(t->file), STR_ARG(f->name), quant_info(f->format)->name, cols);
    return true;
}

// Early converters swapped the names of ffn_up and ffn_down.
static const char *name_of(const struct tower *t, const struct tower_key *k, char text[128])
{
    const char *format = is_gguf(t) ? k->gguf : k->json;
    const char *up = t->swapped ? strstr(format, "ffn_up") : NULL,
               *down = t->swapped ? strstr(format, "ffn_down") : NULL;

    if (up || down)
        snprintf(text, 128, "%.*s%s%s", (int)((up ? up : down) - format), format, up ? "ffn_down" : "ffn_up",
                 up ? up + strlen("ffn_up") : down + strlen("ffn_down"));
    else
        snprintf(text, 128, "%s", format);
    return text;
}

static const struct file_tensor *find_tensor(const struct tower *t, const struct tower_key *k, uint32_t l,
                                             char name[128])
{
    char text[128];
    const char *format = name_of(t, k, text), *mark = strstr(format, "%u");

    if (mark)
        snprintf(name, 128, "%.*s%u%s", (int)(mark - format), format, l, mark + 2);
    else
        snprintf(name, 128, "%s", format);
    return model_file_tensor(t->file, name);
}

static bool bind_tensor(struct tower *t, const struct tower_key *k, uint32_t l, struct err *err)
{
    char name[128];
    const struct file_tensor *f = find_tensor(t, k, l, name);
    uint32_t rows = dim_of(t, k->rows), cols = dim_of(t, k->cols);

    if (!f)
        return err_set(err, ERR_INPUT, "%s: tensor %s is missing; want [%u, %u]", model_file_path(t->file),
                       name, rows, cols);
    if (!check_shape(t, k, f, err))
        return false;
    *(k->per_layer ? &t->layers[(size_t)l * N_TOWER_LAYER_WEIGHTS + k->place] : &t->tensors[k->place]) = f;
    t->n_parameters += (uint64_t)rows * cols;
    t->weight_bytes += f->bytes;
    return true;
}

static bool is_swapped(const struct tower *t)
{
    const struct file_tensor *up = is_gguf(t) ? model_file_tensor(t->file, "v.blk.0.ffn_up.weight") : NULL;

    return up && t->config.n_cols != t->config.n_ffn && is_shape(up, t->config.n_cols, t->config.n_ffn);
}

static bool bind_tensors(struct tower *t, struct err *err)
{
    t->layers = mem_alloc_array((size_t)t->config.n_layers * N_TOWER_LAYER_WEIGHTS, sizeof *t->layers);
    if (!t->layers)
        return err_memory(err, "the tower's layers");
    t->swapped = is_swapped(t);
    for (uint32_t i = 0; i < t->arch->n_weights; i++)
        for (uint32_t l = 0; l < (t->arch->weights[i].per_layer ? t->config.n_layers : 1); l++)
            if (!bind_tensor(t, &t->arch->weights[i], l, err))
                return false;
    return true;
}

// Refuses a tensor of the tower that the table does not name: its part of the sum would be missing.
static bool in_tower(const struct tower *t, struct str name)
{
    struct str rest = str_from(t->arch->json_prefixes);

    while (!is_gguf(t) && rest.n > 0) {
        size_t blank = str_find(rest, STR(" ")), n = blank == SIZE_MAX ? rest.n : blank;
        if (str_starts(name, str_from_to(rest, 0, n)))
            return true;
        rest = str_from_to(rest, n + (n < rest.n), rest.n);
    }
    return is_gguf(t);
}

static bool check_unused(const struct tower *t, struct err *err)
{
    size_t n_bound = 0, n_there = 0;
    const struct file_tensor *first = model_file_n_tensors(t->file) ? model_file_tensor_at(t->file, 0) : NULL;
    bool *used = mem_alloc_array(model_file_n_tensors(t->file) + 1, sizeof *used);

    if (!used)
        return err_memory(err, "the list of used tensors");
    for (uint32_t i = 0; i < N_TOWER_WEIGHTS; i++)
        if (t->tensors[i])
            used[t->tensors[i] - first] = true;
    for (size_t i = 0; i < (size_t)t->config.n_layers * N_TOWER_LAYER_WEIGHTS; i++)
        if (t->layers[i])
            used[t->layers[i] - first] = true;
    const struct file_tensor *extra = NULL;
    for (size_t i = 0; i < model_file_n_tensors(t->file); i++) {
        const struct file_tensor *f = model_file_tensor_at(t->file, i);
        n_bound += used[i];
        n_there += in_tower(t, f->name);
        extra = in_tower(t, f->name) && !used[i] ? f : extra;
    }
    mem_free(used);
    return !extra || err_set(err, ERR_UNSUPPORTED,
                             "%s: ingot does not use %zu of the tower's %zu tensors, such as %.*s",
                             model_file_path(t->file), n_there - n_bound, n_there, STR_ARG(extra->name));
}

bool tower_bind(struct tower *t, const struct model_file *file, uint32_t n_out, struct err *err)
{
    *t = (struct tower){ .file = file };
    t->config.n_out = n_out;
    if (find_arch(t, err) && t->arch->read(t, err) && check_sizes(t, err) && bind_tensors(t, err) &&
        check_unused(t, err))
        return true;
    tower_release(t);
    return false;
}

void tower_release(struct tower *t)
{
    mem_free(t->layers);
    *t = (struct tower){ 0 };
}

static void decode(const struct file_tensor *f, float *numbers, uint64_t n)
{
    quant_info(f->format)->decode(f->data, numbers, n);
}

bool tower_positions(const struct tower *t, float *table, struct err *err)
{
    uint32_t n_cols = t->config.n_cols, n_rows = tower_tile_rows(t);
    const struct file_tensor *const *globals = t->tensors;
#define GLOBAL(field) globals[offsetof(struct tower_weights, field) / sizeof(void *)]
    float *bias = mem_alloc_array(2 * (size_t)n_cols, sizeof *bias), *token = bias + n_cols;
    float *positions = mem_alloc_array((size_t)n_rows * n_cols, sizeof *positions);
    bool ok = (bias && positions) || err_memory(err, "a tower's positions");

    if (ok) {
        decode(GLOBAL(patch_bias), bias, n_cols);
        decode(GLOBAL(class_token), token, n_cols);
        decode(GLOBAL(position), positions, (uint64_t)n_rows * n_cols);
    }
    for (size_t i = 0; ok && i < (size_t)n_rows * n_cols; i++) {
        bool is_class = i / n_cols == n_rows - 1;
        table[i] = positions[is_class ? i % n_cols : i + n_cols] + (is_class ? token : bias)[i % n_cols];
    }
#undef GLOBAL
    mem_free(bias);
    mem_free(positions);
    return ok;
}

struct tower_parts tower_record(struct tape *tape, const struct tower_stage *s)
{
    return s->tower->arch->record(tape, s);
}
