// gguf_builder.h - GGUF images in memory for tests: values, tensors, any bytes, right or wrong.
//
// Values and tensors are appended in order; gguf_image puts header, values, descriptions and data together.
// The counters and the parts are open: a test that wants a broken file changes them, or appends bytes of its
// own. The image is aligned to 64 bytes.
//
//     struct gguf_builder g = { .version = 3 };
//     gguf_meta_str(&g, "general.architecture", "llama");
//     gguf_tensor(&g, "token_embd.weight", 0, 2, (uint64_t[]){ 32, 100 }, data, 32 * 100 * 4);
//     gguf_image(&g); // g.image, g.n
//     gguf_builder_free(&g);
#pragma once
#include <stdlib.h>
#include "base/mem.h"
#include "base/str.h"

struct gguf_builder {
    uint32_t version;   // 3
    uint64_t alignment; // 0: 32, not written as a key
    uint64_t n_metas, n_tensors;
    struct buf metas, infos, data;
    unsigned char *image;
    size_t n;
};

static inline void gguf_u32(struct buf *b, uint32_t v)
{
    buf_append(b, &v, 4);
}
static inline void gguf_u64(struct buf *b, uint64_t v)
{
    buf_append(b, &v, 8);
}
static inline void gguf_str(struct buf *b, struct str s)
{
    gguf_u64(b, s.n);
    buf_str(b, s);
}

// A value of `type` (GGUF's number) whose n bytes are given as they shall stand in the file.
static inline void gguf_meta(struct gguf_builder *g, const char *key, uint32_t type, const void *bytes,
                             size_t n)
{
    gguf_str(&g->metas, str_from(key));
    gguf_u32(&g->metas, type);
    buf_append(&g->metas, bytes, n);
    g->n_metas++;
}
static inline void gguf_meta_u32(struct gguf_builder *g, const char *key, uint32_t v)
{
    gguf_meta(g, key, 4, &v, 4);
}
static inline void gguf_meta_f32(struct gguf_builder *g, const char *key, float v)
{
    gguf_meta(g, key, 6, &v, 4);
}
static inline void gguf_meta_bool(struct gguf_builder *g, const char *key, bool v)
{
    unsigned char b = v;
    gguf_meta(g, key, 7, &b, 1);
}
static inline void gguf_meta_str(struct gguf_builder *g, const char *key, const char *v)
{
    gguf_meta(g, key, 8, NULL, 0);
    gguf_str(&g->metas, str_from(v));
}
// An array of n elements whose bytes are given.
static inline void gguf_meta_array(struct gguf_builder *g, const char *key, uint32_t element_type, uint64_t n,
                                   const void *bytes, size_t n_bytes)
{
    gguf_meta(g, key, 9, NULL, 0);
    gguf_u32(&g->metas, element_type);
    gguf_u64(&g->metas, n);
    buf_append(&g->metas, bytes, n_bytes);
}
static inline void gguf_meta_strs(struct gguf_builder *g, const char *key, uint64_t n,
                                  const char *const *texts)
{
    gguf_meta_array(g, key, 8, n, NULL, 0);
    for (uint64_t i = 0; i < n; i++)
        gguf_str(&g->metas, str_from(texts[i]));
}

static inline void gguf_pad(struct buf *b, uint64_t alignment)
{
    while (b->n % alignment != 0)
        buf_append(b, "", 1);
}

// A description alone: offset counts from the begin of the data.
static inline void gguf_tensor_info(struct gguf_builder *g, const char *name, uint32_t type, uint32_t n_dims,
                                    const uint64_t *dims, uint64_t offset)
{
    gguf_str(&g->infos, str_from(name));
    gguf_u32(&g->infos, n_dims);
    for (uint32_t i = 0; i < n_dims && dims; i++)
        gguf_u64(&g->infos, dims[i]);
    gguf_u32(&g->infos, type);
    gguf_u64(&g->infos, offset);
    g->n_tensors++;
}

// dims with the fastest first, as in the file. type: GGUF's number. bytes NULL: zeros.
static inline void gguf_tensor(struct gguf_builder *g, const char *name, uint32_t type, uint32_t n_dims,
                               const uint64_t *dims, const void *bytes, size_t n)
{
    gguf_pad(&g->data, g->alignment ? g->alignment : 32);
    gguf_tensor_info(g, name, type, n_dims, dims, g->data.n);
    for (size_t i = 0; !bytes && i < n; i++)
        buf_append(&g->data, "", 1);
    if (bytes)
        buf_append(&g->data, bytes, n);
}

static inline void gguf_image(struct gguf_builder *g)
{
    struct buf b = { 0 };

    buf_text(&b, "GGUF");
    gguf_u32(&b, g->version ? g->version : 3);
    gguf_u64(&b, g->n_tensors);
    gguf_u64(&b, g->n_metas);
    buf_str(&b, buf_as_str(&g->metas));
    buf_str(&b, buf_as_str(&g->infos));
    if (g->data.n)
        gguf_pad(&b, g->alignment ? g->alignment : 32);
    buf_str(&b, buf_as_str(&g->data));
    mem_free_aligned(g->image);
    g->n = b.n;
    g->image = mem_alloc_aligned(b.n ? b.n : 1, 64);
    memcpy(g->image, b.at, b.n);
    buf_free(&b);
}

static inline void gguf_builder_free(struct gguf_builder *g)
{
    buf_free(&g->metas);
    buf_free(&g->infos);
    buf_free(&g->data);
    mem_free_aligned(g->image);
    *g = (struct gguf_builder){ 0 };
}
