// hash_index.c - see hash_index.h.
#include "base/hash_index.h"
#include <string.h>
#include "base/mem.h"

enum { FIRST_SIZE = 64 }; // sizes are powers of two

static void put(struct hash_index *x, struct hash_slot slot)
{
    uint32_t at = slot.hash & (x->size - 1);

    while (x->slots[at].number)
        at = (at + 1) & (x->size - 1);
    x->slots[at] = slot;
}

bool hash_index_reserve(struct hash_index *x)
{
    struct hash_index more = { .size = x->size ? 2 * x->size : FIRST_SIZE, .n = x->n };

    if (2 * (uint64_t)x->n < x->size)
        return true;
    more.slots = more.size ? mem_alloc_array(more.size, sizeof *more.slots) : NULL;
    if (!more.slots)
        return false;
    for (uint32_t i = 0; i < x->size; i++)
        if (x->slots[i].number)
            put(&more, x->slots[i]);
    mem_free(x->slots);
    *x = more;
    return true;
}

void hash_index_add(struct hash_index *x, uint64_t hash, uint32_t number)
{
    put(x, (struct hash_slot){ (uint32_t)hash, number + 1 });
    x->n++;
}

void hash_index_clear(struct hash_index *x)
{
    if (x->slots)
        memset(x->slots, 0, x->size * sizeof *x->slots);
    x->n = 0;
}

void hash_index_free(struct hash_index *x)
{
    mem_free(x->slots);
    *x = (struct hash_index){ 0 };
}
