// gguf.c - the GGUF reader.
//
// A file is a header, key-value pairs, tensor descriptions, and the tensors' bytes at an aligned offset.
// Everything is read through one bounded reader; counts are compared with the bytes that are left before they
// are believed; products are checked before they are rounded up. Strings and tensors stay in the mapping.
// Files in big-endian order and version 1 are refused. A split model is several such files; only the first
// one's values count.
#include "format/gguf.h"
#include "base/mem.h"

// Tensors are read through pointers to their own types, and no writer uses less than 32.
enum { ALIGNMENT_DEFAULT = 32, ALIGNMENT_MIN = 8, ALIGNMENT_MAX = 65536, MAX_PATH = 4096 };
enum { META_MIN_BYTES = 8 + 1 + 4 + 1, TENSOR_MIN_BYTES = 8 + 1 + 4 + 8 + 4 + 8 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "tensors are used as they lie in the file");

struct gguf_reader {
    const unsigned char *at;
    uint64_t pos, end;
    struct err *err;
};

struct gguf_image {
    struct model_file *file;
    struct gguf_reader r;
    bool first; // of a split, or alone: its values are kept
    uint64_t n_tensors, n_metas, alignment, data_begin, data_bytes;
    struct gguf_split {
        uint64_t count, no, n_tensors; // count 0: not split
    } split;
    struct byte_range *ranges;
};

static bool take(struct gguf_reader *r, uint64_t n, const char *what, const unsigned char **bytes)
{
    *bytes = NULL;
    if (n > r->end - r->pos)
        return err_set(r->err, ERR_INPUT,
                       "%s needs %llu bytes at offset %llu, but the file ends after %llu more; it is cut "
                       "short or damaged",
                       what, (unsigned long long)n, (unsigned long long)r->pos,
                       (unsigned long long)(r->end - r->pos));
    *bytes = r->at + r->pos;
    r->pos += n;
    return true;
}

static bool take_number(struct gguf_reader *r, enum gguf_type type, const char *what, uint64_t *value)
{
    const unsigned char *at;

    if (!take(r, gguf_type_bytes(type), what, &at))
        return false;
    *value = gguf_value(type, at).u;
    return true;
}

static bool take_string(struct gguf_reader *r, const char *what, struct str *text)
{
    uint64_t n;
    const unsigned char *at;

    if (!take_number(r, GGUF_U64, what, &n) || !take(r, n, what, &at))
        return false;
    *text = (struct str){ (const char *)at, (size_t)n };
    return true;
}

// A name that may stand in messages: not empty, at most `max` bytes, printable.
static bool take_name(struct gguf_reader *r, const char *what, size_t max, struct str *name)
{
    uint64_t at = r->pos;

    if (!take_string(r, what, name))
        return false;
    if (name->n == 0 || name->n > max)
        return err_set(r->err, ERR_INPUT, "%s at offset %llu has %zu bytes; expected 1 to %zu", what,
                       (unsigned long long)at, name->n, max);
    return directory_name_ok(*name) ? true
                                    : err_set(r->err, ERR_INPUT, "%s at offset %llu is not printable UTF-8",
                                              what, (unsigned long long)at);
}

static bool take_header(struct gguf_image *image)
{
    struct gguf_reader *r = &image->r;
    const unsigned char *magic;
    uint64_t version;

    if (!take(r, 4, "the magic", &magic))
        return false;
    if (memcmp(magic, "GGUF", 4) != 0)
        return err_set(r->err, ERR_INPUT,
                       "not a GGUF file: it begins with bytes %02x %02x %02x %02x, expected 'GGUF'", magic[0],
                       magic[1], magic[2], magic[3]);
    if (!take_number(r, GGUF_U32, "the version", &version))
        return false;
    if (version != 0 && (version & 0xffffff) == 0)
        return err_set(r->err, ERR_UNSUPPORTED,
                       "a big-endian GGUF file; only little-endian ones are read: convert it again");
    if (version != 2 && version != 3)
        return err_set(r->err, ERR_UNSUPPORTED, "GGUF version %llu; versions 2 and 3 are read",
                       (unsigned long long)version);
    if (!take_number(r, GGUF_U64, "the number of tensors", &image->n_tensors) ||
        !take_number(r, GGUF_U64, "the number of keys", &image->n_metas))
        return false;
    uint64_t left = r->end - r->pos;
    if (image->n_tensors > left / TENSOR_MIN_BYTES || image->n_metas > left / META_MIN_BYTES)
        return err_set(r->err, ERR_INPUT,
                       "%llu tensors and %llu keys are declared, but only %llu bytes follow",
                       (unsigned long long)image->n_tensors, (unsigned long long)image->n_metas,
                       (unsigned long long)left);
    return true;
}

static bool take_type(struct gguf_reader *r, struct str key, enum gguf_type *type)
{
    uint64_t t = 0;

    *type = GGUF_U8;
    if (!take_number(r, GGUF_U32, "a value's type", &t))
        return false;
    if (t >= N_GGUF_TYPES)
        return err_set(r->err, ERR_INPUT, "key '%.*s' has type %llu; types 0 to %d exist", STR_ARG(key),
                       (unsigned long long)t, N_GGUF_TYPES - 1);
    *type = (enum gguf_type)t;
    return true;
}

static bool check_bools(struct gguf_reader *r, struct str key, const unsigned char *at, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (at[i] > 1)
            return err_set(r->err, ERR_INPUT, "key '%.*s' holds a bool of %d; expected 0 or 1", STR_ARG(key),
                           at[i]);
    return true;
}

// Strings have no fixed place, so where each begins is noted once. n was compared with the bytes left.
static bool take_strings(struct gguf_image *image, struct meta *m, struct meta_elements *elements)
{
    struct gguf_reader *r = &image->r;
    uint64_t *offsets = arena_alloc_array(image->file->arena, (size_t)m->n, sizeof *offsets);
    struct str text;

    if (!offsets)
        return err_set(r->err, ERR_LIMIT, "key '%.*s': no memory for an array of %llu strings",
                       STR_ARG(m->key), (unsigned long long)m->n);
    elements->data = r->at + r->pos;
    elements->offsets = offsets;
    for (uint64_t i = 0; i < m->n; i++) {
        offsets[i] = (uint64_t)(r->at + r->pos - elements->data);
        if (!take_string(r, "a string of an array", &text))
            return err_prefix(r->err, "key '%.*s'", STR_ARG(m->key));
    }
    return true;
}

static bool take_array(struct gguf_image *image, struct meta *m)
{
    struct gguf_reader *r = &image->r;
    struct meta_elements *elements = arena_alloc(image->file->arena, sizeof *elements);
    enum gguf_type type;

    if (!elements)
        return err_memory(r->err, "an array's description");
    if (!take_type(r, m->key, &type) || !take_number(r, GGUF_U64, "an array's length", &m->n))
        return false;
    if (type == GGUF_ARRAY)
        return err_set(r->err, ERR_UNSUPPORTED, "key '%.*s' is an array of arrays; no known model needs one",
                       STR_ARG(m->key));
    m->element = gguf_type_meta(type);
    m->elements = elements;
    elements->type = type;
    uint64_t each = type == GGUF_STRING ? 8 : gguf_type_bytes(type), left = r->end - r->pos;
    if (m->n > left / each)
        return err_set(r->err, ERR_INPUT,
                       "key '%.*s' declares %llu elements of at least %llu bytes, but only %llu bytes follow",
                       STR_ARG(m->key), (unsigned long long)m->n, (unsigned long long)each,
                       (unsigned long long)left);
    if (type == GGUF_STRING)
        return take_strings(image, m, elements);
    return take(r, m->n * each, "an array", &elements->data) &&
           (type != GGUF_BOOL || check_bools(r, m->key, elements->data, m->n));
}

static bool take_value(struct gguf_image *image, struct meta *m)
{
    struct gguf_reader *r = &image->r;
    struct str key = m->key;
    enum gguf_type type;
    const unsigned char *at = NULL;

    if (!take_type(r, key, &type))
        return false;
    m->type = gguf_type_meta(type);
    if (type == GGUF_ARRAY)
        return take_array(image, m);
    if (type == GGUF_STRING)
        return take_string(r, "a string", &m->s) ? true : err_prefix(r->err, "key '%.*s'", STR_ARG(key));
    if (!take(r, gguf_type_bytes(type), "a value", &at))
        return err_prefix(r->err, "key '%.*s'", STR_ARG(key));
    if (type == GGUF_BOOL && !check_bools(r, key, at, 1))
        return false;
    *m = gguf_value(type, at);
    m->key = key;
    return true;
}

// The few keys that say how the file itself is laid out.
static bool take_layout(struct gguf_image *image, const struct meta *m)
{
    static const char *const keys[] = { "general.alignment", "split.count", "split.no",
                                        "split.tensors.count" };
    uint64_t *const fields[] = { &image->alignment, &image->split.count, &image->split.no,
                                 &image->split.n_tensors };
    size_t which = 0;

    while (which < 4 && !str_is(m->key, keys[which]))
        which++;
    if (which == 4)
        return true;
    // split.tensors.count is written as a signed number
    if (m->type != META_UINT && !(m->type == META_INT && m->i >= 0))
        return err_set(image->r.err, ERR_INPUT, "key '%s' is no unsigned integer", keys[which]);
    uint64_t a = *fields[which] = m->u;
    if (which == 0 && (a < ALIGNMENT_MIN || a > ALIGNMENT_MAX || (a & (a - 1)) != 0))
        return err_set(image->r.err, ERR_INPUT,
                       "general.alignment is %llu; expected a power of two from %d to %d",
                       (unsigned long long)a, ALIGNMENT_MIN, ALIGNMENT_MAX);
    if (which == 1 && a == 0)
        return err_set(image->r.err, ERR_INPUT, "split.count is 0; expected at least 1");
    return true;
}

static bool take_metas(struct gguf_image *image)
{
    for (uint64_t i = 0; i < image->n_metas; i++) {
        struct meta m = { 0 };
        if (!take_name(&image->r, "a key", DIRECTORY_MAX_KEY, &m.key) || !take_value(image, &m) ||
            !take_layout(image, &m))
            return false;
        if (image->first && !directory_add_meta(image->file, &m, image->r.err))
            return false;
    }
    return true;
}

static const char *foreign_type(uint64_t id)
{
    static const struct {
        uint32_t id;
        const char *name;
    } types[] = {
        { 9, "Q8_1" }, { 15, "Q8_K" },  { 24, "I8" },   { 25, "I16" },  { 27, "I64" },
        { 28, "F64" }, { 40, "NVFP4" }, { 41, "Q1_0" }, { 42, "Q2_0" },
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].id == id)
            return types[i].name;
    return "unknown or removed";
}

static bool take_dims(struct gguf_image *image, struct file_tensor *t)
{
    struct gguf_reader *r = &image->r;
    uint64_t n_dims, n = 1;

    if (!take_number(r, GGUF_U32, "a tensor's number of dimensions", &n_dims))
        return false;
    if (n_dims < 1 || n_dims > TENSOR_MAX_DIMS)
        return err_set(r->err, ERR_INPUT, "tensor '%.*s' has %llu dimensions; expected 1 to %d",
                       STR_ARG(t->name), (unsigned long long)n_dims, TENSOR_MAX_DIMS);
    t->n_dims = (uint32_t)n_dims;
    for (uint32_t i = 0; i < TENSOR_MAX_DIMS; i++)
        t->dims[i] = 1;
    for (uint32_t i = t->n_dims; i-- > 0;) { // the file has the fastest first
        if (!take_number(r, GGUF_U64, "a tensor's dimension", &t->dims[i]))
            return false;
        if (t->dims[i] == 0 || __builtin_mul_overflow(n, t->dims[i], &n) || n > INT64_MAX)
            return err_set(
                r->err, ERR_INPUT,
                "tensor '%.*s' has a dimension of %llu; expected 1 or more, and fewer than 2^63 elements",
                STR_ARG(t->name), (unsigned long long)t->dims[i]);
    }
    t->bytes = n; // elements, until the type is known
    return true;
}

static bool take_format(struct gguf_image *image, struct file_tensor *t)
{
    struct gguf_reader *r = &image->r;
    uint64_t id, n_cols = t->dims[t->n_dims - 1];

    if (!take_number(r, GGUF_U32, "a tensor's type", &id))
        return false;
    if (!quant_from_ggml_id((uint32_t)id, &t->format))
        return err_set(
            r->err, ERR_UNSUPPORTED,
            "tensor '%.*s' has type %llu (%s), which is not read; convert the model to another type",
            STR_ARG(t->name), (unsigned long long)id, foreign_type(id));
    const struct quant_info *info = quant_info(t->format);
    if (n_cols % info->block_elements != 0)
        return err_set(r->err, ERR_INPUT,
                       "tensor '%.*s' has rows of %llu elements; %s needs a multiple of %u", STR_ARG(t->name),
                       (unsigned long long)n_cols, info->name, info->block_elements);
    if (!quant_bytes(t->format, t->bytes / n_cols, n_cols, &t->bytes))
        return err_set(r->err, ERR_INPUT, "tensor '%.*s' is larger than 2^64 bytes", STR_ARG(t->name));
    return true;
}

// The tensors' bytes begin after all descriptions, so a description keeps its offset in ranges until then.
static bool take_tensors(struct gguf_image *image)
{
    struct gguf_reader *r = &image->r;

    for (uint64_t i = 0; i < image->n_tensors; i++) {
        struct file_tensor t = { 0 };
        uint64_t offset;
        if (!take_name(r, "a tensor's name", DIRECTORY_MAX_NAME, &t.name) || !take_dims(image, &t) ||
            !take_format(image, &t) || !take_number(r, GGUF_U64, "a tensor's offset", &offset))
            return false;
        if (offset % image->alignment != 0)
            return err_set(r->err, ERR_INPUT,
                           "tensor '%.*s' lies at data byte %llu, which is no multiple of the alignment %llu",
                           STR_ARG(t.name), (unsigned long long)offset, (unsigned long long)image->alignment);
        image->ranges[i] = (struct byte_range){ offset, t.bytes, t.name };
        if (!directory_add_tensor(image->file, &t, r->err))
            return false;
    }
    return true;
}

static bool place_tensors(struct gguf_image *image, size_t first)
{
    struct gguf_reader *r = &image->r;
    uint64_t begin = (r->pos + image->alignment - 1) / image->alignment * image->alignment;
    uint64_t left = begin < r->end ? r->end - begin : 0;

    for (uint64_t i = 0; i < image->n_tensors; i++) {
        struct byte_range *range = &image->ranges[i];
        uint64_t offset = range->begin, bytes = range->end;
        if (offset > left || bytes > left - offset)
            return err_set(r->err, ERR_INPUT,
                           "tensor '%.*s' needs %llu bytes at data byte %llu, but the file has %llu bytes of "
                           "data; it is cut short",
                           STR_ARG(range->name), (unsigned long long)bytes, (unsigned long long)offset,
                           (unsigned long long)left);
        range->end = offset + bytes;
        image->file->tensors[first + i].data = r->at + begin + offset;
    }
    return directory_check_ranges(image->ranges, (size_t)image->n_tensors, r->err);
}

static bool image_read(struct gguf_image *image)
{
    struct model_file *file = image->file;
    size_t before = file->n_tensors;

    image->alignment = ALIGNMENT_DEFAULT;
    if (!take_header(image) || !take_metas(image))
        return false;
    if (image->n_tensors > DIRECTORY_MAX_TENSORS)
        return err_set(image->r.err, ERR_LIMIT, "%llu tensors; at most %d are read",
                       (unsigned long long)image->n_tensors, DIRECTORY_MAX_TENSORS);
    image->ranges = mem_alloc_array((size_t)image->n_tensors + 1, sizeof *image->ranges);
    if (!image->ranges)
        return err_memory(image->r.err, "the list of tensors");
    bool ok = take_tensors(image) && place_tensors(image, before);
    mem_free(image->ranges);
    return ok;
}

bool gguf_open_memory(struct model_file *file, struct str bytes, struct err *err)
{
    struct gguf_image image = { .file = file,
                                .first = true,
                                .r = { (const unsigned char *)bytes.at, 0, bytes.n, err } };

    if ((uintptr_t)bytes.at % ALIGNMENT_MIN != 0)
        return err_set(err, ERR_INPUT, "a GGUF image in memory must begin at a multiple of %d",
                       ALIGNMENT_MIN);
    if (!image_read(&image))
        return false;
    return image.split.count <= 1
               ? true
               : err_set(err, ERR_UNSUPPORTED, "part of a split model; an image in memory must be whole");
}

// "name-00001-of-00003.gguf" -> "name"; false when the path is not named so.
static bool split_stem(const char *path, const struct gguf_split *split, struct str *stem)
{
    char suffix[64];
    struct str whole = str_from(path);

    snprintf(suffix, sizeof suffix, "-%05llu-of-%05llu.gguf", (unsigned long long)split->no + 1,
             (unsigned long long)split->count);
    if (split->count > 99999 || split->no > 99998 || !str_ends(whole, str_from(suffix)))
        return false;
    *stem = str_from_to(whole, 0, whole.n - strlen(suffix));
    return true;
}

static bool split_part(struct model_file *file, struct str stem, const struct gguf_split *first, uint64_t no,
                       struct err *err)
{
    char path[MAX_PATH];
    struct str bytes;
    int n = snprintf(path, sizeof path, "%.*s-%05llu-of-%05llu.gguf", (int)stem.n, stem.at,
                     (unsigned long long)no + 1, (unsigned long long)first->count);

    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, ERR_INPUT, "the path is longer than %d bytes", MAX_PATH - 1);
    if (!directory_map(file, path, &bytes, err))
        return err_prefix(err, "part %llu of %llu", (unsigned long long)no + 1,
                          (unsigned long long)first->count);
    struct gguf_image image = { .file = file, .r = { (const unsigned char *)bytes.at, 0, bytes.n, err } };
    if (!image_read(&image))
        return err_prefix(err, "%s", path);
    if (image.split.count != first->count || image.split.no != no)
        return err_set(err, ERR_INPUT, "%s says it is part %llu of %llu; expected part %llu of %llu", path,
                       (unsigned long long)image.split.no + 1, (unsigned long long)image.split.count,
                       (unsigned long long)no + 1, (unsigned long long)first->count);
    return true;
}

bool gguf_open(struct model_file *file, struct err *err)
{
    struct str bytes, stem;

    if (!directory_map(file, file->path, &bytes, err))
        return false;
    struct gguf_image image = { .file = file,
                                .first = true,
                                .r = { (const unsigned char *)bytes.at, 0, bytes.n, err } };
    if (!image_read(&image))
        return err_prefix(err, "%s", file->path);
    struct gguf_split split = image.split;
    if (split.count <= 1)
        return true;
    if (split.no != 0)
        return err_set(err, ERR_INPUT, "%s: part %llu of %llu; open the first part, which finds the others",
                       file->path, (unsigned long long)split.no + 1, (unsigned long long)split.count);
    if (!split_stem(file->path, &split, &stem))
        return err_set(err, ERR_INPUT, "%s: the first of %llu parts must be named NAME-00001-of-%05llu.gguf",
                       file->path, (unsigned long long)split.count, (unsigned long long)split.count);
    for (uint64_t no = 1; no < split.count; no++)
        if (!split_part(file, stem, &split, no, err))
            return false;
    if (file->n_tensors != split.n_tensors)
        return err_set(err, ERR_INPUT, "%s: the parts hold %zu tensors; split.tensors.count says %llu",
                       file->path, file->n_tensors, (unsigned long long)split.n_tensors);
    return true;
}
