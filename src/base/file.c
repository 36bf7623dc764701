// file.c - see file.h.
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/mem.h"

enum { WRITE_BUFFER = 1 << 20 };

static int open_regular(const char *path, struct stat *info, struct err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe without a writer must not hang us

    if (fd < 0) {
        err_set(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, "%s: cannot open: %s", path, strerror(errno));
        return -1;
    }
    bool told = fstat(fd, info) == 0;
    if (told && S_ISREG(info->st_mode))
        return fd;
    if (told)
        err_set(err, ERR_INPUT, "%s: not a regular file", path);
    else
        err_set(err, ERR_IO, "%s: cannot be looked at: %s", path, strerror(errno));
    close(fd);
    return -1;
}

bool file_map_open(struct file_map *map, const char *path, struct err *err)
{
    struct stat info;
    int fd = open_regular(path, &info, err);

    *map = (struct file_map){ .at = (const unsigned char *)"" };
    if (fd < 0)
        return false;
    if (info.st_size > 0) {
        void *base = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (base == MAP_FAILED) {
            err_set(err, ERR_IO, "%s: cannot map %lld bytes: %s", path, (long long)info.st_size,
                    strerror(errno));
            close(fd);
            return false;
        }
        *map = (struct file_map){ base, (size_t)info.st_size, base };
    }
    close(fd);
    return true;
}

void file_map_forget(const struct file_map *map, const void *at, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = ((uintptr_t)at + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)at + bytes) / page * page;

    if (map->base && first < end)
        // the mapping is shared and read-only: nothing is lost
        (void)madvise((void *)first, end - first, MADV_DONTNEED);
}

void file_map_ahead(const void *at, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)at / page * page;

    (void)madvise((void *)first, (uintptr_t)at + bytes - first, MADV_WILLNEED);
}

void file_map_large_pages(const void *at, size_t bytes)
{
#if defined(MADV_HUGEPAGE)
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)at / page * page;

    (void)madvise((void *)first, (uintptr_t)at + bytes - first, MADV_HUGEPAGE);
#else
    (void)at, (void)bytes;
#endif
}

void file_map_close(struct file_map *map)
{
    if (map->base)
        munmap(map->base, map->bytes);
    *map = (struct file_map){ 0 };
}

bool file_read(struct buf *b, const char *path, size_t max_bytes, struct err *err)
{
    struct stat info;
    int fd = open_regular(path, &info, err);
    char chunk[65536];
    ssize_t n = 0;

    if (fd < 0)
        return false;
    if ((uint64_t)info.st_size > max_bytes) {
        close(fd);
        return err_set(err, ERR_LIMIT, "%s: %lld bytes; at most %zu are read", path, (long long)info.st_size,
                       max_bytes);
    }
    while (((n = read(fd, chunk, sizeof chunk)) > 0 && b->n + (size_t)n <= max_bytes) ||
           (n < 0 && errno == EINTR))
        if (n > 0 && !buf_append(b, chunk, (size_t)n))
            break;
    int error = n < 0 ? errno : 0;
    close(fd);
    if (error)
        return err_set(err, ERR_IO, "%s: cannot read: %s", path, strerror(error));
    return b->failed || n > 0 ? err_set(err, ERR_MEMORY, "%s: out of memory while reading", path) : true;
}

bool file_exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 || errno == EIO || errno == ENOMEM;
}

bool file_is_directory(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool file_write_all(int fd, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;

    while (n > 0) {
        ssize_t done = write(fd, from, n);
        if (done < 0 && errno != EINTR)
            return false;
        from += done > 0 ? done : 0;
        n -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

bool file_sync(int fd)
{
    int failed;

    while ((failed = fsync(fd)) != 0 && errno == EINTR)
        ;
    return failed == 0;
}

bool file_create(struct file_writer *w, const char *path, struct err *err)
{
    struct stat info;

    memset(w, 0, sizeof *w);
    w->fd = -1;
    if ((size_t)snprintf(w->path, sizeof w->path, "%s", path) >= sizeof w->path)
        return err_set(err, ERR_IO, "output path is longer than %zu bytes", sizeof w->path - 1);
    snprintf(w->part, sizeof w->part, "%s.part", path);
    if (file_is_directory(path))
        return err_set(err, ERR_IO, "%s: is a directory; give a file name", path);
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) // a device, which the rename would replace
        return err_set(err, ERR_IO, "%s: not a regular file; give another name", path);
    w->buffer = mem_alloc(WRITE_BUFFER);
    if (!w->buffer)
        return err_memory(err, "a write buffer");
    w->fd = open(w->part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (w->fd < 0) {
        mem_free(w->buffer);
        w->buffer = NULL;
        return err_set(err, ERR_IO, "%s: cannot create: %s", w->part, strerror(errno));
    }
    return true;
}

static void file_flush(struct file_writer *w)
{
    if (w->first.code == ERR_NONE && !file_write_all(w->fd, w->buffer, w->buffered))
        err_set(&w->first, ERR_IO, "%s: cannot write: %s", w->part, strerror(errno));
    w->buffered = 0;
}

void file_write(struct file_writer *w, const void *bytes, size_t n)
{
    const unsigned char *from = bytes;

    w->bytes += n;
    while (n > 0 && w->first.code == ERR_NONE) {
        size_t take = n < WRITE_BUFFER - w->buffered ? n : WRITE_BUFFER - w->buffered;
        memcpy(w->buffer + w->buffered, from, take);
        w->buffered += take;
        from += take;
        n -= take;
        if (w->buffered == WRITE_BUFFER)
            file_flush(w);
    }
}

void file_write_zeros(struct file_writer *w, uint64_t n)
{
    file_flush(w);
    w->bytes += n;
    if (w->first.code == ERR_NONE &&
        (ftruncate(w->fd, (off_t)w->bytes) != 0 || lseek(w->fd, 0, SEEK_END) < 0))
        err_set(&w->first, ERR_IO, "%s: cannot write: %s", w->part, strerror(errno));
}

bool file_commit(struct file_writer *w, struct err *err)
{
    file_flush(w);
    if (w->first.code == ERR_NONE && (!file_sync(w->fd) || rename(w->part, w->path) != 0))
        err_set(&w->first, ERR_IO, "%s: cannot finish: %s", w->path, strerror(errno));
    bool ok = w->first.code == ERR_NONE;
    if (!ok && err)
        *err = w->first;
    if (!ok)
        unlink(w->part);
    close(w->fd);
    mem_free(w->buffer);
    w->buffer = NULL;
    w->fd = -1;
    return ok;
}

void file_abort(struct file_writer *w)
{
    if (w->fd < 0)
        return;
    close(w->fd);
    unlink(w->part);
    mem_free(w->buffer);
    w->buffer = NULL;
    w->fd = -1;
}

bool file_save(const char *path, struct str bytes, struct err *err)
{
    struct file_writer w;

    if (!file_create(&w, path, err))
        return false;
    file_write(&w, bytes.at, bytes.n);
    return file_commit(&w, err);
}
