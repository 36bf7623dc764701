// file.h - files mapped for reading, and files that appear whole or not at all.
#pragma once
#include "base/str.h"

struct file_map {
    const unsigned char *at;
    size_t bytes;
    void *base; // NULL: the bytes are borrowed, not mapped
};

// Maps a regular file read-only. The message names the path. An empty file gives bytes = 0 and a valid
// pointer.
bool file_map_open(struct file_map *map, const char *path, struct err *err);
void file_map_close(struct file_map *map);
// Gives back the memory of whole pages within [at, at + bytes), which lie in the map; they are read again
// when touched.
void file_map_forget(const struct file_map *map, const void *at, size_t bytes);

// Has whole pages that touch [at, at + bytes) of a map read by the system, while the caller goes on.
void file_map_ahead(const void *at, size_t bytes);

// Asks the system to read and map [at, at + bytes) of a map, and what shares pages with it, in pages of 2 MB.
// Some file systems of Linux can, for what is not in memory yet.
void file_map_large_pages(const void *at, size_t bytes);
// Whole, after interruptions too. False: errno says why.
bool file_write_all(int fd, const void *bytes, size_t n);
bool file_sync(int fd);

// Reads a whole file of at most max_bytes into b.
bool file_read(struct buf *b, const char *path, size_t max_bytes, struct err *err);
// Also when the system cannot tell: opening it will say why.
bool file_exists(const char *path);
bool file_is_directory(const char *path);

// Writes to PATH.part; file_commit makes it durable and renames it to PATH, file_abort removes it. Writing
// may go on after a failure: the first error is kept and reported by file_commit.
struct file_writer {
    char path[4096], part[4104];
    int fd;
    uint64_t bytes; // written so far
    struct err first;
    unsigned char *buffer;
    size_t buffered;
};
bool file_create(struct file_writer *w, const char *path, struct err *err);
void file_write(struct file_writer *w, const void *bytes, size_t n);
void file_write_zeros(struct file_writer *w, uint64_t n); // a hole, which takes no room on most disks
bool file_commit(struct file_writer *w, struct err *err);
void file_abort(struct file_writer *w);
// All of that at once.
bool file_save(const char *path, struct str bytes, struct err *err);
