// merge_queue.h - a priority queue of the possible merges of one word: pairs (rank, position), the smallest
// first.
//
// A plain heap of ten million symbols misses the cache at every level. Merges of one rank are found while
// sweeping over the word, so their positions arrive almost in order: they are stored as ascending runs, and
// only the heads of the runs are in a heap. Every order of pushes is correct; ascending positions are fast.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MERGE_CHUNK = 15, MERGE_OPEN = 1024 };

struct merge_chunk {
    uint32_t next;
    uint32_t positions[MERGE_CHUNK];
};
struct merge_run {
    uint32_t rank;              // UINT32_MAX: free
    uint32_t first, last;       // chunks; first: next in the free list of runs
    uint32_t n_read, n_written; // in the first, in the last chunk
    uint32_t last_position;
};
struct merge_head {
    uint64_t key; // rank << 32 | position
    uint32_t run;
};

struct merge_queue { // zero-initialise
    struct merge_chunk *chunks;
    struct merge_run *runs;
    struct merge_head *heads;
    size_t chunks_bytes, runs_bytes, heads_bytes;
    uint32_t n_chunks, n_runs, free_chunk, free_run; // free lists hold index + 1
    size_t n_heads;
    uint32_t open[MERGE_OPEN]; // by rank modulo: index + 1 of the run that was last written
};

bool merge_queue_push(struct merge_queue *queue, uint32_t rank, uint32_t position);  // false without memory
bool merge_queue_pop(struct merge_queue *queue, uint32_t *rank, uint32_t *position); // false when empty
void merge_queue_free(struct merge_queue *queue);
