// trellis_tensor.c - see trellis_tensor.h.
#include "models/trellis_tensor.h"
#include <stddef.h>
#include <string.h>
#include "models/arch.h"
#include "models/binding/joined.h"

static bool replace_end(const char *name, struct str end, const char *by, char text[160])
{
    struct str s = str_from(name);

    return str_ends(s, end) && snprintf(text, 160, "%.*s%s", (int)(s.n - end.n), name, by) < 160;
}

const struct file_tensor *trellis_find(const struct model_file *file, const char *name)
{
    char text[160];
    const struct file_tensor *t =
        replace_end(name, STR(".weight"), ".trellis", text) ? model_file_tensor(file, text) : NULL;
    return t && trellis_is(t) ? t : NULL;
}

// A tensor beside the codes. Their name is shorter than 128.
static const struct file_tensor *beside(const struct model_file *file, const struct file_tensor *codes,
                                        const char *end)
{
    char name[128], text[160];

    snprintf(name, sizeof name, "%.*s", STR_ARG(codes->name));
    return replace_end(name, STR(".trellis"), end, text) ? model_file_tensor(file, text) : NULL;
}

static uint32_t padded(uint32_t n)
{
    return (n + EXL3_BLOCK - 1) / EXL3_BLOCK * EXL3_BLOCK;
}

static bool check_codes(const struct model_file *file, const struct file_tensor *t, uint32_t rows,
                        uint32_t cols, struct err *err)
{
    uint32_t in = padded(cols) / EXL3_TILE, out = padded(rows) / EXL3_TILE;
    uint64_t bits = t->n_dims == 3 ? t->dims[2] / EXL3_TILE : 0;

    if (t->n_dims == 3 && t->dims[0] == in && t->dims[1] == out && t->dims[2] % EXL3_TILE == 0 && bits >= 1 &&
        bits <= EXL3_MAX_BITS)
        return true;
    return err_set(err, ERR_INPUT,
                   "%s: tensor %.*s is [%llu, %llu, %llu] with %u dimensions; this model needs [%u, %u, 16 "
                   "times 1 to 8 bits]",
                   model_file_path(file), STR_ARG(t->name), (unsigned long long)t->dims[0],
                   (unsigned long long)t->dims[1], (unsigned long long)t->dims[2], t->n_dims, in, out);
}

static bool check_factors(const struct model_file *file, const struct file_tensor *codes,
                          const struct file_tensor *t, const char *end, uint32_t n, struct err *err)
{
    if (!t)
        return err_set(err, ERR_INPUT, "%s: tensor %.*s is there without its %s; want [%u] of F16",
                       model_file_path(file), STR_ARG(codes->name), end, n);
    return (t->format == QUANT_F16 && t->n_dims == 1 && t->dims[0] == n) ||
           err_set(err, ERR_INPUT, "%s: tensor %.*s is [%llu] of %s with %u dimensions; want [%u] of F16",
                   model_file_path(file), STR_ARG(t->name), (unsigned long long)t->dims[0],
                   quant_info(t->format)->name, t->n_dims, n);
}

// At most one mark, with the one number that it may have.
static bool bind_codebook(struct trellis *t, const struct model_file *file, struct err *err)
{
    const struct file_tensor *mcg = beside(file, t->codes, ".mcg"), *mul1 = beside(file, t->codes, ".mul1");
    uint32_t want = mcg ? EXL3_MARK_MCG : EXL3_MARK_MUL1, found = 0;

    t->mark = mcg ? mcg : mul1;
    t->codebook = mcg ? EXL3_MCG : mul1 ? EXL3_MUL1 : EXL3_3INST;
    if (!t->mark)
        return true;
    if (mcg && mul1)
        return err_set(err, ERR_INPUT, "%s: %.*s and %.*s both name a codebook; want one",
                       model_file_path(file), STR_ARG(mcg->name), STR_ARG(mul1->name));
    if (t->mark->format == QUANT_I32 && t->mark->bytes == sizeof found)
        memcpy(&found, t->mark->data, sizeof found);
    return found == want || err_set(err, ERR_UNSUPPORTED,
                                    "%s: tensor %.*s holds %u of %s; this codebook is known by the I32 %u",
                                    model_file_path(file), STR_ARG(t->mark->name), found,
                                    quant_info(t->mark->format)->name, want);
}

bool trellis_bind(struct trellis *t, const struct model_file *file, const struct file_tensor *codes,
                  uint32_t rows, uint32_t cols, struct err *err)
{
    *t =
        (struct trellis){ codes, beside(file, codes, ".suh"), beside(file, codes, ".svh"), NULL, EXL3_3INST };
    if (!check_codes(file, codes, rows, cols, err))
        return false;
    if (!t->suh && beside(file, codes, ".su"))
        return err_set(
            err, ERR_UNSUPPORTED,
            "%s: tensor %.*s has its signs as bits in .su, as early EXL3 had; ingot reads .suh and "
            ".svh: convert the model anew",
            model_file_path(file), STR_ARG(codes->name));
    return check_factors(file, codes, t->suh, ".suh", padded(cols), err) &&
           check_factors(file, codes, t->svh, ".svh", padded(rows), err) && bind_codebook(t, file, err);
}

static struct exl3 matrix_of(const struct trellis *t)
{
    return (struct exl3){ (const u16 *)(const void *)t->codes->data,
                          (const u16 *)(const void *)t->suh->data,
                          (const u16 *)(const void *)t->svh->data,
                          (u32)t->codes->dims[0] * EXL3_TILE,
                          (u32)t->codes->dims[1] * EXL3_TILE,
                          (u32)t->codes->dims[2] / EXL3_TILE,
                          t->codebook };
}

struct element_range {
    uint64_t first, end;
};

// The wanted numbers of block (in, out), whose matrix begins at element `base`.
static void read_block(const struct joined_tensor *j, const struct exl3 *m, uint64_t base,
                       const uint32_t at[2], struct element_range wanted, uint16_t *to)
{
    float block[EXL3_BLOCK][EXL3_BLOCK];
    uint32_t in = at[0], out = at[1];

    exl3_product_block(m, in, out, block);
    for (uint32_t o = 0; o < EXL3_BLOCK && out * EXL3_BLOCK + o < j->rows; o++)
        for (uint32_t i = 0; i < EXL3_BLOCK && in * EXL3_BLOCK + i < j->cols; i++) {
            uint64_t e = base + (uint64_t)(out * EXL3_BLOCK + o) * j->cols + in * EXL3_BLOCK + i;
            if (e >= wanted.first && e < wanted.end)
                to[e - wanted.first] = quant_float_to_half(block[o][i]);
        }
}

void trellis_read(const struct joined_tensor *j, uint64_t first, uint64_t n, uint16_t *to)
{
    const struct element_range wanted = { first, first + n };
    const uint64_t matrix = (uint64_t)j->rows * j->cols, band = (uint64_t)EXL3_BLOCK * j->cols;

    for (uint64_t p = first / matrix; p < j->n_parts && p * matrix < wanted.end; p++) {
        struct exl3 m = matrix_of(&j->trellis[p]);
        for (uint32_t out = 0; out < m.n_out / EXL3_BLOCK; out++) {
            uint64_t begin = p * matrix + out * band;
            if (begin >= wanted.end || begin + band <= wanted.first)
                continue;
            for (uint32_t in = 0; in < m.n_in / EXL3_BLOCK; in++)
                read_block(j, &m, p * matrix, (uint32_t[2]){ in, out }, wanted, to);
        }
    }
}

// Matrices of experts, the shared one's too.
static bool is_of_experts(const struct weight_key *k)
{
    return k->per_layer && (k->used || k->flags & WEIGHT_SHARED_EXPERT);
}

#define LAYER_PLACE(field) (offsetof(struct layer_weights, field) / sizeof(void *))
bool trellis_is_product(const struct weight_key *k)
{
    static const size_t products[] = { LAYER_PLACE(q),    LAYER_PLACE(k),  LAYER_PLACE(v),   LAYER_PLACE(o),
                                       LAYER_PLACE(gate), LAYER_PLACE(up), LAYER_PLACE(down) };
    bool is = (!k->per_layer && k->place == MODEL_PLACE(head)) || is_of_experts(k);

    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        is |= k->per_layer && k->place == products[i];
    return is;
}

bool trellis_is_uniform(const struct joined_tensor *j)
{
    for (uint32_t i = 1; i < j->n_parts; i++)
        if (j->trellis[i].codes->bytes != j->trellis[0].codes->bytes ||
            j->trellis[i].codebook != j->trellis[0].codebook)
            return false;
    return true;
}

// NULL: it does not stay codes.
static const struct joined_tensor *kept(const struct file_tensor *t)
{
    const struct joined_tensor *j = (const struct joined_tensor *)t;
    return !t->data && j->stays_codes ? j : NULL;
}

enum quant trellis_kept_format(const struct file_tensor *t)
{
    const struct joined_tensor *j = kept(t);
    return j ? (enum quant)(QUANT_EXL3 + j->trellis->codebook) : t->format;
}

uint64_t trellis_kept_bytes(const struct file_tensor *t)
{
    const struct joined_tensor *j = kept(t);
    const struct trellis *first = j ? j->trellis : NULL;
    return j ? j->n_parts * (first->codes->bytes + first->suh->bytes + first->svh->bytes) : t->bytes;
}

void trellis_kept_codes(const struct file_tensor *t, void *to)
{
    const struct joined_tensor *j = kept(t);
    unsigned char *at = to;

    for (uint32_t i = 0; i < j->n_parts; i++) {
        const struct file_tensor *const parts[] = { j->trellis[i].codes, j->trellis[i].suh,
                                                    j->trellis[i].svh };
        for (uint32_t k = 0; k < 3; at += parts[k]->bytes, k++)
            memcpy(at, parts[k]->data, parts[k]->bytes);
    }
}

// A layer's matrix that would have stayed codes is read as halves.
static void expand(struct model *m, uint32_t l, const struct joined_tensor *j)
{
    uint64_t more = j->tensor.bytes - trellis_kept_bytes(&j->tensor);

    ((struct joined_tensor *)(uintptr_t)j)->stays_codes = false;
    if (l == m->config.n_layers) { // the one that drafts
        m->draft_bytes += more;
        return;
    }
    m->weight_bytes += more;
    if (j->n_parts > 1)
        m->idle_bytes += more / j->n_parts * (j->n_parts - m->n_used_experts);
}

// Whether all of the layer's experts stay codes, as the operation wants it.
static bool experts_stay(const struct model *m, uint32_t l)
{
    bool all = true;

    for (uint32_t i = 0; i < m->arch->n_weights; i++) {
        const struct weight_key *k = &m->arch->weights[i];
        const struct file_tensor *t = is_of_experts(k) ? model_layer(m, l)[k->place] : NULL;
        all &= !t || kept(t);
    }
    return all;
}

void trellis_settle_experts(struct model *m)
{
    for (uint32_t l = 0; l < m->config.n_layers + (m->drafts ? 1 : 0); l++)
        for (uint32_t i = 0; i < m->arch->n_weights && !experts_stay(m, l); i++) {
            const struct weight_key *k = &m->arch->weights[i];
            const struct file_tensor *t = is_of_experts(k) ? model_layer(m, l)[k->place] : NULL;
            if (t && kept(t))
                expand(m, l, kept(t));
        }
}
