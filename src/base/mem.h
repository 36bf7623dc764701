// mem.h - the only source of memory.
//
// Everything is counted, so that a test can show that nothing is allocated per token, and any allocation can
// be made to fail, so that a test can show what happens then. Thread safe.
#pragma once
#include <stddef.h>
#include <stdint.h>

// Zeroed memory, or NULL when there is none or bytes is 0. Free with mem_free.
void *mem_alloc(size_t bytes);
// The same for n elements; NULL when n * bytes overflows.
void *mem_alloc_array(size_t n, size_t bytes);
// The same for a block that is written as a whole: huge pages are asked for when it is large.
void *mem_alloc_filled(size_t n, size_t bytes);
// Grows or shrinks; new bytes are not zeroed. On NULL the old memory is still valid.
void *mem_realloc(void *memory, size_t bytes);
void mem_free(void *memory);
// Returns free memory to the system, after something large and rare.
void mem_give_back(void);
// Aligned to `alignment` (a power of two), not zeroed; huge pages are asked for when bytes is large. Free
// with mem_free_aligned.
void *mem_alloc_aligned(size_t bytes, size_t alignment);
void mem_free_aligned(void *memory);

// Whole zeroed pages straight from the system, touched only when used; huge pages are asked for. For caches
// and scratch that may be reserved far beyond what is ever used. Free with mem_free_pages and the same
// number.
void *mem_alloc_pages(size_t bytes);
void mem_free_pages(void *memory, size_t bytes);

// Number of allocations since the start of the process.
uint64_t mem_n_allocations(void);
// Makes the n-th allocation from now (1 = the next) fail; with sticky all later ones too. 0 switches this
// off.
void mem_fail_at(uint64_t n, int sticky);
