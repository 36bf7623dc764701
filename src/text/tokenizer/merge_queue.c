// merge_queue.c - see merge_queue.h. A run is a list of chunks; runs and chunks that are read to the end are
// reused. `open` is a hint: without it a run is shorter than possible, but still correct.
#include "text/tokenizer/merge_queue.h"
#include "base/mem.h"

enum { CHILDREN = 4 };

static bool grow(void *memory_at, size_t *have, size_t bytes)
{
    void **memory = memory_at;
    if (bytes <= *have)
        return true;
    size_t wanted = bytes < 1024 ? 1024 : bytes + bytes / 2;
    void *grown = mem_realloc(*memory, wanted);
    if (!grown)
        return false;
    *memory = grown;
    *have = wanted;
    return true;
}

static void sift_up(struct merge_head *heads, size_t i, struct merge_head head)
{
    for (; i > 0 && heads[(i - 1) / CHILDREN].key > head.key; i = (i - 1) / CHILDREN)
        heads[i] = heads[(i - 1) / CHILDREN];
    heads[i] = head;
}

static void sift_down(struct merge_head *heads, size_t n, struct merge_head head)
{
    size_t i = 0;
    for (size_t first; (first = i * CHILDREN + 1) < n;) {
        size_t end = first + CHILDREN < n ? first + CHILDREN : n, least = first;
        for (size_t child = first + 1; child < end; child++)
            if (heads[child].key < heads[least].key)
                least = child;
        if (heads[least].key >= head.key)
            break;
        heads[i] = heads[least];
        i = least;
    }
    heads[i] = head;
}

static uint32_t take_chunk(struct merge_queue *queue)
{
    uint32_t chunk = queue->free_chunk;
    if (chunk) {
        queue->free_chunk = queue->chunks[chunk - 1].next;
        return chunk;
    }
    if (!grow(&queue->chunks, &queue->chunks_bytes, ((size_t)queue->n_chunks + 1) * sizeof *queue->chunks))
        return 0;
    return ++queue->n_chunks;
}

static uint32_t take_run(struct merge_queue *queue)
{
    uint32_t run = queue->free_run;
    if (run) {
        queue->free_run = queue->runs[run - 1].first;
        return run;
    }
    if (!grow(&queue->runs, &queue->runs_bytes, ((size_t)queue->n_runs + 1) * sizeof *queue->runs))
        return 0;
    return ++queue->n_runs;
}

static bool append(struct merge_queue *queue, struct merge_run *run, uint32_t position)
{
    if (run->n_written == MERGE_CHUNK) {
        uint32_t chunk = take_chunk(queue);
        if (!chunk)
            return false;
        queue->chunks[run->last].next = chunk - 1;
        run->last = chunk - 1;
        run->n_written = 0;
    }
    queue->chunks[run->last].positions[run->n_written++] = position;
    run->last_position = position;
    return true;
}

bool merge_queue_push(struct merge_queue *queue, uint32_t rank, uint32_t position)
{
    uint32_t *open = &queue->open[rank % MERGE_OPEN];
    if (*open) {
        struct merge_run *run = &queue->runs[*open - 1];
        if (run->rank == rank && run->last_position <= position)
            return append(queue, run, position);
    }
    uint32_t chunk = take_chunk(queue), run = chunk ? take_run(queue) : 0;
    if (!run || !grow(&queue->heads, &queue->heads_bytes, (queue->n_heads + 1) * sizeof *queue->heads))
        return false;
    queue->runs[run - 1] = (struct merge_run){ .rank = rank, .first = chunk - 1, .last = chunk - 1 };
    append(queue, &queue->runs[run - 1], position);
    *open = run;
    struct merge_head head = { (uint64_t)rank << 32 | position, run - 1 };
    sift_up(queue->heads, queue->n_heads++, head);
    return true;
}

static void release_chunk(struct merge_queue *queue, uint32_t chunk)
{
    queue->chunks[chunk].next = queue->free_chunk;
    queue->free_chunk = chunk + 1;
}

// After the run's first position was read: pushes the next one to the heap, or frees the run.
static void advance(struct merge_queue *queue, struct merge_head head)
{
    struct merge_run *run = &queue->runs[head.run];
    if (run->first == run->last && run->n_read + 1 == run->n_written) {
        release_chunk(queue, run->first);
        *run = (struct merge_run){ .rank = UINT32_MAX, .first = queue->free_run };
        queue->free_run = head.run + 1;
        head = queue->heads[--queue->n_heads];
        if (queue->n_heads == 0)
            return;
    } else {
        if (++run->n_read == MERGE_CHUNK) {
            uint32_t next = queue->chunks[run->first].next;
            release_chunk(queue, run->first);
            run->first = next;
            run->n_read = 0;
        }
        head.key = (uint64_t)run->rank << 32 | queue->chunks[run->first].positions[run->n_read];
    }
    sift_down(queue->heads, queue->n_heads, head);
}

bool merge_queue_pop(struct merge_queue *queue, uint32_t *rank, uint32_t *position)
{
    if (queue->n_heads == 0)
        return false;
    struct merge_head head = queue->heads[0];
    *rank = (uint32_t)(head.key >> 32);
    *position = (uint32_t)head.key;
    advance(queue, head);
    return true;
}

void merge_queue_free(struct merge_queue *queue)
{
    mem_free(queue->chunks);
    mem_free(queue->runs);
    mem_free(queue->heads);
    *queue = (struct merge_queue){ 0 };
}
