// arena.c - see arena.h. Blocks grow by doubling up to 1 MiB; a larger allocation gets a block of its own.
#include "base/arena.h"
#include <stdarg.h>
#include <string.h>
#include "base/mem.h"

enum { FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20, ALIGNMENT = 16 };

struct block {
    struct block *next;
    size_t used, size;
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

struct arena {
    struct block *blocks;
    size_t total, limit, next_block;
};

struct arena *arena_create(size_t limit_bytes)
{
    struct arena *arena = mem_alloc(sizeof *arena);

    if (arena) {
        arena->limit = limit_bytes;
        arena->next_block = FIRST_BLOCK;
    }
    return arena;
}

void arena_destroy(struct arena *arena)
{
    if (!arena)
        return;
    for (struct block *b = arena->blocks, *next; b; b = next) {
        next = b->next;
        mem_free(b);
    }
    mem_free(arena);
}

static bool arena_grow(struct arena *arena, size_t bytes)
{
    size_t size = bytes > arena->next_block ? bytes : arena->next_block;
    struct block *b = mem_alloc(sizeof *b + size);

    if (!b)
        return false;
    b->size = size;
    b->next = arena->blocks;
    arena->blocks = b;
    if (arena->next_block < LARGEST_BLOCK)
        arena->next_block *= 2;
    return true;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    if (bytes > arena->limit - arena->total)
        return NULL;
    size_t rounded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    struct block *b = arena->blocks;

    if (!b || b->size - b->used < rounded) {
        if (!arena_grow(arena, rounded))
            return NULL;
        b = arena->blocks;
    }
    void *memory = b->bytes + b->used;
    b->used += rounded;
    arena->total += bytes;
    return memory;
}

void *arena_alloc_array(struct arena *arena, size_t n, size_t bytes)
{
    size_t total;
    return __builtin_mul_overflow(n, bytes, &total) ? NULL : arena_alloc(arena, total);
}

struct str arena_str(struct arena *arena, struct str text)
{
    char *copy = text.n == SIZE_MAX ? NULL : arena_alloc(arena, text.n + 1);

    if (!copy)
        return (struct str){ 0 };
    if (text.n)
        memcpy(copy, text.at, text.n);
    return (struct str){ copy, text.n };
}

char *arena_printf(struct arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = n < 0 ? NULL : arena_alloc(arena, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    return text;
}
