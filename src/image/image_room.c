// image_room.c - see image_room.h.
#include "image/image_room.h"
#include "base/mem.h"

enum { ALIGNMENT = 64 };

// The smallest free block that is large enough.
static struct room_block *find_block(struct image_room *room, size_t bytes)
{
    struct room_block *best = NULL;

    for (struct room_block *b = room->blocks; b < room->blocks + ROOM_BLOCKS; b++)
        if (!b->taken && b->bytes >= bytes && (!best || b->bytes < best->bytes))
            best = b;
    return best;
}

// The smallest free block, without its memory.
static struct room_block *empty_block(struct image_room *room)
{
    struct room_block *least = find_block(room, 0);

    if (least) {
        mem_free_aligned(least->memory);
        *least = (struct room_block){ 0 };
    }
    return least;
}

static size_t kept_bytes(const struct image_room *room)
{
    size_t bytes = 0;

    for (int i = 0; i < ROOM_BLOCKS; i++)
        bytes += room->blocks[i].bytes;
    return bytes;
}

void *image_room_take(struct image_room *room, size_t n, size_t bytes)
{
    struct room_block *b = room ? find_block(room, n * bytes) : NULL;

    if (!b) {
        void *memory = mem_alloc_aligned(n * bytes, ALIGNMENT);
        b = room && memory ? empty_block(room) : NULL;
        if (!b)
            return memory;
        *b = (struct room_block){ .memory = memory, .bytes = n * bytes };
    }
    b->taken = true;
    return b->memory;
}

void image_room_give(struct image_room *room, void *memory)
{
    struct room_block *b = room ? room->blocks : NULL, *end = room ? b + ROOM_BLOCKS : NULL;

    while (b < end && b->memory != memory)
        b++;
    if (!memory || b == end) {
        mem_free_aligned(memory);
        return;
    }
    b->taken = false;
    if (kept_bytes(room) > ROOM_KEPT_BYTES) {
        mem_free_aligned(memory);
        *b = (struct room_block){ 0 };
    }
}

void image_room_release(struct image_room *room)
{
    for (int i = 0; i < ROOM_BLOCKS; i++)
        mem_free_aligned(room->blocks[i].memory);
    *room = (struct image_room){ 0 };
}
