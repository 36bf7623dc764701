// prefix.c - see prefix.h. Two hash tables over the same pages: by key, for hits; by parent page, to explain
// misses.
#include "engine/kv/prefix.h"
#include <string.h>
#include "base/mem.h"
#include "device/step.h"
#include "engine/kv/kv_state.h"
#include "engine/kv/kv_window.h"

enum { MOST_EXPLAINED = 64 }; // pages compared to explain a miss, newest first

struct prefix {
    struct sha256_stream *sums;
    uint32_t n_buckets;           // a power of two
    uint32_t *by_key, *by_parent; // [n_buckets] the first page
    // [n_buckets] keys that were evicted; tokens that are known under some salt. Newer ones overwrite
    uint64_t *forgotten, *unsalted;
    uint64_t n_ids;
    uint32_t n_key_bits;
};

struct prefix *prefix_create(uint32_t n_pages)
{
    struct prefix *x = mem_alloc(sizeof *x);

    if (!x)
        return NULL;
    for (x->n_buckets = 16; x->n_buckets < n_pages * 2ull && x->n_buckets < 1u << 30;)
        x->n_buckets *= 2;
    x->n_key_bits = 256;
    x->sums = sha256_open();
    x->by_key = mem_alloc_array(x->n_buckets, sizeof *x->by_key);
    x->by_parent = mem_alloc_array(x->n_buckets, sizeof *x->by_parent);
    x->forgotten = mem_alloc_array(x->n_buckets, sizeof *x->forgotten);
    x->unsalted = mem_alloc_array(x->n_buckets, sizeof *x->unsalted);
    if (!x->sums || !x->by_key || !x->by_parent || !x->forgotten || !x->unsalted) {
        prefix_destroy(x);
        return NULL;
    }
    memset(x->by_key, 0xff, x->n_buckets * sizeof *x->by_key); // KV_NONE
    memset(x->by_parent, 0xff, x->n_buckets * sizeof *x->by_parent);
    return x;
}

void prefix_destroy(struct prefix *x)
{
    if (!x)
        return;
    sha256_close(x->sums);
    mem_free(x->by_key);
    mem_free(x->by_parent);
    mem_free(x->forgotten);
    mem_free(x->unsalted);
    mem_free(x);
}

void prefix_weaken(struct prefix *x, uint32_t n_bits)
{
    x->n_key_bits = n_bits;
}

// ---- keys

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static uint64_t plain_after(uint64_t plain, const uint32_t *tokens)
{
    for (uint32_t i = 0; i < PAGE_TOKENS; i++)
        plain = mix(plain + tokens[i] + 0x9e3779b97f4a7c15u);
    return plain;
}

struct sha256 prefix_root(struct prefix *x, const char *salt)
{
    static const char name[] = "ingot prefix 1";

    sha256_add(x->sums, name, sizeof name);
    sha256_add(x->sums, salt ? salt : "", salt ? strlen(salt) : 0);
    return sha256_take(x->sums);
}

// A tile's rows follow each other.
struct prefix_content prefix_content(const struct kv *kv, const uint32_t *tokens)
{
    struct prefix_content c = { 0 };
    uint32_t n_tiles = 0;

    for (uint32_t i = 0; i < PAGE_TOKENS; i++) {
        c.tokens[i] = tokens[i];
        if (tokens[i] < STEP_TOKEN_POOLED)
            continue;
        if (i == 0 || tokens[i] != tokens[i - 1]) {
            struct sha256 key = kv->tile_key(kv->tile_key_arg, tokens[i]);
            sha256_add(kv->prefix->sums, key.at, sizeof key.at);
            n_tiles++;
        }
        c.tokens[i] = STEP_TOKEN_POOLED + n_tiles - 1;
    }
    if (n_tiles)
        c.media = sha256_take(kv->prefix->sums);
    return c;
}

static struct sha256 key_after(struct prefix *x, const struct sha256 *before, const struct prefix_content *c)
{
    unsigned char bytes[PAGE_TOKENS * 4];

    for (uint32_t i = 0; i < PAGE_TOKENS; i++) // byte order independent of the machine
        for (uint32_t b = 0; b < 4; b++)
            bytes[4 * i + b] = (unsigned char)(c->tokens[i] >> (8 * b));
    sha256_add(x->sums, before->at, sizeof before->at);
    sha256_add(x->sums, bytes, sizeof bytes);
    sha256_add(x->sums, c->media.at, sizeof c->media.at);
    struct sha256 key = sha256_take(x->sums);
    if (x->n_key_bits < 8) {
        unsigned char kept = (unsigned char)(key.at[0] & ((1u << x->n_key_bits) - 1));
        key = (struct sha256){ { kept } };
    }
    return key;
}

static uint64_t short_key(const struct sha256 *key)
{
    uint64_t n;

    memcpy(&n, key->at, sizeof n);
    return n | 1; // never 0, which means none
}

static uint32_t key_bucket(const struct prefix *x, const struct sha256 *key)
{
    return (uint32_t)(mix(short_key(key)) & (x->n_buckets - 1));
}

// Children of one page share a bucket; the first pages of sequences are hashed by their salt.
static uint32_t parent_bucket(const struct prefix *x, uint64_t parent, const struct sha256 *parent_key)
{
    return (uint32_t)(mix(parent ? parent : short_key(parent_key)) & (x->n_buckets - 1));
}

// ---- looking up

struct prefix_walk prefix_begin(const struct sha256 *root)
{
    return (struct prefix_walk){ .key = *root };
}

struct prefix_walk prefix_at(const struct kv *kv, const struct sha256 *root, uint32_t slot, uint32_t n_pages)
{
    if (n_pages == 0)
        return prefix_begin(root);
    const struct kv_page *p = &kv->pages[kv_at(kv, slot, n_pages - 1)];
    return (struct prefix_walk){ p->key, p->id, p->plain, n_pages * PAGE_TOKENS };
}

static bool follows(const struct kv_page *p, const struct prefix_walk *walk)
{
    return p->parent == walk->id && (walk->id != 0 || sha256_eq(&p->parent_key, &walk->key));
}

static uint32_t find(const struct kv *kv, const struct prefix_walk *walk, const struct sha256 *key,
                     const uint32_t *tokens)
{
    const struct prefix *x = kv->prefix;
    uint32_t at = x->by_key[key_bucket(x, key)];

    for (; at != KV_NONE; at = kv->pages[at].next) {
        const struct kv_page *p = &kv->pages[at];
        if (sha256_eq(&p->key, key) && follows(p, walk) && memcmp(p->tokens, tokens, sizeof p->tokens) == 0)
            return at;
    }
    return KV_NONE;
}

uint32_t prefix_next(struct kv *kv, struct prefix_walk *walk, const uint32_t *tokens)
{
    struct prefix_content content = prefix_content(kv, tokens);
    struct sha256 key = key_after(kv->prefix, &walk->key, &content);
    uint32_t page = find(kv, walk, &key, tokens);

    walk->key = key;
    walk->id = page == KV_NONE ? UINT64_MAX : kv->pages[page].id;
    walk->plain = plain_after(walk->plain, tokens);
    walk->n_tokens += PAGE_TOKENS;
    return page;
}

// ---- keeping

static void link_page(struct kv *kv, uint32_t page)
{
    struct prefix *x = kv->prefix;
    struct kv_page *p = &kv->pages[page];
    uint32_t *keys = &x->by_key[key_bucket(x, &p->key)];
    uint32_t *children = &x->by_parent[parent_bucket(x, p->parent, &p->parent_key)];

    p->next = *keys;
    *keys = page;
    p->child_next = *children;
    p->child_before = KV_NONE;
    if (*children != KV_NONE)
        kv->pages[*children].child_before = page;
    *children = page;
    x->unsalted[p->plain & (x->n_buckets - 1)] = p->plain;
    p->known = true;
}

void prefix_put(struct kv *kv, const struct prefix_walk *walk, uint32_t page, const uint32_t *tokens)
{
    struct kv_page *p = &kv->pages[page];
    struct prefix_content content = prefix_content(kv, tokens);
    struct sha256 key = key_after(kv->prefix, &walk->key, &content);
    uint32_t same = find(kv, walk, &key, tokens);

    p->key = key;
    p->parent_key = walk->key;
    p->parent = walk->id;
    p->media = content.media;
    p->plain = plain_after(walk->plain, tokens);
    memcpy(p->tokens, tokens, sizeof p->tokens);
    p->id = same == KV_NONE ? ++kv->prefix->n_ids : kv->pages[same].id;
    if (same == KV_NONE) {
        link_page(kv, page);
    } else {
        kv_state_move(kv, page, same);
        kv_window_move(kv, page, same);
    }
}

void prefix_forget(struct kv *kv, uint32_t page)
{
    struct prefix *x = kv->prefix;
    struct kv_page *p = &kv->pages[page];
    uint32_t *at = &x->by_key[key_bucket(x, &p->key)];
    uint64_t key = short_key(&p->key);

    while (*at != page)
        at = &kv->pages[*at].next;
    *at = p->next;
    if (p->child_before != KV_NONE)
        kv->pages[p->child_before].child_next = p->child_next;
    else
        x->by_parent[parent_bucket(x, p->parent, &p->parent_key)] = p->child_next;
    if (p->child_next != KV_NONE)
        kv->pages[p->child_next].child_before = p->child_before;
    x->forgotten[key & (x->n_buckets - 1)] = key;
    p->known = false;
}

// ---- explaining

// The child of the walk's last page with the longest match; *n_same is its length in tokens.
static uint32_t nearest(const struct kv *kv, const struct prefix_walk *walk, const uint32_t *tokens,
                        uint32_t n, uint32_t *n_same)
{
    const struct prefix *x = kv->prefix;
    uint32_t best = KV_NONE, at = x->by_parent[parent_bucket(x, walk->id, &walk->key)];

    *n_same = 0;
    for (uint32_t seen = 0; at != KV_NONE && seen < MOST_EXPLAINED; seen++, at = kv->pages[at].child_next) {
        const struct kv_page *p = &kv->pages[at];
        uint32_t same = 0;
        if (!follows(p, walk))
            continue;
        while (same < n && same < PAGE_TOKENS && p->tokens[same] == tokens[same])
            same++;
        if (best == KV_NONE || same > *n_same) {
            best = at;
            *n_same = same;
        }
    }
    return best;
}

struct ingot_miss prefix_explain(const struct kv *kv, const struct prefix_walk *walk, const uint32_t *tokens,
                                 uint32_t n)
{
    const struct prefix *x = kv->prefix;
    struct ingot_miss miss = { INGOT_MISS_NEW, walk->n_tokens, tokens[0], UINT32_MAX };
    uint32_t n_same, near = nearest(kv, walk, tokens, n, &n_same);

    if (near != KV_NONE && n_same == (n < PAGE_TOKENS ? n : PAGE_TOKENS))
        return (struct ingot_miss){ INGOT_MISS_NONE, walk->n_tokens, UINT32_MAX, UINT32_MAX };
    if (n >= PAGE_TOKENS) {
        struct prefix_content content = prefix_content(kv, tokens);
        struct sha256 key = key_after(kv->prefix, &walk->key, &content);
        uint64_t plain = plain_after(walk->plain, tokens);
        if (x->forgotten[short_key(&key) & (x->n_buckets - 1)] == short_key(&key))
            miss.reason = INGOT_MISS_EVICTED;
        else if (near == KV_NONE && x->unsalted[plain & (x->n_buckets - 1)] == plain)
            miss.reason = INGOT_MISS_SALT;
    }
    if (miss.reason != INGOT_MISS_NEW || near == KV_NONE || walk->n_tokens + n_same == 0)
        return miss;
    return (struct ingot_miss){ INGOT_MISS_DIFFERS, walk->n_tokens + n_same, tokens[n_same],
                                kv->pages[near].tokens[n_same] };
}
