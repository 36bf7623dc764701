// image_room.h - memory for what a picture goes through on its way to tiles, kept from picture to picture:
// threads that touch fresh pages at once wait for each other longer than a resize takes
// (bench/results/2026-11-23-h200.md). At most ROOM_KEPT_BYTES stay.
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum { ROOM_BLOCKS = 8, ROOM_KEPT_BYTES = 64 << 20 };

// Zero-initialised it is empty. One picture at a time.
struct image_room {
    struct room_block {
        void *memory;
        size_t bytes;
        bool taken;
    } blocks[ROOM_BLOCKS];
};

// Memory with anything in it; NULL: there is none. room NULL: memory that does not stay.
void *image_room_take(struct image_room *room, size_t n, size_t bytes);
void image_room_give(struct image_room *room, void *memory); // NULL is allowed
void image_room_release(struct image_room *room);
