// msl_check.c - the race and bounds checker of translated kernels: what compute-sanitizer is for CUDA.
//
// Kernels compiled with -fsanitize=thread call a hook for every load and store; ThreadSanitizer itself is not
// linked. Each byte of device and threadgroup memory has a shadow cell: who wrote it last, who read it last,
// and when; bytes that were only accessed together so far share one. Two accesses by different threads are in
// order if a barrier with the right mem_flags lies between them (threadgroup_barrier for the threadgroup,
// simdgroup_barrier inside a simdgroup), or if msl_check_order was called between their dispatches.
// Everything else where one of the two writes is a race, whatever order this run happened to have. It sees
// the executed path only.
#include "msl_fiber.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct access {                              // when and by whom
    uint32_t group, group_epoch, simd_epoch; // group 0: never
    uint16_t thread;
    bool several, simd_only; // of readers: more than one thread since the last barrier; all of one simdgroup
};
struct cell {
    struct access write, read;
};
enum { BLOCK = 16, BLOCK_BITS = 4 };
struct shadow_block { // of BLOCK bytes. No access so far divided its 1 << split parts, which have a cell each
    struct cell cells[BLOCK];
    uint32_t split;
};
enum pointer_memory { DEVICE, THREADGROUP, N_MEMORIES };
struct region {
    const char *base;
    size_t bytes;
    struct shadow_block *blocks; // the first is the one that `base` lies in
    enum pointer_memory memory;
    int index;            // of an argument
    const char *variable; // or its name
};
struct shadow { // of device memory, kept from dispatch to dispatch; whole blocks
    const char *base;
    size_t bytes;
    struct shadow_block *blocks;
};

struct image { // a loaded library
    const char *start, *end;
};

enum { MAX_IMAGES = 256 };
static struct {
    const struct msl_dispatch *dispatch;
    const struct msl_group *group;
    struct region regions[2 * MSL_BUFFERS], variable;
    int n_regions, last_region; // where the last access was
    struct image image;         // the kernel's
    struct shadow *shadows;
    int n_shadows, n_findings;
    struct shadow_block *threadgroup_blocks;
    // The groups up to this one are ordered before those that run now.
    uint32_t ordered_group;
    uint32_t group_id, group_epoch[N_MEMORIES], simd_epoch[MSL_THREADS / MSL_LANES][N_MEMORIES];
    char finding[MSL_ERROR_BYTES];
} check;

static size_t blocks_bytes(size_t bytes)
{
    return bytes / BLOCK * sizeof(struct shadow_block) + 4096;
}

static struct shadow_block *blocks_map(size_t bytes)
{
    void *at = mmap(NULL, blocks_bytes(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        abort();
    return at;
}

__attribute__((format(printf, 1, 2))) static void report(const char *format, ...)
{
    struct msl_uint3 at = check.group->position;
    va_list list;
    int n;

    if (check.n_findings++)
        return;
    n = snprintf(check.finding, sizeof check.finding,
                 "%s: threadgroup (%u,%u,%u) thread %u: ", check.dispatch->kernel->name, at.x, at.y, at.z,
                 msl_self->index);
    va_start(list, format);
    vsnprintf(check.finding + n, sizeof check.finding - (size_t)n, format, list);
    va_end(list);
}

void msl_check_order(void)
{
    check.ordered_group = check.group_id;
}

void msl_check_forget(const void *at, size_t bytes)
{
    const char *base = at;

    for (int i = check.n_shadows; i-- > 0;) {
        struct shadow *s = &check.shadows[i];
        if (s->base + s->bytes <= base || base + bytes <= s->base)
            continue;
        munmap(s->blocks, blocks_bytes(s->bytes));
        *s = check.shadows[--check.n_shadows];
    }
}

static const char *block_of(const char *at)
{
    return at - (uintptr_t)at % BLOCK;
}

// Two buffers of a dispatch may lie in one allocation: a shadow covers what was seen of it so far, and grows.
static struct shadow_block *shadow_of(const char *base, size_t bytes)
{
    struct shadow grown = { .base = block_of(base) };

    grown.bytes = (size_t)(block_of(base + bytes + BLOCK - 1) - grown.base);
    for (int i = 0; i < check.n_shadows; i++) {
        struct shadow *s = &check.shadows[i];
        if (s->base <= grown.base && grown.base + grown.bytes <= s->base + s->bytes)
            return s->blocks + (grown.base - s->base) / BLOCK;
    }
    for (int i = 0; i < check.n_shadows; i++) {
        struct shadow *s = &check.shadows[i];
        const char *end = grown.base + grown.bytes, *other = s->base + s->bytes;
        if (other <= grown.base || end <= s->base)
            continue;
        grown.base = s->base < grown.base ? s->base : grown.base;
        grown.bytes = (size_t)((other > end ? other : end) - grown.base);
    }
    grown.blocks = blocks_map(grown.bytes);
    for (int i = check.n_shadows; i-- > 0;) {
        struct shadow *s = &check.shadows[i];
        if (s->base + s->bytes <= grown.base || grown.base + grown.bytes <= s->base)
            continue;
        memcpy(grown.blocks + (s->base - grown.base) / BLOCK, s->blocks,
               s->bytes / BLOCK * sizeof *s->blocks);
        munmap(s->blocks, blocks_bytes(s->bytes));
        *s = check.shadows[--check.n_shadows];
    }
    check.shadows = realloc(check.shadows, sizeof *check.shadows * (size_t)(check.n_shadows + 1));
    check.shadows[check.n_shadows++] = grown;
    return grown.blocks + (block_of(base) - grown.base) / BLOCK;
}

static void region_add(const void *base, size_t bytes, struct shadow_block *blocks,
                       enum pointer_memory memory, int index)
{
    check.regions[check.n_regions++] =
        (struct region){ .base = base, .bytes = bytes, .blocks = blocks, .memory = memory, .index = index };
}

static struct image images[MAX_IMAGES];
static int n_images;

// Constants of the kernel's own library are read through hooks as well.
void msl_check_image(const void *start, size_t bytes)
{
    images[n_images++ % MAX_IMAGES] = (struct image){ start, (const char *)start + bytes };
}

// The newest that it lies in: where an older one was, anything may lie by now.
static struct image image_of(const char *at)
{
    for (int i = n_images; i-- > 0 && i >= n_images - MAX_IMAGES;) {
        struct image image = images[i % MAX_IMAGES];
        if (at >= image.start && at < image.end)
            return image;
    }
    return (struct image){ 0 };
}

void msl_check_begin(const struct msl_dispatch *d, const struct msl_group *g)
{
    check.dispatch = d;
    check.group = g;
    check.n_regions = check.last_region = check.n_findings = 0;
    check.variable.bytes = 0;
    check.image = image_of((const char *)d->kernel);
    if (!check.threadgroup_blocks)
        check.threadgroup_blocks = blocks_map(MSL_THREADGROUP_BYTES);
    for (int i = 0; i < MSL_BUFFERS; i++)
        if (d->buffers[i])
            shadow_of(d->buffers[i], d->buffer_bytes[i]); // shadows may move until all are known
    for (int i = 0; i < MSL_BUFFERS; i++)
        if (d->buffers[i])
            region_add(d->buffers[i], d->buffer_bytes[i], shadow_of(d->buffers[i], d->buffer_bytes[i]),
                       DEVICE, i);
    for (int i = 0; i < MSL_BUFFERS; i++)
        if (g->threadgroup[i])
            region_add(g->threadgroup[i], d->threadgroup_bytes[i],
                       check.threadgroup_blocks + (g->threadgroup[i] - g->memory) / BLOCK, THREADGROUP, i);
}

void msl_check_group(void)
{
    check.group_id++;
    for (int m = 0; m < N_MEMORIES; m++) {
        check.group_epoch[m] = 1;
        for (int i = 0; i < MSL_THREADS / MSL_LANES; i++)
            check.simd_epoch[i][m] = 1;
    }
}

void msl_check_barrier(int simd, uint32_t flags)
{
    for (int m = 0; m < N_MEMORIES; m++) // mem_device is bit 0, mem_threadgroup bit 1
        if (flags >> m & 1) {
            if (simd < 0)
                check.group_epoch[m]++;
            else
                check.simd_epoch[simd][m]++;
        }
}

const char *msl_check_finding(void)
{
    return check.n_findings ? check.finding : NULL;
}

static bool same_simd(const struct access *a, const struct access *b)
{
    return a->thread / MSL_LANES == b->thread / MSL_LANES;
}

static bool is_ordered(const struct access *before, const struct access *now, enum pointer_memory memory)
{
    if (before->group != now->group)
        return memory == THREADGROUP || before->group <= check.ordered_group;
    if (now->group_epoch > before->group_epoch)
        return true;
    if (before->several)
        return before->simd_only && same_simd(before, now) && now->simd_epoch > before->simd_epoch;
    return before->thread == now->thread || (same_simd(before, now) && now->simd_epoch > before->simd_epoch);
}

static const char *whose(const struct access *other, const struct access *now)
{
    return other->group != now->group ? "another threadgroup or dispatch"
           : same_simd(other, now)    ? "a thread of the same simdgroup"
                                      : "a thread of another simdgroup";
}

// The newest readers stay: several threads of one simdgroup, or of many, count together until the next
// barrier.
static void reader_note(struct access *read, struct access now, enum pointer_memory memory)
{
    bool together = read->group == now.group && read->group_epoch == now.group_epoch;
    // Readers of the same simdgroup before its last barrier: whoever races with them races with this one too.
    bool behind = together && same_simd(read, &now) && read->simd_epoch < now.simd_epoch &&
                  (!read->several || read->simd_only);

    if (memory != THREADGROUP && read->group != now.group && read->group > check.ordered_group) {
        now.several = true;
    } else if (together && !behind && (read->thread != now.thread || read->several)) {
        now.several = true;
        now.simd_only = same_simd(read, &now) && (!read->several || read->simd_only);
    }
    *read = now;
}

static const char *region_name(const struct region *r)
{
    static char name[64];

    if (r->variable)
        snprintf(name, sizeof name, "threadgroup %s", r->variable);
    else
        snprintf(name, sizeof name, "%s(%d)", r->memory == DEVICE ? "buffer" : "threadgroup", r->index);
    return name;
}

static bool cell_touch(struct cell *cell, const struct region *r, size_t offset, const struct access *now,
                       bool write)
{
    if (r->memory == THREADGROUP && !write && cell->write.group != now->group) {
        report("%s + %zu is read before anything was written there", region_name(r), offset);
        return false;
    }
    if (!is_ordered(&cell->write, now, r->memory)) {
        report("%s races with a write by %s: %s + %zu, thread %u", write ? "write" : "read",
               whose(&cell->write, now), region_name(r), offset, cell->write.thread);
        return false;
    }
    if (!write) {
        reader_note(&cell->read, *now, r->memory);
        return true;
    }
    if (!is_ordered(&cell->read, now, r->memory)) {
        report("write races with a read by %s: %s + %zu, thread %u", whose(&cell->read, now), region_name(r),
               offset, cell->read.thread);
        return false;
    }
    cell->write = *now;
    return true;
}

static void block_split(struct shadow_block *b, uint32_t split)
{
    for (uint32_t i = 1u << split; i-- > 0;)
        b->cells[i] = b->cells[i >> (split - b->split)];
    b->split = split;
}

// `bytes` from offset `from` of a block on, which are `at` in the region.
static bool block_touch(struct shadow_block *b, uint32_t from, uint32_t bytes, const struct region *r,
                        size_t at, const struct access *now, bool write)
{
    uint32_t split = BLOCK_BITS - (uint32_t)__builtin_ctz(from | bytes), shift;

    if (split > b->split)
        block_split(b, split);
    shift = BLOCK_BITS - b->split;
    for (uint32_t i = from >> shift; i < (from + bytes) >> shift; i++)
        if (!cell_touch(&b->cells[i], r, at + (i << shift) - from, now, write))
            return false;
    return true;
}

// Simdgroup functions are inlined into kernels: what they exchange is the run time's own memory.
static bool is_own(const char *at)
{
    const struct msl_worker *w = msl_worker_self;
    const char *simds = (const char *)w->simds, *lanes = (const char *)w->lanes;

    return (at >= simds && at < simds + sizeof *w->simds * (MSL_THREADS / MSL_LANES)) ||
           (at >= lanes && at < lanes + sizeof *w->lanes * MSL_THREADS) ||
           (at >= (const char *)w && at < (const char *)(w + 1)) ||
           (at >= (const char *)w->dispatch && at < (const char *)(w->dispatch + 1)) ||
           at == (const char *)&msl_self || at == (const char *)&msl_settings;
}

static bool is_within(const struct region *r, const char *at, size_t bytes)
{
    return at >= r->base && at + bytes <= r->base + r->bytes;
}

static const struct region *variable_of(const char *at, size_t bytes)
{
    const struct msl_group *g = check.group;

    if ((size_t)(at - (const char *)g->memory) >= MSL_THREADGROUP_BYTES)
        return NULL;
    for (int i = 0; i < MSL_VARIABLES; i++) {
        const struct msl_variable *v = &g->variables[i];
        struct region r = { .base = (const char *)g->memory + v->offset, .bytes = v->bytes };
        if (!is_within(&r, at, bytes))
            continue;
        r.blocks = check.threadgroup_blocks + v->offset / BLOCK;
        r.memory = THREADGROUP;
        r.variable = v->name;
        check.variable = r;
        return &check.variable;
    }
    return NULL;
}

static const struct region *region_of(const char *at, size_t bytes)
{
    if (is_within(&check.variable, at, bytes))
        return &check.variable;
    if (check.last_region < check.n_regions && is_within(&check.regions[check.last_region], at, bytes))
        return &check.regions[check.last_region];
    for (int i = 0; i < check.n_regions; i++)
        if (is_within(&check.regions[i], at, bytes)) {
            check.last_region = i;
            return &check.regions[i];
        }
    return variable_of(at, bytes);
}

static size_t distance(const struct region *r, const char *at)
{
    return at < r->base ? (size_t)(r->base - at) : (size_t)(at - r->base) - r->bytes;
}

// Ends the thread: the access itself must not happen. The nearest argument is named.
static void report_outside(const char *at, size_t bytes, bool write)
{
    const struct region *near = NULL;
    const char *verb = write ? "write" : "read", *memory = (const char *)check.group->memory;

    if (at >= memory && at < memory + MSL_THREADGROUP_BYTES)
        msl_fail("%s of %zu bytes outside of every threadgroup variable: %ld of %u bytes", verb, bytes,
                 (long)(at - memory), check.group->memory_bytes);
    for (int i = 0; i < check.n_regions; i++)
        if (check.regions[i].memory == DEVICE &&
            (!near || distance(&check.regions[i], at) < distance(near, at)))
            near = &check.regions[i];
    if (near && distance(near, at) < 1 << 20)
        msl_fail("%s of %zu bytes outside of %s: offset %ld of %zu", verb, bytes, region_name(near),
                 (long)(at - near->base), near->bytes);
    msl_fail("%s of %zu bytes where no argument points", verb, bytes);
}

void msl_check_access(const void *address, size_t bytes, bool write)
{
    const char *at = address;
    const struct region *r;
    struct access now;
    uint32_t lane;

    if (!msl_self || !check.group)
        return;
    if (msl_stack_of(at, &lane)) {
        if (lane != msl_self->index)
            report("%s of thread %u's own memory", write ? "write" : "read", lane);
        return;
    }
    if (is_own(at) || (!write && at >= check.image.start && at < check.image.end))
        return;
    r = region_of(at, bytes);
    if (!r) {
        if (write || !image_of(at).start)
            report_outside(at, bytes, write);
        return;
    }
    now = (struct access){ .group = check.group_id,
                           .group_epoch = check.group_epoch[r->memory],
                           .simd_epoch = check.simd_epoch[msl_self->simd->index][r->memory],
                           .thread = (uint16_t)msl_self->index };
    for (struct shadow_block *b = r->blocks + (block_of(at) - block_of(r->base)) / BLOCK; bytes; b++) {
        size_t from = (uintptr_t)at % BLOCK, n = bytes < BLOCK - from ? bytes : BLOCK - from;
        if (!block_touch(b, (uint32_t)from, (uint32_t)n, r, (size_t)(at - r->base), &now, write))
            return;
        at += n;
        bytes -= n;
    }
}

// Atomics do not race with one another; only their place is checked.
void msl_check_atomic(const volatile void *at, size_t bytes)
{
    uint32_t lane;

    if (!msl_self || !check.group || !msl_worker_self->dispatch->check)
        return;
    if (!msl_stack_of((const void *)at, &lane) && !region_of((const char *)at, bytes))
        report_outside((const char *)at, bytes, true);
}
