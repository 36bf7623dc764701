// kv_store.c - see kv_store.h. File layout: struct head, the numbers of the page, and the SHA-256 of all of
// that. Numbers have the byte order of this machine, which is part of the model's digest.
#include "engine/kv/kv_store.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"

enum { SUM = sizeof(struct sha256), PATH_BYTES = 4096, STALE_SECONDS = 3600, NAME_BYTES = 128 };
static const char MAGIC[8] = "ingotkv2", ENDING[] = ".page", PART[] = ".part";

struct head {
    char magic[8];
    struct sha256 model, key, parent_key, media;
    uint32_t tokens[PAGE_TOKENS];
    uint64_t page_bytes;
};
_Static_assert(sizeof(struct head) == KV_FILE_HEAD, "no holes");

struct kv_store {
    char directory[PATH_BYTES];
    struct sha256 model;
    uint64_t page_bytes, limit_bytes, used_bytes;
    unsigned char *image; // a whole file
    size_t image_bytes;
    bool warned;
};

struct store_entry {
    char name[NAME_BYTES];
    uint64_t bytes;
    struct timespec used;
};

static struct sha256 sum_of(const void *bytes, size_t n)
{
    struct sha256_stream *s = sha256_open();
    struct sha256 sum = { { 0 } };

    if (!s)
        return sum;
    sha256_add(s, bytes, n);
    sum = sha256_take(s);
    sha256_close(s);
    return sum;
}

static void put_hex(char *to, const struct sha256 *sum, size_t n)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < n; i++) {
        to[2 * i] = digits[sum->at[i] >> 4];
        to[2 * i + 1] = digits[sum->at[i] & 15];
    }
    to[2 * n] = 0;
}

// DIRECTORY/MODEL-KEY.page. MODEL: 8 bytes of the model's digest. KEY: the page's whole key.
static bool path_of(const struct kv_store *s, const struct kv_store_page *page, char path[PATH_BYTES])
{
    char model[17], key[2 * SUM + 1];

    put_hex(model, &s->model, 8);
    put_hex(key, &page->key, SUM);
    return snprintf(path, PATH_BYTES, "%s/%s-%s%s", s->directory, model, key, ENDING) < PATH_BYTES;
}

static void warn_once(struct kv_store *s, const char *what, const char *path)
{
    if (!s->warned)
        log_line(LOG_WARN, "store", "%s: %s: %s; this is said once", path, what, strerror(errno));
    s->warned = true;
}

// ---- the directory's size

static bool ends_in(const char *name, const char *ending)
{
    return str_ends(str_from(name), str_from(ending));
}

static void remove_stale(const char *path, const struct stat *info)
{
    if (time(NULL) - info->st_mtime > STALE_SECONDS)
        unlink(path);
}

static bool add_entry(struct buf *list, const char *name, const struct stat *info)
{
    struct store_entry e = { .bytes = (uint64_t)info->st_size };

#if defined(__APPLE__)
    e.used = info->st_mtimespec;
#else
    e.used = info->st_mtim;
#endif
    snprintf(e.name, sizeof e.name, "%s", name);
    return buf_append(list, (const char *)&e, sizeof e);
}

// All pages of all models.
static bool list_pages(struct kv_store *s, struct buf *list)
{
    DIR *dir = opendir(s->directory);
    char path[PATH_BYTES];
    struct stat info;

    if (!dir)
        return false;
    s->used_bytes = 0;
    for (const struct dirent *d; (d = readdir(dir));) {
        if (strlen(d->d_name) >= NAME_BYTES ||
            snprintf(path, sizeof path, "%s/%s", s->directory, d->d_name) >= PATH_BYTES ||
            lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        if (ends_in(d->d_name, PART))
            remove_stale(path, &info);
        if (!ends_in(d->d_name, ENDING) || !add_entry(list, d->d_name, &info))
            continue;
        s->used_bytes += (uint64_t)info.st_size;
    }
    closedir(dir);
    return true;
}

static int by_use(const void *a, const void *b)
{
    const struct timespec *x = &((const struct store_entry *)a)->used,
                          *y = &((const struct store_entry *)b)->used;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

// A tenth below the limit, so that this is not done for every page.
static bool make_room(struct kv_store *s)
{
    struct buf list = { 0 };
    char path[PATH_BYTES];

    if (!list_pages(s, &list))
        return false;
    struct store_entry *entries = (struct store_entry *)(void *)list.at;
    size_t n = list.n / sizeof *entries;
    uint64_t goal = s->used_bytes > s->limit_bytes ? s->limit_bytes / 10 * 9 : s->limit_bytes;
    if (s->used_bytes > goal)
        qsort(entries, n, sizeof *entries, by_use);
    for (size_t i = 0; i < n && s->used_bytes > goal; i++)
        if (snprintf(path, sizeof path, "%s/%s", s->directory, entries[i].name) < PATH_BYTES &&
            unlink(path) == 0)
            s->used_bytes -= entries[i].bytes;
    buf_free(&list);
    return true;
}

// ---- opening

bool kv_store_open(struct kv_store **out, const struct kv_store_options *o, struct err *err)
{
    struct kv_store *s = mem_alloc(sizeof *s);

    *out = s;
    if (!s)
        return err_memory(err, "the page store");
    s->model = o->model;
    s->page_bytes = o->page_bytes;
    s->limit_bytes = o->limit_bytes;
    s->image_bytes = kv_file_bytes(o->page_bytes);
    s->image = mem_alloc(s->image_bytes);
    bool ok = s->image || err_memory(err, "a page of the store");
    if (ok && snprintf(s->directory, sizeof s->directory, "%s", o->directory) >= PATH_BYTES)
        ok = err_set(err, ERR_INPUT, "the cache directory's name is longer than %d bytes", PATH_BYTES - 1);
    if (ok && mkdir(s->directory, 0700) != 0 && errno != EEXIST)
        ok = err_set(err, ERR_IO, "%s: cannot make the cache directory: %s", s->directory, strerror(errno));
    if (ok &&
        (!file_is_directory(s->directory) || access(s->directory, R_OK | W_OK | X_OK) != 0 || !make_room(s)))
        ok = err_set(err, ERR_IO, "%s: expected a directory that can be read and written", s->directory);
    if (ok)
        return true;
    kv_store_close(s);
    *out = NULL;
    return false;
}

void kv_store_close(struct kv_store *s)
{
    if (s)
        mem_free(s->image);
    mem_free(s);
}

unsigned char *kv_store_room(struct kv_store *s)
{
    return s->image + sizeof(struct head);
}

// ---- one page

static struct head head_of(const struct sha256 *model, const struct kv_store_page *page, uint64_t page_bytes)
{
    struct head h = { .model = *model,
                      .key = page->key,
                      .parent_key = page->parent_key,
                      .media = page->media,
                      .page_bytes = page_bytes };

    memcpy(h.magic, MAGIC, sizeof h.magic);
    memcpy(h.tokens, page->tokens, sizeof h.tokens);
    return h;
}

// Not synced: the digest detects a file that a crash left half written.
static bool write_file(const struct kv_store *s, const char *path)
{
    char part[PATH_BYTES + 32];

    snprintf(part, sizeof part, "%s.%ld%s", path, (long)getpid(), PART);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return false;
    bool ok = file_write_all(fd, s->image, s->image_bytes);
    ok = close(fd) == 0 && ok && rename(part, path) == 0;
    int error = errno;
    if (!ok)
        unlink(part);
    errno = error;
    return ok;
}

bool kv_store_save(struct kv_store *s, const struct kv_store_page *page)
{
    char path[PATH_BYTES];

    if (!path_of(s, page, path) || s->image_bytes > s->limit_bytes)
        return false;
    if (s->used_bytes + s->image_bytes > s->limit_bytes && !make_room(s))
        return false;
    kv_file_seal(s->image, &s->model, page, s->page_bytes);
    if (!write_file(s, path)) {
        warn_once(s, "cannot be written", path);
        return false;
    }
    s->used_bytes += s->image_bytes;
    return true;
}

uint64_t kv_file_bytes(uint64_t page_bytes)
{
    return sizeof(struct head) + page_bytes + SUM;
}

void kv_file_seal(unsigned char *file, const struct sha256 *model, const struct kv_store_page *page,
                  uint64_t page_bytes)
{
    struct head h = head_of(model, page, page_bytes);
    size_t n = sizeof h + page_bytes;

    memcpy(file, &h, sizeof h);
    struct sha256 sum = sum_of(file, n);
    memcpy(file + n, &sum, SUM);
}

bool kv_file_check(struct str file, const struct sha256 *model, const struct kv_store_page *page,
                   uint64_t page_bytes)
{
    struct head h = head_of(model, page, page_bytes);

    if (file.n < sizeof h + SUM || file.n - sizeof h - SUM != page_bytes ||
        memcmp(file.at, &h, sizeof h) != 0)
        return false;
    struct sha256 sum = sum_of(file.at, file.n - SUM);
    return memcmp(file.at + file.n - SUM, &sum, SUM) == 0;
}

enum kv_file_kind kv_file_next(struct str bytes, const struct kv_file_kinds *kinds, uint64_t *n)
{
    struct head h;

    if (bytes.n < sizeof h)
        return KV_FILE_PART;
    memcpy(&h, bytes.at, sizeof h);
    enum kv_file_kind kind = sha256_eq(&h.model, &kinds->pages) ? KV_FILE_PAGE : KV_FILE_OTHER;
    uint64_t numbers = kinds->page_bytes;
    if (kinds->state_bytes && sha256_eq(&h.model, &kinds->states)) {
        kind = KV_FILE_STATE;
        numbers = kinds->state_bytes;
    }
    if (kinds->window_bytes && sha256_eq(&h.model, &kinds->windows)) {
        kind = KV_FILE_WINDOW;
        numbers = kinds->window_bytes;
    }
    if (memcmp(h.magic, MAGIC, sizeof MAGIC) != 0 || h.page_bytes != numbers || kind == KV_FILE_OTHER)
        return KV_FILE_OTHER;
    *n = kv_file_bytes(numbers);
    return bytes.n < *n ? KV_FILE_PART : kind;
}

// Returns the number of bytes read; SIZE_MAX: no such file, or it is longer than a page's.
static size_t read_file(const struct kv_store *s, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat info;
    size_t done = 0;

    if (fd < 0)
        return SIZE_MAX;
    bool ok = fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && (uint64_t)info.st_size <= s->image_bytes;
    while (ok && done < (size_t)info.st_size) {
        ssize_t n = read(fd, s->image + done, (size_t)info.st_size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        done += (size_t)n;
    }
    if (ok)
        (void)futimens(fd, NULL); // marks the page as used
    close(fd);
    return ok ? done : SIZE_MAX;
}

bool kv_store_has(const struct kv_store *s, const struct kv_store_page *page)
{
    char path[PATH_BYTES];
    return path_of(s, page, path) && access(path, R_OK) == 0;
}

bool kv_store_load(struct kv_store *s, const struct kv_store_page *page)
{
    char path[PATH_BYTES];
    size_t n = path_of(s, page, path) ? read_file(s, path) : SIZE_MAX;

    if (n == SIZE_MAX)
        return false;
    if (kv_file_check((struct str){ (const char *)s->image, n }, &s->model, page, s->page_bytes))
        return true;
    log_line(LOG_WARN, "store", "%s: damaged; removed", path);
    unlink(path);
    return false;
}
