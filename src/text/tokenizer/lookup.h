// lookup.h - the three tables of a vocabulary: text -> id, pair of ids -> merge, and a trie of texts.
//
// Built once in an arena, then read by any number of threads. Hashes are seeded per tokenizer, so that no
// file can be crafted whose entries all collide; results do not depend on the seed. Nothing is removed.
#pragma once
#include "base/arena.h"
#include "base/str.h"

enum { LOOKUP_NONE = UINT32_MAX };

// keys belong to the caller: map values are indexes into that array.
struct text_map {
    uint32_t *slots; // index + 1
    uint64_t mask, seed;
    const struct str *keys;
};
bool text_map_init(struct text_map *map, struct arena *arena, const struct str *keys, size_t n_max);
// False: a key with the same text exists, and stays.
bool text_map_add(struct text_map *map, uint32_t index);
uint32_t text_map_find(const struct text_map *map, struct str text); // index or LOOKUP_NONE

struct pair_slot {
    uint32_t left, right;
    uint32_t rank;   // lower merges first
    uint32_t result; // LOOKUP_NONE: empty slot
};
struct pair_map {
    struct pair_slot *slots;
    uint64_t mask, seed;
};
bool pair_map_init(struct pair_map *map, struct arena *arena, size_t n_max);
// A later merge of the same pair replaces the earlier one.
void pair_map_put(struct pair_map *map, struct pair_slot merge);
static inline const struct pair_slot *pair_map_find(const struct pair_map *map, uint32_t left, uint32_t right)
{
    uint64_t key = ((uint64_t)left << 32 | right) ^ map->seed;
    uint64_t i = (key * 0x9e3779b97f4a7c15u) ^ (key * 0x9e3779b97f4a7c15u) >> 32;
    for (;; i++) {
        const struct pair_slot *slot = &map->slots[i & map->mask];
        if (slot->result == LOOKUP_NONE)
            return NULL;
        if (slot->left == left && slot->right == right)
            return slot;
    }
}

struct lookup_node {
    uint32_t first_child;
    uint32_t value;      // LOOKUP_NONE: no text ends here
    uint16_t n_children; // consecutive, sorted by label
    uint8_t label;
};
struct trie {
    const struct lookup_node *nodes; // NULL: empty; else nodes[0] is the root
    uint32_t root_child[256];        // 0: none
};
struct trie_entry {
    struct str text; // not empty
    uint32_t value;
};
// Sorts entries. Of equal texts the one with the lowest value stays.
bool trie_build(struct trie *trie, struct arena *arena, struct trie_entry *entries, size_t n);
// Child of a node (0 = the root) for a byte, or 0.
uint32_t trie_child(const struct trie *trie, uint32_t node, unsigned char byte);
