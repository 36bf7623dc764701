// model_part.c - see model_part.h.
//
// What is cut, and how, follows from the sizes that an architecture's table of weights names: a side of
// DIM_FFN is cut as the hidden numbers are, whatever the weight. Rows stay where they lie in the file.
#include "models/split/model_part.h"
#include <stddef.h>
#include <string.h>
#include "base/err.h"
#include "base/mem.h"
#include "models/binding/joined.h"
#include "models/latent_attention.h"
#include "models/mixture.h"

enum cut_side {
    SIDE_WHOLE,
    SIDE_KV,
    SIDE_Q,
    SIDE_HEADS,
    SIDE_FFN,
    SIDE_EXPERT,
    SIDE_SHARED,
    SIDE_VOCAB,
    SIDE_LATENT_Q, // of latent attention's heads: queries, values, and a matrix for each
    SIDE_LATENT_OUT,
    SIDE_LATENT_HEADS
};
enum { EVEN = 32 }; // rows that kernels take together: sides are cut there if that leaves every rank some

struct cutting {
    struct model *part;
    const struct model *whole;
    uint32_t rank, n_ranks;
    uint32_t expert_block, shared_block; // of all layers' down matrices
};

struct cut_piece { // numbers [first, first + n) of a side
    uint32_t first, n, all;
};

#define PLACE(field) (offsetof(struct layer_weights, field) / sizeof(void *))

static bool is_of_mixture(const struct model *m, const struct weight_key *k)
{
    return m->n_experts > 0 && k->layers == LAYERS_MIXTURE && k->place >= N_LAYER_WEIGHTS;
}

static bool is_latent(const struct model *m)
{
    return m->config.latent_dims > 0;
}

static enum cut_side latent_side_of(uint32_t dim)
{
    return dim == LATENT_DIM(n_q)       ? SIDE_LATENT_Q
           : dim == LATENT_DIM(n_out)   ? SIDE_LATENT_OUT
           : dim == LATENT_DIM(n_heads) ? SIDE_LATENT_HEADS
                                        : SIDE_WHOLE;
}

static enum cut_side side_of(const struct model *m, const struct weight_key *k, uint32_t dim)
{
    if (!k->per_layer)
        return k->place == MODEL_PLACE(head) && dim == DIM_VOCAB ? SIDE_VOCAB : SIDE_WHOLE;
    switch (dim) {
    case DIM_Q:
        return SIDE_Q;
    case DIM_KV:
        return SIDE_KV;
    case DIM_HEADS:
        return SIDE_HEADS;
    case DIM_FFN:
        return SIDE_FFN;
    default:
        if (is_latent(m) && latent_side_of(dim) != SIDE_WHOLE)
            return latent_side_of(dim);
        if (is_of_mixture(m, k))
            return dim == MIXTURE_DIM(n_ffn)      ? SIDE_EXPERT
                   : dim == MIXTURE_DIM(n_shared) ? SIDE_SHARED
                                                  : SIDE_WHOLE;
        return SIDE_WHOLE;
    }
}

static uint32_t divisor(uint32_t a, uint32_t b) // the greatest of both
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static uint32_t multiple(uint32_t a, uint32_t b) // the least of both
{
    return a / divisor(a, b) * b;
}

static uint32_t block_at(const struct model *m, uint32_t l, size_t place)
{
    const struct file_tensor *t = model_layer(m, l)[place];

    return t ? quant_info(t->format)->block_elements : 1;
}

// Numbers of a side that stay together: whole blocks of what has it as columns.
static uint32_t block_of(const struct cutting *c, enum cut_side side, uint32_t l)
{
    return side == SIDE_FFN      ? block_at(c->whole, l, PLACE(down))
           : side == SIDE_EXPERT ? c->expert_block
           : side == SIDE_SHARED ? c->shared_block
                                 : 1;
}

// The same, or more, of `all`.
static uint32_t unit_of(const struct cutting *c, enum cut_side side, uint32_t l, uint32_t all)
{
    uint32_t block = block_of(c, side, l), even = multiple(block, EVEN);

    return all % even == 0 && all / even >= c->n_ranks ? even : block;
}

// The rank's share of n units.
static void share(const struct cutting *c, uint32_t n, uint32_t *first, uint32_t *last)
{
    *first = (uint32_t)((uint64_t)n * c->rank / c->n_ranks);
    *last = (uint32_t)((uint64_t)n * (c->rank + 1) / c->n_ranks);
}

// KV heads that stay together: their queries' numbers are whole blocks of o's columns, in every layer that
// reads the same pages.
static uint32_t heads_together(const struct cutting *c, uint32_t layer)
{
    const struct layer_config *all = c->whole->layer_configs;
    uint32_t n = 1;

    for (uint32_t l = 0; l < c->whole->config.n_layers; l++) {
        uint32_t group = all[l].n_heads / all[l].n_kv_heads * all[l].head_dim,
                 block = block_at(c->whole, l, PLACE(o));
        if (all[l].pages_of == all[layer].pages_of)
            n = multiple(n, block / divisor(block, group));
    }
    return n;
}

// The same of heads that read latents, which every rank has whole.
static uint32_t latent_heads_together(const struct cutting *c)
{
    const struct latent_config *own = c->whole->own;
    uint32_t n = 1;

    for (uint32_t l = 0; l < c->whole->config.n_layers; l++) {
        uint32_t block = block_at(c->whole, l, PLACE(o));
        n = multiple(n, block / divisor(block, own->value));
    }
    return n;
}

static struct cut_piece latent_piece(const struct cutting *c, uint32_t each)
{
    const struct latent_config *own = c->whole->own;
    uint32_t together = latent_heads_together(c), first, last;

    share(c, own->n_heads / together, &first, &last);
    return (struct cut_piece){ first * together * each, (last - first) * together * each,
                               own->n_heads * each };
}

static struct cut_piece heads_piece(const struct cutting *c, uint32_t l, uint32_t each)
{
    uint32_t together = heads_together(c, l), n = c->whole->layer_configs[l].n_kv_heads, first, last;

    share(c, n / together, &first, &last);
    return (struct cut_piece){ first * together * each, (last - first) * together * each, n * each };
}

static struct cut_piece piece_of(const struct cutting *c, enum cut_side side, uint32_t layer, uint32_t all)
{
    const struct layer_config *l = &c->whole->layer_configs[layer];
    const struct latent_config *latent = c->whole->own;
    uint32_t group = l->n_heads / l->n_kv_heads, first, last;

    switch (side) {
    case SIDE_WHOLE:
        return (struct cut_piece){ 0, all, all };
    case SIDE_KV:
        return heads_piece(c, layer, l->head_dim);
    case SIDE_Q:
        return heads_piece(c, layer, group * l->head_dim);
    case SIDE_HEADS:
        return heads_piece(c, layer, group);
    case SIDE_LATENT_Q:
        return latent_piece(c, latent->key);
    case SIDE_LATENT_OUT:
        return latent_piece(c, latent->value);
    case SIDE_LATENT_HEADS:
        return latent_piece(c, 1);
    default: {
        uint32_t unit = unit_of(c, side, layer, all);
        share(c, all / unit, &first, &last);
        return (struct cut_piece){ first * unit, (last - first) * unit, all };
    }
    }
}

// ---- what can be cut

static bool refuse(const struct model *m, const char *what, struct err *err)
{
    return err_set(err, ERR_UNSUPPORTED, "%s: %s does not cut %s yet; leave it out", model_file_path(m->file),
                   err_option("n_tensor_parallel"), what);
}

static bool check_kind(const struct model *m, struct err *err)
{
    if (m->arch->is_encoder)
        return refuse(m, "encoders", err);
    if (m->config.n_inputs)
        return refuse(m, "models whose layers have inputs of their own", err);
    for (uint32_t l = 0; l < m->config.n_layers; l++) {
        const struct layer_config *c = &m->layer_configs[l];
        if (c->state_words > 0 || c->ffn_alone)
            return refuse(m, "recurrent models", err);
        if (c->n_kv_heads == 0 || c->n_heads % c->n_kv_heads != 0)
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: layer %u has %u heads over %u KV heads; %s wants groups of "
                           "equal size",
                           model_file_path(m->file), l, c->n_heads, c->n_kv_heads,
                           err_option("n_tensor_parallel"));
    }
    for (const struct joined_tensor *j = m->joined; j; j = j->next)
        if (j->trellis)
            return refuse(m, "weights of EXL3", err);
    return true;
}

static bool check_keys(const struct model *m, struct err *err)
{
    for (uint32_t i = 0; i < m->arch->n_weights; i++) {
        const struct weight_key *k = &m->arch->weights[i];
        if (k->per_layer && (k->place == PLACE(q_norm) || k->place == PLACE(k_norm)) &&
            (k->cols == DIM_Q || k->cols == DIM_KV))
            return refuse(m, "a norm over all heads of q or k", err);
    }
    return true;
}

static void find_blocks(struct cutting *c)
{
    c->expert_block = c->shared_block = 1;
    for (uint32_t l = 0; c->whole->n_experts && l < c->whole->config.n_layers; l++) {
        c->expert_block =
            multiple(c->expert_block, block_at(c->whole, l, OWN_PLACE(struct mixture_weights, down)));
        c->shared_block =
            multiple(c->shared_block, block_at(c->whole, l, OWN_PLACE(struct mixture_weights, shared_down)));
    }
}

static bool check_units(const struct cutting *c, uint32_t layer, uint32_t n, const char *what,
                        struct err *err)
{
    return n >= c->n_ranks ||
           err_set(err, ERR_UNSUPPORTED,
                   "%s: layer %u has %u %s to share, and %s %u wants one for each rank; use "
                   "%u at most",
                   model_file_path(c->whole->file), layer, n, what, err_option("n_tensor_parallel"),
                   c->n_ranks, n);
}

static bool check_layer(const struct cutting *c, uint32_t l, struct err *err)
{
    const struct model *m = c->whole;
    const struct layer_config *here = &m->layer_configs[l];
    const struct mixture_config *x = m->n_experts ? m->own : NULL;
    uint32_t together = is_latent(m) ? latent_heads_together(c) : heads_together(c, l);
    uint32_t n_heads = is_latent(m) ? here->n_heads : here->n_kv_heads;
    const char *kind = is_latent(m) ? "heads" : "KV heads";
    char heads[96];

    if (together == 1)
        snprintf(heads, sizeof heads, "%s", kind);
    else
        snprintf(heads, sizeof heads, "groups of %u %s, as blocks of %u columns need them,", together, kind,
                 block_at(m, l, PLACE(o)));
    if (n_heads % together != 0)
        return refuse(m, "layers whose blocks end within a group of heads", err);
    return check_units(c, l, n_heads / together, heads, err) &&
           (!model_layer(m, l)[PLACE(down)] ||
            check_units(c, l, here->n_ffn / block_of(c, SIDE_FFN, l), "blocks of hidden numbers", err)) &&
           (!x || l < m->config.n_dense ||
            (check_units(c, l, x->n_ffn / c->expert_block, "blocks of an expert's hidden numbers", err) &&
             (x->n_shared == 0 || check_units(c, l, x->n_shared / c->shared_block,
                                              "blocks of the shared expert's hidden numbers", err))));
}

static bool check(const struct cutting *c, struct err *err)
{
    for (uint32_t l = 0; l < c->whole->config.n_layers; l++)
        if (!check_layer(c, l, err))
            return false;
    return c->whole->config.n_vocab >= c->n_ranks ||
           err_set(err, ERR_UNSUPPORTED, "%s: %u tokens for %u ranks", model_file_path(c->whole->file),
                   c->whole->config.n_vocab, c->n_ranks);
}

// ---- tensors

struct window { // of every matrix of a stack
    uint32_t n_matrices;
    struct cut_piece rows, cols;
};

// A stack of one matrix with one row is a vector.
static bool describe(struct joined_tensor *j, const struct weight_key *k, const struct file_tensor *t,
                     const struct window *w)
{
    uint64_t n = w->n_matrices, rows = w->rows.n, cols = w->cols.n;

    j->tensor = (struct file_tensor){ .name = t->name, .format = t->format };
    if (k->stack) {
        j->tensor.n_dims = cols == 1 ? 2 : 3;
        memcpy(j->tensor.dims, (uint64_t[]){ n, rows, cols, 1 }, sizeof j->tensor.dims);
    } else if (k->rows == DIM_ONE) {
        j->tensor.n_dims = 1;
        memcpy(j->tensor.dims, (uint64_t[]){ cols, 1, 1, 1 }, sizeof j->tensor.dims);
    } else {
        j->tensor.n_dims = 2;
        memcpy(j->tensor.dims, (uint64_t[]){ rows, cols, 1, 1 }, sizeof j->tensor.dims);
    }
    return quant_bytes(t->format, n * rows, cols, &j->tensor.bytes);
}

static bool cut(const struct cutting *c, const struct weight_key *k, const struct file_tensor **t,
                const struct window *w, struct err *err)
{
    const struct file_tensor *from = *t;
    struct joined_tensor *j = joined_create(c->part, 1);
    bool lies_together = w->n_matrices == 1 && (w->cols.n == w->cols.all || w->rows.all == 1);

    if (!j)
        return err_memory(err, "a rank's matrices");
    CHECK(describe(j, k, from, w)); // cut where blocks end
    j->parts[j->n_parts++] = from;
    j->rows = w->rows.n;
    j->cols = w->cols.n;
    j->slice_rows = w->rows.all;
    j->slice_first = w->rows.first;
    j->all_cols = w->cols.all;
    j->first_col = w->cols.first;
    if (from->data && lies_together)
        j->tensor.data =
            from->data + quant_row_bytes(from->format, (uint64_t)w->rows.first * w->cols.all + w->cols.first);
    *t = &j->tensor;
    return true;
}

// Matrices [w->first, w->first + w->n) of a stack.
static bool cut_stack(const struct cutting *c, const struct weight_key *k, const struct file_tensor **t,
                      const struct cut_piece *w, struct err *err)
{
    const struct file_tensor *from = *t;
    struct joined_tensor *j = joined_create(c->part, 1);
    uint64_t rows = model_key_dim(c->whole, k, k->rows), cols = model_key_dim(c->whole, k, k->cols);

    if (!j)
        return err_memory(err, "a rank's matrices");
    if (!from->data) { // read as the whole is, from another matrix on
        const struct joined_tensor *next = j->next;
        *j = *(const struct joined_tensor *)from;
        j->next = next;
    } else {
        j->tensor = *from;
        j->parts[j->n_parts++] = from;
        j->rows = (uint32_t)rows;
        j->cols = (uint32_t)cols;
        j->tensor.data = from->data + quant_row_bytes(from->format, w->first * rows * cols);
    }
    j->first_matrix += w->first;
    j->tensor.dims[0] = w->n;
    CHECK(quant_bytes(from->format, w->n * rows, cols, &j->tensor.bytes));
    *t = &j->tensor;
    return true;
}

// What is added to a sum is added on the first rank alone.
static bool is_added_once(const struct model *m, const struct weight_key *k)
{
    return k->place == PLACE(o_bias) ||
           (is_of_mixture(m, k) && k->place == OWN_PLACE(struct mixture_weights, down_bias));
}

static bool cut_tensor(const struct cutting *c, const struct weight_key *k, uint32_t l,
                       const struct file_tensor **t, struct err *err)
{
    const struct model *m = c->whole;
    enum cut_side rows = side_of(m, k, k->rows), cols = side_of(m, k, k->cols);
    struct window w = { .n_matrices = k->stack ? model_key_dim(m, k, k->stack) : 1 };
    struct cut_piece heads;

    if (!*t)
        return true;
    if (k->per_layer && c->rank > 0 && is_added_once(m, k)) {
        *t = NULL;
        return true;
    }
    if (k->stack && side_of(m, k, k->stack) == SIDE_LATENT_HEADS) {
        heads = piece_of(c, SIDE_LATENT_HEADS, l, 0);
        return cut_stack(c, k, t, &heads, err);
    }
    if (rows == SIDE_WHOLE && cols == SIDE_WHOLE)
        return true;
    w.rows = piece_of(c, rows, l, model_key_dim(m, k, k->rows));
    w.cols = piece_of(c, cols, l, model_key_dim(m, k, k->cols));
    return cut(c, k, t, &w, err);
}

static bool cut_tensors(const struct cutting *c, struct err *err)
{
    const struct model *m = c->whole;

    for (uint32_t i = 0; i < m->arch->n_weights; i++) {
        struct weight_key k = m->arch->weights[i];
        for (uint32_t l = 0; l < (k.per_layer ? m->config.n_layers : 1); l++) {
            const struct file_tensor **t =
                k.per_layer ? &model_layer(c->part, l)[k.place] : &c->part->tensors[k.place];
            k.layer = l;
            const struct file_tensor *whole = k.per_layer ? model_layer(m, l)[k.place] : m->tensors[k.place];
            if (*t != whole || (k.per_layer && !model_has(m, &k, l))) // another key has cut it, or will
                continue;
            if (!cut_tensor(c, &k, l, t, err))
                return false;
        }
    }
    return true;
}

// ---- sizes

static void cut_latent_sizes(const struct cutting *c)
{
    struct model *p = c->part;
    struct latent_config *own = p->own;

    own->n_heads = latent_piece(c, 1).n;
    own->n_q = latent_piece(c, own->key).n;
    own->n_out = latent_piece(c, own->value).n;
    for (uint32_t l = 0; l < p->config.n_layers; l++)
        p->layer_configs[l].n_heads = own->n_heads;
    p->config.n_heads = own->n_heads;
}

static void cut_sizes(const struct cutting *c)
{
    struct model *p = c->part;
    struct mixture_config *x = p->n_experts ? p->own : NULL;

    for (uint32_t l = 0; l < p->config.n_layers; l++) {
        struct layer_config *to = &p->layer_configs[l];
        if (!is_latent(p)) {
            to->n_heads = piece_of(c, SIDE_HEADS, l, 0).n;
            to->n_kv_heads = heads_piece(c, l, 1).n;
        }
        to->n_ffn = piece_of(c, SIDE_FFN, l, to->n_ffn).n;
    }
    p->config.n_heads = p->layer_configs[0].n_heads;
    p->config.n_kv_heads = p->layer_configs[0].n_kv_heads;
    p->config.n_ffn = p->layer_configs[0].n_ffn;
    if (is_latent(p))
        cut_latent_sizes(c);
    if (!x)
        return;
    x->n_ffn = piece_of(c, SIDE_EXPERT, 0, x->n_ffn).n;
    x->n_shared = x->n_shared ? piece_of(c, SIDE_SHARED, 0, x->n_shared).n : 0;
}

// What differs from the whole's is a copy.
static bool copy_whole(struct model *p, const struct model *m, struct err *err)
{
    uint32_t n = m->config.n_layers + 1;

    *p = *m;
    p->joined = NULL;
    p->drafts = false;
    p->layer_configs = mem_alloc_array(n, sizeof *p->layer_configs);
    p->layers = mem_alloc_array((size_t)n * m->n_places, sizeof *p->layers);
    p->own = m->own ? mem_alloc(m->arch->own_config_bytes) : NULL;
    if (!p->layer_configs || !p->layers || (m->own && !p->own))
        return err_memory(err, "a rank's part of the model");
    memcpy(p->layer_configs, m->layer_configs, m->config.n_layers * sizeof *p->layer_configs);
    memcpy(p->layers, m->layers, (size_t)n * m->n_places * sizeof *p->layers);
    if (p->own)
        memcpy(p->own, m->own, m->arch->own_config_bytes);
    return true;
}

bool model_part_make(struct model *part, const struct model *whole, uint32_t rank, uint32_t n_ranks,
                     struct err *err)
{
    struct cutting c = { .part = part, .whole = whole, .rank = rank, .n_ranks = n_ranks };

    *part = (struct model){ 0 };
    if (!check_kind(whole, err) || !check_keys(whole, err))
        return false;
    find_blocks(&c);
    if (!check(&c, err))
        return false;
    bool ok = copy_whole(part, whole, err);
    part->rank = rank;
    part->n_ranks = n_ranks;
    if (ok && cut_tensors(&c, err)) {
        cut_sizes(&c);
        return true;
    }
    model_part_release(part);
    return false;
}

bool model_part_window(const struct model *part, const struct file_tensor *t, struct part_window *w)
{
    const struct joined_tensor *j = part->n_ranks ? part->joined : NULL;

    while (j && &j->tensor != t)
        j = j->next;
    if (j)
        *w = (struct part_window){ j->slice_first, j->rows, j->first_col, j->cols };
    return j != NULL;
}

void model_part_release(struct model *part)
{
    for (const struct joined_tensor *j = part->joined, *next; j; j = next) {
        next = j->next;
        mem_free((void *)(uintptr_t)j);
    }
    mem_free(part->own);
    mem_free(part->layers);
    mem_free(part->layer_configs);
    *part = (struct model){ 0 };
}
