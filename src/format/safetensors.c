// safetensors.c - the header of one safetensors file.
//
// Eight bytes of length, a JSON object that names each tensor's type, shape and place, then the bytes. The
// format's promises are checked, all of them: no overlap, no hole, sizes equal to shape times type, the end
// of the last tensor is the end of the file, no name twice. Bytes and words are read for formats that pack
// numbers into them. Other types that no weight has (integers, bool, double) are passed over with a line in
// the log; small floats, which need scales this engine does not know, are refused. Which files make a model
// is decided in safetensors_folder.c.
#include "format/safetensors.h"
#include "base/log.h"
#include "base/mem.h"
#include "format/json_scan.h"

enum { HEADER_MAX_BYTES = 100000000 };

struct dtype {
    const char *name;
    uint32_t bits;
    enum { READ, PASSED_OVER, REFUSED } use;
    enum quant format;
};

static const struct dtype dtypes[] = {
    { "F32", 32, READ, QUANT_F32 },        { "F16", 16, READ, QUANT_F16 },
    { "BF16", 16, READ, QUANT_BF16 },      { "I32", 32, READ, QUANT_I32 },
    { "BOOL", 8, PASSED_OVER, QUANT_F32 }, { "U8", 8, READ, QUANT_U8 },
    { "I8", 8, PASSED_OVER, QUANT_F32 },   { "U16", 16, PASSED_OVER, QUANT_F32 },
    { "I16", 16, READ, QUANT_I16 },        { "U32", 32, PASSED_OVER, QUANT_F32 },
    { "U64", 64, PASSED_OVER, QUANT_F32 }, { "I64", 64, PASSED_OVER, QUANT_F32 },
    { "F64", 64, PASSED_OVER, QUANT_F32 }, { "C64", 64, PASSED_OVER, QUANT_F32 },
    { "F8_E4M3", 8, REFUSED, QUANT_F32 },  { "F8_E5M2", 8, REFUSED, QUANT_F32 },
    { "F8_E8M0", 8, REFUSED, QUANT_F32 },  { "F6_E2M3", 6, REFUSED, QUANT_F32 },
    { "F6_E3M2", 6, REFUSED, QUANT_F32 },  { "F4", 4, REFUSED, QUANT_F32 },
};

enum { MAX_SHAPE = 16 };

struct header_entry {
    struct str name;
    const struct dtype *dtype;
    uint64_t shape[MAX_SHAPE], begin, end;
    uint32_t n_shape;
    bool has_dtype, has_shape, has_offsets;
};

struct header {
    struct model_file *file;
    struct json_scan scan;
    struct str data;
    struct byte_range *ranges;
    size_t n_ranges, ranges_capacity;
    struct safetensors_visit visit;
    struct err *err;
};

static bool bad_json(struct header *h, const char *problem)
{
    return err_set(h->err, ERR_INPUT, "the header is not valid at byte %zu: %s", h->scan.pos + 8,
                   h->scan.problem ? h->scan.problem : problem);
}

// [a, b, c]: at most max unsigned integers.
static bool take_integers(struct header *h, uint64_t *values, uint32_t max, uint32_t *n)
{
    enum json_token token = json_next(&h->scan);

    *n = 0;
    if (token != JSON_ARRAY)
        return bad_json(h, "expected an array of numbers");
    while ((token = json_next(&h->scan)) == JSON_NUMBER) {
        if (*n == max)
            return bad_json(h, "too many numbers in an array");
        if (!str_to_u64(h->scan.text, &values[(*n)++]))
            return bad_json(h, "expected a whole number from 0 to 2^64 - 1");
    }
    return token == JSON_ARRAY_END ? true : bad_json(h, "expected a number");
}

static bool take_dtype(struct header *h, struct header_entry *e)
{
    struct str name;

    if (json_next(&h->scan) != JSON_STRING || !json_unescape(&h->scan, h->file->arena, &name))
        return bad_json(h, "dtype must be a string");
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (str_is(name, dtypes[i].name))
            e->dtype = &dtypes[i];
    if (e->dtype)
        return true;
    struct str shown = directory_name_ok(name) ? name : STR("?");
    return err_set(h->err, ERR_UNSUPPORTED,
                   "tensor '%.*s' has dtype '%.*s', which is unknown; F32, F16 and BF16 are read",
                   STR_ARG(e->name), STR_ARG(shown));
}

static bool take_field(struct header *h, struct header_entry *e)
{
    struct str field;
    uint64_t offsets[2];
    uint32_t n;

    if (!json_unescape(&h->scan, h->file->arena, &field))
        return bad_json(h, "a bad key");
    if (str_is(field, "dtype") && !e->has_dtype)
        return (e->has_dtype = true) && take_dtype(h, e);
    if (str_is(field, "shape") && !e->has_shape)
        return (e->has_shape = true) && take_integers(h, e->shape, MAX_SHAPE, &e->n_shape);
    if (!str_is(field, "data_offsets") || e->has_offsets)
        return bad_json(h, "expected dtype, shape and data_offsets, each once");
    if (!take_integers(h, offsets, 2, &n))
        return false;
    if (n != 2)
        return bad_json(h, "data_offsets must be two numbers");
    e->has_offsets = true;
    e->begin = offsets[0];
    e->end = offsets[1];
    return true;
}

// Shape times type must be the place it takes.
static bool check_size(struct header *h, const struct header_entry *e)
{
    uint64_t bits = e->dtype->bits;

    if (e->begin > e->end || e->end > h->data.n)
        return err_set(h->err, ERR_INPUT, "tensor '%.*s' lies at data bytes %llu to %llu; the file has %zu",
                       STR_ARG(e->name), (unsigned long long)e->begin, (unsigned long long)e->end, h->data.n);
    for (uint32_t i = 0; i < e->n_shape; i++)
        if (__builtin_mul_overflow(bits, e->shape[i], &bits))
            return err_set(h->err, ERR_INPUT, "tensor '%.*s' has a shape of more than 2^64 bits",
                           STR_ARG(e->name));
    if (bits % 8 != 0 || bits / 8 != e->end - e->begin)
        return err_set(h->err, ERR_INPUT,
                       "tensor '%.*s' has %llu bytes of data, but its shape and dtype %s make %llu bits",
                       STR_ARG(e->name), (unsigned long long)(e->end - e->begin), e->dtype->name,
                       (unsigned long long)bits);
    return true;
}

static bool add_range(struct header *h, const struct header_entry *e)
{
    if (h->n_ranges >= DIRECTORY_MAX_TENSORS)
        return err_set(h->err, ERR_LIMIT, "more than %d tensors", DIRECTORY_MAX_TENSORS);
    if (h->n_ranges == h->ranges_capacity) {
        size_t capacity = h->ranges_capacity ? h->ranges_capacity * 2 : 64;
        struct byte_range *ranges = mem_realloc(h->ranges, capacity * sizeof *ranges);
        if (!ranges)
            return err_memory(h->err, "the list of tensors");
        h->ranges = ranges;
        h->ranges_capacity = capacity;
    }
    h->ranges[h->n_ranges++] = (struct byte_range){ e->begin, e->end, e->name };
    return true;
}

static bool add_tensor(struct header *h, const struct header_entry *e)
{
    struct file_tensor t = { .name = e->name,
                             .format = e->dtype->format,
                             .n_dims = e->n_shape ? e->n_shape : 1,
                             .dims = { 1, 1, 1, 1 } };

    if (e->dtype->use == REFUSED)
        return err_set(h->err, ERR_UNSUPPORTED,
                       "tensor '%.*s' has dtype %s, which is not read; convert it to BF16", STR_ARG(e->name),
                       e->dtype->name);
    t.bytes = e->end - e->begin;
    if (e->dtype->use == PASSED_OVER || e->n_shape > TENSOR_MAX_DIMS || t.bytes == 0) {
        log_line(LOG_INFO, "format", "tensor '%.*s' (%s, %u dimensions, %llu bytes) is passed over",
                 STR_ARG(e->name), e->dtype->name, e->n_shape, (unsigned long long)t.bytes);
        return true;
    }
    for (uint32_t i = 0; i < e->n_shape; i++)
        t.dims[i] = e->shape[i];
    t.data = (const unsigned char *)h->data.at + e->begin;
    return directory_add_tensor(h->file, &t, h->err);
}

static bool take_entry(struct header *h, struct str name)
{
    struct header_entry e = { .name = name };
    enum json_token token = json_next(&h->scan);

    if (token != JSON_OBJECT)
        return bad_json(h, "expected an object for each tensor");
    while ((token = json_next(&h->scan)) == JSON_KEY)
        if (!take_field(h, &e))
            return false;
    if (token == JSON_ERROR)
        return bad_json(h, "");
    if (!e.has_dtype || !e.has_shape || !e.has_offsets)
        return err_set(h->err, ERR_INPUT, "tensor '%.*s' lacks %s", STR_ARG(name),
                       !e.has_dtype   ? "dtype"
                       : !e.has_shape ? "shape"
                                      : "data_offsets");
    if (h->visit.tensor && !h->visit.tensor(h->visit.owner, name, h->err))
        return false;
    return check_size(h, &e) && add_range(h, &e) && add_tensor(h, &e);
}

// Free text about the file: strings only.
static bool take_metadata(struct header *h)
{
    enum json_token token = json_next(&h->scan);

    if (token != JSON_OBJECT)
        return bad_json(h, "__metadata__ must be an object");
    while ((token = json_next(&h->scan)) == JSON_KEY)
        if (json_next(&h->scan) != JSON_STRING)
            return bad_json(h, "__metadata__ must hold strings only");
    return token == JSON_OBJECT_END ? true : bad_json(h, "");
}

static bool add_prefix(struct header *h, struct str *name)
{
    char text[DIRECTORY_MAX_NAME + 64];

    if (h->visit.prefix.n == 0)
        return true;
    snprintf(text, sizeof text, "%.*s%.*s", STR_ARG(h->visit.prefix), STR_ARG(*name));
    *name = arena_str(h->file->arena, str_from(text));
    return name->at || err_memory(h->err, "a tensor's name");
}

static bool take_entries(struct header *h)
{
    enum json_token token = json_next(&h->scan);
    bool metadata = false;

    if (token != JSON_OBJECT)
        return bad_json(h, "expected an object");
    while ((token = json_next(&h->scan)) == JSON_KEY) {
        struct str name;
        if (!json_unescape(&h->scan, h->file->arena, &name))
            return bad_json(h, "a bad name");
        if (str_is(name, "__metadata__") && !metadata) {
            metadata = true;
            if (!take_metadata(h))
                return false;
            continue;
        }
        if (name.n == 0 || name.n > DIRECTORY_MAX_NAME || !directory_name_ok(name))
            return bad_json(h, "a tensor's name must have 1 to 256 printable bytes");
        if (!add_prefix(h, &name) || !take_entry(h, name))
            return false;
    }
    if (token != JSON_OBJECT_END || json_next(&h->scan) != JSON_END)
        return bad_json(h, "text after the end");
    return true;
}

// No overlap, no hole, nothing behind the last one.
static bool check_cover(struct header *h)
{
    uint64_t expected = 0;

    if (!directory_check_ranges(h->ranges, h->n_ranges, h->err))
        return false;
    for (size_t i = 0; i < h->n_ranges; expected = h->ranges[i++].end)
        if (h->ranges[i].begin != expected)
            return err_set(
                h->err, ERR_INPUT,
                "tensor '%.*s' begins at data byte %llu; expected %llu, where the one before it ends",
                STR_ARG(h->ranges[i].name), (unsigned long long)h->ranges[i].begin,
                (unsigned long long)expected);
    if (expected != h->data.n)
        return err_set(h->err, ERR_INPUT,
                       "the tensors end at data byte %llu, but the file has %zu bytes of data",
                       (unsigned long long)expected, h->data.n);
    return true;
}

// Readers point into the file with the tensor's own type. Where a writer did not align it, a copy stands in.
// Called when no two tensors overlap, so that all copies together are no larger than the file.
static bool align_tensor(struct model_file *file, struct file_tensor *t, struct err *err)
{
    if ((uintptr_t)t->data % quant_info(t->format)->block_bytes == 0)
        return true;
    if (!file->copies)
        log_line(LOG_WARN, "format",
                 "tensor '%.*s' is not aligned to its type in the file: such tensors are copied into memory",
                 STR_ARG(t->name));
    file->copies = file->copies ? file->copies : arena_create(SIZE_MAX);
    unsigned char *copy = file->copies ? arena_alloc(file->copies, (size_t)t->bytes) : NULL;
    if (!copy)
        return err_set(
            err, ERR_MEMORY,
            "tensor '%.*s' is not aligned to its type, and there is no memory for a copy of %llu bytes",
            STR_ARG(t->name), (unsigned long long)t->bytes);
    memcpy(copy, t->data, (size_t)t->bytes);
    t->data = copy;
    return true;
}

bool safetensors_read(struct model_file *file, struct str bytes, struct safetensors_visit visit,
                      struct err *err)
{
    if (bytes.n < 8)
        return err_set(err, ERR_INPUT, "not a safetensors file: %zu bytes, expected at least 10", bytes.n);
    uint64_t n = gguf_value(GGUF_U64, (const unsigned char *)bytes.at).u;
    if (n > HEADER_MAX_BYTES || n < 2 || n > bytes.n - 8)
        return err_set(err, ERR_INPUT, "the header is declared to have %llu bytes; expected 2 to %zu",
                       (unsigned long long)n,
                       bytes.n < HEADER_MAX_BYTES + 8 ? bytes.n - 8 : (size_t)HEADER_MAX_BYTES);
    if (bytes.at[8] != '{')
        return err_set(err, ERR_INPUT, "the header begins with byte %02x; expected '{'",
                       (unsigned char)bytes.at[8]);
    struct header h = { .file = file, .visit = visit, .err = err };
    h.scan = json_begin(str_from_to(bytes, 8, 8 + (size_t)n));
    h.data = str_from_to(bytes, 8 + (size_t)n, bytes.n);
    size_t first = file->n_tensors;
    bool ok = take_entries(&h) && check_cover(&h);
    for (size_t i = first; ok && i < file->n_tensors; i++)
        ok = align_tensor(file, &file->tensors[i], err);
    mem_free(h.ranges);
    return ok;
}
