// gguf_write.c - see gguf_write.h.
#include "format/gguf_write.h"
#include "base/mem.h"
#include "format/directory.h"

enum { ALIGNMENT = 32 };

static bool failed(struct gguf_writer *w)
{
    return !w->open || w->first.code != ERR_NONE;
}

static void fail_memory(struct gguf_writer *w)
{
    if (w->first.code == ERR_NONE)
        err_memory(&w->first, "a GGUF header");
}

bool gguf_write_create(struct gguf_writer *w, const char *path, struct err *err)
{
    *w = (struct gguf_writer){ 0 };
    w->open = file_create(&w->out, path, err);
    return w->open;
}

static void put_u32(struct buf *b, uint32_t v)
{
    buf_append(b, &v, sizeof v);
}

static void put_u64(struct buf *b, uint64_t v)
{
    buf_append(b, &v, sizeof v);
}

static void put_str(struct buf *b, struct str text)
{
    put_u64(b, text.n);
    buf_str(b, text);
}

static void put_key(struct gguf_writer *w, struct str key, enum gguf_type type)
{
    CHECK(!w->begun);
    put_str(&w->metas, key);
    put_u32(&w->metas, type);
    w->n_metas++;
}

void gguf_write_u32(struct gguf_writer *w, const char *key, uint32_t value)
{
    put_key(w, str_from(key), GGUF_U32);
    put_u32(&w->metas, value);
}

void gguf_write_f32(struct gguf_writer *w, const char *key, float value)
{
    put_key(w, str_from(key), GGUF_F32);
    buf_append(&w->metas, &value, sizeof value);
}

void gguf_write_bool(struct gguf_writer *w, const char *key, bool value)
{
    put_key(w, str_from(key), GGUF_BOOL);
    buf_append(&w->metas, &(unsigned char){ value }, 1);
}

void gguf_write_str(struct gguf_writer *w, const char *key, struct str value)
{
    put_key(w, str_from(key), GGUF_STRING);
    put_str(&w->metas, value);
}

static void put_array(struct gguf_writer *w, struct str key, enum gguf_type type, uint64_t n)
{
    put_key(w, key, GGUF_ARRAY);
    put_u32(&w->metas, type);
    put_u64(&w->metas, n);
}

void gguf_write_strs(struct gguf_writer *w, const char *key, const struct str *values, uint64_t n)
{
    put_array(w, str_from(key), GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        put_str(&w->metas, values[i]);
}

void gguf_write_bools(struct gguf_writer *w, const char *key, const bool *values, uint64_t n)
{
    put_array(w, str_from(key), GGUF_BOOL, n);
    for (uint64_t i = 0; i < n; i++)
        buf_append(&w->metas, &(unsigned char){ values[i] }, 1);
}

void gguf_write_i32s(struct gguf_writer *w, const char *key, const int32_t *values, uint64_t n)
{
    put_array(w, str_from(key), GGUF_I32, n);
    buf_append(&w->metas, values, (size_t)n * sizeof *values);
}

void gguf_write_f32s(struct gguf_writer *w, const char *key, const float *values, uint64_t n)
{
    put_array(w, str_from(key), GGUF_F32, n);
    buf_append(&w->metas, values, (size_t)n * sizeof *values);
}

// The value's own type where it came from GGUF; from JSON the type that GGUF files use for such a number.
static enum gguf_type stored_type(const struct meta *m)
{
    const struct meta_elements *elements = m->elements;

    if (elements)
        return elements->type;
    if (m->type == META_UINT)
        return m->u <= UINT32_MAX ? GGUF_U32 : GGUF_U64;
    if (m->type == META_INT)
        return m->i >= INT32_MIN ? GGUF_I32 : GGUF_I64;
    return m->type == META_FLOAT ? GGUF_F32 : m->type == META_BOOL ? GGUF_BOOL : GGUF_STRING;
}

static void put_scalar(struct gguf_writer *w, const struct meta *m, enum gguf_type type)
{
    float f = (float)m->f;

    if (type == GGUF_STRING)
        put_str(&w->metas, m->s);
    else if (type == GGUF_BOOL)
        buf_append(&w->metas, &(unsigned char){ m->b }, 1);
    else if (type == GGUF_F32)
        buf_append(&w->metas, &f, sizeof f);
    else
        buf_append(&w->metas, &m->u, gguf_type_bytes(type)); // little-endian: the low bytes come first
}

void gguf_write_meta(struct gguf_writer *w, const struct meta *meta)
{
    enum gguf_type type = stored_type(meta);

    if (meta->type != META_ARRAY) {
        put_key(w, meta->key, type);
        put_scalar(w, meta, type);
        return;
    }
    put_array(w, meta->key, type, meta->n);
    for (uint64_t i = 0; i < meta->n; i++) {
        struct meta m = meta_at(meta, i);
        put_scalar(w, &m, type);
    }
}

void gguf_write_tensor(struct gguf_writer *w, struct str name, enum quant format, const uint64_t *dims,
                       uint32_t n_dims)
{
    uint64_t n = 1, bytes;

    CHECK(!w->begun && n_dims >= 1 && n_dims <= TENSOR_MAX_DIMS);
    put_str(&w->infos, name);
    put_u32(&w->infos, n_dims);
    for (uint32_t i = n_dims; i-- > 0; n *= dims[i])
        put_u64(&w->infos, dims[i]);
    CHECK(quant_bytes(format, n / dims[n_dims - 1], dims[n_dims - 1], &bytes));
    put_u32(&w->infos, quant_info(format)->ggml_id);
    put_u64(&w->infos, w->data_bytes);
    if (w->n_tensors == w->ends_capacity) {
        size_t capacity = w->ends_capacity ? w->ends_capacity * 2 : 256;
        uint64_t *ends = mem_realloc(w->ends, capacity * sizeof *ends);
        if (!ends) {
            fail_memory(w);
            return;
        }
        w->ends = ends;
        w->ends_capacity = capacity;
    }
    w->ends[w->n_tensors++] = w->data_bytes + bytes;
    w->data_bytes = (w->data_bytes + bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void pad(struct gguf_writer *w)
{
    static const unsigned char zeros[ALIGNMENT];
    file_write(&w->out, zeros, (ALIGNMENT - w->out.bytes % ALIGNMENT) % ALIGNMENT);
}

void gguf_write_begin(struct gguf_writer *w)
{
    static const char magic[8] = "GGUF\3\0\0"; // the magic and version 3

    CHECK(!w->begun);
    w->begun = true;
    if (w->metas.failed || w->infos.failed)
        fail_memory(w);
    if (failed(w))
        return;
    file_write(&w->out, magic, sizeof magic);
    file_write(&w->out, &w->n_tensors, 8);
    file_write(&w->out, &w->n_metas, 8);
    file_write(&w->out, w->metas.at, w->metas.n);
    file_write(&w->out, w->infos.at, w->infos.n);
    pad(w);
    w->data_begin = w->out.bytes;
}

void gguf_write_data(struct gguf_writer *w, const void *bytes, uint64_t n)
{
    CHECK(w->begun);
    if (failed(w))
        return;
    CHECK(w->tensor < w->n_tensors && w->out.bytes - w->data_begin + n <= w->ends[w->tensor]);
    if (bytes)
        file_write(&w->out, bytes, (size_t)n);
    else
        file_write_zeros(&w->out, n);
    if (w->out.bytes - w->data_begin == w->ends[w->tensor]) {
        pad(w);
        w->tensor++;
    }
}

static void release(struct gguf_writer *w)
{
    buf_free(&w->metas);
    buf_free(&w->infos);
    mem_free(w->ends);
    w->ends = NULL;
    w->open = false;
}

bool gguf_write_commit(struct gguf_writer *w, struct err *err)
{
    CHECK(w->open && w->begun);
    if (w->first.code != ERR_NONE) {
        if (err)
            *err = w->first;
        gguf_write_abort(w);
        return false;
    }
    CHECK(w->tensor == w->n_tensors);
    bool ok = file_commit(&w->out, err);
    release(w);
    return ok;
}

void gguf_write_abort(struct gguf_writer *w)
{
    if (w->open)
        file_abort(&w->out);
    release(w);
}
