// gguf_meta.c - values in GGUF's encoding, in which those of JSON files are kept too. See directory.h.
#include "format/directory.h"

size_t gguf_type_bytes(enum gguf_type type)
{
    static const unsigned char bytes[N_GGUF_TYPES] = { 1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8 };
    return bytes[type];
}

enum meta_type gguf_type_meta(enum gguf_type type)
{
    static const unsigned char types[N_GGUF_TYPES] = { META_UINT,   META_INT,   META_UINT,  META_INT,
                                                       META_UINT,   META_INT,   META_FLOAT, META_BOOL,
                                                       META_STRING, META_ARRAY, META_UINT,  META_INT,
                                                       META_FLOAT };
    return (enum meta_type)types[type];
}

static uint64_t load_unsigned(const unsigned char *at, size_t n)
{
    uint64_t v = 0;

    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)at[i] << 8 * i;
    return v;
}

// A scalar's `elements` only say its exact type, so that a writer can keep it.
static const struct meta_elements scalars[N_GGUF_TYPES] = {
    { .type = GGUF_U8 },     { .type = GGUF_I8 },    { .type = GGUF_U16 }, { .type = GGUF_I16 },
    { .type = GGUF_U32 },    { .type = GGUF_I32 },   { .type = GGUF_F32 }, { .type = GGUF_BOOL },
    { .type = GGUF_STRING }, { .type = GGUF_ARRAY }, { .type = GGUF_U64 }, { .type = GGUF_I64 },
    { .type = GGUF_F64 },
};

struct meta gguf_value(enum gguf_type type, const unsigned char *at)
{
    struct meta m = { .type = gguf_type_meta(type), .elements = &scalars[type] };
    uint64_t u = load_unsigned(at, type == GGUF_STRING ? 8 : gguf_type_bytes(type));
    uint32_t narrow = (uint32_t)u;
    float f;

    if (type == GGUF_F32) {
        memcpy(&f, &narrow, sizeof f);
        m.f = (double)f;
    } else if (type == GGUF_F64) {
        memcpy(&m.f, &u, sizeof m.f);
    } else if (m.type == META_INT) {
        unsigned unused = 64 - 8 * (unsigned)gguf_type_bytes(type);
        m.i = (int64_t)(u << unused) >> unused; // sign extension; both compilers shift arithmetically
    } else if (m.type == META_BOOL) {
        m.b = u != 0;
    } else if (m.type == META_STRING) {
        m.s = (struct str){ (const char *)at + 8, (size_t)u };
    } else {
        m.u = u;
    }
    return m;
}

struct meta meta_at(const struct meta *array, uint64_t index)
{
    CHECK(array->type == META_ARRAY && index < array->n);
    const struct meta_elements *elements = array->elements;
    uint64_t offset =
        elements->type == GGUF_STRING ? elements->offsets[index] : index * gguf_type_bytes(elements->type);
    return gguf_value(elements->type, elements->data + offset);
}
