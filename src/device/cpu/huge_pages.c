// huge_pages.c - see huge_pages.h.
#include "device/cpu/huge_pages.h"
#include "base/mem.h"

enum { CHUNK_BYTES = 64 << 20, HUGE_BYTES = 2 << 20, LINE = 64 };

struct huge_chunk {
    unsigned char *at;
    size_t bytes, used, n_live;
};

static struct huge_chunk *chunk_new(size_t bytes)
{
    struct huge_chunk *c = mem_alloc(sizeof *c);

    if (!c)
        return NULL;
    // A multiple of 2 MB, which is what makes the system align it. What is not touched costs nothing.
    c->bytes = bytes > CHUNK_BYTES / 4 ? (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES : CHUNK_BYTES;
    c->at = mem_alloc_pages(c->bytes);
    if (c->at)
        return c;
    mem_free(c);
    return NULL;
}

void *huge_chunk_take(struct huge_chunk **newest, size_t bytes, struct huge_chunk **owner)
{
    size_t rounded = (bytes + LINE - 1) / LINE * LINE;
    struct huge_chunk *c = *newest;

    if (rounded < bytes || rounded > SIZE_MAX - HUGE_BYTES)
        return NULL;
    if (!c || c->bytes - c->used < rounded) {
        c = chunk_new(rounded);
        if (!c)
            return NULL;
        if (c->bytes == CHUNK_BYTES) // else the chunk is one large buffer's own, and full
            *newest = c;
    }
    *owner = c;
    c->n_live++;
    c->used += rounded;
    return c->at + c->used - rounded;
}

void huge_chunk_drop(struct huge_chunk **newest, struct huge_chunk *owner)
{
    if (--owner->n_live > 0)
        return;
    if (*newest == owner)
        *newest = NULL;
    mem_free_pages(owner->at, owner->bytes);
    mem_free(owner);
}
