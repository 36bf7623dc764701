// json_values.c - see json_values.h.
#include "format/json_values.h"
#include "format/json_scan.h"

struct flatten {
    struct model_file *file;
    struct json_scan scan;
    struct err *err;
    char path[JSON_MAX_PATH + 1];
    size_t path_n;
    struct json_level {
        size_t path_n; // of the container's own name
        uint32_t next; // index of an array's next element
        bool object;
    } levels[JSON_MAX_DEPTH + 1];
    uint32_t depth;
};

static bool scan_failed(struct flatten *f, const char *problem)
{
    return err_set(f->err, ERR_INPUT, "not valid JSON at byte %zu: %s", f->scan.pos,
                   f->scan.problem ? f->scan.problem : problem);
}

static bool push_name(struct flatten *f, struct str name)
{
    if (name.n + 2 > JSON_MAX_PATH - f->path_n)
        return err_set(f->err, ERR_LIMIT, "a key longer than %d bytes at byte %zu", JSON_MAX_PATH,
                       f->scan.pos);
    if (f->path_n && f->path[f->path_n - 1] != '.')
        f->path[f->path_n++] = '.';
    memcpy(f->path + f->path_n, name.at, name.n);
    f->path_n += name.n;
    return true;
}

static bool number(struct flatten *f, struct meta *m)
{
    struct str text = f->scan.text;
    bool real = false;

    for (size_t i = 0; i < text.n; i++)
        real |= strchr(".eENI", text.at[i]) != NULL;
    m->type = META_UINT;
    if (!real && str_to_u64(text, &m->u))
        return true;
    m->type = META_INT;
    if (!real && str_to_i64(text, &m->i))
        return true;
    m->type = META_FLOAT;
    return str_to_f64(text, &m->f) ? true : scan_failed(f, "a number out of range");
}

static bool scalar(struct flatten *f, enum json_token token, struct meta *m)
{
    if (token == JSON_NUMBER)
        return number(f, m);
    if (token == JSON_STRING) {
        m->type = META_STRING;
        return json_unescape(&f->scan, f->file->arena, &m->s) ? true : scan_failed(f, "a bad string");
    }
    m->type = META_BOOL;
    m->b = token == JSON_TRUE;
    return true;
}

static bool is_scalar(enum json_token token)
{
    return token == JSON_NUMBER || token == JSON_STRING || token == JSON_TRUE || token == JSON_FALSE;
}

static bool is_number(enum meta_type type)
{
    return type == META_UINT || type == META_INT || type == META_FLOAT;
}

// One element in GGUF's encoding; integers become floats or signed where a neighbour is.
static void put_element(struct buf *out, const struct meta *m, enum meta_type as)
{
    double f = m->type == META_UINT ? (double)m->u : m->type == META_INT ? (double)m->i : m->f;
    uint64_t n = m->s.n;

    if (as == META_STRING) {
        buf_append(out, &n, sizeof n);
        buf_str(out, m->s);
    } else if (as == META_BOOL) {
        buf_append(out, &m->b, 1);
    } else {
        buf_append(out, as == META_FLOAT ? (const void *)&f : (const void *)&m->u, 8);
    }
}

// What all elements have in common; false when they are no plain array. The scan ends behind the array.
static bool common_type(struct flatten *f, enum meta_type *type, uint64_t *n)
{
    enum json_token token;
    bool huge = false;

    for (*n = 0; (token = json_next(&f->scan)) != JSON_ARRAY_END; ++*n) {
        struct meta m = { 0 };
        struct flatten quiet = { .scan = f->scan };
        if (!is_scalar(token))
            return false;
        m.type = token == JSON_STRING ? META_STRING : META_BOOL;
        if (token == JSON_NUMBER && !number(&quiet, &m))
            return false;
        if (*n == 0)
            *type = m.type;
        else if (is_number(*type) && is_number(m.type)) // UINT < INT < FLOAT
            *type = m.type > *type ? m.type : *type;
        else if (*type != m.type)
            return false;
        huge |= m.type == META_UINT && m.u > INT64_MAX;
    }
    if (*n && *type == META_INT && huge)
        *type = META_FLOAT;
    return true;
}

static bool encode_array(struct flatten *f, struct meta *array, struct buf *out, uint64_t *offsets)
{
    for (uint64_t i = 0; i < array->n; i++) {
        struct meta m = { 0 };
        offsets[array->element == META_STRING ? i : 0] = out->n;
        if (!scalar(f, json_next(&f->scan), &m))
            return false;
        put_element(out, &m, array->element);
    }
    json_next(&f->scan);
    return out->failed ? err_memory(f->err, "an array") : true;
}

static bool add_array(struct flatten *f, struct meta *array)
{
    static const enum gguf_type types[] = { [META_UINT] = GGUF_U64,
                                            [META_INT] = GGUF_I64,
                                            [META_FLOAT] = GGUF_F64,
                                            [META_BOOL] = GGUF_BOOL,
                                            [META_STRING] = GGUF_STRING };
    struct arena *arena = f->file->arena;
    struct meta_elements *elements = arena_alloc(arena, sizeof *elements);
    uint64_t *offsets =
        arena_alloc_array(arena, array->element == META_STRING ? array->n + 1 : 1, sizeof *offsets);
    struct buf out = { 0 };

    bool ok = elements && offsets ? encode_array(f, array, &out, offsets) : err_memory(f->err, "an array");
    struct str data = ok ? arena_str(arena, buf_as_str(&out)) : (struct str){ 0 };
    buf_free(&out);
    if (!ok)
        return false;
    if (!data.at)
        return err_memory(f->err, "an array");
    *elements = (struct meta_elements){ types[array->element], (const unsigned char *)data.at, offsets };
    array->elements = elements;
    return directory_add_meta(f->file, array, f->err);
}

static bool set_key(struct flatten *f, struct meta *m)
{
    m->key = arena_str(f->file->arena, (struct str){ f->path, f->path_n });
    return m->key.at ? true : err_memory(f->err, "a key");
}

static bool enter(struct flatten *f, bool object)
{
    f->levels[f->depth] = (struct json_level){ f->path_n, 0, object };
    f->depth++;
    return true;
}

// An array whose elements are alike becomes one value; otherwise the scan goes back and its elements get
// names of their own.
static bool array_value(struct flatten *f)
{
    struct meta array = { .type = META_ARRAY };
    struct json_scan start = f->scan;
    bool plain = common_type(f, &array.element, &array.n);

    if (f->scan.problem)
        return scan_failed(f, "");
    f->scan = start;
    if (!plain)
        return enter(f, false);
    return set_key(f, &array) && add_array(f, &array);
}

static bool value(struct flatten *f, enum json_token token)
{
    struct meta m = { 0 };

    if (token == JSON_OBJECT)
        return enter(f, true);
    if (token == JSON_ARRAY)
        return array_value(f);
    if (token == JSON_NULL)
        return true;
    return scalar(f, token, &m) && set_key(f, &m) && directory_add_meta(f->file, &m, f->err);
}

static bool key(struct flatten *f)
{
    struct str name;

    if (!json_unescape(&f->scan, f->file->arena, &name))
        return scan_failed(f, "a bad key");
    if (!directory_name_ok(name))
        return scan_failed(f, "a control byte in a key");
    f->path_n = f->levels[f->depth - 1].path_n;
    return push_name(f, name);
}

static bool element_name(struct flatten *f)
{
    struct json_level *top = &f->levels[f->depth - 1];
    char digits[16];

    if (top->object)
        return true;
    f->path_n = top->path_n;
    int n = snprintf(digits, sizeof digits, "%u", top->next++);
    return push_name(f, (struct str){ digits, (size_t)n });
}

static bool flatten_all(struct flatten *f)
{
    if (json_next(&f->scan) != JSON_OBJECT)
        return scan_failed(f, "expected an object");
    enter(f, true);
    while (f->depth > 0) {
        enum json_token token = json_next(&f->scan);
        if (token == JSON_ERROR)
            return scan_failed(f, "");
        if (token == JSON_OBJECT_END || token == JSON_ARRAY_END)
            f->depth--;
        else if (token == JSON_KEY ? !key(f) : !element_name(f) || !value(f, token))
            return false;
    }
    return json_next(&f->scan) == JSON_END ? true : scan_failed(f, "text after the end");
}

bool json_values_add(struct model_file *file, struct str text, const char *prefix, const char *name,
                     struct err *err)
{
    struct flatten f = { .file = file, .scan = json_begin(text), .err = err };

    f.path_n = strlen(prefix);
    CHECK(f.path_n < JSON_MAX_PATH / 2);
    memcpy(f.path, prefix, f.path_n);
    return flatten_all(&f) ? true : err_prefix(err, "%s", name);
}
