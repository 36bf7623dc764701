// cuda_check.c - bounds and races of kernels that run on the emulator, and what they do in numbers: what
// compute-sanitizer's memcheck, racecheck and initcheck are on a GPU.
//
// Kernels are compiled with -fsanitize=thread, whose hooks for every load and store are these functions;
// ThreadSanitizer itself is not linked. Each word of memory has a cell: who wrote it last, who read it last,
// and between which meetings. Two accesses of one block to the same bytes, one of them a write, are a race
// unless __syncthreads lies between them, or __syncwarp inside a warp; two atomics are none. Of readers the
// last is kept, and whether there were several. The first finding of a launch is told.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "cuda_run.h"

struct cuda_access {
    uint32_t time, warp_time; // of the block's and the warp's last meeting; 0: never
    uint16_t thread;
    uint8_t bytes; // of the word, a bit each
    bool atomic, several, one_warp;
};
struct cuda_cell {
    struct cuda_access write, read;
};
struct cuda_region {
    const char *base;
    size_t bytes, cell_bytes;
    struct cuda_cell *cells;
    enum cuda_check_memory memory;
    unsigned char *written; // pages of shared memory, since they were NaN
    const void *owner;      // the thread that added it
};

enum {
    MOST_REGIONS = 256,
    MOST_DYNAMIC = 32,
    N_WARPS = CUDA_RUN_THREADS / CUDA_RUN_LANES,
    ORDINALS = 1024,
    PAGE_BYTES = 4096,
};
static struct { // of all threads. Places are added at any time, and forgotten while no kernel runs
    pthread_mutex_t lock;
    struct cuda_region regions[MOST_REGIONS];
    atomic_uint n_regions;
    atomic_uint clock;
} memory = { .lock = PTHREAD_MUTEX_INITIALIZER, .clock = 1 };
static __thread struct {
    struct {
        const char *base;
        size_t bytes;
    } dynamic[MOST_DYNAMIC];
    uint32_t n_dynamic, last, last_dynamic, shared_bytes;
    const char *dynamic_begin, *dynamic_end; // all of them lie between
    uint32_t time, block_time, warp_time[N_WARPS];
    uint32_t n_atomics[CUDA_RUN_THREADS]; // since the warp's last meeting
    bool has_atomics[N_WARPS];
    bool found;
    char finding[CUDA_RUN_ERROR_BYTES];
} check;
// Where each lane's n-th one was; of the threads that run kernels.
static __thread const volatile void *(*atomics)[ORDINALS][CUDA_RUN_LANES]; // [N_WARPS]

void cuda_check_add(const void *at, size_t bytes, enum cuda_check_memory kind)
{
    struct cuda_region r = { .base = at, .bytes = bytes, .memory = kind, .owner = &check };

    if (kind == CUDA_CHECK_GLOBAL || kind == CUDA_CHECK_SHARED) {
        r.cell_bytes = (bytes / 4 + 2) * sizeof(struct cuda_cell);
        r.cells = mmap(NULL, r.cell_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (r.cells == MAP_FAILED)
            abort();
    }
    if (kind == CUDA_CHECK_SHARED) {
        r.written = malloc(bytes / PAGE_BYTES + 1);
        if (!r.written)
            abort();
        memset(r.written, 1, bytes / PAGE_BYTES + 1);
    }
    pthread_mutex_lock(&memory.lock);
    if (memory.n_regions == MOST_REGIONS)
        abort();
    memory.regions[memory.n_regions] = r;
    memory.n_regions++; // a reader that counts it sees it
    pthread_mutex_unlock(&memory.lock);
}

static void forget(uint32_t i)
{
    if (memory.regions[i].cells)
        munmap(memory.regions[i].cells, memory.regions[i].cell_bytes);
    free(memory.regions[i].written);
    memory.regions[i] = memory.regions[--memory.n_regions];
    check.last = 0;
}

void cuda_check_forget(const void *at)
{
    pthread_mutex_lock(&memory.lock);
    for (uint32_t i = memory.n_regions; i-- > 0;)
        if (memory.regions[i].base == at) {
            forget(i);
            break;
        }
    pthread_mutex_unlock(&memory.lock);
}

void cuda_check_leave(void)
{
    pthread_mutex_lock(&memory.lock);
    for (uint32_t i = memory.n_regions; i-- > 0;)
        if (memory.regions[i].owner == &check && memory.regions[i].memory != CUDA_CHECK_GLOBAL)
            forget(i);
    pthread_mutex_unlock(&memory.lock);
    free(atomics);
    atomics = NULL;
}

void cuda_check_dynamic(const void *at, size_t most_bytes)
{
    if (check.n_dynamic == MOST_DYNAMIC)
        abort();
    const char *begin = at, *end = begin + most_bytes;
    if (!check.n_dynamic || begin < check.dynamic_begin)
        check.dynamic_begin = begin;
    if (!check.n_dynamic || end > check.dynamic_end)
        check.dynamic_end = end;
    check.dynamic[check.n_dynamic].base = at;
    check.dynamic[check.n_dynamic++].bytes = most_bytes;
}

const char *cuda_check_finding(void)
{
    bool found = check.found;

    check.found = false;
    return found ? check.finding : NULL;
}

// All kernels' variables are one region of megabytes, of which a block writes some pages.
static void make_nan(struct cuda_region *r)
{
    for (size_t at = 0; at < r->bytes; at += PAGE_BYTES)
        if (r->written[at / PAGE_BYTES]) {
            memset((char *)(uintptr_t)r->base + at, 0xff,
                   r->bytes - at < PAGE_BYTES ? r->bytes - at : PAGE_BYTES);
            r->written[at / PAGE_BYTES] = 0;
        }
}

// Shared memory begins as NaN.
void cuda_check_block(uint32_t shared_bytes)
{
    check.time = check.block_time = ++memory.clock;
    check.shared_bytes = shared_bytes;
    if (!atomics && !(atomics = calloc(N_WARPS, sizeof *atomics)))
        abort();
    memset(check.warp_time, 0, sizeof check.warp_time);
    memset(check.n_atomics, 0, sizeof check.n_atomics);
    memset(check.has_atomics, 0, sizeof check.has_atomics);
    for (uint32_t i = 0; i < memory.n_regions; i++)
        if (memory.regions[i].memory == CUDA_CHECK_SHARED && memory.regions[i].owner == &check)
            make_nan(&memory.regions[i]);
}

// Lanes whose n-th atomics since the last meeting were at the same place.
static void count_collisions(uint32_t warp)
{
    uint32_t *n = &check.n_atomics[warp * CUDA_RUN_LANES], most = 0;

    if (!check.has_atomics[warp])
        return;
    check.has_atomics[warp] = false;
    for (uint32_t lane = 0; lane < CUDA_RUN_LANES; lane++)
        most = n[lane] > most ? n[lane] : most;
    for (uint32_t k = 0; k < most && k < ORDINALS; k++)
        for (uint32_t lane = 1; lane < CUDA_RUN_LANES; lane++)
            for (uint32_t other = 0; other < lane; other++)
                if (n[lane] > k && n[other] > k && atomics[warp][k][lane] == atomics[warp][k][other]) {
                    cuda_run_counts.shared_collisions++;
                    break;
                }
    memset(n, 0, CUDA_RUN_LANES * sizeof *n);
}

void cuda_check_barrier(void)
{
    check.time = ++memory.clock;
    for (uint32_t i = 0; i < N_WARPS; i++)
        count_collisions(i);
}

void cuda_check_warp(uint32_t warp, bool ordered)
{
    if (ordered)
        check.warp_time[warp] = ++memory.clock;
    count_collisions(warp);
}

static struct cuda_region *region_of(const char *at, size_t bytes)
{
    for (uint32_t i = 0; i < memory.n_regions; i++) {
        uint32_t first = check.last < memory.n_regions ? check.last : 0, k = i == 0       ? first
                                                                             : i == first ? 0
                                                                                          : i;
        struct cuda_region *r = &memory.regions[k];
        if (at >= r->base && at + bytes <= r->base + r->bytes) {
            check.last = k;
            return r;
        }
    }
    return NULL;
}

static void note(const char *what, const char *at, const struct cuda_access *other)
{
    struct cuda_run_uint3 b = cuda_run_block.position;

    if (!check.found)
        snprintf(check.finding, sizeof check.finding, "%s: block (%u,%u,%u) thread %u: %s thread %u at %p",
                 cuda_run_block.kernel, b.x, b.y, b.z, cuda_run_self->index, what, other->thread,
                 (const void *)at);
    check.found = true;
}

static bool in_order(const struct cuda_access *before, const struct cuda_access *now)
{
    bool same_warp = before->thread / CUDA_RUN_LANES == now->thread / CUDA_RUN_LANES;

    if (before->time != now->time || !(before->bytes & now->bytes) || (before->atomic && now->atomic))
        return true;
    if (before->several)
        return before->one_warp && same_warp && now->warp_time > before->warp_time;
    return before->thread == now->thread || (same_warp && now->warp_time > before->warp_time);
}

static void reader_note(struct cuda_access *read, struct cuda_access now)
{
    bool same_warp = read->thread / CUDA_RUN_LANES == now.thread / CUDA_RUN_LANES,
         behind = same_warp && read->warp_time < now.warp_time && (!read->several || read->one_warp);

    if (read->time == now.time && !behind && (read->thread != now.thread || read->several)) {
        now.one_warp = same_warp && (!read->several || read->one_warp);
        now.several = true;
        now.bytes |= read->bytes;
    }
    *read = now;
}

static void touch(struct cuda_cell *c, const char *at, struct cuda_access now, bool write)
{
    if (!in_order(&c->write, &now))
        note(write ? "a write races with a write of" : "a read races with a write of", at, &c->write);
    if (write && !in_order(&c->read, &now))
        note("a write races with a read of", at, &c->read);
    if (!write)
        reader_note(&c->read, now);
    else if (!now.atomic || c->write.atomic || c->write.time != now.time)
        c->write = now; // an atomic does not hide a plain write, which races with others' atomics
}

static bool is_in_dynamic(uint32_t i, const char *at)
{
    return i < check.n_dynamic && (size_t)(at - check.dynamic[i].base) < check.dynamic[i].bytes;
}

static void check_dynamic(const char *at, size_t bytes, bool write)
{
    uint32_t i = check.last_dynamic;

    if (at < check.dynamic_begin || at >= check.dynamic_end)
        return;
    if (!is_in_dynamic(i, at))
        for (i = 0; i < check.n_dynamic && !is_in_dynamic(i, at);)
            i++;
    if (i == check.n_dynamic)
        return;
    check.last_dynamic = i;
    size_t offset = (size_t)(at - check.dynamic[i].base);
    if (offset + bytes > check.shared_bytes)
        cuda_run_fail("%s of %zu bytes at %zu of dynamic shared memory, which has %u",
                      write ? "write" : "read", bytes, offset, check.shared_bytes);
}

static void check_shared(const struct cuda_region *r, const char *at, size_t bytes, bool write)
{
    check_dynamic(at, bytes, write);
    for (size_t k = (size_t)(at - r->base) / 4; !write && k * 4 < (size_t)(at - r->base) + bytes; k++)
        if (r->cells[k].write.time < check.block_time)
            cuda_run_fail("shared memory is read before it was written");
    for (size_t page = (size_t)(at - r->base) / PAGE_BYTES;
         write && page * PAGE_BYTES < (size_t)(at - r->base) + bytes; page++)
        r->written[page] = 1;
}

static void access(const void *address, size_t bytes, bool write, bool atomic)
{
    const char *at = address;
    uint32_t owner;

    if (!cuda_run_self)
        return;
    if (cuda_run_on_stack(at, &owner)) {
        if (owner != cuda_run_self->index)
            cuda_run_fail("%s of thread %u's own memory", write ? "write" : "read", owner);
        return;
    }
    struct cuda_region *r = region_of(at, bytes);
    if (!r || (write && r->memory == CUDA_CHECK_CONSTANT))
        cuda_run_fail("%s of %zu bytes at %p, which is in no buffer", write ? "write" : "read", bytes,
                      address);
    if (r->memory == CUDA_CHECK_CONSTANT)
        return;
    if (((uintptr_t)at & (bytes - 1)) && !(bytes & (bytes - 1)))
        cuda_run_fail("%s of %zu bytes at %p, which is no multiple of them", write ? "write" : "read", bytes,
                      address);
    if (r->memory == CUDA_CHECK_SHARED)
        check_shared(r, at, bytes, write && !atomic);
    struct cuda_access now = { .time = check.time,
                               .warp_time = check.warp_time[cuda_run_self->warp->index],
                               .thread = (uint16_t)cuda_run_self->index,
                               .atomic = atomic };
    size_t from = (size_t)(at - r->base), to = from + bytes;
    for (size_t word = from / 4; word * 4 < to; word++) {
        uint32_t first = word * 4 < from ? (uint32_t)(from - word * 4) : 0,
                 last = word * 4 + 4 > to ? (uint32_t)(to - word * 4) : 4;
        now.bytes = (uint8_t)((1u << last) - (1u << first));
        touch(&r->cells[word], at, now, write);
    }
    if (r->memory != CUDA_CHECK_GLOBAL || atomic)
        return;
    *(write ? &cuda_run_counts.write_bytes : &cuda_run_counts.read_bytes) += bytes;
}

void cuda_check_access(const void *at, size_t bytes, bool write)
{
    access(at, bytes, write, false);
}

void cuda_check_atomic(const volatile void *at, size_t bytes)
{
    const struct cuda_region *r = region_of((const char *)(uintptr_t)at, bytes);

    access((const void *)(uintptr_t)at, bytes, true, true);
    if (!r || r->memory != CUDA_CHECK_SHARED) {
        cuda_run_counts.global_atomics++;
        return;
    }
    uint32_t n = check.n_atomics[cuda_run_self->index]++;
    check.has_atomics[cuda_run_self->warp->index] = true;
    if (n < ORDINALS)
        atomics[cuda_run_self->warp->index][n][cuda_run_self->lane] = at;
    cuda_run_counts.shared_atomics++;
}
