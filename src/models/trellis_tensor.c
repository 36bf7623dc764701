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

#define LAYER_PLACE(field) (offsetof(struct layer_weights, field) / sizeof(void *))
bool trellis_is_product(const struct weight_key *k)
{
    static const size_t products[] = { LAYER_PLACE(q),    LAYER_PLACE(k),  LAYER_PLACE(v),   LAYER_PLACE(o),
                                       LAYER_PLACE(gate), LAYER_PLACE(up), LAYER_PLACE(down) };
    bool is = !k->per_layer && k->place == offsetof(struct model_weights, head) / sizeof(void *);

    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        is |= k->per_layer && k->place == products[i];
    return is;
}

// Its one part, or NULL.
static const struct trellis *codes_of(const struct file_tensor *t)
{
    const struct joined_tensor *j = (const struct joined_tensor *)t;
    return !t->data && j->stays_codes ? j->trellis : NULL;
}

enum quant trellis_kept_format(const struct file_tensor *t)
{
    const struct trellis *codes = codes_of(t);
    return codes ? (enum quant)(QUANT_EXL3 + codes->codebook) : t->format;
}

uint64_t trellis_kept_bytes(const struct file_tensor *t)
{
    const struct trellis *codes = codes_of(t);
    return codes ? codes->codes->bytes + codes->suh->bytes + codes->svh->bytes : t->bytes;
}

void trellis_kept_codes(const struct file_tensor *t, void *to)
{
    const struct trellis *codes = codes_of(t);
    const struct file_tensor *const parts[] = { codes->codes, codes->suh, codes->svh };
    unsigned char *at = to;

    for (uint32_t i = 0; i < 3; at += parts[i]->bytes, i++)
        memcpy(at, parts[i]->data, parts[i]->bytes);
}

// The layer that has it; beyond all layers: none has it.
static uint32_t layer_of(const struct model *m, const struct file_tensor *t)
{
    uint32_t n = m->config.n_layers + (m->drafts ? 1 : 0);

    for (uint32_t l = 0; l < n; l++)
        for (uint32_t i = 0; i < m->n_places; i++)
            if (model_layer(m, l)[i] == t)
                return l;
    return n;
}

static bool is_head(const struct model *m, const struct file_tensor *t)
{
    return m->tensors[offsetof(struct model_weights, head) / sizeof(void *)] == t;
}

void trellis_expand_all(struct model *m)
{
    for (const struct joined_tensor *j = m->joined; j; j = j->next) {
        if (!j->stays_codes)
            continue;
        uint64_t more = j->tensor.bytes - trellis_kept_bytes(&j->tensor);
        uint32_t l = layer_of(m, &j->tensor);
        if (l < m->config.n_layers || is_head(m, &j->tensor))
            m->weight_bytes += more;
        else if (m->drafts && l == m->config.n_layers)
            m->draft_bytes += more;
        ((struct joined_tensor *)(uintptr_t)j)->stays_codes = false;
    }
}
