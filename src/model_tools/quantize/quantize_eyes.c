// quantize_eyes.c - see quantize_eyes.h. Towers are small: one thread, a row at a time.
#include "model_tools/quantize/quantize_eyes.h"
#include <strings.h>
#include "base/mem.h"
#include "engine/mmproj.h"
#include "model_tools/quantize/quantize_encode.h"

struct eyes_job {
    struct quantize_eyes *q;
    const struct tower *t;
    struct gguf_writer w;
    enum quant type;
    float *row;
    unsigned char *blocks;
    uint64_t row_elements; // that both have room for
};

static enum quant type_of(const char *name)
{
    static const enum quant plain[] = { QUANT_F32, QUANT_F16, QUANT_BF16 };

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (!strcasecmp(name, quant_info(plain[i])->name))
            return plain[i];
    return QUANT_Q8_0;
}

// ---- keys

void quantize_eyes_keys(struct gguf_writer *w, const char *projector, const struct tower_config *c)
{
    const struct image_processor *p = &c->processor;

    gguf_write_str(w, "general.architecture", STR("clip"));
    gguf_write_str(w, "general.type", STR("mmproj"));
    gguf_write_bool(w, "clip.has_vision_encoder", true);
    gguf_write_str(w, "clip.projector_type", str_from(projector));
    gguf_write_bool(w, "clip.use_gelu", true);
    gguf_write_u32(w, "clip.vision.image_size", p->tile);
    gguf_write_u32(w, "clip.vision.patch_size", c->patch);
    gguf_write_u32(w, "clip.vision.embedding_length", c->n_cols);
    gguf_write_u32(w, "clip.vision.feed_forward_length", c->n_ffn);
    gguf_write_u32(w, "clip.vision.block_count", c->n_layers);
    gguf_write_u32(w, "clip.vision.projection_dim", c->n_out);
    gguf_write_u32(w, "clip.vision.attention.head_count", c->n_heads);
    gguf_write_f32(w, "clip.vision.attention.layer_norm_epsilon", c->norm_eps);
    gguf_write_u32(w, "clip.vision.projector.scale_factor", c->scale);
    gguf_write_f32s(w, "clip.vision.image_mean", p->mean, 3);
    gguf_write_f32s(w, "clip.vision.image_std", p->std, 3);
    if (p->tiling == IMAGE_BY_EDGE) {
        gguf_write_u32(w, "clip.vision.preproc_image_size", p->longest_edge);
    } else {
        gguf_write_u32(w, "clip.vision.preproc_min_tiles", p->min_tiles);
        gguf_write_u32(w, "clip.vision.preproc_max_tiles", p->max_tiles);
    }
}

// ---- tensors

struct eyes_tensor {
    const struct file_tensor *from;
    char name[128];
    uint64_t dims[4], n_rows, n_cols;
    uint32_t n_dims;
    enum quant format;
};

static struct eyes_tensor tensor_of(const struct eyes_job *j, const struct tower_key *k, uint32_t l)
{
    const struct tower *t = j->t;
    const char *mark = strstr(k->gguf, "%u");
    struct eyes_tensor e = { .from = k->per_layer ? t->layers[(size_t)l * N_TOWER_LAYER_WEIGHTS + k->place]
                                                  : t->tensors[k->place] };
    uint32_t first = 0;

    if (mark)
        snprintf(e.name, sizeof e.name, "%.*s%u%s", (int)(mark - k->gguf), k->gguf, l, mark + 2);
    else
        snprintf(e.name, sizeof e.name, "%s", k->gguf);
    while (e.from->n_dims - first > 1 && e.from->dims[first] == 1) // parameters of a batch of one
        first++;
    for (; first < e.from->n_dims; first++)
        e.dims[e.n_dims++] = e.from->dims[first];
    e.n_rows = e.n_dims > 1 ? e.dims[0] : 1;
    e.n_cols = e.n_dims > 1 ? 1 : e.dims[0];
    for (uint32_t i = 1; i < e.n_dims; i++)
        e.n_cols *= e.dims[i];
    bool product = e.n_dims == 2 && !strstr(e.name, "position_embd");
    bool whole = e.n_cols % quant_info(j->type)->block_elements == 0;
    e.format = !product ? QUANT_F32 : whole ? j->type : QUANT_F16;
    return e;
}

static bool make_room(struct eyes_job *j, uint64_t n)
{
    if (n <= j->row_elements)
        return true;
    mem_free(j->row);
    mem_free(j->blocks);
    j->row = mem_alloc_array(n, sizeof *j->row);
    j->blocks = mem_alloc_array(n, sizeof(float));
    j->row_elements = n;
    return j->row && j->blocks;
}

static bool write_tensor(struct eyes_job *j, const struct eyes_tensor *e, struct err *err)
{
    const struct quant_info *from = quant_info(e->from->format), *to = quant_info(e->format);
    uint64_t from_bytes = e->n_cols / from->block_elements * from->block_bytes,
             to_bytes = e->n_cols / to->block_elements * to->block_bytes;
    size_t bad;

    if (!make_room(j, e->n_cols))
        return err_memory(err, "a row of the tower");
    for (uint64_t r = 0; r < e->n_rows; r++) {
        from->decode(e->from->data + r * from_bytes, j->row, e->n_cols);
        struct quantize_source source = { j->row, NULL, e->n_cols };
        if (!quantize_encode(e->format, &source, j->blocks, &bad))
            return err_set(err, ERR_INPUT, "tensor %s: element %llu cannot be stored as %s", e->name,
                           (unsigned long long)(r * e->n_cols + bad), to->name);
        gguf_write_data(&j->w, j->blocks, to_bytes);
    }
    j->q->bytes += e->n_rows * to_bytes;
    return true;
}

// Describes every tensor, or writes it.
static bool put_tensors(struct eyes_job *j, bool writes, struct err *err)
{
    const struct tower_arch *a = j->t->arch;
    bool ok = true;

    for (uint32_t i = 0; i < a->n_weights; i++)
        for (uint32_t l = 0; ok && l < (a->weights[i].per_layer ? j->t->config.n_layers : 1); l++) {
            struct eyes_tensor e = tensor_of(j, &a->weights[i], l);
            if (writes)
                ok = write_tensor(j, &e, err);
            else
                gguf_write_tensor(&j->w, str_from(e.name), e.format, e.dims, e.n_dims);
        }
    return ok;
}

static bool write_file(struct eyes_job *j, struct err *err)
{
    if (!gguf_write_create(&j->w, j->q->path, err))
        return false;
    quantize_eyes_keys(&j->w, j->t->arch->projector, &j->t->config);
    put_tensors(j, false, err);
    gguf_write_begin(&j->w);
    return put_tensors(j, true, err) && gguf_write_commit(&j->w, err);
}

bool quantize_eyes_write(struct quantize_eyes *q, const struct tower *t, struct err *err)
{
    struct eyes_job j = { .q = q, .t = t, .type = type_of(q->type) };
    const char *slash = strrchr(q->output, '/'), *name = slash ? slash + 1 : q->output;

    q->path[0] = 0;
    q->bytes = 0;
    if (mmproj_is_beside(q->output))
        return true;
    if (snprintf(q->path, sizeof q->path, "%.*smmproj-%s", (int)(name - q->output), q->output, name) >=
        (int)sizeof q->path)
        return err_set(err, ERR_INPUT, "the output's path is longer than %zu bytes", sizeof q->path - 1);
    bool ok = write_file(&j, err);
    gguf_write_abort(&j.w);
    mem_free(j.row);
    mem_free(j.blocks);
    return ok;
}
