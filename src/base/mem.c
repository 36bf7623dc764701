// mem.c - see mem.h.
#include "base/mem.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

static atomic_uint_fast64_t n_allocations;
static atomic_uint_fast64_t fail_at; // value of n_allocations that fails; 0 = none
static atomic_int fail_sticky;

static int must_fail(void)
{
    uint64_t n = atomic_fetch_add_explicit(&n_allocations, 1, memory_order_relaxed) + 1;
    uint64_t at = atomic_load_explicit(&fail_at, memory_order_relaxed);
    return at != 0 && (n == at || (n > at && atomic_load_explicit(&fail_sticky, memory_order_relaxed)));
}

void *mem_alloc(size_t bytes)
{
    return bytes == 0 || must_fail() ? NULL : calloc(1, bytes);
}

void *mem_alloc_array(size_t n, size_t bytes)
{
    size_t total;
    return __builtin_mul_overflow(n, bytes, &total) ? NULL : mem_alloc(total);
}

// Asks for huge pages where a block is large enough to gain (measured:
// bench/results/2026-11-22-cpu-kernel-choices.md). A refusal does no harm.
static void *prefer_huge_pages(void *memory, size_t bytes)
{
#ifdef MADV_HUGEPAGE
    if (memory && bytes >= (size_t)1 << 22)
        (void)madvise((void *)(((uintptr_t)memory + 4095) & ~(uintptr_t)4095), (bytes - 4096) & ~(size_t)4095,
                      MADV_HUGEPAGE);
#endif
    return memory;
}

void *mem_alloc_filled(size_t n, size_t bytes)
{
    return prefer_huge_pages(mem_alloc_array(n, bytes), n * bytes);
}

void *mem_realloc(void *memory, size_t bytes)
{
    return bytes == 0 || must_fail() ? NULL : prefer_huge_pages(realloc(memory, bytes), bytes);
}

void mem_free(void *memory)
{
    free(memory);
}

void mem_give_back(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

void *mem_alloc_aligned(size_t bytes, size_t alignment)
{
    void *memory = NULL;

    if (bytes == 0 || must_fail() || posix_memalign(&memory, alignment, bytes) != 0)
        return NULL;
    return prefer_huge_pages(memory, bytes);
}

void mem_free_aligned(void *memory)
{
    free(memory);
}

void *mem_alloc_pages(size_t bytes)
{
    if (bytes == 0 || must_fail())
        return NULL;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
#ifdef MADV_HUGEPAGE
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    return memory;
}

void mem_free_pages(void *memory, size_t bytes)
{
    if (memory)
        munmap(memory, bytes);
}

uint64_t mem_n_allocations(void)
{
    return atomic_load_explicit(&n_allocations, memory_order_relaxed);
}

void mem_fail_at(uint64_t n, int sticky)
{
    atomic_store(&fail_sticky, sticky);
    atomic_store(&fail_at, n ? mem_n_allocations() + n : 0);
}
