// lookup.c - see lookup.h. Open addressing at a load of at most one half; the tree is built breadth first
// from sorted texts, so that siblings lie side by side.
#include "text/tokenizer/lookup.h"
#include "base/mem.h"
#include "base/random.h"

static uint64_t hash_text(struct str text, uint64_t seed)
{
    uint64_t h = seed ^ text.n * 0x9e3779b97f4a7c15u;
    size_t i = 0;
    for (; i + 8 <= text.n; i += 8) {
        uint64_t word;
        memcpy(&word, text.at + i, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32 ^ (seed << 7);
    }
    uint64_t tail = 0;
    for (; i < text.n; i++)
        tail = tail << 8 | (unsigned char)text.at[i];
    h = (h ^ tail) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}

static bool table_size(size_t n_max, uint64_t *size)
{
    if (n_max > UINT32_MAX / 4)
        return false;
    *size = 4;
    while (*size < n_max * 2 + 1)
        *size *= 2;
    return true;
}

bool text_map_init(struct text_map *map, struct arena *arena, const struct str *keys, size_t n_max)
{
    uint64_t size;
    map->keys = keys;
    map->seed = random_u64();
    map->slots = table_size(n_max, &size) ? arena_alloc_array(arena, size, sizeof *map->slots) : NULL;
    map->mask = map->slots ? size - 1 : 0;
    return map->slots != NULL;
}

bool text_map_add(struct text_map *map, uint32_t index)
{
    uint64_t i = hash_text(map->keys[index], map->seed);
    for (; map->slots[i & map->mask]; i++)
        if (str_eq(map->keys[map->slots[i & map->mask] - 1], map->keys[index]))
            return false;
    map->slots[i & map->mask] = index + 1;
    return true;
}

uint32_t text_map_find(const struct text_map *map, struct str text)
{
    if (!map->slots)
        return LOOKUP_NONE;
    for (uint64_t i = hash_text(text, map->seed); map->slots[i & map->mask]; i++)
        if (str_eq(map->keys[map->slots[i & map->mask] - 1], text))
            return map->slots[i & map->mask] - 1;
    return LOOKUP_NONE;
}

bool pair_map_init(struct pair_map *map, struct arena *arena, size_t n_max)
{
    uint64_t size;
    map->seed = random_u64();
    map->slots = table_size(n_max, &size) ? arena_alloc_array(arena, size, sizeof *map->slots) : NULL;
    map->mask = map->slots ? size - 1 : 0;
    for (uint64_t i = 0; map->slots && i < size; i++)
        map->slots[i].result = LOOKUP_NONE;
    return map->slots != NULL;
}

void pair_map_put(struct pair_map *map, struct pair_slot merge)
{
    struct pair_slot *slot = (struct pair_slot *)pair_map_find(map, merge.left, merge.right);
    if (slot) {
        *slot = merge;
        return;
    }
    uint64_t key = ((uint64_t)merge.left << 32 | merge.right) ^ map->seed;
    uint64_t i = (key * 0x9e3779b97f4a7c15u) ^ (key * 0x9e3779b97f4a7c15u) >> 32;
    while (map->slots[i & map->mask].result != LOOKUP_NONE)
        i++;
    map->slots[i & map->mask] = merge;
}

static int entry_order(const void *a, const void *b)
{
    const struct trie_entry *x = a, *y = b;
    int order = str_order(x->text, y->text);
    return order ? order : (x->value > y->value) - (x->value < y->value);
}

// The range of a node's texts in the sorted list, and the depth of its path in bytes.
struct trie_range {
    size_t from, to, depth;
};

static uint32_t add_children(struct lookup_node *nodes, struct trie_range *ranges, uint32_t node,
                             uint32_t n_nodes, const struct trie_entry *entries)
{
    struct trie_range r = ranges[node];
    nodes[node].first_child = n_nodes;
    while (r.from < r.to && entries[r.from].text.n == r.depth) { // texts that end here come first
        if (nodes[node].value == LOOKUP_NONE)
            nodes[node].value = entries[r.from].value;
        r.from++;
    }
    while (r.from < r.to) {
        unsigned char label = (unsigned char)entries[r.from].text.at[r.depth];
        size_t end = r.from;
        while (end < r.to && (unsigned char)entries[end].text.at[r.depth] == label)
            end++;
        nodes[n_nodes] = (struct lookup_node){ .value = LOOKUP_NONE, .label = label };
        ranges[n_nodes++] = (struct trie_range){ r.from, end, r.depth + 1 };
        nodes[node].n_children++;
        r.from = end;
    }
    return n_nodes;
}

bool trie_build(struct trie *trie, struct arena *arena, struct trie_entry *entries, size_t n)
{
    size_t n_max = 1;
    *trie = (struct trie){ 0 };
    if (n == 0)
        return true;
    for (size_t i = 0; i < n; i++)
        n_max += entries[i].text.n;
    if (n_max >= UINT32_MAX)
        return false;
    qsort(entries, n, sizeof *entries, entry_order);
    struct lookup_node *nodes = mem_alloc_array(n_max, sizeof *nodes);
    struct trie_range *ranges = mem_alloc_array(n_max, sizeof *ranges);
    uint32_t n_nodes = 1;
    if (nodes && ranges) {
        nodes[0].value = LOOKUP_NONE;
        ranges[0] = (struct trie_range){ 0, n, 0 };
        for (uint32_t i = 0; i < n_nodes; i++)
            n_nodes = add_children(nodes, ranges, i, n_nodes, entries);
        struct lookup_node *kept = arena_alloc_array(arena, n_nodes, sizeof *kept);
        if (kept)
            memcpy(kept, nodes, n_nodes * sizeof *kept);
        trie->nodes = kept;
    }
    mem_free(nodes);
    mem_free(ranges);
    for (uint32_t i = 0; trie->nodes && i < trie->nodes[0].n_children; i++)
        trie->root_child[trie->nodes[trie->nodes[0].first_child + i].label] = trie->nodes[0].first_child + i;
    return trie->nodes != NULL;
}

uint32_t trie_child(const struct trie *trie, uint32_t node, unsigned char byte)
{
    if (node == 0)
        return trie->root_child[byte];
    uint32_t low = trie->nodes[node].first_child, high = low + trie->nodes[node].n_children;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (trie->nodes[middle].label < byte)
            low = middle + 1;
        else
            high = middle;
    }
    bool found =
        low < trie->nodes[node].first_child + trie->nodes[node].n_children && trie->nodes[low].label == byte;
    return found ? low : 0;
}
