// fault_points.c - makes one call of a program to the system fail: a library for LD_PRELOAD, for
// tools/faults.
//
// Each call that may fail is a point. Points are counted by kind and by who calls: the program's own code, or
// the libraries below it. FAULT_AT=n makes the n-th point of FAULT_KINDS fail (0: count only), with the error
// that such a call has on a machine in trouble. FAULT_MODE says how: `once`, `sticky` (all later ones too),
// `interrupt` (EINTR), `short` (a read or write of half the bytes, at every call). The program's heap is
// followed, so that what is left at its end is known. The report is shared memory and outlives a crash.
//
// Not here: what a library does with the kernel inside itself, calls that only give back (close, free), and
// two that do not stand a lack of memory in themselves: libedit crashes, and libevent makes a connection that
// is never written (evbuffer_add_cb in bufferevent_socket_new is not checked), which the write timeout ends.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum fault_kind { MEMORY, MAP, OPEN, READ, WRITE, THREAD, SOCKET, LIBRARY, N_KINDS };
enum { DEPTH = 24, MAX_RANGES = 32, LIVE_SLOTS = 1 << 20 };
enum mode { ONCE, STICKY, INTERRUPT, SHORT };

struct fault_report { // the file's layout; tools/faults reads it
    uint64_t n_points[N_KINDS];
    uint64_t fired, blocks, bytes, maps, files; // of the program's own code, at its end
    uint64_t ended;                             // 1: the program left by exit()
    uint64_t base;                              // where the program lies
    uint64_t n_frames, frames[DEPTH];           // of the first point that failed
    uint64_t n_left, left[16][DEPTH];           // where the first blocks left over come from
    char call[32];
};

struct fault_range {
    uintptr_t first, end;
    bool keeps_memory; // it always gets what it asks for
};

static struct fault_report nowhere, *report = &nowhere;
static struct fault_range own, libraries[MAX_RANGES];
static size_t n_libraries;
static uint64_t fail_at;
static unsigned kinds, mode;
static bool explain;
static atomic_uint_fast64_t n_asked; // points of the kinds that are asked for
static atomic_int_fast64_t n_blocks, n_bytes, n_maps;
static __thread int inside; // calls that this library makes

// ---- points -----------------------------------------------------------------------------------------------

static bool lies_in(const struct fault_range *r, const void *at)
{
    return (uintptr_t)at >= r->first && (uintptr_t)at < r->end;
}

static bool is_library(const void *at, enum fault_kind kind)
{
    for (size_t i = 0; i < n_libraries; i++)
        if (lies_in(&libraries[i], at))
            return kind != MEMORY || !libraries[i].keeps_memory;
    return false;
}

static void note_frames(const char *call)
{
    void *frames[DEPTH];

    inside++;
    int n = backtrace(frames, DEPTH);
    for (int i = 0; i < n; i++)
        report->frames[i] = (uint64_t)frames[i];
    snprintf(report->call, sizeof report->call, "%s", call);
    atomic_thread_fence(memory_order_seq_cst);
    report->n_frames = (uint64_t)n;
    inside--;
}

// Counts a call; whether it must fail.
static bool point(enum fault_kind kind, const char *call, const void *caller)
{
    bool mine = lies_in(&own, caller);

    if (inside || (!mine && !is_library(caller, kind)))
        return false;
    if (!mine)
        kind = LIBRARY;
    __atomic_fetch_add(&report->n_points[kind], 1, __ATOMIC_RELAXED);
    if (!(kinds >> kind & 1))
        return false;
    uint64_t n = atomic_fetch_add(&n_asked, 1) + 1;
    if (fail_at == 0 || (n != fail_at && (mode != STICKY || n < fail_at)))
        return false;
    if (__atomic_fetch_add(&report->fired, 1, __ATOMIC_RELAXED) == 0)
        note_frames(call);
    return true;
}

// The same for calls that a signal may interrupt.
static bool slow_point(enum fault_kind kind, const char *call, const void *caller, int error)
{
    if (!point(kind, call, caller))
        return false;
    errno = mode == INTERRUPT ? EINTR : error;
    return true;
}

static bool fast_point(enum fault_kind kind, const char *call, const void *caller, int error)
{
    bool fails = mode != INTERRUPT && mode != SHORT && point(kind, call, caller);

    errno = fails ? error : errno;
    return fails;
}

// Of a file alone: what goes through a pipe in one piece stays in one.
static size_t shortened(int fd, size_t n, const void *caller)
{
    struct stat info;

    if (mode != SHORT || inside || n < 2 || !lies_in(&own, caller))
        return n;
    inside++;
    bool is_file = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
    inside--;
    return is_file ? (n + 1) / 2 : n;
}

// ---- the heap ---------------------------------------------------------------------------------------------

static struct live {
    void *at;
    size_t bytes;
    void *frames[DEPTH];
} * live; // an open hash table
static pthread_mutex_t live_lock = PTHREAD_MUTEX_INITIALIZER;
#define GONE ((void *)1)

static size_t slot_of(const void *at)
{
    return ((uintptr_t)at >> 4) * 0x9e3779b97f4a7c15ull >> 44;
}

static void note_block(void *at, size_t bytes, const void *caller)
{
    if (!at || inside || !live || !lies_in(&own, caller))
        return;
    pthread_mutex_lock(&live_lock);
    size_t i = slot_of(at);
    while (live[i].at && live[i].at != GONE)
        i = (i + 1) % LIVE_SLOTS;
    live[i].at = at;
    live[i].bytes = bytes;
    if (explain) {
        inside++;
        int n = backtrace(live[i].frames, DEPTH);
        memset(live[i].frames + n, 0, (size_t)(DEPTH - n) * sizeof(void *));
        inside--;
    }
    pthread_mutex_unlock(&live_lock);
    n_blocks++;
    n_bytes += (int64_t)bytes;
}

static void forget_block(const void *at)
{
    if (!at || !live)
        return;
    pthread_mutex_lock(&live_lock);
    for (size_t i = slot_of(at); live[i].at; i = (i + 1) % LIVE_SLOTS)
        if (live[i].at == at) {
            n_blocks--;
            n_bytes -= (int64_t)live[i].bytes;
            live[i].at = live[(i + 1) % LIVE_SLOTS].at ? GONE : NULL;
            break;
        }
    pthread_mutex_unlock(&live_lock);
}

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *at, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *at);

#define CALLER __builtin_return_address(0)

void *malloc(size_t bytes)
{
    if (fast_point(MEMORY, "malloc", CALLER, ENOMEM))
        return NULL;
    void *at = __libc_malloc(bytes);
    note_block(at, bytes, CALLER);
    return at;
}

void *calloc(size_t n, size_t bytes)
{
    if (fast_point(MEMORY, "calloc", CALLER, ENOMEM))
        return NULL;
    void *at = __libc_calloc(n, bytes);
    note_block(at, n * bytes, CALLER);
    return at;
}

void *realloc(void *old, size_t bytes)
{
    if (fast_point(MEMORY, "realloc", CALLER, ENOMEM))
        return NULL;
    forget_block(old);
    void *at = __libc_realloc(old, bytes);
    note_block(at, bytes, CALLER);
    return at;
}

int posix_memalign(void **at, size_t alignment, size_t bytes)
{
    if (fast_point(MEMORY, "posix_memalign", CALLER, ENOMEM))
        return ENOMEM;
    *at = __libc_memalign(alignment, bytes);
    note_block(*at, bytes, CALLER);
    return *at ? 0 : ENOMEM;
}

void free(void *at)
{
    forget_block(at);
    __libc_free(at);
}

// ---- the system -------------------------------------------------------------------------------------------

// The next one of that name. dlsym may allocate, and that is not the program's doing.
static void *next_call(const char *name)
{
    inside++;
    void *at = dlsym(RTLD_NEXT, name);
    inside--;
    return at;
}

#define NEXT(type, name, parameters) \
    static type(*next) parameters;   \
    if (!next)                       \
    *(void **)(&next) = next_call(name)

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fast_point(fd < 0 ? MEMORY : MAP, "mmap", CALLER, ENOMEM))
        return MAP_FAILED;
    void *map = (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
    n_maps += map != MAP_FAILED && !(flags & MAP_FIXED) && lies_in(&own, CALLER);
    return map;
}

int munmap(void *at, size_t bytes)
{
    n_maps -= lies_in(&own, CALLER);
    return (int)syscall(SYS_munmap, at, bytes);
}

// Functions of the C library, each a point that fails with -1 and otherwise does what it always does.
#define SYSTEM_CALL(kind, how, error, name, parameters, ...) \
    int name parameters                                      \
    {                                                        \
        if (how##_point(kind, #name, CALLER, error))         \
            return -1;                                       \
        NEXT(int, #name, parameters);                        \
        return next(__VA_ARGS__);                            \
    }
SYSTEM_CALL(READ, fast, EIO, stat, (const char *restrict path, struct stat *restrict info), path, info)
SYSTEM_CALL(READ, fast, EIO, lstat, (const char *restrict path, struct stat *restrict info), path, info)
SYSTEM_CALL(READ, fast, EIO, fstat, (int fd, struct stat *info), fd, info)
SYSTEM_CALL(WRITE, slow, EIO, fsync, (int fd), fd)
SYSTEM_CALL(WRITE, slow, ENOSPC, ftruncate, (int fd, off_t bytes), fd, bytes)
SYSTEM_CALL(WRITE, fast, EIO, rename, (const char *from, const char *to), from, to)
SYSTEM_CALL(WRITE, fast, ENOSPC, mkdir, (const char *path, mode_t how), path, how)
SYSTEM_CALL(WRITE, fast, ENOSPC, symlink, (const char *target, const char *path), target, path)
SYSTEM_CALL(OPEN, slow, ENOLCK, flock, (int fd, int operation), fd, operation)
SYSTEM_CALL(OPEN, fast, EMFILE, pipe, (int ends[2]), ends)
SYSTEM_CALL(SOCKET, fast, EMFILE, socket, (int domain, int type, int protocol), domain, type, protocol)
SYSTEM_CALL(SOCKET, fast, EADDRINUSE, bind, (int fd, const struct sockaddr *at, socklen_t n), fd, at, n)
SYSTEM_CALL(SOCKET, fast, EADDRINUSE, listen, (int fd, int n), fd, n)
SYSTEM_CALL(SOCKET, fast, ENOBUFS, getsockname, (int fd, struct sockaddr *restrict at, socklen_t *restrict n),
            fd, at, n)
SYSTEM_CALL(SOCKET, slow, EMFILE, accept4,
            (int fd, struct sockaddr *restrict at, socklen_t *restrict n, int flags), fd, at, n, flags)

int open(const char *path, int flags, ...)
{
    va_list args;
    mode_t how = 0;

    if (fast_point(OPEN, "open", CALLER, EMFILE))
        return -1;
    if (flags & O_CREAT) {
        va_start(args, flags);
        how = va_arg(args, mode_t);
        va_end(args);
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, how);
}

DIR *opendir(const char *path)
{
    if (fast_point(OPEN, "opendir", CALLER, EMFILE))
        return NULL;
    NEXT(DIR *, "opendir", (const char *));
    return next(path);
}

struct dirent *readdir(DIR *d)
{
    if (fast_point(READ, "readdir", CALLER, EIO))
        return NULL;
    NEXT(struct dirent *, "readdir", (DIR *));
    return next(d);
}

ssize_t read(int fd, void *to, size_t n)
{
    return slow_point(READ, "read", CALLER, EIO) ? -1 : syscall(SYS_read, fd, to, shortened(fd, n, CALLER));
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    return slow_point(READ, "pread", CALLER, EIO)
               ? -1
               : syscall(SYS_pread64, fd, to, shortened(fd, n, CALLER), at);
}

ssize_t write(int fd, const void *from, size_t n)
{
    return slow_point(WRITE, "write", CALLER, ENOSPC)
               ? -1
               : syscall(SYS_write, fd, from, shortened(fd, n, CALLER));
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    return slow_point(WRITE, "pwrite", CALLER, ENOSPC)
               ? -1
               : syscall(SYS_pwrite64, fd, from, shortened(fd, n, CALLER), at);
}

// These two are libevent's, with a client's connection.
ssize_t readv(int fd, const struct iovec *parts, int n)
{
    return slow_point(SOCKET, "readv", CALLER, ECONNRESET) ? -1 : syscall(SYS_readv, fd, parts, n);
}

ssize_t writev(int fd, const struct iovec *parts, int n)
{
    return slow_point(SOCKET, "writev", CALLER, EPIPE) ? -1 : syscall(SYS_writev, fd, parts, n);
}

size_t fwrite(const void *restrict from, size_t bytes, size_t n, FILE *restrict f)
{
    if (f == stdout && fast_point(WRITE, "fwrite", CALLER, ENOSPC))
        return 0;
    NEXT(size_t, "fwrite", (const void *, size_t, size_t, FILE *));
    return next(from, bytes, n, f);
}

int pthread_create(pthread_t *restrict thread, const pthread_attr_t *restrict attributes,
                   void *(*start)(void *), void *restrict arg)
{
    if (fast_point(THREAD, "pthread_create", CALLER, EAGAIN))
        return EAGAIN;
    NEXT(int, "pthread_create", (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *));
    return next(thread, attributes, start, arg);
}

int posix_spawn(pid_t *restrict pid, const char *restrict path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *restrict attributes, char *const argv[restrict],
                char *const environment[restrict])
{
    if (fast_point(THREAD, "posix_spawn", CALLER, EAGAIN))
        return EAGAIN;
    NEXT(int, "posix_spawn",
         (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
          char *const[]));
    return next(pid, path, actions, attributes, argv, environment);
}

// ---- begin and end ----------------------------------------------------------------------------------------

static const char *const SERVES[] = { "libjansson", "libpcre2", "libevent", "libpng",
                                      "libjpeg",    "libwebp",  "libcurl.", "libcrypto" };

static int note_range(struct dl_phdr_info *info, size_t size, void *first)
{
    bool is_program = *(bool *)first, serves = false;

    (void)size;
    *(bool *)first = false;
    for (size_t i = 0; i < sizeof SERVES / sizeof *SERVES; i++)
        serves = serves || strstr(info->dlpi_name, SERVES[i]);
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        struct fault_range r = { info->dlpi_addr + h->p_vaddr, info->dlpi_addr + h->p_vaddr + h->p_memsz,
                                 strstr(info->dlpi_name, "libevent") != NULL };
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_X))
            continue;
        if (is_program)
            own = r, report->base = info->dlpi_addr;
        else if (serves && n_libraries < MAX_RANGES)
            libraries[n_libraries++] = r;
    }
    return 0;
}

static uint64_t number_of(const char *name)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : 0;
}

static uint64_t n_open(void)
{
    uint64_t n = 0;

    for (int fd = 0; fd < 4096; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("FAULT_REPORT"), *how = getenv("FAULT_MODE");
    void *frames[4];
    bool first = true;

    inside++;
    backtrace(frames, 4); // loads what it needs
    int fd = path ? open(path, O_RDWR | O_CREAT, 0600) : -1;
    if (fd >= 0 && ftruncate(fd, sizeof *report) == 0) {
        void *map = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        report = map == MAP_FAILED ? report : map;
    }
    if (fd >= 0)
        close(fd);
    fail_at = number_of("FAULT_AT");
    kinds = (unsigned)number_of("FAULT_KINDS");
    explain = number_of("FAULT_EXPLAIN") != 0;
    mode = !how                        ? ONCE
           : !strcmp(how, "sticky")    ? STICKY
           : !strcmp(how, "interrupt") ? INTERRUPT
           : !strcmp(how, "short")     ? SHORT
                                       : ONCE;
    void *map = mmap(NULL, LIVE_SLOTS * sizeof *live, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsetenv("LD_PRELOAD"); // programs that this one starts are not meant
    inside--;
    dl_iterate_phdr(note_range, &first);
    live = map == MAP_FAILED ? NULL : map;
}

__attribute__((destructor)) static void finish(void)
{
    inside++;
    report->blocks = (uint64_t)n_blocks;
    report->bytes = (uint64_t)n_bytes;
    report->maps = (uint64_t)n_maps;
    report->files = n_open();
    for (size_t i = 0; explain && live && i < LIVE_SLOTS && report->n_left < 16; i++)
        if (live[i].at && live[i].at != GONE)
            memcpy(report->left[report->n_left++], live[i].frames, sizeof report->left[0]);
    report->ended = 1;
}
