// imatrix_file.c - see imatrix_file.h. A file is small: all of it is copied.
#include "model_tools/imatrix_file.h"
#include "format/gguf_write.h"

static const char SUMS[] = ".in_sum2", COUNTS[] = ".counts";

// ---- GGUF

static bool numbers_check(const struct imatrix_entry *e, struct err *err)
{
    for (uint64_t i = 0; i < e->n_sums; i++)
        if (!(e->sums[i] >= 0 && e->sums[i] < 1e37))
            return err_set(err, ERR_INPUT, "%.*s: sum %llu of squares is %g; make it again", STR_ARG(e->name),
                           (unsigned long long)i, e->sums[i]);
    for (uint32_t i = 0; i < e->n_counts; i++)
        if (!(e->counts[i] >= 0 && e->counts[i] < 1e15))
            return err_set(err, ERR_INPUT, "%.*s: count %u is %g; make it again", STR_ARG(e->name), i,
                           e->counts[i]);
    return true;
}

static void take_floats(const struct file_tensor *t, double *to)
{
    float x;

    for (uint64_t i = 0; i < t->bytes / sizeof x; i++) {
        memcpy(&x, t->data + i * sizeof x, sizeof x);
        to[i] = (double)x;
    }
}

static bool take_pair(struct imatrix *m, const struct file_tensor *sums, const struct file_tensor *counts,
                      struct err *err)
{
    struct imatrix_entry new = { .name = { sums->name.at, sums->name.n - (sizeof SUMS - 1) },
                                 .n_sums = sums->bytes / sizeof(float) };

    if (!counts || sums->format != QUANT_F32 || counts->format != QUANT_F32)
        return err_set(err, ERR_INPUT, "%.*s: want its counts beside it, both in F32", STR_ARG(sums->name));
    new.n_counts = (uint32_t)(counts->bytes / sizeof(float));
    if (counts->bytes / sizeof(float) != new.n_counts || new.n_sums % new.n_counts != 0)
        return err_set(err, ERR_INPUT, "%.*s: %llu sums for %u matrices", STR_ARG(sums->name),
                       (unsigned long long)new.n_sums, new.n_counts);
    struct imatrix_entry *e = imatrix_add(m, &new, err);
    if (!e)
        return false;
    take_floats(sums, e->sums);
    take_floats(counts, e->counts);
    return numbers_check(e, err);
}

static bool take_values(struct imatrix *m, const struct model_file *f, struct err *err)
{
    const struct meta *texts = model_file_meta(f, "imatrix.datasets");
    uint64_t n_chunks = 0, n_chunk = 0;

    if (texts && texts->type == META_ARRAY && texts->element == META_STRING && texts->n > 0)
        m->text = arena_str(m->arena, meta_at(texts, 0).s);
    if (!model_file_u64(f, "imatrix.chunk_count", 0, UINT32_MAX, &n_chunks, err) ||
        !model_file_u64(f, "imatrix.chunk_size", 0, UINT32_MAX, &n_chunk, err))
        return false;
    m->n_chunks = (uint32_t)n_chunks;
    m->n_chunk = (uint32_t)n_chunk;
    return true;
}

static const struct file_tensor *counts_of(const struct model_file *f, struct str sums)
{
    char name[512];
    int n = snprintf(name, sizeof name, "%.*s%s", (int)(sums.n - (sizeof SUMS - 1)), sums.at, COUNTS);

    return n > 0 && (size_t)n < sizeof name ? model_file_tensor(f, name) : NULL;
}

static bool take_gguf(struct imatrix *m, const struct model_file *f, struct err *err)
{
    for (size_t i = 0; i < model_file_n_tensors(f); i++) {
        const struct file_tensor *t = model_file_tensor_at(f, i);
        if (str_ends(t->name, STR(".in_sum2")) && t->name.n < 400 &&
            !take_pair(m, t, counts_of(f, t->name), err))
            return false;
    }
    return take_values(m, f, err);
}

static void write_entry(struct gguf_writer *w, const struct imatrix_entry *e, bool describe)
{
    char name[512];
    const struct {
        const char *end;
        const double *values;
        uint64_t n, n_cols;
    } parts[] = { { SUMS, e->sums, e->n_sums, e->n_sums / e->n_counts },
                  { COUNTS, e->counts, e->n_counts, 1 } };

    for (size_t p = 0; p < 2; p++) {
        snprintf(name, sizeof name, "%.*s%s", STR_ARG(e->name), parts[p].end);
        if (describe)
            gguf_write_tensor(w, str_from(name), QUANT_F32,
                              (const uint64_t[TENSOR_MAX_DIMS]){ e->n_counts, parts[p].n_cols, 1, 1 }, 2);
        for (uint64_t i = 0; !describe && i < parts[p].n; i++)
            gguf_write_data(w, &(float){ (float)parts[p].values[i] }, sizeof(float));
    }
}

bool imatrix_file_write(const struct imatrix *m, const char *path, struct err *err)
{
    struct gguf_writer w;

    if (!gguf_write_create(&w, path, err))
        return false;
    gguf_write_str(&w, "general.type", STR("imatrix"));
    gguf_write_strs(&w, "imatrix.datasets", &m->text, m->text.n ? 1 : 0);
    gguf_write_u32(&w, "imatrix.chunk_count", m->n_chunks);
    gguf_write_u32(&w, "imatrix.chunk_size", m->n_chunk);
    for (size_t i = 0; i < m->n; i++)
        write_entry(&w, &m->entries[i], true);
    gguf_write_begin(&w);
    for (size_t i = 0; i < m->n; i++)
        write_entry(&w, &m->entries[i], false);
    bool ok = gguf_write_commit(&w, err);
    gguf_write_abort(&w);
    return ok;
}

// ---- the older form

struct matrix_reader {
    const char *at, *end;
};

static bool take_bytes(struct matrix_reader *r, void *to, size_t n)
{
    if ((size_t)(r->end - r->at) < n)
        return false;
    memcpy(to, r->at, n);
    r->at += n;
    return true;
}

// Reads an i32 of at least `least`, a count of items of `bytes` each, and checks that they fit the rest.
static bool take_count(struct matrix_reader *r, int32_t least, size_t bytes, uint32_t *n)
{
    int32_t value;

    if (!take_bytes(r, &value, sizeof value) || value < least ||
        (size_t)value > (size_t)(r->end - r->at) / bytes)
        return false;
    *n = (uint32_t)value;
    return true;
}

static bool take_old_entry(struct imatrix *m, struct matrix_reader *r, struct err *err)
{
    uint32_t n_name, n_sums;
    int32_t n_calls;
    const char *name;

    bool whole = take_count(r, 1, 1, &n_name);
    name = r->at;
    r->at += whole ? n_name : 0;
    if (!whole || !take_bytes(r, &n_calls, sizeof n_calls) || !take_count(r, 1, sizeof(float), &n_sums))
        return err_set(err, ERR_INPUT, "entry %zu is cut off or no importance matrix", m->n);
    const struct imatrix_entry like = { .name = { name, n_name }, .n_sums = n_sums, .n_counts = 1 };
    struct imatrix_entry *e = imatrix_add(m, &like, err);
    if (!e)
        return false;
    const struct file_tensor values = { .data = (const unsigned char *)r->at,
                                        .bytes = (uint64_t)n_sums * sizeof(float) };
    take_floats(&values, e->sums);
    r->at += values.bytes;
    e->counts[0] = n_calls > 0 ? n_calls : 1;
    return numbers_check(e, err);
}

// Behind the entries there may be the number of chunks and the text's name.
static void take_old_end(struct imatrix *m, struct matrix_reader *r)
{
    int32_t n_chunks = 0;
    uint32_t n = 0;

    if (take_bytes(r, &n_chunks, sizeof n_chunks) && n_chunks > 0)
        m->n_chunks = (uint32_t)n_chunks;
    if (take_count(r, 0, 1, &n))
        m->text = arena_str(m->arena, (struct str){ r->at, n });
}

static bool take_old(struct imatrix *m, struct str bytes, struct err *err)
{
    struct matrix_reader r = { bytes.at, bytes.at + bytes.n };
    uint32_t n;

    if (!take_count(&r, 1, 3 * sizeof(int32_t), &n))
        return err_set(
            err, ERR_INPUT,
            "no importance matrix: want GGUF, or the older form, which begins with its number of entries");
    for (uint32_t i = 0; i < n; i++)
        if (!take_old_entry(m, &r, err))
            return false;
    take_old_end(m, &r);
    return true;
}

// ---- either

bool imatrix_file_parse(struct imatrix *m, struct str bytes, const char *name, struct err *err)
{
    struct model_file *f = NULL;
    bool gguf = str_starts(bytes, STR("GGUF"));
    bool ok = imatrix_create(m, err);

    if (ok && gguf)
        ok = model_file_open_memory(&f, bytes.at, bytes.n, name, err) &&
             (take_gguf(m, f, err) || err_prefix(err, "%s", name));
    else if (ok)
        ok = take_old(m, bytes, err) || err_prefix(err, "%s", name);
    if (ok && m->n == 0)
        ok = err_set(err, ERR_INPUT, "%s: GGUF without importance: want tensors whose names end in %s", name,
                     SUMS);
    model_file_close(f);
    if (!ok)
        imatrix_free(m);
    return ok;
}

bool imatrix_file_read(struct imatrix *m, const char *path, struct err *err)
{
    struct file_map map;

    if (!file_map_open(&map, path, err))
        return false;
    bool ok = imatrix_file_parse(m, (struct str){ (const char *)map.at, map.bytes }, path, err);
    file_map_close(&map);
    return ok;
}
