// hash_index.h - finds the number of an element by a hash: the elements lie in an array of the caller's, who
// compares them.
//
// Open addressing at a load of at most one half. Hashes are kept beside the numbers, so that the table grows
// without asking the caller. Nothing is removed. One thread at a time.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct hash_slot {
    uint32_t hash, number; // number + 1; 0: free
};
struct hash_index { // zeroed: empty
    struct hash_slot *slots;
    uint32_t size, n;
};

// Room for one more. False: no memory, and x is as it was.
bool hash_index_reserve(struct hash_index *x);
void hash_index_add(struct hash_index *x, uint64_t hash, uint32_t number); // after hash_index_reserve
void hash_index_clear(struct hash_index *x);                               // keeps the room
void hash_index_free(struct hash_index *x);

// The numbers whose hash has the same lower 32 bits, one after the other:
//   for (struct hash_probe p = { 0 }; hash_index_next(x, hash, &p);) ... elements[p.number] ...
struct hash_probe {
    uint32_t step, number;
};
static inline bool hash_index_next(const struct hash_index *x, uint64_t hash, struct hash_probe *p)
{
    while (x->size) {
        const struct hash_slot *slot = &x->slots[((uint32_t)hash + p->step++) & (x->size - 1)];
        if (slot->number == 0)
            return false;
        p->number = slot->number - 1;
        if (slot->hash == (uint32_t)hash)
            return true;
    }
    return false;
}
